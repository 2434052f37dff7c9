//! What refuses packets of policy `require`: what a dead daemon left of it, and what keeps it from
//! working.

use mpip_net::netlink::{Link, Route};

use super::subject::Subject;
use super::survey::{Running, Survey};
use super::{Finding, Mend};
use crate::kernel::{IGNORED, IGNORES_SINKS, sink_owner};
use crate::network::listed;
use crate::routes::{UNNAMED_METRIC, refusing_metric};

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, links, own_routes, running, .. } = survey;
    let mut findings = Vec::new();
    if matches!(running, Running::No) && !exists(links, &subject.interface) {
        findings.extend(left(subject, own_routes, links));
    }
    findings.extend(others(subject, own_routes, links));
    let parameter = survey.parameters.get(IGNORES_SINKS).map_or("", String::as_str);
    findings.extend(ignored(subject, parameter));
    findings
}

fn exists(links: &[Link], name: &str) -> bool {
    links.iter().any(|link| link.name == name)
}

/// Where packets are refused since a daemon of this configuration was killed, or ended by an error.
fn left(subject: &Subject, routes: &[Route], links: &[Link]) -> Option<Finding> {
    let sink = links.iter().find(|link| sink_owner(link) == Some(&subject.interface));
    let table = subject.host_mode.table;
    let metric = refusing_metric(&subject.interface);
    // Routes of the former release do not say whose they are; where a daemon runs they are its.
    let in_table = || routes.iter().filter(|route| route.table == table);
    let alive = in_table().any(|route| links.iter().any(|link| link.index == route.link));
    let refuses = |route: &&Route| {
        route.link == 0 && (route.metric == metric || (route.metric == UNNAMED_METRIC && !alive))
    };
    let sunk = routes.iter().filter(|route| sink.is_some_and(|sink| sink.index == route.link));
    let in_table: Vec<&Route> = in_table().filter(refuses).collect();
    let prefixes: Vec<_> = in_table.iter().copied().chain(sunk).map(|route| route.prefix).collect();
    let mut commands: Vec<String> =
        sink.iter().map(|sink| format!("ip link delete {}", sink.name)).collect();
    for (ipv4, ip) in [(true, "ip"), (false, "ip -6")] {
        let mut metrics: Vec<u32> = in_table
            .iter()
            .filter(|route| route.prefix.address().is_ipv4() == ipv4)
            .map(|route| route.metric)
            .collect();
        metrics.sort_unstable();
        metrics.dedup();
        let flush = |metric| format!("{ip} route flush table {table} metric {metric}");
        commands.extend(metrics.into_iter().map(flush));
    }
    if commands.is_empty() {
        return None;
    }
    let what = match prefixes.is_empty() {
        // Its routes were deleted one by one.
        true => "a device that refuses packets is left".to_owned(),
        false => format!("packets to {} are refused", listed(&prefixes)),
    };
    Some(Finding::wrong(
        what,
        "an mpipd was killed, or ended by an error, whose policy lets no plain packet out",
        Mend::words(format!(
            "start it again, which takes over (`{}`), or to let plain packets out: `{}` (without mpip: \
             `{}`)",
            subject.up,
            subject.down,
            commands.join(" && ")
        )),
    ))
}

/// Where packets are refused for other daemons that do not run.
fn others(subject: &Subject, routes: &[Route], links: &[Link]) -> Vec<Finding> {
    let left = links.iter().filter_map(|sink| {
        let owner = sink_owner(sink).filter(|owner| *owner != subject.interface)?;
        let routes = routes.iter().filter(|route| route.link == sink.index);
        let prefixes: Vec<_> = routes.map(|route| route.prefix).collect();
        (!exists(links, owner)).then(|| {
            Finding::note(
                format!("packets to {} are refused", listed(&prefixes)),
                format!(
                    "the mpipd with the interface {owner} was killed, or ended by an error, and its \
                     policy lets no plain packet out"
                ),
                Mend::words(format!(
                    "start it again, or to let plain packets out: `mpip down` with its configuration \
                     (without mpip: `ip link delete {}`)",
                    sink.name
                )),
            )
        })
    });
    left.collect()
}

