use std::fs;
use std::os::unix::fs::PermissionsExt;

use mpip_crypto::{JoinRequest, Mac1Key, PrivateKey};
use mpip_testing::Directory;

use super::*;

const NOW: u64 = 1_700_000_000;

fn file(directory: &Directory) -> PathBuf {
    directory.join("mpip0.peers")
}

fn open(directory: &Directory) -> Records {
    Records::open(file(directory)).expect("a file of records, or none")
}

fn key(number: u8) -> PublicKey {
    *PrivateKey::generate(&mut Rng::new([number; 32])).public_key()
}

fn around() -> Surroundings {
    Surroundings {
        public_key: key(1),
        name: "gateway".to_owned(),
        pool: vec!["10.77.0.0/24".parse().expect("valid"), "fd77::/64".parse().expect("valid")],
        own: vec!["10.77.0.1".parse().expect("valid"), "fd77::1".parse().expect("valid")],
        taken: vec!["10.77.0.2/32".parse().expect("valid")],
        peers: vec![("office".to_owned(), key(2))],
        forwards: false,
    }
}

fn wish(name: &str) -> Wish {
    let endpoints = vec!["198.18.0.1:6182".parse().expect("valid")];
    Wish { name: name.to_owned(), valid_s: 3_600, endpoints, prefixes: Vec::new() }
}

fn invite(records: &mut Records, at: u64, name: &str) -> Invitation {
    let mut rng = Rng::new([at.to_be_bytes()[7] ^ name.len() as u8; 32]);
    records.invite(at, &wish(name), &around(), &mut rng).expect("an invitation")
}

/// What the gateway says to the node with `key` that has `invitation`.
fn join(
    records: &mut Records,
    at: u64,
    invitation: &Invitation,
    own: PublicKey,
) -> Option<Verdict> {
    let request = JoinRequest::new(&mut Rng::new([9; 32]), invitation, &own);
    let received = ReceivedJoin::new(request.datagram(), &Mac1Key::of(&key(1))).expect("to us");
    let joined = |records: &Records| -> Vec<Option<PublicKey>> {
        records.list.iter().map(|record| record.joined.map(|(key, _)| key)).collect()
    };
    let before = joined(records);
    match records.join(at, &received, &around()) {
        Joining::Unknown => None,
        Joining::Answer(_, verdict, record) => {
            assert_eq!(record.is_some(), joined(records) != before, "only who is new is added");
            Some(verdict)
        }
    }
}

#[test]
fn who_joins_gets_free_addresses_and_is_remembered() {
    let directory = Directory::new();
    let mut records = open(&directory);
    let invitation = invite(&mut records, NOW, "laptop");
    let addresses: Vec<String> =
        invitation.addresses.iter().map(|(address, len)| format!("{address}/{len}")).collect();
    assert_eq!(addresses, ["10.77.0.3/24", "fd77::3/64"]);
    let second = invite(&mut records, NOW, "phone").addresses[0].0;
    assert_eq!(second.to_string(), "10.77.0.4", "an invitation holds its addresses");
    assert_eq!(join(&mut records, NOW + 60, &invitation, key(5)), Some(Verdict::Accepted));

    let again = open(&directory);
    let peer = again.list[0].peer(&[]).expect("joined");
    assert_eq!((peer.name.as_str(), peer.public_key), ("laptop", key(5)));
    let allowed: Vec<String> = peer.allowed_prefixes.iter().map(ToString::to_string).collect();
    assert_eq!(allowed, ["10.77.0.3/32", "fd77::3/128"]);
    assert_eq!(peer.preshared_key.secret_bytes(), invitation.secret.preshared_key().secret_bytes());
    assert!(again.list[1].peer(&[]).is_none(), "was only invited");
    let states: Vec<String> = again.list(NOW + 4_000).into_iter().map(|peer| peer.state).collect();
    assert_eq!(states, ["joined", "expired"]);
    let mode = fs::metadata(file(&directory)).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let names = fs::read_dir(directory.path()).expect("listed").count();
    assert_eq!(names, 1, "nothing else is left there");
}

/// `[J-5]`
#[test]
fn a_token_is_good_once_and_for_its_time() {
    let directory = Directory::new();
    let mut records = open(&directory);
    let invitation = invite(&mut records, NOW, "laptop");
    assert_eq!(join(&mut records, NOW, &invitation, key(5)), Some(Verdict::Accepted));
    // Its answer was lost, and it asks again; also after the time, and a restart.
    let mut records = open(&directory);
    assert_eq!(join(&mut records, NOW + 9_999, &invitation, key(5)), Some(Verdict::Accepted));
    assert_eq!(join(&mut records, NOW, &invitation, key(6)), Some(Verdict::Used));

    let late = invite(&mut records, NOW, "phone");
    assert_eq!(join(&mut records, NOW + 3_600, &late, key(6)), Some(Verdict::Expired));
    assert_eq!(join(&mut records, NOW + 3_599, &late, key(6)), Some(Verdict::Accepted));
}

