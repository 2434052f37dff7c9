//! The lab's program on this machine's kernel. Needs root.

mod floor;
mod kill_matrix;
mod testbed;

const LAB: &str = env!("CARGO_BIN_EXE_mpip-lab");
