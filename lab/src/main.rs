//! mpip-lab

fn main() {}
