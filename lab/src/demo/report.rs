//! The figures of a demonstration, as a table and as `result.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::copy::Reception;
use super::screen::path_name;
use super::world::{A, LINK_RATE, PATHS};

/// TCP payload of a packet of 1500 bytes, less 20 of IPv4, 20 of TCP and 12 of timestamps.
const PAYLOAD: f64 = 1448.0;
/// Bytes that TBF counts for it: the packet and an Ethernet header of 14 bytes.
const FRAME: f64 = 1514.0;
/// Time in s after a cable was pulled or put back within which a pause is attributed to it.
const AFTER: f64 = 2.0;
/// Oversleep in ms from which the table notes that the machine contributed to the pauses.
const OVERSLEPT_NOTED: f64 = 30.0;

/// What the links can carry with plain TCP, in bit/s.
pub(super) fn limit_bps() -> f64 {
    A.len() as f64 * LINK_RATE * PAYLOAD / FRAME
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Transfer {
    /// Payload that the receiver got, bit/s.
    pub(super) goodput_bps: f64,
    pub(super) seconds: f64,
    pub(super) path_bytes: [u64; PATHS],
}

/// The copy of the file.
#[derive(Debug)]
pub(super) struct FileCopy {
    pub(super) transfer: Transfer,
    pub(super) reception: Reception,
    /// When the cable was pulled and put back, seconds on the monotonic clock.
    pub(super) pulled: f64,
    pub(super) put_back: f64,
    /// Of the interface at its end.
    pub(super) link: &'static str,
    pub(super) sha256_sent: String,
    pub(super) sha256_received: String,
}

impl FileCopy {
    fn longest_pause_ms(&self) -> f64 {
        self.reception.longest_pause_ms(f64::MIN, f64::MAX).unwrap_or_default()
    }

    /// The pause after an event, in ms; 0 if there was none.
    fn pause_after_ms(&self, event: f64) -> f64 {
        // The pause that the event causes begins with the last chunk before it.
        self.reception.longest_pause_ms(event - 0.05, event + AFTER).unwrap_or_default()
    }

    pub(super) fn is_equal(&self) -> bool {
        self.sha256_sent == self.sha256_received
    }
}

/// Everything measured so far.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Plain TCP on each link alone.
    pub(super) tcp: Vec<Transfer>,
    pub(super) mptcp: Option<Transfer>,
    pub(super) mpip: Option<Transfer>,
    pub(super) copy: Option<FileCopy>,
    /// Why figures are missing.
    pub(super) missing: Vec<String>,
}

impl Results {
    fn tcp_sum(&self) -> Option<f64> {
        let sum = self.tcp.iter().map(|transfer| transfer.goodput_bps).sum();
        (self.tcp.len() == A.len()).then_some(sum)
    }

    /// Goodput of mpip over that of plain TCP on each link alone, added up.
    fn mpip_to_tcp(&self) -> Option<f64> {
        Some(self.mpip.as_ref()?.goodput_bps / self.tcp_sum()?)
    }

    fn mpip_to_mptcp(&self) -> Option<f64> {
        Some(self.mpip.as_ref()?.goodput_bps / self.mptcp.as_ref()?.goodput_bps)
    }

    /// Every row: its key in JSON, its name in the table, its figures.
    fn rows(&self) -> Vec<(String, String, &Transfer)> {
        let mut rows = Vec::new();
        for (index, transfer) in self.tcp.iter().enumerate() {
            let link = index + 1;
            rows.push((format!("tcp-link-{link}"), format!("TCP, link {link} alone"), transfer));
        }
        let all = [
            ("mptcp", "kernel MPTCP", self.mptcp.as_ref()),
            ("mpip", "mpip", self.mpip.as_ref()),
            ("mpip-copy", "mpip, file, link pulled", self.copy.as_ref().map(|c| &c.transfer)),
        ];
        for (key, name, transfer) in all {
            rows.extend(transfer.map(|transfer| (key.to_owned(), name.to_owned(), transfer)));
        }
        rows
    }

    /// The table, and notes on it.
    pub(super) fn table(&self) -> String {
        if self.rows().is_empty() {
            return self.reasons();
        }
        let mut text = format!("  {:23} {:>13} {:>9}  ", "", "throughput", "of limit");
        for path in 0..PATHS {
            text += &format!(" {:>6}", path_name(path));
        }
        text += "\n";
        let rate = |rate: f64| format!("{:6.1} Mbit/s", rate / 1e6);
        for (_, name, transfer) in self.rows() {
            let part = transfer.goodput_bps / limit_bps() * 100.0;
            text += &format!("  {name:23} {} {part:7.1} %  ", rate(transfer.goodput_bps));
            let sum = transfer.path_bytes.iter().sum::<u64>().max(1) as f64;
            for bytes in transfer.path_bytes {
                let share = format!("{:.0} %", bytes as f64 / sum * 100.0);
                text += &format!(" {:>6}", if bytes == 0 { "–" } else { &share });
            }
            text += "\n";
        }
        text += &format!("  {:23} {} {:7.1} %\n", "physical limit", rate(limit_bps()), 100.0);
        text += &format!(
            "\n  The limit: 2 links of {:.0} Mbit/s. Of every {FRAME:.0} bytes on a link, Ethernet \
             header\n  included, {PAYLOAD:.0} are payload of plain TCP over IPv4.\n\n",
            LINK_RATE / 1e6
        );
        text += &self.comparison();
        if let Some(copy) = &self.copy {
            text += &copy.sentences();
        }
        text + &self.reasons()
    }

