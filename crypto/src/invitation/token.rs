//! The token: an invitation as one word that a person copies.
//!
//! `mpip1` and the URL-safe base64 (RFC 4648 section 5, without padding) of these bytes:
//!
//! | field | bytes |
//! |---|---|
//! | version 1 | 1 |
//! | secret | 32 |
//! | the gateway's static public key | 32 |
//! | expiry, seconds since 1970-01-01 UTC | 4 |
//! | flags: 1 if the gateway forwards to the Internet | 1 |
//! | the gateway's name; the invited node's name: each a length and UTF-8 | 1 + n |
//! | endpoints: their number, each 4 or 6, address, port | 1 + n × (7 or 19) |
//! | inner addresses of the invited: number, each 4 or 6, address, bits | 1 + n × (6 or 18) |
//! | prefixes reached through the gateway: likewise | 1 + n × (6 or 18) |
//! | BLAKE2s-128 of all before under the secret, its first half | 8 |

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blake2::{Blake2s256, Digest};
use zeroize::Zeroizing;

use super::secret::InvitationSecret;
use crate::PublicKey;
use crate::mac::keyed;

/// What every token begins with; the digit is the version of its form.
const PREFIX: &str = "mpip1";
const VERSION: u8 = 1;
const CHECK_LEN: usize = 8;
const FORWARDS: u8 = 1;
/// Longest token that is read, characters.
const TOKEN_MAX: usize = 4_096;
/// Most endpoints, addresses or prefixes, each, and longest name in bytes.
const ENTRIES_MAX: usize = 32;
const NAME_MAX: usize = 255;

/// What a gateway tells a node that it invites.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The one-time secret.
    pub secret: InvitationSecret,
    /// The gateway's static public key.
    pub gateway: PublicKey,
    /// When it ends, seconds since 1970-01-01 UTC.
    pub expires: u32,
    /// Whether the gateway forwards to the Internet.
    pub forwards: bool,
    /// What the gateway calls itself.
    pub gateway_name: String,
    /// What the gateway calls the invited node.
    pub name: String,
    /// Where the gateway is, at most 32.
    pub endpoints: Vec<SocketAddr>,
    /// Inner addresses of the invited node, each with the bits of its network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// What is reached through the gateway.
    pub prefixes: Vec<(IpAddr, u8)>,
}

impl Invitation {
    /// The token; erased when dropped. Names longer than 255 bytes and entries beyond 32 are cut.
    pub fn token(&self) -> Zeroizing<String> {
        let mut bytes = self.bytes();
        let check = keyed(self.secret.secret_bytes(), &bytes);
        bytes.extend_from_slice(&check[..CHECK_LEN]);
        let mut token = Zeroizing::new(PREFIX.to_owned());
        URL_SAFE_NO_PAD.encode_string(&*bytes, &mut token);
        token
    }

    /// A digest of all that the token says.
    pub fn digest(&self) -> [u8; 32] {
        Blake2s256::digest(&*self.bytes()).into()
    }

