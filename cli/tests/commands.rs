//! The commands as a user types them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use mpip_testing::Directory;

/// RFC 7748 section 6.1: Alice's key pair.
const PRIVATE: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const PUBLIC: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

fn mpip(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mpip"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("built");
    // A command that reads nothing may have closed it.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// The path of a file as text.
fn path(directory: &Directory, name: &str) -> String {
    directory.join(name).display().to_string()
}

#[test]
fn pubkey_reads_a_private_key_from_standard_input() {
    let output = mpip(&["pubkey"], &format!("{PRIVATE}\n"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stdout(&output), format!("{PUBLIC}\n"));
}

#[test]
fn pubkey_refuses_what_is_no_key_without_showing_it() {
    let output = mpip(&["pubkey"], "c2VjcmV0");
    assert!(!output.status.success());
    let words = stderr(&output);
    assert!(words.starts_with("mpip: standard input: expected a key of 32 bytes"), "{words}");
    assert!(!words.contains("c2VjcmV0"), "{words}");
}

#[test]
fn genkey_makes_another_key_each_time_that_pubkey_reads() {
    let keys = [mpip(&["genkey"], ""), mpip(&["genkey"], "")].map(|output| stdout(&output));
    assert_ne!(keys[0], keys[1]);
    assert!(mpip(&["pubkey"], &keys[0]).status.success());
}

#[test]
fn keys_are_written_to_files_for_their_owner_only_and_never_over_others() {
    let directory = Directory::new();
    for command in ["genkey", "genpsk"] {
        let file = path(&directory, command);
        // Whatever the umask.
        let make = format!("umask 0; exec \"$0\" {command} --out '{file}'");
        let output = Command::new("sh").args(["-c", &make, env!("CARGO_BIN_EXE_mpip")]).output();
        let output = output.expect("sh is there");
        assert!(output.status.success(), "{output:?}");
        let mode = fs::metadata(&file).expect("written").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let key = fs::read_to_string(&file).expect("ours");
        let public = stdout(&mpip(&["pubkey"], &key));
        let printed = if command == "genkey" { public.as_str() } else { "" };
        assert_eq!(stdout(&output), printed, "it prints the public key");

        // A symbolic link that somebody put there is not followed.
        let link = path(&directory, &format!("{command}-link"));
        std::os::unix::fs::symlink(path(&directory, "elsewhere"), &link).expect("writable");
        for taken in [&file, &link] {
            let again = mpip(&[command, "--out", taken], "");
            assert!(!again.status.success());
            let words = format!("cannot write the new file `{taken}`");
            assert!(stderr(&again).contains(&words), "{again:?}");
        }
        assert_eq!(fs::read_to_string(&file).expect("ours"), key);
        assert!(!Path::new(&path(&directory, "elsewhere")).exists());
    }
}

#[test]
fn a_key_that_cannot_be_written_leaves_no_file() {
    let directory = Directory::new();
    let file = path(&directory, "node.key");
    // No byte may be written to a file, and the signal for that is ignored.
    let make = format!("trap '' XFSZ; ulimit -f 0; exec \"$0\" genkey --out '{file}'");
    let output = Command::new("sh").args(["-c", &make, env!("CARGO_BIN_EXE_mpip")]).output();
    let output = output.expect("sh is there");
    assert!(!output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("cannot write the new file"), "{output:?}");
    assert!(!Path::new(&file).exists());
}

#[test]
fn genpsk_makes_44_characters() {
    assert_eq!(stdout(&mpip(&["genpsk"], "")).trim_end().len(), 44);
}

#[test]
fn without_a_daemon_the_words_say_so() {
    let directory = Directory::new();
    let socket = path(&directory, "mpip0.sock");
    for arguments in [&["status"][..], &["status", "--json"], &["events"], &["down"]] {
        let output = mpip(&[&["--socket", socket.as_str()], arguments].concat(), "");
        assert!(!output.status.success(), "{arguments:?}");
        let expected = format!("mpip: no daemon runs: there is no control socket `{socket}`\n");
        assert_eq!(stderr(&output), expected);
    }
    drop(UnixListener::bind(&socket).expect("binds"));
    let output = mpip(&["--socket", &socket, "status"], "");
    assert_eq!(
        stderr(&output),
        format!("mpip: no daemon runs: nobody listens on `{socket}`\n"),
        "a dead daemon's socket"
    );
}

#[test]
fn the_option_for_the_socket_stands_before_or_after_the_command() {
    let output = mpip(&["status", "--socket", "/nonexistent/x.sock"], "");
    assert!(stderr(&output).contains("/nonexistent/x.sock"), "{output:?}");
}

#[test]
fn a_missing_mpipd_is_named() {
    // mpip alone in a directory, and no PATH. A link, because a file that was just written may
    // still be open in a child of another test, and then it does not run.
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alone");
    fs::create_dir_all(&directory).expect("writable");
    let alone = directory.join("mpip");
    let _ = fs::remove_file(&alone);
    fs::hard_link(env!("CARGO_BIN_EXE_mpip"), &alone).expect("the same file system");
    for command in ["check", "doctor", "up", "down"] {
        let output = Command::new(&alone)
            .args([command, "mpip0.toml"])
            .env("PATH", Path::new("/nonexistent"))
            .output()
            .expect("runs");
        assert!(!output.status.success());
        let words = stderr(&output);
        let expected = "mpip: cannot run mpipd, expected beside mpip or in a directory of PATH: ";
        assert!(words.starts_with(expected), "{words}");
    }
}
