//! Measures the accuracy of the emulator on this machine: four links at once, with traffic and its
//! measurement on the same processors.

use std::io;
use std::time::{Duration, Instant};

use crate::calibration::Calibration;
use crate::command::{self, Running};
use crate::links::{Record, Setup};
use crate::probe::Reception;
use crate::progress::Work;
use crate::scenarios;
use crate::testbed::Testbed;

/// Links that carry traffic at the same time.
const LINKS: usize = 4;
/// Loss of the loss measurement.
const LOSS: f64 = 0.01;
const JITTER_DELAY_MS: f64 = 50.0;
const JITTER_MS: f64 = 10.0;
const DELAY_MS: f64 = 20.0;
/// Length of the headers of IPv4 and UDP, in bytes.
const HEADERS: usize = 28;
const PAYLOAD: usize = 1472;
const PORT: u16 = 5000;
/// What a measurement takes besides its length.
const SETUP: Duration = Duration::from_secs(2);
const RECEIVER_PRIORITY: u32 = 40;
const SENDER_PRIORITY: u32 = 30;

/// The topology of a measurement: `LINKS` disjoint links with these settings.
fn scenario(settings: &str) -> String {
    let mut text = format!(
        "title = \"calibration\"\nduration = \"60 s\"\nseed = {}\nsystems = [\"tcp\"]\n\
         [[traffic]]\nkind = \"tcp\"\nfrom = \"client\"\nto = \"server\"\n",
        settings.len()
    );
    for number in 1..=LINKS {
        for (index, host) in ["client", "server"].into_iter().enumerate() {
            text += &format!(
                "[[interface]]\nhost = \"{host}\"\nname = \"p{number}\"\n\
                 address = \"198.18.{number}.{}\"\n",
                index + 1
            );
        }
        text += &format!(
            "[[link]]\nname = \"p{number}\"\nends = [\"client.p{number}\", \"server.p{number}\"]\n\
             {settings}\n"
        );
    }
    text
}

/// The command line of a generator. It gets a real-time priority if that is permitted, below that
/// of the emulator, so that other work on the machine does not disturb the measurement.
fn generator(program: &str, priority: u32, line: &str) -> [String; 3] {
    let script = format!(
        "if chrt -f {priority} true 2>/dev/null; \
         then exec chrt -f {priority} '{program}' {line}; else exec '{program}' {line}; fi"
    );
    ["sh".to_owned(), "-c".to_owned(), script]
}

/// Sends `pps` packets per second of 1500 bytes on every link for `length`.
fn measure(
    settings: &str,
    pps: f64,
    length: Duration,
) -> io::Result<(Vec<Reception>, Record, u64)> {
    let text = scenario(settings);
    let parsed = scenarios::parse("calibration", &text)?;
    let setup =
        Setup { file: "calibration".to_owned(), text, repetition: 0, pcap: None, netem: false };
    let mut testbed = Testbed::build(&parsed, &setup)?;
    let program = command::own_program();
    let seconds = length.as_secs_f64();
    let mut receivers = Vec::new();
    let mut senders = Vec::new();
    for number in 1..=LINKS {
        let line = format!("probe-receive 198.18.{number}.2:{PORT} {}", seconds + 8.0);
        let line = generator(&program, RECEIVER_PRIORITY, &line);
        receivers.push(Running::start(&testbed.host("server")?.inside(&line))?);
    }
    std::thread::sleep(Duration::from_millis(300));
    testbed.start()?;
    for number in 1..=LINKS {
        let line = format!(
            "probe-send 198.18.{number}.1:0 198.18.{number}.2:{PORT} {PAYLOAD} {} {}",
            (1e9 / pps) as u64,
            (seconds * pps) as u64
        );
        let line = generator(&program, SENDER_PRIORITY, &line);
        senders.push(Running::start(&testbed.host("client")?.inside(&line))?);
    }
    let deadline = Instant::now() + length + Duration::from_secs(10);
    for sender in senders {
        let output = sender.finish(deadline);
        if !output.succeeded() {
            return Err(io::Error::other(format!("sender: {}", output.stderr)));
        }
    }
    let mut receptions = Vec::new();
    for receiver in receivers {
        let output = receiver.finish(deadline);
        let reception = serde_json::from_str(&output.stdout)
            .map_err(|error| io::Error::other(format!("receiver: {error}: {}", output.stderr)))?;
        receptions.push(reception);
    }
    let (record, overrun) = testbed.stop()?;
    Ok((receptions, record, overrun))
}

/// Measures with links of `rate` bit/s; `length` is the time of each of the three measurements.
pub(crate) fn calibrate(rate: f64, length: Duration) -> io::Result<Calibration> {
    command::take_precedence();
    // Three measurements, and what each takes to set up.
    let planned = (length + SETUP) * 3;
    let _progress =
        Work::new(&format!("calibrating the emulator, about {} s", planned.as_secs()), 1);
    let packet_bits = ((PAYLOAD + HEADERS + 14) * 8) as f64;
    let packets = rate / packet_bits;
    let mut late = 0;
    let mut frames = 0;
    let mut lateness_us = [0; 3];
    let mut overrun = 0;
    let mut account = |record: &Record, dropped: u64, counts: bool| {
        late += record.late;
        frames += record.frames;
        if counts {
            overrun += dropped;
        }
        for (sum, value) in lateness_us.iter_mut().zip(record.lateness_us) {
            *sum = value.max(*sum);
        }
    };

    let settings = format!("rate = \"{rate} bit/s\"\nqueue = \"400 packets\"");
    let (full, record, dropped) = measure(&settings, packets * 1.1, length)?;
    account(&record, dropped, true);
    let rate_errors = full
        .iter()
        .map(|r| (r.received - 1) as f64 * packet_bits / r.seconds / rate - 1.0)
        .collect();

    let (delay, record, dropped) = measure("delay = \"20 ms\"", packets, length)?;
    account(&record, dropped, true);
    let added_delay_p99_ms = delay.iter().map(|r| r.delay_ms.p99 - DELAY_MS).collect();
    let added_delay_median_ms = delay.iter().map(|r| r.delay_ms.median - DELAY_MS).collect();

    let (both, record, dropped) =
        measure("delay = \"50 ms\"\njitter = \"10 ms\"\nloss = \"1 %\"", packets, length)?;
    account(&record, dropped, true);
    let sent = (length.as_secs_f64() * packets).floor();
    Ok(Calibration {
        rate,
        rate_errors,
        added_delay_p99_ms,
        added_delay_median_ms,
        losses: both.iter().map(|r| 1.0 - r.received as f64 / sent).collect(),
        loss_set: LOSS,
        loss_bound: 3.29 * (LOSS * (1.0 - LOSS) / sent).sqrt(),
        jitter_mean_errors: both.iter().map(|r| r.delay_ms.mean / JITTER_DELAY_MS - 1.0).collect(),
        jitter_deviation_errors: both
            .iter()
            .map(|r| r.delay_ms.deviation / JITTER_MS - 1.0)
            .collect(),
        late_share: if frames == 0 { 0.0 } else { late as f64 / frames as f64 },
        lateness_us,
        overrun,
    })
}
