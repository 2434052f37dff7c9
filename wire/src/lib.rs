//! Packet and frame formats of mpip: views that never panic
