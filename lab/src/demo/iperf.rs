//! One iperf3 measurement from host A to host B, watched while it runs.

use std::io;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::daemons::Daemons;
use super::interrupt::Interrupt;
use super::meter::{Bytes, Meter};
use super::report::Transfer;
use super::screen::Screen;
use super::world::{self, HOST_A, HOST_B};
use crate::command::{self, Output, Running};

const PORT: u16 = 5201;
/// Warm-up in seconds that does not count, the same for all systems.
pub(super) const WARM_UP: u64 = 1;
const SAMPLE: Duration = Duration::from_millis(200);
/// Time beyond the measurement after which it is ended.
const GRACE: Duration = Duration::from_secs(10);

/// What to measure.
pub(super) struct Measurement<'a> {
    /// Source address; the kernel's choice without it.
    pub(super) from: Option<&'a str>,
    pub(super) to: &'a str,
    pub(super) seconds: u64,
    /// Words before the command lines of both sides, and words after that of the client.
    pub(super) wrapper: (&'a [&'a str], &'a [&'a str]),
}

/// Measures. With `mpip`, the bytes of paths are the daemons' figures.
pub(super) fn measure(
    measurement: &Measurement<'_>,
    mpip: Option<&mut Daemons>,
    screen: &mut Screen,
    interrupt: &Interrupt,
) -> io::Result<Transfer> {
    let Measurement { from, to, seconds, wrapper: (before, after) } = measurement;
    // Not bound to an address: MPTCP must reach it at all of them.
    let server = format!("iperf3 -s -1 -J -p {PORT}");
    let bind = from.map(|from| format!("-B {from}")).unwrap_or_default();
    let client = format!(
        "iperf3 -c {to} -p {PORT} {bind} -t {seconds} -O {WARM_UP} -i 0 -J -C cubic \
         --connect-timeout 5000"
    );
    let words = |line: &str| -> Vec<String> {
        before.iter().copied().chain(line.split_whitespace()).map(str::to_owned).collect()
    };
    let mut server = Running::start(&world::inside(HOST_B, &words(&server)))?;
    wait_for_listener(&mut server, interrupt)?;
    let mut meter = Meter::start(mpip.as_deref())?;
    let client = [words(&client), after.iter().map(|word| (*word).to_owned()).collect()].concat();
    let mut client = Running::start(&world::inside(HOST_A, &client))?;
    let all = Duration::from_secs(WARM_UP + seconds);
    let (started, mut bytes) = (Instant::now(), Bytes::default());
    while !client.has_ended() && started.elapsed() < all + GRACE {
        interrupt.sleep(SAMPLE)?;
        bytes = meter.sample()?;
        let mut view = meter.view();
        view.done = (view.seconds / all.as_secs_f64()).min(1.0);
        screen.show(&view)?;
    }
    drop(meter);
    if let Some(mpip) = mpip {
        mpip.check()?;
    }
    let client = client.finish(Instant::now());
    let server = server.finish(Instant::now() + Duration::from_secs(3));
    let (payload, seconds) = received(&client, &server).map_err(io::Error::other)?;
    let goodput_bps = payload * 8.0 / seconds;
    Ok(Transfer { goodput_bps, seconds, path_bytes: bytes.paths })
}

fn wait_for_listener(server: &mut Running, interrupt: &Interrupt) -> io::Result<()> {
    let (port, deadline) = (format!("sport = :{PORT}"), Instant::now() + Duration::from_secs(5));
    while Instant::now() < deadline && !server.has_ended() {
        if !command::run(&["ss", "-N", HOST_B, "-ltnH", &port])?.trim().is_empty() {
            return Ok(());
        }
        interrupt.sleep(Duration::from_millis(20))?;
    }
    Err(io::Error::other(format!("{}: it does not listen", server.line())))
}

/// Bytes that the receiver got after the warm-up, and the seconds that this took.
fn received(client: &Output, server: &Output) -> Result<(f64, f64), String> {
    let [client, server] = [("client", client), ("server", server)].map(|(side, output)| {
        let parsed = serde_json::from_str::<Value>(&output.stdout);
        let value = parsed.map_err(|_| {
            let text = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
            format!("iperf3 {side}: {}", text.trim().lines().last().unwrap_or("no output"))
        })?;
        match value["error"].as_str() {
            Some(error) => Err(format!("iperf3 {side}: {error}")),
            None => Ok(value),
        }
    });
    client?;
    let server = server?;
    // Not from the intervals: iperf3 may count one twice where the warm-up ends.
    let sum = &server["end"]["sum_received"];
    let [bytes, seconds] = ["bytes", "seconds"].map(|name| sum[name].as_f64().unwrap_or(0.0));
    if bytes > 0.0 && seconds > 0.0 {
        Ok((bytes, seconds))
    } else {
        Err("iperf3: nothing was received after the warm-up".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &str) -> Output {
        Output { stdout: stdout.to_owned(), stderr: String::new(), status: None }
    }

    #[test]
    fn what_the_receiver_counted_is_the_result() {
        let client = output(r#"{"end": {"sum_received": {"bytes": 999, "seconds": 0.6}}}"#);
        let server = output(r#"{"end": {"sum_received": {"bytes": 600, "seconds": 0.5}}}"#);
        assert_eq!(received(&client, &server), Ok((600.0, 0.5)));
    }

    #[test]
    fn what_iperf_complains_of_is_the_error() {
        let refused = output(r#"{"error": "unable to connect to server"}"#);
        let error = received(&refused, &output("{}")).unwrap_err();
        assert_eq!(error, "iperf3 client: unable to connect to server");
        assert!(received(&output("{}"), &output("{}")).is_err());
        assert!(received(&output("{}"), &output("killed")).unwrap_err().contains("killed"));
    }
}
