//! Events: writes them to the log, counts them, and hands them to subscribers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use mpip_api::{BudgetState, Counter, Event, EventKind};
use mpip_core::LocalAddress;

use crate::lines::{Allowance, Lines};
use crate::logging;
use crate::snapshot::{loss_figures, ms};

/// Shortest interval between reports of refused handshakes, because strangers can cause them.
/// Others are only counted.
const REFUSED_INTERVAL: Duration = Duration::from_secs(1);

/// Lines of the log for one kind of events: as many at once as a host with many peers has to say
/// when a network comes or goes, and one in half a second in the long run. Peers cause most events,
/// and may cause any number of them: who moves, or tells addresses that are nobody's, changes
/// paths.
const LINES: Allowance = Allowance { lines: 200, interval: Duration::from_millis(500) };

/// A peer that does not answer is called again every few seconds, for days. The first attempts are
/// logged, then those whose number is a power of two, and then every one with this number of others
/// before it (about an hour). All are events.
const ATTEMPTS: u32 = 512;

/// Events that are remembered for clients that come later.
const REMEMBERED: usize = 128;

/// Counts events and hands them to subscribers.
#[derive(Debug, Default)]
pub(crate) struct Events {
    counts: BTreeMap<&'static str, u64>,
    lines: BTreeMap<&'static str, Lines>,
    /// Time of the last report of a refused handshake, since the Unix epoch.
    refused: Option<Duration>,
    /// The latest ones, the oldest first; at most [`REMEMBERED`].
    recent: VecDeque<Arc<Event>>,
    subscribers: Vec<SyncSender<Arc<Event>>>,
}

impl Events {
    /// Sends every event from now on to `subscriber`. A subscription ends when its channel is full.
    pub(crate) fn subscribe(&mut self, subscriber: SyncSender<Arc<Event>>) {
        self.subscribers.push(subscriber);
    }

    /// The latest events, the oldest first.
    pub(crate) fn recent(&self) -> Vec<Arc<Event>> {
        self.recent.iter().cloned().collect()
    }

    /// The number of events of each kind.
    pub(crate) fn counters(&self) -> Vec<Counter> {
        let counts = self.counts.iter();
        counts.map(|(name, count)| Counter { name: (*name).to_owned(), count: *count }).collect()
    }

    /// An event of the engine.
    pub(crate) fn engine(&mut self, unix_time: Duration, event: &mpip_core::Event) {
        self.publish(unix_time, event.to_string(), kind(event));
    }

    /// `address` became usable for paths.
    pub(crate) fn address_added(&mut self, unix_time: Duration, address: &LocalAddress) {
        let LocalAddress { interface, address, .. } = address;
        self.publish(
            unix_time,
            format!("address {} on {interface} is usable", address.ip()),
            EventKind::AddressAdded { interface: interface.clone(), address: *address },
        );
    }

    /// `address` is no longer usable.
    pub(crate) fn address_removed(&mut self, unix_time: Duration, address: &LocalAddress) {
        let LocalAddress { interface, address, .. } = address;
        self.publish(
            unix_time,
            format!("address {} on {interface} is gone", address.ip()),
            EventKind::AddressRemoved { interface: interface.clone(), address: *address },
        );
    }

    /// Something has happened to a budget.
    pub(crate) fn budget(&mut self, unix_time: Duration, change: crate::budget::Change) {
        self.publish(unix_time, change.message, change.kind);
    }

    /// Writes a line to the log, unless there were too many of the kind.
    fn log(&mut self, unix_time: Duration, message: &str, kind: &EventKind) {
        if let EventKind::HandshakeTimeout { attempts, .. } = kind
            && !(attempts.is_power_of_two() || attempts % ATTEMPTS == 0)
        {
            return;
        }
        let name = name(kind);
        let full = Lines::new(LINES, unix_time);
        let Some(left_out) = self.lines.entry(name).or_insert(full).permit(unix_time) else {
            return;
        };
        if left_out > 0 {
            log::warn!("{left_out} lines on `{name}` events were left out");
        }
        let level = match kind {
            EventKind::KeyChanged { .. } => log::Level::Error,
            EventKind::Budget { state: BudgetState::UsedUp | BudgetState::Warning, .. } => {
                log::Level::Warn
            }
            _ => log::Level::Info,
        };
        logging::event(level, message, kind);
    }

    fn publish(&mut self, unix_time: Duration, message: String, kind: EventKind) {
        *self.counts.entry(name(&kind)).or_default() += 1;
        if matches!(kind, EventKind::HandshakeRefused { .. }) {
            // The wall clock may be set back, so the difference counts in both directions.
            let since = self.refused.map(|last| unix_time.abs_diff(last));
            if since.is_some_and(|since| since < REFUSED_INTERVAL) {
                return;
            }
            self.refused = Some(unix_time);
        }
        self.log(unix_time, &message, &kind);
        let event = Arc::new(Event { unix_time_ms: ms(unix_time), message, kind });
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(Arc::clone(&event));
        self.subscribers.retain(|subscriber| match subscriber.try_send(Arc::clone(&event)) {
            Ok(()) => true,
            Err(TrySendError::Disconnected(_)) => false,
            Err(TrySendError::Full(_)) => {
                log::warn!("control socket: a subscriber of events does not keep up, cut off");
                false
            }
        });
    }
}

