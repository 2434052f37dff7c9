//! What leaving out acknowledgements gains and costs, for every kind of TCP sender, in the
//! simulator.
//!
//! Each row is measured with and without it (`ack_thinning`), with the same seeds. The rows are
//! scenarios of the lab with paths of different delay or jitter, and pairs of links drawn at
//! random.

use std::fmt::Write as _;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use mpip_link::{LinkConfig, Loss, QueueLimit};
use mpip_sim::measure::{self, Scenario, Subject};
use mpip_sim::rng::Rng;
use mpip_sim::spec::{TcpControl, WorldSpec};
use mpip_sim::world::{Observe, World};

use crate::progress::Work;
use crate::run::limit_of;
use crate::subject::subjects;
use crate::{scenarios, side_by_side, simulated};

/// Senders: names of [`TcpControl::from_name`].
const SENDERS: &str = "cubic,cubic-plain,reno,cubic-l2,reno-l2,reno-l1,bbr";
/// Scenarios whose paths differ in delay, or jitter.
const ROWS: &str = "mhip-03,mhip-04,mhip-05,mhip-06,mhip-07,mhip-08,mhip-09,mhip-10,mhip-11,\
    mhip-12,mhip-13,mhip-14,mhip-wireless,mpip-wireless,mpip-delay,two-80-40,delay-100";
const SECOND: u64 = 1_000_000_000;
/// By how much each repetition begins later than the one before, ns.
const SHIFT: u64 = 17_300_000;

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
                let subjects = subjects(&scenario);
                let mpip = subjects.iter().find(|subject| subject.system.kind == "mpip");
                let mpip = mpip.ok_or_else(|| format!("{}: without mpip", loaded.name))?;
                let (world, _) = simulated::world(&scenario, mpip, repetition)?;
                Ok((world, limit_of(&scenario, mpip)))
            }
            Self::Pair(number) => {
                let scenario = Scenario {
                    paths: pair(*number),
                    sender: TcpControl::from_name(sender)?.into(),
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

/// Share of the limit that the transfer reached, which began `shift` ns after the warm-up.
fn ratio(spec: WorldSpec, limit: f64, shift: u64, seconds: u64) -> Result<f64, String> {
    let mut world = World::new(spec, Observe::default());
    world.run_until(simulated::WARM_UP + shift + seconds * SECOND);
    if let Some(violation) = world.violations().first() {
        return Err(violation.to_string());
    }
    Ok(world.flow_bytes(0) as f64 * 8.0 / seconds as f64 / limit)
}

/// The ratios of a row and sender: sums, and sums of squares, without and with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    ratio: [f64; 2],
    squares: [f64; 2],
}

impl Sums {
    fn add(&mut self, on: usize, ratio: f64) {
        self.ratio[on] += ratio;
        self.squares[on] += ratio * ratio;
    }

    /// What the mean with it is of that without, and the standard error of that.
    fn quotient(&self, runs: u32) -> (f64, f64) {
        let runs = f64::from(runs);
        let means = self.ratio.map(|sum| sum / runs);
        // Relative variances of the means, whose sum is about that of their quotient.
        let variance = |on: usize| {
            let spread = (self.squares[on] / runs - means[on] * means[on]).max(0.0);
            spread / (runs - 1.0).max(1.0) / (means[on] * means[on])
        };
        let quotient = means[1] / means[0];
        (quotient, quotient * (variance(0) + variance(1)).sqrt())
    }
}

/// Runs everything and prints a table in Markdown: for each row and sender the mean share of the
/// limit with thinning, and what that is of the share without, with its standard error.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let named = options.rows.iter().filter(|name| !name.is_empty());
    let named = named.map(|name| Ok(Row::Scenario(Box::new(scenarios::find(name)?))));
    let drawn = (options.first..options.first + options.pairs).map(|number| Ok(Row::Pair(number)));
    let rows: Vec<Row> = named.chain(drawn).collect::<io::Result<_>>()?;
    let senders = &options.senders;
    let sums = Mutex::new(vec![vec![Sums::default(); senders.len()]; rows.len()]);
    let each = senders.len() * options.repetitions as usize * 2;
    let progress = Work::new("simulated worlds", rows.len() * each);
    side_by_side::each(0..rows.len() * each, side_by_side::threads(None), |job| {
        let (row, rest) = (job / each, job % each);
        let (on, rest) = (rest % 2, rest / 2);
        let (sender, repetition) = (rest % senders.len(), rest / senders.len());
        let what = &rows[row];
        let (spec, limit) = what
            .world(&senders[sender], repetition as u32, options.seconds)
            .map_err(io::Error::other)?;
        let mut spec = spec.with_engines(|engine| engine.ack_thinning = on == 1);
        // Where links have no randomness, runs would be the same.
        let shift = repetition as u64 * SHIFT;
        for flow in &mut spec.flows {
            flow.start += shift;
            flow.stop += shift;
        }
        let ratio = ratio(spec, limit, shift, options.seconds).map_err(|error| {
            io::Error::other(format!("{}, {}: {error}", what.name(), senders[sender]))
        })?;
        sums.lock().unwrap_or_else(PoisonError::into_inner)[row][sender].add(on, ratio);
        progress.one();
        Ok(())
    })?;
    drop(progress);
    let sums = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    print!("{}", table(&rows, options, &sums));
    Ok(())
}

