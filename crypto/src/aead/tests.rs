use proptest::prelude::*;

use super::*;

const BOTH: [Aead; 2] = [Aead::Aes256Gcm, Aead::ChaCha20Poly1305];

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Seals with the key below our nonce and compares with a published vector.
fn assert_vector(aead: Aead, key: &str, nonce: &str, aad: &str, plaintext: &[u8], sealed: &str) {
    let key = unhex(key).try_into().unwrap();
    let nonce: [u8; NONCE_LEN] = unhex(nonce).try_into().unwrap();
    let mut packet = plaintext.to_vec();
    let tag = SealKey::new(aead, &key)
        .key
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(unhex(aad)),
            &mut packet,
        )
        .unwrap();
    packet.extend_from_slice(tag.as_ref());
    assert_eq!(packet, unhex(sealed));
    let opened = OpenKey::new(aead, &key)
        .key
        .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(unhex(aad)), &mut packet)
        .unwrap();
    assert_eq!(opened, plaintext);
}

/// RFC 8439 section 2.8.2.
#[test]
fn chacha20_poly1305_gives_the_vector_of_rfc_8439() {
    assert_vector(
        Aead::ChaCha20Poly1305,
        "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
        "070000004041424344454647",
        "50515253c0c1c2c3c4c5c6c7",
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the \
          future, sunscreen would be it.",
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6\
         3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36\
         92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc\
         3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd060\
         0691",
    );
}

/// McGrew and Viega, "The Galois/Counter Mode of Operation", test case 16 (AES-256 with
/// associated data), the source of NIST's vectors.
#[test]
fn aes_256_gcm_gives_test_case_16() {
    assert_vector(
        Aead::Aes256Gcm,
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        &unhex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        ),
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662\
         76fc6ece0f4e1768cddf8853bb2d551b",
    );
}

/// Test case 13 of the same (zero key and nonce) through the public API: path 0, number 0.
#[test]
fn path_and_number_zero_are_the_zero_nonce() {
    let tag = SealKey::new(Aead::Aes256Gcm, &[0; 32]).seal_in_place(0, 0, b"", &mut []);
    assert_eq!(tag.to_vec(), unhex("530f8afbc74536b9a963b4f1c4cb738b"));
}

