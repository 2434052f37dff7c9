//! `mpip reload`, `set` and `path`: changes of a running daemon.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mpip_api::{Client, ReloadReport, Request, Response};

use crate::failure::Failure;
use crate::output::print;
use crate::progress;
use crate::units::duration;

/// Longest time to wait for a reload: a busy host may read a configuration of thousands of peers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most names of peers in one line.
const NAMES: usize = 5;

/// Has the daemon on `socket` read its configuration again, and says what changed.
pub(crate) fn reload(socket: &Path) -> Result<(), Failure> {
    let report = ask_to_reload(socket)?;
    print(&format!("{}\n", text(&report)))
}

/// Has the daemon on `socket` read its configuration again.
pub(crate) fn ask_to_reload(socket: &Path) -> Result<ReloadReport, Failure> {
    let mut client = Client::connect(socket)?;
    client.wait_up_to(PATIENCE)?;
    let what = "mpipd reads its configuration";
    let answer = progress::during(what, Some(PATIENCE), || client.request(&Request::Reload));
    match answer? {
        Response::Reloaded { changes } => Ok(changes),
        other => Err(Failure(format!("expected a report of the reload, found {other:?}"))),
    }
}

/// Changes settings (`KEY=VALUE`) of a peer for the time being.
pub(crate) fn set_peer(socket: &Path, peer: &str, settings: &[String]) -> Result<(), Failure> {
    let settings = pairs(settings, "scheduler=weighted")?;
    mpip_api::request(socket, &Request::SetPeer { peer: peer.to_owned(), settings })?;
    print(&format!("peer {peer}: {UNTIL}\n"))
}

/// Changes the state of an interface, or settings (`KEY=VALUE`) of the paths from there, for the
/// time being.
pub(crate) fn set_path(
    socket: &Path,
    interface: &str,
    words: &[String],
    limit: Option<Duration>,
) -> Result<(), Failure> {
    let (state, settings) = state_and_settings(words)?;
    if limit.is_some() && (state.is_none() || !settings.is_empty()) {
        return Err(Failure(
            "--for: expected a state alone, because only a state can hold for a limited time"
                .to_owned(),
        ));
    }
    let for_s = limit.map(|limit| limit.as_secs());
    ask_to_set_path(socket, interface, state.clone(), settings, for_s)?;
    print(&match (limit, state) {
        (Some(limit), Some(state)) => {
            let limit = duration(Some(limit.as_secs_f64() * 1e3));
            format!("paths from {interface} are {state} for {limit}, or until `mpip reload`\n")
        }
        _ => format!("paths from {interface}: {UNTIL}\n"),
    })
}

/// The state among `words`, if there is one, and the settings.
fn state_and_settings(
    words: &[String],
) -> Result<(Option<String>, BTreeMap<String, String>), Failure> {
    let (settings, states): (Vec<_>, Vec<_>) =
        words.iter().cloned().partition(|word| word.contains('='));
    let state = match states.as_slice() {
        [] => None,
        [state] if STATES.contains(&state.as_str()) => Some(state.clone()),
        [other] => {
            let expected = "active, standby, off or KEY=VALUE like rate_up=\"20 Mbit/s\"";
            return Err(Failure(format!("expected {expected}, found `{other}`")));
        }
        [one, two, ..] => {
            return Err(Failure(format!("expected one state, found `{one}` and `{two}`")));
        }
    };
    Ok((state, pairs(&settings, "rate_up=\"20 Mbit/s\"")?))
}

/// The states of an interface.
const STATES: [&str; 3] = ["active", "standby", "off"];

/// Changes the state of an interface, or settings of it: for `for_s` seconds, or until the next
/// reload.
pub(crate) fn ask_to_set_path(
    socket: &Path,
    interface: &str,
    state: Option<String>,
    settings: BTreeMap<String, String>,
    for_s: Option<u64>,
) -> Result<(), Failure> {
    let interface = interface.to_owned();
    mpip_api::request(socket, &Request::SetPath { interface, state, settings, for_s })?;
    Ok(())
}

