//! Small answers to many clients at once: nginx serves, wrk asks. Both are programs of others, as
//! they are installed.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;

use crate::command::{self, Output};
use crate::flow::FlowResult;
use crate::statistics::Statistics;

/// Makes wrk print its figures as JSON, in µs.
const SCRIPT: &str = r#"
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "duration": %d, "errors": %d, "minimum": %d, "mean": %f, ' ..
    '"deviation": %f, "median": %d, "p95": %d, "p99": %d, "maximum": %d}\n',
    summary.requests, summary.duration,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency.min, latency.mean, latency.stdev, latency:percentile(50), latency:percentile(95),
    latency:percentile(99), latency.max))
end
"#;

/// Looks for both programs.
///
/// # Errors
/// One of them is not installed; the error names it.
pub(crate) fn programs() -> Result<(), String> {
    match ["nginx", "wrk"].into_iter().find(|program| !command::is_installed(program)) {
        Some(program) => Err(format!("{program} is not installed (`make lab` does it)")),
        None => Ok(()),
    }
}

/// What to ask, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Connections at the same time.
    pub(crate) connections: u32,
    /// Bytes of an answer, without its header.
    pub(crate) size: u64,
    /// Whether a connection is used for more than one request.
    pub(crate) keep: bool,
}

/// Writes the files that the programs need into `directory`, and returns the command lines of
/// server and client.
pub(crate) fn command_lines(
    plan: Plan,
    directory: &Path,
    at: SocketAddr,
    to: SocketAddr,
    seconds: u64,
) -> io::Result<(Vec<String>, Vec<String>)> {
    let directory = directory.join(format!("web-{}", at.port()));
    std::fs::create_dir_all(&directory)?;
    let path = |name: &str| directory.join(name).display().to_string();
    std::fs::write(path("answer"), vec![b'x'; plan.size as usize])?;
    std::fs::write(path("wrk.lua"), SCRIPT)?;
    std::fs::write(path("nginx.conf"), configuration(&directory, at))?;
    let close = if plan.keep { "" } else { "Connection: close" };
    let server = ["nginx", "-e", "stderr", "-p", &path(""), "-c", &path("nginx.conf")];
    let client = [
        "wrk",
        "--threads=1",
        &format!("--connections={}", plan.connections),
        &format!("--duration={seconds}s"),
        "--timeout=5s",
        &format!("--script={}", path("wrk.lua")),
        &format!("--header={close}"),
        &format!("http://{to}/answer"),
    ];
    let client = client.into_iter().filter(|word| *word != "--header=");
    Ok((server.map(str::to_owned).to_vec(), client.map(str::to_owned).collect()))
}

fn configuration(directory: &Path, at: SocketAddr) -> String {
    let directory = directory.display();
    // Root, because the directory is closed to others. Connections are not ended by their number
    // of requests.
    format!(
        "user root; daemon off; worker_processes 1; pid {directory}/pid;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
           access_log off; tcp_nopush on; keepalive_requests 100000000;\n\
           client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;\n\
           fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi;\n\
           scgi_temp_path {directory}/scgi;\n\
           server {{ listen {at} backlog=1024; root {directory}; }}\n\
         }}\n"
    )
}

#[derive(Deserialize)]
struct Report {
    requests: u64,
    duration: f64,
    errors: u64,
    minimum: f64,
    mean: f64,
    deviation: f64,
    median: f64,
    p95: f64,
    p99: f64,
    maximum: f64,
}

/// Reads what wrk printed.
pub(crate) fn result(plan: Plan, client: &Output) -> Result<FlowResult, String> {
    let line = client.stdout.lines().find(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| format!("wrk: {}", client.stderr.trim()))?;
    let report: Report = serde_json::from_str(line).map_err(|error| format!("wrk: {error}"))?;
    let per_second = report.requests as f64 * 1e6 / report.duration.max(1.0);
    let ms = |microseconds: f64| microseconds / 1e3;
    Ok(FlowResult {
        goodput_bps: per_second * plan.size as f64 * 8.0,
        per_second: Some(per_second),
        rtt_ms: Some(Statistics {
            count: report.requests,
            mean: ms(report.mean),
            deviation: ms(report.deviation),
            minimum: ms(report.minimum),
            median: ms(report.median),
            p95: ms(report.p95),
            p99: ms(report.p99),
            maximum: ms(report.maximum),
        }),
        error: (report.errors > 0).then(|| format!("{} requests failed", report.errors)),
        ..FlowResult::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_wrk_is_read() {
        let plan = Plan { connections: 64, size: 1000, keep: true };
        let output = |stdout: &str| Output {
            stdout: stdout.to_owned(),
            stderr: "no such host".to_owned(),
            status: None,
        };
        let text = "Running 10s test\n{\"requests\": 20000, \"duration\": 10000000, \"errors\": 2, \
                    \"minimum\": 24000, \"mean\": 31000.5, \"deviation\": 4.5, \"median\": 30000, \
                    \"p95\": 35000, \"p99\": 37000, \"maximum\": 50000}\n";
        let flow = result(plan, &output(text)).expect("a result");
        assert_eq!((flow.per_second, flow.goodput_bps), (Some(2000.0), 16e6));
        let rtt = flow.rtt_ms.expect("measured");
        assert_eq!((rtt.count, rtt.median, rtt.p99), (20_000, 30.0, 37.0));
        assert_eq!(flow.error.as_deref(), Some("2 requests failed"));
        let none = result(plan, &output("")).expect_err("nothing");
        assert!(none.contains("no such host"));
    }

    #[test]
    fn a_connection_for_each_request_is_asked_for() {
        let directory = mpip_testing::Directory::new();
        let at = "0.0.0.0:80".parse().expect("an address");
        for keep in [true, false] {
            let plan = Plan { connections: 64, size: 10, keep };
            let (_, client) = command_lines(plan, directory.path(), at, at, 5).expect("written");
            assert_eq!(client.iter().any(|word| word.contains("Connection: close")), !keep);
        }
    }
}
