//! The examples in docs/configuration.md and the README are configurations that the daemon accepts,
//! and every key is described in the former.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mpip_daemon::config;
use mpip_testing::Directory;

/// RFC 7748 section 6.1: Alice's private key.
const KEY: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    fs::read_to_string(path).expect("the document exists")
}

/// The fenced blocks of TOML in `text`.
fn examples(text: &str) -> Vec<String> {
    text.split("```toml\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("the fence is closed").0.to_owned())
        .collect()
}

/// The units that come with it, with programs that are there.
#[test]
fn systemd_accepts_the_units_and_finds_them_hardened() {
    if !mpip_testing::can_run(&["systemd-analyze"]) {
        return;
    }
    let directory = Keys::new();
    for name in ["mpip@", "mpip-web@"] {
        let unit = document(&format!("../contrib/{name}.service"));
        let there = env!("CARGO_BIN_EXE_mpipd");
        let unit = unit.replace("/usr/local/bin/mpip ", &format!("{there} "));
        let unit = unit.replace("/usr/local/sbin/mpipd", there);
        let file = directory.0.join(format!("{name}mpip0.service"));
        fs::write(&file, unit).expect("writable");
        // More than 2.5 of 10 is too much.
        let limit = ["security", "--offline=true", "--threshold=25", "--no-pager"];
        for arguments in [&["verify", "--man=no"][..], &limit] {
            let analyze = std::process::Command::new("systemd-analyze")
                .args(arguments)
                .arg(&file)
                .output()
                .expect("it is there");
            let words = String::from_utf8_lossy(&analyze.stderr);
            let own = words.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
            assert!(analyze.status.success() && own.is_empty(), "{name} {analyze:?}");
        }
    }
}

/// `mpip@.service` tells systemd that it works, and is reloaded by mpip.
#[test]
fn the_unit_waits_for_the_daemon_and_reloads_it() {
    let unit = document("../contrib/mpip@.service");
    for line in ["Type=notify", "ExecReload=/usr/local/bin/mpip reload /etc/mpip/%i.toml"] {
        assert!(unit.lines().any(|other| other == line), "{line}");
    }
}

/// A directory with the key files that the examples name, removed when dropped.
struct Keys(Directory);

impl Keys {
    fn new() -> Self {
        let directory = Directory::new();
        for name in ["mpip0.key", "gateway.psk"] {
            fs::write(directory.join(name), KEY).expect("writable");
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o600))
                .expect("ours");
        }
        Self(directory)
    }
}

#[test]
fn every_example_is_accepted() {
    let directory = Keys::new();
    let in_reference = examples(&document("configuration.md"));
    let in_readme = examples(&document("../README.md"));
    assert!(in_reference.len() >= 5 && in_readme.len() == 2, "the documents have examples");
    for example in in_reference.into_iter().chain(in_readme) {
        let settings = config::parse(&directory.0.join("mpip0.toml"), &example);
        assert!(settings.is_ok(), "{example}\n{}", settings.expect_err("refused"));
    }
}

#[test]
fn every_key_is_described() {
    let text = document("configuration.md");
    let directory = Keys::new();
    // Where a key is unknown, the parser names all that it knows.
    for section in [
        "node",
        "interface",
        "host_mode",
        "[path]",
        "[peer]",
        "[rule]",
        "opportunistic",
        "gateway",
        "router",
        "diagnosis",
    ] {
        let head = if section == "node" { "" } else { "[node]\nprivate_key_file = 'mpip0.key'\n" };
        let example = format!("{head}[{section}]\nno_such_key = 1\n");
        let error = config::parse(&directory.0.join("mpip0.toml"), &example).expect_err("unknown");
        let mut messages = error.problems().iter().map(|problem| &problem.message);
        let message = messages.find(|message| message.starts_with("unknown key")).expect(section);
        let (_, known) = message.split_once("expected ").expect(message);
        let keys: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        assert!(!keys.is_empty(), "{message}");
        for key in keys {
            assert!(text.contains(&format!("| `{key}` |")), "[{section}] {key}");
        }
    }
}
