//! Prints the manual page of `mpipd`, out of the definition of its command line.

#[allow(dead_code, reason = "only the definition is of use here")]
#[path = "../src/arguments.rs"]
mod arguments;

use clap::CommandFactory;

fn main() -> std::io::Result<()> {
    let page = clap_mangen::Man::new(arguments::Arguments::command()).title("MPIPD").section("8");
    page.render(&mut std::io::stdout())
}
