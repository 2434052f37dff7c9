//! The daemon from its start to its end: set up, loop, clean up.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel};
use std::time::Duration;

use mpip_core::{Instant, Prefix};
use mpip_net::netlink::Monitor;
use mpip_net::privileges::Needs;
use mpip_net::{
    Interest, PlainSender, Poller, Readiness, Signal, Signals, Tun, Waker, clock, privileges,
};

use crate::config::Settings;
use crate::control::{self, Ask, Asker, Socket};
use crate::diagnosis::{self, Permits};
use crate::error::{Error, system};
use crate::firewall::Firewall;
use crate::node::{Node, Token};
use crate::notify::{READY, STOPPING, notify};

/// How long the last answer to a client may take when the process ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the loop waits for besides packets and datagrams.
struct Sources {
    poller: Poller,
    signals: Signals,
    monitor: Monitor,
    waker: Arc<Waker>,
    asks: Receiver<Ask>,
    asker: Asker,
}

/// Somebody who waits for the end.
type Waiting = (SyncSender<()>, Receiver<()>);

/// Runs a node until a signal or a client ends it. Everything that it set up on the host is gone
/// when it returns, but after an error what refuses packets of policy `require`: that stays until
/// another run ends in order, or [`clean_up`]. `qlog`: the directory for traces, if they are
/// wanted.
pub fn run(settings: Settings, qlog: Option<&Path>) -> Result<(), Error> {
    if !privileges::has_net_admin().map_err(system("read the process's capabilities"))? {
        return Err(Error::NotPermitted);
    }
    // Signals are blocked before any thread exists that could take them.
    let signals = Signals::new().map_err(system("take signals"))?;
    let control = Socket::bind(&settings.control_socket, settings.control_group)?;
    let traces = qlog.map(|directory| crate::qlog::open(directory, &settings)).transpose()?;
    let ports = [settings.listen_port, settings.tcp_port];
    let needs = Needs {
        raw_sockets: settings.needs_raw_sockets(),
        low_ports: ports.iter().any(|port| *port < 1024),
    };
    // Also without a peer in host mode: one may come.
    let plain = plain_sender(settings.host_mode.mark, settings.gives_back());
    // Before the firewall, so that the table of a daemon that has the device stays as it is.
    let tun = Tun::open(&settings.interface).map_err(|error| Error::tun(&settings, error))?;
    let firewall = Firewall::start(&settings)?;
    privileges::keep_net_admin(needs).map_err(system("give up privileges"))?;

    let poller = Poller::new().map_err(system("make an epoll"))?;
    let waker = Arc::new(Waker::new().map_err(system("make an eventfd"))?);
    // It listens before the first listing, so that no change is missed.
    let mut monitor = Monitor::new()?;
    let (asking, asks) = channel();
    let add = system("add a source to the epoll");
    poller.add(&signals, Token::Signals.into(), Interest::Readable).map_err(&add)?;
    poller.add(&monitor, Token::Network.into(), Interest::Readable).map_err(&add)?;
    poller.add(&*waker, Token::Control.into(), Interest::Readable).map_err(&add)?;

    let gateway = settings.gateway.clone();
    let (interface, permits) = (settings.interface.clone(), settings.diagnosis);
    let (door, joining) = match crate::invite::open(&settings) {
        Some((door, waiting, jobs)) => (Some(door), Some((waiting, jobs))),
        None => (None, None),
    };
    let busy_poll = settings.busy_poll;
    let opportunistic = settings.opportunistic.as_ref();
    let file = std::path::absolute(&settings.file).map_err(system("find the directory"))?;
    let noticed = opportunistic.map(|settings| settings.engine.prefixes.clone());
    let mut node = Node::start(settings, tun, plain.unwrap_or_default(), &poller, &mut monitor)?;
    node.open(door, firewall);
    for (peer, file) in traces.into_iter().flatten() {
        node.trace(&peer, file);
    }
    let wake = Arc::clone(&waker);
    let mut asker = Asker::new(asking, move || wake.wake()).with_config(file);
    if let (Some(gateway), Some((waiting, jobs))) = (gateway, joining) {
        crate::invite::serve(gateway, waiting, asker.clone())
            .map_err(system("start the thread of peers that join"))?;
        asker = asker.with_jobs(jobs);
    }
    if let Some(prefixes) = noticed {
        crate::destinations::watch(&prefixes, asker.clone())?;
    }
    // The device exists now. Without this the node works, so it is no reason to end.
    if permits != Permits::NOTHING
        && let Err(error) = diagnosis::serve(&interface, permits, asker.clone())
    {
        log::warn!(
            "peers cannot ask this node (`mpip doctor --peer`, `mpip bench`): TCP port {} on \
             {interface}: {error}",
            mpip_api::DIAGNOSIS_PORT
        );
    }
    control::serve(&control, asker.clone())
        .map_err(system("start the thread of the control socket"))?;
    node.started();
    notify(READY);
    let mut sources = Sources { poller, signals, monitor, waker, asks, asker };
    let ended = serve(&mut node, &mut sources, busy_poll);
    log::info!("ending");
    notify(STOPPING);
    node.end(ended.is_ok());
    // The socket's file goes before anybody is told that all is gone.
    drop(control);
    let waiting = ended?;
    for (done, _) in &waiting {
        let _ = done.send(());
    }
    for (_, answered) in &waiting {
        let _ = answered.recv_timeout(FAREWELL);
    }
    Ok(())
}

