//! `mpip init`, `invite`, `join`, `peers` and `remove`: two fresh hosts become a bond.
//!
//! ```text
//!   laptop                             gateway
//!   l0 198.18.1.2/24 ──────── veth ──── g0 198.18.1.1/24
//!   l1 198.18.2.2/24 ──────── veth ──── g1 198.18.2.1/24
//! ```

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use mpip_testing::{Directory, can_run};

use super::{build_mpipd, run, run_in, wait_for};

/// Two hosts with nothing but the programs.
struct World {
    test: &'static str,
    directory: Directory,
}

impl World {
    fn new(test: &'static str) -> Self {
        let directory = Directory::new();
        let world = Self { test, directory };
        for host in ["l", "g"] {
            assert!(run("ip", &["netns", "add", &world.namespace(host)]).status.success());
        }
        for link in ["0", "1"] {
            let (one, other) = (world.namespace("l"), world.namespace("g"));
            let (near, far) = (format!("l{link}"), format!("g{link}"));
            world.ip(
                "l",
                &["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &other],
            );
            assert_ne!(one, other);
            let network = if link == "0" { "198.18.1" } else { "198.18.2" };
            world.ip("l", &["addr", "add", &format!("{network}.2/24"), "dev", &near]);
            world.ip("g", &["addr", "add", &format!("{network}.1/24"), "dev", &far]);
            world.ip("l", &["link", "set", &near, "up"]);
            world.ip("g", &["link", "set", &far, "up"]);
        }
        world
    }

    fn namespace(&self, host: &str) -> String {
        format!("mpip-c-{}-{}-{host}", std::process::id(), self.test)
    }

    /// The configuration of a host. Its name is that of the interface, and the control socket's.
    fn file(&self, host: &str) -> String {
        let name = format!("{}{host}{}", self.test, std::process::id());
        self.directory.join(format!("{name}.toml")).display().to_string()
    }

    fn socket(&self, host: &str) -> String {
        let file = PathBuf::from(self.file(host));
        let name = file.file_stem().expect("named").to_str().expect("ASCII").to_owned();
        format!("{}/{name}.sock", mpip_api::SOCKET_DIRECTORY)
    }

    fn ip(&self, host: &str, arguments: &[&str]) {
        let output = run("ip", &[&["-n", self.namespace(host).as_str()], arguments].concat());
        assert!(output.status.success(), "{output:?}");
    }

    /// Runs `program` on `host`: whether it succeeded, and what it said.
    fn exec(&self, host: &str, program: &str, arguments: &[&str]) -> (bool, String) {
        run_in(&self.namespace(host), program, arguments)
    }

    fn mpip(&self, host: &str, arguments: &[&str]) -> (bool, String) {
        self.exec(host, env!("CARGO_BIN_EXE_mpip"), arguments)
    }

    /// Makes the gateway and returns a token of it.
    fn invite(&self, name: &str) -> String {
        let (invited, words) =
            self.mpip("g", &["invite", name, "--config", &self.file("g"), "--valid", "30m"]);
        assert!(invited, "{words}");
        let token = words.split_whitespace().find(|word| word.starts_with("mpip1"));
        token.unwrap_or_else(|| panic!("no token: {words}")).to_owned()
    }

    /// What `host` gets when it joins with another configuration than its first.
    fn join_as(&self, host: &str, token: &str) -> (bool, String) {
        self.mpip("l", &["join", token, "--config", &self.file(host), "--no-start"])
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for host in ["l", "g", "x"] {
            let at = if host == "x" { "g" } else { host };
            let _ = self.mpip(at, &["--socket", &self.socket(host), "down"]);
            let _ = fs::remove_file(PathBuf::from(self.socket(host)).with_extension("log"));
        }
        for host in ["l", "g"] {
            let _ = run("ip", &["netns", "del", &self.namespace(host)]);
        }
    }
}

/// The figure of the issue: two commands on each side.
#[test]
fn two_fresh_hosts_are_a_bond_after_two_commands_on_each() {
    if !can_run(&["ping"]) {
        return;
    }
    build_mpipd();
    let world = World::new("j");
    let (made, words) = world.mpip("g", &["init", &world.file("g")]);
    assert!(made && words.contains("Next: `mpip invite NAME`"), "{words}");
    let token = world.invite("laptop");
    let (joined, words) = world.mpip("l", &["join", &token, "--config", &world.file("l")]);
    assert!(joined && words.contains("connected to `"), "{words}");
    let (shown, words) = world.mpip("l", &["--socket", &world.socket("l"), "status", "--json"]);
    assert!(shown, "{words}");
    let status: mpip_api::Status = serde_json::from_str(&words).expect("JSON of a status");
    assert_eq!(status.interface.addresses.len(), 2, "IPv4 and IPv6");

    for host in ["l", "g"] {
        for extension in ["toml", "key"] {
            let file = PathBuf::from(world.file(host)).with_extension(extension);
            let mode = fs::metadata(&file).expect("made").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }
    // The gateway's inner addresses are the first of their networks.
    let first = |network: &String| {
        let (address, _) = network.split_once('/').expect("a prefix");
        format!("{}1", address.trim_end_matches(|c: char| c != '.' && c != ':'))
    };
    for address in status.interface.addresses.iter().map(first) {
        wait_for(&format!("{address} answers"), || {
            world.exec("l", "ping", &["-c", "1", "-W", "2", &address]).0
        });
    }
    let paths = || {
        let status = mpip_api::status(world.socket("l").as_ref(), false).expect("it answers");
        status.peers[0].paths.iter().filter(|path| path.state == "active").count()
    };
    wait_for("a path by each link", || paths() >= 2);

    assert_explained(&world);

    // Nothing that exists is overwritten.
    let (again, words) = world.mpip("g", &["init", &world.file("g")]);
    assert!(!again && words.contains("exists already, and is not overwritten"), "{words}");
    let (again, words) = world.mpip("l", &["join", &token, "--config", &world.file("l")]);
    assert!(!again && words.contains("exists already, and is not overwritten"), "{words}");
}

/// Each path has a sentence, and an interface that is set down has one that says so.
fn assert_explained(world: &World) {
    let socket = world.socket("l");
    let explain = |arguments: &[&str]| {
        world.mpip("l", &[&["--socket", &socket, "explain"], arguments].concat())
    };
    let (explained, words) = explain(&[]);
    assert!(explained && words.contains(" is connected by "), "{words}");
    for interface in ["l0", "l1"] {
        let start = format!("  {interface} (path ");
        assert!(words.lines().any(|line| line.starts_with(&start)), "{interface}: {words}");
    }
    let (explained, words) = explain(&["l2"]);
    assert!(!explained && words.contains("found `l2`; there are l0 (path "), "{words}");

    let mut watch = super::Running(
        std::process::Command::new(env!("CARGO_BIN_EXE_mpip"))
            .args(["--socket", &socket, "explain", "--watch"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("mpip"),
    );
    let stdout = watch.0.stdout.take().expect("piped");
    let mut news = BufReader::new(stdout).lines().map(|line| line.expect("text"));
    let first = news.next().expect("a line");
    assert!(first.contains("Z ") && first.contains(" is connected by "), "{first}");

    world.ip("l", &["link", "set", "l1", "down"]);
    // First the path has gone, then the interface is without one.
    let gone = |words: &str| {
        words.contains("its local address is gone") || words.contains("has been gone for ")
    };
    wait_for("l1 is explained", || gone(&explain(&["l1"]).1));
    assert!(news.any(|line| line.contains("l1 ") && gone(&line)), "it is news");
    let (explained, words) = explain(&["l1", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&words).expect("JSON");
    assert!(explained, "{words}");
    let said = |list: &str| json.pointer(list).and_then(|said| said["cause"].as_str());
    let cause = said("/peers/0/paths/0").or_else(|| said("/interfaces/0"));
    assert!(matches!(cause, Some("given-up" | "address-gone")), "{words}");
    world.ip("l", &["link", "set", "l1", "up"]);
}

#[test]
fn a_peer_that_joined_is_remembered_and_can_be_removed() {
    if !can_run(&[]) {
        return;
    }
    build_mpipd();
    let world = World::new("r");
    let socket = world.socket("g");
    let peers = || world.mpip("g", &["--socket", &socket, "peers"]).1;
    assert!(world.mpip("g", &["init", &world.file("g")]).0);
    let token = world.invite("laptop");
    assert!(peers().contains("invited"), "{}", peers());
    let (joined, words) = world.mpip("l", &["join", &token, "--config", &world.file("l")]);
    assert!(joined, "{words}");
    wait_for("it is connected", || peers().contains("connected, 2 paths"));

    // Also when the gateway is killed.
    let status = mpip_api::status(socket.as_ref(), false).expect("it answers");
    assert!(run("kill", &["-s", "KILL", &status.pid.to_string()]).status.success());
    wait_for("it has let go of everything", || {
        // A process that is being killed loses its program before it closes its files, which are
        // open until its last thread has ended.
        let state = fs::read_to_string(format!("/proc/{}/stat", status.pid));
        let threads = fs::read_dir(format!("/proc/{}/task", status.pid)).map_or(0, Iterator::count);
        state.map_or(true, |text| text.contains(") Z ") || text.contains(") X ")) && threads < 2
    });
    let (up, words) = world.mpip("g", &["up", &world.file("g")]);
    assert!(up, "{words}");
    wait_for("it is connected again", || peers().contains("connected, "));
    // Reading the configuration again changes nothing.
    let (reloaded, words) = world.mpip("g", &["--socket", &socket, "reload"]);
    assert!(reloaded && !words.contains("removed"), "{words}");
    assert!(peers().contains("laptop"), "{}", peers());

    let (removed, words) = world.mpip("g", &["--socket", &socket, "remove", "laptop"]);
    assert!(removed, "{words}");
    assert!(!peers().contains("laptop"), "{}", peers());
    wait_for("the laptop is told", || {
        let status = mpip_api::status(world.socket("l").as_ref(), false).expect("it answers");
        !status.peers[0].established
    });
    let (again, words) = world.mpip("g", &["--socket", &socket, "remove", "laptop"]);
    assert!(!again && words.contains("`mpip peers` lists who has"), "{words}");
}

#[test]
fn a_token_that_is_no_good_is_refused_with_the_reason() {
    if !can_run(&[]) {
        return;
    }
    build_mpipd();
    let world = World::new("t");
    let socket = world.socket("g");
    assert!(world.mpip("g", &["init", &world.file("g")]).0);
    let token = world.invite("laptop");

    let refused = |host: &str, token: &str, reason: &str| {
        let (joined, words) = world.join_as(host, token);
        assert!(!joined && words.contains(reason), "{reason}: {words}");
        assert!(!PathBuf::from(world.file(host)).exists(), "no configuration is left");
    };
    let last = if token.ends_with('A') { 'B' } else { 'A' };
    let altered = format!("{}{last}", &token[..token.len() - 1]);
    refused("a", &altered, "the token is incomplete or was altered");
    refused("a", "hello", "expected a token of `mpip invite`");
    let (joined, words) =
        world.mpip("l", &["join", &token, "--config", &world.file("a"), "--default-route"]);
    assert!(!joined && words.contains("does not forward to the Internet"), "{words}");

    let (joined, words) = world.join_as("b", &token);
    assert!(joined && words.contains("start it with `mpip up "), "{words}");
    refused("c", &token, "the token was used already by another key");

    let withdrawn = world.invite("phone");
    assert!(world.mpip("g", &["--socket", &socket, "remove", "phone"]).0);
    refused("c", &withdrawn, "the token was withdrawn");

    // Another gateway at the same place.
    let orphan = world.invite("phone");
    assert!(world.mpip("g", &["--socket", &socket, "down"]).0);
    assert!(world.mpip("g", &["init", &world.file("x")]).0);
    let (up, words) = world.mpip("g", &["up", &world.file("x")]);
    assert!(up, "{words}");
    refused("c", &orphan, "the token is for another gateway");
}

/// What helps in trouble, with real daemons: both ends are asked, the paths measured, a report
/// collected.
#[test]
fn a_bond_is_asked_at_both_ends_measured_and_reported_without_secrets() {
    if !can_run(&["nft"]) {
        return;
    }
    build_mpipd();
    let world = World::new("h");
    assert!(world.mpip("g", &["init", &world.file("g")]).0);
    let token = world.invite("laptop");
    let (joined, words) = world.mpip("l", &["join", &token, "--config", &world.file("l")]);
    assert!(joined, "{words}");
    let (own, theirs) = (world.socket("l"), world.socket("g"));

    // The gateway is found though no prefix names its address.
    let (healthy, words) = world.mpip("l", &["--socket", &own, "doctor", "--peer"]);
    assert!(words.contains("asked: peer `") && words.contains("release "), "{words}");
    assert!(!words.contains("the other end"), "{words}");
    assert!(healthy, "{words}");
    let (_, words) = world.mpip("g", &["--socket", &theirs, "doctor", "--peer", "laptop"]);
    assert!(words.contains("asked: peer `laptop`"), "{words}");
    let (_, words) = world.mpip("g", &["--socket", &theirs, "doctor", "--peer", "desktop"]);
    assert!(
        words.contains("not checked: the other end: ") && words.contains("`laptop`"),
        "{words}"
    );

    let bench = ["--socket", own.as_str(), "bench", "--time", "0.5", "--limit", "20"];
    let (measured, words) = world.mpip("l", &bench);
    assert!(measured && words.contains("expect ") && words.contains("limit: "), "{words}");
    assert!(words.contains("1 of ") && words.contains("all paths together"), "progress: {words}");
    let (measured, words) = world.mpip("l", &[&bench[..], &["--json"]].concat());
    // Progress is behind it.
    let mut objects = serde_json::Deserializer::from_str(&words).into_iter();
    let report: mpip_api::BenchReport = objects.next().expect("an object").expect("a report");
    assert!(measured && report.together.len() == 2, "{words}");

    for (host, socket) in [("l", &own), ("g", &theirs)] {
        let file = world.directory.join(format!("{host}.txt")).display().to_string();
        let (written, words) = world.mpip(host, &["--socket", socket, "debug", "--out", &file]);
        assert!(written && words.contains("wrote `"), "{words}");
        let report = fs::read_to_string(&file).expect("written");
        for part in
            ["== configuration", "== mpip explain", "== mpip status --json", "== log", "== ip rule"]
        {
            assert!(report.contains(part), "{part}: {report}");
        }
        assert!(report.contains("\"established\": true"), "{report}");
        let mut secrets = vec![token.clone()];
        for extension in ["key", "psk"] {
            let file = PathBuf::from(world.file(host)).with_extension(extension);
            secrets.extend(fs::read_to_string(file).map(|key| key.trim().to_owned()));
        }
        assert!(secrets.len() >= 2, "there are keys");
        for secret in secrets {
            assert!(!report.contains(&secret), "{secret}");
        }
        let (again, words) = world.mpip(host, &["--socket", socket, "debug", "--out", &file]);
        assert!(!again && words.contains("cannot write the report `"), "{words}");
    }
}
