//! To whom the host talks: a thread that looks at its connected sockets now and then.
//!
//! Nothing on the host changes for it, no packet is touched, and connections to addresses beyond
//! the configured prefixes do not leave the kernel's list. It takes at most a hundredth of one
//! core, however many sockets there are: `docs/architecture.md` has figures.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use mpip_core::Prefix;
use mpip_net::netlink::{ConnectedSockets, NetlinkError};

use crate::control::{Ask, Asker};

/// Pause between two looks, at least.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause is so many times what the look took, at least.
const SHARE: u32 = 99;
/// A destination is told again after this.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Destinations that are told at a time, and remembered as told.
const AT_ONCE: usize = 256;
const REMEMBERED: usize = 65_536;

/// Looks at the sockets connected to `prefixes` from now on, and tells `asker`, until nobody
/// listens.
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
    let mut told = Told::default();
    loop {
        let start = Instant::now();
        let mut found = BTreeMap::new();
        let listed = sockets.list(|source, destination| {
            if found.len() < AT_ONCE && told.is_due(start, destination) {
                found.insert(destination, source);
            }
        });
        if let Err(error) = listed {
            log::warn!("{error}");
        }
        told.remember(start, found.keys().copied());
        let list: Vec<(IpAddr, IpAddr)> =
            found.into_iter().map(|(destination, source)| (source, destination)).collect();
        if !list.is_empty() && !asker.ask(Ask::Destinations { list }) {
            return;
        }
        thread::sleep(PAUSE.max(start.elapsed() * SHARE));
    }
}

/// What was told lately.
#[derive(Debug, Default)]
struct Told(HashMap<IpAddr, Instant>);

impl Told {
    fn is_due(&self, now: Instant, destination: IpAddr) -> bool {
        let told = self.0.get(&destination);
        told.is_none_or(|at| now.duration_since(*at) >= TELL_AGAIN)
    }

    fn remember(&mut self, now: Instant, destinations: impl Iterator<Item = IpAddr>) {
        self.0.extend(destinations.map(|destination| (destination, now)));
        if self.0.len() > REMEMBERED {
            self.0.retain(|_, at| now.duration_since(*at) < TELL_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_told_once_a_minute_and_the_memory_is_bounded() {
        let mut told = Told::default();
        let start = Instant::now();
        let address = |n: u32| IpAddr::from((0xc612_0000 + n).to_be_bytes());
        assert!(told.is_due(start, address(1)));
        told.remember(start, [address(1)].into_iter());
        assert!(!told.is_due(start + TELL_AGAIN / 2, address(1)));
        assert!(told.is_due(start + TELL_AGAIN, address(1)));
        for second in 0..2_000 {
            let now = start + Duration::from_secs(second);
            let first = second as u32 * AT_ONCE as u32;
            told.remember(now, (first..first + AT_ONCE as u32).map(address));
            assert!(told.0.len() <= REMEMBERED + AT_ONCE, "{}", told.0.len());
        }
    }
}
