//! The random link sets of the sweep: a distribution, by seed. `docs/experiments.md` describes it.
//!
//! All times count from the start of a transfer.

use std::fmt::Write as _;
use std::time::Duration;

use mpip_link::{Change, Codel, Discipline, LinkConfig, Loss, QueueLimit};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::measure::{self, WARM_UP};
use mpip_sim::rng::Rng;

/// Settings of a path forward and back.
pub(crate) type Links = (LinkConfig, LinkConfig);

/// The stream of randomness that draws sets.
const DRAWING: u64 = 101;

/// Bulk does not count in this part of its time (divisor): slow start.
const UNCOUNTED: u64 = 3;
/// A bulk transfer lasts until `END` and counts from `FROM` on; events are between them.
pub(crate) const FROM: Nanos = END / UNCOUNTED;
pub(crate) const END: Nanos = 12 * SECOND;

/// Bytes of a full packet on a link, with the link's overhead.
const FULL: f64 = 1_514.0;
/// Length of the packets of cross traffic, bytes.
pub(super) const CROSS: usize = 1_400;

/// UDP packets of other hosts at a constant rate on the way forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cross {
    pub(super) from: Nanos,
    pub(super) until: Nanos,
    /// Of IP packets, bit/s.
    pub(super) rate: u64,
}

/// A path with what happens on it.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) links: Links,
    /// In order of time; both directions change, the rate back in proportion.
    pub(super) changes: Vec<(Nanos, Change, Change)>,
    pub(super) cross: Vec<Cross>,
}

/// A set of paths.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(super) seed: u64,
    pub(super) paths: Vec<Path>,
    /// When bulk ends.
    pub(super) until: Nanos,
    /// When transfers begin after the association. All other times count from then on.
    pub(super) begin: Nanos,
}

fn log_uniform(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.uniform())
}

impl Set {
    /// These paths. What is random on them depends on `seed`.
    pub(super) fn new(seed: u64, paths: Vec<Path>) -> Self {
        Self { seed, paths, until: END, begin: WARM_UP }
    }

    /// The set of `seed`.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, DRAWING);
        let count = match rng.below(20) {
            0..12 => 2,
            12..17 => 3,
            _ => 4,
        };
        let mut paths: Vec<Path> = (0..count).map(|_| Path::draw(&mut rng)).collect();
        for (chance, happen) in [
            (0.2, Path::change as fn(&mut Path, &mut Rng)),
            (0.1, Path::come_or_go),
            (0.2, Path::share),
        ] {
            if rng.chance(chance) {
                let index = rng.below(count) as usize;
                happen(&mut paths[index], &mut rng);
            }
        }
        for path in &mut paths {
            path.changes.sort_by_key(|(at, ..)| *at);
        }
        Self::new(seed, paths)
    }

    /// The same links, with bulk for another time. What happens on them does not change.
    pub(super) fn lasting(self, until: Nanos) -> Self {
        Self { until, ..self }
    }

    /// Its transfers begin at `begin`.
    pub(super) fn beginning(self, begin: Nanos) -> Self {
        Self { begin, ..self }
    }

    /// When bulk begins to count.
    pub(super) fn from(&self) -> Nanos {
        self.until / UNCOUNTED
    }

    /// The same links, on which nothing happens.
    pub(crate) fn quiet(&self) -> Self {
        let mut quiet = self.clone();
        for path in &mut quiet.paths {
            path.changes.clear();
            path.cross.clear();
            for link in [&mut path.links.0, &mut path.links.1] {
                link.up = true;
                link.blackhole = false;
            }
        }
        quiet
    }

    /// The same without all paths but the one with index `path`.
    pub(super) fn only(&self, path: usize) -> Self {
        Self { paths: vec![self.paths[path].clone()], ..*self }
    }

    /// The settings of each path at the start.
    pub(crate) fn links(&self) -> Vec<Links> {
        self.paths.iter().map(|path| path.links.clone()).collect()
    }

    /// The settings of each path with the largest rate, delay and queue of its time, for socket
    /// buffers that are never too small.
    pub(super) fn widest(&self) -> Vec<Links> {
        self.paths.iter().map(Path::widest).collect()
    }

    /// What the links forward carry from `from` to `until` for TCP, in bit/s on average: payload of
    /// full plain segments, less what the links lose on average and what cross traffic takes.
    pub(super) fn limit(&self, from: Nanos, until: Nanos) -> f64 {
        let bits: f64 = self.paths.iter().map(|path| path.bits(from, until)).sum();
        bits * SECOND as f64 / (until - from) as f64
    }

    /// The paths, one a line.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for (index, path) in self.paths.iter().enumerate() {
            let _ = writeln!(text, "path {index}: {}", path.describe());
        }
        text
    }
}

