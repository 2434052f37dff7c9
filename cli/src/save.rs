//! `mpip save`: writes what was set for the time being into the configuration file.
//!
//! Only the values change: comments, order and blank lines stay as the user wrote them. The daemon
//! judges the result. If it refuses it, the file is put back. States of interfaces that hold for a
//! limited time are not written; they go on for the rest of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use mpip_api::{
    Overrides, PathOverride, PathSettingOverride, PeerOverride, Request, Response, RuleOverride,
    RulePaths, RuleStatus,
};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

use crate::change::{ask_to_reload, ask_to_set_path};
use crate::failure::Failure;
use crate::output::print;
use crate::units::duration;

/// Writes what was set for the daemon on `socket` into its configuration file.
pub(crate) fn save(socket: &Path) -> Result<(), Failure> {
    let answer = mpip_api::request(socket, &Request::Overrides)?;
    let Response::Overrides { config_file, mut overrides } = answer else {
        return Err(Failure(format!("expected what was set, found {answer:?}")));
    };
    let shown = config_file.clone();
    let timed = take_timed(&mut overrides);
    let not_saved = not_saved(&timed);
    let count = overrides.count();
    if count == 0 {
        let what = if timed.is_empty() { "nothing" } else { "nothing else" };
        return print(&format!(
            "{not_saved}{what} was set for the time being; {shown} stays as it is\n"
        ));
    }
    let failed =
        |what: &str, error: std::io::Error| Failure(format!("cannot {what} {shown}: {error}"));
    // The file itself, not a link to it, is replaced.
    let file = fs::canonicalize(&config_file).map_err(|error| failed("find", error))?;
    let former = fs::read_to_string(&file).map_err(|error| failed("read", error))?;
    let new = edit(&former, &overrides)
        .map_err(|reason| Failure(format!("{shown} is not changed: {reason}")))?;
    replace(&file, &new).map_err(|error| failed("write", error))?;
    if let Err(reason) = ask_to_reload(socket) {
        replace(&file, &former).map_err(|error| failed("put back", error))?;
        return Err(Failure(format!("{shown} is not changed: {reason}")));
    }
    // The reload has ended them.
    for PathOverride { interface, state, left_s } in &timed {
        ask_to_set_path(socket, interface, Some(state.clone()), BTreeMap::new(), *left_s)?;
    }
    let settings = if count == 1 { "setting" } else { "settings" };
    print(&format!("{not_saved}{count} {settings} saved to {shown}\n"))
}

/// Takes out what holds for a limited time.
fn take_timed(overrides: &mut Overrides) -> Vec<PathOverride> {
    overrides.paths.extract_if(.., |path| path.left_s.is_some()).collect()
}

/// A line about each state that holds for a limited time.
fn not_saved(timed: &[PathOverride]) -> String {
    let line = |PathOverride { interface, state, left_s }: &PathOverride| {
        let left = duration(left_s.map(|left_s| left_s as f64 * 1e3));
        format!("not saved: paths from {interface} are {state} for {left} more\n")
    };
    timed.iter().map(line).collect()
}

