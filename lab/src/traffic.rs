//! Traffic of a scenario: what runs at which host, and what its output says.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use mpip_link::scenario::{Traffic, TrafficKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::command::{self, Output, Running};
use crate::netns::Namespace;
use crate::probe::Statistics;
use crate::stream;

/// Interval of the receiver's figures, as iperf3 takes it.
const INTERVAL: &str = "0.1";
/// How much longer than its duration a flow may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// What became of a flow.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FlowResult {
    /// The traffic's name.
    pub(crate) name: String,
    /// Went by plain IP, beside the system under test.
    pub(crate) plain: bool,
    /// Payload that the receiver got, bit/s over the time of the flow; 0 for flows that have no
    /// goodput of interest.
    pub(crate) goodput_bps: f64,
    /// The receiver's payload bit/s in intervals of 100 ms.
    pub(crate) intervals_bps: Vec<f64>,
    /// The sender's TCP retransmissions.
    pub(crate) retransmits: u64,
    /// The longest time without a byte for the receiver, after its first second, where the flow
    /// measures it.
    #[serde(default)]
    pub(crate) longest_pause_ms: Option<f64>,
    /// The longer ones of these pauses: seconds after the first byte at which they ended, and ms.
    #[serde(default)]
    pub(crate) pauses: Vec<(f64, f64)>,
    /// Round trips in milliseconds, where the flow measures them.
    pub(crate) rtt_ms: Option<Statistics>,
    /// Share of datagrams that did not arrive, or of round trips that did not complete.
    pub(crate) loss: Option<f64>,
    /// Mean difference of the transit times of neighbouring datagrams (RFC 3550), ms.
    pub(crate) jitter_ms: Option<f64>,
    /// The checksum of a file was right.
    pub(crate) verified: Option<bool>,
    /// Why there is no proper result.
    pub(crate) error: Option<String>,
}

impl FlowResult {
    /// A flow that ended early or was ended late has the goodput of the time that it was to last,
    /// and nothing in the time that it missed.
    fn over(mut self, seconds: u64) -> Self {
        if self.error.is_some() {
            let intervals = seconds as usize * 10;
            self.intervals_bps.resize(intervals, 0.0);
            self.goodput_bps = self.intervals_bps.iter().sum::<f64>() / intervals as f64;
        }
        self
    }

    /// The longest of the pauses in these `seconds`, of which they may be a part, in ms; 0 if all were short.
    /// `None` where pauses were not noted.
    pub(crate) fn longest_pause_in(&self, seconds: std::ops::Range<f64>) -> Option<f64> {
        let longest = self.longest_pause_ms.filter(|_| self.error.is_none())?;
        if self.pauses.is_empty() && longest >= stream::PAUSE.as_secs_f64() * 1e3 {
            return None;
        }
        let within =
            |(end, pause): &&(f64, f64)| *end >= seconds.start && *end - *pause / 1e3 < seconds.end;
        Some(self.pauses.iter().filter(within).map(|(_, pause)| *pause).fold(0.0, f64::max))
    }

    /// The longest pause, where the flow measures it; else the longest time, in ms, in which the
    /// receiver got less than a tenth of the mean, after the first byte and before the last.
    pub(crate) fn longest_stall_ms(&self) -> f64 {
        if let (Some(pause), None) = (self.longest_pause_ms, &self.error) {
            return pause;
        }
        let rates = &self.intervals_bps;
        let Some(first) = rates.iter().position(|rate| *rate > 0.0) else {
            return rates.len() as f64 * 100.0;
        };
        let threshold = rates.iter().sum::<f64>() / rates.len() as f64 / 10.0;
        let (mut longest, mut current) = (0, 0);
        for rate in &rates[first..] {
            current = if *rate < threshold { current + 1 } else { 0 };
            longest = longest.max(current);
        }
        f64::from(longest) * 100.0
    }
}

/// From where to where a flow goes, and what its programs are started with.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) local: Option<IpAddr>,
    pub(crate) remote: IpAddr,
    /// Put before the command line of sender and receiver.
    pub(crate) wrapper: Vec<String>,
}

/// A flow between its start and its end.
pub(crate) struct Flow {
    traffic: Traffic,
    server: Running,
    client_line: Vec<std::ffi::OsString>,
    client: Option<Running>,
}