#[test]
fn an_altered_token_a_known_key_and_a_stranger_are_refused() {
    let directory = Directory::new();
    let mut records = open(&directory);
    let invitation = invite(&mut records, NOW, "laptop");
    let mut altered = invitation.clone();
    altered.prefixes.push(("0.0.0.0".parse().expect("valid"), 0));
    assert_eq!(join(&mut records, NOW, &altered, key(5)), Some(Verdict::Altered));
    assert_eq!(join(&mut records, NOW, &invitation, key(1)), Some(Verdict::KeyInUse), "our own");
    assert_eq!(join(&mut records, NOW, &invitation, key(2)), Some(Verdict::KeyInUse), "office");
    let other = Invitation { secret: InvitationSecret::from_bytes([3; 32]), ..invitation.clone() };
    assert_eq!(join(&mut records, NOW, &other, key(5)), None);
    assert_eq!(join(&mut records, NOW, &invitation, key(5)), Some(Verdict::Accepted));
    let second = invite(&mut records, NOW, "phone");
    assert_eq!(join(&mut records, NOW, &second, key(5)), Some(Verdict::KeyInUse), "laptop");
}

#[test]
fn an_invitation_is_void_once_the_configuration_has_its_name_or_address() {
    let directory = Directory::new();
    let mut records = open(&directory);
    let invitation = invite(&mut records, NOW, "laptop");
    let request = JoinRequest::new(&mut Rng::new([9; 32]), &invitation, &key(5));
    let mut verdict = |around: &Surroundings| {
        let received = ReceivedJoin::new(request.datagram(), &Mac1Key::of(&key(1))).expect("to us");
        match records.join(NOW, &received, around) {
            Joining::Answer(_, verdict, _) => verdict,
            Joining::Unknown => panic!("it is known"),
        }
    };
    let mut named = around();
    named.peers.push(("laptop".to_owned(), key(7)));
    assert_eq!(verdict(&named), Verdict::Withdrawn);
    let mut taken = around();
    taken.taken.push(Prefix::host(invitation.addresses[1].0));
    assert_eq!(verdict(&taken), Verdict::Withdrawn);
    assert_eq!(verdict(&around()), Verdict::Accepted);
}

#[test]
fn who_is_removed_may_not_come_back_and_its_addresses_are_free() {
    let directory = Directory::new();
    let mut records = open(&directory);
    let first = invite(&mut records, NOW, "laptop");
    assert_eq!(join(&mut records, NOW, &first, key(5)), Some(Verdict::Accepted));
    let error = records.invite(NOW, &wish("laptop"), &around(), &mut Rng::new([8; 32]));
    assert!(error.expect_err("has joined").contains("`mpip remove laptop`"));
    assert_eq!(records.remove("laptop", &around()), Ok(true));
    assert_eq!(join(&mut records, NOW, &first, key(5)), Some(Verdict::Withdrawn));
    let second = invite(&mut records, NOW, "laptop");
    assert_eq!(second.addresses, first.addresses);
    // A second invitation withdraws the first.
    let third = invite(&mut records, NOW + 1, "laptop");
    assert_eq!(join(&mut records, NOW, &second, key(5)), Some(Verdict::Withdrawn));
    assert_eq!(join(&mut records, NOW, &third, key(5)), Some(Verdict::Accepted));
    for (name, expected) in [("nobody", "nobody called"), ("office", "its [[peer]] section")] {
        let error = records.remove(name, &around()).expect_err(name);
        assert!(error.contains(expected), "{error}");
    }
    // Long after, nothing is kept of what ended.
    invite(&mut records, NOW + 3_600 + REMEMBERED, "phone");
    let names: Vec<String> = records.list.iter().map(|record| record.name.clone()).collect();
    assert_eq!(names, ["laptop", "phone"]);
}

#[test]
fn a_name_in_use_and_a_full_list_are_refused() {
    let directory = Directory::new();
    let mut records = open(&directory);
    let mut rng = Rng::new([8; 32]);
    let error = records.invite(NOW, &wish("office"), &around(), &mut rng).expect_err("configured");
    assert!(error.contains("a peer of the configuration"), "{error}");
    let record = {
        invite(&mut records, NOW, "laptop");
        records.list[0].clone()
    };
    let named = |number: usize| Record { name: number.to_string(), ..record.clone() };
    records.list = (0..WAITING_MAX).map(named).collect();
    let error = records.invite(NOW, &wish("phone"), &around(), &mut rng).expect_err("too many");
    assert!(error.starts_with("expected at most 256"), "{error}");
}

#[test]
fn a_key_that_cannot_be_written_down_is_not_accepted() {
    let directory = Directory::new();
    let mut records = open(&directory);
    let invitation = invite(&mut records, NOW, "laptop");
    // Where the new file is to be, there is a directory that is not empty.
    fs::create_dir_all(directory.join("mpip0.peers.new/x")).expect("writable");
    assert_eq!(join(&mut records, NOW, &invitation, key(5)), Some(Verdict::NotStored));
    fs::remove_dir_all(directory.join("mpip0.peers.new")).expect("ours");
    assert_eq!(join(&mut records, NOW, &invitation, key(6)), Some(Verdict::Accepted));
}

#[test]
fn a_file_that_somebody_changed_is_refused_with_its_name() {
    let directory = Directory::new();
    fs::write(file(&directory), "[[peer]]\nname = 'x'\nnonsense = 1\n").expect("writable");
    let error = Records::open(file(&directory)).expect_err("not ours");
    assert!(error.contains("mpip0.peers`, which mpipd writes, was changed: "), "{error}");
}
