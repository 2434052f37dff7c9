//! The time that `quinn-proto` is told.
#![expect(clippy::disallowed_types, reason = "its face has this type; only differences count")]

use core::time::Duration;
use std::time::Instant;

use crate::clock::{NEVER, Nanos};

/// Virtual time after an origin that is never compared with another clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin; there is no other constructor")]
        Self(Instant::now())
    }

    pub(super) fn at(self, now: Nanos) -> Instant {
        self.0 + Duration::from_nanos(now)
    }

    /// The time of a deadline.
    pub(super) fn when(self, due: Instant) -> Nanos {
        let passed = due.saturating_duration_since(self.0).as_nanos();
        u64::try_from(passed).unwrap_or(NEVER)
    }
}
