use proptest::prelude::*;

use super::*;
use crate::{PrivateKey, Rng};

fn rng() -> Rng {
    Rng::new([7; 32])
}

fn gateway() -> PrivateKey {
    PrivateKey::generate(&mut Rng::new([1; 32]))
}

fn laptop() -> PublicKey {
    *PrivateKey::generate(&mut Rng::new([2; 32])).public_key()
}

fn invitation() -> Invitation {
    Invitation {
        secret: InvitationSecret::generate(&mut rng()),
        gateway: *gateway().public_key(),
        expires: 1_800_000_000,
        forwards: true,
        gateway_name: "gateway".to_owned(),
        name: "laptop".to_owned(),
        endpoints: vec!["198.18.0.1:6182".parse().unwrap(), "[2001:db8::1]:6182".parse().unwrap()],
        addresses: vec![("10.77.0.2".parse().unwrap(), 24), ("fd77::2".parse().unwrap(), 64)],
        prefixes: vec![("10.77.0.0".parse().unwrap(), 24)],
    }
}

fn received(request: &JoinRequest) -> ReceivedJoin {
    let mac1 = Mac1Key::of(gateway().public_key());
    ReceivedJoin::new(request.datagram(), &mac1).expect("a request to this gateway")
}

#[test]
fn a_token_says_what_the_invitation_says() {
    let invitation = invitation();
    let token = invitation.token();
    let read = Invitation::from_token(&format!(" {}\n", *token)).expect("a token");
    assert_eq!(format!("{read:?}"), format!("{invitation:?}"));
    assert_eq!(read.digest(), invitation.digest());
    assert_eq!(read.secret.id(), invitation.secret.id());
    assert_eq!(
        read.secret.preshared_key().secret_bytes(),
        invitation.secret.preshared_key().secret_bytes()
    );
}

/// `[J-1]`
#[test]
fn a_token_with_one_other_character_is_refused() {
    let token = invitation().token();
    for position in 5..token.len() {
        let mut other = token.as_bytes().to_vec();
        other[position] = if other[position] == b'A' { b'B' } else { b'A' };
        let other = String::from_utf8(other).unwrap();
        assert_eq!(Invitation::from_token(&other).err(), Some(TokenError::Altered), "{position}");
    }
    for len in 5..token.len() {
        assert_eq!(Invitation::from_token(&token[..len]).err(), Some(TokenError::Altered), "{len}");
    }
    assert_eq!(Invitation::from_token("mpip2AAAA").err(), Some(TokenError::Version));
    assert_eq!(Invitation::from_token("hello").err(), Some(TokenError::NotAToken));
}

proptest! {
    #[test]
    fn no_text_makes_reading_a_token_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        use base64::Engine;
        let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let _ = Invitation::from_token(&format!("mpip1{text}"));
        let _ = Invitation::from_token(&text);
    }

    #[test]
    fn no_datagram_makes_reading_it_panic(mut datagram in prop::collection::vec(any::<u8>(), 0..120)) {
        let request = JoinRequest::new(&mut rng(), &invitation(), &laptop());
        let mac1 = Mac1Key::of(gateway().public_key());
        prop_assert!(ReceivedJoin::new(&datagram, &mac1).is_err());
        prop_assert_eq!(request.read_answer(&datagram), None);
        datagram.splice(..datagram.len().min(4), [8, 0, 0, 0]);
        prop_assert_eq!(request.read_answer(&datagram), None);
    }
}

#[test]
fn a_request_tells_the_key_and_the_answer_tells_the_verdict() {
    let invitation = invitation();
    let request = JoinRequest::new(&mut rng(), &invitation, &laptop());
    let received = received(&request);
    assert_eq!(received.id(), invitation.secret.id());
    assert_eq!(received.open(&invitation.secret, &invitation.digest()), Some(laptop()));
    for verdict in (0..10).map(Verdict::from_code) {
        let answer = received.answer(&mut rng(), &invitation.secret, verdict);
        assert_eq!(request.read_answer(&answer), Some(Ok(verdict)));
    }
}

/// `[J-2]`
#[test]
fn a_request_under_an_altered_token_or_another_secret_does_not_open() {
    let invitation = invitation();
    let mut altered = invitation.clone();
    altered.addresses[0].0 = "10.77.0.9".parse().unwrap();
    let request = JoinRequest::new(&mut rng(), &altered, &laptop());
    assert_eq!(received(&request).open(&invitation.secret, &invitation.digest()), None);
    let other = InvitationSecret::from_bytes([9; 32]);
    let request = JoinRequest::new(&mut rng(), &invitation, &laptop());
    assert_eq!(received(&request).open(&other, &invitation.digest()), None);
}

/// `[J-3]`
/// `[W-2]`
#[test]
fn a_request_with_another_bit_is_refused() {
    let (invitation, mac1) = (invitation(), Mac1Key::of(gateway().public_key()));
    let request = JoinRequest::new(&mut rng(), &invitation, &laptop());
    for bit in 0..request.datagram().len() * 8 {
        let mut datagram = request.datagram().to_vec();
        datagram[bit / 8] ^= 1 << (bit % 8);
        assert!(ReceivedJoin::new(&datagram, &mac1).is_err(), "bit {bit}");
    }
}

#[test]
fn a_request_to_another_node_is_told_so_and_answers_are_shorter_than_requests() {
    let request = JoinRequest::new(&mut rng(), &invitation(), &laptop());
    let stranger = PrivateKey::generate(&mut Rng::new([3; 32]));
    let refused = ReceivedJoin::new(request.datagram(), &Mac1Key::of(stranger.public_key()));
    let answer = refused.expect_err("for another node").expect("an answer");
    assert_eq!(request.read_answer(&answer), Some(Err(Note::AnotherNode)));
    let unknown = received(&request).note(Note::Unknown);
    assert_eq!(request.read_answer(&unknown), Some(Err(Note::Unknown)));
    assert!(answer.len().max(JOIN_ANSWER_LEN) <= JOIN_REQUEST_LEN / 2);
}

/// `[J-4]`
#[test]
fn an_answer_to_another_request_is_no_answer() {
    let invitation = invitation();
    let mut rng = rng();
    let one = JoinRequest::new(&mut rng, &invitation, &laptop());
    let other = JoinRequest::new(&mut rng, &invitation, &laptop());
    let answer = received(&one).answer(&mut rng, &invitation.secret, Verdict::Accepted);
    assert_eq!(other.read_answer(&answer), None);
    assert_eq!(other.read_answer(&received(&one).note(Note::Unknown)), None);
    for bit in 0..answer.len() * 8 {
        let mut changed = answer;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(one.read_answer(&changed), None, "bit {bit}");
    }
}

#[test]
fn secrets_are_not_shown() {
    assert!(format!("{:?}", invitation()).contains("InvitationSecret(redacted)"));
}
