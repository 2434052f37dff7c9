//! The mpip engine: associations, paths, sessions, scheduling, without I/O
