//! Programs in Go that scenarios use: each has a directory in `lab` with its `go.mod`, which fixes
//! the versions, and is built when it is first needed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::command::Running;
use crate::progress::Work;

/// Longest time to download modules and compile.
const BUILD: Duration = Duration::from_secs(300);

/// The programs.
const PROGRAMS: [&str; 2] = ["quic-go", "wireguard-go"];

/// The path of a program, which is built if its sources are newer.
///
/// # Errors
/// There is no such program, Go is missing, or the build fails.
pub(crate) fn program(name: &str) -> io::Result<PathBuf> {
    if !PROGRAMS.contains(&name) {
        return Err(io::Error::other(format!("expected one of {PROGRAMS:?}, found {name:?}")));
    }
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = lab.join(name);
    let built = lab.with_file_name("target").join("go").join(name);
    if modified(&built) > newest(&sources)? {
        return Ok(built);
    }
    let line: [&std::ffi::OsStr; 7] = [
        "go".as_ref(),
        "-C".as_ref(),
        sources.as_ref(),
        "build".as_ref(),
        "-o".as_ref(),
        built.as_ref(),
        ".".as_ref(),
    ];
    let _progress = Work::new(&format!("building {name}"), 1);
    let build = Running::start(&line).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!("{name} needs Go 1.26 or later, and there is no program `go`");
            io::Error::new(error.kind(), message)
        }
        _ => error,
    })?;
    let output = build.finish(Instant::now() + BUILD);
    if output.succeeded() {
        // The linker leaves a program as it is that would not change.
        let _ = std::fs::File::open(&built).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(built);
    }
    let last = output.stderr.trim().lines().last().unwrap_or("no end within 5 min").to_owned();
    Err(io::Error::other(format!("{name} was not built: {last}")))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// When a file of the directory was last changed.
fn newest(directory: &Path) -> io::Result<Option<SystemTime>> {
    let entries = std::fs::read_dir(directory).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
    })?;
    Ok(entries.filter_map(|entry| modified(&entry.ok()?.path())).max())
}

/// Builds all of them.
///
/// # Errors
/// As [`program`].
pub(crate) fn build_all() -> io::Result<Vec<PathBuf>> {
    PROGRAMS.into_iter().map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_module() {
        for name in PROGRAMS {
            let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(name).join("go.mod");
            assert!(module.exists(), "{}", module.display());
        }
        assert!(program("none").is_err());
    }
}
