//! The time line of a transfer through mpip: who was limited by what.

use core::time::Duration;
use std::fmt::Write as _;
use std::io;

use mpip_core::{PathStatus, PeerStatus};
use mpip_link::Counters;
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::measure::{Sender, Subject};
use mpip_sim::spec::outer_address;
use mpip_sim::tcp::TcpState;
use mpip_sim::world::{Observe, World};

use super::distribution::Set;
use super::measured::{self, Plan};

/// Interval of the lines of bulk.
const STEP: Nanos = 250 * MILLI;
/// Lines of a short transfer, about.
const LINES: u64 = 24;
/// MTU of the links.
const WHOLE: u16 = 1_500;

const LEGEND: &str = "\
Goodput and each path's rate, also that back, in Mbit/s since the last line. inner: the sender's
window in kB, round trip in ms, and packets that it declared lost (QUIC: and how many of its packets
had not arrived by then, those on the way included; more lost than missing are spurious). queue: kB
in the tunnel's queue, packets that it dropped or marked. wait: kB that the receiver holds for
order. Of a path: window and bytes in flight in kB, pacing rate in Mbit/s, round trip in ms, kB in
the link's queue, packets dropped by the link's queue and lost on the link, packets that the path
declared lost (spuriously), the state of its congestion control, why it carries nothing, and its MTU
if it was found to be below 1,500.
";

/// Counters at the last line.
#[derive(Clone, Default)]
struct Before {
    goodput: u64,
    inner_lost: u64,
    drops: u64,
    paths: Vec<PathBefore>,
}

#[derive(Clone)]
struct PathBefore {
    /// Bytes sent forward, and those that the link back got.
    bytes: [u64; 2],
    link: Counters,
    lost: u64,
    spurious: u64,
}

/// The set, what each path carries alone, and the time line of bulk by `sender` over it.
///
/// # Errors
/// If there is no sender of that name.
pub(super) fn bulk(set: &Set, name: &str, plan: &Plan) -> io::Result<String> {
    let sender = Sender::from_name(name).map_err(io::Error::other)?;
    let found = measured::measure(set, name, &Plan { short: false, ..plan.clone() })?;
    let mut text = set.describe();
    let mbps = |bits: f64| format!("{:.2}", bits / 1e6);
    let alone: Vec<String> = found.bulk.alone.iter().map(|bits| mbps(*bits)).collect();
    let (from, end) = (set.from() / SECOND, set.until / SECOND);
    let _ = writeln!(
        text,
        "{name}, {from} to {end} s, Mbit/s: limit {}, alone {}, mpip {}; of the limit {:.3}, of the \
         best path {:.3}",
        mbps(found.bulk.limit),
        alone.join(" "),
        mbps(found.bulk.mpip),
        found.bulk.mpip / found.bulk.limit.max(1.0),
        found.bulk.mpip / found.bulk.best(),
    );
    let _ = writeln!(
        text,
        "ping, 95th percentile: alone {:.1} ms, beside bulk {:.1} ms, lost {:.1} %",
        found.bulk.ping_alone,
        found.bulk.ping,
        found.bulk.ping_lost * 100.0
    );
    let world = World::new(measured::loaded(set, sender, plan), Observe::default());
    lines(&mut text, world, set, (STEP, set.until));
    Ok(text)
}

