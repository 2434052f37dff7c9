//! Public-key work of handshakes. The engine hands it out as jobs.
//!
//! A handshake takes each side about 300 µs, most of it X25519. Packets must not wait for that.
//!
//! ```text
//!             cheap checks           bounded, shared             any thread
//!  datagram ──────────────► Engine ────────────────► poll_job ──► HandshakeJob::run
//!                             ▲                                          │
//!                             └────────── handle_job ◄── HandshakeDone ──┘
//! ```
//!
//! A job contains everything that it needs and changes nothing else. Its result is evaluated when
//! it comes back; by then the engine may have removed the handshake.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mpip_crypto::{
    Completed, HandshakeError, INITIATION_LEN, INITIATION_PAYLOAD_LEN, Initiator, PresharedKey,
    PrivateKey, PublicKey, RESPONSE_LEN, RESPONSE_PAYLOAD_LEN, Responder, Rng, Secrets,
};

use mpip_types::PathAddress;

/// Most initiations of one class that wait to be read or are being read. One thread reads this many
/// in 10 ms.
const INITIATIONS: usize = 64;
/// Most of them from one source. It takes senders in eight networks to fill a class.
const INITIATIONS_PER_SOURCE: u8 = 8;

/// A piece of public-key work. Get it from [`Engine::poll_job`](crate::Engine::poll_job), run it on
/// any thread, and give the result to [`Engine::handle_job`](crate::Engine::handle_job).
#[derive(Debug)]
#[must_use = "the engine waits for its result"]
pub struct HandshakeJob(Box<Work>);

/// The result of a [`HandshakeJob`].
#[derive(Debug)]
#[must_use = "the engine waits for it"]
pub struct HandshakeDone(pub(crate) Box<Outcome>);

/// Jobs move between threads.
const _: fn() = || {
    fn moves<T: Send>() {}
    moves::<(HandshakeJob, HandshakeDone)>();
};

/// Jobs of the association with the receiver index `index`, and initiations to be read.
#[derive(Debug)]
pub(crate) enum Work {
    Start {
        index: u32,
        private_key: Arc<PrivateKey>,
        remote: PublicKey,
        psk: PresharedKey,
        payload: [u8; INITIATION_PAYLOAD_LEN],
        rng: Rng,
    },
    Finish {
        index: u32,
        from: PathAddress,
        initiator: Initiator,
        datagram: [u8; RESPONSE_LEN],
    },
    Respond {
        index: u32,
        responder: Responder,
        psk: PresharedKey,
        payload: [u8; RESPONSE_PAYLOAD_LEN],
    },
    Read {
        initiation: ReceivedInitiation,
        private_key: Arc<PrivateKey>,
        rng: Rng,
    },
}

/// Results in the order of [`Work`].
#[derive(Debug)]
pub(crate) enum Outcome {
    Started(u32, Result<(Initiator, [u8; INITIATION_LEN]), HandshakeError>),
    Finished(u32, PathAddress, Initiator, Result<Completed, HandshakeError>),
    Responded(u32, Result<(Secrets, [u8; RESPONSE_LEN]), HandshakeError>),
    Read(ReceivedInitiation, Result<Responder, HandshakeError>),
}

impl HandshakeJob {
    /// Does the work. It takes a few hundred microseconds and does not block.
    pub fn run(self) -> HandshakeDone {
        HandshakeDone(Box::new(match *self.0 {
            Work::Start { index, private_key, remote, psk, payload, mut rng } => {
                let started =
                    Initiator::start(&mut rng, &private_key, &remote, &psk, &payload, index);
                Outcome::Started(index, started)
            }
            Work::Finish { index, from, mut initiator, datagram } => {
                let finished = initiator.finish(&datagram);
                Outcome::Finished(index, from, initiator, finished)
            }
            Work::Respond { index, responder, psk, payload } => {
                Outcome::Responded(index, responder.respond(&psk, &payload, index))
            }
            Work::Read { initiation, private_key, mut rng } => {
                let read = Responder::read(&mut rng, &private_key, &initiation.datagram);
                Outcome::Read(initiation, read)
            }
        }))
    }
}

/// The source of a datagram, as the smallest unit in which one sender may have many addresses: an
/// IPv4 address or an IPv6 /64 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The class of a job. Classes are served in turn, so that none starves another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Of associations: each has at most one initiation or response being made or read, and one
    /// response to the peer.
    Own,
    /// Initiations from sources of configured peers: configured, or where one has authenticated.
    Known,
    /// Initiations from other sources.
    Unknown,
}

/// An initiation that passed the cheap checks.
#[derive(Debug)]
pub(crate) struct ReceivedInitiation {
    pub(crate) from: PathAddress,
    pub(crate) class: Class,
    pub(crate) datagram: [u8; INITIATION_LEN],
}

impl ReceivedInitiation {
    fn source(&self) -> Source {
        Source::of(self.from.remote.ip())
    }
}

/// Jobs that wait to be polled.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// By class.
    waiting: [VecDeque<Work>; 3],
    /// The class that is served next.
    turn: usize,
    /// Initiations whose result has not come back, by class and by source.
    unread: [usize; 3],
    by_source: BTreeMap<Source, u8>,
}

