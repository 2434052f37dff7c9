//! Goodput of QUIC and TCP over the links of the cases that issue 21 measured on kernels: the limit,
//! the best path alone, and mpip (three seeds), in Mbit/s.
//!
//! `cargo run --release -p mpip-sim --example quic -- [SENDER ...]`

use core::time::Duration;

use mpip_link::{LinkConfig, Loss, QueueLimit};
use mpip_sim::clock::SECOND;
use mpip_sim::measure::{Scenario, Sender, Subject, limit, measure};

type Paths = Vec<(LinkConfig, LinkConfig)>;

/// Mbit/s, ms, ms, and loss in percent on the way forward.
fn link(rate: u64, delay: u64, jitter: u64, loss: f64) -> (LinkConfig, LinkConfig) {
    let back = LinkConfig {
        rate: Some(rate * 1_000_000),
        delay: Duration::from_millis(delay),
        jitter: Duration::from_millis(jitter),
        queue: QueueLimit::Packets(100),
        ..LinkConfig::default()
    };
    let loss = if loss > 0.0 { Loss::Random(loss / 100.0) } else { Loss::None };
    (LinkConfig { loss, ..back.clone() }, back)
}

fn cases() -> Vec<(&'static str, Paths)> {
    vec![
        ("20/10 + 20/40", vec![link(20, 10, 0, 0.0), link(20, 40, 0, 0.0)]),
        ("20/12 + 30/35 jitter 8, 0.1 %", vec![link(20, 12, 0, 0.0), link(30, 35, 8, 0.1)]),
        ("50/8 + 10/30 jitter 3, 0.5 %", vec![link(50, 8, 0, 0.0), link(10, 30, 3, 0.5)]),
        (
            "20/10 + 10/25/3 + 15/50/10 1 %",
            vec![link(20, 10, 0, 0.0), link(10, 25, 3, 0.0), link(15, 50, 10, 1.0)],
        ),
        ("20/10 + 20/10", vec![link(20, 10, 0, 0.0), link(20, 10, 0, 0.0)]),
    ]
}

fn main() -> Result<(), String> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let names = if names.is_empty() { vec!["quic-cubic".to_owned()] } else { names };
    println!("{:12} {:32} {:>6} {:>6}  mpip", "sender", "Mbit/s / ms", "limit", "best");
    for name in names {
        let sender = Sender::from_name(&name)?;
        for (case, paths) in cases() {
            let limit = limit(&paths).unwrap_or(0.0) / 1e6;
            let mut scenario = Scenario { paths, sender, duration: 15 * SECOND, from: 0, seed: 1 };
            let alone = |path| measure(&scenario, Subject::Path(path)).goodput / 1e6;
            let best = (0..scenario.paths.len()).map(alone).fold(0.0, f64::max);
            let mut through = String::new();
            for seed in 1..=3 {
                scenario.seed = seed;
                let found = measure(&scenario, Subject::MPIP);
                through.push_str(&format!(" {:5.1}", found.goodput / 1e6));
                for violation in found.violations {
                    through.push_str(&format!(" {violation}"));
                }
            }
            println!("{name:12} {case:32} {limit:6.1} {best:6.1} {through}");
        }
    }
    Ok(())
}
