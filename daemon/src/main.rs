//! mpipd

fn main() {}
