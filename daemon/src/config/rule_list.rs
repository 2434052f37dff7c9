//! The rules in force: those of the configuration file, and what was set for the time being.

use std::collections::BTreeMap;

use mpip_core::Rule;
use mpip_core::rules::{PATH_LISTS, path_lists};

use super::rule::{self, Known};
use super::suggestion::did_you_mean;
use super::values;

/// Most rules of a table to which others are added for the time being. Each costs memory, and every
/// change builds the table anew.
const RULES_MAX: usize = 1024;

/// The rules, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleList {
    rules: Vec<ListedRule>,
    /// How many the file has.
    in_file: usize,
}

/// A rule, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedRule {
    /// The rule.
    pub rule: Rule,
    /// Which of the file's rules it is, from 1 on; `None` if it was set for the time being.
    pub file_number: Option<usize>,
}

impl RuleList {
    /// The `rules` of a file.
    pub fn of_file(rules: &[Rule]) -> Self {
        let listed =
            |(rule, number)| ListedRule { rule: Rule::clone(rule), file_number: Some(number) };
        Self { rules: rules.iter().zip(1..).map(listed).collect(), in_file: rules.len() }
    }

    /// The rules and where they come from.
    pub fn listed(&self) -> &[ListedRule] {
        &self.rules
    }

    /// The rules alone.
    pub fn rules(&self) -> Vec<Rule> {
        self.rules.iter().map(|listed| listed.rule.clone()).collect()
    }

    /// How many rules the file has.
    pub fn in_file(&self) -> usize {
        self.in_file
    }

    /// How many rules were added and removed for the time being.
    pub fn changes(&self) -> usize {
        let added = self.rules.iter().filter(|listed| listed.file_number.is_none()).count();
        added + self.in_file - (self.rules.len() - added)
    }

    /// Adds the rule with `settings` (keys of a `[[rule]]` and their values, without quotes) as
    /// number `at`, or at the end; it can name what is `known`. Returns its number.
    ///
    /// # Errors
    ///
    /// What was expected and what was found, in one or more lines. Then nothing has changed.
    pub fn add(
        &mut self,
        at: Option<u64>,
        settings: &BTreeMap<String, String>,
        known: &Known<'_>,
    ) -> Result<usize, String> {
        let end = self.rules.len() + 1;
        if end > RULES_MAX {
            return Err(format!("expected at most {RULES_MAX} rules, found {end} with this one"));
        }
        let at = at.unwrap_or(end as u64);
        let possible = usize::try_from(at).ok().filter(|at| (1..=end).contains(at));
        let at = possible.ok_or_else(|| {
            format!("at: expected a number from 1 to {end}, the end of the table, found {at}")
        })?;
        let rule = rule::of_settings(settings, known)?;
        if let Some(name) = &rule.name
            && let Some(other) = self.named(name)
        {
            return Err(format!(
                "name: expected a different one for each rule, `{name}` is that of rule {other}"
            ));
        }
        let lists = path_lists(self.rules.iter().map(|it| &it.rule).chain([&rule])).len();
        if lists > PATH_LISTS && rule.paths.is_some() {
            return Err(format!("rule: {}", rule::too_many_lists(lists)));
        }
        self.rules.insert(at - 1, ListedRule { rule, file_number: None });
        Ok(at)
    }

    /// Removes the rule with the number or name `which`. Returns the number that it had.
    ///
    /// # Errors
    ///
    /// What was expected and what was found. Then nothing has changed.
    pub fn remove(&mut self, which: &str) -> Result<usize, String> {
        let count = self.rules.len();
        if count == 0 {
            return Err(format!("expected a rule, found `{which}`; there are no rules"));
        }
        let is_number = !which.is_empty() && which.bytes().all(|byte| byte.is_ascii_digit());
        let number = match is_number {
            true => which.parse().ok().filter(|number| (1..=count).contains(number)),
            false => self.named(which),
        };
        let number = number.ok_or_else(|| {
            if is_number {
                return format!("expected the number of a rule from 1 to {count}, found {which}");
            }
            let rules = self.rules.iter();
            let names: Vec<&str> = rules.filter_map(|it| it.rule.name.as_deref()).collect();
            if names.is_empty() {
                return format!(
                    "no rule is named `{which}`, and none has a name; expected a number from 1 to \
                     {count}"
                );
            }
            let meant = did_you_mean(which, &names);
            let known = values::names(names.iter().copied());
            format!("no rule is named `{which}`{meant}; there are: {known}")
        })?;
        self.rules.remove(number - 1);
        Ok(number)
    }

    /// The number of the rule `name`.
    fn named(&self, name: &str) -> Option<usize> {
        let at = self.rules.iter().position(|it| it.rule.name.as_deref() == Some(name))?;
        Some(at + 1)
    }
}

#[cfg(test)]
mod tests {
    use mpip_core::{Copies, PathPreference, Priority, RulePaths, SchedulerKind};

    use super::*;

