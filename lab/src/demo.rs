//! `mpip-lab demo`: what mpip does, shown and measured in under 90 seconds.
//!
//! ```text
//!  mpip-demo-a                mpip-demo-sw               mpip-demo-b
//!   a1 198.18.0.1  ── 100 Mbit/s ──┐      ┌── 100 Mbit/s ──  b1 198.18.0.11
//!                                  switch
//!   a2 198.18.0.2  ── 100 Mbit/s ──┘      └── 100 Mbit/s ──  b2 198.18.0.12
//! ```
//!
//! Every link is shaped in both directions. Measured from A to B, with the same iperf3 and the
//! same congestion control: TCP on each link alone, kernel MPTCP, and TCP over mpip. Then a file
//! is copied over mpip while a cable is pulled and put back. The programs that transfer data know
//! nothing of mpip.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use self::copy::Reception;
use self::daemons::{Daemons, INNER_B};
use self::interrupt::Interrupt;
use self::iperf::{Measurement, measure};
use self::meter::{Bytes, Meter};
use self::report::{FileCopy, Results, Transfer};
use self::screen::Screen;
use self::world::{A, B, HOST_A, HOST_B, Lock, Nic, PATHS, World};
use crate::clock;
use crate::command::{self, Running};
use crate::environment;

mod copy;
mod daemons;
mod interrupt;
mod iperf;
mod meter;
mod report;
mod screen;
mod world;

const FILE_BYTES: u64 = 200_000_000;
const COPY_PORT: u16 = 5301;
const COPY_SAMPLE: Duration = Duration::from_millis(100);
/// Time for the copy; on one link it takes 17 s.
const COPY_LIMIT: Duration = Duration::from_secs(60);
/// Parts of the file after which the cable is pulled and put back.
const PULL: f64 = 0.25;
const PUT_BACK: f64 = 0.55;

/// How to run the demonstration.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds of each measurement
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(2..=60))]
    seconds: u64,
    /// The interface whose cable is pulled during the copy: a1, a2, b1 or b2
    #[arg(long, default_value = "b2")]
    pull: String,
    /// Pulls it so that the interface itself does not see it
    #[arg(long)]
    silently: bool,
    /// Directory for result.json and the daemons' logs
    #[arg(long, default_value = "target/demo")]
    output: PathBuf,
}

/// Processes that the demonstration starts of itself.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Removes what is left when its parent ends.
    Guard,
    /// Sends a file.
    Send {
        /// The file.
        file: PathBuf,
        /// The receiver.
        to: SocketAddr,
    },
    /// Receives a file.
    Receive {
        /// Where to listen.
        at: SocketAddr,
        /// The file to make.
        file: PathBuf,
    },
}

/// Runs one of the demonstration's own processes.
pub(crate) fn part(part: Part) -> io::Result<()> {
    match part {
        Part::Guard => world::guard(),
        Part::Send { file, to } => copy::send(&file, to),
        Part::Receive { at, file } => {
            println!("{}", serde_json::to_string(&copy::receive(at, &file)?)?);
            Ok(())
        }
    }
}

/// Runs the demonstration.
///
/// # Errors
/// The network cannot be made, or a transfer failed.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let interrupt = Interrupt::register()?;
    command::take_precedence();
    let result = demonstrate(options, &interrupt);
    match (interrupt.exit_code(), result) {
        (Some(code), _) => {
            eprintln!("mpip-lab: interrupted; everything is removed");
            Ok(code)
        }
        (None, Ok(true)) => Ok(ExitCode::SUCCESS),
        (None, Ok(false)) => Ok(ExitCode::FAILURE),
        (None, Err(error)) => Err(error),
    }
}

/// Returns whether everything was as it should be.
fn demonstrate(options: &Options, interrupt: &Interrupt) -> io::Result<bool> {
    let nics = A.iter().chain(&B);
    let pull = *nics.clone().find(|nic| nic.name == options.pull).ok_or_else(|| {
        io::Error::other(format!("--pull: expected a1, a2, b1 or b2, found {:?}", options.pull))
    })?;
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other("network namespaces need root: run `sudo make demo`"));
    }
    for (program, package) in [("ip", "iproute2"), ("tc", "iproute2"), ("iperf3", "iperf3")] {
        if !command::is_installed(program) {
            let message = format!("the program `{program}` is missing (package {package})");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
    }
    std::fs::create_dir_all(&options.output)?;
    let output = std::path::absolute(&options.output)?;
    let file = output.join("result.json");
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let lock = Lock::take(interrupt)?;
    let _guard = lock.start_guard()?;
    let mut demo = Demo {
        options,
        interrupt,
        screen: Screen::new(),
        world: World::build(interrupt)?,
        output,
        results: Results::default(),
    };
    let outcome = demo.run(pull);
    if interrupt.check().is_err() {
        return outcome.map(|()| false);
    }
    if let Err(error) = &outcome {
        demo.results.missing.push(format!("what follows an error: {error}"));
    }
    demo.results.write(&file)?;
    demo.screen.text("")?;
    let table = demo.results.table();
    demo.screen.text(&table)?;
    demo.screen.text(&format!("  Figures: {}", file.display()))?;
    outcome?;
    Ok(demo.results.copy.as_ref().is_some_and(FileCopy::is_equal))
}

