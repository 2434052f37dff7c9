use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::Error;
use crate::bytes::{Reader, Writer};

const KIND_V4: u8 = 4;
const KIND_V6: u8 = 6;

/// Reads kind, port and address.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SocketAddr, Error> {
    let offset = reader.offset();
    let kind = reader.u8("kind of address")?;
    let port_field = "port";
    match kind {
        KIND_V4 => {
            let port = reader.u16(port_field)?;
            let ip = Ipv4Addr::from(reader.array::<4>("IPv4 address")?);
            Ok(SocketAddr::new(IpAddr::V4(ip), port))
        }
        KIND_V6 => {
            let port = reader.u16(port_field)?;
            let ip = Ipv6Addr::from(reader.array::<16>("IPv6 address")?);
            Ok(SocketAddr::new(IpAddr::V6(ip), port))
        }
        other => Err(Error::Value {
            field: "kind of address",
            offset,
            expected: "4 or 6",
            got: u64::from(other),
        }),
    }
}

pub(crate) fn write(writer: &mut Writer<'_>, address: &SocketAddr) -> Result<(), Error> {
    match address.ip() {
        IpAddr::V4(ip) => {
            writer.put(&[KIND_V4])?;
            writer.put(&address.port().to_be_bytes())?;
            writer.put(&ip.octets())
        }
        IpAddr::V6(ip) => {
            writer.put(&[KIND_V6])?;
            writer.put(&address.port().to_be_bytes())?;
            writer.put(&ip.octets())
        }
    }
}

pub(crate) const fn encoded_len(address: &SocketAddr) -> usize {
    match address {
        SocketAddr::V4(_) => 1 + 2 + 4,
        SocketAddr::V6(_) => 1 + 2 + 16,
    }
}

/// The addresses and ports at which a node can be reached: of a received frame, or of a slice to
/// be sent. Flow labels and scopes of IPv6 addresses are not carried.
#[derive(Clone, Copy)]
pub struct AddressList<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    /// Checked when it was parsed.
    Encoded {
        count: u8,
        bytes: &'a [u8],
    },
    Slice(&'a [SocketAddr]),
}

impl<'a> AddressList<'a> {
    /// Most addresses in a list.
    pub const MAX: usize = 16;

    /// A list to be sent.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when there are more than [`Self::MAX`].
    pub fn new(addresses: &'a [SocketAddr]) -> Result<Self, Error> {
        check_count(addresses.len(), 0)?;
        Ok(Self(Source::Slice(addresses)))
    }

    /// Number of addresses.
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Encoded { count, .. } => count as usize,
            Source::Slice(slice) => slice.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The addresses in the order of the list.
    pub const fn iter(&self) -> AddressIter<'a> {
        AddressIter(match self.0 {
            Source::Encoded { bytes, .. } => IterSource::Encoded(Reader::new(bytes)),
            Source::Slice(slice) => IterSource::Slice(slice),
        })
    }

    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let offset = reader.offset();
        let count = reader.u8("number of addresses")?;
        check_count(usize::from(count), offset)?;
        let bytes = reader.rest();
        let start = reader.offset();
        for _ in 0..count {
            read(reader)?;
        }
        Ok(Self(Source::Encoded { count, bytes: &bytes[..reader.offset() - start] }))
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        writer.put(&[self.len() as u8])?;
        match self.0 {
            Source::Encoded { bytes, .. } => writer.put(bytes),
            Source::Slice(slice) => slice.iter().try_for_each(|address| write(writer, address)),
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        1 + match self.0 {
            Source::Encoded { bytes, .. } => bytes.len(),
            Source::Slice(slice) => slice.iter().map(encoded_len).sum(),
        }
    }
}

fn check_count(count: usize, offset: usize) -> Result<(), Error> {
    if count > AddressList::MAX {
        return Err(Error::Value {
            field: "number of addresses",
            offset,
            expected: "at most 16",
            got: count as u64,
        });
    }
    Ok(())
}

impl PartialEq for AddressList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for AddressList<'_> {}

impl fmt::Debug for AddressList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for AddressList<'a> {
    type Item = SocketAddr;
    type IntoIter = AddressIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Iterator over the addresses of an [`AddressList`].
#[derive(Clone, Debug)]
pub struct AddressIter<'a>(IterSource<'a>);

#[derive(Clone, Debug)]
enum IterSource<'a> {
    Encoded(Reader<'a>),
    Slice(&'a [SocketAddr]),
}

impl Iterator for AddressIter<'_> {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        match &mut self.0 {
            IterSource::Encoded(reader) => read(reader).ok(),
            IterSource::Slice(slice) => {
                let (first, rest) = slice.split_first()?;
                *slice = rest;
                Some(plain(first))
            }
        }
    }
}

/// The address without flow label and scope.
fn plain(address: &SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}
