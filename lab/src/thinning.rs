//! What leaving out acknowledgements gains and costs, for every kind of TCP sender, in the simulator.
//!
//! Each row is measured with and without it (`ack_thinning`), with the same seeds. The rows are
//! scenarios of the lab with paths of different delay or jitter, and pairs of links drawn at random.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use mpip_link::{LinkConfig, Loss, QueueLimit};
use mpip_sim::measure::{self, Scenario, Subject};
use mpip_sim::rng::Rng;
use mpip_sim::spec::{TcpControl, WorldSpec};
use mpip_sim::world::{Observe, World};

use crate::run::limit_of;
use crate::{scenarios, simulated, systems};

/// Senders: names of [`TcpControl::from_name`].
const SENDERS: &str = "cubic,cubic-plain,reno,cubic-l2,reno-l2,reno-l1,bbr";
/// Scenarios whose paths differ in delay, or jitter.
const ROWS: &str = "mhip-03,mhip-04,mhip-05,mhip-06,mhip-07,mhip-08,mhip-09,mhip-10,mhip-11,\
    mhip-12,mhip-13,mhip-14,mhip-wireless,mpip-wireless,mpip-delay,two-80-40,delay-100";
const SECOND: u64 = 1_000_000_000;

/// Measures what leaving out acknowledgements gains and costs, in the simulator.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Senders, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = SENDERS)]
    senders: Vec<String>,
    /// Scenarios, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = ROWS)]
    rows: Vec<String>,
    /// Pairs of links drawn at random.
    #[arg(long, default_value_t = 12)]
    pairs: u64,
    /// The first of these pairs: others than those that somebody tuned on.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Runs of each row, sender and setting.
    #[arg(long, default_value_t = 8)]
    repetitions: u32,
    /// Seconds of each transfer, which all count.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// One thing to run over.
enum Row {
    Scenario(Box<scenarios::Loaded>),
    Pair(u64),
}

impl Row {
    fn name(&self) -> String {
        match self {
            Self::Scenario(loaded) => loaded.name.clone(),
            Self::Pair(number) => {
                let link = |(link, _): &(LinkConfig, LinkConfig)| {
                    let loss = link.loss.mean() * 100.0;
                    let mut text = format!(
                        "{:.0} Mbit/s {:.0} ms",
                        link.mean_rate().unwrap_or(0.0) / 1e6,
                        link.delay.as_secs_f64() * 1e3
                    );
                    if !link.jitter.is_zero() {
                        let _ = write!(text, " ±{:.0}", link.jitter.as_secs_f64() * 1e3);
                    }
                    if loss > 0.0 {
                        let _ = write!(text, " {loss:.1} %");
                    }
                    text
                };
                let links = pair(*number);
                format!("{number}: {} + {}", link(&links[0]), link(&links[1]))
            }
        }
    }

    /// The world of one run, and the limit of its transfer in bit/s.
    fn world(
        &self,
        sender: &str,
        repetition: u32,
        seconds: u64,
    ) -> Result<(WorldSpec, f64), String> {
        match self {
            Self::Scenario(loaded) => {
                let mut scenario = loaded.scenario.clone();
                sender.clone_into(&mut scenario.congestion_control);
                scenario.duration = Duration::from_secs(seconds);
                for traffic in &mut scenario.traffic {
                    traffic.duration = scenario.duration;
                }
                let subjects = systems::subjects(&scenario);
                let mpip = subjects.iter().find(|subject| subject.system.kind == "mpip");
                let mpip = mpip.ok_or_else(|| format!("{}: without mpip", loaded.name))?;
                let (world, _) = simulated::world(&scenario, mpip, repetition)?;
                Ok((world, limit_of(&scenario, mpip)))
            }
            Self::Pair(number) => {
                let scenario = Scenario {
                    paths: pair(*number),
                    tcp: TcpControl::from_name(sender)?,
                    duration: seconds * SECOND,
                    from: 0,
                    seed: number * 1_000 + u64::from(repetition),
                };
                let limit = measure::limit(&scenario.paths).unwrap_or(0.0);
                Ok((measure::world(&scenario, Subject::MPIP), limit))
            }
        }
    }
}

/// Two links: 2 to 100 Mbit/s, up to 150 ms, a half with jitter, a half with loss.
fn pair(number: u64) -> Vec<(LinkConfig, LinkConfig)> {
    let mut rng = Rng::stream(number, 4_711);
    let mut link = || {
        let delay = Duration::from_secs_f64(0.001 * 150f64.powf(rng.uniform()));
        let jitter =
            if rng.chance(0.5) { delay.mul_f64(0.4 * rng.uniform()) } else { Duration::ZERO };
        let loss = if rng.chance(0.5) {
            Loss::Random(0.0001 * 200f64.powf(rng.uniform()))
        } else {
            Loss::None
        };
        let config = LinkConfig {
            rate: Some((2e6 * 50f64.powf(rng.uniform())) as u64),
            queue: QueueLimit::Packets(rng.between(50, 200) as u32),
            delay,
            jitter,
            in_order: rng.chance(0.5),
            loss,
            ..LinkConfig::default()
        };
        (config.clone(), config)
    };
    vec![link(), link()]
}

