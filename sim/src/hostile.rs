//! A hostile node with valid keys.
//!
//! It establishes associations by handshakes of `mpip-crypto`, like any node, and seals frames of
//! its own choice with `mpip-wire`. Most frames are well-formed, but their content is false
//! ([`Lie`]). It answers challenges and acknowledges enough to keep its paths working, and so
//! reaches much of its peer's state. All its actions derive from one seed.
//!
//! ```text
//!  handshake.rs: both roles ────────► Epoch ─► lies.rs: a Draft of frames ─► sealed on a path
//! ```

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use mpip_core::{LocalId, PathAddress};
use mpip_crypto::{CookieMemory, PrivateKey, TimestampSource};
use mpip_wire::{
    Frame, Frames, MessageType, PathId, ReceiverIndex, TransportHeader, TransportPacket,
    TruncatedNumber,
};

use crate::clock::{HostClock, MILLI, NEVER, Nanos};
use crate::keys::{private_key, public_key};
use crate::rng::Rng;
use crate::spec::WorldSpec;

mod draft;
mod handshake;
mod lies;
pub(crate) mod spec;

pub(crate) use draft::is_bystander;
use draft::{Draft, Epoch, PathState, PendingHandshake, Pools, Session, remember};
pub use spec::{HostileSpec, Lie};

/// First random stream of hostile nodes; one per host.
const STREAM: u64 = 600;
/// Packet numbers of the peer kept for each path.
const REMEMBERED: usize = 64;
/// Own datagrams kept for replay.
const RECORDED: usize = 64;
/// Index of its first key if it uses several; lower ones belong to other hosts.
const FIRST_IDENTITY: usize = 100;

/// A datagram that a hostile node sends.
#[derive(Debug)]
pub(crate) struct Forged {
    pub(crate) to: PathAddress,
    /// With this source address instead of its own.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) bytes: Vec<u8>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Hostile {
    spec: HostileSpec,
    rng: Rng,
    crypto: mpip_crypto::Rng,
    clock: HostClock,
    now: Nanos,
    next_at: Nanos,
    /// Its keys; the first one is in use.
    keys: VecDeque<PrivateKey>,
    target: mpip_crypto::PublicKey,
    endpoints: Vec<SocketAddr>,
    locals: Vec<(LocalId, SocketAddr)>,
    cookies: CookieMemory,
    timestamps: TimestampSource,
    instance: u64,
    pending: Option<PendingHandshake>,
    epochs: VecDeque<Epoch>,
    paths: BTreeMap<u16, PathState>,
    pools: Pools,
    sessions: Vec<Session>,
    /// Sessions of the peer.
    theirs: VecDeque<u32>,
    /// Increasing counter for generations and sequence numbers.
    counter: u64,
    out: Vec<Forged>,
    recorded: VecDeque<(PathAddress, Vec<u8>)>,
    sent: u64,
}

impl Hostile {
    pub(crate) fn new(spec: &HostileSpec, world: &WorldSpec, index: usize, rng: &mut Rng) -> Self {
        let keys = match spec.identities {
            0 | 1 => [private_key(index)].into(),
            count => (0..count).map(|number| private_key(FIRST_IDENTITY + number)).collect(),
        };
        let target = public_key(spec.target);
        let mut own = Rng::stream(world.seed, STREAM + index as u64);
        Self {
            crypto: mpip_crypto::Rng::new(rng.seed()),
            clock: world.hosts[index].clock,
            now: 0,
            next_at: spec.from,
            keys,
            endpoints: world.endpoints(spec.target),
            locals: Vec::new(),
            cookies: CookieMemory::new(&target),
            target,
            timestamps: TimestampSource::new(),
            instance: own.word(),
            pending: None,
            epochs: VecDeque::new(),
            paths: BTreeMap::new(),
            pools: Pools::new(world, index, spec.target),
            sessions: Vec::new(),
            theirs: VecDeque::new(),
            counter: 0,
            out: Vec::new(),
            recorded: VecDeque::new(),
            sent: 0,
            rng: own,
            spec: spec.clone(),
        }
    }

    pub(crate) fn set_locals(&mut self, locals: Vec<(LocalId, SocketAddr)>) {
        self.locals = locals;
    }

