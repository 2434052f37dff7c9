//! Types of the mpip control socket
