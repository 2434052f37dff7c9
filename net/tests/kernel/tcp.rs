//! Datagrams in TCP segments between two namespaces, `here` and `there`, which a pair of interfaces
//! connects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::HANG;
use crate::common::Namespace;
use mpip_net::udp::{ReceiveBuffers, SocketConfig};
use mpip_net::{TcpSender, TcpSocket, clock};
use mpip_testing::can_run;
use mpip_types::DatagramSink;
use mpip_types::Ecn;
use mpip_types::LocalId;
use mpip_types::PathAddress;

const LOCAL: LocalId = LocalId(3);
const MTU: u16 = 1_500;
/// The test's own table, as the daemon's.
const OWN: &str = "mpip_own";
/// Datagrams of a burst, and their length. One more is shorter.
const BURST: usize = 100;
const LEN: usize = 1_300;
/// Longer than what was found out about the host is relied on.
const LATER: Duration = Duration::from_millis(1_500);

/// One host: a sender with one socket.
struct End<'a> {
    namespace: &'a Namespace,
    sender: TcpSender,
    buffers: ReceiveBuffers,
    /// What arrived.
    datagrams: Vec<(Ecn, Vec<u8>)>,
}

impl<'a> End<'a> {
    fn new(namespace: &'a Namespace, address: &str) -> Self {
        let config = SocketConfig {
            id: LOCAL,
            interface: Some("v0".into()),
            address: address.parse().expect("valid"),
            mark: 0,
            buffer: 8 << 20,
        };
        let bind = || TcpSocket::bind(&config).unwrap_or_else(|error| panic!("{error}"));
        let mut sender = TcpSender::new(OWN);
        sender.insert(Arc::new(namespace.run(bind)), MTU, [7; 32]);
        Self { namespace, sender, buffers: ReceiveBuffers::new(32), datagrams: Vec::new() }
    }

    fn address(&self) -> SocketAddr {
        self.sender.socket(LOCAL).expect("inserted").address()
    }

    /// Sends datagrams and what else is to be sent.
    fn send(&mut self, remote: SocketAddr, datagrams: &[Vec<u8>]) {
        let Self { namespace, sender, .. } = self;
        let to = PathAddress { local: LOCAL, remote };
        namespace.run(|| {
            sender.set_time(clock::now());
            sender.handle_timeout(clock::now());
            for bytes in datagrams {
                let mut slot = sender.reserve(to, Ecn::Ect0, bytes.len()).expect("room");
                slot.bytes().copy_from_slice(bytes);
                slot.commit();
            }
            sender.flush(clock::now());
        });
    }

    /// Receives what has arrived. All of it is authentic.
    fn receive(&mut self) {
        let Self { sender, buffers, datagrams, .. } = self;
        sender
            .recv_batch(clock::now(), LOCAL, buffers, |_, ecn, bytes| {
                datagrams.push((ecn, bytes.to_vec()));
                true
            })
            .expect("received");
        let nobody = self.address();
        self.send(nobody, &[]);
    }
}

struct Pair<'a> {
    here: End<'a>,
    there: End<'a>,
}

impl<'a> Pair<'a> {
    /// With a connection.
    fn connected(namespaces: &'a [Namespace; 2], addresses: [&str; 2]) -> Self {
        let [here, there] = namespaces;
        let mut pair =
            Self { here: End::new(here, addresses[0]), there: End::new(there, addresses[1]) };
        pair.here.send(pair.there.address(), &[b"first".to_vec()]);
        pair.until([0, 1]);
        pair.there.datagrams.clear();
        pair
    }

    /// Receives at both ends until so many datagrams have arrived, here and there.
    fn until(&mut self, counts: [usize; 2]) {
        let end = Instant::now() + HANG;
        loop {
            let arrived = [&self.here, &self.there].map(|end| end.datagrams.len());
            if arrived[0] >= counts[0] && arrived[1] >= counts[1] {
                return;
            }
            assert!(Instant::now() < end, "{arrived:?} of {counts:?}");
            self.there.receive();
            self.here.receive();
        }
    }

