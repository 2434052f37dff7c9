//! Sends packets through two engines and ends: what `make instructions` counts under callgrind.
//! The difference of two runs is what the additional packets took, without all that comes first.
//!
//! usage: instructions KIND ROUNDS; prints how many packets the rounds delivered. `bulk` sends
//! full-size segments over one path, `bulk-8-paths` over eight, `small` small packets of one
//! session, and `first` small packets that each begin a session.

mod pair;

use mpip_core::CongestionControlKind;
use pair::Pair;

/// Part of an equal share that each path has to carry, so that the kinds are what they say.
const LEAST: f64 = 0.2;

fn main() -> Result<(), String> {
    // What `cargo bench` and `cargo test` pass in addition begins with `--`.
    let arguments: Vec<_> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let [kind, rounds] = &arguments[..] else { return Ok(()) };
    let rounds: u32 =
        rounds.parse().map_err(|error| format!("expected a number of rounds: {error}"))?;
    let (paths, round): (u8, fn(&mut Pair)) = match kind.as_str() {
        "bulk" => (1, Pair::bulk),
        "bulk-8-paths" => (8, Pair::bulk),
        "small" => (1, Pair::small),
        "first" => (1, Pair::first),
        other => {
            let known = "`bulk`, `bulk-8-paths`, `small` or `first`";
            return Err(format!("expected {known}, found `{other}`"));
        }
    };
    let mut pair = Pair::new(CongestionControlKind::default(), paths);
    let before = pair.delivered();
    (0..rounds).for_each(|_| round(&mut pair));
    println!("{}", pair.delivered() - before);
    let even = pair.evenness();
    if even < LEAST {
        return Err(format!(
            "expected each path to carry {LEAST} of an equal share, found {even:.2}"
        ));
    }
    Ok(())
}
