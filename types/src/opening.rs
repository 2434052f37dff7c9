//! Opening that is done before the engine gets a datagram, on another thread: it needs a key, a
//! number and the datagram.

use core::fmt;

/// A key that opens datagrams, shared with threads that open them before the engine gets them. It
/// is erased with its last user.
pub trait Open: fmt::Debug + Send + Sync {
    /// Opens `datagram` in place, if it is one that this key can open. Changes no state: whether it
    /// is a replay is for the engine to say, which must get the datagram with what is returned.
    fn open(&self, datagram: &mut [u8]) -> Opened;
}

/// What became of a datagram before the engine got it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opened {
    /// Nothing: it is as it came.
    #[default]
    NotYet,
    /// It is authentic, and its frames stand where they were sealed.
    Authentic {
        /// Its packet number.
        number: u64,
        /// Which key opened it.
        key: u64,
    },
    /// The key did not open it. What was sealed is destroyed.
    Forged,
}
