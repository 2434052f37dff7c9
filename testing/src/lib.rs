//! What a test needs of the machine. A test that cannot run says `skipped`, and why, past the
//! capture of the test harness; where [`ALL`] is set it fails instead, so that nothing passes
//! unseen. A test that bears no neighbours runs [`alone`]. Its files are in a [`Directory`] of its
//! own.
//!
//! For tests alone: no program depends on this crate.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

use tempfile::TempDir;

/// When this environment variable is set, and neither empty nor `0`, a test that cannot run fails.
/// `make test` sets it.
pub const ALL: &str = "MPIP_TEST_ALL";

/// CAP_NET_ADMIN and CAP_SYS_ADMIN (capabilities(7)).
const CAPABILITIES: u64 = 1 << 12 | 1 << 21;

/// Programs whose package in Debian has another name.
const PACKAGES: [(&str, &str); 7] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("ping", "iputils-ping"),
    ("script", "bsdutils"),
    ("ss", "iproute2"),
    ("sysctl", "procps"),
    ("tc", "iproute2"),
];

/// Whether a test can run that makes network namespaces with TUN devices and uses these programs
/// beside `ip`. If not, it says so.
///
/// # Panics
///
/// When the test cannot run and [`ALL`] is set.
#[must_use]
#[track_caller]
pub fn can_run(programs: &[&str]) -> bool {
    let mut missing = Vec::new();
    if effective_capabilities() & CAPABILITIES != CAPABILITIES {
        missing.push("CAP_NET_ADMIN and CAP_SYS_ADMIN, as root has them".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        missing.push("/dev/net/tun".to_owned());
    }
    let programs = ["ip"].iter().chain(programs);
    missing.extend(programs.filter_map(|program| why_not(program)));
    if missing.is_empty() {
        return true;
    }
    skip(&format!("needs {}", missing.join(", and ")));
    false
}

/// Kept by a test that measures this machine: no other one that computes runs meanwhile.
static MACHINE: RwLock<()> = RwLock::new(());

/// Waits until the tests that fill the processors have ended, and keeps others from beginning. For
/// a test whose verdict is a measurement of this machine. It is about tests of one program;
/// `make test` runs those that use it one after the other; what computes has a lower priority.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no test measures this machine, and keeps others from beginning to. For a test that
/// fills the processors where others measure.
pub fn busy() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Says that this test is skipped, and why.
///
/// # Panics
///
/// When [`ALL`] is set.
#[track_caller]
pub fn skip(why: &str) {
    let all = env::var(ALL).is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    assert!(!all, "{why} (without {ALL} this test would be skipped)");
    skip_always(why);
}

/// Says that this test is skipped, and why, also where [`ALL`] is set: for what no machine is asked
/// to have.
pub fn skip_always(why: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    // Written so, it is not kept from who runs the tests, as what a test prints is.
    let _ = writeln!(io::stderr(), "skipped: {test}: {why}");
}

/// Fails with the name of the package to be installed if there is no such program.
///
/// # Panics
///
/// When it is in none of the directories of `PATH`.
#[track_caller]
pub fn expect_program(program: &str) {
    let missing = why_not(program);
    assert!(missing.is_none(), "this test needs {}", missing.unwrap_or_default());
}

/// An empty directory for the files of one test. Removed when dropped, also when the test fails. A
/// test that passed, but whose threads or children still write there, fails then.
#[derive(Debug)]
pub struct Directory(TempDir);

impl Directory {
    /// Makes a directory with a name that no other has.
    ///
    /// # Panics
    ///
    /// When the directory for temporary files is not writable.
    #[must_use]
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let made = tempfile::Builder::new().prefix("mpip-test-").tempdir();
        Self(made.expect("the directory for temporary files is writable"))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(self.path());
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
            && !thread::panicking()
        {
            panic!("{} cannot be removed: {error}; is it still in use?", self.path().display());
        }
    }
}

/// Where `program` is, if it is in a directory of `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    find_in(&env::var_os("PATH")?, program)
}

fn find_in(path: &std::ffi::OsStr, program: &str) -> Option<PathBuf> {
    let executable = |file: &PathBuf| {
        fs::metadata(file)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(path).map(|directory| directory.join(program)).find(executable)
}

fn why_not(program: &str) -> Option<String> {
    let named = PACKAGES.iter().find(|(known, _)| *known == program);
    let package = named.map_or(program, |(_, package)| package);
    find(program).is_none().then(|| format!("`{program}` (Debian package {package})"))
}

fn effective_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::panic;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_directory_is_empty_and_goes_with_what_is_in_it() {
        let (one, other) = (Directory::new(), Directory::new());
        assert_ne!(one.path(), other.path());
        assert_eq!(fs::read_dir(one.path()).expect("there").count(), 0);
        fs::create_dir(one.join("deeper")).expect("writable");
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }

    #[test]
    fn a_directory_that_cannot_be_removed_is_no_secret() {
        let directory = Directory::new();
        let path = directory.path().to_owned();
        fs::remove_dir(&path).expect("empty");
        // Neither a directory nor nothing.
        fs::write(&path, "").expect("writable");
        let dropped = panic::catch_unwind(|| drop(directory));
        fs::remove_file(&path).expect("there");
        let why = dropped.expect_err("it is still there");
        let why = why.downcast_ref::<String>().expect("words");
        assert!(why.starts_with(&format!("{} cannot be removed: ", path.display())), "{why}");
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        assert_eq!(why_not("sh"), None);
        let why = why_not("no-such-program").expect("there is none");
        assert_eq!(why, "`no-such-program` (Debian package no-such-program)");
        let nowhere = std::ffi::OsStr::new("/nonexistent:/proc");
        assert_eq!(find_in(nowhere, "nft"), None);
        // A file that is no program.
        assert_eq!(find_in("/etc".as_ref(), "passwd"), None);
    }

    #[test]
    fn a_test_that_cannot_run_is_seen_and_fails_where_all_have_to_run() {
        let name = "tests::a_test_that_cannot_run_is_seen_and_fails_where_all_have_to_run";
        if env::var_os("MPIP_TESTING_CHILD").is_some() {
            // Started by itself.
            assert!(!can_run(&["no-such-program"]));
            return;
        }
        let run = |all: &str| {
            let output = Command::new(env::current_exe().expect("this program"))
                .args(["--exact", name])
                .env("MPIP_TESTING_CHILD", "1")
                .env(ALL, all)
                .output()
                .expect("it runs");
            let words = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&words).into_owned())
        };
        let named = "`no-such-program` (Debian package no-such-program)";
        for nothing in ["", "0"] {
            let (passed, words) = run(nothing);
            let line = words.lines().find(|line| line.starts_with("skipped: "));
            let line = line.unwrap_or_else(|| panic!("{words}"));
            assert!(passed && line.starts_with(&format!("skipped: {name}: needs ")), "{words}");
            assert!(line.contains(named), "{words}");
        }
        let (passed, words) = run("1");
        assert!(!passed && words.contains(named) && !words.contains("skipped: "), "{words}");
    }
}
