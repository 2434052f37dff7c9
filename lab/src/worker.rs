//! Subcommands that the lab runs in the namespaces of a testbed. Users do not need them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Subcommand;

use crate::{emulator, floor, generator, netem, netns, probe, quic, stream};

/// Hidden subcommands.
#[derive(Clone, Subcommand)]
pub(crate) enum Worker {
    /// The links process that emulates links.
    #[command(hide = true)]
    Emulate,
    /// The links process that uses the kernel's netem and tbf.
    #[command(hide = true)]
    Netem,
    /// Cleans up after the process given.
    #[command(hide = true)]
    Guard {
        /// The process.
        owner: u32,
    },
    /// Moves packets between a TUN device and a UDP socket.
    #[command(hide = true)]
    Floor(floor::Options),
    /// Sends datagrams back.
    #[command(hide = true)]
    Echo {
        /// Local address.
        at: SocketAddr,
    },
    /// Measures round trips of small datagrams.
    #[command(hide = true)]
    Voip {
        /// Local address.
        from: SocketAddr,
        /// Remote address.
        to: SocketAddr,
        /// Payload bytes.
        length: usize,
        /// Nanoseconds between datagrams.
        interval: u64,
        /// Seconds.
        duration: f64,
    },
    /// Serves requests and files.
    #[command(hide = true)]
    Serve {
        /// Local address.
        at: SocketAddr,
        /// Name of the congestion control, as the kernel has it; the system's default without it.
        congestion_control: Option<String>,
    },
    /// Serves downloads.
    #[command(hide = true)]
    Http {
        /// Local address.
        at: SocketAddr,
        /// Bytes of each.
        size: u64,
    },
    /// Sends requests.
    #[command(hide = true)]
    Request {
        /// Remote address.
        to: SocketAddr,
        /// Bytes of a request.
        request: u64,
        /// Bytes of a response.
        response: u64,
        /// Seconds.
        duration: f64,
    },
    /// Transfers one after the other, each on a new connection.
    #[command(hide = true)]
    Short {
        /// Remote address.
        to: SocketAddr,
        /// Bytes to send in each.
        sent: u64,
        /// Bytes to receive in each.
        wanted: u64,
        /// Nanoseconds between their starts.
        interval: u64,
        /// Name of the congestion control, as the kernel has it.
        congestion_control: String,
        /// Seconds.
        duration: f64,
    },
    /// Receives bulk TCP.
    #[command(hide = true)]
    StreamReceive {
        /// Local address.
        at: SocketAddr,
    },
    /// Sends bulk TCP.
    #[command(hide = true)]
    StreamSend {
        /// Remote address.
        to: SocketAddr,
        /// Name of the congestion control, as the kernel has it.
        congestion_control: String,
        /// Seconds.
        duration: f64,
    },
    /// Serves one bulk QUIC transfer.
    #[command(hide = true)]
    QuicServe {
        /// Local address.
        at: SocketAddr,
        /// Congestion control.
        congestion_control: String,
    },
    /// Transfers bulk QUIC in one direction.
    #[command(hide = true)]
    QuicTransfer {
        /// Local address.
        from: SocketAddr,
        /// Remote address.
        to: SocketAddr,
        /// Congestion control.
        congestion_control: String,
        /// `download` or `upload`.
        direction: String,
        /// Seconds.
        duration: f64,
    },
    /// Sends a file.
    #[command(hide = true)]
    File {
        /// Remote address.
        to: SocketAddr,
        /// Bytes.
        size: u64,
        /// Seconds at most.
        limit: f64,
    },
    /// Sends a probe stream.
    #[command(hide = true)]
    ProbeSend {
        /// Local address.
        from: SocketAddr,
        /// Remote address.
        to: SocketAddr,
        /// Payload bytes.
        length: usize,
        /// Nanoseconds between datagrams.
        interval: u64,
        /// Datagrams.
        count: u64,
    },
    /// Receives a probe stream.
    #[command(hide = true)]
    ProbeReceive {
        /// Local address.
        at: SocketAddr,
        /// Seconds at most.
        limit: f64,
    },
}

/// Runs a worker to its end.
pub(crate) fn run(worker: Worker) -> io::Result<()> {
    match worker {
        Worker::Emulate => emulator::main(),
        Worker::Netem => netem::main(),
        Worker::Guard { owner } => netns::guard(owner),
        Worker::Floor(options) => floor::run(&options),
        Worker::Echo { at } => generator::echo(at),
        Worker::Voip { from, to, length, interval, duration } => {
            let duration = Duration::from_secs_f64(duration);
            let interval = Duration::from_nanos(interval);
            print_json(&generator::voip(from, to, length, interval, duration)?)
        }
        Worker::Serve { at, congestion_control } => {
            generator::serve(at, congestion_control.as_deref())
        }
        Worker::Http { at, size } => generator::http(at, size),
        Worker::Request { to, request, response, duration } => {
            let duration = Duration::from_secs_f64(duration);
            print_json(&generator::request(to, request, response, duration)?)
        }
        Worker::Short { to, sent, wanted, interval, congestion_control, duration } => {
            let size = (sent, wanted);
            let (interval, duration) =
                (Duration::from_nanos(interval), Duration::from_secs_f64(duration));
            print_json(&generator::short(to, size, interval, &congestion_control, duration)?)
        }
        Worker::StreamReceive { at } => stream::receive(at),
        Worker::StreamSend { to, congestion_control, duration } => {
            let duration = Duration::from_secs_f64(duration);
            print_json(&stream::send(to, &congestion_control, duration)?)
        }
        Worker::QuicServe { at, congestion_control } => {
            print_json(&quic::serve(at, &congestion_control)?)
        }
        Worker::QuicTransfer { from, to, congestion_control, direction, duration } => {
            let duration = Duration::from_secs_f64(duration);
            let download = direction == "download";
            print_json(&quic::transfer(from, to, &congestion_control, download, duration)?)
        }
        Worker::File { to, size, limit } => {
            print_json(&generator::file(to, size, Duration::from_secs_f64(limit))?)
        }
        Worker::ProbeSend { from, to, length, interval, count } => {
            probe::send(from, to, length, Duration::from_nanos(interval), count)
        }
        Worker::ProbeReceive { at, limit } => {
            let limit = Duration::from_secs_f64(limit);
            print_json(&probe::receive(at, Duration::from_secs(1), limit)?)
        }
    }
}

fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}
