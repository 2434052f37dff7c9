//! Identities, handshake, packet protection and replay windows of mpip
