//! Control frames that are owed to the peer, and their delivery.
//!
//! ```text
//!            written                acknowledged
//!   owed ──────────────► in flight ──────────────► known
//!     ▲                      │
//!     └────────── lost ──────┘
//! ```
//!
//! A notice names the subject of a control frame. The frame itself is written from the state at the
//! time of sending. A new control frame is a variant of [`Notice`], a place in [`Notice::carrier`]
//! and [`Notice::is_repeated`], and an arm in `Association::write_notice`.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use mpip_types::Instant;
use mpip_wire::{PathId, SessionId};

/// Most skips that wait to be sent. Beyond this the oldest is dropped, and the receiver relies on
/// its resequencing timeout.
pub(crate) const SKIPS: usize = 256;
/// Most sessions whose header fields wait to be sent. Beyond this a session tries again with its
/// next packet.
pub(crate) const OPENS: usize = 64;
/// Most abandoned paths about which notices wait.
pub(crate) const REFUSED: usize = 16;
/// Most sessions without header fields that are reported to the peer in each [`UNKNOWN_INTERVAL`].
pub(crate) const UNKNOWN: usize = 16;
const UNKNOWN_INTERVAL: Duration = Duration::from_millis(100);

/// A control frame that is owed to the peer. Notices are sent in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// This node's addresses.
    Addresses,
    /// The resequencing timeout.
    Resequencing,
    /// The status of a path: available, standby or abandoned.
    PathStatus(PathId),
    /// A path that the peer may have is not there any more, or was never.
    PathRefused(PathId),
    /// These sequence numbers of a session will not be sent again.
    Skip(Skip),
    /// The header fields of an incoming session are unknown.
    SessionUnknown(SessionId),
    /// The header fields of an outgoing session, by its slot and number.
    SessionOpen(u32, SessionId),
    /// This node shuts down.
    Close,
    /// The observed address of the peer on a path.
    AddressObserved(PathId),
    /// The keepalive interval of a path.
    Keepalive(PathId),
}

/// A range of sequence numbers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Skip {
    pub(crate) session: SessionId,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// The path that carries a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The best path.
    Best,
    /// The path that the notice is about.
    Path(PathId),
}

impl Notice {
    /// Which path carries the notice.
    pub(crate) fn carrier(self) -> Carrier {
        match self {
            Self::AddressObserved(path) | Self::Keepalive(path) => Carrier::Path(path),
            Self::Addresses
            | Self::Resequencing
            | Self::PathStatus(_)
            | Self::PathRefused(_)
            | Self::Skip(_)
            | Self::SessionUnknown(_)
            | Self::SessionOpen(..)
            | Self::Close => Carrier::Best,
        }
    }

    /// Whether the notice is sent again when its datagram is lost. The peer requests the others
    /// again, or replaces them by a timeout.
    pub(crate) fn is_repeated(self) -> bool {
        match self {
            Self::Addresses
            | Self::Resequencing
            | Self::PathStatus(_)
            | Self::PathRefused(_)
            | Self::SessionOpen(..)
            | Self::AddressObserved(_)
            | Self::Keepalive(_) => true,
            Self::Skip(_) | Self::SessionUnknown(_) | Self::Close => false,
        }
    }

    /// Whether its acknowledgement has to be reported.
    pub(crate) fn reports_arrival(self) -> bool {
        matches!(self, Self::SessionOpen(..))
    }
}

/// The owed notices, see the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// All but the skips.
    owed: BTreeSet<Notice>,
    /// In order of occurrence.
    skips: VecDeque<Skip>,
    /// Unknown sessions that were reported to the peer since `unknown_since`.
    unknown_told: BTreeSet<SessionId>,
    unknown_since: Instant,
}

