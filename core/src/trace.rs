//! Tracing: what an association does, packet by packet, for diagnosis.
//!
//! Without a sink, tracing costs one branch per record. [`qlog`] writes records as text.

pub mod qlog;

use core::fmt;

pub use mpip_transport::Metrics;
use mpip_transport::PathState;
use mpip_types::Instant;

/// Receives the records of one association, in order.
pub trait TraceSink: fmt::Debug + Send {
    /// Receives one record. Called in the engine's hot path, so it must not block for long.
    fn record(&mut self, now: Instant, record: &Record);
}

/// An event on a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// The number of the path.
    pub path: u16,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A transport datagram left.
    Sent {
        /// Its packet number.
        number: u64,
        /// Bytes of its UDP payload.
        size: usize,
        /// Whether it is ack-eliciting.
        asks: bool,
        /// Whether it carries an inner packet.
        inner: bool,
    },
    /// A transport datagram was authenticated.
    Received {
        /// Its packet number.
        number: u64,
        /// Bytes of its UDP payload.
        size: usize,
    },
    /// Datagrams were declared lost.
    Lost {
        /// How many.
        packets: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Datagrams declared lost have arrived (spurious losses).
    Spurious {
        /// How many.
        packets: u64,
    },
    /// Feedback arrived: the metrics of the path now.
    Metrics(Metrics),
    /// The congestion control changed its state.
    CongestionState {
        /// The state before.
        from: &'static str,
        /// The state from now on.
        to: &'static str,
    },
    /// The path changed its state.
    PathState {
        /// The state before.
        from: PathState,
        /// The state from now on.
        to: PathState,
        /// Why.
        reason: &'static str,
    },
    /// The guard leaves the path out, because the others carry more without it, or uses it again.
    LeftOut {
        /// Whether it is left out.
        left_out: bool,
        /// Inner bytes per second with and without the path; 0 if not measured.
        with: u64,
        /// See `with`.
        without: u64,
        /// Why.
        reason: &'static str,
    },
}

/// The sink of an association, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Trace(Option<Box<dyn TraceSink>>);

impl Trace {
    pub(crate) fn to(sink: Box<dyn TraceSink>) -> Self {
        Self(Some(sink))
    }

    /// Whether there is a sink; for records that take effort to build.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(crate) fn record(&mut self, now: Instant, path: u16, what: impl FnOnce() -> What) {
        if let Some(sink) = &mut self.0 {
            sink.record(now, &Record { path, what: what() });
        }
    }
}
