//! The TUN device: inner packets from and to this host, as super-packets of up to 64 KiB.

mod coalesce;
mod sink;
mod vnet;
mod writer;

use core::ffi::c_int;
use core::fmt;
use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use mpip_types::{PacketBuf, PacketPool};

pub use sink::Sink;
pub use vnet::FrameError;
pub(crate) use vnet::{VNET_HEADER_LEN, VnetHeader};
pub use writer::{TunCounters, TunWriter};

/// The kernel's TUN driver.
pub const DEVICE: &str = "/dev/net/tun";

/// Longest name of an interface (`IFNAMSIZ` less the terminating zero).
const MAX_NAME: usize = libc::IFNAMSIZ - 1;

/// Checksums, and TCP over IPv4 and IPv6 also with ECN.
const OFFLOAD_TCP: u32 =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// UDP, since Linux 6.2.
const OFFLOAD_UDP: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Why there is no TUN device.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is not one that an interface can have.
    InvalidName {
        /// The name.
        name: String,
    },
    /// The kernel's TUN driver cannot be opened.
    NoDriver {
        /// The reason.
        source: io::Error,
    },
    /// `CAP_NET_ADMIN` is missing.
    NotPermitted {
        /// The name of the device.
        name: String,
    },
    /// Another process uses the device.
    Busy {
        /// The name of the device.
        name: String,
    },
    /// An interface of this name exists that is not a TUN device with our settings.
    OtherInterface {
        /// The name of the interface.
        name: String,
    },
    /// A step failed for another reason.
    Failed {
        /// What was to be done.
        operation: &'static str,
        /// The name of the device.
        name: String,
        /// The reason.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidName { name } => write!(
                f,
                "expected an interface name of 1 to {MAX_NAME} bytes without `/`, `:`, `%` or \
                 white space, found `{name}`"
            ),
            Self::NoDriver { source } => write!(
                f,
                "cannot open {DEVICE}, which the TUN driver of the kernel (module tun) provides: \
                 {source}"
            ),
            Self::NotPermitted { name } => {
                write!(f, "creating the TUN device {name} needs the capability CAP_NET_ADMIN")
            }
            Self::Busy { name } => write!(f, "the TUN device {name} is in use by another process"),
            Self::OtherInterface { name } => write!(
                f,
                "expected {name} to be free or an unused TUN device, found another kind of \
                 interface of that name"
            ),
            Self::Failed { operation, name, source } => {
                write!(f, "cannot {operation} of the TUN device {name}: {source}")
            }
        }
    }
}

impl core::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::NoDriver { source } | Self::Failed { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why no packet was read.
#[derive(Debug)]
pub enum ReadError {
    /// Every buffer of the pool is in use. The packet stays in the device's queue.
    NoBuffer,
    /// The frame is broken and was dropped; the next read gets the next one.
    Frame(FrameError),
    /// The device failed, for instance because it was deleted.
    Device(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBuffer => f.write_str("every packet buffer is in use"),
            Self::Frame(error) => error.fmt(f),
            Self::Device(error) => write!(f, "cannot read from the TUN device: {error}"),
        }
    }
}

impl core::error::Error for ReadError {}

/// A TUN device of this process; it vanishes with it.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
    udp_segmentation: bool,
}

impl Tun {
    /// Creates the device `name`, or attaches to it when it exists and is unused. It is down and
    /// has no address.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        if !is_interface_name(name) {
            return Err(OpenError::InvalidName { name: name.to_owned() });
        }
        let fd = open_driver()?;
        attach(fd.as_fd(), name, libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR)?;
        let udp_segmentation = match set_offload(fd.as_fd(), OFFLOAD_TCP | OFFLOAD_UDP) {
            Ok(()) => true,
            Err(_) => {
                set_offload(fd.as_fd(), OFFLOAD_TCP).map_err(|source| OpenError::Failed {
                    operation: "set the offloads",
                    name: name.to_owned(),
                    source,
                })?;
                false
            }
        };
        Ok(Self { fd, name: name.to_owned(), udp_segmentation })
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the kernel exchanges super-packets of UDP too.
    pub fn udp_segmentation(&self) -> bool {
        self.udp_segmentation
    }

    /// The next packet that the host sends, in a buffer of `pool`; `None` when there is none now.
    pub fn read(&self, pool: &mut PacketPool) -> Result<Option<PacketBuf>, ReadError> {
        let filled = pool.fill(|buffer| {
            let mut header = [0; VNET_HEADER_LEN];
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
            let count = loop {
                match rustix::io::readv(&self.fd, &mut parts) {
                    Ok(count) => break count,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(ReadError::Device(error.into())),
                }
            };
            let len = count
                .checked_sub(VNET_HEADER_LEN)
                .ok_or(ReadError::Frame(FrameError::Truncated(count)))?;
            let offload = VnetHeader::from_bytes(header).offload(len).map_err(ReadError::Frame)?;
            Ok((len, offload))
        });
        match filled {
            None => Err(ReadError::NoBuffer),
            Some(Ok(packet)) => Ok(Some(packet)),
            Some(Err(ReadError::Device(error))) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(None)
            }
            Some(Err(error)) => Err(error),
        }
    }

    /// Hands one frame to the host.
    fn write(&self, header: VnetHeader, head: &[u8], tail: &[u8]) -> io::Result<()> {
        let header = header.to_bytes();
        let parts = [IoSlice::new(&header), IoSlice::new(head), IoSlice::new(tail)];
        loop {
            match rustix::io::writev(&self.fd, &parts) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The kernel's rule (`dev_valid_name`), and no `%`, which would ask for a numbered name.
fn is_interface_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name != "."
        && name != ".."
        && !name
            .bytes()
            .any(|byte| matches!(byte, b'/' | b':' | b'%' | 0 | 0x0b) || byte.is_ascii_whitespace())
}

fn open_driver() -> Result<OwnedFd, OpenError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(DEVICE);
    file.map(OwnedFd::from).map_err(|source| OpenError::NoDriver { source })
}

/// Creates the interface `name`, or attaches to it; returns the name that the kernel gave it.
fn attach(fd: BorrowedFd<'_>, name: &str, flags: c_int) -> Result<String, OpenError> {
    // SAFETY: the structure is plain data, for which zero is valid.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        i16::try_from(flags).expect("the flags of a TUN device fit 15 bits");
    // SAFETY: `TUNSETIFF` reads and writes a `struct ifreq`, which `request` is.
    let status = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if status >= 0 {
        let given = request.ifr_name.iter().take_while(|byte| **byte != 0);
        let given: Vec<u8> = given.map(|byte| byte.cast_unsigned()).collect();
        return Ok(String::from_utf8_lossy(&given).into_owned());
    }
    let source = io::Error::last_os_error();
    let name = name.to_owned();
    Err(match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted { name },
        Some(libc::EBUSY) => OpenError::Busy { name },
        Some(libc::EINVAL | libc::EEXIST) => OpenError::OtherInterface { name },
        _ => OpenError::Failed { operation: "create the interface", name, source },
    })
}

fn set_offload(fd: BorrowedFd<'_>, offload: u32) -> io::Result<()> {
    let offload = libc::c_ulong::from(offload);
    // SAFETY: `TUNSETOFFLOAD` takes a number.
    let status: c_int = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, offload) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", ".", "..", "a/b", "a b", "a:1", "tun%d", "abcdefghijklmnop"] {
            let error = Tun::open(name).expect_err("invalid");
            assert!(matches!(error, OpenError::InvalidName { .. }), "{error}");
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        }
        assert!(is_interface_name("abcdefghijklmno"));
        assert!(is_interface_name("mpip0"));
    }
}