/// A parameter of the kernel that takes its effect from what refuses packets outside of host mode.
fn ignored(subject: &Subject, parameter: &str) -> Option<Finding> {
    let (what, why) = IGNORED;
    (subject.sinks_ipv4 && parameter == "1").then(|| {
        let command = "sysctl -w net.ipv4.conf.all.ignore_routes_with_linkdown=0";
        Finding::wrong(what, why, Mend::command(command))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::tests_support::{link, survey};
    use super::*;
    use crate::kernel::sink_alias;
    use crate::routes::MAIN_TABLE;

    fn route(link: u32, text: &str, table: u32, metric: u32) -> Route {
        let prefix = text.parse().expect("valid");
        Route { prefix, link, source: None, mtu: None, table, metric }
    }

    fn sink(index: u32, name: &str, owner: &str) -> Link {
        Link { alias: Some(sink_alias(owner)), ..link(index, name) }
    }

    fn words(finding: &Finding) -> &str {
        let Mend::Words(words) = &finding.mend else { panic!("{finding:?}") };
        words
    }

    #[test]
    fn what_a_dead_daemon_refuses_is_named_with_all_that_opens_it() {
        let mut survey = survey();
        let metric = refusing_metric("mpip0");
        survey.links = vec![link(2, "eth0"), sink(7, "mpip-refuse0", "mpip0")];
        survey.own_routes = vec![
            route(7, "10.77.0.2/32", MAIN_TABLE, 2),
            route(0, "198.18.0.2/32", 6182, metric),
            route(0, "198.18.0.3/32", 6182, refusing_metric("mpip1")),
            route(0, "2001:db8::2/128", 6182, metric),
        ];
        let findings = check(&survey);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.severity, Severity::Wrong);
        let what = "packets to 198.18.0.2/32, 2001:db8::2/128, 10.77.0.2/32 are refused";
        assert_eq!(finding.what, what);
        let expected = format!(
            "`mpip down FILE` (without mpip: `ip link delete mpip-refuse0 && ip route flush table 6182 \
             metric {metric} && ip -6 route flush table 6182 metric {metric}`)"
        );
        assert!(words(finding).ends_with(&expected), "{}", words(finding));
        // It runs: its device is there.
        survey.links.push(link(9, "mpip0"));
        assert_eq!(check(&survey), []);
    }

    #[test]
    fn routes_of_the_former_release_are_named_where_no_other_daemon_runs() {
        let subject = Subject::default();
        let refused = route(0, "198.18.0.2/32", 6182, UNNAMED_METRIC);
        let links = [link(2, "eth0"), link(9, "mpip1")];
        let finding = left(&subject, std::slice::from_ref(&refused), &links).expect("left");
        assert!(words(&finding).ends_with("`ip route flush table 6182 metric 4096`)"));
        let alive = route(9, "198.18.0.2/32", 6182, 1);
        assert_eq!(left(&subject, &[refused, alive], &links), None);
        assert_eq!(left(&subject, &[], &links), None);
    }

    #[test]
    fn another_daemon_that_was_killed_is_a_note() {
        let subject = Subject::default();
        let mut links = vec![sink(7, "mpip-refuse0", "mpip1"), sink(8, "mpip-refuse1", "mpip0")];
        let routes = [route(7, "10.78.0.0/16", MAIN_TABLE, 2)];
        let findings = others(&subject, &routes, &links);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.why.contains("the interface mpip1 was killed"), "{finding}");
        assert!(words(finding).ends_with("`ip link delete mpip-refuse0`)"), "{finding}");
        links.push(link(9, "mpip1"));
        assert_eq!(others(&subject, &routes, &links), []);
    }

    #[test]
    fn a_kernel_that_passes_over_the_sink_is_wrong() {
        let sinks = Subject { sinks_ipv4: true, ..Subject::default() };
        assert!(ignored(&sinks, "1").is_some());
        assert_eq!(ignored(&sinks, "0"), None);
        assert_eq!(ignored(&Subject::default(), "1"), None, "nothing is led there");
    }
}
