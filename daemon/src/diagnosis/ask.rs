//! This side: finds the peer's inner address and asks there.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use mpip_api::{DIAGNOSIS_PORT, PeerAnswer, PeerStatus, PeerView, Status};
use mpip_core::Prefix;
use mpip_net::{clock, stream};

use super::message::{self, Request, Response};
use crate::control::{Ask, Asker, ENDING};
use crate::snapshot::ms;

/// Longest wait for a connection, and for an answer.
const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(5);
/// Most addresses that are tried.
const ADDRESSES_MAX: usize = 4;

/// This node's state.
pub(super) fn status(asker: &Asker) -> Result<Status, String> {
    let snapshot = asker.answer(|reply| Ask::Status { sessions: false, reply });
    snapshot.map(|snapshot| snapshot.into_status()).ok_or_else(|| ENDING.to_owned())
}

/// The peer with this name, or the only one.
pub(super) fn peer_in<'a>(
    status: &'a Status,
    name: Option<&str>,
) -> Result<&'a PeerStatus, String> {
    let names = || {
        let names: Vec<String> =
            status.peers.iter().take(10).map(|peer| format!("`{}`", peer.name)).collect();
        if names.is_empty() { "there are none".to_owned() } else { names.join(", ") }
    };
    let found = match (name, status.peers.as_slice()) {
        (Some(name), peers) => peers.iter().find(|peer| peer.name == name),
        (None, [only]) => Some(only),
        (None, _) => return Err(format!("expected the name of a peer: {}", names())),
    };
    found.ok_or_else(|| format!("no peer has the name `{}`: {}", name.unwrap_or_default(), names()))
}

/// Where the daemon of `peer` may listen; `own` are the addresses of our device.
fn addresses(peer: &PeerStatus, own: &[String]) -> Vec<IpAddr> {
    let parse = |list: &[String]| -> Vec<Prefix> {
        list.iter().filter_map(|text| text.parse().ok()).collect()
    };
    let (allowed, captured) = (parse(&peer.allowed_prefixes), parse(&peer.captured));
    let hosts = captured.iter().chain(&allowed).filter(|it| **it == Prefix::host(it.address()));
    // A gateway has the first address of the networks that it gives addresses of.
    let networks = own.iter().filter_map(|text| {
        let (address, len) = text.split_once('/')?;
        let (address, len) = (address.parse::<IpAddr>().ok()?, len.parse().ok()?);
        let first = match Prefix::new(address, len)?.address() {
            IpAddr::V4(network) => IpAddr::V4((network.to_bits().checked_add(1)?).into()),
            IpAddr::V6(network) => IpAddr::V6((network.to_bits().checked_add(1)?).into()),
        };
        let theirs = first != address && allowed.iter().any(|prefix| prefix.contains(first));
        theirs.then_some(first)
    });
    let mut list = Vec::new();
    for address in hosts.map(Prefix::address).chain(networks) {
        if !list.contains(&address) && list.len() < ADDRESSES_MAX {
            list.push(address);
        }
    }
    list
}

/// A peer whose daemon answers.
pub(super) struct Reached {
    pub(super) interface: String,
    pub(super) address: SocketAddr,
}

impl Reached {
    /// Finds where `peer` answers and what it sees. A `given` address is the only one tried.
    pub(super) fn find(
        status: &Status,
        peer: &PeerStatus,
        given: Option<IpAddr>,
    ) -> Result<(Self, PeerView), String> {
        let name = &peer.name;
        if !peer.established || !peer.paths.iter().any(|path| path.state == "active") {
            return Err(format!(
                "peer `{name}` has no active path, so it cannot be asked: run `mpip doctor` here and \
                 there"
            ));
        }
        if peer.host_mode && peer.traffic.as_deref() != Some("multipath") && given.is_none() {
            return Err(format!(
                "packets to peer `{name}` do not take the paths at present (host mode): `mpip status` \
                 says why"
            ));
        }
        let known = addresses(peer, &status.interface.addresses);
        let list = given.map_or(known, |address| vec![address]);
        if list.is_empty() {
            return Err(format!(
                "no inner address of peer `{name}` is known: none of its allowed_prefixes is a single \
                 address; name one with --address"
            ));
        }
        let mut failed = Vec::new();
        for address in list {
            let address = SocketAddr::new(address, DIAGNOSIS_PORT);
            let reached = Self { interface: status.interface.name.clone(), address };
            match reached.ask_view() {
                Ok(view) => return Ok((reached, view)),
                Err(Refusal::Said(reason)) => {
                    return Err(format!("peer `{name}` at {address} refuses: {reason}"));
                }
                Err(Refusal::Failed(error)) => failed.push(format!("{address}: {error}")),
            }
        }
        Err(format!(
            "peer `{name}` has active paths, but its daemon does not answer through the tunnel ({}). \
             Either its release knows no diagnosis, or a firewall there forbids TCP to port \
             {DIAGNOSIS_PORT} by its mpip interface, or its inner address is another one (--address)",
            failed.join("; ")
        ))
    }

