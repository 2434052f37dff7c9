//! From the text of a scenario file to a validated [`Scenario`].

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use toml::Spanned;

use super::raw::{Direction, Fixed, RawScenario, RawTraffic};
use super::types::{
    Event, HostCommand, Interface, LinkSpec, QuicImplementation, Router, Scenario, System, Traffic,
    TrafficKind,
};
use mpip_link::Trace;
use mpip_link::{Change, Codel, Discipline, LinkConfig};

/// Why a text is not a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScenarioError {
    /// The file, as the caller named it.
    pub(crate) file: String,
    /// Line, from 1.
    pub(crate) line: usize,
    /// What was expected and what was found.
    pub(crate) message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl core::error::Error for ScenarioError {}

impl Scenario {
    /// Parses and validates the text of a scenario file. `file` is its name in errors; `load`
    /// returns the text of another file (a trace) that it names.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub(crate) fn parse(
        file: &str,
        text: &str,
        load: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, ScenarioError> {
        let mut context = Context { file, text, load };
        let raw: RawScenario = toml::from_str(text).map_err(|e| {
            context.error(e.span().map_or(0, |span| span.start), e.message().to_owned())
        })?;
        scenario(raw, &mut context)
    }
}

/// The file, for errors and to load other files.
struct Context<'a> {
    file: &'a str,
    text: &'a str,
    load: &'a mut dyn FnMut(&str) -> Result<String, String>,
}

impl Context<'_> {
    fn error(&self, offset: usize, message: impl Into<String>) -> ScenarioError {
        let upto = self.text.get(..offset).unwrap_or(self.text);
        let line = upto.bytes().filter(|byte| *byte == b'\n').count() + 1;
        ScenarioError { file: self.file.to_owned(), line, message: message.into() }
    }

    fn at<T>(&self, value: &Spanned<T>, message: impl Into<String>) -> ScenarioError {
        self.error(value.span().start, message)
    }

    fn trace(&mut self, name: &Spanned<String>) -> Result<Trace, ScenarioError> {
        let path = name.get_ref();
        let text = (self.load)(path).map_err(|e| self.at(name, format!("trace {path:?}: {e}")))?;
        Trace::parse(&text).map_err(|e| self.at(name, format!("trace {path:?}, {e}")))
    }
}

/// The scenario that `raw` describes, if everything in it is valid.
fn scenario(raw: RawScenario, context: &mut Context<'_>) -> Result<Scenario, ScenarioError> {
    let systems = systems(&raw, context)?;
    let interfaces = interfaces(&raw, context)?;
    let links = links(&raw, &interfaces, context)?;
    let events = events(&raw, &links, context)?;
    let known_host = |host: &Spanned<String>| {
        let name = host.get_ref();
        if interfaces.iter().any(|interface| interface.host == *name) {
            return Ok(name.clone());
        }
        Err(context.at(host, format!("expected a host that has interfaces, found {name:?}")))
    };
    let mut routers = Vec::new();
    for entry in &raw.router {
        routers.push(Router { host: known_host(&entry.host)?, setup: entry.setup.clone() });
    }
    let mut commands = Vec::new();
    for entry in &raw.command {
        let host = known_host(&entry.host)?;
        commands.push(HostCommand { at: entry.at.0, host, run: entry.run.clone() });
    }
    commands.sort_by_key(|command| command.at);
    let scenario = Scenario {
        title: raw.title,
        description: raw.description,
        source: raw.source,
        sets: raw.sets,
        duration: raw.duration.0,
        repetitions: raw.repetitions.unwrap_or(3),
        seed: raw.seed,
        congestion_control: raw.congestion_control.unwrap_or_else(|| "cubic".to_owned()),
        systems,
        interfaces,
        links,
        routers,
        events,
        commands,
        traffic: Vec::new(),
    };
    let traffic = raw
        .traffic
        .iter()
        .map(|raw| traffic(raw, &scenario, context))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Scenario { traffic, ..scenario })
}

fn systems(raw: &RawScenario, context: &Context<'_>) -> Result<Vec<System>, ScenarioError> {
    const BUILT_IN: [&str; 5] = ["tcp", "mptcp", "mpip", "mpip host", "mpip+mptcp"];
    raw.systems
        .iter()
        .map(|name| {
            if let Some(system) = raw.system.get(name.get_ref()) {
                return Ok(System {
                    name: name.get_ref().clone(),
                    kind: system.kind.clone(),
                    settings: system.settings.clone(),
                });
            }
            if !BUILT_IN.contains(&name.get_ref().as_str()) {
                let name_text = name.get_ref();
                let message = format!(
                    "expected one of {BUILT_IN:?} or a table [system.{name_text}], found {name_text:?}"
                );
                return Err(context.at(name, message));
            }
            let settings = BTreeMap::new();
            Ok(System { name: name.get_ref().clone(), kind: name.get_ref().clone(), settings })
        })
        .collect()
}