impl Path {
    /// A path of these links, on which nothing happens.
    pub(super) fn new(links: Links) -> Self {
        Self { links, changes: Vec::new(), cross: Vec::new() }
    }

    fn draw(rng: &mut Rng) -> Self {
        let rate = log_uniform(rng, 1e6, 200e6);
        let delay = Duration::from_secs_f64(log_uniform(rng, 0.001, 0.3));
        let jitter = rng.chance(0.5).then(|| delay.mul_f64(0.5 * rng.uniform()));
        let in_order = rng.chance(0.5);
        let loss = draw_loss(rng);
        let forward = LinkConfig {
            rate: Some(rate as u64),
            delay,
            jitter: jitter.unwrap_or_default(),
            in_order,
            loss,
            ..draw_queue(rng, rate)
        };
        let narrow = rng.chance(0.3).then(|| log_uniform(rng, 0.1, 1.0));
        let rate_back = (rate * narrow.unwrap_or(1.0)).max(1e6);
        let back = LinkConfig {
            rate: Some(rate_back as u64),
            loss: if rng.chance(0.2) { loss } else { Loss::None },
            ..LinkConfig { delay, jitter: forward.jitter, in_order, ..draw_queue(rng, rate_back) }
        };
        Self::new((forward, back))
    }

    /// Its rate, delay or loss change in the middle.
    fn change(&mut self, rng: &mut Rng) {
        let at = rng.between(FROM, END - 2 * SECOND);
        let factor = log_uniform(rng, 0.25, 4.0);
        let delay = log_uniform(rng, 0.5, 2.0);
        let loss = draw_loss(rng);
        let kind = rng.below(3);
        let change = |link: &LinkConfig, is_forward: bool| match kind {
            0 => {
                let rate = link.rate.map(|rate| ((rate as f64 * factor) as u64).max(500_000));
                Change { rate: Some(rate), ..Change::default() }
            }
            1 => Change { delay: Some(link.delay.mul_f64(delay)), ..Change::default() },
            _ => Change { loss: is_forward.then_some(loss), ..Change::default() },
        };
        let (forward, back) = (change(&self.links.0, true), change(&self.links.1, false));
        self.changes.push((at, forward, back));
    }

    /// It comes, goes, or is away for a while; silently, or so that the link is down.
    fn come_or_go(&mut self, rng: &mut Rng) {
        let at = rng.between(FROM, END - 2 * SECOND);
        let away = rng.between(500 * MILLI, 3 * SECOND);
        let silent = rng.chance(0.5);
        let present = |is: bool| match silent {
            true => Change { blackhole: Some(!is), ..Change::default() },
            false => Change { up: Some(is), ..Change::default() },
        };
        let mut push = |at: Nanos, is: bool| self.changes.push((at, present(is), present(is)));
        match rng.below(3) {
            0 => {
                push(at, true);
                present(false).apply(&mut self.links.0);
                present(false).apply(&mut self.links.1);
            }
            1 => push(at, false),
            _ => {
                push(at, false);
                push(at + away, true);
            }
        }
    }

    /// Other hosts use it: up to three periods, with 10 to 60 % of its rate each.
    fn share(&mut self, rng: &mut Rng) {
        let mut from = 0;
        for _ in 0..rng.between(1, 3) {
            from += rng.between(0, END / 2);
            let until = (from + rng.between(SECOND, END)).min(END);
            let share = 0.1 + 0.5 * rng.uniform();
            let rate = (self.links.0.rate.unwrap_or(0) as f64 * share) as u64;
            if until > from {
                self.cross.push(Cross { from, until, rate });
            }
            from = until;
        }
    }