    fn reasons(&self) -> String {
        self.missing.iter().map(|reason| format!("  Not measured: {reason}\n")).collect()
    }

    fn comparison(&self) -> String {
        let mut text = String::new();
        if let Some(ratio) = self.mpip_to_tcp() {
            text += &format!("  mpip reaches {ratio:.3} of TCP on both links alone, added up");
            match self.mpip_to_mptcp() {
                Some(ratio) => text += &format!(",\n  and {ratio:.3} of kernel MPTCP.\n\n"),
                None => text += ".\n\n",
            }
        }
        text
    }

    /// Writes the figures.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let named = |transfer: &Transfer| {
            let paths = transfer.path_bytes.iter().enumerate();
            let paths: BTreeMap<_, _> =
                paths.map(|(path, bytes)| (path_name(path).replace('→', "-"), *bytes)).collect();
            serde_json::json!({
                "goodput_bps": transfer.goodput_bps.round(),
                "seconds": transfer.seconds,
                "path_bytes": paths,
            })
        };
        let systems: serde_json::Map<_, _> =
            self.rows().into_iter().map(|(key, _, transfer)| (key, named(transfer))).collect();
        let copy = self.copy.as_ref();
        let json = serde_json::json!({
            "systems": systems,
            "limit_bps": limit_bps().round(),
            "mpip_to_tcp_sum": self.mpip_to_tcp(),
            "mpip_to_mptcp": self.mpip_to_mptcp(),
            "longest_pause_ms": copy.map(FileCopy::longest_pause_ms),
            "sha256_sent": copy.map(|copy| &copy.sha256_sent),
            "sha256_received": copy.map(|copy| &copy.sha256_received),
            "copy": copy.map(FileCopy::json),
            "missing": self.missing,
        });
        std::fs::write(file, serde_json::to_string_pretty(&json)? + "\n")
    }
}

impl FileCopy {
    fn sentences(&self) -> String {
        let since_start = |time: f64| time - self.reception.first;
        let (sent, received) = (&self.sha256_sent, &self.sha256_received);
        let checksum = if self.is_equal() {
            format!("\n  SHA-256 is the same on both sides ({}…).", &sent[..16.min(sent.len())])
        } else {
            format!("\n  SHA-256 DIFFERS: sent {sent}, received {received}")
        };
        let mut text = format!(
            "  File of {:.0} MB: {:.1} s; link {} pulled at {:.1} s, back at {:.1} s.{checksum}\n  \
             Longest pause at the receiver: {:.0} ms. When the link was pulled: {:.0} ms,\n  \
             when it came back: {:.0} ms.\n",
            self.reception.bytes as f64 / 1e6,
            self.transfer.seconds,
            self.link,
            since_start(self.pulled),
            since_start(self.put_back),
            self.longest_pause_ms(),
            self.pause_after_ms(self.pulled),
            self.pause_after_ms(self.put_back),
        );
        if self.reception.overslept_ms >= OVERSLEPT_NOTED {
            text += &format!(
                "  This machine is busy: a process that waited for a timer was kept from running\n  \
                 for up to {:.0} ms during the copy.\n",
                self.reception.overslept_ms
            );
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "bytes": self.reception.bytes,
            "link": self.link,
            "pulled_at_s": self.pulled - self.reception.first,
            "put_back_at_s": self.put_back - self.reception.first,
            "machine_overslept_ms": self.reception.overslept_ms,
            "pause_when_pulled_ms": self.pause_after_ms(self.pulled),
            "pause_when_put_back_ms": self.pause_after_ms(self.put_back),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(goodput_bps: f64) -> Transfer {
        Transfer { goodput_bps, seconds: 1.0, path_bytes: [3, 1, 0, 0] }
    }

    #[test]
    fn the_limit_is_that_of_full_packets() {
        assert!((limit_bps() - 191_281_373.8).abs() < 1.0);
    }

    #[test]
    fn ratios_exist_only_of_what_was_measured() {
        let mut results = Results { mpip: Some(transfer(180e6)), ..Results::default() };
        assert_eq!((results.mpip_to_tcp(), results.mpip_to_mptcp()), (None, None));
        results.tcp = vec![transfer(100e6)];
        assert_eq!(results.mpip_to_tcp(), None);
        results.tcp.push(transfer(100e6));
        results.mptcp = Some(transfer(200e6));
        assert_eq!((results.mpip_to_tcp(), results.mpip_to_mptcp()), (Some(0.9), Some(0.9)));
        let table = results.table();
        assert!(table.contains("180.0 Mbit/s    94.1 %     75 %   25 %      –      –"), "{table}");
    }

    #[test]
    fn a_different_checksum_is_called_by_its_name() {
        let copy = FileCopy {
            transfer: transfer(1e6),
            reception: Reception {
                bytes: 1,
                first: 1.0,
                last: 2.0,
                pauses: Vec::new(),
                overslept_ms: 0.0,
            },
            pulled: 1.2,
            put_back: 1.6,
            link: "a2",
            sha256_sent: "aa".to_owned(),
            sha256_received: "bb".to_owned(),
        };
        assert!(!copy.is_equal());
        assert!(copy.sentences().contains("DIFFERS: sent aa, received bb"));
    }
}
