use core::time::Duration;

use snow::Builder;

use super::layout::{INITIATION_NOISE, RESPONSE_NOISE};
use super::*;
use crate::mac::MAC_LEN;
use crate::{ReplayGuard, Timestamp, TimestampSource};

pub(super) mod residue;

const OFFER: [u8; INITIATION_PAYLOAD_LEN] = *b"initiation payload 24 by";
const ANSWER: [u8; RESPONSE_PAYLOAD_LEN] = *b"response pay";

/// Two nodes and what they share.
struct Pair {
    rng: Rng,
    initiator: PrivateKey,
    responder: PrivateKey,
    psk: PresharedKey,
}

impl Pair {
    fn new(seed: u8) -> Self {
        let mut rng = Rng::new([seed; 32]);
        let initiator = PrivateKey::generate(&mut rng);
        let responder = PrivateKey::generate(&mut rng);
        let psk = PresharedKey::generate(&mut rng);
        Self { rng, initiator, responder, psk }
    }

    fn start(&mut self) -> (Initiator, [u8; INITIATION_LEN]) {
        self.start_with(&OFFER)
    }

    fn start_with(
        &mut self,
        payload: &[u8; INITIATION_PAYLOAD_LEN],
    ) -> (Initiator, [u8; INITIATION_LEN]) {
        let remote = *self.responder.public_key();
        Initiator::start(&mut self.rng, &self.initiator, &remote, &self.psk, payload, 0x0102_0304)
            .unwrap()
    }

    fn read(&mut self, datagram: &[u8]) -> Result<Responder, HandshakeError> {
        Responder::read(&mut self.rng, &self.responder, datagram)
    }

    fn respond(&mut self, initiation: &[u8]) -> (Secrets, [u8; RESPONSE_LEN]) {
        let psk = self.psk.clone();
        self.read(initiation).unwrap().respond(&psk, &ANSWER, 0x0a0b_0c0d).unwrap()
    }
}

fn assert_keys_match(a: Secrets, b: Secrets, aead: Aead) {
    let (a, b) = (a.into_keys(aead), b.into_keys(aead));
    for (seal, open) in [(&a.send, &b.receive), (&b.send, &a.receive)] {
        let mut packet = b"frames".to_vec();
        let tag = seal.seal_in_place(1, 2, b"header", &mut packet);
        packet.extend_from_slice(&tag);
        assert_eq!(open.open_in_place(1, 2, b"header", &mut packet).unwrap(), b"frames");
    }
    let mut packet = b"frames".to_vec();
    let tag = a.send.seal_in_place(1, 2, b"", &mut packet);
    packet.extend_from_slice(&tag);
    let reflected = a.receive.open_in_place(1, 2, b"", &mut packet);
    assert!(reflected.is_err(), "both directions have the same key");
}