/// Replaces `file` by one with the content `text`, and the same owner and mode.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let metadata = fs::metadata(file)?;
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(name);
    let write = || {
        let mode = metadata.mode() & 0o7777;
        let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        out.write_all(text.as_bytes())?;
        out.set_permissions(metadata.permissions())?;
        let made = out.metadata()?;
        if (made.uid(), made.gid()) != (metadata.uid(), metadata.gid()) {
            chown(&new, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        out.sync_all()?;
        fs::rename(&new, file)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}

/// The configuration `text` with what was set.
fn edit(text: &str, overrides: &Overrides) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    for PeerOverride { peer, key, value } in &overrides.peers {
        let known = sections(&mut document, "peer")?;
        let found = known.and_then(|list| find(list, "name", peer));
        let section = found.ok_or_else(|| format!("it has no peer `{peer}` any more"))?;
        put(section, key, value);
        if key == "scheduler" && value != "weighted" {
            // They are for this scheduler alone.
            for key in ["weights", "weight_step", "weight_period_ms"] {
                section.remove(key);
            }
        }
    }
    for PathOverride { interface, state, .. } in &overrides.paths {
        put_path(&mut document, interface, state)?;
    }
    for PathSettingOverride { interface, key, value } in &overrides.path_settings {
        put_path_setting(&mut document, interface, key, value)?;
    }
    if let Some(rules) = &overrides.rules {
        put_rules(&mut document, rules)?;
    }
    Ok(document.to_string())
}

/// Makes the sections `[[rule]]` those of the table in force. Those that stay are left as they are.
fn put_rules(document: &mut DocumentMut, rules: &RuleOverride) -> Result<(), String> {
    let former: Vec<Table> =
        sections(document, "rule")?.map(|list| list.iter().cloned().collect()).unwrap_or_default();
    // Rules have no key by which they could be found again but their place.
    if former.len() as u64 != rules.in_file {
        return Err(format!(
            "expected the {} sections [[rule]] that mpipd has read, found {}; `mpip reload` applies \
             the file, and what was set is gone then",
            rules.in_file,
            former.len()
        ));
    }
    let section = |rule: &RuleStatus| {
        let at = usize::try_from(rule.file_number?.checked_sub(1)?).ok()?;
        former.get(at)
    };
    let mut list = ArrayOfTables::new();
    // Sections are written where they were. A new one comes before the next of the file's.
    let mut place = None;
    let mut sections: Vec<Table> = Vec::new();
    for rule in rules.table.iter().rev() {
        if let Some(kept) = section(rule) {
            place = kept.position();
            sections.push(kept.clone());
        } else {
            let mut new = new_rule(rule);
            new.set_position(place);
            sections.push(new);
        }
    }
    sections.into_iter().rev().for_each(|section| list.push(section));
    if list.is_empty() {
        document.remove("rule");
    } else {
        document.insert("rule", list.into());
    }
    Ok(())
}

/// The section of a rule that the file does not have.
fn new_rule(rule: &RuleStatus) -> Table {
    let RuleStatus { name, matches, treatment, .. } = rule;
    let mut section = Table::new();
    if let Some(name) = name {
        section.insert("name", Value::from(name).into());
    }
    for (key, value) in matches {
        match key.as_str() {
            // Names, even if they look like numbers.
            "peer" | "interface" => drop(section.insert(key, Value::from(value).into())),
            _ => put(&mut section, key, value),
        }
    }
    section.insert("priority", Value::from(&treatment.priority).into());
    if let Some(copies) = &treatment.copies {
        put(&mut section, "copies", copies);
    }
    if treatment.repair {
        section.insert("repair", Value::from(true).into());
    }
    if let Some(ordered) = treatment.ordered {
        section.insert("ordered", Value::from(ordered).into());
    }
    if let Some(RulePaths { preference, interfaces }) = &treatment.paths {
        let list: Array = interfaces.iter().map(String::as_str).collect();
        let paths = InlineTable::from_iter([(preference.as_str(), Value::from(list))]);
        section.insert("paths", Value::from(paths).into());
    }
    if let Some(dscp) = &treatment.set_dscp {
        put(&mut section, "set_dscp", dscp);
    }
    if let Some(scheduler) = &treatment.scheduler {
        put(&mut section, "scheduler", scheduler);
    }
    section.decor_mut().set_prefix("\n");
    section
}

fn put_path(document: &mut DocumentMut, interface: &str, state: &str) -> Result<(), String> {
    let value = if state == "active" { "" } else { state };
    let mut limits = false;
    if let Some(list) = sections(document, "path")? {
        limits = list.iter().any(is_active);
        if let Some(section) = find(list, "interface", interface) {
            let former = section.get("state").and_then(Item::as_str).unwrap_or("active");
            match value {
                "" if matches!(former, "active" | "auto") => {}
                // It must not keep interfaces without a section from being used.
                "" if !limits => put(section, "state", "auto"),
                value => put(section, "state", value),
            }
            return Ok(());
        }
    }
    // Without sections of active interfaces, all are active that have no section.
    if value.is_empty() && !limits {
        return Ok(());
    }
    let mut section = Table::new();
    section.insert("interface", Value::from(interface).into());
    put(&mut section, "state", value);
    push_path(document, section)
}

fn put_path_setting(
    document: &mut DocumentMut,
    interface: &str,
    key: &str,
    value: &str,
) -> Result<(), String> {
    let mut known = sections(document, "path")?;
    if let Some(section) = known.as_mut().and_then(|list| find(list, "interface", interface)) {
        put(section, key, value);
        return Ok(());
    }
    // What has no section has the default.
    if value.is_empty() {
        return Ok(());
    }
    let mut section = Table::new();
    section.insert("interface", Value::from(interface).into());
    // It leaves the others in use. With sections of active interfaces, those without one are off.
    let state = if known.is_some_and(|list| list.iter().any(is_active)) { "off" } else { "auto" };
    put(&mut section, "state", state);
    put(&mut section, key, value);
    push_path(document, section)
}

/// Whether the section `[[path]]` keeps interfaces without one from being used.
fn is_active(section: &Table) -> bool {
    section.get("state").and_then(Item::as_str).unwrap_or("active") == "active"
}

fn push_path(document: &mut DocumentMut, mut section: Table) -> Result<(), String> {
    section.decor_mut().set_prefix("\n");
    let list = document.entry("path").or_insert_with(|| ArrayOfTables::new().into());
    list.as_array_of_tables_mut().ok_or_else(|| written_otherwise("path"))?.push(section);
    Ok(())
}

/// The sections `[[name]]`, if there are any.
fn sections<'a>(
    document: &'a mut DocumentMut,
    name: &str,
) -> Result<Option<&'a mut ArrayOfTables>, String> {
    match document.get_mut(name) {
        None => Ok(None),
        Some(item) => {
            item.as_array_of_tables_mut().map(Some).ok_or_else(|| written_otherwise(name))
        }
    }
}