impl Flow {
    /// Starts the receiving side and prepares the sending side.
    pub(crate) fn prepare(
        traffic: &Traffic,
        endpoint: &Endpoint,
        port: u16,
        congestion_control: &str,
        from: &Namespace,
        to: &Namespace,
    ) -> io::Result<Self> {
        let (server, client) = command_lines(traffic, endpoint, port, congestion_control)?;
        let wrap = |line: Vec<String>| [endpoint.wrapper.clone(), line].concat();
        let server = Running::start(&to.inside(&wrap(server)))?;
        let client_line = from.inside(&wrap(client));
        Ok(Self { traffic: traffic.clone(), server, client_line, client: None })
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Starts to send.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        self.client = Some(Running::start(&self.client_line)?);
        Ok(())
    }

    /// Waits for the end and reads the result. `started` is when it was started.
    pub(crate) fn finish(mut self, started: Instant) -> FlowResult {
        let deadline = started + self.traffic.duration + GRACE;
        let Some(client) = self.client.take() else {
            return self.failed("it was not started".to_owned());
        };
        let client = client.finish(deadline);
        let wait = if client.status.is_some() { Duration::from_secs(3) } else { Duration::ZERO };
        let traffic = self.traffic.clone();
        let server = self.server.finish(Instant::now() + wait);
        let mut result = match traffic.kind {
            TrafficKind::Tcp { download, .. } => iperf_tcp(download, &client, &server)
                .map(|result| result.over(whole_seconds(traffic.duration))),
            TrafficKind::Udp { .. } => iperf_udp(&client, &server)
                .map(|result| result.over(whole_seconds(traffic.duration))),
            TrafficKind::Http { size } => curl(size, &client),
            _ => own(&client),
        }
        .unwrap_or_else(|error| FlowResult { error: Some(error), ..FlowResult::default() });
        if traffic.kind == TrafficKind::Stream {
            result = result.over(whole_seconds(traffic.duration));
        }
        result.name = traffic.name;
        result.plain = traffic.plain.is_some();
        result
    }

    fn failed(&self, error: String) -> FlowResult {
        FlowResult {
            name: self.traffic.name.clone(),
            plain: self.traffic.plain.is_some(),
            error: Some(error),
            ..FlowResult::default()
        }
    }
}