#[test]
fn the_nonce_is_the_path_then_the_packet_number_in_network_order() {
    let nonce = nonce(0x0102, 0x0304_0506_0708_090a);
    assert_eq!(*nonce.as_ref(), [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

fn seal(aead: Aead, path: u16, number: u64, aad: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let mut packet = plaintext.to_vec();
    let tag = SealKey::new(aead, &[7; 32]).seal_in_place(path, number, aad, &mut packet);
    packet.extend_from_slice(&tag);
    packet
}

fn open(
    aead: Aead,
    path: u16,
    number: u64,
    aad: &[u8],
    packet: &[u8],
) -> Result<Vec<u8>, OpenError> {
    let mut packet = packet.to_vec();
    let opened = OpenKey::new(aead, &[7; 32]).open_in_place(path, number, aad, &mut packet);
    opened.map(|plaintext| plaintext.to_vec())
}

#[test]
fn every_corrupted_byte_and_every_truncation_is_refused() {
    for aead in BOTH {
        let (aad, plaintext) = ([4; 16], [0x5a; 40]);
        let sealed = seal(aead, 3, 9, &aad, &plaintext);
        assert_eq!(open(aead, 3, 9, &aad, &sealed).unwrap(), plaintext);
        for at in 0..sealed.len() {
            let mut corrupted = sealed.clone();
            corrupted[at] ^= 1 << (at % 8);
            assert_eq!(open(aead, 3, 9, &aad, &corrupted), Err(OpenError), "{aead}, byte {at}");
            let truncated = &sealed[..at];
            assert_eq!(open(aead, 3, 9, &aad, truncated), Err(OpenError), "{aead}, {at} bytes");
        }
        for at in 0..aad.len() {
            let mut corrupted = aad;
            corrupted[at] ^= 1 << (at % 8);
            assert_eq!(open(aead, 3, 9, &corrupted, &sealed), Err(OpenError), "{aead}, {at}");
        }
        assert_eq!(open(aead, 3, 9, &aad[..15], &sealed), Err(OpenError));
    }
}

#[test]
fn path_number_key_and_algorithm_all_matter() {
    for (aead, other) in [BOTH, [BOTH[1], BOTH[0]]].map(|[a, b]| (a, b)) {
        let sealed = seal(aead, 3, 9, b"", b"frames");
        for (path, number) in [(4, 9), (3, 10), (9, 3), (0, 9), (3, 0)] {
            assert_ne!(seal(aead, path, number, b"", b"frames")[..6], sealed[..6]);
            assert_eq!(open(aead, path, number, b"", &sealed), Err(OpenError));
        }
        assert_eq!(open(other, 3, 9, b"", &sealed), Err(OpenError));
        let mut packet = sealed.clone();
        let other_key = OpenKey::new(aead, &[8; 32]);
        assert_eq!(other_key.open_in_place(3, 9, b"", &mut packet), Err(OpenError));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_sealed_opens_to_the_same(
        aes in any::<bool>(),
        key in any::<[u8; 32]>(),
        path in any::<u16>(),
        number in any::<u64>(),
        aad in proptest::collection::vec(any::<u8>(), 0..40),
        plaintext in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        let aead = Aead::preferred(aes);
        let mut packet = plaintext.clone();
        let tag = SealKey::new(aead, &key).seal_in_place(path, number, &aad, &mut packet);
        prop_assert_eq!(packet.len(), plaintext.len());
        packet.extend_from_slice(&tag);
        let opened = OpenKey::new(aead, &key).open_in_place(path, number, &aad, &mut packet);
        prop_assert_eq!(opened.map(|opened| opened.to_vec()), Ok(plaintext));
    }

    #[test]
    fn noise_does_not_open(
        aes in any::<bool>(),
        packet in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        prop_assert_eq!(open(Aead::preferred(aes), 0, 0, b"", &packet), Err(OpenError));
    }
}

#[test]
fn codes_and_offers_are_those_of_the_wire() {
    for (aead, code, bit) in [(Aead::Aes256Gcm, 1, 1), (Aead::ChaCha20Poly1305, 2, 2)] {
        assert_eq!((aead.code(), aead.offer_bit()), (code, bit));
        assert_eq!(Aead::from_code(code), Some(aead));
    }
    for code in [0].into_iter().chain(3..=255) {
        assert_eq!(Aead::from_code(code), None);
    }
}

#[test]
fn aes_is_chosen_only_where_both_cpus_have_it() {
    use Aead::{Aes256Gcm, ChaCha20Poly1305};
    for (initiator, responder, chosen) in [
        (true, true, Aes256Gcm),
        (true, false, ChaCha20Poly1305),
        (false, true, ChaCha20Poly1305),
        (false, false, ChaCha20Poly1305),
    ] {
        assert_eq!(Aead::choose(Aead::offers(initiator), responder), Some(chosen));
    }
    assert_eq!(Aead::choose(0b1111_1100, true), None);
    assert_eq!(Aead::choose(Aes256Gcm.offer_bit(), false), None);
}

#[test]
fn keys_are_shared_between_threads_and_show_no_secret() {
    fn assert_shared<T: Send + Sync>(_: &T) {}
    let keys = Keys {
        send: SealKey::new(Aead::Aes256Gcm, &[1; 32]),
        receive: OpenKey::new(Aead::Aes256Gcm, &[2; 32]),
    };
    assert_shared(&keys);
    assert_eq!(
        format!("{keys:?}"),
        "Keys { send: SealKey(AES-256-GCM, redacted), receive: OpenKey(AES-256-GCM, redacted) }"
    );
}

proptest! {
    #[test]
    fn a_separate_body_is_sealed_as_if_it_stood_in_the_packet(
        head in prop::collection::vec(any::<u8>(), 0..80),
        body in prop::collection::vec(any::<u8>(), 0..1_500),
        aad in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        for aead in BOTH {
            let seal = SealKey::new(aead, &[7; KEY_LEN]);
            let mut whole = [&head[..], &body].concat();
            let tag = seal.seal_in_place(3, 4, &aad, &mut whole);
            whole.extend_from_slice(&tag);
            let mut out = head.clone();
            out.resize(head.len() + body.len() + TAG_LEN, 0xee);
            seal.seal_into(3, 4, &aad, &body, &mut out);
            prop_assert_eq!(out, whole);
        }
    }
}
