//! `mpip rule`: the rule table of a running daemon, and which of its rules decides about a packet.

use std::path::Path;

use mpip_api::{
    Request, Response, RuleDependence, RulePaths, RuleStatus, RuleTable, RuleTest, Treatment, Way,
    WayPath,
};

use crate::change::{UNTIL, pairs};
use crate::failure::Failure;
use crate::output::{colours, print};
use crate::table::{Align, Cell, Colour, Table};
use crate::units::duration;

/// Prints the rules of the daemon on `socket`.
pub(crate) fn list(socket: &Path, json: bool) -> Result<(), Failure> {
    let table = match mpip_api::request(socket, &Request::Rules)? {
        Response::Rules { table } => table,
        other => return Err(Failure(format!("expected a rule table, found {other:?}"))),
    };
    if json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&table)?));
    }
    print(&render(&table, colours()))
}

/// Adds the rule with `settings` (`KEY=VALUE`) for the time being, as number `at` or at the end.
pub(crate) fn add(socket: &Path, at: Option<u64>, settings: &[String]) -> Result<(), Failure> {
    let settings = pairs(settings, "priority=response")?;
    mpip_api::request(socket, &Request::AddRule { at, settings })?;
    changed(socket)
}

/// Removes the rule with the number or name `rule` for the time being.
pub(crate) fn remove(socket: &Path, rule: &str) -> Result<(), Failure> {
    mpip_api::request(socket, &Request::RemoveRule { rule: rule.to_owned() })?;
    changed(socket)
}

/// Prints the table as it is now, and for how long.
fn changed(socket: &Path) -> Result<(), Failure> {
    list(socket, false)?;
    print(&format!("rules: {UNTIL}\n"))
}

/// Prints which rule of the daemon on `socket` decides about the packet that `words` describe.
pub(crate) fn test(socket: &Path, words: &[String], json: bool) -> Result<(), Failure> {
    let packet = words.join(" ");
    let test = match mpip_api::request(socket, &Request::TestRule { packet })? {
        Response::RuleTest { test } => test,
        other => return Err(Failure(format!("expected what a rule does, found {other:?}"))),
    };
    if json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&test)?));
    }
    print(&verdict(&test))
}

fn render(table: &RuleTable, colours: bool) -> String {
    let any_more = table.rules.iter().any(|rule| !more(&rule.treatment).is_empty());
    let more_column = any_more.then_some(("more", Align::Left));
    let columns = [
        ("rule", Align::Right),
        ("name", Align::Left),
        ("matches", Align::Left),
        ("priority", Align::Left),
        ("repair", Align::Left),
    ];
    let columns = columns.into_iter().chain(more_column).chain([("from", Align::Left)]);
    let mut shown = Table::new(&columns.collect::<Vec<_>>());
    for rule in &table.rules {
        let from = match rule.file_number {
            Some(_) => Cell::from("file"),
            None => Cell::coloured("set for the time being", Colour::Yellow),
        };
        let (number, name) = (rule.number.to_string(), rule.name.clone().unwrap_or_default());
        shown.row(row((number, name, matches(rule)), &rule.treatment, any_more, from));
    }
    let matches = if table.rules.is_empty() { "everything" } else { "everything else" };
    let first = ("-".to_owned(), String::new(), matches.to_owned());
    shown.row(row(first, &table.default, any_more, "default".into()));
    shown.render("", colours)
}

/// The row of a rule that is treated so; `any_more`: with what else it does.
fn row(
    (number, name, matches): (String, String, String),
    treatment: &Treatment,
    any_more: bool,
    from: Cell,
) -> Vec<Cell> {
    let priority = treatment.priority.as_str();
    let repair = treatment.repair.to_string();
    let first: [Cell; 5] =
        [number.into(), name.into(), matches.into(), priority.into(), repair.into()];
    let more = any_more.then(|| Cell::from(more(treatment).join(" ")));
    first.into_iter().chain(more).chain([from]).collect()
}

/// What a rule does besides priority and repair: keys of a `[[rule]]` with their values.
fn more(treatment: &Treatment) -> Vec<String> {
    let Treatment { priority: _, copies, repair: _, ordered, paths, set_dscp, scheduler } =
        treatment;
    let paths = paths.as_ref().map(|RulePaths { preference, interfaces }| {
        format!("paths.{preference}={}", interfaces.join(","))
    });
    let copies = copies.as_ref().map(|copies| format!("copies={copies}"));
    let ordered = ordered.map(|ordered| format!("ordered={ordered}"));
    let set_dscp = set_dscp.as_ref().map(|dscp| format!("set_dscp={dscp}"));
    let scheduler = scheduler.as_ref().map(|scheduler| format!("scheduler={scheduler}"));
    [copies, ordered, paths, set_dscp, scheduler].into_iter().flatten().collect()
}