fn interfaces(raw: &RawScenario, context: &Context<'_>) -> Result<Vec<Interface>, ScenarioError> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in &raw.interface {
        for name in [&entry.host, &entry.name] {
            let text = name.get_ref();
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if text.is_empty() || text.len() > 15 || !text.chars().all(plain) {
                let message = format!("expected 1 to 15 letters, digits, - or _, found {text:?}");
                return Err(context.at(name, message));
            }
        }
        let interface = Interface {
            host: entry.host.get_ref().clone(),
            name: entry.name.get_ref().clone(),
            address: *entry.address.get_ref(),
            mtu: entry.mtu.unwrap_or(1500),
            private: entry.private || entry.public.is_some(),
            public: entry.public,
        };
        if interfaces.iter().any(|other| other.full_name() == interface.full_name()) {
            let message = format!("a second interface {}", interface.full_name());
            return Err(context.at(&entry.name, message));
        }
        if interfaces.iter().any(|other| other.address == interface.address) {
            let message = format!("a second interface with address {}", interface.address);
            return Err(context.at(&entry.address, message));
        }
        interfaces.push(interface);
    }
    Ok(interfaces)
}

fn links(
    raw: &RawScenario,
    interfaces: &[Interface],
    context: &mut Context<'_>,
) -> Result<Vec<LinkSpec>, ScenarioError> {
    let mut links: Vec<LinkSpec> = Vec::new();
    let entries = raw.link.iter().map(|e| (e, false)).chain(raw.pair.iter().map(|e| (e, true)));
    for (entry, is_pair) in entries {
        let ends = entry.ends.get_ref();
        for end in ends {
            let known = interfaces.iter().any(|interface| interface.full_name() == *end);
            if (is_pair || end.contains('.')) && !known {
                let message = format!("expected an interface HOST.NAME, found {end:?}");
                return Err(context.at(&entry.ends, message));
            }
        }
        let name = match &entry.name {
            Some(name) => name.get_ref().clone(),
            None => format!("{}-{}", ends[0], ends[1]),
        };
        if links.iter().any(|other| other.name == name) {
            return Err(context.at(&entry.ends, format!("a second link named {name:?}")));
        }
        let forward = settings(&LinkConfig::default(), &entry.change(), &entry.fixed(), context)?;
        let reverse = match &entry.reverse {
            Some(reverse) => settings(&forward, &reverse.change(), &reverse.fixed(), context)?,
            None => forward.clone(),
        };
        links.push(LinkSpec { name, ends: ends.clone(), is_pair, forward, reverse });
    }
    Ok(links)
}

/// The settings of one direction of a link: `base`, and what the file says of it.
fn settings(
    base: &LinkConfig,
    change: &Change,
    fixed: &Fixed<'_>,
    context: &mut Context<'_>,
) -> Result<LinkConfig, ScenarioError> {
    let mut config = base.clone();
    change.apply(&mut config);
    config.overhead = fixed.overhead.unwrap_or(config.overhead);
    config.in_order = fixed.in_order.unwrap_or(config.in_order);
    if let Some(codel) = fixed.codel {
        let default = Codel::default();
        config.discipline = match codel.enabled {
            Some(false) => Discipline::TailDrop,
            _ => Discipline::Codel(Codel {
                target: codel.target.as_ref().map_or(default.target, |time| time.0),
                interval: codel.interval.as_ref().map_or(default.interval, |time| time.0),
            }),
        };
    }
    if let Some(trace) = fixed.trace {
        config.trace = Some(context.trace(trace)?);
    }
    Ok(config)
}

