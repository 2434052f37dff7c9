//! Cookies: under load a responder does public-key work only for those who can receive at the
//! address they send from.
//!
//! As in WireGuard (Donenfeld, NDSS 2017, section 5.4.7). The reply is smaller than what it
//! answers, and encrypted, so that only who saw the refused datagram can read it.
//!
//! ```text
//! cookie reply   3 | 0 0 0 | receiver index u32 BE | nonce 12 | cookie 16 | tag 16
//! cookie         keyed BLAKE2s-128(secret of the period, source address octets | port u16 BE)
//! sealed by      ChaCha20-Poly1305, key BLAKE2s-256("mpip cookie key v1" | public key of the
//!                node under load | mac1 refused), associated data mac1
//! ```

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::aead::TAG_LEN;
use crate::mac::{MAC_LEN, MacError, keyed, labelled_hash, split_mac1, verify};
use crate::{PublicKey, Rng};

#[cfg(test)]
mod tests;

/// Bytes of a cookie reply datagram.
pub const COOKIE_REPLY_LEN: usize = 52;

/// How long one secret makes new cookies. They are accepted for one such period more, so that a
/// cookie lives at least this long from any moment it is given.
pub const SECRET_LIFETIME: Duration = Duration::from_secs(120);

/// How long an initiator uses a cookie after it came.
pub const COOKIE_LIFETIME: Duration = SECRET_LIFETIME;

const COOKIE_LABEL: &[u8] = b"mpip cookie key v1";

/// First 4 bytes of a cookie reply: its type and three zeros.
const HEADER: [u8; 4] = [3, 0, 0, 0];

const NONCE_START: usize = 8;
const SEALED_START: usize = 20;

/// The side under load: gives cookies and recognizes them, without memory per sender.
#[derive(Debug)]
pub struct CookieJar {
    local: PublicKey,
    rng: Rng,
    period: u64,
    current: Zeroizing<[u8; 32]>,
    previous: Zeroizing<[u8; 32]>,
}

impl CookieJar {
    /// A jar of the node with this static public key. Draws its secrets from a fork of `rng`.
    pub fn new(rng: &mut Rng, local: &PublicKey) -> Self {
        let mut rng = rng.fork();
        let current = Zeroizing::new(rng.bytes());
        let previous = Zeroizing::new(rng.bytes());
        Self { local: *local, rng, period: 0, current, previous }
    }

    /// Checks that mac2 of a handshake datagram from `source` was made with a cookie given to
    /// that address not long ago. `now` is the time since any fixed origin.
    ///
    /// # Errors
    /// [`MacError`] when it was not, which includes a mac2 of zeros.
    pub fn verify(
        &mut self,
        now: Duration,
        source: SocketAddr,
        datagram: &[u8],
    ) -> Result<(), MacError> {
        self.rotate(now);
        let (covered, mac2) = datagram.split_last_chunk::<MAC_LEN>().ok_or(MacError)?;
        let current = verify(&cookie(&self.current, source), covered, mac2);
        current.or_else(|_| verify(&cookie(&self.previous, source), covered, mac2))
    }

    /// The cookie reply to `refused`, a handshake datagram from `source` whose mac1 was verified.
    ///
    /// # Errors
    /// [`CookieError::Length`] when `refused` is shorter than an index and two MACs.
    pub fn reply(
        &mut self,
        now: Duration,
        source: SocketAddr,
        refused: &[u8],
    ) -> Result<[u8; COOKIE_REPLY_LEN], CookieError> {
        const SHORTEST: usize = NONCE_START + 2 * MAC_LEN;
        let too_short = CookieError::Length { expected: SHORTEST, received: refused.len() };
        if refused.len() < SHORTEST {
            return Err(too_short);
        }
        let (_, mac1) = split_mac1(refused).ok_or(too_short)?;
        self.rotate(now);

        let nonce = self.rng.bytes();
        let mut reply = [0; COOKIE_REPLY_LEN];
        reply[..4].copy_from_slice(&HEADER);
        reply[4..NONCE_START].copy_from_slice(&refused[4..8]);
        reply[NONCE_START..SEALED_START].copy_from_slice(&nonce);
        let (cookie_bytes, tag_bytes) = reply[SEALED_START..].split_at_mut(MAC_LEN);
        cookie_bytes.copy_from_slice(&cookie(&self.current, source));
        let tag = reply_key(&self.local, mac1)
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(mac1),
                cookie_bytes,
            )
            .expect("a cookie is shorter than the AEAD's limit");
        tag_bytes.copy_from_slice(tag.as_ref());
        Ok(reply)
    }

    /// Replaces the secrets when `now` lies in a later period.
    fn rotate(&mut self, now: Duration) {
        let period = now.as_secs() / SECRET_LIFETIME.as_secs();
        if period <= self.period {
            return;
        }
        let fresh = Zeroizing::new(self.rng.bytes());
        self.previous = if period == self.period + 1 {
            core::mem::replace(&mut self.current, fresh)
        } else {
            self.current = fresh;
            Zeroizing::new(self.rng.bytes())
        };
        self.period = period;
    }
}