    pub(crate) fn tell_time(&mut self, now: Nanos) {
        self.now = now;
    }

    pub(crate) fn poll_timeout(&self) -> Nanos {
        self.next_at
    }

    /// Takes the datagrams to send.
    pub(crate) fn take(&mut self) -> Vec<Forged> {
        core::mem::take(&mut self.out)
    }

    fn is_silent(&self) -> bool {
        self.now >= self.spec.until || self.sent >= self.spec.most
    }

    /// Performs the next action when it is due.
    pub(crate) fn handle_timeout(&mut self, now: Nanos) {
        self.now = now;
        if self.is_silent() {
            self.next_at = NEVER;
            return;
        }
        if self.epochs.is_empty() {
            if self.spec.calls {
                self.call();
            }
            self.next_at = now + self.rng.between(50 * MILLI, 400 * MILLI);
            return;
        }
        for _ in 0..=self.rng.below(3) {
            self.act();
        }
        self.next_at = now + 1 + self.rng.below(2 * self.spec.pause);
    }

    /// Sends one datagram of some kind.
    fn act(&mut self) {
        match self.rng.below(100) {
            0..=2 if self.does(Lie::Handshake) => self.call(),
            3..=6 if self.does(Lie::Raw) => self.send_raw(),
            _ => {
                let path = self.pick_path();
                let v6 = self.paths.get(&path).is_some_and(|state| state.to.remote.is_ipv6());
                let mut draft = Draft::default();
                let frames = self.rng.pick(&[1, 1, 2, 3, 8, 200]);
                for _ in 0..frames {
                    let lie = self.rng.below(self.spec.lies.len() as u64) as usize;
                    let Some(lie) = self.spec.lies.get(lie).copied() else { break };
                    if !self.lie(lie, &mut draft) {
                        break;
                    }
                }
                let source = if self.does(Lie::Spoof) && self.rng.chance(0.05) {
                    Some(self.pools.somebody(&mut self.rng, v6))
                } else {
                    None
                };
                self.seal_and_send(path, draft, source);
            }
        }
    }

    fn does(&self, lie: Lie) -> bool {
        self.spec.lies.contains(&lie)
    }

    /// A path number, mostly of an existing path.
    fn pick_path(&mut self) -> u16 {
        if self.does(Lie::NewPath) && self.rng.chance(0.05) {
            return self.rng.pick(&[1, 2, 30, 31, 4_000, 65_535]);
        }
        let known = self.rng.below(self.paths.len() as u64) as usize;
        self.paths.keys().nth(known).copied().unwrap_or(0)
    }

    fn any_pair(&mut self) -> Option<PathAddress> {
        let remote = self.endpoints.get(self.rng.below(self.endpoints.len() as u64) as usize)?;
        let family = |(_, own): &&(LocalId, SocketAddr)| own.is_ipv4() == remote.is_ipv4();
        let locals: Vec<_> = self.locals.iter().filter(family).collect();
        let (local, _) = locals.get(self.rng.below(locals.len() as u64) as usize)?;
        Some(PathAddress { local: *local, remote: *remote })
    }

    fn seal_and_send(&mut self, path: u16, draft: Draft, source: Option<SocketAddr>) {
        let Some(pair) = self.paths.get(&path).map(|state| state.to).or_else(|| self.any_pair())
        else {
            return;
        };
        let Some(epoch) = self.epochs.back() else { return };
        let mut plain = draft.into_bytes();
        let state = self.paths.entry(path).or_insert_with(|| PathState {
            to: pair,
            next: 0,
            received: VecDeque::new(),
            largest: None,
        });
        // Packet numbers may jump but not repeat: a repeated nonce would reveal keys.
        state.next += if self.rng.chance(0.02) { self.rng.below(20_000) } else { 1 };
        let header = TransportHeader {
            path: PathId(path),
            receiver: ReceiverIndex(epoch.remote_index),
            number: TruncatedNumber::new(state.next, 4),
        };
        let mut datagram = vec![0; header.encoded_len()];
        header.emit(&mut datagram).expect("the buffer has the header's length");
        let tag = epoch.keys.send.seal_in_place(path, state.next, &datagram, &mut plain);
        datagram.extend(plain);
        datagram.extend(tag);
        self.send(pair, source, datagram);
    }