fn events(
    raw: &RawScenario,
    links: &[LinkSpec],
    context: &Context<'_>,
) -> Result<Vec<Event>, ScenarioError> {
    let mut events = Vec::new();
    for entry in &raw.event {
        let name = entry.link.get_ref();
        let link = links.iter().position(|link| link.name == *name).ok_or_else(|| {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            context.at(&entry.link, format!("expected one of the links {names:?}, found {name:?}"))
        })?;
        if !entry.fixed().is_empty() {
            let message = "trace, overhead, codel and in_order cannot change during a run";
            return Err(context.at(&entry.link, message));
        }
        let direction = entry.direction.unwrap_or_default();
        events.push(Event {
            at: entry.at.0,
            link,
            forward: direction != Direction::Reverse,
            reverse: direction != Direction::Forward,
            change: entry.change(),
            announced: entry.announced.unwrap_or(false),
        });
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

fn traffic(
    raw: &RawTraffic,
    scenario: &Scenario,
    context: &Context<'_>,
) -> Result<Traffic, ScenarioError> {
    let hosts = scenario.hosts();
    for host in [&raw.from, &raw.to] {
        let name = host.get_ref();
        if !hosts.contains(&name.as_str()) {
            let message = format!("expected one of the hosts {hosts:?}, found {name:?}");
            return Err(context.at(host, message));
        }
    }
    let (from, to) = (raw.from.get_ref(), raw.to.get_ref());
    let paths = scenario.paths(from, to);
    if paths.is_empty() {
        return Err(context.at(&raw.from, format!("no links lead from {from} to {to}")));
    }
    if let Some(plain) = &raw.plain {
        let known = paths.iter().any(|p| scenario.interfaces[p.from].name == *plain.get_ref());
        if !known {
            let message =
                format!("expected an interface of {from} with a path to {to}, found {plain:?}");
            return Err(context.at(plain, message));
        }
    }
    let start = raw.start.as_ref().map_or(Duration::ZERO, |start| start.0);
    let rest = scenario.duration.saturating_sub(start);
    let duration = raw.duration.as_ref().map_or(rest, |duration| duration.0);
    if duration.is_zero() {
        return Err(context.at(&raw.kind, "expected traffic of more than 0 s, found 0 s"));
    }
    Ok(Traffic {
        name: raw.name.clone().unwrap_or_else(|| raw.kind.get_ref().clone()),
        from: from.clone(),
        to: to.clone(),
        start,
        duration,
        plain: raw.plain.as_ref().map(|plain| plain.get_ref().clone()),
        kind: traffic_kind(raw, context)?,
    })
}

fn traffic_kind(raw: &RawTraffic, context: &Context<'_>) -> Result<TrafficKind, ScenarioError> {
    let needs = |key: &str| {
        context.at(&raw.kind, format!("traffic of kind {:?} needs {key}", raw.kind.get_ref()))
    };
    Ok(match raw.kind.get_ref().as_str() {
        "tcp" => TrafficKind::Tcp {
            streams: raw.streams.unwrap_or(1),
            download: raw.download.unwrap_or(false),
        },
        "udp" => TrafficKind::Udp {
            rate: raw.rate.as_ref().ok_or_else(|| needs("rate"))?.0,
            length: raw.length.unwrap_or(1200),
        },
        "stream" => TrafficKind::Stream,
        "voip" => TrafficKind::Voip {
            interval: raw.interval.as_ref().map_or(Duration::from_millis(20), |i| i.0),
            length: raw.length.unwrap_or(160),
        },
        "request-response" => TrafficKind::RequestResponse {
            request: raw.request.unwrap_or(100),
            response: raw.response.unwrap_or(1000),
        },
        "file" => TrafficKind::File { size: raw.size.as_ref().ok_or_else(|| needs("size"))?.0 },
        "http" => TrafficKind::Http { size: raw.size.as_ref().ok_or_else(|| needs("size"))?.0 },
        "short" => TrafficKind::Short {
            size: raw.size.as_ref().ok_or_else(|| needs("size"))?.0,
            interval: raw.interval.as_ref().map_or(Duration::from_secs(1), |i| i.0),
            download: raw.download.unwrap_or(false),
        },
        "web" => TrafficKind::Web {
            connections: raw.connections.unwrap_or(64),
            size: raw.size.as_ref().map_or(1000, |size| size.0),
            keep: raw.keep.unwrap_or(true),
        },
        "quic" => quic(raw, context)?,
        other => {
            let message = format!(
                "expected \"tcp\", \"stream\", \"udp\", \"quic\", \"voip\", \"request-response\", \
                 \"file\", \"short\", \"web\" or \"http\", found {other:?}"
            );
            return Err(context.at(&raw.kind, message));
        }
    })
}

fn quic(raw: &RawTraffic, context: &Context<'_>) -> Result<TrafficKind, ScenarioError> {
    let implementation = match &raw.implementation {
        None => QuicImplementation::Quinn,
        Some(name) => match name.get_ref().as_str() {
            "quinn" => QuicImplementation::Quinn,
            "quic-go" => QuicImplementation::QuicGo,
            other => {
                let message = format!("expected \"quinn\" or \"quic-go\", found {other:?}");
                return Err(context.at(name, message));
            }
        },
    };
    if let Some(name) = &raw.congestion_control {
        let known: &[&str] = match implementation {
            QuicImplementation::Quinn => &["cubic", "reno", "bbr"],
            QuicImplementation::QuicGo => &["reno"],
        };
        if !known.contains(&name.get_ref().as_str()) {
            let message = format!("expected one of {known:?}, found {:?}", name.get_ref());
            return Err(context.at(name, message));
        }
    }
    Ok(TrafficKind::Quic {
        implementation,
        congestion_control: raw.congestion_control.as_ref().map(|name| name.get_ref().clone()),
        download: raw.download.unwrap_or(false),
    })
}
