//! Measurements with a peer: all paths together, then each one alone, in both directions.

use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use mpip_api::{
    BenchPath, BenchProgress, BenchReport, BenchResult, Direction, PathStatus, PeerStatus, PeerView,
};
use mpip_core::Instant;
use mpip_net::{clock, stream};

use super::ask::{Reached, peer_in, status};
use super::load::{self, Measured};
use super::message::{self, Request, Response};
use super::{BYTES_MAX, DURATION_MAX, packets_cpu};
use crate::control::{Asker, Confined};
use crate::snapshot::ms;

/// Most paths that are measured alone.
const PATHS_MAX: usize = 16;
/// Interval at which the paths are looked at, and progress is told.
const LOOK: Duration = Duration::from_millis(250);
/// Shortest measurement, and least data that say anything.
const DURATION_MIN: Duration = Duration::from_millis(500);
const BYTES_MIN: u64 = 1_000_000;
/// How long the peer may take to tell what it received.
const RESULT: Duration = Duration::from_secs(10);

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// The peer; `None` for the only one.
    pub(crate) peer: Option<String>,
    /// Its inner address; `None` to find it.
    pub(crate) address: Option<IpAddr>,
    /// Length of each measurement.
    pub(crate) duration: Duration,
    /// Most data of each.
    pub(crate) max_bytes: u64,
    pub(crate) directions: Vec<Direction>,
}

impl Wish {
    fn check(&self) -> Result<(), String> {
        let Self { duration, max_bytes, directions, .. } = self;
        if !(DURATION_MIN..=DURATION_MAX).contains(duration) {
            return Err(format!(
                "expected measurements of {} to {} ms, found {} ms",
                DURATION_MIN.as_millis(),
                DURATION_MAX.as_millis(),
                duration.as_millis()
            ));
        }
        if !(BYTES_MIN..=BYTES_MAX).contains(max_bytes) {
            return Err(format!(
                "expected at most {BYTES_MIN} to {BYTES_MAX} bytes for each measurement, found \
                 {max_bytes}"
            ));
        }
        if directions.is_empty() || directions.len() > 2 {
            return Err("expected one or two directions".to_owned());
        }
        Ok(())
    }
}

/// Measures what `wish` says. `progress` is called several times a second, and ends it by `false`.
pub(crate) fn bench(
    asker: &Asker,
    wish: &Wish,
    progress: &mut dyn FnMut(BenchProgress) -> bool,
) -> Result<BenchReport, String> {
    wish.check()?;
    let now = status(asker)?;
    let peer = peer_in(&now, wish.peer.as_deref())?;
    let (reached, view) = Reached::find(&now, peer, wish.address)?;
    let mut paths: Vec<BenchPath> = peer.paths.iter().map(path_of).collect();
    let alone: Vec<usize> = (0..paths.len()).filter(|at| paths[*at].skipped.is_none()).collect();
    let several = if alone.len() > 1 { alone.len().min(PATHS_MAX) } else { 0 };
    let directions = wish.directions.len();
    let mut bench = Bench {
        asker,
        wish,
        reached: &reached,
        peer: &peer.name,
        step: 0,
        steps: ((1 + several) * directions) as u32,
        progress,
    };
    let mut together = Vec::new();
    for direction in &wish.directions {
        together.push(bench.measure(None, *direction)?);
    }
    for (count, at) in alone.into_iter().enumerate() {
        if several == 0 {
            // What all paths carry is what the only one carries.
            paths[at].results.clone_from(&together);
        } else if count < PATHS_MAX {
            for direction in &wish.directions {
                let result = bench.measure(Some(paths[at].id), *direction)?;
                paths[at].results.push(result);
            }
        } else {
            paths[at].skipped = Some(format!("only {PATHS_MAX} are measured"));
        }
    }
    let after = status(asker)?;
    let known = peer_in(&after, Some(&peer.name)).map_or(&[][..], |peer| &peer.paths);
    for path in &mut paths {
        let bottleneck = known.iter().find(|known| known.id == path.id);
        path.bottleneck = bottleneck.map_or(path.bottleneck, |known| known.bottleneck);
    }
    Ok(BenchReport {
        peer: peer.name.clone(),
        address: reached.address,
        peer_version: view.daemon_version,
        paths,
        together,
    })
}