impl Jobs {
    /// Adds a job of an association, which has no more than two at a time.
    pub(crate) fn push(&mut self, work: Work) {
        self.waiting[Class::Own as usize].push_back(work);
    }

    /// Adds an initiation to be read. Returns `false` if its source or its class has reached the
    /// bound.
    pub(crate) fn push_initiation(
        &mut self,
        initiation: ReceivedInitiation,
        private_key: &Arc<PrivateKey>,
        rng: &mut Rng,
    ) -> bool {
        let (class, source) = (initiation.class as usize, initiation.source());
        let of_source = self.by_source.get(&source).copied().unwrap_or(0);
        if self.unread[class] >= INITIATIONS || of_source >= INITIATIONS_PER_SOURCE {
            return false;
        }
        self.unread[class] += 1;
        self.by_source.insert(source, of_source + 1);
        let private_key = Arc::clone(private_key);
        self.waiting[class].push_back(Work::Read { initiation, private_key, rng: rng.fork() });
        true
    }

    /// The result of reading `initiation` has come back.
    pub(crate) fn on_read(&mut self, initiation: &ReceivedInitiation) {
        let class = initiation.class as usize;
        self.unread[class] = self.unread[class].saturating_sub(1);
        let source = initiation.source();
        if let Some(count) = self.by_source.get_mut(&source) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
    }

    /// The next job, from each class in turn.
    pub(crate) fn poll(&mut self) -> Option<HandshakeJob> {
        let classes = self.waiting.len();
        for class in (self.turn..classes).chain(0..self.turn) {
            if let Some(work) = self.waiting[class].pop_front() {
                self.turn = (class + 1) % classes;
                return Some(HandshakeJob(Box::new(work)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;
    use mpip_types::LocalId;

    fn initiation(source: u32, class: Class) -> ReceivedInitiation {
        let ip = IpAddr::from(source.to_be_bytes());
        let from = PathAddress { local: LocalId(0), remote: SocketAddr::new(ip, 6182) };
        ReceivedInitiation { from, class, datagram: [0; INITIATION_LEN] }
    }

    fn private_key() -> Arc<PrivateKey> {
        Arc::new(PrivateKey::from_bytes([1; 32]))
    }

    fn class(job: &HandshakeJob) -> Class {
        match &*job.0 {
            Work::Read { initiation, .. } => initiation.class,
            _ => Class::Own,
        }
    }

    #[test]
    fn one_source_has_a_share_and_a_class_is_bounded() {
        let (mut jobs, key, mut rng) = (Jobs::default(), private_key(), Rng::new([0; 32]));
        let mut taken = |jobs: &mut Jobs, source, class| {
            (0..100)
                .filter(|_| jobs.push_initiation(initiation(source, class), &key, &mut rng))
                .count()
        };
        assert_eq!(taken(&mut jobs, 1, Class::Unknown), 8);
        let others: usize = (2..100).map(|source| taken(&mut jobs, source, Class::Unknown)).sum();
        assert_eq!(others, 64 - 8);
        assert_eq!(
            taken(&mut jobs, 100, Class::Known),
            8,
            "unknown sources do not fill the class of known ones"
        );
        // Polled jobs count until their results come back.
        let taken_jobs: Vec<_> = core::iter::from_fn(|| jobs.poll()).collect();
        assert_eq!(taken_jobs.len(), 64 + 8);
        assert_eq!(taken(&mut jobs, 200, Class::Unknown), 0);
        for job in taken_jobs {
            let HandshakeDone(outcome) = job.run();
            let Outcome::Read(initiation, Err(_)) = *outcome else { panic!("{outcome:?}") };
            jobs.on_read(&initiation);
        }
        assert_eq!(taken(&mut jobs, 200, Class::Unknown), 8);
        assert_eq!(jobs.by_source.len(), 1);
    }

    #[test]
    fn the_classes_take_turns() {
        let (mut jobs, key, mut rng) = (Jobs::default(), private_key(), Rng::new([0; 32]));
        for source in 0..20 {
            jobs.push_initiation(initiation(source, Class::Unknown), &key, &mut rng);
        }
        let mut peers = Jobs::default();
        peers.push_initiation(initiation(99, Class::Known), &key, &mut rng);
        jobs.waiting[Class::Known as usize] = core::mem::take(&mut peers.waiting[1]);
        let served: Vec<_> = core::iter::from_fn(|| jobs.poll()).map(|job| class(&job)).collect();
        assert_eq!(served.len(), 21);
        assert!(served[..2].contains(&Class::Known), "{served:?}");
    }

    #[test]
    fn an_ipv6_network_is_one_source_and_a_mapped_address_is_the_ipv4_one() {
        let of = |text: &str| Source::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::5"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::5"), of("2001:db8:1:3::5"));
        assert_eq!(of("::ffff:198.18.0.1"), of("198.18.0.1"));
        assert_ne!(of("198.18.0.1"), of("198.18.0.2"));
    }
}