/// iperf3 takes whole seconds.
fn whole_seconds(duration: Duration) -> u64 {
    (duration.as_secs_f64().round() as u64).max(1)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn command_lines(
    traffic: &Traffic,
    endpoint: &Endpoint,
    port: u16,
    congestion_control: &str,
) -> io::Result<(Vec<String>, Vec<String>)> {
    let remote = endpoint.remote;
    let unspecified = |port: u16| -> SocketAddr {
        let all: IpAddr = if remote.is_ipv4() { [0u8; 4].into() } else { [0u16; 8].into() };
        SocketAddr::new(all, port)
    };
    let seconds = traffic.duration.as_secs_f64();
    let bind = endpoint.local.map(|local| format!("-B {local}")).unwrap_or_default();
    let whole = whole_seconds(traffic.duration);
    // Servers listen on all addresses: MPTCP joins come to other addresses than the first.
    let iperf_server = words(&format!("iperf3 -s -1 -J -i {INTERVAL} -p {port}"));
    let iperf_client = format!(
        "iperf3 -c {remote} -p {port} -t {whole} -i {INTERVAL} -J {bind} --connect-timeout 5000"
    );
    Ok(match &traffic.kind {
        TrafficKind::Tcp { streams, download } => {
            let reverse = if *download { "-R" } else { "" };
            let client = format!("{iperf_client} -C {congestion_control} -P {streams} {reverse}");
            (iperf_server, words(&client))
        }
        TrafficKind::Udp { rate, length } => {
            (iperf_server, words(&format!("{iperf_client} -u -b {rate} -l {length}")))
        }
        TrafficKind::Http { size } => {
            let server = format!("{} http {} {size}", command::own_program(), unspecified(port));
            let interface =
                endpoint.local.map(|local| format!("--interface {local}")).unwrap_or_default();
            let client = format!(
                "curl --silent --show-error --fail --max-time {seconds} --noproxy * {interface} \
                 --output /dev/null --write-out %{{size_download}};%{{time_total}} \
                 http://{}/",
                SocketAddr::new(remote, port)
            );
            (words(&server), words(&client))
        }
        kind => {
            let program = command::own_program();
            let to = SocketAddr::new(remote, port);
            let from = endpoint.local.map_or(unspecified(0), |local| SocketAddr::new(local, 0));
            let all = unspecified(port);
            let (server, client) = match kind {
                TrafficKind::Voip { interval, length } => (
                    format!("echo {to}"),
                    format!("voip {from} {to} {length} {} {seconds}", interval.as_nanos()),
                ),
                TrafficKind::RequestResponse { request, response } => {
                    (format!("serve {to}"), format!("request {to} {request} {response} {seconds}"))
                }
                TrafficKind::Stream => (
                    format!("stream-receive {all}"),
                    format!("stream-send {to} {congestion_control} {seconds}"),
                ),
                TrafficKind::File { size } => {
                    (format!("serve {all}"), format!("file {to} {size} {seconds}"))
                }
                TrafficKind::Tcp { .. } | TrafficKind::Udp { .. } | TrafficKind::Http { .. } => {
                    unreachable!("handled above")
                }
            };
            let line = |text: String| [vec![program.clone()], words(&text)].concat();
            (line(server), line(client))
        }
    })
}

fn parse(side: &str, output: &Output) -> Result<Value, String> {
    let value: Value = serde_json::from_str(&output.stdout).map_err(|error| {
        let text = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
        format!("{side}: {error}: {}", text.trim().lines().last().unwrap_or("no output"))
    })?;
    Ok(value)
}

fn error_of(value: &Value) -> Option<String> {
    value["error"].as_str().map(str::to_owned)
}

/// Sums the streams' bytes of each interval; iperf3's last interval may be a fragment.
fn intervals(value: &Value) -> Vec<f64> {
    let empty = Vec::new();
    value["intervals"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .map(|interval| &interval["sum"])
        .filter(|sum| sum["seconds"].as_f64().is_some_and(|seconds| seconds > 0.05))
        .filter_map(|sum| Some(sum["bytes"].as_f64()? * 8.0 / sum["seconds"].as_f64()?))
        .collect()
}

/// Bytes and seconds that the receiver's intervals cover.
fn received(value: &Value) -> (f64, f64) {
    let empty = Vec::new();
    let sums = value["intervals"].as_array().unwrap_or(&empty).iter().map(|i| &i["sum"]);
    let bytes = sums.clone().filter_map(|sum| sum["bytes"].as_f64()).sum();
    let seconds = sums.filter_map(|sum| sum["seconds"].as_f64()).sum();
    (bytes, seconds)
}

fn iperf_tcp(download: bool, client: &Output, server: &Output) -> Result<FlowResult, String> {
    let server = parse("iperf3 server", server);
    let client = parse("iperf3 client", client);
    let (receiver, sender) = if download { (client, server) } else { (server, client) };
    let receiver = receiver?;
    let (bytes, seconds) = received(&receiver);
    let retransmits = sender
        .as_ref()
        .ok()
        .and_then(|sender| sender["end"]["sum_sent"]["retransmits"].as_u64())
        .unwrap_or(0);
    let error = error_of(&receiver).or(match &sender {
        Ok(sender) => error_of(sender),
        Err(error) => Some(error.clone()),
    });
    if seconds == 0.0 {
        return Err(error.unwrap_or_else(|| "nothing was received".to_owned()));
    }
    Ok(FlowResult {
        goodput_bps: bytes * 8.0 / seconds,
        intervals_bps: intervals(&receiver),
        retransmits,
        error,
        ..FlowResult::default()
    })
}

fn iperf_udp(client: &Output, server: &Output) -> Result<FlowResult, String> {
    let server = parse("iperf3 server", server)?;
    let (bytes, seconds) = received(&server);
    if seconds == 0.0 {
        return Err(error_of(&server).unwrap_or_else(|| "nothing was received".to_owned()));
    }
    let sent = parse("iperf3 client", client)
        .ok()
        .and_then(|client| client["end"]["sum"]["packets"].as_f64());
    let got =
        server["end"]["sum"]["packets"].as_f64().zip(server["end"]["sum"]["lost_packets"].as_f64());
    let loss = got.map(|(packets, lost)| lost / packets.max(1.0)).filter(|_| sent.is_some());
    Ok(FlowResult {
        goodput_bps: bytes * 8.0 / seconds,
        intervals_bps: intervals(&server),
        loss,
        jitter_ms: server["end"]["sum"]["jitter_ms"].as_f64(),
        error: error_of(&server),
        ..FlowResult::default()
    })
}

/// `curl` prints the bytes that came and the seconds that it took.
fn curl(size: u64, client: &Output) -> Result<FlowResult, String> {
    let failure = || format!("curl: {} {}", client.stdout.trim(), client.stderr.trim());
    let (bytes, seconds) = client.stdout.trim().split_once(';').ok_or_else(failure)?;
    let bytes: f64 = bytes.parse().map_err(|_| failure())?;
    let seconds: f64 = seconds.parse().map_err(|_| failure())?;
    if seconds <= 0.0 {
        return Err(failure());
    }
    Ok(FlowResult {
        goodput_bps: bytes * 8.0 / seconds,
        error: (bytes != size as f64).then(failure),
        ..FlowResult::default()
    })
}

fn own(client: &Output) -> Result<FlowResult, String> {
    serde_json::from_value(parse("client", client)?).map_err(|error| error.to_string())
}

/// Numbers ports: each flow of a run has its own.
pub(crate) fn ports(flows: usize) -> impl Iterator<Item = u16> {
    (0..flows).map(|index| 5201 + index as u16)
}

/// The goodput of each flow by name, flows of the same name added up.
pub(crate) fn by_name(flows: &[FlowResult]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for flow in flows {
        *sums.entry(flow.name.clone()).or_insert(0.0) += flow.goodput_bps;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(rates: &[f64]) -> FlowResult {
        FlowResult { intervals_bps: rates.to_vec(), ..FlowResult::default() }
    }

    #[test]
    fn a_stall_is_the_longest_time_below_a_tenth_of_the_mean() {
        let rates = [0.0, 0.0, 10.0, 10.0, 0.3, 0.0, 0.0, 10.0, 0.0, 10.0];
        assert_eq!(flow(&rates).longest_stall_ms(), 300.0);
        assert_eq!(flow(&[10.0; 5]).longest_stall_ms(), 0.0);
        assert_eq!(flow(&[0.0; 5]).longest_stall_ms(), 500.0);
        assert_eq!(flow(&[]).longest_stall_ms(), 0.0);
    }

    #[test]
    fn a_download_that_ends_early_is_an_error_with_its_goodput() {
        let output = |stdout: &str| Output {
            stdout: stdout.to_owned(),
            stderr: "curl: (28) timed out".to_owned(),
            status: None,
        };
        let whole = curl(1_000_000, &output("1000000;0.8")).expect("a result");
        assert_eq!((whole.goodput_bps, whole.error), (1e7, None));
        let part = curl(1_000_000, &output("500000;0.8")).expect("a result");
        assert!(part.error.is_some_and(|error| error.contains("timed out")));
        assert!(curl(1_000_000, &output("")).is_err());
    }

    #[test]
    fn a_connection_that_breaks_has_the_goodput_of_all_the_time() {
        let broken = FlowResult {
            goodput_bps: 10.0,
            intervals_bps: vec![10.0; 7],
            error: Some("reset".to_owned()),
            ..FlowResult::default()
        };
        let result = broken.over(2);
        assert_eq!(result.goodput_bps, 3.5);
        assert_eq!(result.longest_stall_ms(), 1300.0);
        let whole = FlowResult { goodput_bps: 10.0, ..FlowResult::default() }.over(2);
        assert_eq!(whole.goodput_bps, 10.0);
    }

    #[test]
    fn the_receiver_of_iperf_counts() {
        let output = |stdout: &str| Output {
            stdout: stdout.to_owned(),
            stderr: String::new(),
            status: None,
        };
        let client = output(r#"{"end": {"sum_sent": {"retransmits": 7, "bytes": 999}}}"#);
        let server = output(
            r#"{"intervals": [{"sum": {"bytes": 125000, "seconds": 0.1}},
                              {"sum": {"bytes": 250000, "seconds": 0.1}},
                              {"sum": {"bytes": 0, "seconds": 0.0001}}]}"#,
        );
        let flow = iperf_tcp(false, &client, &server).expect("a result");
        assert!((flow.goodput_bps - 375_000.0 * 8.0 / 0.2001).abs() < 1.0);
        assert_eq!(flow.intervals_bps, [1e7, 2e7]);
        assert_eq!(flow.retransmits, 7);
        assert!(iperf_tcp(true, &client, &server).is_err());
    }
}