fn table(rows: &[Row], options: &Options, sums: &[Vec<Sums>]) -> String {
    let mut text = format!("| row | {} |\n|---|", options.senders.join(" | "));
    text.push_str(&"---|".repeat(options.senders.len()));
    let mut least = vec![f64::INFINITY; options.senders.len()];
    let mut whole = vec![Sums::default(); options.senders.len()];
    let mut errors = vec![0.0; options.senders.len()];
    for (row, sums) in rows.iter().zip(sums) {
        let _ = write!(text, "\n| {} |", row.name());
        for (index, sums) in sums.iter().enumerate() {
            let share = sums.ratio[1] / f64::from(options.repetitions);
            let (quotient, error) = sums.quotient(options.repetitions);
            let _ = write!(text, " {share:.3}, {quotient:.3} ±{error:.3} |");
            least[index] = least[index].min(quotient);
            errors[index] += (error / rows.len() as f64).powi(2);
            for on in 0..2 {
                whole[index].ratio[on] += sums.ratio[on];
            }
        }
    }
    text.push_str("\n| all |");
    for (sums, error) in whole.iter().zip(&errors) {
        let runs = f64::from(options.repetitions) * rows.len() as f64;
        let [without, with] = sums.ratio;
        let _ = write!(text, " {:.3}, {:.3} ±{:.3} |", with / runs, with / without, error.sqrt());
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
        let of = |ratio: [f64; 2]| Sums { ratio, squares: ratio.map(|ratio| ratio * ratio) };
        let sums = [vec![of([0.5, 0.75]), of([0.8, 0.4])], vec![of([0.5, 0.5]), of([0.5, 0.45])]];
        let text = table(&rows, &options(), &sums);
        assert!(text.ends_with("| least | 1.000 | 0.500 |\n"), "{text}");
        assert!(text.contains("0.750, 1.500 ±0.000 | 0.400, 0.500 ±0.000"), "{text}");
    }

    #[test]
    fn a_quotient_has_the_error_of_both_means() {
        let mut sums = Sums::default();
        for ratio in [0.4, 0.6] {
            sums.add(0, ratio);
            sums.add(1, ratio * 2.0);
        }
        let (quotient, error) = sums.quotient(2);
        // Each mean has a relative error of 0.1 * sqrt(2) / sqrt(2) / 0.5.
        assert!((quotient - 2.0).abs() < 1e-9 && (error - 2.0 * 0.2 * 2f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn a_pair_repeats_and_transfers() {
        let (spec, limit) = Row::Pair(3).world("reno-l2", 0, 2).expect("a world");
        let found = ratio(spec.clone(), limit, 0, 2).expect("sound");
        assert_eq!(ratio(spec, limit, 0, 2), Ok(found));
        assert!(found > 0.05 && found <= 1.02, "{found}");
    }
}
