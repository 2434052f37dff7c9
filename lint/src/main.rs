//! Checks of the source that rustc and clippy do not make: `mpip-lint [DIRECTORY]`.
//!
//! - Modules import each other as a tree: no circle ([`circles`]).
//! - Lines of comments and documentation fit the width that code has ([`width`]).
//!
//! Prints each finding with its place, and exits with 1 when there is one.

mod circles;
mod graph;
mod modules;
mod width;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Crates of the repository at `root`: directories with a manifest and a `src`.
fn crates(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut crates = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.join("Cargo.toml").is_file() && path.join("src").is_dir() {
            crates.push(path);
        }
    }
    crates.sort();
    Ok(crates)
}

fn check(root: &Path) -> Result<Vec<String>, String> {
    let crates = crates(root).map_err(|error| format!("{}: {error}", root.display()))?;
    if crates.is_empty() {
        return Err(format!("{}: no crate, expected directories with Cargo.toml", root.display()));
    }
    let mut findings = Vec::new();
    for directory in crates {
        findings.extend(circles::check(&directory)?);
        findings.extend(width::check(&directory)?);
    }
    Ok(findings)
}

fn main() -> ExitCode {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    match check(&root) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            findings.iter().for_each(|finding| eprintln!("{finding}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("mpip-lint: {error}");
            ExitCode::from(2)
        }
    }
}
