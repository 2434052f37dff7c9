//! `mpip rule`: the rule table of a running daemon, and which of its rules decides about a packet.

use std::path::Path;

use mpip_api::{Request, Response, RuleDependence, RuleStatus, RuleTable, RuleTest, Treatment};

use crate::change::{UNTIL, pairs};
use crate::failure::Failure;
use crate::output::{colours, print};
use crate::table::{Align, Cell, Colour, Table};

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
    let mut shown = Table::new(&[
        ("rule", Align::Right),
        ("name", Align::Left),
        ("matches", Align::Left),
        ("priority", Align::Left),
        ("repair", Align::Left),
        ("from", Align::Left),
    ]);
    for rule in &table.rules {
        let Treatment { priority, repair } = &rule.treatment;
        let from = match rule.file_number {
            Some(_) => Cell::from("file"),
            None => Cell::coloured("set for the time being", Colour::Yellow),
        };
        shown.row(vec![
            rule.number.to_string().into(),
            rule.name.clone().unwrap_or_default().into(),
            matches(rule).into(),
            priority.as_str().into(),
            repair.to_string().into(),
            from,
        ]);
    }
    let Treatment { priority, repair } = &table.default;
    shown.row(vec![
        "-".into(),
        "".into(),
        if table.rules.is_empty() { "everything" } else { "everything else" }.into(),
        priority.as_str().into(),
        repair.to_string().into(),
        "default".into(),
    ]);
    shown.render("", colours)
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
    lines.iter().map(|line| format!("{line}\n")).collect()
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
    format!("priority={} repair={}", treatment.priority, treatment.repair)
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
            treatment: Treatment { priority: "response".to_owned(), repair: false },
        }
    }

    fn default() -> Treatment {
        Treatment { priority: "throughput".to_owned(), repair: false }
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
                "rule  name    matches                      priority    repair  from",
                "   1  telnet  protocol=tcp remote_port=23  response    false   file",
                "   2          everything                   response    false   set for the time \
                 being",
                "   -          everything else              throughput  false   default",
            ]
        );
        let none = render(&RuleTable { rules: vec![], default: default() }, false);
        let last: Vec<_> = none.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(last, ["-", "everything", "throughput", "false", "default"]);
    }

    #[test]
    fn a_verdict_names_the_rule_what_it_depends_on_and_the_peer() {
        let telnet = rule(1, Some("telnet"), &[("protocol", "tcp"), ("remote_port", "23")]);
        let decided = RuleTest {
            rule: Some(telnet.clone()),
            treatment: telnet.treatment.clone(),
            depends: vec![],
            peer: Some("gateway".to_owned()),
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
        };
        assert_eq!(
            verdict(&open),
            "rule 1 (telnet) may decide, which depends on remote_port, length and dscp, not given \
             here: then priority=response repair=false\n\
             otherwise no rule matches, the default applies: priority=throughput repair=false\n\
             no peer has the address now, so the packet does not travel by mpip\n"
        );
    }
}
