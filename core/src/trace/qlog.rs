//! Records as qlog (draft-ietf-quic-qlog-main-schema) in a JSON text sequence (RFC 7464).
//!
//! Events have the names of draft-ietf-quic-qlog-quic-events where one exists, with the path in
//! `path_id`; other names begin with `mpip:`. Times are milliseconds since the node started.

use core::fmt::{self, Write};
use core::time::Duration;

use super::{Metrics, Record, TraceSink, What};
use mpip_types::Instant;

/// Writes records to `out` until a size limit is reached or `out` fails; later records are dropped.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// The next record.
    line: String,
    left: u64,
}

impl<W: Write> Writer<W> {
    /// A trace of up to `limit` bytes with the title and the start as in [`write_header`].
    ///
    /// # Errors
    ///
    /// If `out` fails.
    pub fn new(out: W, title: &str, started: Duration, limit: u64) -> Result<Self, fmt::Error> {
        let mut writer = Self { out, line: String::new(), left: limit };
        write_header(&mut writer.line, title, started)?;
        writer.write_line()?;
        Ok(writer)
    }

    fn write_line(&mut self) -> fmt::Result {
        let len = self.line.len() as u64;
        self.left = self.left.checked_sub(len).ok_or(fmt::Error)?;
        self.out.write_str(&self.line)
    }
}

impl<W: Write + fmt::Debug + Send> TraceSink for Writer<W> {
    fn record(&mut self, now: Instant, record: &Record) {
        if self.left == 0 {
            return;
        }
        self.line.clear();
        let written = write_record(&mut self.line, now, record);
        if written.and_then(|()| self.write_line()).is_err() {
            self.left = 0;
        }
    }
}

/// Writes the header record of a file. `title` names the trace; `started` is the wall clock at the
/// origin of the records' times, since 1970.
pub fn write_header(out: &mut impl Write, title: &str, started: Duration) -> fmt::Result {
    out.write_str(
        "\u{1e}{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\",\
         \"serialization_format\":\"application/qlog+json-seq\",\"title\":",
    )?;
    write_text(out, title)?;
    writeln!(
        out,
        ",\"trace\":{{\"vantage_point\":{{\"type\":\"unknown\"}},\"common_fields\":{{\
         \"time_format\":\"relative_to_epoch\",\"reference_time\":{{\"clock_type\":\"monotonic\",\
         \"epoch\":\"unknown\",\"wall_clock_time_ms\":{}}}}}}}}}",
        started.as_millis()
    )
}

/// Writes one record.
pub fn write_record(out: &mut impl Write, now: Instant, record: &Record) -> fmt::Result {
    let nanos = now.as_nanos();
    write!(out, "\u{1e}{{\"time\":{}.{:06},\"name\":\"", nanos / 1_000_000, nanos % 1_000_000)?;
    let name = match record.what {
        What::Sent { .. } => "quic:packet_sent",
        What::Received { .. } => "quic:packet_received",
        What::Lost { .. } => "mpip:packets_lost",
        What::Spurious { .. } => "mpip:spurious_losses",
        What::Metrics(_) => "quic:recovery_metrics_updated",
        What::CongestionState { .. } => "quic:congestion_state_updated",
        What::PathState { .. } => "mpip:path_state_updated",
        What::LeftOut { .. } => "mpip:path_left_out",
    };
    write!(out, "{name}\",\"data\":{{\"path_id\":{}", record.path)?;
    match record.what {
        What::Sent { number, size, asks, inner } => write!(
            out,
            ",\"header\":{{\"packet_number\":{number}}},\"raw\":{{\"length\":{size}}},\
             \"ack_eliciting\":{asks},\"inner\":{inner}"
        ),
        What::Received { number, size } => {
            write!(out, ",\"header\":{{\"packet_number\":{number}}},\"raw\":{{\"length\":{size}}}")
        }
        What::Lost { packets, bytes } => write!(out, ",\"packets\":{packets},\"bytes\":{bytes}"),
        What::Spurious { packets } => write!(out, ",\"packets\":{packets}"),
        What::Metrics(metrics) => write_metrics(out, &metrics),
        What::CongestionState { from, to } => {
            write!(out, ",\"old\":\"{from}\",\"new\":\"{to}\"")
        }
        What::PathState { from, to, reason } => {
            write!(out, ",\"old\":\"{from}\",\"new\":\"{to}\",\"reason\":")?;
            write_text(out, reason)
        }
        What::LeftOut { left_out, with, without, reason } => {
            let (with, without) = (with.saturating_mul(8), without.saturating_mul(8));
            write!(
                out,
                ",\"left_out\":{left_out},\"with\":{with},\"without\":{without},\"reason\":"
            )?;
            write_text(out, reason)
        }
    }?;
    out.write_str("}}\n")
}

