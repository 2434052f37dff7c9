//! Deterministic simulator of mpip hosts and links