    fn bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(1_024));
        bytes.push(VERSION);
        bytes.extend_from_slice(self.secret.secret_bytes());
        bytes.extend_from_slice(self.gateway.as_bytes());
        bytes.extend_from_slice(&self.expires.to_be_bytes());
        bytes.push(if self.forwards { FORWARDS } else { 0 });
        for name in [&self.gateway_name, &self.name] {
            let end = (0..=name.len().min(NAME_MAX)).rev().find(|end| name.is_char_boundary(*end));
            let name = &name.as_bytes()[..end.unwrap_or(0)];
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name);
        }
        let endpoints = &self.endpoints[..self.endpoints.len().min(ENTRIES_MAX)];
        bytes.push(endpoints.len() as u8);
        for endpoint in endpoints {
            put_address(&mut bytes, endpoint.ip());
            bytes.extend_from_slice(&endpoint.port().to_be_bytes());
        }
        for list in [&self.addresses, &self.prefixes] {
            let list = &list[..list.len().min(ENTRIES_MAX)];
            bytes.push(list.len() as u8);
            for (address, len) in list {
                put_address(&mut bytes, *address);
                bytes.push(*len);
            }
        }
        bytes
    }

    /// The invitation in the token `text`, around which white space is ignored.
    ///
    /// # Errors
    /// [`TokenError`]; it says what a person can do about it.
    pub fn from_token(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let encoded = text.strip_prefix(PREFIX).ok_or_else(|| match text.strip_prefix("mpip") {
            Some(rest) if rest.starts_with(|first: char| first.is_ascii_digit()) => {
                TokenError::Version
            }
            _ => TokenError::NotAToken,
        })?;
        if encoded.len() > TOKEN_MAX {
            return Err(TokenError::Altered);
        }
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| TokenError::Altered)?;
        let bytes = Zeroizing::new(bytes);
        let (fields, check) = bytes.split_last_chunk::<CHECK_LEN>().ok_or(TokenError::Altered)?;
        let mut reader = Reader(fields);
        let version = reader.byte().ok_or(TokenError::Altered)?;
        let secret = reader.array::<32>().ok_or(TokenError::Altered)?;
        if keyed(secret, fields)[..CHECK_LEN] != *check {
            return Err(TokenError::Altered);
        }
        if version != VERSION {
            return Err(TokenError::Version);
        }
        let secret = InvitationSecret::from_bytes(*secret);
        reader.rest(secret).ok_or(TokenError::Altered)
    }
}

fn put_address(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            bytes.push(4);
            bytes.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            bytes.push(6);
            bytes.extend_from_slice(&address.octets());
        }
    }
}

/// A cursor; `None` where there is not enough, or nothing of the expected form.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| *byte)
    }

    fn name(&mut self) -> Option<String> {
        let len = self.byte()?;
        let (name, rest) = self.0.split_at_checked(len.into())?;
        self.0 = rest;
        let name = core::str::from_utf8(name).ok()?;
        (!name.chars().any(char::is_control)).then(|| name.to_owned())
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.byte()? {
            4 => self.array::<4>().map(|octets| IpAddr::from(*octets)),
            6 => self.array::<16>().map(|octets| IpAddr::from(*octets)),
            _ => None,
        }
    }

    fn list<T>(&mut self, mut entry: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::from(self.byte()?);
        (count <= ENTRIES_MAX).then(|| (0..count).map(|_| entry(self)).collect())?
    }

    fn endpoint(&mut self) -> Option<SocketAddr> {
        let address = self.address()?;
        let port = u16::from_be_bytes(*self.array()?);
        (port != 0).then(|| SocketAddr::new(address, port))
    }

    fn prefix(&mut self) -> Option<(IpAddr, u8)> {
        let address = self.address()?;
        let len = self.byte()?;
        (len <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, len))
    }

    /// The fields behind the secret, up to the end.
    fn rest(mut self, secret: InvitationSecret) -> Option<Invitation> {
        let invitation = Invitation {
            secret,
            gateway: PublicKey::from_bytes(*self.array()?),
            expires: u32::from_be_bytes(*self.array()?),
            forwards: self.byte()? & FORWARDS != 0,
            gateway_name: self.name()?,
            name: self.name()?,
            endpoints: self.list(Self::endpoint)?,
            addresses: self.list(Self::prefix)?,
            prefixes: self.list(Self::prefix)?,
        };
        self.0.is_empty().then_some(invitation)
    }
}

/// Why a text is not a token that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It does not begin as a token.
    NotAToken,
    /// It is incomplete, or has another character somewhere.
    Altered,
    /// It is of another release.
    Version,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAToken => {
                "expected a token of `mpip invite`, which begins with `mpip1`, found another text"
            }
            Self::Altered => {
                "the token is incomplete or was altered: copy all of it again, from the first to \
                 the last character"
            }
            Self::Version => {
                "the token was made by another release of mpip: install the same release here and \
                 on the gateway"
            }
        })
    }
}

impl core::error::Error for TokenError {}