impl Outbox {
    /// The outbox of an association whose peer knows nothing yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            owed: BTreeSet::from([Notice::Addresses]),
            skips: VecDeque::new(),
            unknown_told: BTreeSet::new(),
            unknown_since: now,
        }
    }

    /// The peer has lost all state. A close frame is still sent.
    pub(crate) fn reset(&mut self) {
        self.owed.retain(|notice| *notice == Notice::Close);
        self.owed.insert(Notice::Addresses);
        self.skips.clear();
    }

    /// Queues `notice`. Returns `false` if too many of its kind wait.
    pub(crate) fn owe(&mut self, notice: Notice) -> bool {
        let room = match notice {
            Notice::Skip(skip) => {
                self.skip(skip);
                return true;
            }
            Notice::SessionOpen(..) => {
                self.count(|other| matches!(other, Notice::SessionOpen(..))) < OPENS
            }
            Notice::PathRefused(_) => {
                self.count(|other| matches!(other, Notice::PathRefused(_))) < REFUSED
            }
            Notice::SessionUnknown(_) => {
                self.count(|other| matches!(other, Notice::SessionUnknown(_))) < UNKNOWN
            }
            _ => true,
        };
        if room {
            self.owed.insert(notice);
        }
        room
    }

    /// Requests the header fields of a session from the peer, at a limited rate.
    pub(crate) fn owe_unknown(&mut self, now: Instant, session: SessionId) {
        if now.since(self.unknown_since) >= UNKNOWN_INTERVAL {
            self.unknown_since = now;
            self.unknown_told.clear();
        }
        if self.unknown_told.len() < UNKNOWN && self.unknown_told.insert(session) {
            self.owe(Notice::SessionUnknown(session));
        }
    }

    fn skip(&mut self, skip: Skip) {
        if let Some(last) = self.skips.back_mut()
            && last.session == skip.session
            && skip.first == last.first.wrapping_add(last.count)
            && last.count < mpip_wire::SKIP_MAX
        {
            last.count += skip.count;
            return;
        }
        if self.skips.len() >= SKIPS {
            self.skips.pop_front();
        }
        self.skips.push_back(skip);
    }

    /// Whether nothing waits for the best path.
    pub(crate) fn is_empty(&self) -> bool {
        self.skips.is_empty() && self.owed.iter().all(|notice| notice.carrier() != Carrier::Best)
    }

    /// The notices for `carrier`, in order.
    pub(crate) fn due(&self, carrier: Carrier) -> impl Iterator<Item = Notice> {
        let skips = self.skips.iter().filter(move |_| carrier == Carrier::Best);
        let owed = self.owed.iter().filter(move |notice| notice.carrier() == carrier);
        owed.copied().chain(skips.copied().map(Notice::Skip))
    }

    /// `notice` was sent, or has become obsolete.
    pub(crate) fn settle(&mut self, notice: Notice) {
        match notice {
            Notice::Skip(skip) => {
                if let Some(at) = self.skips.iter().position(|other| *other == skip) {
                    self.skips.remove(at);
                }
            }
            notice => {
                self.owed.remove(&notice);
            }
        }
    }

    /// Path `id` is removed: drops the notices about it.
    pub(crate) fn forget_path(&mut self, id: PathId) {
        for notice in [Notice::PathStatus(id), Notice::AddressObserved(id), Notice::Keepalive(id)] {
            self.owed.remove(&notice);
        }
    }

    fn count(&self, is_kind: impl Fn(&Notice) -> bool) -> usize {
        self.owed.iter().filter(|notice| is_kind(notice)).count()
    }

    /// The number of waiting notices of each kind, and its bound.
    pub(crate) fn kept(&self) -> [(&'static str, usize, usize); 5] {
        let unknown = self.count(|notice| matches!(notice, Notice::SessionUnknown(_)));
        [
            ("skips", self.skips.len(), SKIPS),
            ("opens", self.count(|notice| matches!(notice, Notice::SessionOpen(..))), OPENS),
            ("unknown sessions", unknown, UNKNOWN),
            ("unknown sessions told", self.unknown_told.len(), UNKNOWN),
            ("refused paths", self.count(|n| matches!(n, Notice::PathRefused(_))), REFUSED),
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn notice() -> impl Strategy<Value = Notice> {
        let id = (0..40u16).prop_map(PathId);
        let session = (0..200u32).prop_map(SessionId);
        prop_oneof![
            Just(Notice::Addresses),
            Just(Notice::Resequencing),
            id.clone().prop_map(Notice::PathStatus),
            id.clone().prop_map(Notice::PathRefused),
            (session.clone(), 0..9u32, 1..3u32)
                .prop_map(|(session, first, count)| Notice::Skip(Skip { session, first, count })),
            session.clone().prop_map(Notice::SessionUnknown),
            (0..200u32, session).prop_map(|(slot, session)| Notice::SessionOpen(slot, session)),
            Just(Notice::Close),
            id.clone().prop_map(Notice::AddressObserved),
            id.prop_map(Notice::Keepalive),
        ]
    }

    proptest! {
        #[test]
        fn a_notice_is_owed_until_it_is_settled_and_notices_are_bounded(
            steps in prop::collection::vec((notice(), 0..3u8), 1..600),
        ) {
            let mut outbox = Outbox::new(Instant::ZERO);
            for (notice, step) in steps {
                let carrier = notice.carrier();
                match step {
                    0 => outbox.settle(notice),
                    _ if outbox.owe(notice) => {
                        if !matches!(notice, Notice::Skip(_)) {
                            prop_assert!(outbox.due(carrier).any(|due| due == notice));
                        }
                        prop_assert!(carrier != Carrier::Best || !outbox.is_empty());
                    }
                    _ => {}
                }
                for (kind, kept, most) in outbox.kept() {
                    prop_assert!(kept <= most, "{kept} {kind}");
                }
            }
            let due: Vec<_> = outbox.due(Carrier::Best).collect();
            due.into_iter().for_each(|notice| outbox.settle(notice));
            prop_assert!(outbox.is_empty());
        }
    }

    fn skip(session: u32, first: u32, count: u32) -> Skip {
        Skip { session: SessionId(session), first, count }
    }

    #[test]
    fn consecutive_skips_are_merged() {
        let mut outbox = Outbox::new(Instant::ZERO);
        for next in [skip(1, u32::MAX, 1), skip(1, 0, 1), skip(2, 1, 1), skip(1, 1, 1)] {
            outbox.owe(Notice::Skip(next));
        }
        let due = outbox.due(Carrier::Best).skip(1);
        let expected = [skip(1, u32::MAX, 2), skip(2, 1, 1), skip(1, 1, 1)].map(Notice::Skip);
        assert_eq!(due.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn header_fields_are_requested_at_a_limited_rate() {
        let mut outbox = Outbox::new(Instant::ZERO);
        let asked = |outbox: &Outbox| {
            outbox.due(Carrier::Best).filter(|it| matches!(it, Notice::SessionUnknown(_))).count()
        };
        for session in 0..2 * UNKNOWN as u32 {
            outbox.owe_unknown(Instant::ZERO, SessionId(session));
        }
        assert_eq!(asked(&outbox), UNKNOWN);
        let due: Vec<_> = outbox.due(Carrier::Best).collect();
        due.into_iter().for_each(|notice| outbox.settle(notice));
        outbox.owe_unknown(Instant::ZERO, SessionId(0));
        assert_eq!(asked(&outbox), 0);
        outbox.owe_unknown(Instant::ZERO + UNKNOWN_INTERVAL, SessionId(0));
        assert_eq!(asked(&outbox), 1);
    }

    #[test]
    fn after_a_reset_only_the_address_list_and_a_close_are_owed() {
        let mut outbox = Outbox::new(Instant::ZERO);
        outbox.settle(Notice::Addresses);
        for notice in [Notice::Close, Notice::PathStatus(PathId(1)), Notice::Skip(skip(1, 2, 3))] {
            outbox.owe(notice);
        }
        outbox.reset();
        let due: Vec<_> = outbox.due(Carrier::Best).collect();
        assert_eq!(due, [Notice::Addresses, Notice::Close]);
    }
}