/// Share of the limit that the transfer reached.
fn ratio(spec: WorldSpec, limit: f64, seconds: u64) -> Result<f64, String> {
    let mut world = World::new(spec, Observe::default());
    world.run_until((simulated::WARM_UP / SECOND + seconds) * SECOND);
    if let Some(violation) = world.violations().first() {
        return Err(violation.to_string());
    }
    Ok(world.flow_bytes(0) as f64 * 8.0 / seconds as f64 / limit)
}

/// Sums of the ratios without and with it.
type Sums = [f64; 2];

/// Runs everything and prints a table in Markdown: for each row and sender the mean share of the limit
/// with thinning, and what that is of the share without.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let named = options.rows.iter().filter(|name| !name.is_empty());
    let named = named.map(|name| Ok(Row::Scenario(Box::new(scenarios::find(name)?))));
    let drawn = (options.first..options.first + options.pairs).map(|number| Ok(Row::Pair(number)));
    let rows: Vec<Row> = named.chain(drawn).collect::<io::Result<_>>()?;
    let senders = &options.senders;
    let sums = Mutex::new(vec![vec![Sums::default(); senders.len()]; rows.len()]);
    let each = senders.len() * options.repetitions as usize * 2;
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), String> {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let (row, rest) = (job / each, job % each);
            let Some(what) = rows.get(row) else { return Ok(()) };
            let (on, rest) = (rest % 2, rest / 2);
            let (sender, repetition) = (rest % senders.len(), rest / senders.len());
            let (spec, limit) = what.world(&senders[sender], repetition as u32, options.seconds)?;
            let spec = spec.with_engines(|engine| engine.ack_thinning = on == 1);
            let ratio = ratio(spec, limit, options.seconds)
                .map_err(|error| format!("{}, {}: {error}", what.name(), senders[sender]))?;
            sums.lock().unwrap_or_else(PoisonError::into_inner)[row][sender][on] += ratio;
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .map_err(|_| io::Error::other("a worker panicked"))?
                .map_err(io::Error::other)
        })
    })?;
    let sums = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    print!("{}", table(&rows, options, &sums));
    Ok(())
}

fn table(rows: &[Row], options: &Options, sums: &[Vec<Sums>]) -> String {
    let mut text = format!("| row | {} |\n|---|", options.senders.join(" | "));
    text.push_str(&"---|".repeat(options.senders.len()));
    let mut least = vec![f64::INFINITY; options.senders.len()];
    let mut whole = vec![Sums::default(); options.senders.len()];
    for (row, sums) in rows.iter().zip(sums) {
        let _ = write!(text, "\n| {} |", row.name());
        for (index, [without, with]) in sums.iter().enumerate() {
            let share = with / f64::from(options.repetitions);
            let _ = write!(text, " {share:.3}, {:.3} |", with / without);
            least[index] = least[index].min(with / without);
            whole[index][0] += without;
            whole[index][1] += with;
        }
    }
    text.push_str("\n| all |");
    for [without, with] in &whole {
        let runs = f64::from(options.repetitions) * rows.len() as f64;
        let _ = write!(text, " {:.3}, {:.3} |", with / runs, with / without);
    }
    text.push_str("\n| least |");
    for least in least {
        let _ = write!(text, " {least:.3} |");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            senders: vec!["cubic".to_owned(), "reno-l2".to_owned()],
            rows: Vec::new(),
            pairs: 1,
            first: 3,
            repetitions: 1,
            seconds: 2,
        }
    }

    #[test]
    fn every_row_of_the_table_can_be_run() {
        let rows = ROWS.split(',').map(|name| {
            let loaded = scenarios::find(name).expect("a scenario");
            Row::Scenario(Box::new(loaded))
        });
        for row in rows.chain([Row::Pair(0)]) {
            for sender in SENDERS.split(',') {
                let (_, limit) = row.world(sender, 0, 2).expect("a world");
                assert!(limit > 1e6, "{}: {limit}", row.name());
            }
        }
    }

    #[test]
    fn a_table_has_the_least_of_each_sender() {
        let rows = [Row::Pair(3), Row::Pair(4)];
        let sums = [vec![[0.5, 0.75], [0.8, 0.4]], vec![[0.5, 0.5], [0.5, 0.45]]];
        let text = table(&rows, &options(), &sums);
        assert!(text.ends_with("| least | 1.000 | 0.500 |\n"), "{text}");
        assert!(text.contains("0.750, 1.500 | 0.400, 0.500"), "{text}");
    }

    #[test]
    fn a_pair_repeats_and_transfers() {
        let (spec, limit) = Row::Pair(3).world("reno-l2", 0, 2).expect("a world");
        let found = ratio(spec.clone(), limit, 2).expect("sound");
        assert_eq!(ratio(spec, limit, 2), Ok(found));
        assert!(found > 0.05 && found <= 1.02, "{found}");
    }
}
