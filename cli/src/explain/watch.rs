//! `mpip explain --watch`: again each second.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::path::Path;
use std::thread;

use mpip_api::{Status, rfc3339};

use super::explanation::{Explanation, Options, SAMPLE, View, explain, now_ms, render};
use super::{interface, path, peer};
use crate::failure::Failure;
use crate::output::{colours, is_terminal, print};
use crate::rates::Rates;
use crate::sampler::{self, Sampler};

/// Erases a terminal's screen, and puts the cursor in its first line (ECMA-48).
const ERASE: &str = "\x1b[H\x1b[2J";

/// What a sentence is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Peer(String),
    Traffic(String),
    Path(String, u16),
    Interface(String),
}

/// A cause without its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Peer(Discriminant<peer::Cause>),
    Traffic(Discriminant<peer::Traffic>),
    Path(Discriminant<path::Cause>),
    Interface(Discriminant<interface::Cause>),
}

/// The causes that were last told.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<Subject, Kind>);

impl Told {
    /// The sentences of `now` whose cause is another one than was last told, and what is gone.
    pub(super) fn news(&mut self, now: &Explanation) -> Vec<String> {
        let mut kinds = BTreeMap::new();
        let mut lines = Vec::new();
        let mut tell = |subject: Subject, kind, line: String| {
            if self.0.get(&subject) != Some(&kind) {
                lines.push(line);
            }
            kinds.insert(subject, kind);
        };
        for peer in &now.peers {
            let name = || peer.peer.clone();
            let kind = Kind::Peer(discriminant(&peer.said.cause));
            tell(Subject::Peer(name()), kind, peer.said.line("", false));
            if let Some(traffic) = &peer.traffic {
                let kind = Kind::Traffic(discriminant(&traffic.cause));
                let line = format!("{}: {}", peer.peer, traffic.line("", false));
                tell(Subject::Traffic(name()), kind, line);
            }
            for path in &peer.paths {
                let kind = Kind::Path(discriminant(&path.said.cause));
                let line = format!("{}: {}", peer.peer, path.said.line("", false));
                tell(Subject::Path(name(), path.path), kind, line);
            }
        }
        for interface in &now.interfaces {
            let kind = Kind::Interface(discriminant(&interface.said.cause));
            let subject = Subject::Interface(interface.interface.clone());
            tell(subject, kind, interface.said.line("", false));
        }
        let former = std::mem::replace(&mut self.0, kinds);
        for subject in former.keys().filter(|subject| !self.0.contains_key(subject)) {
            lines.extend(match subject {
                Subject::Peer(name) => Some(format!("{name} is not configured any more")),
                Subject::Path(name, path) => Some(format!("{name}: path {path} is gone")),
                // The sentence about its paths says the rest.
                Subject::Traffic(_) | Subject::Interface(_) => None,
            });
        }
        lines
    }
}

/// Explains until the daemon ends, or somebody interrupts it.
pub(super) fn run(socket: &Path, options: &Options) -> Result<(), Failure> {
    let mut sampler = Sampler::new(socket.to_owned());
    let mut before: Option<Status> = None;
    let mut events = Vec::new();
    let mut told = Told::default();
    loop {
        let busy = sampler::processor_time();
        let sampled = sampler.sample()?;
        events = sampled.events.unwrap_or(events);
        let rates = before.as_ref().map(|before| Rates::between(before, &sampled.status));
        if let Some(rates) = rates {
            let view = View {
                status: sampled.status.clone(),
                rates,
                events: events.clone(),
                unix_ms: now_ms(),
            };
            show(&explain(&view, options)?, options, &mut told, view.unix_ms)?;
        }
        let took = sampler::processor_time().saturating_sub(busy);
        // The first sample has no rates yet.
        let pause = if before.is_none() { SAMPLE } else { sampler::interval(took) };
        before = Some(sampled.status);
        thread::sleep(pause);
    }
}

fn show(
    explained: &Explanation,
    options: &Options,
    told: &mut Told,
    unix_ms: f64,
) -> Result<(), Failure> {
    if options.json {
        return print(&format!("{}\n", serde_json::to_string(explained)?));
    }
    if is_terminal() {
        return print(&format!("{ERASE}{}", render(explained, colours())));
    }
    let time = rfc3339(unix_ms);
    let lines = told.news(explained).into_iter().map(|line| format!("{time} {line}\n"));
    print(&lines.collect::<String>())
}