    fn settings(text: &str) -> BTreeMap<String, String> {
        let pair = |word: &str| {
            let (key, value) = word.split_once('=').expect(word);
            (key.to_owned(), value.to_owned())
        };
        text.split_whitespace().map(pair).collect()
    }

    /// What the rules of these tests can name.
    fn known() -> Known<'static> {
        Known {
            peers: vec!["gateway", "laptop"],
            others_join: false,
            labels: ["LTE at home", "fibre"].into(),
        }
    }

    fn list() -> RuleList {
        let named = |name: &str| Rule { name: Some(name.to_owned()), ..Rule::default() };
        RuleList::of_file(&[named("first"), Rule::default(), named("last")])
    }

    /// The places in the file of the rules of `list`.
    fn places(list: &RuleList) -> Vec<Option<usize>> {
        list.listed().iter().map(|listed| listed.file_number).collect()
    }

    #[test]
    fn a_rule_is_added_at_its_number_or_at_the_end() {
        let mut list = list();
        assert_eq!(list.changes(), 0);
        assert_eq!(list.add(Some(2), &settings("name=a priority=response"), &known()), Ok(2));
        assert_eq!(list.add(None, &settings("priority=throughput repair=true"), &known()), Ok(5));
        assert_eq!(list.add(Some(6), &settings("priority=throughput"), &known()), Ok(6));
        assert_eq!(places(&list), [Some(1), None, Some(2), Some(3), None, None]);
        assert_eq!((list.changes(), list.in_file()), (3, 3));
        assert!(list.rules()[4].repair);
    }

    #[test]
    fn a_rule_is_removed_by_number_or_name_and_what_comes_and_goes_is_no_change() {
        let mut list = list();
        list.add(Some(1), &settings("name=a priority=response"), &known()).expect("valid");
        assert_eq!(list.remove("a"), Ok(1));
        assert_eq!((list.changes(), &list), (0, &self::list()));
        assert_eq!((list.remove("last"), list.remove("1")), (Ok(3), Ok(1)));
        assert_eq!((places(&list), list.changes()), (vec![Some(2)], 2));
    }

    #[test]
    fn every_key_of_a_rule_can_be_given_and_means_what_it_means_in_a_file() {
        let mut list = RuleList::default();
        let text = "name=calls remote_prefix=198.18.0.0/24 remote_port=5000-5100 \
                    local_prefix=198.18.1.1 local_port=53 protocol=17 length=0-200 dscp=46 \
                    peer=gateway interface=br-lan \
                    priority=redundant copies=3 repair=true ordered=true \
                    paths.prefer=eth0,wlan0 set_dscp=af41";
        list.add(None, &settings(text), &known()).expect("valid");
        let rule = Rule {
            name: Some("calls".to_owned()),
            remote_prefix: "198.18.0.0/24".parse().ok(),
            remote_port: Some(5_000..=5_100),
            local_prefix: "198.18.1.1/32".parse().ok(),
            local_port: Some(53..=53),
            protocol: Some(17),
            length: Some(0..=200),
            dscp: Some(46),
            peer: Some("gateway".to_owned()),
            interface: Some("br-lan".to_owned()),
            priority: Some(Priority::Redundant),
            copies: Copies::Fixed(3),
            repair: true,
            ordered: Some(true),
            paths: Some(RulePaths {
                preference: PathPreference::Prefer,
                interfaces: vec!["eth0".to_owned(), "wlan0".to_owned()],
            }),
            set_dscp: Some(34),
            scheduler: None,
        };
        assert_eq!(list.rules(), [rule]);
        list.add(
            None,
            &settings("priority=throughput set_dscp=keep ordered=false scheduler=weighted"),
            &known(),
        )
        .expect("valid");
        assert_eq!(
            list.rules()[1],
            Rule {
                priority: Some(Priority::Throughput),
                ordered: Some(false),
                scheduler: Some(SchedulerKind::Weighted),
                ..Rule::default()
            }
        );
    }

    #[test]
    fn a_rule_that_is_refused_leaves_the_table_as_it_was_and_says_what_was_expected() {
        let mut list = list();
        for (at, text, expected) in [
            (None, "protocol=tcp", "missing key `priority`"),
            (
                None,
                "priority=fast",
                "rule: priority: expected one of `auto`, `throughput`, `response`, `redundant`",
            ),
            (None, "priority=redundant copies=1", "rule: copies: expected a number of paths from"),
            (
                None,
                "priority=response copies=2",
                "rule: copies: expected priority `redundant` with it, found `response`",
            ),
            (None, "priority=response ordered=1", "ordered: expected `true` or `false`, found"),
            (None, "priority=response set_dscp=64", "rule: set_dscp: expected a code point from 0"),
            (
                None,
                "priority=response paths.only=eth0 paths.avoid=eth1",
                "rule: paths: expected one of `only`, `prefer`, `avoid`, found `only`, `avoid`",
            ),
            (
                None,
                "priority=response paths.only=eth0,",
                "rule: paths.only: expected the label of a [[path]] (`LTE at home`, `fibre`), or the \
                 name of an interface (1 to 15 visible ASCII characters without",
            ),
            (
                None,
                "priority=response peer=laptp",
                "rule: peer: no peer is named `laptp`: did you mean `laptop`?; there are: \
                 `gateway`, `laptop`",
            ),
            (
                None,
                "priority=response interface=a/b",
                "rule: interface: expected 1 to 15 visible ASCII characters",
            ),
            (
                None,
                "priority=response scheduler=earliest",
                "rule: scheduler: expected priority `throughput` with it, found `response`",
            ),
            (
                None,
                "priority=throughput scheduler=earlist",
                "rule: scheduler: expected one of `earliest`, `weighted`, `fastest-first`, \
                 `round-robin`, found `earlist`: did you mean `earliest`?",
            ),
            (
                None,
                "priority=response paths=eth0",
                "paths: expected a table like `{ only = [\"eth0\"] }`, found",
            ),
            (
                None,
                "priority=response paths.olny=eth0",
                "unknown key `paths.olny`, expected one of",
            ),
            (None, "priority=response mtu=9", "unknown key `mtu`, expected one of `name`"),
            (
                None,
                "priority=response protocl=udp",
                "unknown key `protocl`: did you mean `protocol`",
            ),
            (None, "priority=response repair=yes", "repair: expected `true` or `false`, found"),
            (None, "priority=response remote_port=0", "rule: remote_port: expected a port from"),
            (None, "priority=response name=7", "name: expected not only digits"),
            (None, "priority=response a.b=7", "unknown key `a.b`, expected one of `name`"),
            (
                None,
                "priority=response protocol=icmp local_port=1",
                "rule: local_port: expected a protocol that has ports",
            ),
            (
                None,
                "priority=response name=last",
                "name: expected a different one for each rule, `last` is that of rule 3",
            ),
            (
                Some(0),
                "priority=response",
                "at: expected a number from 1 to 4, the end of the table, found 0",
            ),
            (Some(5), "priority=response", "at: expected a number from 1 to 4"),
        ] {
            let reason = list.add(at, &settings(text), &known()).expect_err(text);
            assert!(reason.starts_with(expected), "{text}: {reason}");
        }
        let both =
            list.add(None, &settings("priority=fast dscp=99"), &known()).expect_err("two mistakes");
        assert_eq!(both.lines().count(), 2, "{both}");
        assert_eq!(list, self::list());
    }

    #[test]
    fn keys_and_values_are_never_taken_for_more_than_one_key() {
        let mut list = list();
        for (key, value) in [("a\n[node]\n\"x", "1"), ("name", "'''\"\"\"\n[[rule]]\n")] {
            let settings = [("priority", "response"), (key, value)];
            let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            let reason = list.add(None, &settings, &known()).expect_err("no key, or no name");
            assert!(reason.starts_with("unknown key") || reason.starts_with("name:"), "{reason}");
        }
        assert_eq!(list, self::list());
    }

    #[test]
    fn what_cannot_be_removed_is_refused_with_what_there_is() {
        let mut list = list();
        for (which, expected) in [
            ("0", "expected the number of a rule from 1 to 3, found 0"),
            ("4", "expected the number of a rule from 1 to 3, found 4"),
            ("99999999999999999999999", "expected the number of a rule from 1 to 3"),
            ("lst", "no rule is named `lst`: did you mean `last`?; there are: `first`, `last`"),
            ("", "no rule is named ``; there are: `first`, `last`"),
        ] {
            let reason = list.remove(which).expect_err(which);
            assert!(reason.starts_with(expected), "{which}: {reason}");
        }
        assert_eq!(list, self::list());
        let reason = RuleList::default().remove("1").expect_err("empty");
        assert_eq!(reason, "expected a rule, found `1`; there are no rules");
        let reason = RuleList::of_file(&[Rule::default()]).remove("a").expect_err("no name");
        assert!(reason.ends_with("none has a name; expected a number from 1 to 1"), "{reason}");
    }

    #[test]
    fn rules_have_a_bounded_number_of_different_lists_of_interfaces() {
        let mut list = RuleList::default();
        let add = |list: &mut RuleList, names: &str| {
            list.add(None, &settings(&format!("priority=response paths.only={names}")), &known())
        };
        for number in 0..PATH_LISTS {
            add(&mut list, &format!("eth{number},wlan0")).expect("a list more");
        }
        add(&mut list, "wlan0,eth7").expect("the same list in another order");
        list.add(None, &settings("priority=response"), &known()).expect("no list");
        let reason = add(&mut list, "wwan0").expect_err("one too many");
        assert_eq!(
            reason,
            "rule: paths: expected at most 64 different lists of interfaces in all rules, found \
             65 with this one"
        );
    }

    #[test]
    fn the_table_has_a_bound() {
        let mut list = RuleList::of_file(&vec![Rule::default(); RULES_MAX]);
        let reason = list.add(None, &settings("priority=response"), &known()).expect_err("full");
        assert_eq!(reason, "expected at most 1024 rules, found 1025 with this one");
    }
}
