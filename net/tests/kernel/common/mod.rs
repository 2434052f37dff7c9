//! Network namespaces of a test. They have no name: a namespace vanishes, with all that is in it,
//! when the last thread, socket or open file that belongs to it does, so nothing can be left over.

use std::fs::File;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mpip_net::netlink::Netlink;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

#[allow(dead_code, reason = "unit tests use the rest")]
pub(crate) mod packets;

/// What takes longer does not happen, however busy the machine is.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Waits until the interface is gone. A closed device stays while a child of another test has it
/// open too, until the child's execve(2).
pub(crate) fn wait_until_gone(netlink: &mut Netlink, interface: &str) {
    wait_until(&format!("{interface} is gone"), || netlink.link(interface).is_err());
}

/// Waits until the interface has no carrier. A kept device that was closed has one for as long as
/// a child of another test has it open, see [`wait_until_gone`].
pub(crate) fn wait_until_no_carrier(netlink: &mut Netlink, interface: &str) {
    let carrier = |netlink: &mut Netlink| netlink.link(interface).is_ok_and(|link| link.carrier);
    wait_until(&format!("{interface} has no carrier"), || !carrier(netlink));
}

/// Waits until packets to an IPv6 address of the calling thread's namespace arrive. A busy kernel
/// adds the route to it a moment after the address, when sockets can already be bound to it.
pub(crate) fn wait_until_arrives(address: Ipv6Addr) {
    let digits: String = address.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    let local = format!("{digits} 80 ");
    wait_until(&format!("a route to {address} of this host"), || {
        let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route");
        routes.expect("the routes").lines().any(|route| route.starts_with(&local))
    });
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + HANG;
    while !holds() {
        assert!(Instant::now() < deadline, "not after {HANG:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A network namespace with its loopback interface up.
pub(crate) struct Namespace(File);

impl Namespace {
    pub(crate) fn new() -> Self {
        let file = thread::spawn(|| {
            // SAFETY: a new network namespace for this thread, which shares no state with others
            // that depends on it.
            let status = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(status, 0, "unshare: {}", std::io::Error::last_os_error());
            File::open("/proc/thread-self/ns/net").expect("a network namespace")
        });
        let namespace = Self(file.join().expect("a namespace"));
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `body` in a thread inside the namespace.
    pub(crate) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("setns");
                body()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `ip` with these arguments inside.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        self.command("ip", arguments)
    }

    pub(crate) fn command(&self, program: &str, arguments: &str) -> String {
        let output = self.run(|| {
            Command::new(program).args(arguments.split_whitespace()).output().expect("a program")
        });
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Connects `self` and `other` by a pair of interfaces of this name.
    pub(crate) fn connect(&self, other: &Self, name: &str) {
        let there = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        self.ip(&format!("link add {name} type veth peer name {name} netns {there}"));
        for namespace in [self, other] {
            namespace.ip(&format!("link set {name} up"));
        }
    }
}
