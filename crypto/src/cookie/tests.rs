use super::*;
use crate::mac::Mac1Key;

const SECOND: Duration = Duration::from_secs(1);

fn source(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A node under load, and an initiator that knows its key.
struct Scene {
    jar: CookieJar,
    memory: CookieMemory,
    mac1_key: Mac1Key,
    from: SocketAddr,
}

impl Scene {
    fn new() -> Self {
        let key = PublicKey::from_bytes([9; 32]);
        Self {
            jar: CookieJar::new(&mut Rng::new([1; 32]), &key),
            memory: CookieMemory::new(&key),
            mac1_key: Mac1Key::of(&key),
            from: source("198.18.0.1:6182"),
        }
    }

    /// A handshake initiation, with `filler` as its message.
    fn datagram(&mut self, now: Duration, filler: u8) -> [u8; 160] {
        let mut datagram = [filler; 160];
        datagram[..8].copy_from_slice(&[1, 0, 0, 0, 0xa, 0xb, 0xc, 0xd]);
        self.mac1_key.stamp(&mut datagram);
        self.memory.stamp(now, &mut datagram);
        datagram
    }

    /// Sends a datagram that is refused and takes the cookie.
    fn get_cookie(&mut self, now: Duration) {
        let refused = self.datagram(now, 1);
        let reply = self.jar.reply(now, self.from, &refused).unwrap();
        self.memory.receive(now, &reply).unwrap();
    }

    fn verify(&mut self, now: Duration, datagram: &[u8]) -> Result<(), MacError> {
        self.jar.verify(now, self.from, datagram)
    }
}

#[test]
fn a_cookie_reply_lets_the_next_datagram_through() {
    let mut scene = Scene::new();
    let refused = scene.datagram(SECOND, 1);
    assert_eq!(refused[144..], [0; 16], "no cookie yet");
    assert_eq!(scene.verify(SECOND, &refused), Err(MacError));

    let reply = scene.jar.reply(SECOND, scene.from, &refused).unwrap();
    assert_eq!(reply[..8], [3, 0, 0, 0, 0xa, 0xb, 0xc, 0xd]);
    assert_eq!(scene.memory.receive(SECOND, &reply), Ok(()));
    let mut next = scene.datagram(SECOND, 2);
    assert_eq!(scene.verify(SECOND, &next), Ok(()));
    assert_eq!(scene.mac1_key.verify(&next), Ok(()), "mac2 is not under mac1");
    for at in 0..next.len() {
        next[at] ^= 4;
        assert_eq!(scene.verify(SECOND, &next), Err(MacError), "byte {at}");
        next[at] ^= 4;
    }
}

#[test]
fn a_cookie_is_bound_to_address_and_port() {
    let mut scene = Scene::new();
    scene.get_cookie(SECOND);
    let datagram = scene.datagram(SECOND, 2);
    for other in ["198.18.0.1:6183", "198.18.0.2:6182", "[2001:db8::1]:6182"] {
        let outcome = scene.jar.verify(SECOND, source(other), &datagram);
        assert_eq!(outcome, Err(MacError), "{other}");
    }
    let mapped = source("[::ffff:198.18.0.1]:6182");
    assert_eq!(scene.jar.verify(SECOND, mapped, &datagram), Ok(()), "the same address, mapped");
}

/// [H-12]
#[test]
fn a_cookie_lasts_as_long_as_the_initiator_uses_it_and_not_two_periods() {
    for given in [0, 1, 60, 119] {
        let given = Duration::from_secs(given);
        let mut scene = Scene::new();
        scene.get_cookie(given);
        let last = given + COOKIE_LIFETIME - Duration::from_nanos(1);
        let stamped = scene.datagram(last, 2);
        assert_eq!(scene.verify(last, &stamped), Ok(()), "given at {given:?}");
        let unstamped = scene.datagram(given + COOKIE_LIFETIME, 3);
        assert_eq!(unstamped[144..], [0; 16], "given at {given:?}");
        assert_eq!(scene.verify(2 * SECRET_LIFETIME, &stamped), Err(MacError), "{given:?}");
    }
}

/// [H-12]
#[test]
fn a_long_silence_expires_both_secrets() {
    let mut scene = Scene::new();
    scene.get_cookie(SECOND);
    let stamped = scene.datagram(SECOND, 2);
    assert_eq!(scene.verify(1000 * SECRET_LIFETIME, &stamped), Err(MacError));
}

/// [H-11]
#[test]
fn forged_replies_change_nothing_and_the_true_one_counts_once() {
    let mut scene = Scene::new();
    assert_eq!(scene.memory.receive(SECOND, &[3; 52]), Err(CookieError::Header { received: 3 }));
    let refused = scene.datagram(SECOND, 1);
    let reply = scene.jar.reply(SECOND, scene.from, &refused).unwrap();
    for at in (0..reply.len()).filter(|at| !(4..8).contains(at)) {
        let mut forged = reply;
        forged[at] ^= 1;
        let expected = match at {
            0..4 => CookieError::Header { received: forged[0] },
            _ => CookieError::Authentication,
        };
        assert_eq!(scene.memory.receive(SECOND, &forged), Err(expected), "byte {at}");
    }
    for len in 0..COOKIE_REPLY_LEN {
        let expected = CookieError::Length { expected: COOKIE_REPLY_LEN, received: len };
        assert_eq!(scene.memory.receive(SECOND, &reply[..len]), Err(expected));
    }
    assert_eq!(scene.memory.receive(SECOND, &reply), Ok(()));
    assert_eq!(scene.memory.receive(SECOND, &reply), Err(CookieError::Unexpected));
}

/// [H-11]
#[test]
fn a_reply_answers_only_the_datagram_sent_last() {
    let mut scene = Scene::new();
    let first = scene.datagram(SECOND, 1);
    let reply = scene.jar.reply(SECOND, scene.from, &first).unwrap();
    scene.datagram(SECOND, 2);
    assert_eq!(scene.memory.receive(SECOND, &reply), Err(CookieError::Authentication));
}

#[test]
fn a_reply_is_smaller_than_what_it_answers_and_a_fragment_gets_none() {
    const { assert!(COOKIE_REPLY_LEN < crate::RESPONSE_LEN) };
    let mut scene = Scene::new();
    for len in 0..40 {
        let outcome = scene.jar.reply(SECOND, scene.from, &[1; 40][..len]);
        assert_eq!(outcome, Err(CookieError::Length { expected: 40, received: len }));
    }
}

#[test]
fn replies_never_repeat_a_nonce() {
    let mut scene = Scene::new();
    let refused = scene.datagram(SECOND, 1);
    let mut nonces = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let reply = scene.jar.reply(SECOND, scene.from, &refused).unwrap();
        assert!(nonces.insert(reply[NONCE_START..SEALED_START].to_vec()));
    }
}
