//! What is known of the daemon over the last minutes, and what of it is selected.

use std::collections::{BTreeMap, VecDeque};

use mpip_api::{Event, PathStatus, PeerStatus, Status};

use crate::rates::{Rate, Rates};
use crate::sampler::Sampled;
use crate::words;

/// Values of each path that are kept: as many as the widest terminal shows.
const KEPT: usize = 240;

/// What of a path is shown over time; the newest value last.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) received_bps: VecDeque<u64>,
    pub(super) sent_bps: VecDeque<u64>,
    pub(super) rtt_us: VecDeque<u64>,
    pub(super) loss_ppm: VecDeque<u64>,
    pub(super) queue_us: VecDeque<u64>,
}

fn push(values: &mut VecDeque<u64>, value: u64) {
    if values.len() == KEPT {
        values.pop_front();
    }
    values.push_back(value);
}

impl History {
    fn add(&mut self, path: &PathStatus, rate: Rate) {
        let works = words::works(path);
        // The casts saturate.
        let scaled = |value: f64, by: f64| if works { (value * by) as u64 } else { 0 };
        push(&mut self.received_bps, rate.received_bps);
        push(&mut self.sent_bps, rate.sent_bps);
        push(&mut self.rtt_us, scaled(path.rtt_ms.unwrap_or(0.0), 1e3));
        push(&mut self.loss_ppm, scaled(path.loss, 1e6));
        push(&mut self.queue_us, scaled(path.queuing_delay_ms, 1e3));
    }
}

/// What the lower half of the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Panel {
    /// Sessions above events.
    #[default]
    Both,
    Sessions,
    Events,
}

/// All that the screen shows.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) status: Option<Status>,
    /// Why the daemon does not answer any more.
    pub(super) error: Option<String>,
    pub(super) rates: Rates,
    /// The newest first.
    pub(super) events: Vec<Event>,
    histories: BTreeMap<(String, u16), History>,
    /// The first path that is shown, if not all have room.
    pub(super) first: usize,
    pub(super) panel: Panel,
    /// The screen stands still.
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) colours: bool,
}

impl Model {
    /// Takes a sample. While the screen stands still, what is shown stays.
    pub(super) fn take(&mut self, sampled: Sampled) {
        if let Some(events) = sampled.events.filter(|_| !self.paused) {
            self.events = events;
        }
        self.error = None;
        if self.paused {
            return;
        }
        let status = sampled.status;
        if let Some(before) = &self.status {
            self.rates = Rates::between(before, &status);
        }
        let mut former = std::mem::take(&mut self.histories);
        for (peer, path) in paths(&status) {
            let key = (peer.name.clone(), path.id);
            let mut history = former.remove(&key).unwrap_or_default();
            if let Some(rate) = self.rates.of(&peer.name, path.id) {
                history.add(path, rate);
            }
            self.histories.insert(key, history);
        }
        self.first = self.first.min(paths(&status).count().saturating_sub(1));
        self.status = Some(status);
    }

    /// The daemon does not answer.
    pub(super) fn lose(&mut self, error: String) {
        self.error = Some(error);
    }

    pub(super) fn path_count(&self) -> usize {
        self.status.as_ref().map_or(0, |status| paths(status).count())
    }

    pub(super) fn history(&self, peer: &str, path: u16) -> Option<&History> {
        self.histories.get(&(peer.to_owned(), path))
    }
}

/// Every path that is shown, with its peer.
pub(super) fn paths(status: &Status) -> impl Iterator<Item = (&PeerStatus, &PathStatus)> {
    let peers = status.peers.iter();
    peers.flat_map(|peer| words::paths_of(peer).0.into_iter().map(move |path| (peer, path)))
}