    fn send(&mut self, to: PathAddress, source: Option<SocketAddr>, bytes: Vec<u8>) {
        self.sent += 1;
        if self.recorded.len() == RECORDED {
            self.recorded.pop_front();
        }
        self.recorded.push_back((to, bytes.clone()));
        self.out.push(Forged { to, source, bytes });
    }

    /// Sends replays and datagrams that do not authenticate.
    fn send_raw(&mut self) {
        let index = self.rng.below(self.recorded.len() as u64) as usize;
        let Some((to, mut bytes)) = self.recorded.get(index).cloned() else { return };
        match self.rng.below(3) {
            0 => {}
            1 => mpip_link::flip_bit(&mut bytes, self.rng.word()),
            _ => bytes.truncate(self.rng.below(bytes.len() as u64) as usize),
        }
        // Most replays have the right source address.
        let spoofs = self.does(Lie::Spoof) && self.rng.chance(0.3);
        let source = spoofs.then(|| self.pools.somebody(&mut self.rng, to.remote.is_ipv6()));
        self.sent += 1;
        self.out.push(Forged { to, source, bytes });
    }

    /// Processes a datagram from `from`.
    pub(crate) fn handle_datagram(&mut self, from: PathAddress, datagram: &mut [u8]) {
        if self.is_silent() || self.now < self.spec.from {
            return;
        }
        match MessageType::of(datagram) {
            Ok(MessageType::Transport) => self.on_transport(from, datagram),
            Ok(MessageType::Initiation) => self.on_initiation(from, datagram),
            Ok(MessageType::Response) => self.on_response(from, datagram),
            Ok(MessageType::CookieReply) => {
                let time = core::time::Duration::from_nanos(self.now);
                if self.cookies.receive(time, datagram).is_ok() && self.epochs.is_empty() {
                    self.call();
                }
            }
            Ok(MessageType::Query) => self.on_query(from, datagram),
            Ok(MessageType::Answer) | Err(_) => {}
        }
    }

    fn on_transport(&mut self, from: PathAddress, datagram: &mut [u8]) {
        let Ok(view) = TransportPacket::new_checked(datagram) else { return };
        let (header, header_len) = (view.header(), view.header_len());
        let path = header.path.0;
        let epoch = self.epochs.iter().find(|epoch| epoch.local_index == header.receiver.0);
        let Some(epoch) = epoch else { return };
        let largest = self.paths.get(&path).and_then(|state| state.largest);
        let number = header.number.expand(largest);
        let (clear, sealed) = datagram.split_at_mut(header_len);
        let Ok(plain) = epoch.keys.receive.open_in_place(path, number, clear, sealed) else {
            return;
        };
        let state = self.paths.entry(path).or_insert_with(|| PathState {
            to: from,
            next: 0,
            received: VecDeque::new(),
            largest: None,
        });
        state.largest = Some(state.largest.map_or(number, |largest| largest.max(number)));
        if state.received.len() == REMEMBERED {
            state.received.pop_front();
        }
        state.received.push_back(number);
        if self.rng.chance(0.9) {
            state.to = from;
        }
        let (mut asks, mut challenge) = (false, None);
        for frame in Frames::new(plain).flatten() {
            asks |= frame.is_ack_eliciting();
            match frame {
                Frame::PathChallenge(data) => challenge = Some(data),
                Frame::Packet { header, .. } => remember(&mut self.theirs, header.session.0),
                Frame::CompactPacket { header, .. } => {
                    remember(&mut self.theirs, header.session.0);
                }
                _ => {}
            }
        }
        self.answer(path, challenge, asks);
    }

    /// Mostly answers what its paths need to stay alive.
    fn answer(&mut self, path: u16, challenge: Option<[u8; 8]>, asks: bool) {
        let mut draft = Draft::default();
        if let Some(data) = challenge.filter(|_| self.rng.chance(0.9)) {
            draft.push(&Frame::PathResponse(data));
        }
        if asks && self.rng.chance(0.5) {
            self.acknowledge(path, &mut draft);
        }
        if !draft.is_empty() {
            self.seal_and_send(path, draft, None);
        }
    }
}
