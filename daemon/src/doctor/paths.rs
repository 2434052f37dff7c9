//! Peers and paths of a running daemon.

use mpip_api::{FaultStatus, PathStatus, PeerStatus, Status};

use super::finding::{Finding, Mend};
use super::survey::Survey;
use crate::kernel::IGNORED;

/// Uptime below which peers and paths are not judged, ms: the first handshakes may still be under
/// way.
const START_MS: f64 = 5_000.0;

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let mut findings = interfaces(survey);
    let Some(status) = survey.running.status() else { return findings };
    findings.extend(faults(status));
    findings.extend(no_address(status));
    findings.extend(not_permitted(status));
    findings.extend(changed_keys(status));
    if status.uptime_ms >= START_MS {
        for peer in &status.peers {
            findings.extend(peer_is_silent(peer));
            findings.extend(peer.paths.iter().filter_map(|path| failed(peer, path)));
            findings.extend(no_path_works(peer));
        }
    }
    findings
}

/// Interfaces that a `[[path]]` names and that are missing or unusable.
fn interfaces(survey: &Survey) -> Vec<Finding> {
    let unused = survey.subject.path_interfaces.iter().filter_map(|name| {
        let link = survey.links.iter().find(|link| link.name == *name);
        let started = survey.starts.iter().any(|start| start.interface == *name);
        let (what, mend) = match link {
            None => ("does not exist", Mend::words("check the name in its [[path]]")),
            Some(link) if !link.up => ("is down", Mend::command(format!("ip link set {name} up"))),
            Some(link) if !link.carrier => ("has no carrier", Mend::words("look at its cable")),
            Some(_) if !started => ("has no usable address", Mend::words("give it an address")),
            Some(_) => return None,
        };
        Some(Finding::note(format!("{name} {what}"), "no path starts from it", mend))
    });
    unused.collect()
}

/// What the daemon itself says is not as it should be on the host.
fn faults(status: &Status) -> Vec<Finding> {
    let faults = status.faults.iter().filter(|fault| fault.what != IGNORED.0);
    let device = &status.interface.name;
    let finding = |fault: &FaultStatus| {
        if fault.what.starts_with("budget of ") {
            let mend = "it ends by itself; a larger `budget` in its [[path]] and `mpip reload` end \
                        it sooner";
            return Finding::note(&fault.what, &fault.why, Mend::words(mend));
        }
        if fault.what.contains("which mpipd writes, is damaged") {
            let mend = "what was used is not known any more; `mpip status` shows what is counted";
            return Finding::note(&fault.what, &fault.why, Mend::words(mend));
        }
        let mend = match fault.what == format!("{device} is down") {
            true => Mend::command(format!("ip link set {device} up")),
            false => Mend::words(
                "see what the reason that the kernel gives has to do with; mpipd tries again by itself",
            ),
        };
        Finding::wrong(&fault.what, &fault.why, mend)
    };
    faults.map(finding).collect()
}

fn no_address(status: &Status) -> Option<Finding> {
    status.local_addresses.is_empty().then(|| {
        Finding::wrong(
            "no interface has an address that paths can use",
            "nothing can be sent",
            Mend::words("set an interface up with an address that others can reach"),
        )
    })
}

fn count(counters: &[mpip_api::Counter], name: &str) -> u64 {
    counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.count)
}

fn not_permitted(status: &Status) -> Option<Finding> {
    let count = count(&status.drops, "send_not_permitted");
    (count > 0).then(|| {
        Finding::wrong(
            format!("the kernel has refused to send {count} datagrams of mpip"),
            "a firewall rule for outgoing packets forbids them",
            Mend::words("let UDP and TCP from and to the peers' ports out (`nft list ruleset`)"),
        )
    })
}

fn changed_keys(status: &Status) -> Option<Finding> {
    let count = count(&status.events, "key-changed");
    (count > 0).then(|| {
        Finding::wrong(
            "a node has another key than the one pinned to its address",
            "it was reinstalled, or somebody poses as it; packets to it are plain IP",
            Mend::words("ask who runs it; `mpip availability` names it"),
        )
    })
}

fn peer_is_silent(peer: &PeerStatus) -> Option<Finding> {
    (!peer.established).then(|| {
        Finding::wrong(
            format!("peer `{}` is not established", peer.name),
            "it has not answered, or has refused",
            Mend::words(
                "see whether it runs, whether its endpoints and both public keys are right, and \
                 whether its firewall lets UDP to its port in",
            ),
        )
    })
}

