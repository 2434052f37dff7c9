//! `mpip generate`: manual pages and completions for shells, out of the command line's definition.
//! For packages; not shown in the help.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::{Shell, generate_to};

use crate::failure::Failure;

/// Writes `mpip.1`, a page for each command, and completions into `directory`.
pub(crate) fn generate(mut command: Command, directory: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure(format!("cannot write manual pages to `{}`: {error}", directory.display()))
    };
    fs::create_dir_all(directory).map_err(failed)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        generate_to(shell, &mut command, "mpip", directory).map_err(failed)?;
    }
    // Gives each command the name of its page, and the options that all share.
    command.build();
    pages(&command, directory).map_err(failed)
}

fn pages(command: &Command, directory: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).section("1");
    page.render(&mut File::create(directory.join(format!("{name}.1")))?)?;
    let shown = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    command.get_subcommands().filter(shown).try_for_each(|sub| pages(sub, directory))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use mpip_testing::Directory;

    use super::*;
    use crate::Arguments;

    #[test]
    fn every_command_has_a_page_and_completions_know_it() {
        let directory = Directory::new();
        generate(Arguments::command(), directory.path()).expect("writable");
        let read = |name: &str| fs::read_to_string(directory.join(name)).expect(name);
        assert!(read("mpip.1").contains("mpip invite laptop"));
        let shells = [read("mpip.bash"), read("mpip.fish"), read("_mpip")];
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name();
            if command.is_hide_set() {
                assert!(!directory.join(format!("mpip-{name}.1")).exists(), "{name}");
                continue;
            }
            assert!(read(&format!("mpip-{name}.1")).contains(".SH SYNOPSIS"), "{name}");
            assert!(shells.iter().all(|shell| shell.contains(name)), "{name}");
        }
        assert!(read("mpip-set-peer.1").contains("KEY=VALUE"));
    }
}
