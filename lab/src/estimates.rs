//! What the sending end estimates of each path, sampled while a scenario runs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use mpip_api::Client;

use crate::links::SAMPLE;
use crate::results::Estimate;
use crate::scenario::{Scenario, TrafficKind};

/// Between the names of a path's two interfaces.
pub(crate) const TO: &str = "→";

/// The name of the path between two addresses: `a→b` for the interfaces that have them. An address
/// that no interface of the scenario has stands for itself.
pub(crate) fn path_name(scenario: &Scenario, local: IpAddr, remote: IpAddr) -> String {
    let name = |address: IpAddr| {
        let own =
            scenario.interfaces.iter().find(|it| [it.address, it.reached_at()].contains(&address));
        own.map_or_else(|| address.to_string(), |interface| interface.name.clone())
    };
    format!("{}{TO}{}", name(local), name(remote))
}

/// Whether the first flow is sent by the host at which it ends.
pub(crate) fn is_download(scenario: &Scenario) -> bool {
    scenario.traffic.first().is_some_and(|traffic| {
        matches!(
            traffic.kind,
            TrafficKind::Http { .. }
                | TrafficKind::Web { .. }
                | TrafficKind::Tcp { download: true, .. }
                | TrafficKind::Quic { download: true, .. }
        )
    })
}

/// A path at one moment.
struct Sample {
    path: String,
    queuing_ms: f64,
    relative_ms: f64,
}

/// Samples in their order, each path's under its name. Paths come and go.
#[derive(Default)]
struct Samples {
    count: usize,
    paths: BTreeMap<String, Estimate>,
}

impl Samples {
    fn add(&mut self, samples: Vec<Sample>) {
        for sample in samples {
            let estimate = self.paths.entry(sample.path).or_default();
            // Two paths between the same addresses: the first counts.
            if estimate.queuing_ms.len() <= self.count {
                estimate.queuing_ms.resize(self.count, None);
                estimate.relative_ms.resize(self.count, None);
                estimate.queuing_ms.push(Some(sample.queuing_ms));
                estimate.relative_ms.push(Some(sample.relative_ms));
            }
        }
        self.count += 1;
    }

    fn finish(self) -> Vec<Estimate> {
        let count = self.count;
        let finished = self.paths.into_iter().map(|(path, mut estimate)| {
            estimate.queuing_ms.resize(count, None);
            estimate.relative_ms.resize(count, None);
            Estimate { path, ..estimate }
        });
        finished.collect()
    }
}

/// Asks a daemon for its estimates every 100 ms, on a thread of its own.
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Estimate>>,
}

impl Watch {
    /// Watches the daemon that listens on `socket`.
    pub(crate) fn start(socket: PathBuf, scenario: &Scenario) -> Self {
        let (stop, stopped) = mpsc::channel();
        let scenario = scenario.clone();
        let ask = move |client: &mut Option<Client>| -> Vec<Sample> {
            if client.is_none() {
                *client = Client::connect(&socket).ok();
            }
            let status = client.as_mut().map(|client| client.status(false));
            let Some(Ok(status)) = status else {
                *client = None;
                return Vec::new();
            };
            let paths = status.peers.first().into_iter().flat_map(|peer| &peer.paths);
            let used = paths.filter(|path| path.state == "active" || path.state == "standby");
            let sample = |path: &mpip_api::PathStatus| Sample {
                path: path_name(&scenario, path.local.ip(), path.remote.ip()),
                queuing_ms: path.queuing_delay_ms,
                relative_ms: path.relative_delay_ms.unwrap_or_default(),
            };
            used.map(sample).collect()
        };
        let thread = std::thread::spawn(move || {
            let (mut samples, mut client) = (Samples::default(), None);
            let mut next = Instant::now() + SAMPLE;
            let pause = |next: Instant| next.saturating_duration_since(Instant::now());
            while stopped.recv_timeout(pause(next)) == Err(RecvTimeoutError::Timeout) {
                samples.add(ask(&mut client));
                next += SAMPLE;
            }
            samples.finish()
        });
        Self { stop, thread }
    }

    /// Ends it. What it saw, by path.
    pub(crate) fn finish(self) -> Vec<Estimate> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios;

    #[test]
    fn a_path_has_the_names_of_both_interfaces() {
        let scenario = scenarios::find("mpip-no-limit").expect("a scenario").scenario;
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (a, other) = (address("198.18.1.1"), address("198.18.2.2"));
        assert_eq!(path_name(&scenario, a, other), "a→b");
        assert_eq!(path_name(&scenario, a, address("198.18.9.9")), "a→198.18.9.9");
        assert!(!is_download(&scenario));
        assert!(is_download(&scenarios::find("gateway").expect("a scenario").scenario));
    }

    #[test]
    fn a_path_that_comes_late_or_goes_has_gaps() {
        let sample = |path: &str, queuing_ms: f64| Sample {
            path: path.to_owned(),
            queuing_ms,
            relative_ms: queuing_ms / 2.0,
        };
        let mut samples = Samples::default();
        samples.add(vec![sample("a→a", 1.0)]);
        samples.add(vec![]);
        samples.add(vec![sample("a→a", 3.0), sample("b→a", 8.0), sample("b→a", 9.0)]);
        samples.add(vec![sample("a→a", 4.0)]);
        let estimates = samples.finish();
        let of =
            |index: usize| (estimates[index].path.as_str(), estimates[index].queuing_ms.clone());
        assert_eq!(of(0), ("a→a", vec![Some(1.0), None, Some(3.0), Some(4.0)]));
        assert_eq!(of(1), ("b→a", vec![None, None, Some(8.0), None]));
        assert_eq!(estimates[1].relative_ms, [None, None, Some(4.0), None]);
    }
}