fn failed(peer: &PeerStatus, path: &PathStatus) -> Option<Finding> {
    let PathStatus { interface, local, remote, .. } = path;
    (path.state == "failed").then(|| {
        Finding::wrong(
            format!("the path from {local} ({interface}) to {remote} has failed"),
            format!("peer `{}` does not answer on it any more", peer.name),
            Mend::words(
                "see whether the link works, and whether a firewall on the way forbids it; it \
                 returns by itself",
            ),
        )
    })
}

/// An association without a path that works.
fn no_path_works(peer: &PeerStatus) -> Option<Finding> {
    let works = |path: &PathStatus| matches!(path.state.as_str(), "active" | "standby");
    let waiting = peer.paths.iter().filter(|path| path.state == "validating").count();
    (peer.established && waiting > 0 && !peer.paths.iter().any(works)).then(|| {
        Finding::wrong(
            format!("peer `{}` has no path that works", peer.name),
            format!("{waiting} of them were never answered"),
            Mend::words("see whether firewalls let UDP to the ports of both ends in"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::super::tests_support::{link, path, peer, start, status, survey};
    use super::*;

    fn counter(name: &str, count: u64) -> mpip_api::Counter {
        mpip_api::Counter { name: name.to_owned(), count }
    }

    #[test]
    fn interfaces_of_the_configuration_that_are_not_usable_are_named() {
        let mut survey = survey();
        survey.subject.path_interfaces =
            ["eth0", "eth1", "eth2", "eth3", "wwan0"].map(str::to_owned).into();
        let down = mpip_net::netlink::Link { up: false, ..link(3, "eth1") };
        let pulled = mpip_net::netlink::Link { carrier: false, ..link(4, "eth2") };
        survey.links = vec![link(2, "eth0"), down, pulled, link(5, "eth3")];
        survey.starts = vec![start(2, "eth0", "198.18.0.1/24")];
        let found = interfaces(&survey);
        let what: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(
            what,
            [
                "eth1 is down",
                "eth2 has no carrier",
                "eth3 has no usable address",
                "wwan0 does not exist"
            ]
        );
        assert_eq!(found[0].mend, Mend::command("ip link set eth1 up"));
        assert!(found.iter().all(|finding| finding.severity == Severity::Note));
    }

    #[test]
    fn what_the_daemon_cannot_set_is_told() {
        let mut status = status();
        assert_eq!(faults(&status), []);
        status.interface.name = "mpip0".to_owned();
        let fault = |what: &str| FaultStatus {
            what: what.to_owned(),
            why: "packets leave".to_owned(),
            since_ms: 1.0,
            attempts: 1,
        };
        status.faults = ["cannot add a route", "mpip0 is down", IGNORED.0].map(fault).into();
        let found = faults(&status);
        assert_eq!(found.len(), 2, "the last has a check of its own");
        assert_eq!(
            (found[0].what.as_str(), found[0].severity),
            ("cannot add a route", Severity::Wrong)
        );
        assert_eq!(found[1].mend, Mend::command("ip link set mpip0 up"));
    }

    #[test]
    fn what_the_daemon_counts_is_told() {
        let mut status = status();
        assert_eq!((no_address(&status), not_permitted(&status)), (None, None));
        assert_eq!(changed_keys(&status), None);
        status.local_addresses.clear();
        status.drops = vec![counter("send_not_permitted", 3)];
        status.events = vec![counter("key-changed", 1)];
        assert!(no_address(&status).is_some() && changed_keys(&status).is_some());
        assert!(not_permitted(&status).expect("refused").what.contains("send 3 datagrams"));
    }

    #[test]
    fn peers_and_paths_that_do_not_work_are_named() {
        let good = peer();
        assert_eq!((peer_is_silent(&good), no_path_works(&good)), (None, None));
        assert_eq!(failed(&good, &good.paths[0]), None);

        let silent = PeerStatus { established: false, ..peer() };
        assert!(peer_is_silent(&silent).expect("silent").what.contains("`b` is not established"));
        let broken = PathStatus { state: "failed".to_owned(), ..path() };
        let what = failed(&good, &broken).expect("failed").what;
        assert_eq!(what, "the path from 198.18.0.1:6182 (eth0) to 198.18.0.2:6182 has failed");
        let asked = PathStatus { state: "validating".to_owned(), ..path() };
        let mut waiting = PeerStatus { paths: vec![asked.clone(), asked], ..peer() };
        assert!(no_path_works(&waiting).is_some());
        waiting.paths.push(path());
        assert_eq!(no_path_works(&waiting), None, "one that cannot be reached does no harm");
    }
}