    /// Calls `visit` with each period of `from..until` and the settings forward in it.
    fn periods(&self, from: Nanos, until: Nanos, mut visit: impl FnMut(Nanos, Nanos, &LinkConfig)) {
        let (mut link, mut begun) = (self.links.0.clone(), 0);
        for (at, change, _) in &self.changes {
            visit(begun.max(from), (*at).clamp(from, until), &link);
            change.apply(&mut link);
            begun = *at;
        }
        visit(begun.clamp(from, until), until, &link);
    }

    fn bits(&self, from: Nanos, until: Nanos) -> f64 {
        let mut bits = 0.0;
        self.periods(from, until, |from, until, link| {
            if until <= from || !link.passes() {
                return;
            }
            let seconds = |nanos: Nanos| nanos as f64 / SECOND as f64;
            let pair = [(link.clone(), link.clone())];
            let whole = measure::limit(&pair).unwrap_or(0.0);
            let rate = link.mean_rate().unwrap_or(1.0);
            let on_link = (CROSS + 14) as f64 / CROSS as f64;
            let taken = self.cross.iter().map(|cross| {
                let both = cross.until.min(until).saturating_sub(cross.from.max(from));
                cross.rate as f64 * on_link / rate * seconds(both)
            });
            bits += whole * (seconds(until - from) - taken.sum::<f64>()).max(0.0);
        });
        bits
    }

    fn widest(&self) -> Links {
        let (mut forward, mut back) = self.links.clone();
        let (mut now_forward, mut now_back) = self.links.clone();
        for (_, to_forward, to_back) in &self.changes {
            for (link, now, change) in
                [(&mut forward, &mut now_forward, to_forward), (&mut back, &mut now_back, to_back)]
            {
                change.apply(now);
                link.rate = link.rate.max(now.rate);
                link.delay = link.delay.max(now.delay);
            }
        }
        (forward, back)
    }

    fn describe(&self) -> String {
        let (forward, back) = &self.links;
        let mbps = |link: &LinkConfig| link.mean_rate().unwrap_or(0.0) / 1e6;
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let mut text = format!("{:.1} Mbit/s", mbps(forward));
        if (mbps(forward) - mbps(back)).abs() > 0.01 {
            let _ = write!(text, " (back {:.1})", mbps(back));
        }
        let _ = write!(text, ", {:.1} ms", ms(forward.delay));
        if !forward.jitter.is_zero() {
            let order = if forward.in_order { " in order" } else { "" };
            let _ = write!(text, ", jitter {:.1} ms{order}", ms(forward.jitter));
        }
        let percent = |loss: &Loss| match loss {
            Loss::None => String::new(),
            Loss::Random(share) => format!("{:.2} %", share * 100.0),
            loss @ Loss::GilbertElliott { .. } => {
                format!("{:.2} % in bursts", loss.mean() * 100.0)
            }
        };
        if forward.loss != Loss::None {
            let both = if back.loss == Loss::None { "" } else { " both ways" };
            let _ = write!(text, ", loss {}{both}", percent(&forward.loss));
        }
        let codel = if forward.discipline == Discipline::TailDrop { "" } else { " CoDel" };
        if let QueueLimit::Packets(packets) = forward.queue {
            let _ = write!(text, ", queue {packets}{codel}");
        }
        if !forward.passes() {
            text.push_str(", not there at first");
        }
        for (at, change, _) in &self.changes {
            let _ = write!(text, "; at {:.1} s", *at as f64 / SECOND as f64);
            if let Some(Some(rate)) = change.rate {
                let _ = write!(text, " {:.1} Mbit/s", rate as f64 / 1e6);
            }
            if let Some(delay) = change.delay {
                let _ = write!(text, " {:.1} ms", ms(delay));
            }
            if let Some(loss) = &change.loss {
                let percent = percent(loss);
                let _ = write!(text, " loss {}", if percent.is_empty() { "0" } else { &percent });
            }
            match (change.up, change.blackhole) {
                (Some(true), _) | (_, Some(false)) => text.push_str(" comes"),
                (Some(false), _) => text.push_str(" goes down"),
                (_, Some(true)) => text.push_str(" goes silently"),
                (None, None) => {}
            }
        }
        for cross in &self.cross {
            let seconds = |nanos: Nanos| nanos as f64 / SECOND as f64;
            let (from, until) = (seconds(cross.from), seconds(cross.until));
            let rate = cross.rate as f64 / 1e6;
            let _ = write!(text, "; others {rate:.1} Mbit/s from {from:.1} to {until:.1} s");
        }
        text
    }
}