#[test]
fn both_sides_learn_each_other_and_agree_on_keys() {
    for aead in [Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        let mut pair = Pair::new(1);
        let (mut initiator, initiation) = pair.start();
        assert_eq!(initiation[..8], [1, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(initiation[144..], [0; 16], "mac2 without a cookie");

        let responder = pair.read(&initiation).unwrap();
        assert_eq!(responder.remote(), pair.initiator.public_key());
        assert_eq!(responder.payload(), &OFFER);
        assert_eq!(responder.sender_index(), 0x0102_0304);
        let (secrets, response) = responder.respond(&pair.psk, &ANSWER, 0x0a0b_0c0d).unwrap();
        assert_eq!(response[..12], [2, 0, 0, 0, 10, 11, 12, 13, 1, 2, 3, 4]);

        let completed = initiator.finish(&response).unwrap();
        assert_eq!(completed.payload, ANSWER);
        assert_eq!(completed.responder_index, 0x0a0b_0c0d);
        assert_keys_match(completed.secrets, secrets, aead);
        assert_eq!(initiator.finish(&response).unwrap_err(), HandshakeError::Finished);
    }
}

#[test]
fn neither_static_key_nor_payload_is_readable_on_the_wire() {
    let mut pair = Pair::new(2);
    let (_, initiation) = pair.start();
    let (_, response) = pair.respond(&initiation);
    let contains = |datagram: &[u8], secret: &[u8]| {
        datagram.windows(secret.len()).any(|window| window == secret)
    };
    assert!(!contains(&initiation, pair.initiator.public_key().as_bytes()));
    assert!(!contains(&initiation, pair.responder.public_key().as_bytes()));
    assert!(!contains(&initiation, &OFFER));
    assert!(!contains(&response, &ANSWER));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_other_keys() {
    let run = |seed| {
        let mut pair = Pair::new(seed);
        let (_, initiation) = pair.start();
        let (_, response) = pair.respond(&initiation);
        (initiation, response)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).0[8..40], run(4).0[8..40]);
}

#[test]
fn every_handshake_has_fresh_ephemeral_keys() {
    let mut pair = Pair::new(5);
    let (_, first) = pair.start();
    let (_, second) = pair.start();
    assert_ne!(first[8..40], second[8..40]);
    let (_, a) = pair.respond(&first);
    let (_, b) = pair.respond(&first);
    assert_ne!(a[12..44], b[12..44]);
}

#[test]
fn another_preshared_key_fails_at_the_initiator() {
    let mut pair = Pair::new(6);
    let (mut initiator, initiation) = pair.start();
    pair.psk = PresharedKey::default();
    let (_, response) = pair.respond(&initiation);
    assert_eq!(initiator.finish(&response).unwrap_err(), HandshakeError::Authentication);
}

#[test]
fn an_initiation_to_another_key_is_refused_by_mac1_and_by_noise() {
    let mut pair = Pair::new(7);
    let (_, mut initiation) = pair.start();
    pair.responder = PrivateKey::generate(&mut pair.rng);
    assert_eq!(pair.read(&initiation).unwrap_err(), HandshakeError::Mac1);
    Mac1Key::of(pair.responder.public_key()).stamp(&mut initiation);
    assert_eq!(pair.read(&initiation).unwrap_err(), HandshakeError::Authentication);
}

#[test]
fn a_response_of_another_node_is_refused() {
    let mut pair = Pair::new(8);
    let (mut initiator, initiation) = pair.start();
    let (mut stranger, _) = Pair::new(9).start();
    let (_, response) = pair.respond(&initiation);
    assert_eq!(stranger.finish(&response).unwrap_err(), HandshakeError::Mac1);

    // The stranger answers an initiation of its own making, addressed to the initiator's index.
    let mut forger = Pair::new(10);
    forger.initiator = pair.initiator.clone();
    let (_, to_forger) = forger.start();
    forger.psk = pair.psk.clone();
    let (_, forged) = forger.respond(&to_forger);
    assert_eq!(initiator.finish(&forged).unwrap_err(), HandshakeError::Authentication);
    assert!(initiator.finish(&response).is_ok());
}

/// Every change of one byte, with mac1 as it was and with mac1 made anew by who changed it. That
/// the former shows as wrong mac1 proves that Noise was not asked. [H-1]
#[test]
fn every_corrupted_byte_of_the_initiation_is_refused() {
    let mut pair = Pair::new(11);
    let (_, initiation) = pair.start();
    let mac1_key = Mac1Key::of(pair.responder.public_key());
    for at in 0..INITIATION_LEN {
        let mut corrupted = initiation;
        corrupted[at] ^= 0x80;
        let outcome = pair.read(&corrupted);
        match at {
            0..4 => assert!(matches!(outcome, Err(HandshakeError::Header { .. })), "byte {at}"),
            4..144 => assert_eq!(outcome.unwrap_err(), HandshakeError::Mac1, "byte {at}"),
            // mac2 is the cookie jar's to check.
            _ => assert!(outcome.is_ok(), "byte {at}"),
        }
        if INITIATION_NOISE.contains(&at) {
            mac1_key.stamp(&mut corrupted);
            let outcome = pair.read(&corrupted).unwrap_err();
            assert_eq!(outcome, HandshakeError::Authentication, "byte {at}");
        }
    }
    assert!(pair.read(&initiation).is_ok());
}

#[test]
fn every_corrupted_byte_of_the_response_is_refused_and_the_handshake_lives_on() {
    let mut pair = Pair::new(12);
    let (mut initiator, initiation) = pair.start();
    let (secrets, response) = pair.respond(&initiation);
    let mac1_key = Mac1Key::of(pair.initiator.public_key());
    for at in 0..RESPONSE_LEN - MAC_LEN {
        let mut corrupted = response;
        corrupted[at] ^= 0x01;
        let outcome = initiator.finish(&corrupted).unwrap_err();
        match at {
            0..4 => assert!(matches!(outcome, HandshakeError::Header { .. }), "byte {at}"),
            _ => assert_eq!(outcome, HandshakeError::Mac1, "byte {at}"),
        }
        mac1_key.stamp(&mut corrupted);
        match at {
            8..12 => {
                let outcome = initiator.finish(&corrupted).unwrap_err();
                assert!(matches!(outcome, HandshakeError::ReceiverIndex { .. }), "byte {at}");
            }
            _ if RESPONSE_NOISE.contains(&at) => {
                let outcome = initiator.finish(&corrupted).unwrap_err();
                assert_eq!(outcome, HandshakeError::Authentication, "byte {at}");
            }
            _ => {}
        }
    }
    let completed = initiator.finish(&response).expect("forged responses killed the handshake");
    assert_keys_match(completed.secrets, secrets, Aead::ChaCha20Poly1305);
}

#[test]
fn every_other_length_is_refused() {
    let mut pair = Pair::new(13);
    let (mut initiator, initiation) = pair.start();
    let (_, response) = pair.respond(&initiation);
    let long = |datagram: &[u8]| [datagram, &[0; 40]].concat();
    let (long_initiation, long_response) = (long(&initiation), long(&response));
    for len in (0..INITIATION_LEN + 40).filter(|len| *len != INITIATION_LEN) {
        let expected = HandshakeError::Length { expected: INITIATION_LEN, received: len };
        assert_eq!(pair.read(&long_initiation[..len]).unwrap_err(), expected);
    }
    for len in (0..RESPONSE_LEN + 40).filter(|len| *len != RESPONSE_LEN) {
        let expected = HandshakeError::Length { expected: RESPONSE_LEN, received: len };
        assert_eq!(initiator.finish(&long_response[..len]).unwrap_err(), expected);
    }
}

#[test]
fn a_replayed_initiation_is_authentic_but_its_timestamp_is_refused() {
    let mut pair = Pair::new(14);
    let mut clock = TimestampSource::new();
    let mut guard = ReplayGuard::new();
    let mut initiations = Vec::new();
    for second in [100, 101, 101] {
        let mut payload = OFFER;
        let label = clock.next(Duration::from_secs(second));
        payload[..12].copy_from_slice(label.as_bytes());
        initiations.push(pair.start_with(&payload).1);
    }
    let mut timestamp = |datagram: &[u8]| {
        let payload = *pair.read(datagram).unwrap().payload();
        Timestamp::from_bytes(*payload.first_chunk().unwrap())
    };
    for initiation in &initiations {
        assert_eq!(guard.accept(timestamp(initiation), Duration::ZERO), Ok(()));
    }
    for initiation in &initiations {
        assert!(guard.accept(timestamp(initiation), Duration::ZERO).is_err());
    }
}

/// Points of order 1, 2, 4 and 8 on Curve25519 and its twist.
const SMALL_ORDER: [&str; 5] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

#[test]
fn public_keys_of_small_order_are_refused() {
    let mut pair = Pair::new(15);
    for text in SMALL_ORDER {
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        let remote = PublicKey::from_bytes(bytes);
        let started =
            Initiator::start(&mut pair.rng, &pair.initiator, &remote, &pair.psk, &OFFER, 1);
        assert_eq!(started.unwrap_err(), HandshakeError::Key, "{text} as static key");

        let (_, mut initiation) = pair.start();
        initiation[8..40].copy_from_slice(&bytes);
        Mac1Key::of(pair.responder.public_key()).stamp(&mut initiation);
        let outcome = pair.read(&initiation).unwrap_err();
        assert_eq!(outcome, HandshakeError::Authentication, "{text} as ephemeral key");
    }
}

/// Ours against `snow` with its own primitives: X25519 of AWS-LC is the same function.
#[test]
fn a_plain_snow_peer_interoperates() {
    let mut pair = Pair::new(16);
    let (mut initiator, initiation) = pair.start();
    let mut plain = Builder::with_resolver(
        NOISE_PROTOCOL.parse().unwrap(),
        Box::new(PlainResolver(snow::resolvers::DefaultResolver)),
    )
    .local_private_key(pair.responder.secret_bytes())
    .unwrap()
    .prologue(PROLOGUE)
    .unwrap()
    .psk(2, pair.psk.secret_bytes())
    .unwrap()
    .build_responder()
    .unwrap();
    let mut payload = [0; INITIATION_PAYLOAD_LEN];
    plain.read_message(&initiation[INITIATION_NOISE], &mut payload).unwrap();
    assert_eq!(payload, OFFER);

    let mut response = [0; RESPONSE_LEN];
    response[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4]);
    plain.write_message(&ANSWER, &mut response[RESPONSE_NOISE]).unwrap();
    Mac1Key::of(pair.initiator.public_key()).stamp(&mut response);
    let completed = initiator.finish(&response).unwrap();
    assert_eq!(completed.payload, ANSWER);
    let (from_initiator, from_responder) = plain.dangerously_get_raw_split();
    assert_eq!(**completed.secrets.send, from_initiator);
    assert_eq!(**completed.secrets.receive, from_responder);
}

/// `snow`'s default primitives with a deterministic generator, as it has none built in.
struct PlainResolver(snow::resolvers::DefaultResolver);

impl snow::resolvers::CryptoResolver for PlainResolver {
    fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
        Some(Box::new(Rng::new([99; 32])))
    }

    fn resolve_dh(&self, choice: &snow::params::DHChoice) -> Option<Box<dyn snow::types::Dh>> {
        self.0.resolve_dh(choice)
    }

    fn resolve_hash(
        &self,
        choice: &snow::params::HashChoice,
    ) -> Option<Box<dyn snow::types::Hash>> {
        self.0.resolve_hash(choice)
    }

    fn resolve_cipher(
        &self,
        choice: &snow::params::CipherChoice,
    ) -> Option<Box<dyn snow::types::Cipher>> {
        self.0.resolve_cipher(choice)
    }
}

#[test]
fn debug_shows_no_secret() {
    let mut pair = Pair::new(17);
    let (initiator, initiation) = pair.start();
    let (secrets, _) = pair.respond(&initiation);
    assert_eq!(format!("{secrets:?}"), "Secrets(redacted)");
    assert_eq!(format!("{initiator:?}"), "Initiator { sender_index: 16909060, .. }");
    assert!(format!("{:?}", pair.initiator).starts_with("PrivateKey(redacted, public "));
}
