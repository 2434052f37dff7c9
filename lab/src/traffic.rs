//! Traffic of a scenario: the programs that run at its hosts, and how to read their output.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{self, Output, Running};
use crate::flow::FlowResult;
use crate::go;
use crate::netns::Namespace;
use crate::quic::Sent;
use crate::scenario::{QuicImplementation, Traffic, TrafficKind};
use crate::web;

/// Interval of the receiver's reports, in seconds, for iperf3.
const INTERVAL: &str = "0.1";
/// Time beyond its duration after which a flow is ended.
const GRACE: Duration = Duration::from_secs(10);

/// The addresses of a flow, and what its programs are started with.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) local: Option<IpAddr>,
    pub(crate) remote: IpAddr,
    /// Words put before the command lines of sender and receiver.
    pub(crate) wrapper: Vec<String>,
}

impl Endpoint {
    /// All addresses of the remote one's family.
    fn all(&self, port: u16) -> SocketAddr {
        let all: IpAddr = if self.remote.is_ipv4() { [0u8; 4].into() } else { [0u16; 8].into() };
        SocketAddr::new(all, port)
    }

    /// The address to send from, with any port.
    fn from(&self) -> SocketAddr {
        self.local.map_or(self.all(0), |local| SocketAddr::new(local, 0))
    }
}

/// A flow that runs.
pub(crate) struct Flow {
    traffic: Traffic,
    server: Running,
    client_line: Vec<std::ffi::OsString>,
    client: Option<Running>,
}

impl Flow {
    /// Starts the receiving side and prepares the sending side. `hosts` are `from` and `to` of the
    /// traffic, `directory` is for files of their programs.
    pub(crate) fn prepare(
        traffic: &Traffic,
        endpoint: &Endpoint,
        port: u16,
        congestion_control: &str,
        hosts: (&Namespace, &Namespace),
        directory: &Path,
    ) -> io::Result<Self> {
        let (from, to) = hosts;
        let (server, client) =
            command_lines(traffic, endpoint, port, congestion_control, directory)?;
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

    /// Waits for its end and reads the result. `started` is the time of [`start`](Self::start).
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
            TrafficKind::Web { connections, size, keep } => {
                web::result(web::Plan { connections, size, keep }, &client)
            }
            TrafficKind::Quic { download, .. } => quic(download, &client, &server)
                .map(|result| result.over(whole_seconds(traffic.duration))),
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
    directory: &Path,
) -> io::Result<(Vec<String>, Vec<String>)> {
    let remote = endpoint.remote;
    let seconds = traffic.duration.as_secs_f64();
    let bind = endpoint.local.map(|local| format!("-B {local}")).unwrap_or_default();
    let whole = whole_seconds(traffic.duration);
    // Servers listen on all addresses, because MPTCP subflows join at other addresses.
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
            let server = format!("{} http {} {size}", command::own_program(), endpoint.all(port));
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
        TrafficKind::Web { connections, size, keep } => {
            let plan = web::Plan { connections: *connections, size: *size, keep: *keep };
            let to = SocketAddr::new(remote, port);
            web::command_lines(plan, directory, endpoint.all(port), to, whole)?
        }
        TrafficKind::Quic { implementation, congestion_control: own, download } => {
            let control = own.as_deref().unwrap_or(congestion_control);
            let between = (endpoint.from(), SocketAddr::new(remote, port));
            let direction = if *download { "download" } else { "upload" };
            let transfer = format!("{direction} {seconds}");
            quic_lines(*implementation, control, endpoint.all(port), between, &transfer)?
        }
        kind => own_lines(kind, endpoint, port, congestion_control, seconds),
    })
}

/// The command line of `program` with `arguments`.
fn line(program: &str, arguments: &str) -> Vec<String> {
    [vec![program.to_owned()], words(arguments)].concat()
}

/// Command lines of the lab's own programs.
fn own_lines(
    kind: &TrafficKind,
    endpoint: &Endpoint,
    port: u16,
    congestion_control: &str,
    seconds: f64,
) -> (Vec<String>, Vec<String>) {
    let program = command::own_program();
    let to = SocketAddr::new(endpoint.remote, port);
    let from = endpoint.from();
    let all = endpoint.all(port);
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
        TrafficKind::Short { size, interval, download } => {
            let (sent, wanted) = if *download { (0, *size) } else { (*size, 0) };
            let interval = interval.as_nanos();
            let client =
                format!("short {to} {sent} {wanted} {interval} {congestion_control} {seconds}");
            (format!("serve {all} {congestion_control}"), client)
        }
        TrafficKind::File { size } => {
            (format!("serve {all}"), format!("file {to} {size} {seconds}"))
        }
        TrafficKind::Tcp { .. }
        | TrafficKind::Udp { .. }
        | TrafficKind::Http { .. }
        | TrafficKind::Web { .. }
        | TrafficKind::Quic { .. } => unreachable!("handled above"),
    };
    (line(&program, &server), line(&program, &client))
}

/// `at` is the server's address, `between` are the client's and the server's.
fn quic_lines(
    implementation: QuicImplementation,
    congestion_control: &str,
    at: SocketAddr,
    between: (SocketAddr, SocketAddr),
    transfer: &str,
) -> io::Result<(Vec<String>, Vec<String>)> {
    let (from, to) = between;
    let (program, serve, client) = match implementation {
        QuicImplementation::Quinn => (
            command::own_program(),
            format!("quic-serve {at} {congestion_control}"),
            format!("quic-transfer {from} {to} {congestion_control} {transfer}"),
        ),
        QuicImplementation::QuicGo => (
            go::program("quic-go")?.display().to_string(),
            format!("serve {at}"),
            format!("transfer {from} {to} {transfer}"),
        ),
    };
    Ok((line(&program, &serve), line(&program, &client)))
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

/// The rate of all streams in each interval, without the last interval if it is a fragment.
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

/// Bytes and seconds of all the receiver's intervals.
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

/// `curl` prints the number of bytes and the seconds.
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

/// The client has the receiver's result; of a download the server knows what was lost.
fn quic(download: bool, client: &Output, server: &Output) -> Result<FlowResult, String> {
    let mut result = own(client)?;
    if download {
        let sent: Result<Sent, _> = serde_json::from_str(&server.stdout);
        result.retransmits = sent.map_or(0, |sent| sent.lost);
    }
    Ok(result)
}

fn own(client: &Output) -> Result<FlowResult, String> {
    serde_json::from_value(parse("client", client)?).map_err(|error| error.to_string())
}

/// A port for each flow of a run.
pub(crate) fn ports(flows: usize) -> impl Iterator<Item = u16> {
    (0..flows).map(|index| 5201 + index as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

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