/// The initiator's side: keeps the cookie that one peer gave it.
#[derive(Debug)]
pub struct CookieMemory {
    remote: PublicKey,
    /// mac1 of the handshake datagram sent last, until a cookie reply to it came.
    sent_mac1: Option<[u8; MAC_LEN]>,
    cookie: Option<(Duration, [u8; MAC_LEN])>,
}

impl CookieMemory {
    /// A memory of cookies from the peer with this static public key.
    pub fn new(remote: &PublicKey) -> Self {
        Self { remote: *remote, sent_mac1: None, cookie: None }
    }

    /// Prepares a handshake datagram to be sent at `now`: writes mac2 if there is a cookie not
    /// older than [`COOKIE_LIFETIME`], else leaves it, and remembers mac1 so that a reply to this
    /// datagram is understood.
    ///
    /// # Panics
    /// If `datagram` has no room for both MACs. What `Initiator::start` and `Responder::respond`
    /// give has it.
    pub fn stamp(&mut self, now: Duration, datagram: &mut [u8]) {
        let (_, mac1) = split_mac1(datagram).expect("handshake datagrams end in two MACs");
        self.sent_mac1 = Some(*mac1);
        if let Some((_, cookie)) =
            self.cookie.filter(|(received, _)| now.saturating_sub(*received) < COOKIE_LIFETIME)
        {
            let start = datagram.len() - MAC_LEN;
            let mac2 = keyed(&cookie, &datagram[..start]);
            datagram[start..].copy_from_slice(&mac2);
        }
    }

    /// Takes the cookie out of a cookie reply that came at `now`; the next datagram carries it.
    ///
    /// # Errors
    /// [`CookieError`]; nothing changes then, so forged replies do no harm. A reply is accepted
    /// once per datagram sent.
    pub fn receive(&mut self, now: Duration, reply: &[u8]) -> Result<(), CookieError> {
        let reply: &[u8; COOKIE_REPLY_LEN] = reply.try_into().map_err(|_| CookieError::Length {
            expected: COOKIE_REPLY_LEN,
            received: reply.len(),
        })?;
        if reply[..4] != HEADER {
            return Err(CookieError::Header { received: reply[0] });
        }
        let mac1 = self.sent_mac1.ok_or(CookieError::Unexpected)?;
        let nonce = reply[NONCE_START..SEALED_START].try_into().expect("the nonce has 12 bytes");
        let mut sealed = [0; MAC_LEN + TAG_LEN];
        sealed.copy_from_slice(&reply[SEALED_START..]);
        let cookie = reply_key(&self.remote, &mac1)
            .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(mac1), &mut sealed)
            .map_err(|_| CookieError::Authentication)?;
        let cookie = (&*cookie).try_into().expect("a cookie has 16 bytes");
        self.cookie = Some((now, cookie));
        self.sent_mac1 = None;
        Ok(())
    }
}

/// Why a cookie reply could not be made or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieError {
    /// The datagram has another length.
    Length {
        /// Bytes that are needed.
        expected: usize,
        /// Bytes that came.
        received: usize,
    },
    /// The first four bytes are not type 3 and three zeros.
    Header {
        /// The type that came.
        received: u8,
    },
    /// No datagram was sent that this could answer.
    Unexpected,
    /// The peer did not make this reply to the datagram sent last.
    Authentication,
}

impl fmt::Display for CookieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, received } => {
                write!(f, "expected a datagram of {expected} bytes, received {received}")
            }
            Self::Header { received } => write!(
                f,
                "expected a cookie reply (type 3 and three zeros), received type {received}"
            ),
            Self::Unexpected => f.write_str("no handshake datagram awaits a cookie reply"),
            Self::Authentication => {
                f.write_str("the cookie reply does not answer the datagram sent last")
            }
        }
    }
}

impl core::error::Error for CookieError {}

/// The cookie for `source` under one secret. IPv4-mapped addresses count as IPv4, so that the
/// kind of socket that received the datagram makes no difference.
fn cookie(secret: &[u8; 32], source: SocketAddr) -> [u8; MAC_LEN] {
    let mut bytes = [0; 18];
    let octets = match source.ip().to_canonical() {
        IpAddr::V4(ip) => {
            bytes[..4].copy_from_slice(&ip.octets());
            4
        }
        IpAddr::V6(ip) => {
            bytes[..16].copy_from_slice(&ip.octets());
            16
        }
    };
    bytes[octets..octets + 2].copy_from_slice(&source.port().to_be_bytes());
    keyed(secret, &bytes[..octets + 2])
}

fn reply_key(under_load: &PublicKey, mac1: &[u8; MAC_LEN]) -> LessSafeKey {
    let key = labelled_hash(COOKIE_LABEL, under_load, mac1);
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).expect("the key has 32 bytes"))
}
