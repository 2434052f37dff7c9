//! Finds the destinations that the host talks to: a thread that lists its connected sockets from
//! time to time.
//!
//! It changes nothing on the host and touches no packets. The kernel leaves out connections to
//! addresses outside of the configured prefixes. It takes at most 1 % of a core, however many
//! sockets there are (figures in `docs/decisions/0015-finding-destinations.md`).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use mpip_core::Prefix;
use mpip_net::netlink::{ConnectedSockets, NetlinkError};

use crate::control::{Ask, Asker};

/// Shortest pause between two lists.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Shortest pause, as a multiple of the time that the last list took.
const PAUSE_FACTOR: u32 = 99;
/// Time after which a destination is reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Most destinations reported at a time.
const AT_ONCE: usize = 256;
/// Most destinations remembered as reported.
const REMEMBERED: usize = 65_536;

/// Starts the thread: it reports destinations within `prefixes` to `asker` until the engine's
/// thread ends.
pub(crate) fn watch(prefixes: &[Prefix], asker: Asker) -> Result<(), NetlinkError> {
    let sockets = ConnectedSockets::to(prefixes)?;
    let run = move || follow(sockets, &asker);
    let spawned = thread::Builder::new().name("destinations".to_owned()).spawn(run);
    if let Err(error) = spawned {
        log::warn!("no thread to notice destinations: {error}");
    }
    Ok(())
}

fn follow(mut sockets: ConnectedSockets, asker: &Asker) {
    let mut reported = Reported::default();
    loop {
        let start = Instant::now();
        let mut found = BTreeMap::new();
        let listed = sockets.list(|source, destination| {
            if found.len() < AT_ONCE && reported.is_due(start, destination) {
                found.insert(destination, source);
            }
        });
        if let Err(error) = listed {
            log::warn!("{error}");
        }
        reported.remember(start, found.keys().copied());
        let list: Vec<(IpAddr, IpAddr)> =
            found.into_iter().map(|(destination, source)| (source, destination)).collect();
        if !list.is_empty() && !asker.ask(Ask::Destinations { list }) {
            return;
        }
        thread::sleep(MIN_PAUSE.max(start.elapsed() * PAUSE_FACTOR));
    }
}

/// Destinations reported lately, and when.
#[derive(Debug, Default)]
struct Reported(HashMap<IpAddr, Instant>);

impl Reported {
    fn is_due(&self, now: Instant, destination: IpAddr) -> bool {
        let reported = self.0.get(&destination);
        reported.is_none_or(|at| now.duration_since(*at) >= REPORT_INTERVAL)
    }

    fn remember(&mut self, now: Instant, destinations: impl Iterator<Item = IpAddr>) {
        self.0.extend(destinations.map(|destination| (destination, now)));
        if self.0.len() > REMEMBERED {
            self.0.retain(|_, at| now.duration_since(*at) < REPORT_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_told_once_a_minute_and_the_memory_is_bounded() {
        let mut reported = Reported::default();
        let start = Instant::now();
        let address = |n: u32| IpAddr::from((0xc612_0000 + n).to_be_bytes());
        assert!(reported.is_due(start, address(1)));
        reported.remember(start, [address(1)].into_iter());
        assert!(!reported.is_due(start + REPORT_INTERVAL / 2, address(1)));
        assert!(reported.is_due(start + REPORT_INTERVAL, address(1)));
        for second in 0..2_000 {
            let now = start + Duration::from_secs(second);
            let first = second as u32 * AT_ONCE as u32;
            reported.remember(now, (first..first + AT_ONCE as u32).map(address));
            assert!(reported.0.len() <= REMEMBERED + AT_ONCE, "{}", reported.0.len());
        }
    }
}
