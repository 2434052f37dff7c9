//! What of the host's state could not be made as it is wanted, and when it is tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use mpip_api::FaultStatus;
use mpip_core::Instant;

use crate::snapshot::ms;

/// First and longest pause between two attempts; it doubles. What keeps the kernel from taking a
/// route ends unseen in some cases (memory, IPv6 that was switched off), and an attempt is one
/// request.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Attempts at a time, so that packets need not wait for thousands of them.
pub(crate) const AT_ONCE: usize = 64;

/// Faults that are logged one by one until one is mended.
const LOGGED: usize = 8;

/// Faults that the status lists.
const LISTED: usize = 100;

/// One thing that is not as it is wanted.
#[derive(Clone, Debug)]
struct Fault {
    /// What was asked of the kernel, and its answer.
    error: String,
    since: Instant,
    attempts: u32,
    next: Instant,
    pause: Duration,
}

/// What is not as it is wanted, by what it is about.
#[derive(Debug)]
pub(crate) struct Faults<T> {
    faults: BTreeMap<T, Fault>,
    /// No fault is due before.
    next: Option<Instant>,
}

impl<T> Default for Faults<T> {
    fn default() -> Self {
        Self { faults: BTreeMap::new(), next: None }
    }
}

impl<T: Ord + Clone> Faults<T> {
    /// An attempt at `subject` came to nothing.
    pub(crate) fn failed(&mut self, now: Instant, subject: T, error: String) {
        let (first, longest) = PAUSE;
        let known = self.faults.len();
        let fault = self.faults.entry(subject).or_insert_with(|| {
            if known < LOGGED {
                log::warn!("{error}; trying again");
            }
            Fault { error: String::new(), since: now, attempts: 0, next: now, pause: first / 2 }
        });
        fault.error = error;
        fault.attempts = fault.attempts.saturating_add(1);
        fault.pause = (fault.pause * 2).min(longest);
        fault.next = now + fault.pause;
        self.next = Some(self.next.map_or(fault.next, |next| next.min(fault.next)));
    }

    /// `subject` is as it is wanted, or not wanted any more; whether it was not before.
    pub(crate) fn mended(&mut self, subject: &T) -> bool {
        let fault = self.faults.remove(subject);
        self.rest();
        if let Some(fault) = fault.as_ref().filter(|_| self.faults.len() < LOGGED) {
            log::info!("done after {} attempts that failed: {}", fault.attempts, fault.error);
        }
        fault.is_some()
    }

    /// Something happened that may help: everything is tried again now.
    pub(crate) fn retry_all(&mut self, now: Instant) {
        for fault in self.faults.values_mut() {
            (fault.next, fault.pause) = (now, PAUSE.0 / 2);
        }
        self.next = (!self.faults.is_empty()).then_some(now);
    }

    /// What is to be tried again now, a limited number.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<T> {
        let (mut due, mut next) = (Vec::new(), None);
        for (subject, fault) in &self.faults {
            if fault.next <= now && due.len() < AT_ONCE {
                due.push(subject.clone());
            } else {
                next = Some(next.map_or(fault.next, |next: Instant| next.min(fault.next)));
            }
        }
        // Those that fail again say when they are due.
        self.next = next;
        due
    }

    /// When it is time to ask for what is [due](Self::due).
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// The first of them.
    pub(crate) fn first(&self) -> Option<&str> {
        self.faults.values().next().map(|fault| fault.error.as_str())
    }

    /// `subject` is not to be tried for now.
    pub(crate) fn forget(&mut self, subject: &T) {
        self.faults.remove(subject);
        self.rest();
    }

    /// Nothing is due when there is nothing.
    fn rest(&mut self) {
        if self.faults.is_empty() {
            self.next = None;
        }
    }

    /// Whether `subject` is not as it is wanted.
    pub(crate) fn contains(&self, subject: &T) -> bool {
        self.faults.contains_key(subject)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.faults.len()
    }

    /// The first of them as the control socket shows them; `follows` says what follows from it.
    pub(crate) fn status(&self, now: Instant, follows: impl Fn(&T) -> String) -> Vec<FaultStatus> {
        let faults = self.faults.iter().take(LISTED);
        let shown = faults.map(|(subject, fault)| FaultStatus {
            what: fault.error.clone(),
            why: follows(subject),
            since_ms: ms(now.since(fault.since)),
            attempts: fault.attempts,
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn what_fails_is_tried_again_after_pauses_that_double_up_to_a_limit() {
        let mut faults = Faults::default();
        let (mut now, mut pauses) = (at(0), Vec::new());
        for _ in 0..12 {
            faults.failed(now, "route", "refused".to_owned());
            let next = faults.next_timeout().expect("a time");
            assert!(faults.due(next - Duration::from_nanos(1)).is_empty());
            assert_eq!(faults.due(next), ["route"]);
            pauses.push(next.since(now).as_millis());
            now = next;
        }
        assert_eq!(pauses[..5], [100, 200, 400, 800, 1_600]);
        assert_eq!(pauses[9..], [30_000; 3]);
        let status = faults.status(at(500_000), |_| "so".to_owned());
        assert_eq!((status[0].attempts, status[0].since_ms), (12, 500_000.0));
        assert!(faults.mended(&"route") && !faults.mended(&"route"));
        assert_eq!(faults.next_timeout(), None);
    }

    #[test]
    fn a_reason_to_hope_ends_every_pause() {
        let mut faults = Faults::default();
        for attempt in 0..8 {
            faults.failed(at(attempt), 1, String::new());
        }
        faults.retry_all(at(10));
        assert_eq!(faults.due(at(10)), [1]);
        faults.failed(at(10), 1, String::new());
        assert_eq!(faults.next_timeout(), Some(at(110)));
    }

    #[test]
    fn few_are_tried_at_a_time() {
        let mut faults = Faults::default();
        for subject in 0..1_000 {
            faults.failed(at(0), subject, String::new());
        }
        assert_eq!(faults.due(at(100)).len(), AT_ONCE);
    }
}
