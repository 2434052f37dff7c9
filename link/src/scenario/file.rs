//! The file as it is written, and how it becomes a [`Scenario`].

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::{
    Direction, Event, HostCommand, Interface, LinkSpec, Router, Scenario, ScenarioError, System,
    Traffic, TrafficKind,
};
use crate::config::{Change, Codel, Discipline, LinkConfig, Loss, QueueLimit};
use crate::trace::Trace;
use crate::units;

/// A quantity that is written as a string with a unit.
macro_rules! quantity {
    ($name:ident, $type:ty, $parse:path) => {
        struct $name($type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                $parse(&text).map($name).map_err(D::Error::custom)
            }
        }
    };
}

quantity!(Time, Duration, units::parse_duration);
quantity!(Queue, QueueLimit, units::parse_queue);
quantity!(Rate, u64, units::parse_rate);
quantity!(Bytes, u64, units::parse_bytes);
quantity!(Probability, f64, units::parse_probability);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCodel {
    target: Option<Time>,
    interval: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBurstLoss {
    good_to_bad: Probability,
    bad_to_good: Probability,
    good_loss: Option<Probability>,
    bad_loss: Option<Probability>,
}

/// The keys of a link's settings stand beside other keys in three tables; serde cannot both
/// flatten and refuse unknown keys, so a macro repeats them.
macro_rules! with_settings {
    ($name:ident { $($field:ident : $type:ty),* $(,)? }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($field: $type,)*
            rate: Option<Rate>,
            trace: Option<Spanned<String>>,
            overhead: Option<u32>,
            queue: Option<Queue>,
            codel: Option<RawCodel>,
            delay: Option<Time>,
            jitter: Option<Time>,
            in_order: Option<bool>,
            loss: Option<Probability>,
            burst_loss: Option<RawBurstLoss>,
            duplicate: Option<Probability>,
            corrupt: Option<Probability>,
            mtu: Option<u32>,
            up: Option<bool>,
            blackhole: Option<bool>,
        }

        impl $name {
            fn change(&self) -> Change {
                Change {
                    rate: self.rate.as_ref().map(|rate| Some(rate.0)),
                    queue: self.queue.as_ref().map(|queue| queue.0),
                    delay: self.delay.as_ref().map(|delay| delay.0),
                    jitter: self.jitter.as_ref().map(|jitter| jitter.0),
                    loss: loss(self.loss.as_ref(), self.burst_loss.as_ref()),
                    duplicate: self.duplicate.as_ref().map(|p| p.0),
                    corrupt: self.corrupt.as_ref().map(|p| p.0),
                    mtu: self.mtu,
                    up: self.up,
                    blackhole: self.blackhole,
                }
            }

            fn fixed(&self) -> Fixed<'_> {
                Fixed {
                    trace: self.trace.as_ref(),
                    overhead: self.overhead,
                    codel: self.codel.as_ref(),
                    in_order: self.in_order,
                }
            }
        }
    };
}

/// Settings that cannot change during a run.
struct Fixed<'a> {
    trace: Option<&'a Spanned<String>>,
    overhead: Option<u32>,
    codel: Option<&'a RawCodel>,
    in_order: Option<bool>,
}

impl Fixed<'_> {
    fn is_empty(&self) -> bool {
        self.trace.is_none()
            && self.overhead.is_none()
            && self.codel.is_none()
            && self.in_order.is_none()
    }
}

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
        config.discipline = Discipline::Codel(Codel {
            target: codel.target.as_ref().map_or(default.target, |time| time.0),
            interval: codel.interval.as_ref().map_or(default.interval, |time| time.0),
        });
    }
    if let Some(trace) = fixed.trace {
        config.trace = Some(context.trace(trace)?);
    }
    Ok(config)
}

with_settings!(RawReverse {});
with_settings!(RawLink {
    name: Option<Spanned<String>>,
    ends: Spanned<[String; 2]>,
    reverse: Option<RawReverse>,
});
with_settings!(RawEvent {
    at: Time,
    link: Spanned<String>,
    direction: Option<Direction>,
    announced: Option<bool>,
});

fn loss(random: Option<&Probability>, burst: Option<&RawBurstLoss>) -> Option<Loss> {
    if let Some(burst) = burst {
        return Some(Loss::GilbertElliott {
            good_to_bad: burst.good_to_bad.0,
            bad_to_good: burst.bad_to_good.0,
            good_loss: burst.good_loss.as_ref().map_or(0.0, |p| p.0),
            bad_loss: burst.bad_loss.as_ref().map_or(1.0, |p| p.0),
        });
    }
    random.map(|p| if p.0 == 0.0 { Loss::None } else { Loss::Random(p.0) })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInterface {
    host: Spanned<String>,
    name: Spanned<String>,
    address: Spanned<IpAddr>,
    mtu: Option<u32>,
    #[serde(default)]
    private: bool,
    public: Option<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRouter {
    host: Spanned<String>,
    #[serde(default)]
    setup: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCommand {
    at: Time,
    host: Spanned<String>,
    run: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTraffic {
    kind: Spanned<String>,
    name: Option<String>,
    from: Spanned<String>,
    to: Spanned<String>,
    start: Option<Time>,
    duration: Option<Time>,
    plain: Option<Spanned<String>>,
    streams: Option<u32>,
    download: Option<bool>,
    rate: Option<Rate>,
    length: Option<u32>,
    interval: Option<Time>,
    request: Option<u32>,
    response: Option<u32>,
    size: Option<Bytes>,
}

#[derive(Deserialize)]
struct RawSystem {
    kind: String,
    #[serde(flatten)]
    settings: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    sets: Vec<String>,
    duration: Time,
    repetitions: Option<u32>,
    #[serde(default)]
    seed: u64,
    congestion_control: Option<String>,
    systems: Vec<Spanned<String>>,
    #[serde(default)]
    system: BTreeMap<String, RawSystem>,
    interface: Vec<RawInterface>,
    link: Vec<RawLink>,
    #[serde(default)]
    pair: Vec<RawLink>,
    #[serde(default)]
    router: Vec<RawRouter>,
    #[serde(default)]
    event: Vec<RawEvent>,
    #[serde(default)]
    command: Vec<RawCommand>,
    traffic: Vec<RawTraffic>,
}

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

pub(super) fn parse(
    file: &str,
    text: &str,
    load: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Scenario, ScenarioError> {
    let mut context = Context { file, text, load };
    let raw: RawScenario = toml::from_str(text).map_err(|e| {
        context.error(e.span().map_or(0, |span| span.start), e.message().to_owned())
    })?;
    let systems = systems(&raw, &context)?;
    let interfaces = interfaces(&raw, &context)?;
    let links = links(&raw, &interfaces, &mut context)?;
    let events = events(&raw, &links, &context)?;
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
        .map(|raw| traffic(raw, &scenario, &context))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Scenario { traffic, ..scenario })
}

fn systems(raw: &RawScenario, context: &Context<'_>) -> Result<Vec<System>, ScenarioError> {
    const BUILT_IN: [&str; 4] = ["tcp", "mptcp", "mpip", "mpip+mptcp"];
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
        return Err(context.at(&raw.kind, "expected traffic that lasts, found 0 s"));
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
        other => {
            let message = format!(
                "expected \"tcp\", \"stream\", \"udp\", \"voip\", \"request-response\", \"file\" or \
                 \"http\", found {other:?}"
            );
            return Err(context.at(&raw.kind, message));
        }
    })
}
