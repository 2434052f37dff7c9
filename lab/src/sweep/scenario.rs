//! Sets as scenarios, for kernels: the same links, changes and cross traffic.

use std::fmt::Write as _;
use std::io;

use mpip_link::{Change, Discipline, LinkConfig, Loss, QueueLimit};
use mpip_sim::clock::{Nanos, SECOND};

use super::distribution::{CROSS, END, FROM, Set};
use super::measured::SIZES;
use crate::scenarios::{self, Loaded};

/// Time from the start of a run until bulk starts. Round trips of this time are those of an idle
/// system.
const IDLE: Nanos = 2 * SECOND;
/// Duration of a run of short transfers.
const SHORT_RUN: Nanos = 38 * SECOND;
/// When the short transfers of each of [`SIZES`] start after the beginning of their run, for how
/// long they do so, and the time between two of them, seconds: three, three, and one.
const SHORT: [[u64; 3]; 3] = [[0, 5, 2], [6, 9, 4], [18, 20, 60]];
/// Bytes of IPv4 and UDP headers.
const UDP_HEADERS: usize = 28;
/// Names of the interfaces at both ends.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Names of the flows of [`bulk`]: the transfer, and round trips before and beside it.
pub(super) const BULK: &str = "bulk";
pub(super) const BEFORE: &str = "idle";
pub(super) const BESIDE: &str = "loaded";
/// Socket buffers of the hosts' TCP, as in the simulator: never too small.
const BUFFERS: &str = "for b in rmem wmem; do echo 4096 131072 67108864 > \
                       /proc/sys/net/ipv4/tcp_$b; done";

/// Name of the flow of short transfers of `size` bytes.
pub(super) fn short_name(size: u64) -> String {
    format!("{} kB", size / 1_000)
}

/// The scenario of bulk: TCP from client to server, cross traffic, round trips.
pub(super) fn bulk(set: &Set) -> io::Result<Loaded> {
    let mut text = text(set, IDLE + END);
    text += &flow("tcp", BULK, IDLE, IDLE + END);
    text += &flow("voip", BEFORE, 0, IDLE);
    text += &flow("voip", BESIDE, IDLE + FROM, IDLE + END);
    for (path, name) in set.paths.iter().zip(NAMES) {
        for cross in &path.cross {
            text += &flow("udp", "cross", IDLE + cross.from, IDLE + cross.until);
            let length = CROSS - UDP_HEADERS;
            let rate = cross.rate as usize * length / CROSS;
            let _ =
                writeln!(text, "plain = \"{name}\"\nrate = \"{rate} bit/s\"\nlength = {length}");
        }
    }
    load("sweep", set, text)
}

/// The scenario of short transfers of each of [`SIZES`], over the links of a set on which nothing
/// happens.
pub(super) fn short(set: &Set) -> io::Result<Loaded> {
    let mut text = text(set, SHORT_RUN);
    for (size, [start, duration, interval]) in SIZES.into_iter().zip(SHORT) {
        let start = start * SECOND;
        text += &flow("short", &short_name(size), start, start + duration * SECOND);
        let _ = writeln!(text, "size = \"{size} bytes\"\ninterval = \"{interval} s\"");
    }
    load("sweep-short", set, text)
}

fn load(kind: &str, set: &Set, text: String) -> io::Result<Loaded> {
    let name = format!("{kind}-{:05}", set.seed);
    let file = format!("{name}.toml");
    let scenario = scenarios::parse(&file, &text)?;
    Ok(Loaded { name, file, text, scenario })
}

fn flow(kind: &str, name: &str, start: Nanos, end: Nanos) -> String {
    let duration = end - start;
    format!(
        "\n[[traffic]]\nkind = \"{kind}\"\nname = \"{name}\"\nfrom = \"client\"\n\
         to = \"server\"\nstart = \"{start} ns\"\nduration = \"{duration} ns\"\n"
    )
}

/// The scenario's text without its traffic.
fn text(set: &Set, duration: Nanos) -> String {
    let mut text = format!(
        "title = \"Random link set {seed}\"\n\
         source = \"mpip-lab sweep --seed {seed}\"\n\
         duration = \"{duration} ns\"\nrepetitions = 1\nseed = {seed}\n\
         systems = [\"tcp\", \"mptcp\", \"mpip\"]\n",
        seed = set.seed,
    );
    for (end, host) in [(1, "client"), (2, "server")] {
        let _ =
            writeln!(text, "\n[[command]]\nat = \"0 s\"\nhost = \"{host}\"\nrun = \"{BUFFERS}\"");
        for (index, name) in NAMES.iter().take(set.paths.len()).enumerate() {
            let _ = writeln!(
                text,
                "\n[[interface]]\nhost = \"{host}\"\nname = \"{name}\"\n\
                 address = \"198.18.{}.{end}\"",
                index + 1
            );
        }
    }
    for (path, name) in set.paths.iter().zip(NAMES) {
        let (forward, back) = &path.links;
        let _ = write!(
            text,
            "\n[[link]]\nname = \"{name}\"\nends = [\"client.{name}\", \"server.{name}\"]\n\
             {}[link.reverse]\n{}",
            settings(forward, None),
            settings(back, Some(forward))
        );
    }
    for (path, name) in set.paths.iter().zip(NAMES) {
        for (at, forward, back) in &path.changes {
            for (direction, change) in [("forward", forward), ("reverse", back)] {
                let keys = changes(change);
                if !keys.is_empty() {
                    let _ = write!(
                        text,
                        "\n[[event]]\nat = \"{} ns\"\nlink = \"{name}\"\n\
                         direction = \"{direction}\"\n{keys}",
                        IDLE + at
                    );
                }
            }
        }
    }
    text
}