fn written_otherwise(name: &str) -> String {
    format!("`mpip save` changes sections that are written as [[{name}]], and these are a list")
}

/// The section whose `key` is `value`.
fn find<'a>(list: &'a mut ArrayOfTables, key: &str, value: &str) -> Option<&'a mut Table> {
    list.iter_mut().find(|section| section.get(key).and_then(Item::as_str) == Some(value))
}

/// Sets `key` to `value`, or removes it if that is empty. A comment behind the value stays.
fn put(section: &mut Table, key: &str, value: &str) {
    if value.is_empty() {
        section.remove(key);
        return;
    }
    let mut new = match (value.parse::<i64>(), value.parse::<bool>()) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(flag)) => Value::from(flag),
        _ => Value::from(value),
    };
    if let Some(Item::Value(former)) = section.get_mut(key) {
        *new.decor_mut() = former.decor().clone();
        *former = new;
    } else {
        section.insert(key, new.into());
    }
}

#[cfg(test)]
mod tests {
    use mpip_api::Treatment;

    use super::*;

    const TEXT: &str = "# The office.\n[node]\nprivate_key_file = \"a.key\" # ours\n\n\
         [[peer]]\nname = \"a\"\nmax_paths = 2   # two links\n\n\
         # The gateway.\n[[peer]]\nname = \"b\"  # beta\nscheduler = 'weighted'\nweights = { eth0 = 3 }\n\
         \n[[rule]]\npriority = \"response\"\n";

    fn peer(peer: &str, key: &str, value: &str) -> Overrides {
        let peer =
            PeerOverride { peer: peer.to_owned(), key: key.to_owned(), value: value.to_owned() };
        Overrides { peers: vec![peer], ..Overrides::default() }
    }

    fn path(interface: &str, state: &str) -> Overrides {
        let (interface, state) = (interface.to_owned(), state.to_owned());
        let paths = vec![PathOverride { interface, state, left_s: None }];
        Overrides { paths, ..Overrides::default() }
    }

    #[test]
    fn values_change_and_everything_else_stays() {
        let saved = |overrides: &Overrides| edit(TEXT, overrides).expect("valid");
        assert_eq!(saved(&Overrides::default()), TEXT);
        assert_eq!(saved(&peer("a", "max_paths", "3")), TEXT.replace("= 2 ", "= 3 "));
        assert_eq!(
            saved(&peer("a", "max_paths", "")),
            TEXT.replace("max_paths = 2   # two links\n", "")
        );
        assert_eq!(
            saved(&peer("a", "policy", "require")),
            TEXT.replace("two links\n", "two links\npolicy = \"require\"\n")
        );
        assert_eq!(
            saved(&peer("a", "resequencing", "false")),
            TEXT.replace("two links\n", "two links\nresequencing = false\n")
        );
        assert_eq!(
            saved(&peer("b", "scheduler", "earliest")),
            TEXT.replace("'weighted'\nweights = { eth0 = 3 }", "\"earliest\"")
        );
        let gone = edit(TEXT, &peer("c", "policy", "off")).expect_err("unknown");
        assert!(gone.contains("no peer `c` any more"), "{gone}");
        assert!(edit("peer = [{ name = 'a' }]", &peer("a", "policy", "off")).is_err());
        assert!(edit("[[", &Overrides::default()).is_err());
    }

