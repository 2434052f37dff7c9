//! What the service manager is told (sd_notify(3)): that the daemon works, and that it ends.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The daemon carries packets from here on.
pub(crate) const READY: &str = "READY=1";
/// It was told to end, or ends by an error.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Where the service manager listens, if one started this process and wants to know.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells the service manager `state`, if there is one.
pub(crate) fn notify(state: &str) {
    let Some(socket) = env::var_os(VARIABLE).filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(socket.as_bytes(), state) {
        log::warn!("the service manager is not told `{state}`: {error}");
    }
}

/// A name that begins with `@` is in the abstract namespace (unix(7)).
fn send(socket: &[u8], state: &str) -> io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    // It is not waited for, should it not keep up.
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_is_told_by_a_file_and_by_an_abstract_name() {
        let directory = mpip_testing::Directory::new();
        let file = directory.join("notify");
        let name = format!("mpip-notify-{}", std::process::id());
        let by_file = UnixDatagram::bind(&file).expect("writable");
        let address = SocketAddr::from_abstract_name(&name).expect("short");
        let by_name = UnixDatagram::bind_addr(&address).expect("unused");
        send(file.as_os_str().as_bytes(), READY).expect("it listens");
        send(format!("@{name}").as_bytes(), STOPPING).expect("it listens");
        for (socket, expected) in [(by_file, READY), (by_name, STOPPING)] {
            let mut state = [0; 32];
            let len = socket.recv(&mut state).expect("sent");
            assert_eq!(&state[..len], expected.as_bytes());
        }
        std::fs::remove_file(&file).expect("there");
        send(file.as_os_str().as_bytes(), READY).expect_err("nobody listens");
    }
}