/// The keys and values of `settings`, each `KEY=VALUE` as `example` is.
pub(crate) fn pairs(
    settings: &[String],
    example: &str,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut pairs = BTreeMap::new();
    for text in settings {
        let pair = text.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let Some((key, value)) = pair.filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure(format!("expected KEY=VALUE like {example}, found `{text}`")));
        };
        if let Some(other) = pairs.insert(key.to_owned(), value.to_owned()) {
            return Err(Failure(format!(
                "expected each key once, found `{key}={other}` and `{key}={value}`"
            )));
        }
    }
    Ok(pairs)
}

/// How long what was set lasts.
pub(crate) const UNTIL: &str =
    "set until `mpip reload` or the daemon's end; `mpip save` writes it to the file";

/// What changed, in a line.
fn text(report: &ReloadReport) -> String {
    let peers = |what: &str, names: &[String]| {
        let shown: Vec<_> = names.iter().take(NAMES).map(String::as_str).collect();
        let more = match names.len().saturating_sub(NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!names.is_empty()).then(|| format!("{what}: {}{more}", shown.join(", ")))
    };
    let dropped = report.overrides_dropped;
    let parts = [
        peers("added", &report.added),
        peers("removed", &report.removed),
        peers("changed", &report.changed),
        report.rules.then(|| "rules changed".to_owned()),
        report.interfaces.then(|| "interfaces changed".to_owned()),
        report.found.then(|| "settings of nodes that are found changed".to_owned()),
        (dropped > 0).then(|| format!("{dropped} settings that were set by hand are gone")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "nothing has changed".to_owned(),
        false => format!("{}; applied in {:.1} ms", parts.join("; "), report.duration_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_interface_a_state_and_settings_are_set_in_any_order() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            state_and_settings(&words).map_err(|failure| failure.to_string())
        };
        let rate = || BTreeMap::from([("rate_up".to_owned(), "20 Mbit/s".to_owned())]);
        assert_eq!(read(&["off"]), Ok((Some("off".to_owned()), BTreeMap::new())));
        assert_eq!(read(&["rate_up=20 Mbit/s"]), Ok((None, rate())));
        assert_eq!(
            read(&["rate_up=20 Mbit/s", "standby"]),
            Ok((Some("standby".to_owned()), rate()))
        );
        for (words, expected) in [
            (
                &["of"][..],
                "expected active, standby, off or KEY=VALUE like rate_up=\"20 Mbit/s\", found `of`",
            ),
            (&["off", "active"], "expected one state, found `off` and `active`"),
            (&["=1"], "expected KEY=VALUE like rate_up=\"20 Mbit/s\", found `=1`"),
        ] {
            assert_eq!(read(words), Err(expected.to_owned()));
        }
    }

    #[test]
    fn settings_are_pairs_and_each_key_comes_once() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            pairs(&words, "a=b").map_err(|failure| failure.to_string())
        };
        let two = [("a", "1=2"), ("b", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(read(&["a = 1=2", "b="]), Ok(two.into()));
        for word in ["a", "=1", ""] {
            assert_eq!(read(&[word]), Err(format!("expected KEY=VALUE like a=b, found `{word}`")));
        }
        let twice = "expected each key once, found `a=1` and `a=2`".to_owned();
        assert_eq!(read(&["a=1", "a=2"]), Err(twice));
    }

    #[test]
    fn a_report_names_what_changed_and_not_all_of_a_thousand_peers() {
        assert_eq!(text(&ReloadReport::default()), "nothing has changed");
        let names = |count: usize| (0..count).map(|n| format!("p{n}")).collect::<Vec<_>>();
        let report = ReloadReport {
            added: names(7),
            changed: names(1),
            rules: true,
            overrides_dropped: 2,
            duration_ms: 1.94,
            ..ReloadReport::default()
        };
        assert_eq!(
            text(&report),
            "added: p0, p1, p2, p3, p4 and 2 more; changed: p0; rules changed; 2 settings that \
             were set by hand are gone; applied in 1.9 ms"
        );
    }
}
