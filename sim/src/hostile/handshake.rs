//! Handshakes of a hostile node: valid enough to succeed, but too many, too late or with false
//! claims.

use core::time::Duration;

use mpip_core::PathAddress;
use mpip_crypto::{Aead, Initiator, Responder};
use mpip_wire::{
    AeadSet, AnswerRepr, Frame, InitiationPayload, QueryPacket, ResponsePayload, Timestamp,
};

use super::Hostile;
use super::draft::{Draft, EPOCHS, Epoch, PendingHandshake};
use super::spec::Lie;
use crate::keys::preshared_key;

/// A year in seconds, for wrong clocks.
const YEAR: u64 = 365 * 86_400;

impl Hostile {
    /// Starts a handshake.
    pub(super) fn call(&mut self) {
        let Some(pair) = self.any_pair() else { return };
        let lies = self.does(Lie::Handshake) && !self.epochs.is_empty();
        if lies && self.keys.len() > 1 && self.rng.chance(0.5) {
            // With another key.
            self.keys.rotate_left(1);
            self.epochs.clear();
            self.paths.clear();
        }
        if lies && self.rng.chance(0.2) {
            self.instance = self.rng.word();
        }
        let label = self.timestamps.next(self.clock.unix_time(self.now));
        let (seconds, nanoseconds) = label.as_bytes().split_at(8);
        let mut timestamp = Timestamp {
            seconds: u64::from_be_bytes(seconds.try_into().expect("8 of 12 bytes")),
            nanoseconds: u32::from_be_bytes(nanoseconds.try_into().expect("4 of 12 bytes")),
        };
        if lies && self.rng.chance(0.1) {
            timestamp.seconds = self.rng.pick(&[0, u64::MAX, timestamp.seconds + YEAR]);
        }
        let association = if lies && self.rng.chance(0.5) { self.rng.word() as u16 } else { 0 };
        let aeads = if lies && self.rng.chance(0.1) {
            AeadSet(self.rng.word() as u8)
        } else {
            AeadSet::ALL
        };
        let payload = InitiationPayload { timestamp, instance: self.instance, aeads, association };
        let mut bytes = [0; InitiationPayload::LEN];
        payload.emit(&mut bytes).expect("the buffer has the payload's length");
        let index = self.rng.word() as u32;
        let key = self.keys.front().expect("it has a key");
        let psk = preshared_key_for(self.spec.configured);
        let started = Initiator::start(&mut self.crypto, key, &self.target, &psk, &bytes, index);
        let Ok((initiator, mut datagram)) = started else { return };
        self.cookies.stamp(Duration::from_nanos(self.now), &mut datagram);
        self.pending = Some(PendingHandshake { initiator });
        let spoofs = lies && self.does(Lie::Spoof) && self.rng.chance(0.2);
        let source = spoofs.then(|| self.pools.somebody(&mut self.rng, pair.remote.is_ipv6()));
        self.send(pair, source, datagram.to_vec());
    }

    pub(super) fn on_response(&mut self, from: PathAddress, datagram: &[u8]) {
        let Some(calling) = &mut self.pending else { return };
        let index = calling.initiator.sender_index();
        let Ok(completed) = calling.initiator.finish(datagram) else { return };
        let Ok(payload) = ResponsePayload::parse(&completed.payload) else { return };
        let Some(aead) = Aead::from_code(payload.aead.code()) else { return };
        self.pending = None;
        let keys = completed.secrets.into_keys(aead);
        self.adopt(Epoch { keys, local_index: index, remote_index: completed.responder_index });
        self.begin(from);
    }

    pub(super) fn on_initiation(&mut self, from: PathAddress, datagram: &[u8]) {
        let key = self.keys.front().expect("it has a key");
        let Ok(responder) = Responder::read(&mut self.crypto, key, datagram) else { return };
        if *responder.remote() != self.target {
            return;
        }
        let Ok(asked) = InitiationPayload::parse(responder.payload()) else { return };
        let lies = self.does(Lie::Handshake) && self.rng.chance(0.1);
        let aead = if asked.aeads.contains(mpip_wire::Aead::Aes256Gcm) && !lies {
            mpip_wire::Aead::Aes256Gcm
        } else {
            mpip_wire::Aead::ChaCha20Poly1305
        };
        let association = if lies { self.rng.word() as u16 } else { 0 };
        let mut bytes = [0; ResponsePayload::LEN];
        ResponsePayload { instance: self.instance, aead, association }
            .emit(&mut bytes)
            .expect("the buffer has the payload's length");
        let index = self.rng.word() as u32;
        let remote_index = responder.sender_index();
        let psk = preshared_key_for(self.spec.configured);
        let Ok((secrets, response)) = responder.respond(&psk, &bytes, index) else { return };
        let aead = Aead::from_code(aead.code()).expect("both name the same algorithms");
        self.adopt(Epoch { keys: secrets.into_keys(aead), local_index: index, remote_index });
        self.send(from, None, response.to_vec());
    }

    /// Processes an availability query.
    pub(super) fn on_query(&mut self, from: PathAddress, datagram: &[u8]) {
        let Ok(query) = QueryPacket::new_checked(datagram) else { return };
        let key = self.keys.front().expect("it has a key");
        let lies = self.does(Lie::Handshake) && self.rng.chance(0.2);
        let public_key = if lies { self.crypto.bytes() } else { *key.public_key().as_bytes() };
        let nonce = if lies { self.rng.word() } else { query.nonce() };
        let repr = AnswerRepr { flags: 0, nonce, public_key };
        let mut answer = vec![0; repr.encoded_len()];
        repr.emit(&mut answer).expect("the buffer has the answer's length");
        self.send(from, None, answer);
    }

    fn adopt(&mut self, epoch: Epoch) {
        if self.epochs.len() == EPOCHS {
            self.epochs.pop_front();
        }
        self.epochs.push_back(epoch);
    }

    /// Confirms the keys on path 0.
    fn begin(&mut self, from: PathAddress) {
        self.paths.entry(0).or_insert_with(|| super::PathState {
            to: from,
            next: 0,
            received: Default::default(),
            largest: None,
        });
        let mut draft = Draft::default();
        draft.push(&Frame::Heartbeat);
        let own: Vec<_> = self.locals.iter().map(|(_, address)| *address).collect();
        draft.push_addresses(1, &own);
        self.seal_and_send(0, draft, None);
    }
}

/// Nodes that are not configured have none.
fn preshared_key_for(configured: bool) -> mpip_crypto::PresharedKey {
    if configured { preshared_key() } else { Default::default() }
}