/// Removes what a node with these settings left on the host that was killed or ended by an error,
/// if it left anything; returns to where packets were refused. None may run.
pub fn clean_up(settings: &Settings) -> Result<Option<Vec<Prefix>>, Error> {
    if !privileges::has_net_admin().map_err(system("read the process's capabilities"))? {
        return Err(Error::NotPermitted);
    }
    let stale = control::remove_stale(&settings.control_socket)?;
    // Nobody else can have the device meanwhile.
    let device = Tun::open(&settings.interface).map_err(|error| Error::tun(settings, error))?;
    let refusing = crate::network::clean_up(settings)?;
    drop(device);
    let firewall = crate::firewall::clean_up(settings)?;
    Ok(refusing.or_else(|| (stale || firewall).then(Vec::new)))
}

/// What sends packets that go back to plain IP. Without it they are lost, which their senders find
/// out themselves.
fn plain_sender(mark: u32, needed: bool) -> Option<PlainSender> {
    let level = if needed { log::Level::Info } else { log::Level::Debug };
    let opened = PlainSender::open(mark);
    opened
        .map_err(|error| log::log!(level, "{error}; packets on their way are lost when paths fail, and behind NATs all stays plain"))
        .ok()
}

/// Hands everything that happens to the node until it is to end; returns who asked for that. For
/// `busy_poll` after each packet it does not sleep.
fn serve(
    node: &mut Node,
    sources: &mut Sources,
    busy_poll: Duration,
) -> Result<Vec<Waiting>, Error> {
    mpip_net::set_precise_timers().map_err(system("set the timer slack"))?;
    let mut ready: Vec<Readiness> = Vec::new();
    let mut busy_until = Instant::ZERO;
    // What is to be captured from the start is so before the first client is answered.
    node.finish_batch(clock::now(), &sources.poller)?;
    loop {
        let idle = node.has_work().then_some(Duration::ZERO);
        let timeout = idle.or_else(|| node.next_timeout().map(|at| at.since(clock::now())));
        let waited = sources.poller.poll_busily(&mut ready, timeout, busy_until);
        waited.map_err(system("wait for events"))?;
        // Nothing else is to be done.
        if ready.is_empty() && idle.is_some() && node.help() {
            node.threads_ready(clock::now());
        }
        let mut ending: Option<Vec<Waiting>> = None;
        for readiness in &ready {
            // Once a source, not once a wait: what one source's batch takes would else be missing
            // from the round-trip times that the next one's feedback shows.
            let now = clock::now();
            let token = Token::from(readiness.token);
            if matches!(token, Token::Tun | Token::Socket(_) | Token::Threads) {
                busy_until = now + busy_poll;
            }
            match token {
                Token::Tun => node.read_tun(now)?,
                Token::Socket(local) => node.socket_ready(now, local, *readiness),
                Token::Network => {
                    let changes = sources.monitor.read(|notice| node.notice(now, notice))?;
                    node.network_changed(now, changes);
                }
                Token::Signals => {
                    if take_signals(&sources.signals, &sources.asker)? {
                        ending.get_or_insert_default();
                    }
                }
                Token::Handshakes => node.handshakes_ready(now),
                Token::Threads => node.threads_ready(now),
                Token::Control => {
                    sources.waker.reset();
                    if let Some(waiting) = answer(node, now, sources)? {
                        ending.get_or_insert_default().extend(waiting);
                    }
                }
            }
        }
        node.finish_batch(clock::now(), &sources.poller)?;
        if let Some(waiting) = ending {
            return Ok(waiting);
        }
    }
}

