//! `mpip bench`: what each path carries alone and all of them together, and what limits them.

mod words;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use mpip_api::{BenchProgress, Client, Direction, Request};

use crate::failure::Failure;
use crate::output::{colours, print};
use crate::progress::Line;
use crate::units::rate;

/// Longest wait for a sign of life: the daemon tries several addresses of the peer, and a
/// measurement tells its progress several times a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The peer (default: the only one)
    peer: Option<String>,
    /// Length of each measurement, in seconds: 0.5 to 10
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    time: f64,
    /// Most data of each measurement, in megabytes: 1 to 4000
    #[arg(long, value_name = "MB", default_value_t = 500)]
    limit: u64,
    /// Measure one direction only
    #[arg(long, value_name = "DIRECTION", value_parser = ["send", "receive"])]
    only: Option<String>,
    /// The peer's inner address, if it cannot be found
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Options {
    fn request(&self) -> Result<Request, Failure> {
        if !(0.5..=10.0).contains(&self.time) {
            return Err(Failure(format!("--time: expected 0.5 to 10 s, found {}", self.time)));
        }
        if !(1..=4_000).contains(&self.limit) {
            return Err(Failure(format!("--limit: expected 1 to 4000 MB, found {}", self.limit)));
        }
        let directions = match self.only.as_deref() {
            Some("send") => vec![Direction::Send],
            Some(_) => vec![Direction::Receive],
            None => vec![Direction::Send, Direction::Receive],
        };
        Ok(Request::Bench {
            peer: self.peer.clone(),
            address: self.address,
            duration_ms: (self.time * 1e3) as u64,
            max_bytes: self.limit * 1_000_000,
            directions,
        })
    }
}

/// Measures, and says what to expect.
pub(crate) fn run(socket: &Path, options: &Options) -> Result<(), Failure> {
    let request = options.request()?;
    let mut client = Client::connect(socket)?;
    client.wait_up_to(PATIENCE)?;
    let mut line = Line::default();
    line.show(0, "asking the peer");
    let measured = client.bench(&request, |look| line.show(look.step, &text(look)));
    line.clear();
    let report = measured?;
    if options.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&report)?));
    }
    print(&words::render(&report, colours()))
}

fn text(look: &BenchProgress) -> String {
    let BenchProgress { step, steps, path, direction, elapsed_ms, duration_ms, rate_bps } = look;
    let what = path.map_or("all paths together".to_owned(), |id| format!("path {id} alone"));
    let way = words::way(*direction);
    format!(
        "{step} of {steps}: {what}, {way}: {:.0} of {:.0} s, {}",
        elapsed_ms / 1e3,
        duration_ms / 1e3,
        rate(*rate_bps)
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Options {
        Arguments::parse_from([&["bench"][..], arguments].concat()).options
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_the_bounds() {
        let refused = |arguments: &[&str]| {
            options(arguments).request().expect_err("out of bounds").to_string()
        };
        assert_eq!(refused(&["--time", "60"]), "--time: expected 0.5 to 10 s, found 60");
        assert_eq!(refused(&["--time", "NaN"]), "--time: expected 0.5 to 10 s, found NaN");
        assert_eq!(refused(&["--limit", "0"]), "--limit: expected 1 to 4000 MB, found 0");
    }

    #[test]
    fn options_become_a_request() {
        let request = options(&["gateway", "--time", "1.5", "--only", "receive"]).request();
        let expected = Request::Bench {
            peer: Some("gateway".to_owned()),
            address: None,
            duration_ms: 1_500,
            max_bytes: 500_000_000,
            directions: vec![Direction::Receive],
        };
        assert_eq!(request.expect("valid"), expected);
    }
}
