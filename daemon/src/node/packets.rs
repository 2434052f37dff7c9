//! Packets in and out: what the TUN device, the sockets and the threads of packets bring.

use std::time::Duration;

use mpip_core::{Ecn, Engine, Instant, LocalId, Opened, PathAddress, Sender};
use mpip_net::tun::{ReadError, TunWriter};
use mpip_net::{Interest, Poller, Readiness};

use super::{Node, Token};
use crate::error::{Error, system};
use crate::invite::Door;

/// Most packets read from the TUN device before other sources have their turn.
const TUN_BATCH: usize = 64;

/// Bytes read from the TUN device after which other sources have their turn: 16 super-packets.
const TUN_BATCH_BYTES: usize = 1 << 20;

/// Bytes read from the TUN device after which the engine sends, while they are in the processor's
/// cache.
const MAX_UNSENT: usize = 48 << 10;

/// How long the TUN device is left alone when every buffer is in use.
const PAUSE: Duration = Duration::from_millis(1);

/// Takes datagrams for the engine, or for who takes requests to join.
struct Reader<'a> {
    now: Instant,
    engine: &'a mut Engine,
    writer: &'a mut TunWriter,
    unflushed: &'a mut bool,
    door: &'a mut Option<Door>,
    /// Answers to requests to join.
    answers: Vec<(PathAddress, Vec<u8>)>,
}

impl Reader<'_> {
    /// Takes a datagram; returns whether it authenticated its sender.
    fn take(
        &mut self,
        from: PathAddress,
        ecn: Ecn,
        (datagram, opened): (&mut [u8], Opened),
    ) -> bool {
        *self.unflushed = true;
        let door = self.door.as_mut();
        if let Some((true, answer)) = door.map(|door| door.take(self.now, from, datagram)) {
            self.answers.extend(answer.map(|answer| (from, answer)));
            return false;
        }
        let datagram = (datagram, opened);
        let handled = self.engine.handle_opened(self.now, from, ecn, datagram, self.writer);
        if let Err(reason) = handled {
            log::trace!("datagram from {} dropped: {reason:?}", from.remote);
        }
        handled == Ok(Sender::Authenticated)
    }
}

impl Node {
    /// Takes packets from the host.
    pub(crate) fn read_tun(&mut self, now: Instant) -> Result<(), Error> {
        if self.tun_paused.is_some_and(|until| now < until) {
            return Ok(());
        }
        let mut unsent = 0;
        let mut left = TUN_BATCH_BYTES;
        for _ in 0..TUN_BATCH {
            match self.tun.read(&mut self.pool) {
                Ok(Some(packet)) => {
                    let len = packet.bytes().len();
                    if let Err(reason) = self.engine.handle_tun(now, packet) {
                        log::trace!("packet from the host dropped: {reason:?}");
                    }
                    self.engine.take_plain(&mut self.plain);
                    self.unflushed = true;
                    unsent += len;
                    if unsent >= MAX_UNSENT {
                        unsent = 0;
                        self.flush_engine(now);
                    }
                    left = left.saturating_sub(len);
                    if left == 0 {
                        break;
                    }
                }
                Ok(None) => break,
                Err(ReadError::NoBuffer) if self.engine.make_room() => {}
                Err(ReadError::NoBuffer) => {
                    self.tun_paused = Some(now + PAUSE);
                    break;
                }
                Err(ReadError::Frame(error)) => {
                    log::trace!("packet from the host dropped: {error}");
                    self.broken_frames += 1;
                }
                Err(ReadError::Device(error)) => return Err(Error::TunLost(error)),
            }
        }
        Ok(())
    }

    /// Takes datagrams from the socket of `local`, and sends what waited for it.
    pub(crate) fn socket_ready(&mut self, now: Instant, local: LocalId, ready: Readiness) {
        if ready.failed {
            self.sender.errors(local, |remote| self.engine.handle_refused(now, local, remote));
        }
        if ready.readable {
            let Self { engine, writer, buffers, unflushed, sender, door, .. } = self;
            let mut reader = Reader { now, engine, writer, unflushed, door, answers: Vec::new() };
            sender.receive(now, local, buffers, |remote, ecn, datagram| {
                reader.take(PathAddress { local, remote }, ecn, (datagram, Opened::NotYet))
            });
            let answers = reader.answers;
            self.answer(answers);
        }
        if ready.writable && self.sender.writable(now, local) {
            self.engine.handle_writable(now, local, &mut self.sender);
        }
    }

    /// The threads of packets have room again, have received something, or have an error to tell,
    /// which [`finish_batch`](Self::finish_batch) takes.
    pub(crate) fn threads_ready(&mut self, now: Instant) {
        self.sent.reset();
        while let Some(local) = self.sender.poll_room() {
            self.engine.handle_writable(now, local, &mut self.sender);
        }
        let Self { engine, writer, unflushed, sender, door, .. } = self;
        let mut reader = Reader { now, engine, writer, unflushed, door, answers: Vec::new() };
        sender.take(|local, remote, ecn, datagram| {
            reader.take(PathAddress { local, remote }, ecn, datagram);
        });
        let answers = reader.answers;
        self.answer(answers);
    }

    /// Sends answers to requests to join.
    fn answer(&mut self, answers: Vec<(PathAddress, Vec<u8>)>) {
        for (to, answer) in answers {
            self.send(to, &answer);
        }
    }

    /// Whether there is work for the threads of packets that none has begun with.
    pub(crate) fn has_work(&self) -> bool {
        self.sender.has_work()
    }

    /// Does a piece of that work, after which [`threads_ready`](Self::threads_ready) may take
    /// something. Returns whether there was any.
    pub(crate) fn help(&self) -> bool {
        self.sender.help()
    }

    /// Tells the threads that open datagrams with which keys.
    pub(super) fn follow_keys(&mut self) {
        while let Some(change) = self.engine.poll_key() {
            self.sender.set_key(change);
        }
    }

    /// Leaves the TUN device alone while there is no buffer, and listens to it again after.
    pub(super) fn wait_for_tun(&mut self, now: Instant, poller: &Poller) -> Result<(), Error> {
        let Some(until) = self.tun_paused else { return Ok(()) };
        let interest = if now < until { Interest::Nothing } else { Interest::Readable };
        if now >= until {
            self.tun_paused = None;
        }
        let result = poller.modify(&*self.tun, Token::Tun.into(), interest);
        result.map_err(system("change the TUN device in the epoll"))
    }

    /// Waits until sockets are writable that took no more, and no longer than that, and not for
    /// those from which threads receive.
    pub(super) fn wait_for_sockets(&mut self, poller: &Poller) -> Result<(), Error> {
        let Self { sender, waiting, .. } = self;
        for (id, interest) in sender.interests() {
            let former = waiting.iter().find(|(waiting, _)| *waiting == id);
            if interest == former.map_or(Interest::Readable, |(_, interest)| *interest) {
                continue;
            }
            let Some(socket) = sender.socket(id) else { continue };
            poller
                .modify(&socket, Token::Socket(id).into(), interest)
                .map_err(system("change a socket in the epoll"))?;
            waiting.retain(|(waiting, _)| *waiting != id);
            if interest != Interest::Readable {
                waiting.push((id, interest));
            }
        }
        Ok(())
    }
}
