use super::*;

/// [W-13] The examples of RFC 9000, appendices A.2 and A.3.
#[test]
fn examples_of_rfc_9000_hold() {
    assert_eq!(truncated_len(0x00ac_5c02, Some(0x00ab_e8b3)), 2);
    assert_eq!(truncated_len(0x00ac_e8fe, Some(0x00ab_e8b3)), 3);
    assert_eq!(expand(Some(0xa82f_30ea), 0x9b32, 2), 0xa82f_9b32);
}

#[test]
fn first_number_of_a_lane_takes_one_byte() {
    assert_eq!(truncated_len(0, None), 1);
    assert_eq!(TruncatedNumber::new(0, 1).expand(None), 0);
}

/// [W-13]
#[test]
fn lengths_change_where_half_the_field_is_outstanding() {
    for (unacked, len) in [
        (1, 1),
        (0x80, 1),
        (0x81, 2),
        (0x8000, 2),
        (0x8001, 3),
        (0x80_0000, 3),
        (0x80_0001, 4),
        (1 << 31, 4),
        (1 << 40, 4),
    ] {
        assert_eq!(truncated_len(1000 + unacked, Some(1000)), len, "{unacked}");
        assert_eq!(truncated_len(unacked - 1, None), len, "{unacked}");
    }
}

#[test]
fn expansion_stays_within_the_number_space() {
    for len in 1..=4 {
        assert_eq!(expand(None, u32::MAX, len), (1 << (8 * len)) - 1);
        let max = PACKET_NUMBER_MAX;
        for received in [max, max - 1, u64::MAX] {
            assert!(expand(Some(received), 0, len) <= max);
            assert!(expand(Some(received), u32::MAX, len) <= max);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..config() })]

    /// [W-13]
    #[test]
    fn numbers_are_restored_whatever_the_receiver_has_of_those_outstanding(
        acked in prop::option::of(0..(1_u64 << 61)),
        ahead in prop_oneof![0..300_u64, 0..70_000_u64, 0..(1_u64 << 31) - 1],
        received in any::<prop::sample::Index>(),
    ) {
        let number = acked.map_or(0, |acked| acked + 1) + ahead;
        let low = TruncatedNumber::new(number, truncated_len(number, acked));
        prop_assert_eq!(low.expand(acked), number);
        if ahead > 0 {
            let received = number - 1 - received.index(ahead as usize) as u64;
            prop_assert_eq!(low.expand(Some(received)), number);
        }
    }

    /// [W-13]
    #[test]
    fn late_numbers_are_restored_within_half_the_field(
        number in 0..(1_u64 << 61), len in 1..=4_usize, later in any::<prop::sample::Index>(),
    ) {
        let later = later.index((1 << (8 * len - 1)) - 1) as u64;
        prop_assert_eq!(TruncatedNumber::new(number, len).expand(Some(number + later)), number);
    }

    #[test]
    fn expansion_keeps_the_low_bytes(received: u64, acked: u64, number: u64) {
        let mut bytes = received.to_be_bytes().to_vec();
        bytes.extend(acked.to_be_bytes());
        bytes.extend(number.to_be_bytes());
        check::packet_number(&bytes);
    }
}
