use mpip_crypto::PublicKey;
use mpip_testing::Directory;

use super::*;

const KEY: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";

pub(super) fn pin(address: &str, key: u8, met: Option<u32>) -> Pin {
    let address = address.parse().expect("an address");
    Pin { address, public_key: PublicKey::from_bytes([key; 32]), met }
}

fn applied(text: &str, changes: &[PinChange]) -> String {
    let changes = changes.iter().map(|change| (change.pin().address, *change)).collect();
    apply(text, &changes)
}

/// 2026-11-24.
const TODAY: u32 = 20_781;

#[test]
fn pins_are_read_with_and_without_a_day() {
    let text =
        format!("# by hand\n 198.18.0.9\t{KEY}  # the gateway\n\n2001:db8::2 {KEY} 2026-11-24#\n");
    let public_key = KEY.parse().expect("a key");
    let expected = [("198.18.0.9", None), ("2001:db8::2", Some(TODAY))].map(|(address, met)| Pin {
        address: address.parse().expect("v"),
        public_key,
        met,
    });
    assert_eq!(parse(&text), Ok(expected.to_vec()));
    let missing = Directory::new().join("nothing");
    assert_eq!(load(&missing), Ok(vec![]), "no file is no pins");
}

#[test]
fn what_is_written_is_read_again() {
    let pins = [pin("198.18.0.2", 1, Some(TODAY)), pin("2001:db8::2", 2, Some(TODAY + 40))];
    let text = applied(HEADER, &pins.map(PinChange::Pinned));
    assert!(text.starts_with(HEADER) && text.lines().count() == 4, "{text}");
    assert!(text.contains(" 2026-11-24\n") && text.contains(" 2027-01-03\n"), "{text}");
    assert_eq!(parse(&text), Ok(pins.to_vec()));
}

#[test]
fn a_day_changes_and_an_expired_pin_goes_or_is_replaced() {
    let (one, two) = (pin("198.18.0.1", 1, Some(7)), pin("198.18.0.2", 2, Some(7)));
    let text = applied("# a\n", &[PinChange::Pinned(one), PinChange::Pinned(two)]);
    let text = text.replace("1970-01-08\n198.18.0.2", "1970-01-08 # mine\n198.18.0.2");
    let met = Pin { met: Some(TODAY), ..one };
    let known = applied(&text, &[PinChange::Met(met)]);
    assert_eq!(parse(&known), Ok(vec![met, two]));
    assert!(known.starts_with("# a\n") && known.contains("2026-11-24 # mine\n"), "{known}");
    assert_eq!(parse(&applied(&known, &[PinChange::Forgotten(two)])), Ok(vec![met]));
    let other = pin("198.18.0.1", 9, Some(TODAY));
    let replaced = applied(&known, &[PinChange::Pinned(other)]);
    assert_eq!(parse(&replaced), Ok(vec![other, two]));
    assert!(!replaced.contains("mine"), "it was said of another key: {replaced}");
}

#[test]
fn what_the_operator_wrote_stays_and_what_he_removed_does_not_come_back() {
    let by_hand = pin("198.18.0.9", 1, None);
    let text = format!("  {}  # the gateway", line(&by_hand));
    let met = Pin { met: Some(TODAY), ..by_hand };
    let other = pin("198.18.0.9", 2, Some(TODAY));
    for change in [PinChange::Met(met), PinChange::Forgotten(met), PinChange::Pinned(other)] {
        assert_eq!(applied(&text, &[change]), format!("{text}\n"));
    }
    let removed = pin("198.18.0.3", 3, Some(TODAY));
    for change in [PinChange::Met(removed), PinChange::Forgotten(removed)] {
        assert_eq!(applied("# empty\n", &[change]), "# empty\n");
    }
    // He trusts another key by now, and the daemon does not know.
    let new = line(&pin("198.18.0.3", 4, Some(TODAY)));
    for change in [PinChange::Met(removed), PinChange::Forgotten(removed)] {
        assert_eq!(applied(&new, &[change]), format!("{new}\n"));
    }
    let broken = "what is this\n";
    let added = applied(broken, &[PinChange::Pinned(removed)]);
    assert_eq!(added, format!("{broken}{}\n", line(&removed)));
}

#[test]
fn a_wrong_line_is_named() {
    let fields = "expected an address, a key, and the day";
    let cases = [
        ("198.18.0.2\n".to_owned(), format!("line 1: {fields}")),
        (
            format!("\n198.18.0.300 {KEY}"),
            "line 2: expected an address, found `198.18.0.300`".to_owned(),
        ),
        (format!("198.18.0.2 {KEY} x"), "line 1: expected a day like 2026-11-24".to_owned()),
        (format!("198.18.0.2 {KEY} 2026-02-30"), "line 1: expected a day".to_owned()),
        (format!("198.18.0.2 {KEY} 2026-11-24 x"), format!("line 1: {fields}")),
        (format!("198.18.0.2 {KEY}\n198.18.0.2 {KEY}"), "line 2: expected one key for".to_owned()),
        ("198.18.0.2 abc".to_owned(), "line 1: ".to_owned()),
    ];
    for (text, expected) in cases {
        let error = parse(&text).expect_err(&text);
        assert!(error.starts_with(&expected), "{text}: {error}");
    }
}