/// The kind's name, as on the control socket.
fn name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Established { .. } => "established",
        EventKind::Lost { .. } => "lost",
        EventKind::PeerRestarted { .. } => "peer-restarted",
        EventKind::Path { .. } => "path",
        EventKind::Rebound { .. } => "rebound",
        EventKind::LeftOut { .. } => "left-out",
        EventKind::Traffic { .. } => "traffic",
        EventKind::PlainSession { .. } => "plain-session",
        EventKind::InnerMtu { .. } => "inner-mtu",
        EventKind::HandshakeTimeout { .. } => "handshake-timeout",
        EventKind::HandshakeRefused { .. } => "handshake-refused",
        EventKind::Pinned { .. } => "pinned",
        EventKind::KeyChanged { .. } => "key-changed",
        EventKind::Budget { .. } => "budget",
        EventKind::AddressAdded { .. } => "address-added",
        EventKind::AddressRemoved { .. } => "address-removed",
        EventKind::Unknown => "unknown",
    }
}

fn kind(event: &mpip_core::Event) -> EventKind {
    use mpip_core::Event as Core;
    match event.clone() {
        Core::Established { peer, aead } => EventKind::Established { peer, aead: aead.to_owned() },
        Core::Lost { peer } => EventKind::Lost { peer },
        Core::PeerRestarted { peer } => EventKind::PeerRestarted { peer },
        Core::Path { peer, path, interface, local, remote, from, to, reason, loss } => {
            let loss = loss.map(loss_figures);
            let (from, to) = (from.name().to_owned(), to.name().to_owned());
            let reason = reason.to_owned();
            EventKind::Path { peer, path, interface, local, remote, from, to, reason, loss }
        }
        Core::LeftOut { peer, path, interface, left_out, with, without, reason } => {
            let (with_bps, without_bps) = (with, without);
            let reason = reason.to_owned();
            EventKind::LeftOut { peer, path, interface, left_out, with_bps, without_bps, reason }
        }
        Core::Rebound { peer, path, from, to } => EventKind::Rebound { peer, path, from, to },
        Core::Traffic { peer, from, to, captured, nats, reason } => EventKind::Traffic {
            peer,
            from: from.name().to_owned(),
            to: to.name().to_owned(),
            captured: captured.iter().map(ToString::to_string).collect(),
            nats: nats.iter().map(ToString::to_string).collect(),
            reason: reason.to_owned(),
        },
        Core::PlainSession { peer, protocol, source, destination } => {
            EventKind::PlainSession { peer, protocol, source, destination }
        }
        Core::InnerMtu { peer, mtu } => EventKind::InnerMtu { peer, mtu_bytes: mtu },
        Core::HandshakeTimeout { peer, attempts, retry_in } => {
            EventKind::HandshakeTimeout { peer, attempts, retry_in_ms: ms(retry_in) }
        }
        Core::Pinned { address, public_key, .. } => {
            EventKind::Pinned { address, public_key: public_key.to_string() }
        }
        Core::KeyChanged { address, pinned, found } => {
            EventKind::KeyChanged { address, pinned: pinned.to_string(), found: found.to_string() }
        }
        Core::HandshakeRefused { from, reason } => EventKind::HandshakeRefused { from, reason },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn lost() -> mpip_core::Event {
        mpip_core::Event::Lost { peer: "b".to_owned() }
    }

    #[test]
    fn events_are_counted_under_the_name_that_subscribers_see() {
        let mut events = Events::default();
        let (subscriber, received) = sync_channel(8);
        events.subscribe(subscriber);
        for _ in 0..2 {
            events.engine(Duration::from_millis(1_500), &lost());
        }
        let event = received.recv().expect("an event");
        let json = serde_json::to_value(&*event).expect("serialises");
        let counters = events.counters();
        assert_eq!(json["event"], counters[0].name.as_str());
        assert_eq!((counters[0].count, event.unix_time_ms), (2, 1_500.0));
        assert_eq!(event.message, lost().to_string());
    }

    #[test]
    fn the_latest_events_are_remembered_for_those_who_come_later() {
        let mut events = Events::default();
        for second in 0..200 {
            events.engine(Duration::from_secs(second), &lost());
        }
        let recent = events.recent();
        let times: Vec<f64> = recent.iter().map(|event| event.unix_time_ms).collect();
        assert_eq!(times.len(), REMEMBERED);
        assert_eq!((times[0], times[127]), (72_000.0, 199_000.0));
    }

    #[test]
    fn refused_handshakes_are_reported_once_a_second_and_all_counted() {
        let mut events = Events::default();
        let (subscriber, received) = sync_channel(8);
        events.subscribe(subscriber);
        let refused = mpip_core::Event::HandshakeRefused {
            from: "198.18.0.9:6182".parse().expect("valid"),
            reason: "stranger".to_owned(),
        };
        for ms in [5_000, 5_010, 5_999, 6_000, 6_001, 2_000] {
            events.engine(Duration::from_millis(ms), &refused);
        }
        assert_eq!(events.counters()[0].count, 6);
        drop(events);
        let times: Vec<_> = received.iter().map(|event| event.unix_time_ms).collect();
        assert_eq!(times, [5_000.0, 6_000.0, 2_000.0]);
    }

    #[test]
    fn a_subscriber_that_does_not_keep_up_is_cut_off_and_others_go_on() {
        let mut events = Events::default();
        let (slow, slow_end) = sync_channel(1);
        let (quick, quick_end) = sync_channel(8);
        events.subscribe(slow);
        events.subscribe(quick);
        for _ in 0..3 {
            events.engine(Duration::ZERO, &lost());
        }
        assert_eq!(slow_end.iter().count(), 1);
        drop(events);
        assert_eq!(quick_end.iter().count(), 3);
    }
}
