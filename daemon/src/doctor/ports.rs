//! Whether other programs have the ports that mpipd needs.

use super::finding::{Finding, Mend};
use super::sockets::{OpenPort, owner};
use super::subject::Subject;
use super::survey::{Running, Survey};

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, udp, tcp, running, .. } = survey;
    // A running daemon has its ports, or has logged which it could not get.
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
        true => Finding::wrong(what, "the paths of a peer use TCP only", mend),
        false => Finding::note(what, "paths use UDP only", mend),
    })
}

fn described(owner: Option<String>) -> String {
    owner.unwrap_or_else(|| "another program".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::super::subject::TcpPort;
    use super::*;

    #[test]
    fn a_taken_udp_port_is_named_with_its_owner() {
        let open = [OpenPort { port: 6182, inode: 4711 }];
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
        assert_eq!(severity(subject(true, 443)), Some(Severity::Wrong));
        assert_eq!(severity(subject(false, 443)), Some(Severity::Note));
        assert_eq!(severity(subject(true, 6182)), None);
        assert_eq!(severity(Subject::default()), None, "no paths by TCP");
    }
}
