//! Address prefixes.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The prefix of `len` bits of `address`; bits beyond are cleared. `None` if `len` exceeds the
    /// address.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if len <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) if len <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
            _ => return None,
        };
        Some(Self { address, len })
    }

    /// The prefix of this address alone.
    pub fn host(address: IpAddr) -> Self {
        Self { address, len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits count.
    pub fn prefix_len(&self) -> u8 {
        self.len
    }

    /// Whether `address` is inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.len).is_some_and(|other| other == *self)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// Why a text is not an address prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixError(String);

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "expected an address prefix like 10.77.0.0/24 or 2001:db8::/32, found `{}`",
            self.0
        )
    }
}

impl core::error::Error for PrefixError {}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// `address/length`, or a single address.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let error = || PrefixError(text.to_owned());
        let (address, len) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let len = match len {
            Some(len) => len.parse().map_err(|_| error())?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Self::new(address, len).ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_its_addresses_only() {
        let prefix: Prefix = "198.18.4.77/22".parse().expect("valid");
        assert_eq!(prefix.to_string(), "198.18.4.0/22");
        assert!(prefix.contains("198.18.7.255".parse().expect("valid")));
        assert!(!prefix.contains("198.18.8.0".parse().expect("valid")));
        assert!(!prefix.contains("2001:db8::1".parse().expect("valid")));
        let all: Prefix = "::/0".parse().expect("valid");
        assert!(all.contains("2001:db8::1".parse().expect("valid")));
        assert!(!all.contains("198.18.0.1".parse().expect("valid")));
    }

    #[test]
    fn a_text_that_is_no_prefix_is_named_in_the_error() {
        for text in ["198.18.0.0/33", "::/129", "198.18.0/8", "", "198.18.0.0/", "x/8"] {
            let error = text.parse::<Prefix>().expect_err("invalid");
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
