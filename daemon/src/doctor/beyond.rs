//! The way beyond the peers: `default_route` with its kill switch and its names, and forwarding
//! for `[gateway]` and `[router]`.

use std::net::IpAddr;
use std::path::Path;

use mpip_core::Prefix;
use mpip_net::netlink::Link;

use super::finding::{Finding, Mend};
use super::firewall;
use super::subject::Subject;
use super::survey::{Outward, Resolver, Running, Start, Survey};

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, running, .. } = survey;
    let mut findings = Vec::new();
    match running {
        Running::Yes(_) => {
            findings.extend(missing_table(survey));
            findings.extend(not_forwarding(subject, &survey.forwarding));
            findings.extend(escaping(subject, survey));
            let starts = &survey.starts;
            findings.extend(unreachable_names(subject, &survey.resolvers, starts));
        }
        Running::No => {
            findings.extend(left_table(survey));
            let record = survey.forwarding_record.as_ref();
            findings.extend(record.map(|(file, text)| left_forwarding(file, text, &survey.links)));
        }
        Running::Silent(_) => {}
    }
    if subject.forwards
        && let Some(ruleset) = &survey.ruleset
    {
        findings.extend(firewall::passing(ruleset, subject));
    }
    findings
}

fn restart(subject: &Subject) -> Mend {
    Mend::command(format!("{} && {}", subject.down, subject.up))
}

/// Somebody flushed the host's packet filter, and our table with it.
fn missing_table(survey: &Survey) -> Option<Finding> {
    let Survey { subject, ruleset, .. } = survey;
    let name = subject.table.as_deref()?;
    if ruleset.as_ref()?.has_table("inet", name) {
        return None;
    }
    let why = match (subject.default_route, subject.forwards) {
        (true, _) => "the kill switch does not hold: packets can leave beside the gateway",
        (false, _) => "what is forwarded for peers is not limited to them, nor masqueraded",
    };
    Some(Finding::wrong(
        format!("mpip's table `inet {name}` of nftables is gone"),
        format!("{why}; somebody has flushed the host's rules (`nft flush ruleset`) since"),
        restart(subject),
    ))
}

/// Our table, although no daemon runs.
fn left_table(survey: &Survey) -> Option<Finding> {
    let Survey { subject, ruleset, links, .. } = survey;
    let name = subject.table.as_deref()?;
    let there = ruleset.as_ref()?.has_table("inet", name);
    if !there || links.iter().any(|link| link.name == subject.interface) {
        return None;
    }
    let what =
        format!("mpip's table `inet {name}` of nftables is left by an mpipd that was killed");
    let delete = format!("nft delete table inet {name}");
    Some(match subject.default_route {
        true => Finding::wrong(
            what,
            "its kill switch refuses all packets for elsewhere than the local network",
            Mend::words(format!(
                "start it again, which takes over (`{}`), or let plain packets out: `{}` (without \
                 mpip: `{delete}`)",
                subject.up, subject.down
            )),
        ),
        false => Finding::note(what, "the next start replaces it", Mend::command(delete)),
    })
}

/// Forwarding that a killed daemon left on. `file` has `text`.
fn left_forwarding(file: &Path, text: &str, links: &[Link]) -> Finding {
    Finding::note(
        "forwarding is left switched on by an mpipd that was killed",
        "the host forwards packets between its interfaces; the next start puts that right",
        Mend::putting_back(file, text, links),
    )
}

/// Forwarding that somebody switched off. `forwarding`: by IPv4 and by IPv6, if it is known.
fn not_forwarding(subject: &Subject, forwarding: &[Option<bool>; 2]) -> Vec<Finding> {
    let names = [("IPv4", "net.ipv4.ip_forward"), ("IPv6", "net.ipv6.conf.all.forwarding")];
    let off =
        names.iter().zip(forwarding).filter(|(_, on)| subject.forwards && **on == Some(false));
    let finding = |((family, name), _): (&(&str, &str), _)| {
        Finding::wrong(
            format!("this host does not forward {family}"),
            "peers do not get beyond it; mpipd had switched it on, and somebody switched it off",
            Mend::command(format!("sysctl -w {name}=1")),
        )
    };
    off.map(finding).collect()
}

/// Packets for the Internet that do not leave by the tunnel.
fn escaping(subject: &Subject, survey: &Survey) -> Vec<Finding> {
    let Some(ours) = survey.links.iter().find(|link| link.name == subject.interface) else {
        return Vec::new();
    };
    let escapes = |outward: &&Outward| outward.leaves_by.is_some_and(|by| by != ours.index);
    let finding = |Outward { family, leaves_by }: &Outward| {
        let by = leaves_by.map_or("another interface", |by| survey.link_name(by));
        Finding::wrong(
            format!("packets for the Internet by {family} leave by {by}, not by {}", ours.name),
            "a routing rule or a more specific route comes before `default_route`, and the kill \
             switch refuses them",
            Mend::words(format!(
                "see `ip rule`, `ip route` (with -6 for IPv6), and remove what leads them to {by}: \
                 another VPN, a rule by source"
            )),
        )
    };
    survey.outward.iter().filter(escapes).map(finding).collect()
}