/// Takes signals. Returns whether one of them ends the daemon.
fn take_signals(signals: &Signals, asker: &Asker) -> Result<bool, Error> {
    let mut end = false;
    while let Some(signal) = signals.read().map_err(system("read a signal"))? {
        match signal {
            Signal::Terminate => end = true,
            Signal::Reload => reload(asker.clone()),
        }
    }
    Ok(end)
}

/// Has the configuration read again, on a thread of its own: packets do not wait for a disk.
fn reload(asker: Asker) {
    // What is wrong is in the log.
    let run = move || drop(asker.reload());
    if let Err(error) = std::thread::Builder::new().name("reload".to_owned()).spawn(run) {
        log::error!("no thread to reload the configuration: {error}");
    }
}

/// Answers clients: those who wait for the end, if there are any.
fn answer(node: &mut Node, now: Instant, sources: &Sources) -> Result<Option<Vec<Waiting>>, Error> {
    let mut waiting = None;
    while let Ok(ask) = sources.asks.try_recv() {
        match ask {
            // A client that does not wait any more is no concern of ours.
            Ask::Status { sessions, reply } => {
                let _ = reply.try_send(Box::new(node.snapshot(now, sessions)));
            }
            Ask::Down { done, answered } => {
                waiting.get_or_insert_with(Vec::new).push((done, answered));
            }
            Ask::Events { subscriber } => node.subscribe(subscriber),
            Ask::RecentEvents { reply } => {
                let _ = reply.try_send(node.recent_events());
            }
            Ask::Availability { reply } => {
                let _ = reply.try_send(node.availability(now));
            }
            Ask::Peer { change, done } => {
                node.change_peer(change, &sources.poller)?;
                let _ = done.try_send(());
            }
            Ask::PeerAt { address, reply } => {
                let _ = reply.try_send(node.peer_at(address));
            }
            Ask::InterfaceAt { address, reply } => {
                let _ = reply.try_send(node.interface_at(address));
            }
            Ask::Way { address, rule, length, reply } => {
                let _ = reply.try_send(node.way(now, address, rule, length));
            }
            Ask::Confine { session, path } => node.confine(session, path),
            Ask::Send { to, datagram } => node.send(to, &datagram),
            Ask::Destinations { list } => node.destinations_in_use(now, &list),
            Ask::Reload { settings, reply } => {
                node.reload(&settings, reply, &sources.poller)?;
            }
            Ask::Set { change, reply } => {
                let _ = reply.try_send(node.set(change, &sources.poller)?);
            }
            Ask::Overrides { reply } => {
                let _ = reply.try_send(node.overrides());
            }
            Ask::Rules { reply } => {
                let _ = reply.try_send(node.rules());
            }
        }
    }
    Ok(waiting)
}