/// The keys of one direction. What both directions have in common and the second does not say, it
/// has from the first (`but`).
fn settings(link: &LinkConfig, but: Option<&LinkConfig>) -> String {
    let mut text = String::new();
    if let Some(rate) = link.rate {
        let _ = writeln!(text, "rate = \"{rate} bit/s\"");
    }
    let _ = match link.queue {
        QueueLimit::Packets(packets) => writeln!(text, "queue = \"{packets} packets\""),
        QueueLimit::Bytes(bytes) => writeln!(text, "queue = \"{bytes} bytes\""),
    };
    if link.discipline == Discipline::TailDrop {
        text += if but.is_some() { "codel = { enabled = false }\n" } else { "" };
    }
    if let Discipline::Codel(codel) = link.discipline {
        let (target, interval) = (codel.target.as_nanos(), codel.interval.as_nanos());
        let _ =
            writeln!(text, "codel = {{ target = \"{target} ns\", interval = \"{interval} ns\" }}");
    }
    let (delay, jitter) = (link.delay.as_nanos(), link.jitter.as_nanos());
    let _ = writeln!(text, "delay = \"{delay} ns\"\njitter = \"{jitter} ns\"");
    let _ = writeln!(text, "in_order = {}", link.in_order);
    text += &loss(&link.loss, but.is_some());
    for (key, value, usual) in [
        ("up", link.up, but.is_none_or(|b| b.up)),
        ("blackhole", link.blackhole, but.is_some_and(|b| b.blackhole)),
    ] {
        if value != usual {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

fn loss(loss: &Loss, none_too: bool) -> String {
    match loss {
        Loss::None if none_too => "loss = \"0 %\"\n".to_owned(),
        Loss::None => String::new(),
        Loss::Random(share) => format!("loss = \"{share:.9}\"\n"),
        Loss::GilbertElliott { good_to_bad, bad_to_good, good_loss, bad_loss } => format!(
            "burst_loss = {{ good_to_bad = \"{good_to_bad:.9}\", bad_to_good = \"{bad_to_good:.9}\", \
             good_loss = \"{good_loss:.9}\", bad_loss = \"{bad_loss:.9}\" }}\n"
        ),
    }
}

/// The keys of a change. Sets change rate, delay, loss and whether a link passes, nothing else.
fn changes(change: &Change) -> String {
    let mut text = String::new();
    if let Some(Some(rate)) = change.rate {
        let _ = writeln!(text, "rate = \"{rate} bit/s\"");
    }
    if let Some(delay) = change.delay {
        let _ = writeln!(text, "delay = \"{} ns\"", delay.as_nanos());
    }
    if let Some(model) = &change.loss {
        text += &loss(model, true);
    }
    for (key, value) in [("up", change.up), ("blackhole", change.blackhole)] {
        if let Some(value) = value {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_has_the_links_and_changes_of_its_set() {
        for seed in 0..300 {
            let set = Set::draw(seed);
            let loaded = bulk(&set).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let scenario = &loaded.scenario;
            assert_eq!(scenario.links.len(), set.paths.len());
            for (link, path) in scenario.links.iter().zip(&set.paths) {
                for (got, wanted) in
                    [(&link.forward, &path.links.0), (&link.reverse, &path.links.1)]
                {
                    assert!((got.loss.mean() - wanted.loss.mean()).abs() < 1e-6);
                    let got = LinkConfig { loss: wanted.loss, ..got.clone() };
                    assert_eq!(got, *wanted, "seed {seed}: {}", loaded.text);
                }
            }
            let changes: usize = set.paths.iter().map(|path| path.changes.len()).sum();
            assert!(scenario.events.len() >= changes);
            for path in &set.paths {
                for (at, change, _) in &path.changes {
                    let at = std::time::Duration::from_nanos(IDLE + at);
                    let same = |e: &&crate::scenario::Event| e.at == at && e.forward;
                    let event = scenario.events.iter().find(same).expect("it is there");
                    assert_eq!(event.change.rate, change.rate);
                    assert_eq!(event.change.up, change.up);
                }
            }
            let cross: usize = set.paths.iter().map(|path| path.cross.len()).sum();
            assert_eq!(scenario.traffic.iter().filter(|t| t.plain.is_some()).count(), cross);
        }
    }

    #[test]
    fn short_transfers_meet_no_event() {
        let set = (0..).map(Set::draw).find(|set| !set.paths[0].changes.is_empty());
        let set = set.expect("some have").quiet();
        let loaded = short(&set).expect("valid");
        assert_eq!(loaded.scenario.traffic.len(), SIZES.len());
        assert!(loaded.scenario.events.is_empty());
        assert!(loaded.scenario.links.iter().all(|link| link.forward.passes()));
    }
}