fn write_metrics(out: &mut impl Write, metrics: &Metrics) -> fmt::Result {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    write!(
        out,
        ",\"smoothed_rtt\":{:.3},\"min_rtt\":{:.3},\"queuing_delay\":{:.3},\
         \"congestion_window\":{},\"bytes_in_flight\":{}",
        ms(metrics.smoothed_rtt),
        ms(metrics.min_rtt),
        ms(metrics.queuing_delay),
        metrics.window,
        metrics.in_flight
    )?;
    if let Some(rate) = metrics.pacing_rate {
        write!(out, ",\"pacing_rate\":{}", rate.saturating_mul(8))?;
    }
    write!(
        out,
        ",\"delivery_rate\":{},\"reordering_window\":{:.3}",
        metrics.delivery_rate.saturating_mul(8),
        ms(metrics.reordering_window)
    )
}

/// A JSON string.
fn write_text(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(out, "\\{character}")?,
            control if (control as u32) < 0x20 => write!(out, "\\u{:04x}", control as u32)?,
            other => out.write_char(other)?,
        }
    }
    out.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpip_transport::PathState;

    fn text(what: What) -> String {
        let mut out = String::new();
        let record = Record { path: 3, what };
        write_record(&mut out, Instant::from_micros(1_234_567), &record).expect("a string");
        out
    }

    #[test]
    fn records_are_lines_of_a_json_text_sequence() {
        assert_eq!(
            text(What::Sent { number: 7, size: 1_400, asks: true, inner: false }),
            "\u{1e}{\"time\":1234.567000,\"name\":\"quic:packet_sent\",\"data\":{\"path_id\":3,\
             \"header\":{\"packet_number\":7},\"raw\":{\"length\":1400},\"ack_eliciting\":true,\
             \"inner\":false}}\n"
        );
        let reason = "no \"answer\"\n";
        assert_eq!(
            text(What::PathState { from: PathState::Active, to: PathState::Failed, reason }),
            "\u{1e}{\"time\":1234.567000,\"name\":\"mpip:path_state_updated\",\"data\":{\
             \"path_id\":3,\"old\":\"active\",\"new\":\"failed\",\
             \"reason\":\"no \\\"answer\\\"\\u000a\"}}\n"
        );
    }

    #[test]
    fn rates_are_in_bits_as_qlog_has_them() {
        let metrics = Metrics {
            smoothed_rtt: Duration::from_micros(20_500),
            min_rtt: Duration::from_millis(20),
            queuing_delay: Duration::ZERO,
            window: 30_000,
            in_flight: 1_500,
            pacing_rate: Some(1_000_000),
            delivery_rate: 900_000,
            reordering_window: Duration::from_millis(5),
        };
        let with = text(What::Metrics(metrics));
        assert!(with.contains("\"smoothed_rtt\":20.500,\"min_rtt\":20.000"), "{with}");
        assert!(with.contains("\"pacing_rate\":8000000,\"delivery_rate\":7200000"), "{with}");
        let without = text(What::Metrics(Metrics { pacing_rate: None, ..metrics }));
        assert!(!without.contains("pacing_rate"), "{without}");
    }

    #[test]
    fn a_file_ends_with_a_whole_record_at_its_limit() {
        let record = Record { path: 0, what: What::Spurious { packets: 1 } };
        let mut line = String::new();
        write_record(&mut line, Instant::ZERO, &record).expect("a string");
        let mut header = String::new();
        write_header(&mut header, "x", Duration::ZERO).expect("a string");
        let limit = (header.len() + 3 * line.len() + 5) as u64;
        let mut writer = Writer::new(String::new(), "x", Duration::ZERO, limit).expect("a string");
        for _ in 0..10 {
            writer.record(Instant::ZERO, &record);
        }
        assert_eq!(writer.out, header + &line.repeat(3));
    }

    #[test]
    fn a_header_names_the_trace() {
        let mut out = String::new();
        write_header(&mut out, "peer \\ \"x\"", Duration::from_secs(2)).expect("a string");
        assert!(out.contains("\"title\":\"peer \\\\ \\\"x\\\"\""), "{out}");
        assert!(out.contains("\"wall_clock_time_ms\":2000"), "{out}");
        assert!(out.starts_with('\u{1e}') && out.ends_with("}\n"), "{out}");
        assert_eq!(out.matches('{').count(), out.matches('}').count());
    }
}
