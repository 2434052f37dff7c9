//! Checks of the source that rustc and clippy do not make: `mpip-lint [DIRECTORY [CRATE...]]`
//! checks those crates of the repository in this directory, or all.
//!
//! - Modules import each other as a tree: no circle ([`circles`]).
//! - Lines of comments and documentation fit the width that code has ([`width`]).
//! - Tables of the documents render, and links lead somewhere ([`documents`]).
//!
//! Prints each finding with its place, and exits with 1 when there is one.

mod circles;
mod documents;
mod graph;
mod modules;
mod width;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Crates of the repository at `root`: directories with a manifest and a `src`. Only those that
/// `wanted` names, if it names any.
fn crates(root: &Path, wanted: &[OsString]) -> std::io::Result<Vec<PathBuf>> {
    if !wanted.is_empty() {
        return Ok(wanted.iter().map(|name| root.join(name)).collect());
    }
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

fn check(root: &Path, wanted: &[OsString]) -> Result<Vec<String>, String> {
    let crates = crates(root, wanted).map_err(|error| format!("{}: {error}", root.display()))?;
    if crates.is_empty() {
        return Err(format!("{}: no crate, expected directories with Cargo.toml", root.display()));
    }
    let mut findings = Vec::new();
    for directory in crates {
        if !directory.join("src").is_dir() {
            return Err(format!("{}: no crate, expected a `src`", directory.display()));
        }
        findings.extend(circles::check(&directory)?);
        findings.extend(width::check(&directory)?);
    }
    findings.extend(documents::check(root)?);
    Ok(findings)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let root = arguments.next().map_or_else(|| PathBuf::from("."), PathBuf::from);
    match check(&root, &arguments.collect::<Vec<_>>()) {
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
