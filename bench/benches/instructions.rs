//! Sends packets through two engines and ends: what `make instructions` counts under callgrind.
//! The difference of two runs is what the additional packets took, without all that comes first.
//!
//! usage: instructions bulk|small ROUNDS; prints how many packets the rounds delivered

mod pair;

use mpip_core::CongestionControlKind;
use pair::Pair;

fn main() -> Result<(), String> {
    // What `cargo bench` and `cargo test` pass in addition begins with `--`.
    let arguments: Vec<_> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let [kind, rounds] = &arguments[..] else { return Ok(()) };
    let rounds: u32 =
        rounds.parse().map_err(|error| format!("expected a number of rounds: {error}"))?;
    let mut pair = Pair::new(CongestionControlKind::default());
    let before = pair.delivered();
    for _ in 0..rounds {
        match kind.as_str() {
            "bulk" => pair.bulk(),
            "small" => pair.small(),
            other => return Err(format!("expected `bulk` or `small`, found `{other}`")),
        }
    }
    println!("{}", pair.delivered() - before);
    Ok(())
}
