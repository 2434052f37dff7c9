//! The Internet checksum (RFC 1071).

/// The one's complement sum of `bytes` as 16-bit words, not folded, in the machine's byte order:
/// sums of several pieces may be added as long as every piece but the last has an even length.
///
/// The sum does not overflow for `bytes` of up to 8 GiB.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let (halves, rest) = rest.as_chunks::<4>();
    let last = core::array::from_fn(|at| rest.get(at).copied().unwrap_or(0));
    // Most headers have no block.
    let total = if blocks.is_empty() { 0 } else { sum_of_blocks(blocks) };
    halves.iter().chain([&last]).fold(total, add)
}

/// `sum`, and a half of 64 bits more.
#[inline]
fn add(sum: u64, half: &[u8; 4]) -> u64 {
    sum.wrapping_add(u32::from_ne_bytes(*half).into())
}

fn sum_of_blocks(blocks: &[[u8; 32]]) -> u64 {
    // Sums of 32-bit halves in 64-bit lanes cannot overflow, so no carries or checks are needed,
    // and the compiler uses vector registers.
    let mut lanes = [0u64; 8];
    for block in blocks {
        for (lane, half) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane = add(*lane, half);
        }
    }
    lanes.iter().map(|lane| (lane & 0xffff_ffff) + (lane >> 32)).sum()
}

/// `sum` folded to 16 bits, in the machine's byte order; zero only if every word was.
pub fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of RFC 1071, section 3.
    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)).to_ne_bytes(), [0xdd, 0xf2]);
    }

    #[test]
    fn every_length_equals_the_sum_by_words() {
        let bytes: Vec<u8> = (0..200u32).map(|n| (n * 37 + 211) as u8).collect();
        for len in 0..bytes.len() {
            let mut expected = 0u32;
            for word in bytes[..len].chunks(2) {
                expected += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
                expected = (expected & 0xffff) + (expected >> 16);
            }
            assert_eq!(fold(sum(&bytes[..len])).to_ne_bytes(), (expected as u16).to_be_bytes());
        }
    }

    #[test]
    fn the_largest_sum_does_not_overflow() {
        assert_eq!(fold(sum(&[0xff; 65_535])).to_ne_bytes(), [0xff, 0x00]);
        assert_eq!(fold(u64::MAX), 0xffff);
    }
}