/// The set, how long `bytes` bytes take on each path alone and through mpip, and the time line of
/// their first run by `sender` through mpip.
///
/// # Errors
/// If there is no sender of that name.
pub(super) fn short(set: &Set, name: &str, bytes: u64, plan: &Plan) -> io::Result<String> {
    let sender = Sender::from_name(name).map_err(io::Error::other)?;
    let set = set.quiet();
    let mut violations = Vec::new();
    let found = measured::short(&set, sender, bytes, plan, &mut violations);
    let mut text = set.describe();
    let milliseconds = |seconds: f64| format!("{:.1}", seconds * 1e3);
    let alone: Vec<String> = found.alone.iter().copied().map(milliseconds).collect();
    let _ = writeln!(
        text,
        "{name}, {bytes} bytes, medians in ms: alone {}, mpip {}; of the best path {:.3}",
        alone.join(" "),
        milliseconds(found.mpip),
        found.mpip / found.best(),
    );
    violations.iter().for_each(|violation| {
        let _ = writeln!(text, "violated: {violation}");
    });
    let spec = measured::short_spec(&set, Subject::MPIP, (sender, bytes), plan, 0);
    let took =
        measured::time_of(&mut World::new(spec.clone(), Observe::default()), set.begin, bytes);
    let _ = writeln!(text, "this run: {:.1} ms", took as f64 / MILLI as f64);
    let step = (took / LINES).max(MILLI).next_multiple_of(MILLI);
    lines(&mut text, World::new(spec, Observe::default()), &set, (step, took));
    Ok(text)
}

/// A line each `step` from the start of the transfer on, until `end` is reached.
fn lines(text: &mut String, mut world: World, set: &Set, (step, end): (Nanos, Nanos)) {
    let _ = writeln!(text, "\n{LEGEND}");
    world.run_until(set.begin);
    let mut before = look(&world, set.paths.len());
    for number in 1..=end.div_ceil(step) {
        world.run_until(set.begin + number * step);
        line(text, &world, &before, (number * step, step));
        before = look(&world, set.paths.len());
    }
    let _ = writeln!(text, "the sender at the end: {}", world.tcp_state(0));
}

fn peer(world: &World, host: usize) -> Option<PeerStatus> {
    world.status(host)?.peers.into_iter().find(|peer| peer.established)
}

/// The path over the links numbered `index`. The engine also tries the other pairs of addresses.
fn path_of(status: &PeerStatus, index: usize) -> Option<&PathStatus> {
    let [local, remote] = [0, 1].map(|host| outer_address(host, index, 0, false));
    let mut paths = status.paths.iter();
    paths.find(|path| (path.local.ip(), path.remote.ip()) == (local, remote))
}

/// Packets that the inner sender has declared lost.
fn inner_lost(world: &World) -> u64 {
    let tcp = world.tcp_sender(0).map(|state| state.lost);
    tcp.or_else(|| world.quic_state(0).map(|state| state.lost)).unwrap_or(0)
}

fn look(world: &World, paths: usize) -> Before {
    let status = peer(world, 0);
    let path = |index: usize| {
        let own = status.as_ref().and_then(|status| path_of(status, index));
        let back = world.network().link_counters(2 * index + 1).offered_bytes;
        PathBefore {
            bytes: [world.interface_bytes(0, index), back],
            link: *world.network().link_counters(2 * index),
            lost: own.map_or(0, |path| path.packets_lost),
            spurious: own.map_or(0, |path| path.spurious_losses),
        }
    };
    Before {
        goodput: world.flow_bytes(0),
        inner_lost: inner_lost(world),
        drops: status.as_ref().map_or(0, |status| status.queue_drops),
        paths: (0..paths).map(path).collect(),
    }
}

