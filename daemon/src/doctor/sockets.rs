//! Open ports of the host, and the processes that hold them.

use std::fs;

/// Socket states in /proc/net (`net/tcp_states.h`) of an unconnected UDP socket and of a listening
/// TCP socket.
const CLOSE: u8 = 7;
const LISTEN: u8 = 10;

/// A port with a socket that accepts packets from any address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenPort {
    pub(super) port: u16,
    /// The socket's inode; 0 if no process holds the socket.
    pub(super) inode: u64,
}

/// The open ports of `protocol` (`udp` or `tcp`), for both families.
pub(super) fn open(protocol: &str) -> Vec<OpenPort> {
    let state = if protocol == "udp" { CLOSE } else { LISTEN };
    let files = [protocol.to_owned(), format!("{protocol}6")];
    let texts = files.map(|file| fs::read_to_string(format!("/proc/thread-self/net/{file}")));
    texts.iter().flatten().flat_map(|text| parse(text, state)).collect()
}

/// The sockets of /proc/net/udp or tcp (proc_net(5)) that are in `state`.
fn parse(text: &str, state: u8) -> Vec<OpenPort> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let found = u8::from_str_radix(fields.get(3)?, 16).ok()?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let inode = fields.get(9)?.parse().ok()?;
        (found == state).then_some(OpenPort { port, inode })
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// The process that holds the socket with this inode, if the caller may see it.
pub(super) fn owner(inode: u64) -> Option<String> {
    let link = format!("socket:[{inode}]");
    let holds = |process: &fs::DirEntry| {
        let files = fs::read_dir(process.path().join("fd")).ok()?;
        let mut files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.any(|file| file.to_str() == Some(&link)).then_some(())
    };
    let numbered = |process: &fs::DirEntry| {
        process.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut processes = fs::read_dir("/proc").ok()?.flatten().filter(numbered);
    let process = processes.find(|process| holds(process).is_some())?;
    let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
    let number = process.file_name();
    Some(format!("{} (process {})", name.trim(), number.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    const UDP: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2145: 00000000:1826 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0 0
 2146: 0100007F:1827 0100007F:0035 01 00000000:00000000 00:00000000 00000000     0        0 4712 2 0 0
";

    #[test]
    fn connected_udp_sockets_are_not_open_to_everybody() {
        assert_eq!(parse(UDP, CLOSE), [OpenPort { port: 6182, inode: 4711 }]);
    }

    #[test]
    fn our_own_sockets_are_found_and_we_are_their_owner() {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let tcp = TcpListener::bind("[::1]:0").expect("loopback");
        for (protocol, address) in [("udp", udp.local_addr()), ("tcp", tcp.local_addr())] {
            let port = address.expect("bound").port();
            let list = open(protocol);
            let found = list.iter().find(|open| open.port == port).expect("it is open");
            let owner = owner(found.inode).expect("ours");
            assert!(owner.ends_with(&format!("(process {})", std::process::id())), "{owner}");
        }
    }
}
