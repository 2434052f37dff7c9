//! A lane's window of received packet numbers.

use core::fmt;

#[cfg(test)]
mod tests;

const WORD_BITS: u64 = u64::BITS as u64;

/// Words in the ring: the window, and one that is being filled, so that clearing a whole word when
/// the window moves never forgets a number inside it (RFC 6479).
const WORDS: usize = (ReplayWindow::SIZE / WORD_BITS) as usize + 1;

/// Remembers which packet numbers of one lane were received, so that none is accepted twice.
///
/// A ring of bits as in RFC 6479, over full 64-bit numbers. Each operation takes bounded time
/// and none allocates after creation; a window holds 2,080 bytes.
///
/// Call [`check`](Self::check) before opening a packet, which is cheap and costs an attacker's
/// replays no decryption, and [`commit`](Self::commit) after it proved authentic. A number that is
/// committed without that would let an attacker move the window.
#[derive(Clone)]
pub struct ReplayWindow {
    bits: Box<[u64; WORDS]>,
    largest: Option<u64>,
}

impl ReplayWindow {
    /// Numbers below the largest received one by this much or more are refused.
    pub const SIZE: u64 = 16_384;

    /// A window that has received nothing.
    pub fn new() -> Self {
        Self { bits: Box::new([0; WORDS]), largest: None }
    }

    /// The largest number committed so far.
    pub fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Whether a packet with this number may still be accepted.
    ///
    /// # Errors
    /// [`Replay::Duplicate`] if the number was committed, [`Replay::TooOld`] if it is below the
    /// window, so that nobody knows.
    #[inline]
    pub fn check(&self, packet_number: u64) -> Result<(), Replay> {
        match self.largest {
            None => Ok(()),
            Some(largest) if packet_number > largest => Ok(()),
            Some(largest) if largest - packet_number >= Self::SIZE => {
                Err(Replay::TooOld { largest })
            }
            Some(_) => {
                let (word, bit) = position(packet_number);
                if self.bits[word] & bit == 0 { Ok(()) } else { Err(Replay::Duplicate) }
            }
        }
    }

    /// Records the number of an authentic packet.
    ///
    /// # Errors
    /// As [`check`](Self::check), with nothing changed: two copies of a packet may both pass the
    /// check before either is committed, and only the first may be used.
    #[inline]
    pub fn commit(&mut self, packet_number: u64) -> Result<(), Replay> {
        self.check(packet_number)?;
        if self.largest.is_none_or(|largest| packet_number > largest) {
            self.advance(packet_number);
        }
        let (word, bit) = position(packet_number);
        self.bits[word] |= bit;
        Ok(())
    }

    /// Moves the window up to `packet_number` and clears the words that it enters.
    fn advance(&mut self, packet_number: u64) {
        let to = packet_number / WORD_BITS;
        match self.largest {
            Some(largest) if to - largest / WORD_BITS < WORDS as u64 => {
                for word in largest / WORD_BITS + 1..=to {
                    self.bits[ring_index(word)] = 0;
                }
            }
            _ => self.bits.fill(0),
        }
        self.largest = Some(packet_number);
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayWindow").field("largest", &self.largest).finish_non_exhaustive()
    }
}

/// Why a packet number is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// A packet with this number was received before.
    Duplicate,
    /// The number lies below the window.
    TooOld {
        /// The largest number received.
        largest: u64,
    },
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate => f.write_str("the packet number was received before"),
            Self::TooOld { largest } => write!(
                f,
                "the packet number is {} or more below the largest received, {largest}",
                ReplayWindow::SIZE
            ),
        }
    }
}

impl core::error::Error for Replay {}

fn ring_index(word: u64) -> usize {
    (word % WORDS as u64) as usize
}

fn position(packet_number: u64) -> (usize, u64) {
    (ring_index(packet_number / WORD_BITS), 1 << (packet_number % WORD_BITS))
}
