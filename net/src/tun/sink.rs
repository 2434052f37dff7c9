//! A TUN device that outlives the process and to which nobody is attached.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{OpenError, attach, open_driver};

/// A TUN device to which nobody is attached: the kernel drops what is routed to it. Unlike an
/// `unreachable` route, a route to it does not concern sockets that are bound to another interface,
/// for which Linux goes on to the next route, as it does for a route to any device.
#[derive(Debug)]
pub struct Sink {
    fd: OwnedFd,
    name: String,
}

impl Sink {
    /// Creates a device whose name begins with `prefix` and ends with the first number that is
    /// free. It is down, and vanishes with this unless it is [kept](Self::keep).
    pub fn create(prefix: &str) -> Result<Self, OpenError> {
        let fd = open_driver()?;
        let template = format!("{prefix}%d");
        let name = attach(fd.as_fd(), &template, libc::IFF_TUN | libc::IFF_NO_PI)?;
        Ok(Self { fd, name })
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets the device live on when this process has ended, until somebody deletes it. Nobody can
    /// attach to it but this process's user, and who may configure the network.
    pub fn keep(self) -> Result<(), OpenError> {
        let Self { fd, name } = self;
        let owner = libc::c_ulong::from(rustix::process::geteuid().as_raw());
        let kept = set(fd.as_fd(), libc::TUNSETOWNER, owner)
            .and_then(|()| set(fd.as_fd(), libc::TUNSETPERSIST, 1));
        kept.map_err(|source| OpenError::Failed { operation: "set owner and life", name, source })
    }
}

fn set(fd: BorrowedFd<'_>, request: libc::Ioctl, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: both requests that come here take a number.
    let status: c_int = unsafe { libc::ioctl(fd.as_raw_fd(), request, value) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