    #[test]
    fn an_interface_gets_a_section_only_where_it_needs_one() {
        // Without sections all interfaces are active.
        assert_eq!(edit(TEXT, &path("wwan0", "active")).expect("valid"), TEXT);
        let standby = edit(TEXT, &path("wwan0", "standby")).expect("valid");
        assert_eq!(
            standby,
            format!("{TEXT}\n[[path]]\ninterface = \"wwan0\"\nstate = \"standby\"\n")
        );
        // A section with a state limits nothing.
        assert_eq!(edit(&standby, &path("eth0", "active")).expect("valid"), standby);
        let off = edit(&standby, &path("wwan0", "off")).expect("valid");
        assert_eq!(off, standby.replace("standby", "off"));
        let said = "[[path]]\ninterface = 'eth0'\nstate = 'active'\n";
        assert_eq!(
            edit(said, &path("wwan0", "active")).expect("valid"),
            format!("{said}\n[[path]]\ninterface = \"wwan0\"\n")
        );
        let limited = "[[path]]\ninterface = 'eth0' # fibre\n";
        assert_eq!(
            edit(limited, &path("wwan0", "active")).expect("valid"),
            format!("{limited}\n[[path]]\ninterface = \"wwan0\"\n")
        );
        assert_eq!(
            edit(limited, &path("eth0", "standby")).expect("valid"),
            format!("{limited}state = \"standby\"\n")
        );
    }

    #[test]
    fn a_section_that_becomes_active_leaves_the_others_in_use() {
        let saved = |text: &str| edit(text, &path("wwan0", "active")).expect("valid");
        let alone = "[[path]]\ninterface = 'wwan0'\nstate = 'standby' # dear\n";
        assert_eq!(saved(alone), alone.replace("'standby'", "\"auto\""));
        let auto = alone.replace("standby", "auto");
        assert_eq!(saved(&auto), auto);
        let others = format!("{alone}[[path]]\ninterface = 'eth0'\n");
        assert_eq!(saved(&others), others.replace("state = 'standby' # dear\n", ""));
    }

    #[test]
    fn what_holds_for_a_limited_time_is_not_saved_and_told() {
        let mut overrides = path("wwan0", "off");
        overrides.paths.push(PathOverride {
            interface: "eth0".to_owned(),
            state: "standby".to_owned(),
            left_s: Some(600),
        });
        let timed = take_timed(&mut overrides);
        assert_eq!(overrides, path("wwan0", "off"));
        assert_eq!(not_saved(&timed), "not saved: paths from eth0 are standby for 10 min more\n");
        assert_eq!(not_saved(&[]), "");
    }

    #[test]
    fn a_rate_is_put_into_the_section_of_its_interface_or_one_that_leaves_the_others_in_use() {
        let rate = |interface: &str, value: &str| {
            let (interface, key) = (interface.to_owned(), "rate_up".to_owned());
            let set = PathSettingOverride { interface, key, value: value.to_owned() };
            Overrides { path_settings: vec![set], ..Overrides::default() }
        };
        let saved = |text: &str, overrides: &Overrides| edit(text, overrides).expect("valid");
        let auto = saved(TEXT, &rate("wwan0", "5 Mbit/s"));
        let section =
            "\n[[path]]\ninterface = \"wwan0\"\nstate = \"auto\"\nrate_up = \"5 Mbit/s\"\n";
        assert_eq!(auto, format!("{TEXT}{section}"));
        assert_eq!(saved(&auto, &rate("wwan0", "6 Mbit/s")), auto.replace('5', "6"));
        assert_eq!(saved(&auto, &rate("wwan0", "")), auto.replace("rate_up = \"5 Mbit/s\"\n", ""));
        assert_eq!(saved(TEXT, &rate("wwan0", "")), TEXT);
        let limited = "[[path]]\ninterface = 'eth0' # fibre\n";
        assert_eq!(
            saved(limited, &rate("wwan0", "5 Mbit/s")),
            format!("{limited}{}", section.replace("auto", "off"))
        );
        // A state that was set as well comes first.
        let both = Overrides { paths: path("wwan0", "active").paths, ..rate("wwan0", "5 Mbit/s") };
        assert_eq!(
            saved(limited, &both),
            format!("{limited}{}", section.replace("state = \"auto\"\n", ""))
        );
        assert_eq!(saved(TEXT, &both), format!("{TEXT}{section}"));
    }