fn verdict(test: &RuleTest) -> String {
    let mut lines = Vec::new();
    for RuleDependence { rule, on } in &test.depends {
        lines.push(format!(
            "{} may decide, which depends on {}, not given here: then {}",
            named(rule),
            listed(on),
            treatment(&rule.treatment)
        ));
    }
    let otherwise = if test.depends.is_empty() { "" } else { "otherwise " };
    let treatment = treatment(&test.treatment);
    lines.push(match &test.rule {
        Some(rule) => {
            format!("{otherwise}{} decides ({}): {treatment}", named(rule), matches(rule))
        }
        None => format!("{otherwise}no rule matches, the default applies: {treatment}"),
    });
    lines.push(match &test.peer {
        Some(peer) => format!("the address is that of the peer {peer}"),
        None => "no peer has the address now, so the packet does not travel by mpip".to_owned(),
    });
    if let Some(way) = &test.way {
        lines.extend(way_now(way, &test.treatment));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Which paths the packet would take now, and why: a line for the choice, and one for each path.
fn way_now(way: &Way, treatment: &Treatment) -> Vec<String> {
    let with = |role: &str| way.paths.iter().filter(|path| path.role == role).collect::<Vec<_>>();
    let (takes, copies, candidates) = (with("takes"), with("copy"), with("candidate"));
    let name = |path: &WayPath| format!("{} (path {})", path.interface, path.id);
    let names = |paths: &[&WayPath]| listed(&paths.iter().map(|it| name(it)).collect::<Vec<_>>());
    let choice = match (takes.first(), treatment.priority.as_str()) {
        (Some(path), "redundant") if copies.is_empty() => {
            format!("now it leaves by {}, which has the lowest delay; no copy is sent", name(path))
        }
        (Some(path), "redundant") => format!(
            "now it leaves by {}, which has the lowest delay, and in copies by {}",
            name(path),
            names(&copies)
        ),
        (Some(path), _) => format!("now it leaves by {}, which has the lowest delay", name(path)),
        (None, _) if candidates.is_empty() => {
            let only = treatment.paths.as_ref().is_some_and(|paths| paths.preference == "only");
            let what =
                if only { "is dropped: none of its paths works" } else { "waits for a path" };
            format!("now it {what}")
        }
        (None, _) => {
            format!("now the scheduler `{}` chooses among {}", way.scheduler, names(&candidates))
        }
    };
    let mut lines = vec![choice];
    lines.extend(way.paths.iter().map(|path| format!("  {}: {}", name(path), figures(path))));
    lines
}

/// What decides about `path`.
fn figures(path: &WayPath) -> String {
    let delay = path.relative_delay_ms.map(|ms| format!("delay +{}", duration(Some(ms))));
    let rtt = path.rtt_ms.map(|ms| format!("RTT {}", duration(Some(ms))));
    let loss = format!("loss {:.1} %", path.loss * 100.0);
    let share = format!("{:.0} % of the data so far", path.share * 100.0);
    let not_wanted = (!path.preferred).then(|| "not wanted by the rule".to_owned());
    let all = [delay, rtt, Some(loss), Some(share), path.hold.clone(), not_wanted];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `rule`, by number and name.
fn named(rule: &RuleStatus) -> String {
    match &rule.name {
        Some(name) => format!("rule {} ({name})", rule.number),
        None => format!("rule {}", rule.number),
    }
}

/// What `rule` matches, as `mpip rule` shows it everywhere.
fn matches(rule: &RuleStatus) -> String {
    if rule.matches.is_empty() {
        return "everything".to_owned();
    }
    let conditions = rule.matches.iter().map(|(key, value)| format!("{key}={value}"));
    conditions.collect::<Vec<_>>().join(" ")
}

fn treatment(treatment: &Treatment) -> String {
    let Treatment { priority, repair, .. } = treatment;
    let all = [format!("priority={priority}"), format!("repair={repair}")];
    all.into_iter().chain(more(treatment)).collect::<Vec<_>>().join(" ")
}

/// `keys` in a sentence.
fn listed(keys: &[String]) -> String {
    match keys {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(number: u64, name: Option<&str>, matches: &[(&str, &str)]) -> RuleStatus {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        RuleStatus {
            number,
            name: name.map(str::to_owned),
            file_number: Some(number).filter(|number| *number != 2),
            matches: matches.iter().map(text).collect(),
            treatment: Treatment { priority: "response".to_owned(), ..Treatment::default() },
        }
    }

    fn default() -> Treatment {
        Treatment { priority: "auto".to_owned(), ..Treatment::default() }
    }

    #[test]
    fn rules_are_a_table_that_ends_with_the_default_and_says_where_each_comes_from() {
        let rules = vec![
            rule(1, Some("telnet"), &[("protocol", "tcp"), ("remote_port", "23")]),
            rule(2, None, &[]),
        ];
        let shown = render(&RuleTable { rules, default: default() }, false);
        assert_eq!(
            shown.lines().map(str::trim_end).collect::<Vec<_>>(),
            [
                "rule  name    matches                      priority  repair  from",
                "   1  telnet  protocol=tcp remote_port=23  response  false   file",
                "   2          everything                   response  false   set for the time \
                 being",
                "   -          everything else              auto      false   default",
            ]
        );
        let mut copied = rule(1, None, &[("protocol", "udp")]);
        copied.treatment.priority = "redundant".to_owned();
        copied.treatment.copies = Some("3".to_owned());
        copied.treatment.set_dscp = Some("ef".to_owned());
        copied.treatment.paths = Some(RulePaths {
            preference: "avoid".to_owned(),
            interfaces: vec!["wwan0".to_owned(), "eth1".to_owned()],
        });
        let shown = render(&RuleTable { rules: vec![copied], default: default() }, false);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            shown.lines().map(words).collect::<Vec<_>>(),
            [
                "rule name matches priority repair more from",
                "1 protocol=udp redundant false copies=3 paths.avoid=wwan0,eth1 set_dscp=ef file",
                "- everything else auto false default",
            ]
        );
        let none = render(&RuleTable { rules: vec![], default: default() }, false);
        let last: Vec<_> = none.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(last, ["-", "everything", "auto", "false", "default"]);
    }

    #[test]
    fn the_way_of_a_packet_is_told_with_the_figures_that_decide_about_it() {
        let path = |id: u16, role: &str, hold: Option<&str>| WayPath {
            id,
            interface: format!("eth{id}"),
            role: role.to_owned(),
            relative_delay_ms: Some(f64::from(id) * 2.5),
            rtt_ms: (id < 2).then_some(12.3),
            loss: 0.012,
            share: 0.25,
            hold: hold.map(str::to_owned),
            preferred: id != 3,
        };
        let told = |roles: [&str; 4], priority: &str, preference: Option<&str>| {
            let treatment = Treatment {
                priority: priority.to_owned(),
                paths: preference.map(|preference| RulePaths {
                    preference: preference.to_owned(),
                    interfaces: vec![],
                }),
                ..Treatment::default()
            };
            let paths = (0..).zip(roles).map(|(id, role)| path(id, role, None)).collect();
            way_now(&Way { scheduler: "earliest".to_owned(), paths }, &treatment).remove(0)
        };
        for (roles, priority, preference, expected) in [
            (
                ["none", "takes", "none", "none"],
                "response",
                None,
                "now it leaves by eth1 (path 1), which has the lowest delay",
            ),
            (
                ["copy", "takes", "none", "copy"],
                "redundant",
                None,
                "now it leaves by eth1 (path 1), which has the lowest delay, and in copies by eth0 \
                 (path 0) and eth3 (path 3)",
            ),
            (
                ["none", "takes", "none", "none"],
                "redundant",
                None,
                "now it leaves by eth1 (path 1), which has the lowest delay; no copy is sent",
            ),
            (
                ["candidate", "none", "candidate", "none"],
                "throughput",
                Some("prefer"),
                "now the scheduler `earliest` chooses among eth0 (path 0) and eth2 (path 2)",
            ),
            (["none"; 4], "response", None, "now it waits for a path"),
            (["none"; 4], "response", Some("only"), "now it is dropped: none of its paths works"),
        ] {
            assert_eq!(told(roles, priority, preference), expected);
        }
        assert_eq!(
            figures(&path(1, "takes", None)),
            "delay +2.50 ms, RTT 12.3 ms, loss 1.2 %, 25 % of the data so far"
        );
        assert_eq!(
            figures(&path(3, "none", Some("failed"))),
            "delay +7.50 ms, loss 1.2 %, 25 % of the data so far, failed, not wanted by the rule"
        );
    }

    #[test]
    fn a_verdict_names_the_rule_what_it_depends_on_and_the_peer() {
        let telnet = rule(1, Some("telnet"), &[("protocol", "tcp"), ("remote_port", "23")]);
        let decided = RuleTest {
            rule: Some(telnet.clone()),
            treatment: telnet.treatment.clone(),
            depends: vec![],
            peer: Some("gateway".to_owned()),
            way: None,
        };
        assert_eq!(
            verdict(&decided),
            "rule 1 (telnet) decides (protocol=tcp remote_port=23): priority=response \
             repair=false\nthe address is that of the peer gateway\n"
        );
        let on = ["remote_port", "length", "dscp"].map(str::to_owned).to_vec();
        let open = RuleTest {
            rule: None,
            treatment: default(),
            depends: vec![RuleDependence { rule: telnet, on }],
            peer: None,
            way: None,
        };
        assert_eq!(
            verdict(&open),
            "rule 1 (telnet) may decide, which depends on remote_port, length and dscp, not given \
             here: then priority=response repair=false\n\
             otherwise no rule matches, the default applies: priority=auto repair=false\n\
             no peer has the address now, so the packet does not travel by mpip\n"
        );
    }
}
