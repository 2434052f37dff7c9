//! `mpip up`, `status`, `check` and `down` with a real daemon, in a network namespace.
//!
//! ```text
//!   namespace
//!   eth0 198.18.0.1/24 -- eth1      veth
//!   mpip0 10.77.0.1
//! ```

mod joining;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use mpip_testing::{Directory, can_run};

/// Time after which a test gives up, however busy the machine is.
const HANG: Duration = Duration::from_secs(60);

/// RFC 7748 section 6.1: Alice's private key, and Bob's public key.
const OWN_KEY: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const PEER_KEY: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

/// `mpipd` stands beside `mpip`; where only this crate is tested it may not have been built yet.
fn build_mpipd() {
    let beside = Path::new(env!("CARGO_BIN_EXE_mpip")).with_file_name("mpipd");
    if !beside.exists() {
        let arguments = ["build", "--package", "mpip-daemon", "--bin", "mpipd"];
        let status = Command::new(env!("CARGO")).args(arguments).status().expect("cargo");
        assert!(status.success() && beside.exists());
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().expect(program)
}

/// Runs `program` in a namespace: whether it succeeded, and what it said.
fn run_in(namespace: &str, program: &str, arguments: &[&str]) -> (bool, String) {
    let command = ["netns", "exec", namespace, program];
    let output = run("ip", &[&command, arguments].concat());
    let words = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&words).into_owned())
}

/// A namespace with an interface, and a directory with a configuration; both go when dropped,
/// and the daemon with them.
struct World {
    namespace: String,
    directory: Directory,
}