/// Resolvers that the kill switch keeps from being asked, and a host without any.
fn unreachable_names(
    subject: &Subject,
    resolvers: &[Resolver],
    starts: &[Start],
) -> Option<Finding> {
    if !subject.default_route {
        return None;
    }
    if resolvers.is_empty() {
        return Some(Finding::note(
            "no resolver is configured in /etc/resolv.conf",
            "names do not resolve, through the gateway or beside it",
            Mend::words("add a line like `nameserver 9.9.9.9`, which is asked through the gateway"),
        ));
    }
    let local = |address: IpAddr| {
        let on_link = |start: &Start| {
            Prefix::new(start.address, start.prefix_len).is_some_and(|net| net.contains(address))
        };
        address.is_loopback() || starts.iter().any(on_link)
    };
    let asked = resolvers.iter().filter(|resolver| resolver.by_interface);
    let refused: Vec<String> = asked
        .filter(|resolver| !local(resolver.address))
        .map(|resolver| resolver.address.to_string())
        .collect();
    let tun = &subject.interface;
    (!refused.is_empty()).then(|| {
        Finding::note(
            format!("systemd-resolved may ask {} beside the gateway", refused.join(", ")),
            "it asks the resolvers of an interface by that interface, which the kill switch refuses",
            Mend::command(format!("resolvectl dns {tun} 9.9.9.9 && resolvectl domain {tun} '~.'")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::super::ruleset::Ruleset;
    use super::super::tests_support::{link, start, status, survey};
    use super::*;

    fn ruleset(table: &str) -> Ruleset {
        let text =
            format!(r#"{{"nftables": [{{"table": {{"family": "inet", "name": "{table}"}}}}]}}"#);
        Ruleset::parse(&text).expect("valid")
    }

    fn bonded() -> Survey {
        let mut survey = survey();
        survey.subject.default_route = true;
        survey.subject.table = Some("mpip_mpip0".to_owned());
        survey.ruleset = Some(ruleset("mpip_mpip0"));
        survey.resolvers =
            vec![Resolver { address: "198.18.0.9".parse().expect("valid"), by_interface: true }];
        survey
    }

    #[test]
    fn a_host_as_the_daemon_left_it_has_no_fault() {
        let mut survey = bonded();
        survey.running = Running::Yes(Box::new(status()));
        survey.links.push(link(9, "mpip0"));
        survey.outward = vec![Outward { family: "IPv4", leaves_by: Some(9) }];
        survey.forwarding = [Some(false); 2];
        assert_eq!(check(&survey), [], "and it need not forward");
    }

    #[test]
    fn a_table_that_is_gone_or_left_is_named() {
        let mut survey = bonded();
        assert_eq!(check(&survey)[0].severity, Severity::Wrong, "nobody is on the Internet");
        survey.subject.default_route = false;
        let mend = Mend::command("nft delete table inet mpip_mpip0");
        assert_eq!(check(&survey)[0].mend, mend);
        survey.running = Running::Yes(Box::new(status()));
        survey.ruleset = Some(ruleset("other"));
        survey.links.push(link(9, "mpip0"));
        assert!(check(&survey)[0].what.ends_with("is gone"), "{:?}", check(&survey));
    }

    #[test]
    fn forwarding_that_was_switched_off_or_left_on_is_named() {
        let mut subject = Subject { forwards: true, ..Subject::default() };
        let findings = not_forwarding(&subject, &[Some(false), Some(true)]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].mend, Mend::command("sysctl -w net.ipv4.ip_forward=1"));
        assert_eq!(not_forwarding(&subject, &[Some(true), None]), [], "a host without IPv6");
        subject.forwards = false;
        assert_eq!(not_forwarding(&subject, &[Some(false); 2]), []);

        let text = "ipv6/conf/eth0/accept_ra 1 2 4\nipv4/ip_forward 0 1\n";
        let left = left_forwarding(Path::new("/x.forwarding"), text, &[link(4, "eth0")]);
        let command = "sysctl -w net.ipv4.ip_forward=0 && sysctl -w \
                       net.ipv6.conf.eth0.accept_ra=1 && rm /x.forwarding";
        assert_eq!(left.mend, Mend::command(command));
    }

    #[test]
    fn packets_for_the_internet_that_take_another_way_are_named() {
        let mut survey = bonded();
        survey.links.push(link(9, "mpip0"));
        survey.outward = vec![
            Outward { family: "IPv4", leaves_by: Some(2) },
            Outward { family: "IPv6", leaves_by: None },
        ];
        let findings = escaping(&survey.subject, &survey);
        assert_eq!(findings.len(), 1, "IPv6 has no way at all, which is no leak");
        assert!(findings[0].what.contains("leave by eth0, not by mpip0"), "{findings:?}");
    }

    #[test]
    fn resolvers_that_the_kill_switch_refuses_are_named() {
        let subject = Subject { default_route: true, ..Subject::default() };
        let starts = [start(2, "eth0", "198.18.0.1/24")];
        let resolver = |address: &str, by_interface| Resolver {
            address: address.parse().expect("valid"),
            by_interface,
        };
        let found = |list: &[Resolver]| unreachable_names(&subject, list, &starts);
        assert_eq!(found(&[resolver("203.0.113.9", false), resolver("198.18.0.9", true)]), None);
        assert!(found(&[]).expect("none").what.contains("no resolver"));
        let finding = found(&[resolver("203.0.113.9", true)]).expect("refused");
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.what.contains("203.0.113.9"), "{finding:?}");
        assert_eq!(unreachable_names(&Subject::default(), &[], &starts), None);
    }
}
