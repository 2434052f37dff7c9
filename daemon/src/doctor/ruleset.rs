//! The host's packet filter as `nft -j list ruleset` prints it (libnftables-json(5)): the parts
//! that the checks need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Family, table and name of a chain or set.
type Place = (String, String, String);

/// The chains, rules and sets of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Ruleset {
    /// Chains at a hook, by priority.
    pub(super) base: Vec<BaseChain>,
    rules: BTreeMap<Place, Vec<Vec<Value>>>,
    sets: BTreeMap<Place, Vec<Value>>,
    /// Families and names.
    tables: BTreeSet<(String, String)>,
}

/// A chain at a hook of the kernel.
#[derive(Clone, Debug)]
pub(super) struct BaseChain {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) name: String,
    pub(super) hook: String,
    pub(super) priority: i64,
    /// Whether the policy is to drop packets that no rule decides about.
    pub(super) drops: bool,
}

impl Ruleset {
    /// Parses the output of `nft`; `None` if `json` is none.
    pub(super) fn parse(json: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(json).ok()?;
        let mut ruleset = Self::default();
        for object in value.get("nftables")?.as_array()? {
            if let Some(chain) = object.get("chain") {
                ruleset.base.extend(base_chain(chain));
            } else if let Some(rule) = object.get("rule") {
                let place = place(rule, "chain")?;
                let expressions = rule.get("expr")?.as_array()?.clone();
                ruleset.rules.entry(place).or_default().push(expressions);
            } else if let Some(table) = object.get("table") {
                ruleset.tables.insert((text(table, "family")?, text(table, "name")?));
            } else if let Some(set) = object.get("set") {
                let elements = set.get("elem").and_then(Value::as_array);
                ruleset.sets.insert(place(set, "name")?, elements.cloned().unwrap_or_default());
            }
        }
        ruleset.base.sort_by_key(|chain| chain.priority);
        Some(ruleset)
    }

    /// The rules of a chain.
    pub(super) fn rules(&self, family: &str, table: &str, chain: &str) -> &[Vec<Value>] {
        let place = (family.to_owned(), table.to_owned(), chain.to_owned());
        self.rules.get(&place).map_or(&[], Vec::as_slice)
    }

    /// The elements of a set, if they are listed.
    pub(super) fn set(&self, family: &str, table: &str, name: &str) -> Option<&[Value]> {
        let place = (family.to_owned(), table.to_owned(), name.to_owned());
        self.sets.get(&place).map(Vec::as_slice)
    }

    /// Whether there is such a table.
    pub(super) fn has_table(&self, family: &str, name: &str) -> bool {
        self.tables.contains(&(family.to_owned(), name.to_owned()))
    }

    /// Every mark that a rule outside of the table `own` sets or matches, and the chain of the
    /// rule.
    pub(super) fn marks(&self, own: Option<&str>) -> Vec<(u32, String)> {
        let mut marks = Vec::new();
        for ((family, table, chain), rules) in &self.rules {
            if own == Some(table) {
                continue;
            }
            let place = format!("the chain {family} {table} {chain}");
            for expression in rules.iter().flatten() {
                let mut found = Vec::new();
                if let Some(set) = expression.get("mangle").filter(|set| is_mark(&set["key"])) {
                    numbers(&set["value"], &mut found);
                }
                if let Some(test) = expression.get("match").filter(|test| is_mark(&test["left"])) {
                    numbers(&test["right"], &mut found);
                }
                let found = found.into_iter().filter_map(|mark| u32::try_from(mark).ok());
                marks.extend(found.map(|mark| (mark, place.clone())));
            }
        }
        marks.dedup();
        marks
    }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

fn place(value: &Value, name: &str) -> Option<Place> {
    Some((text(value, "family")?, text(value, "table")?, text(value, name)?))
}

fn base_chain(chain: &Value) -> Option<BaseChain> {
    let hook = text(chain, "hook")?;
    let (family, table, name) = place(chain, "name")?;
    let filters = chain.get("type")?.as_str()? == "filter";
    let drops = chain.get("policy").and_then(Value::as_str) == Some("drop");
    let priority = chain.get("prio").and_then(Value::as_i64).unwrap_or(0);
    filters.then_some(BaseChain { family, table, name, hook, priority, drops })
}

/// Whether `left` is the mark of a packet or of its connection, masked or not.
fn is_mark(left: &Value) -> bool {
    let left = left.get("&").map_or(left, |both| &both[0]);
    ["meta", "ct"].iter().any(|kind| left[*kind]["key"] == "mark")
}

/// The numbers of a value, except masks of bits to keep.
fn numbers(value: &Value, found: &mut Vec<u64>) {
    match value {
        Value::Number(number) => found.extend(number.as_u64()),
        Value::Array(list) => list.iter().for_each(|value| numbers(value, found)),
        Value::Object(map) => {
            let values = map.iter().filter(|(key, _)| *key != "&");
            values.for_each(|(_, value)| numbers(value, found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_list_of_rules_is_refused() {
        for text in ["", "{}", r#"{"nftables": 1}"#, r#"{"nftables": [{"rule": {}}]}"#] {
            assert!(Ruleset::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn marks_are_found_where_rules_set_and_match_them() {
        let rule = |expr: &str| {
            format!(
                r#"{{"rule": {{"family": "ip", "table": "t", "chain": "c", "expr": [{expr}]}}}}"#
            )
        };
        let rules = [
            r#"{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}"#,
            r#"{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 2]}}}"#,
            r#"{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"&": [{"meta": {"key": "mark"}}, 255]}}}"#,
            r#"{"match": {"op": "==", "left": {"&": [{"ct": {"key": "mark"}}, 4080]}, "right": 16}}"#,
            r#"{"mangle": {"key": {"meta": {"key": "priority"}}, "value": 9}}"#,
            r#"{"match": {"op": "==", "left": {"meta": {"key": "length"}}, "right": 77}}"#,
        ];
        let text = rules.map(rule).join(",");
        let ruleset = Ruleset::parse(&format!(r#"{{"nftables": [{text}]}}"#)).expect("valid");
        let marks: Vec<_> = ruleset.marks(None).iter().map(|(mark, _)| *mark).collect();
        assert_eq!(marks, [1, 2, 16]);
        assert_eq!(ruleset.marks(None)[0].1, "the chain ip t c");
        assert_eq!(ruleset.marks(Some("t")), [], "our own table may");
    }
}
