//! `mpip`, the unprivileged front end: makes keys, starts and stops a daemon, shows its state.
//!
//! This file parses the command line and calls the module of the command:
//!
//! - [`keys`]: `genkey`, `pubkey`, `genpsk`
//! - [`daemon`]: `up`, `down`, `check` and `doctor`, which run `mpipd`
//! - [`setup`], [`invite`], [`join`]: `init`; `invite`, `peers`, `remove`; `join`
//! - [`change`]: `reload`, `set`, `path`; [`save`] writes what was set into the configuration
//! - [`rule`][]: `rule list`, `test`, `add`, `del`
//! - [`status`], [`availability`], [`events`]: requests to a running daemon, shown as text or JSON
//! - [`metrics`]: its state in the text format of Prometheus
//! - [`mod@bench`]: what its paths carry; [`debug`]: a report for others
//! - [`explain`]: why each path is used or not
//! - [`generate`]: manual pages and completions, for packages
//! - [`top`], [`web`]: its state live, in the terminal and as a page in the browser
//!
//! They use [`socket`] (which daemon is meant), [`output`], [`table`], [`units`], [`words`] and
//! [`drops`] (text for people), [`rates`] (between two samples), [`sampler`] (samples for what is
//! shown live), [`progress`] (for whoever waits), [`redact`] (no secrets), and [`failure`] (the
//! error that ends the program). None of these use a command.

mod availability;
mod bench;
mod change;
mod daemon;
mod debug;
mod drops;
mod events;
#[cfg(test)]
mod example;
mod explain;
mod failure;
mod generate;
mod invite;
mod join;
mod keys;
mod metrics;
mod output;
mod progress;
mod rates;
mod redact;
mod rule;
mod sampler;
mod save;
mod setup;
mod socket;
mod status;
mod table;
mod top;
mod units;
mod web;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};

use failure::Failure;