impl World {
    fn new(test: &str) -> Self {
        let namespace = format!("mpip-d-{}-{test}", std::process::id());
        let directory = Directory::new();
        let world = Self { namespace, directory };
        assert!(run("ip", &["netns", "add", &world.namespace]).status.success());
        for arguments in [
            &["link", "add", "eth0", "type", "veth", "peer", "name", "eth1"][..],
            &["addr", "add", "198.18.0.1/24", "dev", "eth0"],
            &["link", "set", "eth0", "up"],
            &["link", "set", "eth1", "up"],
        ] {
            let output = run("ip", &[&["-n", world.namespace.as_str()], arguments].concat());
            assert!(output.status.success(), "{output:?}");
        }
        let key = world.directory.join("node.key");
        fs::write(&key, OWN_KEY).expect("writable");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("ours");
        world.configure("");
        world
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Writes the configuration, with further `lines` for the peer.
    fn configure(&self, lines: &str) {
        let text = format!(
            "[node]\nprivate_key_file = 'node.key'\ncontrol_socket = '{}'\n[interface]\n\
             addresses = ['10.77.0.1/24']\n[[peer]]\nname = 'b'\npublic_key = '{PEER_KEY}'\n\
             endpoints = ['198.18.0.2:6182']\nallowed_prefixes = ['10.77.0.2']\n{lines}\n",
            self.path("mpip0.sock")
        );
        fs::write(self.directory.join("mpip0.toml"), text).expect("writable");
    }

    /// Runs `mpip` in the namespace: whether it succeeded, and what it said.
    fn mpip(&self, arguments: &[&str]) -> (bool, String) {
        run_in(&self.namespace, env!("CARGO_BIN_EXE_mpip"), arguments)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.mpip(&["--socket", &self.path("mpip0.sock"), "down"]);
        let _ = run("ip", &["netns", "del", &self.namespace]);
    }
}

#[test]
fn a_daemon_goes_up_is_asked_and_goes_down() {
    if !can_run(&["nft"]) {
        return;
    }
    build_mpipd();
    let world = World::new("cli-up");
    let (file, socket) = (world.path("mpip0.toml"), world.path("mpip0.sock"));

    let (valid, words) = world.mpip(&["check", &file]);
    assert!(valid && words.contains("valid: interface mpip0"), "{words}");
    let (healthy, words) = world.mpip(&["doctor", &file]);
    let expected = format!("note: no mpipd answers on {socket}: ");
    assert!(healthy && words.starts_with(&expected), "{words}");
    assert!(words.ends_with("nothing is wrong\n"), "{words}");

    let (up, words) = world.mpip(&["up", &file]);
    assert!(up && words.starts_with("mpip0 is up (process "), "{words}");
    let (again, words) = world.mpip(&["up", &file]);
    assert!(!again && words.starts_with("mpip: already running: "), "{words}");

    let (shown, words) = world.mpip(&["--socket", &socket, "status"]);
    assert!(shown && words.contains("wrong: b: not connected"), "{words}");
    let (shown, verbose) = world.mpip(&["--socket", &socket, "status", "--verbose"]);
    assert!(shown && verbose.contains("peer b: not established"), "{verbose}");
    assert!(verbose.contains("paths start from 198.18.0.1 (eth0)"), "{verbose}");
    assert!(!words.contains('\x1b'), "no colours where nobody sees them");
    let (shown, words) = world.mpip(&["status", "--json", "--sessions", "--socket", &socket]);
    let status: mpip_api::Status = serde_json::from_str(&words).expect("JSON of a status");
    assert!(shown && status.peers[0].name == "b" && status.peers[0].session_count == Some(0));
    assert_eq!(status.config_file, file);

    // Without a file, that of the running daemon.
    let (_, words) = world.mpip(&["doctor", "--socket", &socket]);
    assert!(!words.contains("not checked: the configuration"), "{words}");
    assert!(!words.contains("no mpipd answers"), "{words}");
    fs::set_permissions(world.path("node.key"), fs::Permissions::from_mode(0o644)).expect("ours");
    let (healthy, words) = world.mpip(&["doctor", "--socket", &socket, "--json"]);
    assert!(!healthy && words.contains("\"command\": \"chmod 600 "), "{words}");
    fs::set_permissions(world.path("node.key"), fs::Permissions::from_mode(0o600)).expect("ours");

    let (down, words) = world.mpip(&["down", &file]);
    assert!(down && words == "mpip0 is down\n", "{words}");
    assert!(!Path::new(&format!("/proc/{}/exe", status.pid)).exists());
    let (up, words) = world.mpip(&["up", &file]);
    assert!(up, "at once again: {words}");
    let (down, words) = world.mpip(&["--socket", &socket, "down"]);
    assert!(down, "{words}");
}

#[test]
fn down_removes_what_a_killed_daemon_left() {
    if !can_run(&[]) {
        return;
    }
    build_mpipd();
    let world = World::new("cli-left");
    let (file, socket) = (world.path("mpip0.toml"), world.path("mpip0.sock"));
    let refused = || {
        let arguments = ["-n", world.namespace.as_str(), "route", "get", "10.77.0.2"];
        String::from_utf8_lossy(&run("ip", &arguments).stdout).contains("dev mpip-refuse0")
    };
    let (down, words) = world.mpip(&["down", &file]);
    assert!(!down && words.starts_with("mpip: no daemon runs: "), "{words}");
    let (up, words) = world.mpip(&["up", &file]);
    assert!(up, "{words}");
    let status = mpip_api::status(Path::new(&socket), false).expect("it answers");
    assert!(run("kill", &["-s", "KILL", &status.pid.to_string()]).status.success());
    let start = Instant::now();
    while !refused() {
        assert!(start.elapsed() < Duration::from_secs(10), "its device is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (down, words) = world.mpip(&["--socket", &socket, "down"]);
    assert!(!down && words.contains("`mpip down FILE` removes what it left"), "{words}");
    assert!(refused());
    let (down, words) = world.mpip(&["down", &file]);
    assert!(
        down && words == "mpip0: packets to 10.77.0.2/32 are not refused any more\n",
        "{words}"
    );
    assert!(!refused());
    let (down, words) = world.mpip(&["down", &file]);
    assert!(!down && words.starts_with("mpip: no daemon runs: "), "nothing is left: {words}");
}

#[test]
fn what_is_set_is_saved_with_the_comments_and_a_changed_file_is_applied() {
    if !can_run(&[]) {
        return;
    }
    build_mpipd();
    let world = World::new("cli-save");
    let (file, socket) = (world.path("mpip0.toml"), world.path("mpip0.sock"));
    world.configure("# Both links are fast.\nmax_paths = 2  # of two");
    let before = fs::read_to_string(&file).expect("written");
    let (up, words) = world.mpip(&["up", &file]);
    assert!(up, "{words}");
    let mpip = |arguments: &[&str]| world.mpip(&[&["--socket", &socket], arguments].concat());

    let (saved, words) = mpip(&["save"]);
    assert!(saved && words.ends_with("stays as it is\n"), "{words}");
    let (set, words) = mpip(&["set", "peer", "b", "scheduler=weighted", "max_paths=1"]);
    assert!(set && words.starts_with("peer b: set until `mpip reload`"), "{words}");
    let (set, words) = mpip(&["set", "peer", "b", "schedular=weighted", "max_paths=0"]);
    assert!(!set && words.contains("did you mean `scheduler`?"), "{words}");
    assert!(words.contains("max_paths: expected a number from 1 to 64, found `0`"), "{words}");
    let (set, words) = mpip(&["set", "peer", "b", "scheduler"]);
    assert!(!set && words.contains("expected KEY=VALUE"), "{words}");
    let (set, words) = mpip(&["path", "set", "eth0", "standby"]);
    assert!(set && words.starts_with("paths from eth0: set until"), "{words}");
    let (set, _) = mpip(&["path", "set", "eth0", "asleep"]);
    assert!(!set);
    let (saved, words) = mpip(&["save"]);
    assert!(saved && words == format!("3 settings saved to {file}\n"), "{words}");
    let after = fs::read_to_string(&file).expect("written");
    let expected = before.replace(
        "max_paths = 2  # of two\n",
        "max_paths = 1  # of two\nscheduler = \"weighted\"\n",
    );
    assert_eq!(after, format!("{expected}\n[[path]]\ninterface = \"eth0\"\nstate = \"standby\"\n"));
    let status = mpip_api::status(Path::new(&socket), false).expect("it answers");
    assert_eq!(status.peers[0].scheduler, "weighted");
    let (applied, words) = world.mpip(&["reload", &file]);
    assert!(applied && words == "nothing has changed\n", "{words}");

    world.configure("schedular = 'weighted'");
    let (applied, words) = mpip(&["reload"]);
    assert!(!applied && words.contains(&format!("{file}:11: unknown key `schedular`")), "{words}");
    // A file that is wrong elsewhere is not saved either, and stays as it is.
    let wrong = fs::read_to_string(&file).expect("written");
    let (set, words) = mpip(&["set", "peer", "b", "scheduler=earliest"]);
    assert!(set, "{words}");
    let (saved, words) = mpip(&["save"]);
    assert!(!saved && words.contains("is not changed: "), "{words}");
    assert_eq!(fs::read_to_string(&file).expect("put back"), wrong);
    world.configure("scheduler = 'round-robin'");
    let (applied, words) = mpip(&["reload"]);
    let expected = "changed: b; interfaces changed; 1 settings that were set by hand are gone; ";
    assert!(applied && words.starts_with(expected), "{words}");
}

#[test]
fn rules_are_listed_tested_changed_and_saved() {
    if !can_run(&[]) {
        return;
    }
    build_mpipd();
    let world = World::new("cli-rule");
    let (file, socket) = (world.path("mpip0.toml"), world.path("mpip0.sock"));
    let telnet = "\n# Keys one by one.\n[[rule]]\nprotocol = 'tcp'\nremote_port = 23\n\
                  length = '0-200'\npriority = 'response'\n";
    world.configure(telnet);
    let before = fs::read_to_string(&file).expect("written");
    let (up, words) = world.mpip(&["up", &file]);
    assert!(up, "{words}");
    let mpip = |arguments: &[&str]| world.mpip(&[&["--socket", &socket], arguments].concat());
    // A line of a table, whatever the width of its columns.
    let row = |table: &str, at: usize| {
        let line = table.lines().nth(at).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };

    let (listed, words) = mpip(&["rule", "list"]);
    assert!(listed, "{words}");
    let one = "length=0-200 protocol=tcp remote_port=23 response false file";
    assert_eq!(row(&words, 1), format!("1 {one}"));
    assert_eq!(row(&words, 2), "- everything else auto false default");

    let (tested, words) = mpip(&["rule", "test", "tcp 10.77.0.2:23 length 180"]);
    assert!(tested && words.starts_with("rule 1 decides (length=0-200 protocol=tcp"), "{words}");
    let way = "\nthe address is that of the peer b\nnow it waits for a path\n";
    assert!(words.ends_with(way), "{words}");
    let (tested, words) = mpip(&["rule", "test", "tcp", "10.77.0.2:23"]);
    assert!(tested && words.starts_with("rule 1 may decide, which depends on length"), "{words}");
    let (tested, words) = mpip(&["rule", "test", "--json", "udp", "198.18.0.9"]);
    let json: serde_json::Value = serde_json::from_str(&words).expect("JSON");
    assert!(tested && json["rule"].is_null() && json["priority"] == "auto", "{words}");
    let (tested, words) = mpip(&["rule", "test", "tpc", "10.77.0.2"]);
    assert!(!tested && words.contains("word 1: expected one of `icmp`,"), "{words}");

    let calls = [
        "name=calls",
        "protocol=udp",
        "remote_port=5000-5100",
        "priority=redundant",
        "copies=adaptive",
        "ordered=false",
        "paths.avoid=wwan0,eth1",
        "set_dscp=ef",
    ];
    let (added, words) = mpip(&[&["rule", "add", "--at", "1"][..], &calls].concat());
    assert!(added && words.contains("\nrules: set until `mpip reload`"), "{words}");
    let new = "calls protocol=udp remote_port=5000-5100 redundant false copies=adaptive \
               ordered=false paths.avoid=wwan0,eth1 set_dscp=ef set for the time being";
    assert_eq!((row(&words, 1), row(&words, 2)), (format!("1 {new}"), format!("2 {one}")));
    let (added, words) = mpip(&["rule", "add", "priority=response", "paths.only="]);
    assert!(!added && words.contains("paths.only: expected the label of a [[path]]"), "{words}");
    let (added, words) = mpip(&["rule", "add", "priority=fast", "dscp=99"]);
    assert!(!added && words.contains("priority: expected one of `auto`"), "{words}");
    assert!(words.contains("dscp: expected a code point from 0 to 63"), "{words}");
    let (added, words) = mpip(&["rule", "add", "priority"]);
    assert!(!added && words.contains("expected KEY=VALUE like priority=response"), "{words}");
    let (saved, words) = mpip(&["save"]);
    assert!(saved && words == format!("1 setting saved to {file}\n"), "{words}");
    let section = "\n[[rule]]\nname = \"calls\"\nprotocol = \"udp\"\n\
                   remote_port = \"5000-5100\"\npriority = \"redundant\"\n\
                   copies = \"adaptive\"\nordered = false\n\
                   paths = { avoid = [\"wwan0\", \"eth1\"] }\nset_dscp = \"ef\"\n";
    let saved = fs::read_to_string(&file).expect("written");
    assert_eq!(saved, before.replace(telnet, &format!("{section}{telnet}")));
    let (listed, words) = mpip(&["rule", "list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&words).expect("JSON");
    assert!(listed && json["rules"][0]["name"] == "calls", "{words}");
    let place = |at: usize| json["rules"][at]["file_number"].as_u64();
    assert_eq!((place(0), place(1)), (Some(1), Some(2)));

    let (removed, words) = mpip(&["rule", "del", "cals"]);
    assert!(!removed && words.contains("`cals`: did you mean `calls`?"), "{words}");
    let (removed, words) = mpip(&["rule", "del", "calls"]);
    assert!(removed && row(&words, 1) == format!("1 {one}"), "{words}");
    let (saved, words) = mpip(&["save"]);
    assert!(saved, "{words}");
    assert_eq!(fs::read_to_string(&file).expect("written"), before);
}

#[test]
fn a_start_that_fails_says_why() {
    if !can_run(&[]) {
        return;
    }
    build_mpipd();
    let world = World::new("cli-bad");
    world.configure("no_such_key = 1");
    let file = world.path("mpip0.toml");
    for command in ["up", "check"] {
        let (success, words) = world.mpip(&[command, &file]);
        let expected = format!("{file}:11: unknown key `no_such_key`, expected one of");
        assert!(!success && words.contains(&expected), "{command}: {words}");
    }
}

/// A child that is killed when dropped.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for `condition`.
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < HANG, "not within {HANG:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn top_gives_the_terminal_back_when_a_key_or_a_signal_ends_it() {
    if !can_run(&["script"]) {
        return;
    }
    build_mpipd();
    let world = World::new("cli-top");
    let (up, words) = world.mpip(&["up", &world.path("mpip0.toml")]);
    assert!(up, "{words}");
    for end in ["key", "signal"] {
        let (shown, process) =
            (world.path(&format!("{end}.out")), world.path(&format!("{end}.pid")));
        let command = format!(
            "stty rows 24 cols 80; echo $$ > {process}; exec {} --socket {} top",
            env!("CARGO_BIN_EXE_mpip"),
            world.path("mpip0.sock")
        );
        let mut script = Running(
            Command::new("script")
                .args(["-q", "-f", "-c", &command, &shown])
                .env("TERM", "xterm")
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::null())
                .spawn()
                .expect("script"),
        );
        let read = || String::from_utf8_lossy(&fs::read(&shown).unwrap_or_default()).into_owned();
        wait_for("the screen", || read().contains("not connected"));
        match end {
            "key" => {
                use std::io::Write;
                script.0.stdin.as_mut().expect("piped").write_all(b"q").expect("it reads");
            }
            _ => {
                let process = fs::read_to_string(&process).expect("written");
                assert!(run("kill", &["-TERM", process.trim()]).status.success());
            }
        }
        wait_for("its end", || script.0.try_wait().expect("a child").is_some());
        let text = read();
        let (entered, left) = (text.find("\x1b[?1049h"), text.rfind("\x1b[?1049l"));
        assert!(entered.is_some() && entered < left, "{end}: the screen is given back: {text:?}");
        assert!(text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "{end}: the cursor is shown");
    }
}

/// Sends a request to `address` and returns what comes until `enough` is in it.
fn ask(address: &str, request: &str, enough: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let timeout = Some(Duration::from_secs(60));
    stream.set_read_timeout(timeout).expect("a timeout");
    let head = format!("{request} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let (mut text, mut buffer) = (String::new(), [0; 4_096]);
    while !text.contains(enough) {
        let len = stream.read(&mut buffer).expect("an answer");
        assert!(len > 0, "{request}: {text}");
        text += &String::from_utf8_lossy(&buffer[..len]);
    }
    text
}

#[test]
fn the_page_and_the_metrics_show_a_daemon_that_runs() {
    if !can_run(&[]) {
        return;
    }
    build_mpipd();
    let world = World::new("cli-web");
    let (up, words) = world.mpip(&["up", &world.path("mpip0.toml")]);
    assert!(up, "{words}");
    let socket = world.path("mpip0.sock");
    let mut web = Running(
        Command::new(env!("CARGO_BIN_EXE_mpip"))
            .args(["--socket", &socket, "web", "--listen", "127.0.0.1:0"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("mpip"),
    );
    let mut line = String::new();
    let stdout = web.0.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("a line");
    let address = line.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let address = address.expect(&line).to_owned();

    let page = ask(&address, "GET /", "</html>");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    let metrics = ask(&address, "GET /metrics", "mpip_peer_inner_mtu_bytes{");
    assert!(metrics.contains("mpip_up 1\n"), "{metrics}");
    assert!(metrics.contains("mpip_peer_established{peer=\"b\"} 0\n"), "{metrics}");
    let live = ask(&address, "GET /live", "event: state");
    assert!(live.contains("\r\ncontent-type: text/event-stream\r\n"), "{live}");
    assert!(live.contains("event: history\ndata: ["), "{live}");
    let (printed, words) = world.mpip(&["--socket", &socket, "metrics"]);
    assert!(printed && words.contains("mpip_build_info{version="), "{words}");
}
