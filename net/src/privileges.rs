//! Giving up every privilege but the one that is needed.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Whether the calling thread may configure the network.
pub fn has_net_admin() -> io::Result<bool> {
    Ok(capabilities(None)?.effective.contains(CapabilitySet::NET_ADMIN))
}

/// What is kept besides `CAP_NET_ADMIN`, as far as the process has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Raw sockets: `CAP_NET_RAW`.
    pub raw_sockets: bool,
    /// Ports below 1024: `CAP_NET_BIND_SERVICE`.
    pub low_ports: bool,
}

/// Drops every capability but `CAP_NET_ADMIN` and what `needs` says from all sets of the calling
/// thread, for good.
///
/// Inheritable and ambient sets are emptied, the bounding set too (if the thread may change it;
/// without `CAP_SETPCAP` it had nothing to hand on), and no later `exec` gains a privilege. Threads
/// inherit this from the one that spawns them, so it is to be called before any is spawned.
///
/// What needs other privileges (opening files of other users) has to happen before.
///
/// # Errors
///
/// `PermissionDenied` when the thread has no `CAP_NET_ADMIN` to keep.
pub fn keep_net_admin(needs: Needs) -> io::Result<()> {
    let held = capabilities(None)?;
    if !held.permitted.contains(CapabilitySet::NET_ADMIN) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "expected the capability CAP_NET_ADMIN, which this process does not have",
        ));
    }
    if held.effective.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
    }
    let mut kept = CapabilitySet::NET_ADMIN;
    kept.set(CapabilitySet::NET_RAW, needs.raw_sockets);
    kept.set(CapabilitySet::NET_BIND_SERVICE, needs.low_ports);
    let kept = kept & held.permitted;
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Drops every capability but `CAP_NET_ADMIN`, which programs that this one runs have too, and no
/// more. It is to be called before any thread is spawned.
///
/// # Errors
///
/// `PermissionDenied` when the thread has no `CAP_NET_ADMIN`.
pub fn hand_on_net_admin() -> io::Result<()> {
    let held = capabilities(None)?;
    let kept = CapabilitySet::NET_ADMIN;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        reduce_bounding_set(kept)?;
    }
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
    clear_ambient_capability_set()?;
    configure_capability_in_ambient_set(kept, true)?;
    set_no_new_privs(true)?;
    Ok(())
}

fn empty_bounding_set() -> io::Result<()> {
    reduce_bounding_set(CapabilitySet::empty())
}

fn reduce_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    for bit in (0..u64::BITS).filter(|bit| kept.bits() & (1 << bit) == 0) {
        // The kernel's list is a prefix of the 64 bits; it refuses the first number beyond.
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            Err(Errno::INVAL) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
