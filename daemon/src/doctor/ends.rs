//! What the peer's daemon sees beside what this one sees (`mpip doctor --peer`).

use mpip_api::{PathStatus, PeerAnswer};

use super::finding::{Finding, Mend};
use super::survey::Survey;

/// Difference of the clocks that confuses whoever reads two logs, ms.
const CLOCKS_MS: f64 = 5_000.0;
/// Loss that more than congestion explains.
const LOSS: f64 = 0.05;

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    survey.answer.as_deref().map(compare).unwrap_or_default()
}

/// What was asked and what came, in a line.
pub(super) fn summary(answer: &PeerAnswer) -> String {
    let PeerAnswer { address, own, view, took_ms, .. } = answer;
    let count = |paths: &[PathStatus]| paths.iter().filter(|path| works(path)).count();
    format!(
        "peer `{}` at {address}: release {}, {} paths work there, {} here, answered within \
         {took_ms:.0} ms",
        own.name,
        view.daemon_version,
        count(&view.association.paths),
        count(&own.paths)
    )
}

fn compare(answer: &PeerAnswer) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(release(answer));
    findings.extend(clocks(answer));
    findings.extend(modes(answer));
    for path in &answer.own.paths {
        findings.extend(path_at_both(answer, path));
    }
    findings.extend(unused_interfaces(answer));
    findings.extend(faults(answer));
    findings
}

fn there(words: &str) -> Mend {
    Mend::words(format!("on the peer's host, {words}"))
}

fn release(answer: &PeerAnswer) -> Option<Finding> {
    let (own, theirs) = (&answer.daemon_version, &answer.view.daemon_version);
    (own != theirs).then(|| {
        Finding::note(
            format!("peer `{}` runs mpipd {theirs}, this host {own}", answer.own.name),
            "what only one of them knows is not used",
            Mend::words("install the same release on both"),
        )
    })
}

fn clocks(answer: &PeerAnswer) -> Option<Finding> {
    // The answer left about half the time before it came.
    let ahead = answer.view.unix_time_ms - (answer.unix_time_ms - answer.took_ms / 2.0);
    (ahead.abs() > CLOCKS_MS + answer.took_ms).then(|| {
        let word = if ahead > 0.0 { "ahead" } else { "behind" };
        Finding::note(
            format!("the clock of peer `{}` is {:.0} s {word}", answer.own.name, ahead.abs() / 1e3),
            "times in the logs of both ends do not fit, and invitations may have expired too soon",
            Mend::words("set both clocks by NTP (`timedatectl set-ntp true`)"),
        )
    })
}

/// Settings that both ends have to agree about.
fn modes(answer: &PeerAnswer) -> Vec<Finding> {
    let (own, theirs) = (&answer.own, &answer.view.association);
    let name = &own.name;
    let mut findings = Vec::new();
    if own.host_mode != theirs.host_mode {
        let on = |on: bool| if on { "on" } else { "off" };
        findings.push(Finding::wrong(
            format!(
                "host_mode is {} here and {} at peer `{name}`",
                on(own.host_mode),
                on(theirs.host_mode)
            ),
            "packets to ordinary addresses take the paths in one direction only",
            Mend::words("set `host_mode` to the same in the [[peer]] sections of both"),
        ));
    }
    if own.policy != theirs.policy && own.host_mode {
        findings.push(Finding::note(
            format!("the policy is `{}` here and `{}` at peer `{name}`", own.policy, theirs.policy),
            "when no path works, one end sends plain packets that the other one refuses",
            Mend::words("set the same `policy` in the [[peer]] sections of both"),
        ));
    }
    findings
}

fn works(path: &PathStatus) -> bool {
    matches!(path.state.as_str(), "active" | "standby")
}

fn path_at_both(answer: &PeerAnswer, own: &PathStatus) -> Vec<Finding> {
    let name = &answer.own.name;
    let PathStatus { interface, local, remote, .. } = own;
    let path = format!("the path from {local} ({interface}) to {remote}");
    let theirs = answer.view.association.paths.iter().find(|theirs| theirs.id == own.id);
    let Some(theirs) = theirs else {
        return match works(own) {
            true => vec![Finding::note(
                format!("{path} is not known at peer `{name}`"),
                "it was closed there, or has just been opened",
                Mend::words("ask again; if it stays, look at the log there"),
            )],
            false => Vec::new(),
        };
    };
    let mut findings = Vec::new();
    if works(own) && !works(theirs) {
        findings.push(Finding::wrong(
            format!("{path} is {} at peer `{name}`, and {} here", theirs.state, own.state),
            "packets pass in one direction only: a firewall or NAT on the way drops those from here",
            there(&format!(
                "let UDP from {local} in at {} ({})",
                theirs.local, theirs.interface
            )),
        ));
    }
    let ways = [("to the peer", own.loss), ("from the peer", theirs.loss)];
    for (way, loss) in ways.iter().filter(|(_, loss)| works(own) && *loss >= LOSS) {
        findings.push(Finding::note(
            format!("{path} loses {:.0} % {way}", loss * 100.0),
            "mpip repairs it, which costs delay and part of the rate",
            Mend::words(
                "look at the link (radio, cable, a queue that is too short); `mpip bench` says what it \
                 carries",
            ),
        ));
    }
    findings
}

