//! Packet protection: sealing and opening packets in place under an association's keys.
//!
//! The nonce is the path identifier (32 bits) followed by the packet number (64 bits), as in
//! draft-ietf-quic-multipath section 5, so every lane has its own number space under one key.
//! Who seals must never use a number twice on one path under one key.

use core::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

#[cfg(test)]
mod tests;

/// Bytes of a key of either AEAD.
pub const KEY_LEN: usize = 32;

/// Bytes of the tag behind the ciphertext of either AEAD.
pub const TAG_LEN: usize = 16;

/// Shortest body that [`SealKey::seal_into`] seals where it lies, in bytes: to copy a shorter one
/// costs less than the library's second pass.
const SEPARATE_BODY: usize = 256;

const NONCE_LEN: usize = 12;

/// An algorithm that protects packets; the responder of a handshake chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aead {
    /// AES-256 in Galois/counter mode (NIST SP 800-38D).
    Aes256Gcm,
    /// ChaCha20 and Poly1305 (RFC 8439).
    ChaCha20Poly1305,
}

impl Aead {
    /// The code in the handshake response: 1 or 2.
    pub const fn code(self) -> u8 {
        match self {
            Self::Aes256Gcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }

    /// The algorithm with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Aes256Gcm),
            2 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    /// The bit of this algorithm in the offer of a handshake initiation.
    pub const fn offer_bit(self) -> u8 {
        1 << (self.code() - 1)
    }

    /// What an initiator offers: ChaCha20-Poly1305 always, AES-256-GCM only where the CPU has AES
    /// instructions, because in software it is slow and its timing depends on the data.
    pub const fn offers(cpu_has_aes: bool) -> u8 {
        let always = Self::ChaCha20Poly1305.offer_bit();
        if cpu_has_aes { always | Self::Aes256Gcm.offer_bit() } else { always }
    }

    /// What this machine runs fastest.
    pub const fn preferred(cpu_has_aes: bool) -> Self {
        if cpu_has_aes { Self::Aes256Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// What a responder chooses out of an initiator's `offers`: its own preference if that is
    /// offered, else ChaCha20-Poly1305 if offered, else none. Unknown bits are ignored.
    pub const fn choose(offers: u8, cpu_has_aes: bool) -> Option<Self> {
        let preferred = Self::preferred(cpu_has_aes);
        if offers & preferred.offer_bit() != 0 {
            Some(preferred)
        } else if offers & Self::ChaCha20Poly1305.offer_bit() != 0 {
            Some(Self::ChaCha20Poly1305)
        } else {
            None
        }
    }

    fn key(self, key: &[u8; KEY_LEN]) -> LessSafeKey {
        let algorithm = match self {
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        LessSafeKey::new(UnboundKey::new(algorithm, key).expect("both AEADs take 32-byte keys"))
    }
}

impl fmt::Display for Aead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        })
    }
}

/// Whether this CPU has the instructions that make AES-GCM fast (AES and carry-less multiply).
pub fn cpu_has_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull")
    }
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

/// Both directions of an association's packet protection. Each key can be shared between threads
/// and is erased when dropped.
#[derive(Debug)]
pub struct Keys {
    /// Seals what this side sends.
    pub send: SealKey,
    /// Opens what this side receives.
    pub receive: OpenKey,
}

/// Key that seals packets in one direction.
pub struct SealKey {
    aead: Aead,
    key: LessSafeKey,
}

impl SealKey {
    /// A key from its 32 bytes.
    pub fn new(aead: Aead, key: &[u8; KEY_LEN]) -> Self {
        Self { aead, key: aead.key(key) }
    }

    /// The algorithm of this key.
    pub fn aead(&self) -> Aead {
        self.aead
    }

    /// Turns `plaintext` into ciphertext of the same length and returns the tag that belongs
    /// behind it. `aad`, the clear header, is authenticated with it. Does not allocate.
    ///
    /// `path` and `packet_number` must not repeat together under one key: a repetition gives away
    /// both plaintexts and, with AES-GCM, the authentication key.
    ///
    /// # Panics
    /// If `plaintext` is longer than 64 GiB, which no packet is.
    pub fn seal_in_place(
        &self,
        path: u16,
        packet_number: u64,
        aad: &[u8],
        plaintext: &mut [u8],
    ) -> [u8; TAG_LEN] {
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(path, packet_number), Aad::from(aad), plaintext)
            .expect("packets are shorter than the AEAD's limit");
        let tag: &[u8] = tag.as_ref();
        tag.try_into().expect("both AEADs have 16-byte tags")
    }

    /// Seals a packet whose plaintext is the beginning of `out` and `body`: what is left of `out`
    /// is the room for the sealed `body` and the tag. A long body is read where it lies and written
    /// sealed, without a copy of the plaintext. Does not allocate.
    ///
    /// See [`seal_in_place`](Self::seal_in_place) for the other arguments.
    ///
    /// # Panics
    /// If `out` is shorter than `body` and the tag, or a packet longer than 64 GiB.
    pub fn seal_into(
        &self,
        path: u16,
        packet_number: u64,
        aad: &[u8],
        body: &[u8],
        out: &mut [u8],
    ) {
        let (plaintext, tag) = out.split_at_mut(out.len() - TAG_LEN);
        let (head, room) = plaintext.split_at_mut(plaintext.len() - body.len());
        // The library encrypts a separate body byte by byte with ChaCha20.
        if body.len() < SEPARATE_BODY || self.aead == Aead::ChaCha20Poly1305 {
            room.copy_from_slice(body);
            tag.copy_from_slice(&self.seal_in_place(path, packet_number, aad, plaintext));
            return;
        }
        let (head_len, nonce) = (head.len(), nonce(path, packet_number));
        let (head, sealed) = out.split_at_mut(head_len);
        self.key
            .seal_in_place_scatter(nonce, Aad::from(aad), head, body, sealed)
            .expect("packets are shorter than the AEAD's limit");
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({}, redacted)", self.aead)
    }
}

/// Key that opens packets of one direction.
pub struct OpenKey {
    aead: Aead,
    key: LessSafeKey,
}

impl OpenKey {
    /// A key from its 32 bytes.
    pub fn new(aead: Aead, key: &[u8; KEY_LEN]) -> Self {
        Self { aead, key: aead.key(key) }
    }

    /// The algorithm of this key.
    pub fn aead(&self) -> Aead {
        self.aead
    }

    /// Authenticates `aad` and `ciphertext_and_tag` and returns the plaintext, which lies at the
    /// beginning of the same buffer. Does not allocate.
    ///
    /// # Errors
    /// [`OpenError`] when anything differs from what was sealed; the buffer's content is then
    /// unspecified, and must not be used.
    pub fn open_in_place<'a>(
        &self,
        path: u16,
        packet_number: u64,
        aad: &[u8],
        ciphertext_and_tag: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        self.key
            .open_in_place(nonce(path, packet_number), Aad::from(aad), ciphertext_and_tag)
            .map_err(|_| OpenError)
    }
}

impl fmt::Debug for OpenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenKey({}, redacted)", self.aead)
    }
}

/// A packet is not what the peer sealed under this key, path, packet number and header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenError;

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the packet is not authentic under this key, path and packet number")
    }
}

impl core::error::Error for OpenError {}

fn nonce(path: u16, packet_number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..4].copy_from_slice(&u32::from(path).to_be_bytes());
    nonce[4..].copy_from_slice(&packet_number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}