fn draw_loss(rng: &mut Rng) -> Loss {
    match rng.below(10) {
        0..5 => Loss::None,
        5..8 => Loss::Random(log_uniform(rng, 1e-4, 0.1)),
        _ => {
            let (mean, bad_loss) = (log_uniform(rng, 1e-3, 0.1), 0.8);
            let bad_to_good = 0.1 + 0.4 * rng.uniform();
            let good_to_bad = bad_to_good * mean / (bad_loss - mean);
            Loss::GilbertElliott { good_to_bad, bad_to_good, good_loss: 0.0, bad_loss }
        }
    }
}

/// A queue from 5 packets to 2 s at `rate`, a fifth of them with CoDel; all else as by default.
fn draw_queue(rng: &mut Rng, rate: f64) -> LinkConfig {
    let longest = (2.0 * rate / 8.0 / FULL).max(10.0);
    let queue = QueueLimit::Packets(log_uniform(rng, 5.0, longest).round() as u32);
    let codel = rng.chance(0.2);
    let discipline = if codel { Discipline::Codel(Codel::default()) } else { Discipline::TailDrop };
    LinkConfig { queue, discipline, ..LinkConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_stay_within_the_distribution_and_have_everything_in_it() {
        let sets: Vec<Set> = (0..2_000).map(Set::draw).collect();
        for set in &sets {
            assert!((2..=4).contains(&set.paths.len()));
            for Path { links: (forward, back), .. } in &set.paths {
                let rate = forward.mean_rate().expect("it has a rate");
                assert!((1e6..=200e6).contains(&rate) && back.mean_rate() <= Some(rate));
                assert!((0.001..=0.3).contains(&forward.delay.as_secs_f64()));
                assert!(forward.jitter * 2 <= forward.delay && forward.loss.mean() <= 0.1001);
                let QueueLimit::Packets(packets) = forward.queue else { panic!("in packets") };
                let seconds = f64::from(packets) * FULL * 8.0 / rate;
                assert!(packets >= 5 && (seconds < 2.01 || packets <= 10), "{seconds}");
            }
        }
        let share = |has: fn(&Set) -> bool| sets.iter().filter(|set| has(set)).count();
        assert!((300..500).contains(&share(|set| set.paths.iter().any(|p| !p.cross.is_empty()))));
        assert!((400..700).contains(&share(|set| set.paths.iter().any(|p| !p.changes.is_empty()))));
        assert!(share(|set| set.paths.iter().any(|path| !path.links.0.passes())) > 30);
        assert!(share(|set| set.paths[0].links.0.discipline != Discipline::TailDrop) > 300);
    }

    #[test]
    fn the_limit_follows_changes_loss_and_cross_traffic() {
        let link =
            LinkConfig { rate: Some(10_000_000), loss: Loss::Random(0.1), ..LinkConfig::default() };
        let payload = 1_460.0 / 1_514.0;
        let mut path = Path::new((link.clone(), link));
        let limit = |path: &Path| {
            let set = Set::new(0, vec![path.clone()]);
            set.limit(2 * SECOND, 6 * SECOND) / payload / 1e6
        };
        assert!((limit(&path) - 9.0).abs() < 1e-6, "a lost packet has used the link");
        let to = |rate: u64| Change { rate: Some(Some(rate)), ..Change::default() };
        path.changes.push((3 * SECOND, to(20_000_000), to(20_000_000)));
        assert!((limit(&path) - (9.0 + 3.0 * 18.0) / 4.0).abs() < 1e-6);
        let away = Change { blackhole: Some(true), ..Change::default() };
        path.changes.push((5 * SECOND, away.clone(), away));
        assert!((limit(&path) - (9.0 + 2.0 * 18.0) / 4.0).abs() < 1e-6);
        // Half a second at a half of the first rate, headers of the link included.
        let rate = (5e6 / 1_414.0 * 1_400.0) as u64;
        path.cross.push(Cross { from: SECOND, until: 2_500 * MILLI, rate });
        assert!((limit(&path) - (9.0 * 0.75 + 2.0 * 18.0) / 4.0).abs() < 1e-6);
    }
}
