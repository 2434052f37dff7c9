use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::Rng;

fn unhex(text: &str) -> [u8; 32] {
    core::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

const ALICE_PRIVATE: &str = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
const ALICE_PUBLIC: &str = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
const BOB_PRIVATE: &str = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
const BOB_PUBLIC: &str = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";

/// RFC 7748 section 6.1.
#[test]
fn public_keys_are_those_of_rfc_7748() {
    for (private, public) in [(ALICE_PRIVATE, ALICE_PUBLIC), (BOB_PRIVATE, BOB_PUBLIC)] {
        let private = PrivateKey::from_bytes(unhex(private));
        assert_eq!(private.public_key().as_bytes(), &unhex(public));
    }
}

/// Computed apart from this code, with Python's `hashlib.blake2s` and integer arithmetic:
/// `0x2001002 << 100 | 15 << 96 | (blake2s(context + key) >> 80) % 2**96`.
#[test]
fn node_ids_are_orchids_of_the_public_key() {
    for (public, address) in [
        (ALICE_PUBLIC, "2001:2f:54c8:8900:f742:9407:55f7:ad31"),
        (BOB_PUBLIC, "2001:2f:8ca9:c992:da6a:98de:c4c5:1c89"),
    ] {
        let node_id = PublicKey::from_bytes(unhex(public)).node_id();
        assert_eq!(node_id.to_string(), address);
        assert_eq!(node_id.address(), address.parse::<Ipv6Addr>().unwrap());
    }
}

#[test]
fn keys_read_and_write_base64() {
    let text = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
    let private: PrivateKey = format!("{text}\n").parse().unwrap();
    assert_eq!(private.secret_bytes(), &unhex(ALICE_PRIVATE));
    assert_eq!(*private.secret_base64(), text);
    let public = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    assert_eq!(private.public_key().to_string(), public);
    assert_eq!(public.parse(), Ok(*private.public_key()));
    let psk: PresharedKey = text.parse().unwrap();
    assert_eq!(*psk.secret_base64(), text);
}

#[test]
fn texts_that_are_no_key_are_refused_with_what_came() {
    let zeros = "A".repeat(42);
    for (text, error, message) in [
        ("", KeyParseError::Length { received: 0 }, "received 0 bytes"),
        ("AAAA", KeyParseError::Length { received: 3 }, "received 3 bytes"),
        (
            &"A".repeat(44),
            KeyParseError::Length { received: 33 },
            "expected a key of 32 bytes as 44 characters of base64, received 33 bytes",
        ),
        (&format!("{zeros}A"), KeyParseError::Padding { characters: 43 }, "43 characters"),
        (&format!("{zeros}="), KeyParseError::Padding { characters: 43 }, "padding"),
        (&format!("AA!{zeros}"), KeyParseError::Character { position: 2 }, "position 2"),
        // The last two bits of 32 bytes in base64 must be zero.
        (&format!("{zeros}B="), KeyParseError::Character { position: 42 }, "position 42"),
    ] {
        assert_eq!(text.parse::<PublicKey>(), Err(error), "{text}");
        assert_eq!(text.parse::<PrivateKey>().unwrap_err(), error, "{text}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn generated_keys_are_clamped_distinct_and_repeat_from_the_seed() {
    let mut rng = Rng::new([1; 32]);
    let keys: Vec<PrivateKey> = (0..100).map(|_| PrivateKey::generate(&mut rng)).collect();
    for key in &keys {
        let secret = key.secret_bytes();
        assert_eq!((secret[0] & 7, secret[31] & 0xc0), (0, 0x40));
    }
    let node_ids: BTreeSet<NodeId> = keys.iter().map(|key| key.public_key().node_id()).collect();
    assert_eq!(node_ids.len(), keys.len());
    let again = PrivateKey::generate(&mut Rng::new([1; 32]));
    assert_eq!(again.secret_bytes(), keys[0].secret_bytes());
}

#[test]
fn debug_shows_no_secret() {
    let private = PrivateKey::from_bytes(unhex(ALICE_PRIVATE));
    let shown = format!("{private:?} {:?}", PresharedKey::from_bytes(unhex(ALICE_PRIVATE)));
    assert!(!shown.contains(&private.secret_base64()[..6]), "{shown}");
    assert!(!shown.contains("119, 7"), "{shown}");
    assert!(shown.contains(&private.public_key().to_string()), "{shown}");
}

#[test]
fn the_default_preshared_key_is_zeros() {
    assert_eq!(PresharedKey::default().secret_bytes(), &[0; 32]);
}

proptest! {
    #[test]
    fn every_public_key_round_trips(bytes: [u8; 32]) {
        let key = PublicKey::from_bytes(bytes);
        prop_assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn only_the_one_text_of_a_key_is_accepted(text in "[A-Za-z0-9+/]{42}[A-Za-z0-9+/=]{0,3}") {
        if let Ok(key) = text.parse::<PublicKey>() {
            prop_assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn every_node_id_has_the_prefix_of_orchids(bytes: [u8; 32]) {
        let segments = PublicKey::from_bytes(bytes).node_id().address().segments();
        prop_assert_eq!(segments[..2].to_vec(), vec![0x2001, 0x002f]);
    }
}