/// Interfaces of the peer from which no path starts.
fn unused_interfaces(answer: &PeerAnswer) -> Vec<Finding> {
    let name = &answer.own.name;
    let paths = &answer.view.association.paths;
    let mut unused: Vec<(&str, String)> = Vec::new();
    for local in &answer.view.local_addresses {
        let used = paths.iter().any(|path| path.interface == local.interface);
        if !used && !unused.iter().any(|(interface, _)| *interface == local.interface) {
            unused.push((&local.interface, local.address.to_string()));
        }
    }
    let finding = |(interface, address): &(&str, String)| {
        Finding::note(
            format!("no path to peer `{name}` ends at its {interface} ({address})"),
            "the interface is not used for this host",
            there(&format!(
                "see whether {address} can be reached from here (route, NAT, firewall); if it cannot, \
                 all is well"
            )),
        )
    };
    unused.iter().map(finding).collect()
}

fn faults(answer: &PeerAnswer) -> Option<Finding> {
    let count = answer.view.fault_count;
    (count > 0).then(|| {
        Finding::note(
            format!(
                "on the host of peer `{}` {count} thing(s) are not as they should be",
                answer.own.name
            ),
            "its daemon tries again by itself",
            there("run `mpip doctor`, which names them"),
        )
    })
}

#[cfg(test)]
mod tests {
    use mpip_api::{LocalAddressStatus, PeerView};

    use super::super::finding::Severity;
    use super::super::tests_support::peer;
    use super::*;

    fn answer() -> PeerAnswer {
        let local = |interface: &str, address: &str| LocalAddressStatus {
            interface: interface.to_owned(),
            address: address.parse().expect("valid"),
            mtu_bytes: 1_500,
        };
        let view = PeerView {
            daemon_version: "1".to_owned(),
            unix_time_ms: 1e12,
            cpu_ms: None,
            association: peer(),
            local_addresses: vec![local("eth0", "198.18.0.2")],
            fault_count: 0,
        };
        PeerAnswer {
            address: "10.77.0.2:6184".parse().expect("valid"),
            own: peer(),
            view,
            daemon_version: "1".to_owned(),
            took_ms: 40.0,
            unix_time_ms: 1e12 + 20.0,
        }
    }

    fn only(answer: &PeerAnswer) -> Finding {
        let findings = compare(answer);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings[0].clone()
    }

    #[test]
    fn two_ends_that_agree_have_no_fault() {
        assert_eq!(compare(&answer()), []);
        assert!(
            summary(&answer())
                .starts_with("peer `b` at 10.77.0.2:6184: release 1, 1 paths work there")
        );
    }

    #[test]
    fn a_path_that_works_at_one_end_only_is_wrong() {
        let mut broken = answer();
        broken.view.association.paths[0].state = "failed".to_owned();
        let finding = only(&broken);
        assert_eq!(finding.severity, Severity::Wrong);
        assert!(finding.what.ends_with("is failed at peer `b`, and active here"), "{finding:?}");
        broken.view.association.paths.clear();
        broken.view.local_addresses.clear();
        assert!(only(&broken).what.ends_with("is not known at peer `b`"));
        broken.own.paths[0].state = "failed".to_owned();
        assert_eq!(compare(&broken), [], "it works nowhere, which the other checks tell");
    }

    #[test]
    fn loss_is_told_with_its_direction() {
        let mut lossy = answer();
        lossy.view.association.paths[0].loss = 0.2;
        assert!(only(&lossy).what.ends_with("loses 20 % from the peer"));
        lossy.view.association.paths[0].loss = 0.0;
        lossy.own.paths[0].loss = 0.1;
        assert!(only(&lossy).what.ends_with("loses 10 % to the peer"));
    }

    #[test]
    fn what_differs_between_the_hosts_is_named() {
        let mut other = answer();
        other.view.daemon_version = "2".to_owned();
        assert!(only(&other).what.contains("mpipd 2, this host 1"));
        let mut other = answer();
        other.view.unix_time_ms -= 60_000.0;
        assert!(only(&other).what.ends_with("is 60 s behind"));
        let mut other = answer();
        other.view.association.host_mode = true;
        assert_eq!(only(&other).severity, Severity::Wrong);
        let mut other = answer();
        let spare = LocalAddressStatus {
            interface: "wwan0".to_owned(),
            ..other.view.local_addresses[0].clone()
        };
        other.view.local_addresses.push(spare);
        assert!(only(&other).what.contains("its wwan0"));
        let mut other = answer();
        other.view.fault_count = 2;
        assert!(only(&other).what.contains("2 thing(s)"));
    }
}