/// All paths between two hosts, used at the same time.
///
/// A first setup:
///
///   mpip init                 on the gateway: key and configuration
///   mpip invite laptop        there: prints a token
///   mpip join TOKEN           on the laptop
///   mpip status               are the paths active?
///   mpip doctor               if not: what is in the way?
#[derive(Debug, Parser)]
#[command(name = "mpip", version, verbatim_doc_comment)]
struct Arguments {
    /// The control socket of the daemon (default: the only one in /run/mpip)
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make key and configuration of a gateway, asking nothing
    ///
    /// The inner networks are drawn at random. Nothing that exists is overwritten.
    Init {
        /// The configuration to write; its name is that of the interface
        #[arg(default_value = setup::DEFAULT_FILE)]
        file: PathBuf,
        /// Be the way to the Internet for peers: forward for them, with an address of this host
        #[arg(long)]
        gateway: bool,
    },
    /// Invite a host: print a token for `mpip join`, good once and for a time
    ///
    /// Starts the daemon if it does not run. Whoever has the token can join: keep it secret.
    Invite {
        /// What the host is to be called
        name: String,
        /// How long the token is good for, like 30m, 1h or 7d: one minute to 30 days
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = invite::parse_time)]
        valid: Duration,
        /// Where this host can be reached, if that is not where its interfaces are (behind a NAT);
        /// may be given several times
        #[arg(long = "endpoint", value_name = "ADDRESS:PORT")]
        endpoints: Vec<String>,
        /// A network behind the invited host, reached through it; may be given several times
        #[arg(long = "prefix", value_name = "PREFIX")]
        prefixes: Vec<String>,
        /// Do not draw the token as a QR code
        #[arg(long)]
        no_qr: bool,
        /// This host's configuration
        #[arg(long, value_name = "FILE", default_value = setup::DEFAULT_FILE)]
        config: PathBuf,
    },
    /// Join the gateway that made a token: write the configuration, start, show the paths
    Join {
        /// The token; `-` reads it from standard input, so that no list of processes shows it
        token: String,
        /// Send everything through the gateway that has no other way, or nowhere
        #[arg(long)]
        default_route: bool,
        /// Write the configuration, and do not start
        #[arg(long)]
        no_start: bool,
        /// The configuration to write; its name is that of the interface
        #[arg(long, value_name = "FILE", default_value = setup::DEFAULT_FILE)]
        config: PathBuf,
    },
    /// List peers and invitations
    Peers {
        /// Print a JSON list of those that were invited
        #[arg(long)]
        json: bool,
    },
    /// Forget a peer that joined, or withdraw an invitation
    Remove {
        /// Its name
        name: String,
    },
    /// Make a private key
    ///
    /// Prints it, or with --out writes it to a new file that only its owner can read and prints
    /// the public key that belongs to it.
    Genkey {
        /// The file to write; it must not exist yet
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Read a private key from standard input and print its public key
    ///
    /// mpip pubkey < /etc/mpip/mpip0.key
    Pubkey,
    /// Make a preshared key, for `preshared_key_file` of both ends
    Genpsk {
        /// The file to write; it must not exist yet
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Start a daemon and wait until it works (needs CAP_NET_ADMIN)
    ///
    /// For a configuration in /etc/mpip systemd starts it, where it has the unit mpip@.service and
    /// no --log-level is given. Otherwise it runs in the background, and logs to a file beside its
    /// control socket, by default /run/mpip/INTERFACE.log.
    Up {
        /// The configuration, described in docs/configuration.md
        file: PathBuf,
        /// Log level of the daemon: off, error, warn, info, debug or trace
        #[arg(long, value_name = "LEVEL")]
        log_level: Option<String>,
    },
    /// Stop a daemon and wait until its device and routes are gone
    ///
    /// If none runs with the configuration FILE, remove what one left that was killed or ended by
    /// an error: also the routes that refuse packets of policy `require` (as root).
    Down {
        /// The configuration it was started with (default: the daemon of --socket)
        #[arg(conflicts_with = "socket")]
        file: Option<PathBuf>,
    },
    /// Apply a changed configuration without a restart
    ///
    /// Peers, rules, paths and the device's addresses come, go and change; what did not change goes
    /// on without a lost packet. A configuration with an error changes nothing, and its errors are
    /// printed. So does one that changes what cannot change while the daemon runs. What was set for
    /// the time being gives way to the file.
    Reload {
        /// The configuration (default: that of the daemon of --socket)
        #[arg(conflicts_with = "socket")]
        file: Option<PathBuf>,
    },
    /// Change a setting for the time being: until `mpip reload` or the daemon's end
    Set {
        #[command(subcommand)]
        what: SetCommand,
    },
    /// Put the paths of an interface on standby, take them out, or limit their rates, for the time
    /// being
    Path {
        #[command(subcommand)]
        what: PathCommand,
    },
    /// Show and change the rules that say how packets are treated
    Rule {
        #[command(subcommand)]
        what: RuleCommand,
    },
    /// Write what was set for the time being into the configuration file
    ///
    /// Comments and order of the file stay as they are. Then the file is applied, as by `mpip
    /// reload`.
    Save,
    /// Show what is wrong, and what each path does
    ///
    /// A line for each path: round-trip time, loss over the last seconds, what it sends and
    /// receives now, and its state in words. What does not work is listed first.
    Status {
        /// Show the engine's inner figures too: delays, queues, windows, guard, what was dropped
        ///
        /// Per path: state; round-trip time, and its minimum over the last 10 s; one-way delay
        /// beyond that of the fastest path; queuing delay; loss rate over the last seconds;
        /// delivery rate; weight (scheduler `weighted`); share of the data sent; congestion
        /// control, reordering, and why it takes no packet now.
        #[arg(long, short, conflicts_with = "json")]
        verbose: bool,
        /// Print one JSON object with all fields
        #[arg(long)]
        json: bool,
        /// Show sessions too, the most recently used first
        #[arg(long)]
        sessions: bool,
    },
    /// Say why each path is used or not, in a sentence with figures
    ///
    /// And what would change it. Rates are measured over a quarter of a second. Interfaces without
    /// a path are named too.
    ///
    ///   mpip explain              all paths of all peers
    ///   mpip explain wwan0        the paths by this interface
    ///   mpip explain 3            path 3
    #[command(verbatim_doc_comment)]
    Explain(explain::Options),
    /// Show which destinations of the host speak mpip
    ///
    /// Lists the destinations within the prefixes of `[opportunistic]` that the host talks to, and
    /// the state of each: queried (no answer yet), enabled (a node answered), not-enabled (no node
    /// answered), or key-changed (the node has another key than the one pinned to its address).
    Availability {
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Print events as they happen, until interrupted
    Events {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show paths, sessions and events live, in the terminal
    ///
    /// Per path: what it receives and sends, round-trip time, loss and the delay in queues, each
    /// over the last minutes. The keys are explained on the screen. Colours are left out where
    /// NO_COLOR is set.
    Top,
    /// Serve a page that shows paths, sessions and events live
    ///
    /// Open the address that it prints in a browser. Nothing can be changed there unless a password
    /// is set. /metrics has what `mpip metrics` prints. Runs until it is interrupted.
    Web(web::Options),
    /// Print metrics in the text format of Prometheus
    ///
    /// For a textfile collector, or to look at. `mpip web` serves the same as /metrics.
    Metrics,
    /// Find what on this host keeps mpip from working, and how to mend it
    ///
    /// Prints a line for each fault (`wrong`), each `note`, and each check that could not be made.
    /// Exits with 0 when nothing is wrong, else with 1. Changes nothing. Run it as root: without
    /// privileges it cannot check everything.
    ///
    /// With --peer the daemon asks its peer's, through the tunnel, what that one sees, and both are
    /// compared: paths that work in one direction only, loss by direction, other settings, clocks.
    Doctor {
        /// The configuration, whether or not its daemon runs (default: that of the running daemon)
        file: Option<PathBuf>,
        /// Ask the daemon of this peer, too; without a name, that of the only one
        #[arg(long, value_name = "NAME", num_args = 0..=1)]
        peer: Option<Option<String>>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Measure each path alone and all together, and say what to expect and what limits
    ///
    /// Sends data through the tunnel to the peer's mpipd and back: by default 3 s in each direction
    /// over all paths, and as long over each one. While one path is measured, other traffic with
    /// that peer has to make do with its rate. Paths on standby are not measured. Ctrl-C ends it.
    Bench(bench::Options),
    /// Collect a report for whoever is to help, without secrets
    ///
    /// Configuration, status, events, log, what doctor finds, addresses, routes and firewall of
    /// this host, in one file. Keys, tokens and passwords are taken out.
    Debug {
        /// The configuration (default: that of the running daemon)
        config: Option<PathBuf>,
        /// The file to write, which must not exist yet; `-` for standard output (default:
        /// mpip-debug-TIME.txt here)
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check a configuration and its key files
    Check {
        /// The configuration
        file: PathBuf,
    },
    /// Write manual pages and completions for shells, for packages
    #[command(hide = true)]
    Generate {
        /// Where to; the directory is made
        directory: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum SetCommand {
    /// Change settings of a peer
    ///
    /// mpip set peer gateway scheduler=round-robin max_paths=2
    Peer {
        /// The peer's name
        name: String,
        /// scheduler, congestion_control, max_paths, loss_policy, policy, resequencing,
        /// ack_thinning or encapsulation, as in docs/configuration.md; an empty value is the
        /// default
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum PathCommand {
    /// Change the state of an interface, or the upper rates of its paths
    ///
    /// mpip path set wwan0 standby
    /// mpip path set wwan0 off --for 2h
    /// mpip path set wwan0 rate_up="5 Mbit/s" rate_down="20 Mbit/s"
    #[command(verbatim_doc_comment)]
    Set {
        /// The interface
        interface: String,
        /// active; standby: its paths carry packets only while no other path works; off: it has no
        /// paths. rate_up, rate_down: the most that is sent on each path from there, and that the
        /// peer sends on it, like "20 Mbit/s" or "500 kbit/s"; an empty value is no limit
        #[arg(required = true, value_name = "STATE|KEY=VALUE")]
        settings: Vec<String>,
        /// For so long (30s, 10m, 2h, 1d); after it, the state is what it would be without this.
        /// With a state alone
        #[arg(long = "for", value_name = "DURATION", value_parser = invite::parse_time)]
        limit: Option<Duration>,
    },
}

#[derive(Debug, Subcommand)]
enum RuleCommand {
    /// List the rules in order; the first that matches a packet decides
    ///
    /// The last line is what happens to packets that no rule matches.
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Add a rule for the time being: until `mpip reload` or the daemon's end
    ///
    /// mpip rule add --at 1 name=calls protocol=udp remote_port=5000-5100 priority=response
    Add {
        /// The number that it is to have; the rules from there on move down (default: the end)
        #[arg(long, value_name = "NUMBER")]
        at: Option<u64>,
        /// name, remote_prefix, remote_port, local_prefix, local_port, protocol, length, dscp,
        /// peer, interface, priority, copies, repair, ordered, set_dscp, scheduler, as
        /// in docs/configuration.md; of paths.only, paths.prefer, paths.avoid one, with commas
        /// between the interfaces or labels
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Remove a rule for the time being: until `mpip reload` or the daemon's end
    Del {
        /// Its number or name, as in `mpip rule list`
        #[arg(value_name = "NUMBER|NAME")]
        rule: String,
    },
    /// Say which rule decides about a packet that this host sends, and which paths it would take
    ///
    /// mpip rule test udp 192.168.1.3:5221 length 180
    ///
    /// PACKET is a protocol, the address that the packet goes to, with its port if it has one, and
    /// then, as far as it matters: `from ADDRESS` or `from ADDRESS:PORT`, `length BYTES` of the IP
    /// packet, `dscp CODE_POINT`. Rules that depend on what is not given are named too. The last
    /// lines say which paths such a packet would take now, and the figures that decide it.
    Test {
        /// The packet, in one argument or several
        #[arg(required = true, value_name = "PACKET")]
        packet: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match act(&arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("mpip: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let socket = || socket::find(arguments.socket.as_deref());
    match &arguments.command {
        Command::Init { file, gateway } => setup::init(file, *gateway)?,
        Command::Invite { name, valid, endpoints, prefixes, no_qr, config } => {
            let wanted = invite::Invitation { name, valid: *valid, endpoints, prefixes };
            let socket = arguments.socket.as_deref();
            invite::invite(socket, config, &wanted, !no_qr && output::is_terminal())?;
        }
        Command::Join { token, default_route, no_start, config } => {
            let (default_route, no_start) = (*default_route, *no_start);
            join::join(token, config, &join::Options { default_route, no_start })?;
        }
        Command::Peers { json } => invite::list(&socket()?, *json)?,
        Command::Remove { name } => invite::remove(&socket()?, name)?,
        Command::Genkey { out } => keys::generate_private(out.as_deref())?,
        Command::Pubkey => keys::public()?,
        Command::Genpsk { out } => keys::generate_preshared(out.as_deref())?,
        Command::Up { file, log_level } => daemon::up(file, log_level.as_deref())?,
        Command::Down { file: Some(file) } => daemon::down_of(file)?,
        Command::Down { file: None } => daemon::down(&socket()?)?,
        Command::Reload { file: Some(file) } => change::reload(&daemon::socket_of(file)?)?,
        Command::Reload { file: None } => change::reload(&socket()?)?,
        Command::Set { what: SetCommand::Peer { name, settings } } => {
            change::set_peer(&socket()?, name, settings)?;
        }
        Command::Path { what: PathCommand::Set { interface, settings, limit } } => {
            change::set_path(&socket()?, interface, settings, *limit)?;
        }
        Command::Rule { what: RuleCommand::List { json } } => rule::list(&socket()?, *json)?,
        Command::Rule { what: RuleCommand::Test { packet, json } } => {
            rule::test(&socket()?, packet, *json)?;
        }
        Command::Rule { what: RuleCommand::Add { at, settings } } => {
            rule::add(&socket()?, *at, settings)?;
        }
        Command::Rule { what: RuleCommand::Del { rule } } => rule::remove(&socket()?, rule)?,
        Command::Save => save::save(&socket()?)?,
        Command::Status { verbose, json, sessions } => {
            let shown = status::Shown { json: *json, sessions: *sessions, verbose: *verbose };
            status::show(&socket()?, shown)?;
        }
        Command::Explain(options) => explain::run(&socket()?, options)?,
        Command::Availability { json } => availability::show(&socket()?, *json)?,
        Command::Events { json } => events::follow(&socket()?, *json)?,
        Command::Top => top::run(&socket()?)?,
        Command::Web(options) => web::serve(&socket()?, options)?,
        Command::Metrics => metrics::show(&socket()?)?,
        Command::Bench(options) => bench::run(&socket()?, options)?,
        Command::Debug { config, out } => {
            debug::collect(arguments.socket.as_deref(), config.as_deref(), out.as_deref())?;
        }
        Command::Doctor { file, peer, json } => {
            let socket = match (file, &arguments.socket) {
                (Some(_), None) => None,
                (_, given) => socket::find_any(given.as_deref())?,
            };
            let peer = peer.as_ref().map(Option::as_deref);
            return daemon::doctor(file.as_deref(), socket.as_deref(), peer, *json);
        }
        Command::Check { file } => return daemon::check(file),
        Command::Generate { directory } => generate::generate(Arguments::command(), directory)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_has_help() {
        let command = Arguments::command();
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some(), "{}", sub.get_name());
            for argument in sub.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", sub.get_name(), argument.get_id());
            }
        }
    }
}
