//! The primitives that `snow` works with: randomness from the caller's generator, X25519 from
//! AWS-LC, hash and cipher from `snow`'s defaults.

use aws_lc_rs::agreement::{self, UnparsedPublicKey, X25519, agree};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use zeroize::Zeroizing;

use crate::Rng;

const KEY_LEN: usize = 32;

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
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

impl Random for Rng {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        self.fill(out);
        Ok(())
    }
}

/// A key pair of `snow`'s. Unlike its own, it erases the private key, and refuses a shared secret
/// of zeros, which a public key of small order gives (RFC 7748 section 6.1).
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
            out[..KEY_LEN].copy_from_slice(secret);
            Ok(())
        })
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