fn path_of(path: &PathStatus) -> BenchPath {
    let skipped = match path.state.as_str() {
        "active" => None,
        "standby" => Some("on standby".to_owned()),
        other => Some(other.to_owned()),
    };
    BenchPath {
        id: path.id,
        interface: path.interface.clone(),
        local: path.local,
        remote: path.remote,
        idle_rtt_ms: path.min_rtt_ms.or(path.rtt_ms),
        bottleneck: path.bottleneck,
        skipped,
        results: Vec::new(),
    }
}

/// Measurements that are under way.
struct Bench<'a> {
    asker: &'a Asker,
    wish: &'a Wish,
    reached: &'a Reached,
    peer: &'a str,
    step: u32,
    steps: u32,
    progress: &'a mut dyn FnMut(BenchProgress) -> bool,
}

/// What is looked at during a measurement.
struct Watch<'a> {
    asker: &'a Asker,
    peer: &'a str,
    path: Option<u16>,
    start: Instant,
    next: Instant,
    rtt_ms: Option<f64>,
    interrupted: bool,
    template: BenchProgress,
    progress: &'a mut dyn FnMut(BenchProgress) -> bool,
}

impl Watch<'_> {
    /// Looks if it is time. Returns whether to go on.
    fn look(&mut self, bytes: u64) -> bool {
        let now = clock::now();
        if now < self.next {
            return true;
        }
        self.next = now + LOOK;
        let elapsed = now.since(self.start);
        let rate = bytes as f64 * 8.0 / elapsed.as_secs_f64().max(1e-3);
        let told = (self.progress)(BenchProgress {
            elapsed_ms: ms(elapsed),
            rate_bps: rate as u64,
            ..self.template.clone()
        });
        if let Some(peer) = now_of(self.asker, self.peer) {
            let of = peer.paths.iter().filter(|path| self.path.is_none_or(|id| id == path.id));
            let largest = of.filter(|path| path.state == "active").filter_map(|path| path.rtt_ms);
            self.rtt_ms = largest.chain(self.rtt_ms).reduce(f64::max);
        }
        self.interrupted = !told;
        told
    }
}

/// The peer's state now.
fn now_of(asker: &Asker, name: &str) -> Option<PeerStatus> {
    status(asker).ok()?.peers.into_iter().find(|peer| peer.name == name)
}

/// Datagrams sent and lost on `path`, or on all.
fn losses(peer: &PeerStatus, path: Option<u16>) -> (u64, u64) {
    let of = peer.paths.iter().filter(|known| path.is_none_or(|id| id == known.id));
    of.fold((0, 0), |(sent, lost), path| {
        (sent + path.sent_packets, lost + path.lost_packets.saturating_sub(path.spurious_losses))
    })
}

/// The share of datagrams lost between two looks.
fn share_lost(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let sent = after.0.checked_sub(before.0)?;
    let lost = after.1.saturating_sub(before.1);
    (sent > 0).then(|| lost as f64 / sent as f64)
}