    /// A new connection.
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let stream = stream::connect(&self.interface, self.address, CONNECT)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        Ok(stream)
    }

    /// What the peer sees.
    pub(super) fn view(&self) -> Option<PeerView> {
        self.ask_view().ok()
    }

    fn ask_view(&self) -> Result<PeerView, Refusal> {
        let stream = self.connect().map_err(Refusal::Failed)?;
        message::write(&stream, &Request::View).map_err(Refusal::Failed)?;
        match message::read(&stream).map_err(Refusal::Failed)? {
            Response::View { view } => Ok(*view),
            Response::Error { message } => Err(Refusal::Said(message)),
            other => Err(Refusal::Said(format!("expected a view, found {other:?}"))),
        }
    }
}

/// Why there is no view.
enum Refusal {
    Failed(io::Error),
    Said(String),
}

/// What both ends see of the association with the peer `name`, or the only one.
pub(crate) fn ask_peer(
    asker: &Asker,
    name: Option<&str>,
    address: Option<IpAddr>,
) -> Result<PeerAnswer, String> {
    let start = clock::now();
    let status = status(asker)?;
    let own = peer_in(&status, name)?;
    let (reached, view) = Reached::find(&status, own, address)?;
    Ok(PeerAnswer {
        address: reached.address,
        own: own.clone(),
        view,
        daemon_version: status.daemon_version.clone(),
        took_ms: ms(clock::now().since(start)),
        unix_time_ms: ms(clock::unix_time()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests_support::{peer, status as empty};

    fn at(allowed: &[&str], own: &[&str]) -> Vec<String> {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let peer = PeerStatus { allowed_prefixes: texts(allowed), ..peer() };
        addresses(&peer, &texts(own)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_peer_is_looked_for_at_its_addresses_and_a_gateway_at_the_first_of_our_network() {
        assert_eq!(at(&["10.77.0.2/32", "10.8.0.0/24"], &["10.77.0.1/24"]), ["10.77.0.2"]);
        let joined = at(&["10.77.0.0/24", "fd77::/64"], &["10.77.0.2/24", "fd77::2/64"]);
        assert_eq!(joined, ["10.77.0.1", "fd77::1"]);
        assert_eq!(at(&["0.0.0.0/0"], &["10.77.0.2/24"]), ["10.77.0.1"]);
        assert_eq!(
            at(&["10.8.0.0/24"], &["10.77.0.1/24"]),
            [""; 0],
            "nothing is guessed elsewhere"
        );
    }

    #[test]
    fn a_peer_is_named_unless_it_is_the_only_one() {
        let mut status = empty();
        assert_eq!(peer_in(&status, None).expect("the only one").name, "b");
        status.peers.push(PeerStatus { name: "c".to_owned(), ..peer() });
        assert!(peer_in(&status, None).expect_err("two").ends_with("`b`, `c`"));
        assert_eq!(peer_in(&status, Some("c")).expect("there").name, "c");
        assert!(peer_in(&status, Some("x")).expect_err("none").contains("`x`"));
    }

    #[test]
    fn without_an_active_path_nobody_is_asked() {
        let status = empty();
        let mut silent = peer();
        silent.paths[0].state = "failed".to_owned();
        let refused = Reached::find(&status, &silent, None).err().expect("refused");
        assert!(refused.contains("no active path") && refused.contains("mpip doctor"), "{refused}");
    }
}