    /// Sends a burst and awaits it. Returns the number of messages that the kernel was given.
    fn burst(&mut self) -> u64 {
        let before = self.here.sender.counters();
        let remote = self.there.address();
        let datagram = |(number, len): (usize, usize)| -> Vec<u8> {
            (0..len).map(|at| (number * 7 + at * 3) as u8).collect()
        };
        let lengths = std::iter::repeat_n(LEN, BURST).chain([100]);
        let datagrams: Vec<Vec<u8>> = lengths.enumerate().map(datagram).collect();
        self.here.send(remote, &datagrams);
        self.until([0, datagrams.len()]);
        let arrived = std::mem::take(&mut self.there.datagrams);
        for (number, (expected, (ecn, bytes))) in datagrams.iter().zip(arrived).enumerate() {
            assert!(*expected == bytes, "datagram {number}: {} bytes arrived", bytes.len());
            assert_eq!(ecn, Ecn::Ect0, "datagram {number}");
        }
        // A connection on which nothing comes back would be opened anew.
        self.there.send(self.here.address(), &[b"answer".to_vec()]);
        self.until([1, 0]);
        self.here.datagrams.clear();
        let after = self.here.sender.counters();
        assert_eq!(after.datagrams - before.datagrams, BURST as u64 + 1);
        assert!(self.here.sender.poll_error().is_none());
        after.messages - before.messages
    }
}

fn namespaces() -> [Namespace; 2] {
    let [here, there] = [Namespace::new(), Namespace::new()];
    here.connect(&there, "v0");
    for (namespace, host) in [(&here, 1), (&there, 2)] {
        namespace.ip(&format!("addr add 198.18.0.{host}/24 dev v0"));
        namespace.ip(&format!("addr add 2001:db8::{host}/64 dev v0 nodad"));
    }
    [here, there]
}

const V4: [&str; 2] = ["198.18.0.1:6182", "198.18.0.2:443"];
const V6: [&str; 2] = ["[2001:db8::1]:6182", "[2001:db8::2]:443"];
/// Messages of a burst by super-packets at most: three of 50 datagrams at most, the last datagrams,
/// and room for acknowledgements.
const TOGETHER: u64 = 8;

#[test]
fn a_burst_leaves_in_a_few_packets_and_arrives_whole_and_in_order() {
    if !can_run(&[]) {
        return;
    }
    let namespaces = namespaces();
    for addresses in [V4, V6] {
        let mut pair = Pair::connected(&namespaces, addresses);
        for _ in 0..3 {
            let messages = pair.burst();
            assert!(messages <= TOGETHER, "{addresses:?}: {messages} messages");
        }
    }
}

/// Super-packets pass by the host's rules.
#[test]
fn segments_leave_one_by_one_while_a_rule_of_the_host_may_treat_them() {
    if !can_run(&["nft"]) {
        return;
    }
    let namespaces = namespaces();
    let mut pair = Pair::connected(&namespaces, V4);
    let nft = |rules: &str| namespaces[0].command("nft", rules);
    assert!(pair.burst() <= TOGETHER);
    nft("add table inet other");
    // Neither chain treats what the host sends.
    for chain in
        ["in { type filter hook input priority 0; }", "out { type filter hook output priority 0; }"]
    {
        nft(&format!("add chain inet other {chain}"));
    }
    nft("add rule inet other in ct state invalid counter drop");
    nft(&format!("add table inet {OWN}"));
    nft(&format!("add chain inet {OWN} out {{ type filter hook output priority 0; }}"));
    nft(&format!("add rule inet {OWN} out counter"));
    std::thread::sleep(LATER);
    assert!(pair.burst() <= TOGETHER, "nothing treats them");
    let rules = nft("list chain inet other in");
    assert!(rules.contains("counter packets 0 bytes 0 drop"), "{rules}");
    nft("add rule inet other out counter");
    std::thread::sleep(LATER);
    assert!(pair.burst() > BURST as u64, "a rule counts them");
    nft("delete table inet other");
    let policy = "src 198.18.0.1 dst 198.18.0.3 dir out";
    namespaces[0].ip(&format!("xfrm policy add {policy} action allow"));
    std::thread::sleep(LATER);
    assert!(pair.burst() > BURST as u64, "IPsec may treat them");
    namespaces[0].ip(&format!("xfrm policy delete {policy}"));
    std::thread::sleep(LATER);
    assert!(pair.burst() <= TOGETHER, "nothing treats them any more");
}

#[test]
fn super_packets_follow_a_neighbour_whose_hardware_address_changes() {
    if !can_run(&[]) {
        return;
    }
    let namespaces = namespaces();
    let [here, there] = &namespaces;
    let mut pair = Pair::connected(&namespaces, V4);
    assert!(pair.burst() <= TOGETHER);
    let address = "02:00:00:00:00:77";
    there.ip(&format!("link set v0 address {address}"));
    here.ip(&format!("neigh replace 198.18.0.2 lladdr {address} dev v0"));
    std::thread::sleep(LATER);
    assert!(pair.burst() <= TOGETHER);
}