struct Demo<'a> {
    options: &'a Options,
    interrupt: &'a Interrupt,
    screen: Screen,
    world: World,
    output: PathBuf,
    results: Results,
}

impl Demo<'_> {
    fn run(&mut self, pull: Nic) -> io::Result<()> {
        self.introduce()?;
        for (a, b) in [(A[0], B[0]), (A[1], B[1])] {
            let link = self.results.tcp.len() + 1;
            self.screen.begin(&format!("TCP on link {link} alone"))?;
            let transfer = self.measure(Some(a.address), b.address, (&[], &[]), None)?;
            self.results.tcp.push(transfer);
        }
        self.mptcp()?;
        self.screen.begin("mpip: two daemons shake hands")?;
        let mut daemons = Daemons::start(&self.world, &self.output)?;
        let active = daemons.wait_until_ready(self.interrupt)?;
        self.screen.end(&format!("{active} paths active"))?;
        if active < PATHS {
            self.results.missing.push(format!("{} of {PATHS} mpip paths", PATHS - active));
        }
        self.screen.begin("TCP over mpip")?;
        let transfer = self.measure(None, INNER_B, (&[], &[]), Some(&mut daemons))?;
        self.results.mpip = Some(transfer);
        let copy = self.copy(pull, &mut daemons)?;
        self.results.copy = Some(copy);
        daemons.stop()
    }

    fn introduce(&mut self) -> io::Result<()> {
        let title = self.screen.bold("mpip: all paths between two hosts at the same time");
        self.screen.text(&format!(
            "\n  {title}\n\n  \
             Two hosts, each with two links of 100 Mbit/s to one switch: four paths.\n  \
             This takes about 45 s; Ctrl-C ends it and leaves nothing behind.\n\n      \
             host A                                host B\n      \
             a1 {:12}──┐              ┌──  b1 {}\n                       \
             ├─── switch ───┤\n      \
             a2 {:12}──┘              └──  b2 {}\n",
            A[0].address, B[0].address, A[1].address, B[1].address
        ))
    }

    /// One iperf3 measurement of the step that has begun.
    fn measure(
        &mut self,
        from: Option<&str>,
        to: &str,
        wrapper: (&[&str], &[&str]),
        mpip: Option<&mut Daemons>,
    ) -> io::Result<Transfer> {
        let measurement = Measurement { from, to, seconds: self.options.seconds, wrapper };
        let transfer = measure(&measurement, mpip, &mut self.screen, self.interrupt)?;
        self.screen.end(&format!("{:5.1} Mbit/s", transfer.goodput_bps / 1e6))?;
        Ok(transfer)
    }

    /// Kernel MPTCP from both addresses of A to both of B, where this machine has it.
    fn mptcp(&mut self) -> io::Result<()> {
        self.screen.begin("kernel MPTCP on both links")?;
        if !environment::has_mptcp() {
            return self.without_mptcp("MPTCP: this kernel does not have it");
        }
        let help = command::run(&["iperf3", "--help"])?;
        let wrapper: (&[&str], &[&str]) = if help.contains("--mptcp") {
            (&[], &["--mptcp"])
        } else if command::is_installed("mptcpize") {
            (&["mptcpize", "run"], &[])
        } else {
            return self.without_mptcp(
                "MPTCP: it takes iperf3 3.19 or the program `mptcpize` (package mptcpize)",
            );
        };
        for host in [HOST_A, HOST_B] {
            command::run(&world::inside(
                host,
                &["sh", "-c", "echo 1 > /proc/sys/net/mptcp/enabled"],
            ))?;
            world::ip(host, "mptcp limits set subflows 8 add_addr_accepted 8")?;
        }
        for (nics, flags) in [(A, "subflow fullmesh"), (B, "signal")] {
            for Nic { name, address, host, .. } in nics {
                let line = format!("mptcp endpoint add {address} dev {name} {flags}");
                world::ip(host, &line)?;
            }
        }
        let transfer = self.measure(Some(A[0].address), B[0].address, wrapper, None)?;
        if transfer.path_bytes.iter().filter(|bytes| **bytes > 0).count() < 2 {
            self.results.missing.push("MPTCP used only one path".to_owned());
        }
        self.results.mptcp = Some(transfer);
        Ok(())
    }

    fn without_mptcp(&mut self, reason: &str) -> io::Result<()> {
        self.results.missing.push(reason.to_owned());
        self.screen.end("–")
    }

    fn copy(&mut self, pull: Nic, daemons: &mut Daemons) -> io::Result<FileCopy> {
        self.screen.begin(&format!("a file of {} MB", FILE_BYTES / 1_000_000))?;
        let directory = self.world.directory();
        let (from, to) = (directory.join("sent"), directory.join("received"));
        copy::make_file(&from, FILE_BYTES)?;
        let sha256_sent = copy::sha256(&from)?;
        self.interrupt.check()?;
        self.screen.begin("copy over mpip, link pulled")?;
        let own = std::env::current_exe()?.display().to_string();
        let address = format!("{INNER_B}:{COPY_PORT}");
        let [sent, received] = [&from, &to].map(|path| path.display().to_string());
        let receive = [&own, "demo-part", "receive", &address, &received];
        let receiver = Running::start(&world::inside(HOST_B, &receive))?;
        let mut meter = Meter::start(Some(daemons))?;
        let send = [&own, "demo-part", "send", &sent, &address];
        let mut sender = Running::start(&world::inside(HOST_A, &send))?;
        let deadline = Instant::now() + COPY_LIMIT;
        let (mut pulled, mut put_back) = (None, None);
        let mut bytes = Bytes::default();
        while !sender.has_ended() && Instant::now() < deadline {
            self.interrupt.sleep(COPY_SAMPLE)?;
            let done = std::fs::metadata(&to).map_or(0, |meta| meta.len()) as f64;
            let mut view = meter.view();
            view.done = done / FILE_BYTES as f64;
            if pulled.is_none() && view.done >= PULL {
                pulled = Some(clock::now().as_secs_f64());
                self.world.plug(pull, false, self.options.silently)?;
            }
            if put_back.is_none() && view.done >= PUT_BACK {
                put_back = Some(clock::now().as_secs_f64());
                self.world.plug(pull, true, self.options.silently)?;
            }
            view.note = match (pulled, put_back) {
                (Some(_), None) => format!("link {} is out", pull.name),
                (_, Some(_)) => format!("link {} is back", pull.name),
                _ => String::new(),
            };
            self.screen.show(&view)?;
            bytes = meter.sample()?;
        }
        bytes = meter.sample().unwrap_or(bytes);
        drop(meter);
        daemons.check()?;
        let reception = ended(sender, receiver)?;
        if reception.bytes != FILE_BYTES {
            let message = format!("{} of {FILE_BYTES} bytes arrived", reception.bytes);
            return Err(io::Error::other(message));
        }
        let moved = || io::Error::other("the copy was over before the cable was pulled and back");
        let seconds = reception.last - reception.first;
        let goodput_bps = FILE_BYTES as f64 * 8.0 / seconds;
        self.screen.end(&format!("{:5.1} Mbit/s", goodput_bps / 1e6))?;
        self.screen.begin("comparing checksums")?;
        let copy = FileCopy {
            transfer: Transfer { goodput_bps, seconds, path_bytes: bytes.paths },
            reception,
            pulled: pulled.ok_or_else(moved)?,
            put_back: put_back.ok_or_else(moved)?,
            link: pull.name,
            sha256_sent,
            sha256_received: copy::sha256(&to)?,
        };
        self.screen.end(if copy.is_equal() { "equal" } else { "DIFFERENT" })?;
        Ok(copy)
    }
}

/// What the receiver saw, if both sides ended well.
fn ended(sender: Running, receiver: Running) -> io::Result<Reception> {
    let sender = sender.finish(Instant::now());
    let wait = if sender.succeeded() { Duration::from_secs(3) } else { Duration::ZERO };
    let receiver = receiver.finish(Instant::now() + wait);
    for (side, output) in [("sender", &sender), ("receiver", &receiver)] {
        if !output.succeeded() {
            let why = if output.status.is_some() { output.stderr.trim() } else { "no end in time" };
            return Err(io::Error::other(format!("the file's {side}: {why}")));
        }
    }
    Ok(serde_json::from_str(&receiver.stdout)?)
}