    /// The table in force, of the file's rules by their number and of new ones.
    fn rules(in_file: u64, places: &[Option<u64>]) -> Overrides {
        let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let matches =
            [("dscp", "46"), ("length", "0-200"), ("protocol", "udp"), ("remote_port", "53")];
        let rule = |(file_number, number): (&Option<u64>, u64)| RuleStatus {
            number,
            name: Some(format!("new{number}")),
            file_number: *file_number,
            matches: matches.map(text).into(),
            treatment: Treatment {
                priority: "redundant".to_owned(),
                copies: Some("3".to_owned()),
                repair: true,
                ordered: Some(false),
                paths: Some(RulePaths {
                    preference: "prefer".to_owned(),
                    interfaces: vec!["eth0".to_owned(), "wlan0".to_owned()],
                }),
                set_dscp: Some("ef".to_owned()),
                scheduler: Some("weighted".to_owned()),
            },
        };
        let table = places.iter().zip(1..).map(rule).collect();
        Overrides { rules: Some(RuleOverride { in_file, table }), ..Overrides::default() }
    }

    fn new(number: u64) -> String {
        format!(
            "\n[[rule]]\nname = \"new{number}\"\ndscp = 46\nlength = \"0-200\"\n\
             protocol = \"udp\"\nremote_port = 53\npriority = \"redundant\"\ncopies = 3\n\
             repair = true\nordered = false\npaths = {{ prefer = [\"eth0\", \"wlan0\"] }}\n\
             set_dscp = \"ef\"\nscheduler = \"weighted\"\n"
        )
    }

    #[test]
    fn rules_are_added_and_removed_in_their_place_and_the_others_stay_as_they_are() {
        let a = "\n# The first.\n[[rule]]\npriority = 'response' # a\n";
        let b = "\n# The second.\n[[rule]]\ndscp = 1 # b\npriority = 'throughput'\n";
        let head = "[node]\nprivate_key_file = 'a.key'\n";
        let peer = "\n[[peer]]\nname = 'p'\n";
        let more = "\n[[peer]]\nname = 'q'\n[peer.weights]\neth0 = 1\n";
        let end = "\n# The end.\n";
        let text = format!("{head}{peer}{a}{more}{b}{end}");
        let saved = |places: &[Option<u64>]| edit(&text, &rules(2, places)).expect("valid");
        let (n1, n2, n3) = (new(1), new(2), new(3));
        for (places, expected) in [
            (&[Some(1), Some(2)][..], text.clone()),
            (&[None, Some(1), Some(2)], format!("{head}{peer}{n1}{a}{more}{b}{end}")),
            (&[Some(1), None, Some(2)], format!("{head}{peer}{a}{more}{n2}{b}{end}")),
            (&[Some(1), Some(2), None], format!("{head}{peer}{a}{more}{b}{n3}{end}")),
            (&[None, None, Some(2)], format!("{head}{peer}{more}{n1}{n2}{b}{end}")),
            (&[Some(1)], format!("{head}{peer}{a}{more}{end}")),
            (&[], format!("{head}{peer}{more}{end}")),
        ] {
            assert_eq!(saved(places), expected, "{places:?}");
        }
        // Where rules come before everything else, too.
        let text = format!("{a}{peer}{more}{head}");
        let saved = edit(&text, &rules(1, &[None, Some(1), None])).expect("valid");
        assert_eq!(saved, format!("{n1}{a}{n3}{peer}{more}{head}"));
        let first = edit(head, &rules(0, &[None])).expect("valid");
        assert_eq!(first, format!("{head}{n1}"));
    }

    #[test]
    fn rules_are_not_saved_to_a_file_that_has_others() {
        let reason = edit(TEXT, &rules(2, &[Some(1), None])).expect_err("one rule");
        assert!(reason.starts_with("expected the 2 sections [[rule]] that mpipd has"), "{reason}");
        let reason = edit("rule = [{ dscp = 1 }]", &rules(1, &[None])).expect_err("a list");
        assert!(reason.contains("written as [[rule]]"), "{reason}");
    }

    #[test]
    fn a_name_that_looks_like_a_number_stays_a_text() {
        let mut overrides = rules(0, &[None]);
        let table = &mut overrides.rules.as_mut().expect("there").table;
        table[0].name = Some("-5".to_owned());
        table[0].matches = [("peer".to_owned(), "7".to_owned())].into();
        let saved = edit("", &overrides).expect("valid");
        assert!(saved.contains("name = \"-5\"") && saved.contains("peer = \"7\""), "{saved}");
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_leaves_nothing_beside_it() {
        use std::os::unix::fs::PermissionsExt;
        let directory = mpip_testing::Directory::new();
        let file = directory.join("mpip0.toml");
        fs::write(&file, "a").expect("writable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("ours");
        replace(&file, "b").expect("writable");
        assert_eq!(fs::read_to_string(&file).expect("there"), "b");
        assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).expect("there").count(), 1);
    }
}
