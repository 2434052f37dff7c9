//! mpip

fn main() {}