fn line(text: &mut String, world: &World, before: &Before, (at, step): (Nanos, Nanos)) {
    let rate = |bytes: u64| bytes as f64 * 8.0 / (step as f64 / SECOND as f64) / 1e6;
    let now = look(world, before.paths.len());
    let kilo = |bytes: u64| bytes / 1_000;
    let seconds = at as f64 / SECOND as f64;
    let lost = now.inner_lost - before.inner_lost;
    let trip = |trip: Duration| trip.as_secs_f64() * 1e3;
    let inner = match (world.quic_state(0), world.tcp_sender(0)) {
        (Some(state), _) => {
            let (window, rtt) = (kilo(state.window), trip(state.round_trip));
            format!("{window:6} rtt {rtt:6.1} lost {lost:3}/{:<4}", state.missing)
        }
        (None, state) => {
            let TcpState { window, round_trip, .. } = state.unwrap_or_default();
            format!("{:6} rtt {:6.1} lost {lost:3}", kilo(window), trip(round_trip))
        }
    };
    let status = peer(world, 0);
    let queued = status.as_ref().map_or(0, |status| status.queued as u64);
    let held = peer(world, 1).map_or(0, |status| status.resequencing as u64);
    let _ = writeln!(
        text,
        "{seconds:7.3} s {:7.2}  inner {inner}  queue {:4} {:3}  wait {:5}",
        rate(now.goodput - before.goodput),
        kilo(queued),
        now.drops - before.drops,
        kilo(held),
    );
    for (index, (then, this)) in before.paths.iter().zip(&now.paths).enumerate() {
        let link = kilo(world.network().queued_bytes(2 * index));
        let counted = |of: fn(&Counters) -> u64| of(&this.link) - of(&then.link);
        let dropped = counted(|c| c.dropped_queue + c.dropped_codel);
        let lost = counted(|c| c.dropped() - c.dropped_queue - c.dropped_codel);
        let [forward, back] = [0, 1].map(|host| rate(this.bytes[host] - then.bytes[host]));
        let _ = write!(text, "   {index} {forward:7.2}  back {back:5.2}");
        let Some(path) = status.as_ref().and_then(|status| path_of(status, index)) else {
            let _ = writeln!(text, "  no path");
            continue;
        };
        let trip = path.rtt.map_or(0.0, trip);
        let paced = path.pacing_rate.unwrap_or(0) as f64 / 1e6;
        let _ = write!(
            text,
            "  window {:5} in flight {:5} paced {paced:6.2} rtt {trip:6.1}  link {link:4} \
             drops {dropped:3} loss {lost:3}  lost {:3} ({})  {}",
            kilo(path.window),
            kilo(path.in_flight),
            this.lost.saturating_sub(then.lost),
            this.spurious.saturating_sub(then.spurious),
            path.congestion_state,
        );
        if let Some(hold) = &path.hold {
            let _ = write!(text, "  {hold:?}");
        }
        if path.mtu < WHOLE {
            let _ = write!(text, "  mtu {}", path.mtu);
        }
        if path.guard != "used" {
            let _ = write!(text, "  {}", path.guard);
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpip_core::Parameters;

    #[test]
    fn a_time_line_has_a_line_for_each_step_and_path() {
        let seed = (0..).find(|seed| Set::draw(*seed).bulk_limit() < 8e6);
        let set = Set::draw(seed.expect("there is a slow one"));
        let plan = Plan { short: false, parameters: Parameters::default() };
        let text = bulk(&set, "quic-cubic", &plan).expect("the sender exists");
        let steps = text.lines().filter(|line| line.contains("  inner ")).count() as u64;
        let paths = text.lines().filter(|line| line.contains("  window ")).count() as u64;
        assert_eq!(steps, set.until / STEP);
        assert!(paths > steps && paths <= steps * set.paths.len() as u64, "{text}");
    }

    #[test]
    fn the_time_line_of_a_short_transfer_lasts_as_long_as_it() {
        let plan = Plan { short: true, parameters: Parameters::default() };
        let text = short(&Set::draw(0), "cubic", 20_000, &plan).expect("the sender exists");
        let took = text.lines().find_map(|line| line.strip_prefix("this run: ")).expect("told");
        let took: f64 = took.trim_end_matches(" ms").parse().expect("a number");
        let at = text.lines().filter(|line| line.contains("  inner "));
        let at: Vec<f64> =
            at.filter_map(|line| line.split(" s ").next()?.trim().parse().ok()).collect();
        let step = at[0];
        assert!(at.len() > 1 && at[at.len() - 1] * 1e3 >= took, "{text}");
        assert!((at[at.len() - 1] - step) * 1e3 < took + 1.0, "{text}");
    }
}
