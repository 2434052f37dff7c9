//! The Internet checksum (RFC 1071), over packets in several parts.

/// A one's complement sum in the making. Parts may have odd lengths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    /// In native byte order, which the sum does not depend on (RFC 1071, section 2 (B)).
    total: u64,
    odd: bool,
}

impl Sum {
    /// The pseudo-header of TCP and UDP. `addresses` are source and destination, 8 or 32 bytes;
    /// `len` is the length of transport header and payload.
    pub(crate) fn pseudo_header(addresses: &[u8], protocol: u8, len: usize) -> Self {
        let mut sum = Self::default();
        sum.add(addresses);
        let len = u32::try_from(len).expect("a packet is shorter than 4 GiB");
        sum.add(&len.to_be_bytes());
        sum.add(&[0, protocol]);
        sum
    }

    /// Adds the next part.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<4>();
        // At most 2^14 words of a 64 KiB packet: 32-bit words cannot overflow 64 bits. Unchecked,
        // so that they are added by vector registers.
        let words = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word)));
        let mut sum = words.fold(0_u64, u64::wrapping_add);
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_ne_bytes(last));
        let sum = fold(sum);
        self.total += u64::from(if self.odd { sum.swap_bytes() } else { sum });
        self.odd ^= !bytes.len().is_multiple_of(2);
    }

    /// The sum, not complemented, as it stands in a header.
    pub(crate) fn sum(self) -> [u8; 2] {
        fold(self.total).to_ne_bytes()
    }

    /// The complement of the sum, as it stands in a header.
    pub(crate) fn checksum(self) -> [u8; 2] {
        (!fold(self.total)).to_ne_bytes()
    }

    /// Whether the sum, over data that contains its checksum, is right.
    pub(crate) fn is_valid(self) -> bool {
        fold(self.total) == 0xffff
    }
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded to 16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_sums_up() {
        let mut sum = Sum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.sum(), [0xdd, 0xf2]);
        assert_eq!(sum.checksum(), [0x22, 0x0d]);
    }

    #[test]
    fn cutting_the_data_anywhere_changes_nothing() {
        let data: Vec<u8> = (0..101_u8).map(|n| n.wrapping_mul(37)).collect();
        let mut whole = Sum::default();
        whole.add(&data);
        for cut in 0..data.len() {
            for second in cut..data.len() {
                let mut parts = Sum::default();
                parts.add(&data[..cut]);
                parts.add(&data[cut..second]);
                parts.add(&data[second..]);
                assert_eq!(parts.sum(), whole.sum(), "cut at {cut} and {second}");
            }
        }
    }

    #[test]
    fn one_changed_bit_is_noticed() {
        let mut data = vec![0x45, 0, 0, 40, 1, 2, 3, 4, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
        let mut sum = Sum::default();
        sum.add(&data);
        data[10..12].copy_from_slice(&sum.checksum());
        let valid = |data: &[u8]| {
            let mut sum = Sum::default();
            sum.add(data);
            sum.is_valid()
        };
        assert!(valid(&data));
        for bit in 0..data.len() * 8 {
            data[bit / 8] ^= 1 << (bit % 8);
            assert!(!valid(&data), "bit {bit}");
            data[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
