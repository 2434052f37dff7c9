//! Ports that other programs have.

use std::fs;

use super::subject::Subject;
use super::survey::{Running, Survey};
use super::{Finding, Mend};

/// States of a socket in /proc/net (`net/tcp_states.h`): a UDP socket that is not connected, and
/// a TCP socket that listens.
const CLOSE: u8 = 7;
const LISTEN: u8 = 10;

/// A port at which a socket waits for anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenPort {
    port: u16,
    /// Number of the socket's inode; 0 for one that no process holds.
    inode: u64,
}

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, udp, tcp, running, .. } = survey;
    // Those of a daemon that runs are its own; what it could not have, it says in its log.
    if matches!(running, Running::Yes(_)) {
        return Vec::new();
    }
    udp_port(subject, udp, owner).into_iter().chain(tcp_port(subject, tcp, owner)).collect()
}

fn udp_port(
    subject: &Subject,
    open: &[OpenPort],
    owner: impl Fn(u64) -> Option<String>,
) -> Option<Finding> {
    let port = subject.listen_port;
    let taken = open.iter().find(|open| open.port == port)?;
    Some(Finding::wrong(
        format!("UDP port {port} belongs to {}", described(owner(taken.inode))),
        "mpipd needs it for its paths",
        Mend::words("end that program or set another `listen_port`, also in the peers' endpoints"),
    ))
}

fn tcp_port(
    subject: &Subject,
    open: &[OpenPort],
    owner: impl Fn(u64) -> Option<String>,
) -> Option<Finding> {
    let wanted = subject.tcp_port?;
    let taken = open.iter().find(|open| open.port == wanted.number)?;
    let what = format!("TCP port {} belongs to {}", wanted.number, described(owner(taken.inode)));
    let mend = Mend::words("end that program or set another `tcp_port`, also at the peers");
    Some(match wanted.required {
        true => Finding::wrong(what, "a peer has no paths but by TCP", mend),
        false => Finding::note(what, "paths from there go by UDP alone", mend),
    })
}

fn described(owner: Option<String>) -> String {
    owner.unwrap_or_else(|| "another program".to_owned())
}

/// The open ports of `protocol` (`udp` or `tcp`), for both families.
pub(super) fn open(protocol: &str) -> Vec<OpenPort> {
    let state = if protocol == "udp" { CLOSE } else { LISTEN };
    let files = [protocol.to_owned(), format!("{protocol}6")];
    let texts = files.map(|file| fs::read_to_string(format!("/proc/thread-self/net/{file}")));
    texts.iter().flatten().flat_map(|text| parse(text, state)).collect()
}

/// Reads /proc/net/udp or tcp (proc_net(5)): those in `state`.
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

/// The process that holds the socket, where it can be seen.
fn owner(inode: u64) -> Option<String> {
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

    use super::super::subject::TcpPort;
    use super::*;

    const UDP: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2145: 00000000:1826 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0 0
 2146: 0100007F:1827 0100007F:0035 01 00000000:00000000 00:00000000 00000000     0        0 4712 2 0 0
";

    #[test]
    fn a_taken_udp_port_is_named_with_its_owner() {
        let open = parse(UDP, CLOSE);
        assert_eq!(open, [OpenPort { port: 6182, inode: 4711 }], "one is connected");
        let owner = |inode| (inode == 4711).then(|| "dns (process 7)".to_owned());
        let finding = udp_port(&Subject::default(), &open, owner).expect("taken");
        assert_eq!(finding.what, "UDP port 6182 belongs to dns (process 7)");
        let other = Subject { listen_port: 6183, ..Subject::default() };
        assert_eq!(udp_port(&other, &open, owner), None);
    }

    #[test]
    fn a_taken_tcp_port_is_wrong_where_there_is_no_other_way() {
        let open = [OpenPort { port: 443, inode: 1 }];
        let subject = |required, number| Subject {
            tcp_port: Some(TcpPort { number, required, named: true }),
            ..Subject::default()
        };
        let severity =
            |subject: Subject| tcp_port(&subject, &open, |_| None).map(|finding| finding.severity);
        assert_eq!(severity(subject(true, 443)), Some(super::super::Severity::Wrong));
        assert_eq!(severity(subject(false, 443)), Some(super::super::Severity::Note));
        assert_eq!(severity(subject(true, 6182)), None);
        assert_eq!(severity(Subject::default()), None, "no paths by TCP");
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
