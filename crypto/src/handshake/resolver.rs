//! The primitives that `snow` works with: randomness from the caller's generator, X25519 and
//! ChaCha20-Poly1305 from AWS-LC, BLAKE2s from `blake2`. Unlike `snow`'s own they erase what they
//! keep.

use core::hint::black_box;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, UnparsedPublicKey, X25519, agree};
use blake2::{Blake2s256, Digest};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use zeroize::Zeroizing;

/// Tests take note of the secrets.
#[cfg(test)]
use super::tests::residue::{note, note_input};
use crate::Rng;
use crate::aead::TAG_LEN;

const KEY_LEN: usize = 32;

/// Bytes that BLAKE2s compresses at a time, and of its result (RFC 7693, section 2.1).
const BLOCK_LEN: usize = 64;
const HASH_LEN: usize = 32;

#[cfg(not(test))]
fn note(_: &[u8]) {}
#[cfg(not(test))]
fn note_input(_: &[u8]) {}

/// Resolves the primitives of one handshake. Randomness comes from `seed`, never from the
/// operating system.
///
/// `snow` asks once per handshake for a generator. Asked again, this would give the same stream,
/// so one resolver must not build two handshakes; `Builder` consumes it.
pub(super) struct Resolver {
    seed: Zeroizing<[u8; 32]>,
}

impl Resolver {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { seed: Zeroizing::new(rng.bytes()) }
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Rng::new(*self.seed)))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<X25519Key>::default() as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::Blake2s).then(|| Box::<Blake2s>::default() as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        let is_ours = matches!(choice, CipherChoice::ChaChaPoly);
        is_ours.then(|| Box::<ChaChaPoly>::default() as Box<dyn Cipher>)
    }
}

impl Random for Rng {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        self.fill(out);
        Ok(())
    }
}

/// A key pair. A shared secret of zeros, which a public key of small order gives (RFC 7748 section
/// 6.1), is refused.
#[derive(Default)]
struct X25519Key {
    private: Zeroizing<[u8; KEY_LEN]>,
    public: [u8; KEY_LEN],
    key: Option<agreement::PrivateKey>,
}

impl Dh for X25519Key {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_LEN
    }

    fn priv_len(&self) -> usize {
        KEY_LEN
    }

    fn set(&mut self, private: &[u8]) {
        note(private);
        self.private.copy_from_slice(private);
        let key = private_key(&self.private);
        self.public = public_key(&key);
        self.key = Some(key);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut private = Zeroizing::new([0; KEY_LEN]);
        rng.try_fill_bytes(&mut *private)?;
        self.set(&*private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let key = self.key.as_ref().ok_or(Error::Dh)?;
        let public = public.get(..KEY_LEN).ok_or(Error::Dh)?;
        agree(key, UnparsedPublicKey::new(&X25519, public), Error::Dh, |secret| {
            note(secret);
            out[..KEY_LEN].copy_from_slice(secret);
            Ok(())
        })
    }
}

/// ChaCha20-Poly1305 with the nonces of Noise (section 12.3): 32 bits of zeros, 64 bits LE.
#[derive(Default)]
struct ChaChaPoly {
    key: Zeroizing<[u8; KEY_LEN]>,
}

impl ChaChaPoly {
    fn key(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &*self.key);
        LessSafeKey::new(key.expect("ChaCha20-Poly1305 takes 32-byte keys"))
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY_LEN]) {
        note(key);
        self.key.copy_from_slice(key);
    }

    fn encrypt(&self, counter: u64, aad: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, tag) = out[..plaintext.len() + TAG_LEN].split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let sealed = self.key().seal_in_place_separate_tag(nonce(counter), Aad::from(aad), text);
        tag.copy_from_slice(sealed.expect("a message is shorter than the AEAD's limit").as_ref());
        plaintext.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        counter: u64,
        aad: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (text, tag) = ciphertext.split_last_chunk::<TAG_LEN>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..text.len()).ok_or(Error::Decrypt)?;
        self.key()
            .open_separate_gather(nonce(counter), Aad::from(aad), text, tag, out)
            .map_err(|_| Error::Decrypt)?;
        Ok(text.len())
    }
}

/// BLAKE2s. Its block holds what was hashed last, such as keys.
#[derive(Default)]
struct Blake2s(Blake2s256);

impl Blake2s {
    fn start_anew(&mut self) -> Blake2s256 {
        let former = core::mem::take(&mut self.0);
        black_box(&mut self.0);
        former
    }
}

impl Hash for Blake2s {
    fn name(&self) -> &'static str {
        "BLAKE2s"
    }

    fn block_len(&self) -> usize {
        BLOCK_LEN
    }

    fn hash_len(&self) -> usize {
        HASH_LEN
    }

    fn reset(&mut self) {
        self.start_anew();
    }

    fn input(&mut self, data: &[u8]) {
        note_input(data);
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..HASH_LEN].copy_from_slice(&self.start_anew().finalize());
    }
}

impl Drop for Blake2s {
    fn drop(&mut self) {
        self.reset();
    }
}

/// The public key that belongs to a private key (RFC 7748 section 6.1).
pub(crate) fn x25519_public(private: &[u8; KEY_LEN]) -> [u8; KEY_LEN] {
    public_key(&private_key(private))
}

fn private_key(private: &[u8; KEY_LEN]) -> agreement::PrivateKey {
    agreement::PrivateKey::from_private_key(&X25519, private)
        .expect("every 32 bytes are an X25519 private key")
}

fn public_key(key: &agreement::PrivateKey) -> [u8; KEY_LEN] {
    let public = key.compute_public_key().expect("every X25519 private key has a public key");
    public.as_ref().try_into().expect("an X25519 public key has 32 bytes")
}