impl Bench<'_> {
    fn measure(&mut self, path: Option<u16>, direction: Direction) -> Result<BenchResult, String> {
        self.step += 1;
        let (asker, duration) = (self.asker, self.wish.duration);
        let (before, seen) = (now_of(asker, self.peer), self.reached.view());
        let (start, cpu) = (clock::now(), packets_cpu());
        let template = BenchProgress {
            step: self.step,
            steps: self.steps,
            path,
            direction,
            elapsed_ms: 0.0,
            duration_ms: ms(duration),
            rate_bps: 0,
        };
        let mut watch = Watch {
            asker,
            peer: self.peer,
            path,
            start,
            next: start,
            rtt_ms: None,
            interrupted: false,
            template,
            progress: &mut *self.progress,
        };
        let transferred = transfer(self.reached, self.wish, direction, &mut watch);
        let (rtt_ms, interrupted) = (watch.rtt_ms, watch.interrupted);
        if interrupted {
            return Err("interrupted".to_owned());
        }
        let measured = transferred?;
        let took = clock::now().since(start);
        let share = |before: Option<Duration>, after: Option<Duration>| {
            Some(after?.checked_sub(before?)?.as_secs_f64() / took.as_secs_f64().max(1e-3))
        };
        let (after, seen_after) = (now_of(asker, self.peer), self.reached.view());
        let own = |look: &Option<PeerStatus>| look.as_ref().map(|peer| losses(peer, path));
        let theirs =
            |look: &Option<PeerView>| look.as_ref().map(|it| losses(&it.association, path));
        let sides = match direction {
            Direction::Send => (own(&before), own(&after)),
            Direction::Receive => (theirs(&seen), theirs(&seen_after)),
        };
        let used = |look: &Option<PeerView>| {
            look.as_ref()?.cpu_ms.map(|ms| Duration::from_secs_f64(ms / 1e3))
        };
        Ok(BenchResult {
            direction,
            rate_bps: measured.rate_bps,
            bytes: measured.bytes,
            duration_ms: measured.duration_ms,
            rtt_ms,
            loss: sides.0.zip(sides.1).and_then(|(before, after)| share_lost(before, after)),
            cpu: share(cpu, packets_cpu()),
            peer_cpu: share(used(&seen), used(&seen_after)),
            capped: measured.bytes >= self.wish.max_bytes,
        })
    }
}

/// One connection full of data.
fn transfer(
    reached: &Reached,
    wish: &Wish,
    direction: Direction,
    watch: &mut Watch<'_>,
) -> Result<Measured, String> {
    let failed = |error: std::io::Error| {
        format!("the connection to {} through the tunnel failed: {error}", reached.address)
    };
    let stream = reached.connect().map_err(failed)?;
    let path = watch.path.filter(|_| direction == Direction::Send);
    let _confined = Confined::new(watch.asker, &stream, path).map_err(failed)?;
    let duration_ms = wish.duration.as_millis() as u64;
    let max_bytes = wish.max_bytes;
    let request = Request::Bench { direction, path: watch.path, duration_ms, max_bytes };
    message::write(&stream, &request).map_err(failed)?;
    match message::read(&stream).map_err(failed)? {
        Response::Ready => {}
        Response::Error { message } => return Err(format!("the peer refuses: {message}")),
        other => return Err(format!("expected the peer to be ready, found {other:?}")),
    }
    let measured = match direction {
        Direction::Receive => {
            load::receive(&stream, wish.duration, |bytes| watch.look(bytes)).measured()
        }
        Direction::Send => {
            let sent = load::send(&stream, wish.duration, max_bytes, |bytes| watch.look(bytes));
            if watch.interrupted {
                stream::end_at_once(&stream).map_err(failed)?;
                return Ok(Measured::default());
            }
            if sent >= max_bytes {
                stream.shutdown(Shutdown::Write).map_err(failed)?;
            }
            stream.set_read_timeout(Some(RESULT)).map_err(failed)?;
            match message::read(&stream).map_err(failed)? {
                Response::Received(measured) => measured,
                other => return Err(format!("expected what the peer received, found {other:?}")),
            }
        }
    };
    stream::end_at_once(&stream).map_err(failed)?;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_beyond_its_bounds_is_refused() {
        let wish = Wish {
            peer: None,
            address: None,
            duration: Duration::from_secs(3),
            max_bytes: 100_000_000,
            directions: vec![Direction::Send],
        };
        assert_eq!(wish.check(), Ok(()));
        let refused = |wish: Wish| wish.check().expect_err("out of bounds");
        assert!(
            refused(Wish { duration: Duration::from_secs(60), ..wish.clone() }).contains("60000")
        );
        assert!(refused(Wish { max_bytes: 7, ..wish.clone() }).contains("found 7"));
        assert!(refused(Wish { directions: Vec::new(), ..wish }).contains("directions"));
    }

    #[test]
    fn losses_count_between_two_looks() {
        assert_eq!(share_lost((100, 5), (300, 9)), Some(0.02));
        assert_eq!(share_lost((100, 5), (100, 5)), None, "nothing was sent");
        assert_eq!(share_lost((100, 5), (50, 0)), None, "another association");
    }
}
