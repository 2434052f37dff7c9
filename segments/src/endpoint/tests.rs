use proptest::prelude::*;

use super::*;
use crate::connection::UNCONFIRMED;
use crate::segment;
use mpip_types::packet;

const SECOND: Duration = Duration::from_secs(1);
const SEED: [u8; 32] = [7; 32];

fn client() -> SocketAddr {
    ([198, 18, 0, 1], 6_182).into()
}

fn server() -> SocketAddr {
    ([198, 18, 0, 2], 443).into()
}

/// Whether a peer sealed the datagram, in these tests.
fn authenticates(datagram: &[u8]) -> bool {
    datagram.first() != Some(&b'!')
}

fn endpoint(local: SocketAddr) -> Endpoint {
    let mut seed = SEED;
    seed[0] = local.port() as u8;
    Endpoint::new(local, 1_500, seed)
}

/// A segment in flight.
#[derive(Clone, Debug)]
struct Sent {
    from: SocketAddr,
    header: Header,
    payload: Vec<u8>,
}

/// Two endpoints and the segments in flight between them.
struct Pair {
    now: Instant,
    ends: [Endpoint; 2],
    wire: VecDeque<Sent>,
    received: [Vec<Vec<u8>>; 2],
}

fn address(end: usize) -> SocketAddr {
    [client(), server()][end]
}

impl Pair {
    fn new() -> Self {
        Self {
            now: Instant::from_millis(1_000_000),
            ends: [endpoint(client()), endpoint(server())],
            wire: VecDeque::new(),
            received: Default::default(),
        }
    }

    fn send(&mut self, end: usize, datagram: &[u8]) {
        let to = address(1 - end);
        match self.ends[end].data(self.now, to, datagram.len(), true) {
            Some(header) => self.put(end, header, datagram),
            None => self.ends[end].hold(self.now, to, Ecn::NotEct, datagram.to_vec()),
        }
        self.collect(end);
    }

    fn put(&mut self, end: usize, header: Header, datagram: &[u8]) {
        let mut payload = (datagram.len() as u16).to_be_bytes().to_vec();
        payload.extend_from_slice(datagram);
        self.wire.push_back(Sent { from: address(end), header, payload });
    }

    fn collect(&mut self, end: usize) {
        while let Some(control) = self.ends[end].poll_control() {
            assert_eq!(control.to, address(1 - end));
            let from = address(end);
            self.wire.push_back(Sent { from, header: control.header, payload: Vec::new() });
        }
        while let Some((to, _, bytes)) = self.ends[end].poll_released() {
            if let Some(header) = self.ends[end].data(self.now, to, bytes.len(), true) {
                self.put(end, header, &bytes);
            }
        }
    }

    fn deliver(&mut self, sent: Sent) {
        let end = usize::from(sent.from == client());
        let received = &mut self.received[end];
        let mut take = |datagram: &mut [u8]| {
            received.push(datagram.to_vec());
            authenticates(datagram)
        };
        let mut payload = sent.payload;
        self.ends[end].receive(self.now, sent.from, &sent.header, &mut payload, &mut take);
        self.collect(end);
    }

    /// The header that a datagram of one byte would have, from the end that has a connection.
    fn header(&mut self, end: usize) -> Header {
        self.ends[end].data(self.now, address(1 - end), 1, false).expect("open")
    }

    /// Delivers everything, in order.
    fn settle(&mut self) {
        while let Some(sent) = self.wire.pop_front() {
            self.deliver(sent);
        }
    }

    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.now += Duration::from_millis(50);
            for index in 0..2 {
                self.ends[index].handle_timeout(self.now);
                self.collect(index);
            }
        }
    }

    fn established() -> Self {
        let mut pair = Self::new();
        pair.send(0, b"first");
        pair.settle();
        assert_eq!(pair.received[1], [b"first"]);
        pair
    }
}

fn flags(wire: &VecDeque<Sent>) -> Vec<u8> {
    wire.iter().map(|sent| sent.header.flags).collect()
}

#[test]
fn a_connection_looks_like_one_of_linux() {
    let mut pair = Pair::new();
    pair.send(0, b"hello");
    assert_eq!(flags(&pair.wire), [flag::SYN]);
    let syn = pair.wire.pop_front().expect("sent");
    assert_eq!(syn.header.max_segment, Some(1_460));
    assert_eq!((syn.header.window, syn.header.window_scale), (64_240, Some(10)));
    pair.deliver(syn.clone());
    let answer = pair.wire.pop_front().expect("sent");
    assert_eq!(answer.header.flags, flag::SYN | flag::ACK);
    assert_eq!(answer.header.acknowledgement, syn.header.sequence.wrapping_add(1));
    assert_eq!(answer.header.timestamps.map(|(_, echo)| echo), syn.header.timestamps.map(|t| t.0));
    pair.now += Duration::from_millis(20);
    pair.deliver(answer.clone());
    assert_eq!(flags(&pair.wire), [flag::ACK, flag::ACK | flag::PSH]);
    let data = &pair.wire[1].header;
    assert_eq!(data.sequence, syn.header.sequence.wrapping_add(1));
    assert_eq!(data.acknowledgement, answer.header.sequence.wrapping_add(1));
    let clock = |header: &Header| header.timestamps.expect("always").0;
    assert_eq!(clock(data).wrapping_sub(clock(&syn.header)), 20, "milliseconds");
    let end = data.sequence.wrapping_add(2 + 5);
    pair.settle();
    assert_eq!(pair.received[1], [b"hello"]);
    pair.send(1, b"and back");
    let back = &pair.wire[0].header;
    assert_eq!(back.sequence, answer.header.sequence.wrapping_add(1));
    assert_eq!(back.acknowledgement, end);
    pair.settle();
    assert_eq!(pair.received[0], [b"and back"]);
}

/// A SYN from `from` to the server; its number is 0.
fn syn(from: SocketAddr) -> Header {
    Header { source: from.port(), flags: flag::SYN, ..Header::default() }
}

/// The answer to a SYN that `from` sends to `end` of the pair.
fn answer(end: &mut Endpoint, now: Instant, from: SocketAddr) -> Option<Header> {
    end.receive(now, from, &syn(from), &mut [], &mut |_| panic!("no data"));
    end.poll_control().map(|control| control.header)
}

/// Gives `end` a segment that acknowledges `cookie`, with a datagram. Returns the number of
/// datagrams taken.
fn echo(end: &mut Endpoint, now: Instant, from: SocketAddr, cookie: u32, datagram: &[u8]) -> usize {
    let header = Header {
        flags: flag::ACK,
        sequence: 1,
        acknowledgement: cookie.wrapping_add(1),
        ..Header::default()
    };
    let mut payload = (datagram.len() as u16).to_be_bytes().to_vec();
    payload.extend_from_slice(datagram);
    let mut count = 0;
    end.receive(now, from, &header, &mut payload, &mut |datagram| {
        count += 1;
        authenticates(datagram)
    });
    count
}

/// Host number `number` of many.
fn other(number: u32, port: u16) -> SocketAddr {
    (std::net::Ipv4Addr::from_bits(0xc613_0000 + number), port).into()
}

/// [E-2]
#[test]
fn a_syn_leaves_nothing_behind() {
    let mut server = endpoint(server());
    let mut now = Instant::from_millis(1_000_000);
    for number in 0..10_000 {
        now += Duration::from_millis(1);
        let answer = answer(&mut server, now, other(number, 1)).expect("one");
        assert_eq!(answer.flags, flag::SYN | flag::ACK);
        assert!(answer.timestamps.is_none() && answer.window_scale.is_none());
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(server.next_timeout(), None);
}

/// [E-2]
#[test]
fn a_connection_needs_an_answer_that_was_received_lately() {
    let mut server = endpoint(server());
    let now = Instant::from_millis(1_000_000);
    let cookie = answer(&mut server, now, client()).expect("one").sequence;
    let mut echo = |later, cookie| {
        (echo(&mut server, now + later, client(), cookie, b"ab"), server.connections())
    };
    for wrong in [1, 2, 3, 1 << 20, u32::MAX] {
        assert_eq!(echo(Duration::ZERO, cookie.wrapping_add(wrong)), (0, 0));
    }
    assert_eq!(echo(SECOND * 200, cookie), (0, 0), "too late");
    assert_eq!(echo(SECOND, cookie), (1, 1));
    assert_eq!(server.counters().unknown, 6);
}

/// [E-2]
#[test]
fn an_answer_to_a_syn_serves_its_sender_alone() {
    let now = Instant::from_millis(1_000_000);
    let mut server = endpoint(server());
    let cookie = answer(&mut server, now, client()).expect("one").sequence;
    let data = |sequence, timestamps| Header {
        flags: flag::ACK,
        sequence,
        acknowledgement: cookie.wrapping_add(1),
        timestamps,
        ..Header::default()
    };
    let try_it = |end: &mut Endpoint, from, header: Header| {
        end.receive(now, from, &header, &mut [0, 1, 7], &mut |_| true);
        end.connections()
    };
    for from in [other(1, client().port()), (client().ip(), 6_183).into()] {
        assert_eq!(try_it(&mut server, from, data(1, None)), 0, "{from}");
    }
    // Another initial number, or no matching timestamp.
    for sequence in [0, (2 << 20) + 1, 1 << 31, u32::MAX] {
        assert_eq!(try_it(&mut server, client(), data(sequence, None)), 0, "{sequence}");
    }
    let clock = timestamp(now, server.origin(client()));
    for echoed in [clock.wrapping_add(1), clock.wrapping_sub(130_000)] {
        assert_eq!(try_it(&mut server, client(), data(1, Some((7, echoed)))), 0);
    }
    // At another endpoint, or after a restart, it is invalid.
    let mut another = Endpoint::new(server.local, 1_500, [8; 32]);
    assert_eq!(try_it(&mut another, client(), data(1, None)), 0);
    // The first segments may be lost.
    assert_eq!(try_it(&mut server, client(), data(1_000_000, Some((7, clock)))), 1);
}

/// [E-3]
#[test]
fn a_reset_changes_nothing() {
    let mut pair = Pair::established();
    let expected = pair.header(1).acknowledgement;
    for sequence in [expected, 0] {
        for flags in [flag::RST, flag::RST | flag::ACK, flag::RST | flag::SYN, 0xff] {
            let header = Header { sequence, flags, ..Header::default() };
            pair.deliver(Sent { from: client(), header, payload: Vec::new() });
        }
    }
    assert_eq!(pair.ends[1].counters().resets, 8);
    assert!(pair.wire.is_empty());
    pair.send(0, b"still");
    pair.settle();
    assert_eq!(pair.received[1].last().expect("some"), b"still");
}

#[test]
fn syns_that_cross_make_one_connection() {
    let mut pair = Pair::new();
    pair.send(0, b"ping");
    pair.send(1, b"pong");
    assert_eq!(flags(&pair.wire), [flag::SYN, flag::SYN]);
    pair.settle();
    assert_eq!(pair.received, [vec![b"pong".to_vec()], vec![b"ping".to_vec()]]);
    pair.send(0, b"more");
    pair.send(1, b"more");
    assert!(flags(&pair.wire).iter().all(|flags| flags & flag::SYN == 0));
    pair.settle();
    assert_eq!(pair.received.each_ref().map(Vec::len), [2, 2]);
}

#[test]
fn a_syn_is_repeated_while_something_is_to_be_sent() {
    let mut pair = Pair::new();
    pair.send(0, b"1");
    pair.wait(SECOND * 4);
    assert_eq!(flags(&pair.wire), [flag::SYN; 3]);
    let numbers: Vec<u32> = pair.wire.iter().map(|sent| sent.header.sequence).collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    for number in 2..8_u8 {
        pair.send(0, &[number]);
    }
    assert_eq!(pair.ends[0].counters().not_open, 3, "four wait");
    pair.wait(SECOND * 20);
    assert_eq!((pair.ends[0].connections(), pair.ends[0].next_timeout()), (0, None));
    assert_eq!(pair.ends[0].counters().not_open, 7);
}

#[test]
fn an_idle_connection_is_closed_on_both_sides() {
    let mut pair = Pair::established();
    pair.send(1, b"back");
    pair.settle();
    pair.wait(SECOND * 31);
    assert!(flags(&pair.wire).contains(&(flag::FIN | flag::ACK)));
    pair.settle();
    pair.wait(SECOND * 4);
    assert_eq!(pair.ends.each_ref().map(Endpoint::connections), [0, 0]);
    // Late segments belong to no connection, and the next datagram opens another one.
    pair.wire.clear();
    pair.send(0, b"again");
    pair.settle();
    assert_eq!(pair.received[1].last().expect("some"), b"again");
}

#[test]
fn a_fin_counts_in_sequence_only() {
    let mut pair = Pair::established();
    let expected = pair.header(1);
    let timestamps = pair.header(0).timestamps;
    let fin = |sequence: u32| Sent {
        from: client(),
        header: Header {
            sequence,
            acknowledgement: expected.sequence,
            flags: flag::FIN | flag::ACK,
            timestamps,
            ..Header::default()
        },
        payload: Vec::new(),
    };
    // It has to belong to this connection, too.
    let untimely = Header { timestamps: None, ..fin(expected.acknowledgement).header };
    pair.deliver(Sent { header: untimely, ..fin(0) });
    pair.deliver(fin(expected.acknowledgement.wrapping_sub(5)));
    pair.deliver(fin(expected.acknowledgement.wrapping_add(1 << 30)));
    assert_eq!(pair.ends[1].connections(), 1);
    pair.deliver(fin(expected.acknowledgement));
    assert_eq!((pair.ends[1].connections(), flags(&pair.wire)), (0, vec![flag::FIN | flag::ACK]));
}

#[test]
fn who_opened_a_connection_opens_another_when_nothing_comes() {
    let mut pair = Pair::established();
    let first = pair.ends[0].data(pair.now, server(), 1, false).expect("open").sequence;
    for _ in 0..5 {
        pair.wait(SECOND);
        pair.send(0, b"lost");
    }
    let syn = pair.wire.iter().position(|sent| sent.header.flags == flag::SYN).expect("one");
    let syn = pair.wire[syn].clone();
    pair.wire.clear();
    assert!(syn.header.sequence.wrapping_sub(first) >= 1 << 30, "far from the former");
    pair.deliver(syn);
    pair.settle();
    assert_eq!(pair.received[1].len(), 1 + 3, "those that waited");
    pair.send(1, b"back");
    pair.settle();
    assert_eq!(pair.received[0], [b"back"]);
    assert_eq!(pair.ends[1].connections(), 1);
}

impl Pair {
    /// A firewall has forgotten the connection and drops what the client sends, while the server
    /// probes every half second. Returns when the client's SYN of another connection is on the
    /// wire, with the time that it took.
    fn forgotten() -> (Self, Duration) {
        let mut pair = Self::established();
        let mut time = Duration::ZERO;
        while flags(&pair.wire) != [flag::SYN] {
            assert!(time < SECOND * 20, "the connection is never replaced");
            pair.wire.clear();
            pair.wait(SECOND / 2);
            time += SECOND / 2;
            pair.send(1, b"probe");
            pair.settle();
            pair.send(0, b"feedback");
        }
        (pair, time)
    }

    /// Sends a datagram, which arrives on the connection that exists.
    fn send_on(&mut self, end: usize, datagram: &[u8]) {
        self.send(end, datagram);
        assert_eq!(flags(&self.wire), [flag::ACK | flag::PSH]);
        self.settle();
        assert_eq!(self.received[1 - end].last().expect("some"), datagram);
    }
}

#[test]
fn who_opened_a_connection_opens_another_when_nothing_that_it_sends_arrives() {
    let (mut pair, time) = Pair::forgotten();
    assert!((SECOND * 3..SECOND * 4).contains(&time), "{time:?}");
    // What the server sends on the former one does not end the opening.
    pair.send(1, b"probe");
    let probe = pair.wire.pop_back().expect("sent");
    pair.deliver(probe);
    assert_eq!(flags(&pair.wire), [flag::SYN]);
    pair.settle();
    assert_eq!(pair.received[1], [b"first".to_vec(), b"feedback".to_vec()]);
    pair.send_on(1, b"back");
    assert_eq!(pair.ends.each_ref().map(Endpoint::connections), [1, 1]);
}

#[test]
fn a_late_acknowledgement_ends_the_opening_of_another_connection() {
    let (mut pair, _) = Pair::forgotten();
    let syn = pair.wire.pop_front().expect("one");
    let next = pair.ends[0].pool(Kind::Confirmed).with(&server()).expect("open").next();
    let payload = b"\0\x04late".to_vec();
    let header = pair.ends[1].data(pair.now, client(), payload.len(), false).expect("open");
    let header = Header { acknowledgement: next, ..header };
    pair.deliver(Sent { from: server(), header, payload });
    assert_eq!(flags(&pair.wire), [flag::ACK | flag::PSH], "what has waited");
    pair.settle();
    assert_eq!(pair.received[1].last().expect("some"), b"feedback");
    pair.deliver(syn);
    assert!(pair.wire.is_empty(), "the former one is in use");
    assert_eq!(pair.ends.each_ref().map(Endpoint::connections), [1, 1]);
}

#[test]
fn a_connection_that_is_quiet_in_one_direction_is_not_replaced() {
    for end in 0..2 {
        let mut pair = Pair::established();
        for round in 1..=200 {
            pair.wait(SECOND / 20);
            pair.send_on(end, &[7; 1_000]);
            if round % 40 == 0 {
                pair.send_on(1 - end, b"feedback");
            }
        }
    }
}

#[test]
fn a_connection_that_is_idle_is_not_replaced() {
    let mut pair = Pair::established();
    for _ in 0..3 {
        for end in [1, 0, 1] {
            pair.send_on(end, b"heartbeat");
        }
        pair.wait(SECOND * 20);
    }
}

#[test]
fn a_burst_after_a_rest_is_no_reason_to_replace_a_connection_until_it_is_unanswered_for_long() {
    let mut pair = Pair::established();
    pair.send_on(1, b"heartbeat");
    pair.wait(SECOND * 4);
    for _ in 0..3 {
        pair.send(0, b"burst");
    }
    pair.wait(SECOND * 3 - Duration::from_millis(50));
    pair.send(0, b"later");
    assert_eq!(flags(&pair.wire), [flag::ACK | flag::PSH; 4]);
    pair.wait(Duration::from_millis(50));
    pair.send(0, b"in vain");
    assert_eq!(flags(&pair.wire).last(), Some(&flag::SYN));
}

#[test]
fn what_is_lost_before_a_pause_is_no_reason_to_replace_a_connection() {
    let mut pair = Pair::established();
    pair.send_on(1, b"probe");
    for _ in 0..3 {
        for _ in 0..5 {
            pair.send(0, b"lost");
        }
        pair.wire.clear();
        for _ in 0..5 {
            pair.wait(SECOND * 2);
            pair.send_on(1, b"probe");
        }
        pair.send_on(0, b"data");
        pair.send_on(1, b"feedback");
    }
}

#[test]
fn a_connection_whose_acknowledgements_take_long_is_not_replaced() {
    let mut pair = Pair::established();
    let mut flights = VecDeque::new();
    for _ in 0..200 {
        pair.wait(SECOND / 10);
        for end in 0..2 {
            pair.send(end, b"data");
        }
        assert_eq!(flags(&pair.wire), [flag::ACK | flag::PSH; 2]);
        flights.push_back(core::mem::take(&mut pair.wire));
        // 1.4 s in each direction.
        if flights.len() > 14 {
            pair.wire = flights.pop_front().expect("some");
            pair.settle();
        }
    }
    assert_eq!(pair.received.each_ref().map(Vec::len), [186, 1 + 186]);
}

/// [E-9]
#[test]
fn what_proves_no_more_than_that_it_receives_gets_a_place_for_a_short_time() {
    for (datagram, lasts) in [(b"!forged", false), (b"sealed!", true)] {
        let mut server = endpoint(server());
        let mut now = Instant::from_millis(1_000_000);
        let cookie = answer(&mut server, now, client()).expect("one").sequence;
        assert_eq!(echo(&mut server, now, client(), cookie, datagram), 1);
        assert!(server.data(now, client(), 1, false).is_some(), "it can be answered");
        let end = now + UNCONFIRMED + SECOND;
        while now < end {
            assert_eq!(server.connections(), 1);
            now += SECOND / 2;
            echo(&mut server, now, client(), cookie, b"!more");
            server.data(now, client(), 1, false);
            server.handle_timeout(now);
            if !lasts && now >= end - SECOND {
                break;
            }
        }
        assert_eq!(
            (server.connections(), server.counters().unconfirmed == 0),
            (lasts.into(), lasts)
        );
        assert!(server.poll_control().is_none(), "nothing is sent to who is not known");
    }
}

/// [E-9]
#[test]
fn what_we_open_is_closed_when_nobody_proves_to_be_there() {
    let mut pair = Pair::new();
    pair.send(0, b"!first");
    pair.settle();
    assert_eq!(pair.ends.each_ref().map(Endpoint::connections), [1, 1]);
    pair.wait(UNCONFIRMED + SECOND);
    assert_eq!(flags(&pair.wire), [flag::FIN | flag::ACK]);
    pair.wait(SECOND * 4);
    assert_eq!(pair.ends.each_ref().map(Endpoint::connections), [0, 0]);
    assert_eq!(pair.ends.each_ref().map(|end| end.counters().unconfirmed), [1, 1]);
    pair.wire.clear();
    pair.send(0, b"again");
    pair.settle();
    assert_eq!(pair.received[1], [b"!first".to_vec(), b"again".to_vec()]);
}

/// [E-9] [E-11]
#[test]
fn a_flood_of_connections_drives_out_no_peer_at_rest() {
    let mut pair = Pair::established();
    let before = pair.header(1);
    for number in 0..20_000 {
        // A path at rest may be silent for this long.
        pair.now += Duration::from_micros(1_400);
        let Some(header) = answer(&mut pair.ends[1], pair.now, other(number, 1)) else { continue };
        let cookie = header.sequence;
        assert_eq!(echo(&mut pair.ends[1], pair.now, other(number, 1), cookie, b"!flood"), 1);
        assert!(pair.ends[1].connections() <= 1 + MAX_UNCONFIRMED);
    }
    let after = pair.header(1);
    assert_eq!(after.acknowledgement, before.acknowledgement);
    let Counters { evicted, unconfirmed, limited, .. } = pair.ends[1].counters();
    assert_eq!((evicted, unconfirmed, limited), (0, 20_000 - MAX_UNCONFIRMED as u64, 0));
    // Nor a connection that this end opens meanwhile.
    pair.ends[1].hold(pair.now, other(0, 2), Ecn::NotEct, b"hello".to_vec());
    assert!(pair.ends[1].pool(Kind::Opened).with(&other(0, 2)).is_some());
    assert_eq!(pair.ends[1].poll_control().expect("sent").header.flags, flag::SYN);
    pair.send(0, b"still here");
    pair.settle();
    assert_eq!(pair.received[1].last().expect("some"), b"still here");
}

/// [E-11]
#[test]
fn a_peer_with_many_connections_drives_out_its_own() {
    let mut pair = Pair::established();
    let beyond = 10;
    for number in 0..(MAX_CONNECTIONS + beyond) as u32 {
        pair.now += Duration::from_millis(25);
        let from = other(7, 1 + number as u16);
        let cookie = answer(&mut pair.ends[1], pair.now, from).expect("one").sequence;
        assert_eq!(echo(&mut pair.ends[1], pair.now, from, cookie, b"sealed"), 1);
    }
    let server = &mut pair.ends[1];
    assert_eq!(server.connections(), MAX_CONNECTIONS);
    assert_eq!(server.counters().evicted, beyond as u64 + 1);
    let oldest: Vec<u16> = (1..20)
        .filter(|port| server.pool(Kind::Confirmed).with(&other(7, *port)).is_none())
        .collect();
    assert_eq!(oldest, (1..=beyond as u16 + 1).collect::<Vec<_>>());
    assert!(server.data(pair.now, client(), 1, false).is_some());
}

/// [E-12]
#[test]
fn answers_to_syns_are_limited_for_a_source_and_for_all() {
    let mut server = endpoint(server());
    let now = Instant::from_millis(1_000_000);
    let mut count = |range: core::ops::Range<u32>, from: fn(u32) -> SocketAddr| {
        range.filter(|number| answer(&mut server, now, from(*number)).is_some()).count()
    };
    assert_eq!(count(0..1_000, |port| other(0, 1 + port as u16)), 100);
    assert_eq!(count(100..101, |number| other(number, 1)), 1);
    let all = count(1..60_000, |number| other(number, 1));
    assert_eq!(all, 1_000 - 101);
    let limited = server.counters().limited;
    assert_eq!(limited, 900 + 59_999 - all as u64);
    // Later there are more.
    let later = now + SECOND;
    assert!(answer(&mut server, later, other(0, 1)).is_some());
}

/// [E-13]
#[test]
fn a_syn_changes_nothing_of_a_connection() {
    let mut pair = Pair::established();
    pair.send(1, b"back");
    pair.settle();
    for end in 0..2 {
        let before = pair.header(end);
        let from = address(1 - end);
        for sequence in [before.acknowledgement, before.acknowledgement.wrapping_sub(1), 0, 1 << 31]
        {
            let header = Header { sequence, ..syn(from) };
            pair.ends[end].receive(pair.now, from, &header, &mut [], &mut |_| true);
            assert_eq!(pair.ends[end].poll_control(), None, "it is in use");
            let later = pair.now + SECOND * 20;
            pair.ends[end].receive(later, from, &header, &mut [], &mut |_| true);
            let answer = pair.ends[end].poll_control().expect("a cookie").header;
            assert_eq!(answer.flags, flag::SYN | flag::ACK);
            // An answer without a SYN is ignored.
            pair.deliver(Sent { from: address(end), header: answer, payload: Vec::new() });
            assert!(pair.wire.is_empty());
        }
        let after = pair.header(end);
        assert_eq!(after.acknowledgement, before.acknowledgement);
        assert_eq!(after.sequence, before.sequence.wrapping_add(3));
    }
    assert_eq!(pair.ends.each_ref().map(Endpoint::connections), [1, 1]);
}

/// [E-13]
#[test]
fn a_peer_that_was_restarted_gets_another_connection_once_it_proves_itself() {
    let mut pair = Pair::established();
    let former = pair.header(1);
    pair.ends[0] = Endpoint::new(client(), 1_500, [99; 32]);
    pair.send(0, b"!initiation");
    pair.settle();
    assert_eq!(pair.received[1], [b"first"]);
    pair.wait(SECOND);
    pair.settle();
    assert_eq!(pair.received[1].last().expect("handed on"), b"!initiation");
    let header = pair.header(1);
    assert_eq!(header.acknowledgement, former.acknowledgement, "the former is still in use");
    assert_eq!(header.sequence, former.sequence.wrapping_add(3));
    pair.send(0, b"sealed");
    pair.settle();
    assert_eq!(pair.ends[1].connections(), 1);
    pair.send(1, b"back");
    pair.settle();
    assert_eq!(pair.received[0], [b"back"]);
}

/// [E-9] [E-13]
#[test]
fn an_initiation_that_authenticates_later_is_answered_on_the_connection_that_brought_it() {
    let mut pair = Pair::established();
    pair.ends[0] = Endpoint::new(client(), 1_500, [99; 32]);
    pair.send(0, b"!initiation");
    pair.settle();
    pair.wait(SECOND);
    pair.settle();
    assert_eq!(pair.ends[1].connections(), 2);
    pair.ends[1].confirm_later(pair.now, client());
    assert_eq!(pair.ends[1].connections(), 1);
    pair.send(1, b"response");
    pair.settle();
    assert_eq!(pair.received[0], [b"response"]);
    // It lasts, and without a datagram to confirm nothing happens.
    pair.ends[1].confirm_later(pair.now, client());
    pair.wait(SECOND * 20);
    assert_eq!(pair.ends[1].connections(), 1);
    pair.ends[1].confirm_later(pair.now, other(1, 6182));
    assert_eq!(pair.ends[1].connections(), 1);
}

/// [E-13]
#[test]
fn what_waits_for_an_opening_goes_by_the_connection_that_the_peer_has_opened() {
    let mut pair = Pair::new();
    pair.send(0, b"ping");
    let syn = pair.wire.pop_front().expect("sent");
    pair.deliver(syn);
    let answer = pair.wire.pop_front().expect("sent");
    pair.send(1, b"pong");
    let _lost = pair.wire.pop_front();
    pair.deliver(answer);
    pair.settle();
    assert_eq!(pair.received, [vec![b"pong".to_vec()], vec![b"ping".to_vec()]]);
    assert_eq!(pair.ends.each_ref().map(Endpoint::connections), [1, 1]);
}

#[test]
fn data_opens_a_connection_whose_answer_was_lost() {
    let mut pair = Pair::new();
    pair.send(0, b"ping");
    pair.send(1, b"pong");
    let crossed = pair.wire.len();
    assert_eq!(crossed, 2);
    pair.deliver_next();
    pair.deliver_next();
    assert_eq!(flags(&pair.wire), [flag::SYN | flag::ACK; 2]);
    let _lost = pair.wire.pop_front();
    pair.settle();
    assert_eq!(pair.received, [vec![b"pong".to_vec()], vec![b"ping".to_vec()]]);
}

/// [E-1] [E-9]
#[test]
fn a_datagram_that_is_cut_survives_that_its_connection_is_confirmed() {
    let mut pair = Pair::new();
    pair.send(0, b"first");
    pair.deliver_next();
    pair.deliver_next();
    pair.send(0, b"second");
    let _acknowledgement = pair.wire.pop_front();
    let mut joined = pair.wire.pop_front().expect("data");
    joined.payload.extend(pair.wire.pop_front().expect("data").payload);
    let rest = joined.payload.split_off(2 + 5 + 4);
    let sequence = joined.header.sequence.wrapping_add(joined.payload.len() as u32);
    let header = Header { sequence, ..joined.header };
    pair.deliver(joined);
    assert_eq!(pair.received[1], [b"first"]);
    pair.deliver(Sent { from: client(), header, payload: rest });
    assert_eq!(pair.received[1], [b"first".to_vec(), b"second".to_vec()]);
}

impl Pair {
    fn deliver_next(&mut self) {
        let sent = self.wire.pop_front().expect("something was sent");
        self.deliver(sent);
    }

    /// Whether a segment with these changes of what the client would send is taken.
    fn takes(&mut self, change: impl FnOnce(&mut Header)) -> bool {
        let mut header = self.header(0);
        change(&mut header);
        let before = self.received[1].len();
        self.deliver(Sent { from: client(), header, payload: b"\0\x07!forged".to_vec() });
        self.received[1].len() > before
    }
}

/// [E-10]
#[test]
fn numbers_have_to_be_in_the_window() {
    const WINDOW: u32 = 32 << 20;
    let mut pair = Pair::established();
    let expected = pair.header(1).acknowledgement;
    for (ahead, taken) in [
        (0, true),
        (WINDOW - 1, true),
        (WINDOW, false),
        (WINDOW.wrapping_neg(), true),
        (WINDOW.wrapping_neg() - 1, false),
        (1 << 31, false),
    ] {
        let sequence = expected.wrapping_add(ahead);
        assert_eq!(pair.takes(|header| header.sequence = sequence), taken, "{ahead:#x}");
    }
    pair.send(1, &[7; 1_000]);
    let sent = pair.header(1).sequence.wrapping_add(3);
    let acknowledged = sent.wrapping_sub(1_002 + 3 + 3);
    for (acknowledgement, taken) in [
        (sent, true),
        (sent.wrapping_add(1), false),
        (acknowledged.wrapping_sub(WINDOW), true),
        (acknowledged.wrapping_sub(WINDOW + 1), false),
        (sent.wrapping_add(1 << 31), false),
    ] {
        let change = |header: &mut Header| header.acknowledgement = acknowledgement;
        assert_eq!(pair.takes(change), taken, "{acknowledgement:#x} of {sent:#x}");
    }
}

/// [E-10]
#[test]
fn timestamps_have_to_be_late_by_no_more_than_a_datagram_serves_and_their_echoes_to_be_ours() {
    let mut pair = Pair::established();
    pair.send(1, b"sealed");
    pair.settle();
    pair.wait(SECOND * 20);
    for end in [1, 0] {
        pair.send(end, b"sealed");
        pair.settle();
    }
    let timestamps = pair.header(0).timestamps.expect("always");
    for (late, echo_late, taken) in [
        (0, 0, true),
        (4_000, 0, true),
        (4_001, 0, false),
        (1 << 31, 0, false),
        (0, 34_000, true),
        (0, 34_001, false),
        (0, 1 << 31, false),
        // It was not sent yet.
        (0, u32::MAX, false),
    ] {
        let value = timestamps.0.wrapping_sub(late);
        let echoed = timestamps.1.wrapping_sub(echo_late);
        let change = |header: &mut Header| header.timestamps = Some((value, echoed));
        assert_eq!(pair.takes(change), taken, "{late} and {echo_late}");
    }
    assert!(!pair.takes(|header| header.timestamps = None), "it has them");
}

/// [E-4] [E-10]
#[test]
fn a_datagram_that_comes_late_is_handed_on_and_does_not_begin_the_connection_again() {
    let mut pair = Pair::established();
    pair.send(0, b"late");
    let late = pair.wire.pop_front().expect("sent");
    let mut pass = |rounds| {
        for _ in 0..rounds {
            pair.now += Duration::from_millis(100);
            for end in 0..2 {
                pair.send(end, &[7; 1_000]);
                pair.settle();
            }
        }
        let before = pair.header(1);
        pair.deliver(late.clone());
        let after = pair.header(1);
        assert_eq!(
            (after.acknowledgement, after.sequence),
            (before.acknowledgement, before.sequence.wrapping_add(3))
        );
        pair.received[1].last().expect("some") == b"late"
    };
    assert!(pass(35));
    // It acknowledges only the answer to the SYN, which is too old by now.
    assert!(!pass(10));
}

/// [E-5]
#[test]
fn acknowledgements_follow_what_arrived_and_never_more() {
    let mut pair = Pair::established();
    let mut ends = Vec::new();
    for _ in 0..3 {
        pair.send(0, &[1; 100]);
        ends.push(pair.wire[ends.len()].header.sequence.wrapping_add(102));
    }
    let late = pair.wire.remove(0).expect("sent");
    let _lost = pair.wire.remove(0);
    pair.settle();
    assert_eq!(pair.header(1).acknowledgement, ends[2]);
    pair.deliver(late);
    assert_eq!(pair.header(1).acknowledgement, ends[2], "it does not go back");
    assert_eq!(pair.received[1].len(), 1 + 2);
    pair.send(0, b"!forged");
    pair.settle();
    assert_eq!(pair.header(1).acknowledgement, ends[2], "who has forged it may have the number");
}

/// What happens to a segment in flight.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrive,
    Lose,
    Repeat,
    /// The next one overtakes it.
    Delay,
    /// It is merged with those that follow.
    Join,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        5 => Just(Fate::Arrive),
        1 => Just(Fate::Lose),
        1 => Just(Fate::Repeat),
        1 => Just(Fate::Delay),
        2 => Just(Fate::Join),
    ]
}

impl Pair {
    fn suffer(&mut self, fate: Fate) {
        let Some(mut sent) = self.wire.pop_front() else { return };
        match fate {
            Fate::Arrive => self.deliver(sent),
            Fate::Lose => {}
            Fate::Repeat => {
                self.deliver(sent.clone());
                self.deliver(sent);
            }
            Fate::Delay => {
                if let Some(next) = self.wire.pop_front() {
                    self.deliver(next);
                }
                self.deliver(sent);
            }
            Fate::Join => {
                while let Some(next) = self.wire.front()
                    && !sent.payload.is_empty()
                    && !next.payload.is_empty()
                    && next.from == sent.from
                    && next.header.acknowledgement == sent.header.acknowledgement
                    && next.header.sequence
                        == sent.header.sequence.wrapping_add(sent.payload.len() as u32)
                {
                    sent.payload.extend(&next.payload);
                    self.wire.pop_front();
                }
                self.deliver(sent);
            }
        }
    }
}

/// A segment of an attacker without keys.
#[derive(Debug)]
struct Forged {
    /// Whether the numbers are relative to the right ones.
    near: bool,
    numbers: [u32; 2],
    flags: u8,
    timestamps: Option<(u32, u32)>,
    data: Vec<u8>,
}

fn forged() -> impl Strategy<Value = Forged> {
    let numbers = any::<(bool, [u32; 2])>();
    let data = prop::collection::vec(any::<u8>(), 0..50);
    let all = (numbers, 0_u8..32, any::<Option<(u32, u32)>>(), data);
    all.prop_map(|((near, numbers), flags, timestamps, data)| Forged {
        near,
        numbers,
        flags,
        timestamps,
        data,
    })
}

proptest! {
    /// [E-1] [E-4]
    #[test]
    fn whatever_arrives_is_a_datagram_that_was_sent_and_none_is_sent_twice(
        steps in prop::collection::vec((0_usize..2, 1_usize..1_400, fate(), fate()), 1..200),
    ) {
        let mut pair = Pair::established();
        let mut sent: [Vec<Vec<u8>>; 2] = Default::default();
        let mut data = std::collections::BTreeSet::new();
        for (number, (end, len, one, other)) in steps.into_iter().enumerate() {
            let datagram = vec![number as u8; len];
            pair.send(end, &datagram);
            sent[1 - end].push(datagram);
            if let Some(last) = pair.wire.back().filter(|last| !last.payload.is_empty()) {
                let place = (last.from, last.header.sequence);
                prop_assert!(data.insert(place), "bytes of the stream sent twice: {place:?}");
            }
            pair.now += Duration::from_millis(3);
            if number % 3 == 0 {
                pair.suffer(one);
                pair.suffer(other);
                pair.suffer(Fate::Arrive);
            }
        }
        pair.settle();
        pair.received[1].remove(0);
        for (received, sent) in pair.received.iter().zip(&sent) {
            prop_assert!(received.iter().all(|datagram| sent.contains(datagram)));
        }
        prop_assert_eq!(pair.ends[0].counters().resets, 0);
        prop_assert_eq!(pair.ends[1].connections(), 1);
    }

    /// [E-10] [E-13]
    #[test]
    fn nobody_without_the_keys_changes_what_a_connection_does(
        steps in prop::collection::vec((0_usize..2, 1_usize..1_400, 0_u64..2_000, forged()), 1..60),
    ) {
        let mut calm = Pair::established();
        let mut attacked = Pair::established();
        for (number, (end, len, later, forged)) in steps.into_iter().enumerate() {
            let before = [0, 1].map(|end| attacked.header(end));
            prop_assert_eq!(before, [0, 1].map(|end| calm.header(end)));
            let victim = number % 2;
            let (own, peer) = (&before[victim], &before[1 - victim]);
            let Forged { near, numbers, flags, timestamps, mut data } = forged;
            let [mut sequence, mut acknowledgement] = numbers;
            if near {
                let close = |number: u32| (number % 4_096).wrapping_sub(2_048);
                sequence = own.acknowledgement.wrapping_add(close(sequence));
                acknowledgement = own.sequence.wrapping_add(close(acknowledgement));
            }
            // Mostly acceptable.
            let fits = near && numbers[0] % 4 > 0;
            let timestamps = if fits { peer.timestamps } else { timestamps };
            let mut header =
                Header { sequence, acknowledgement, flags, timestamps, ..Header::default() };
            if data.is_empty() && sequence == own.acknowledgement {
                // With the exact number, an attacker can close a connection; it is opened again.
                header.flags &= !flag::FIN;
            } else if !data.is_empty() {
                data.splice(0..0, [0, data.len() as u8]);
            }
            let (now, from) = (attacked.now, address(1 - victim));
            attacked.ends[victim].receive(now, from, &header, &mut data, &mut |_| false);
            while let Some(control) = attacked.ends[victim].poll_control() {
                // A cookie, or an acknowledgement for who repeats the answer to a SYN.
                prop_assert_eq!(control.header.flags & !flag::SYN, flag::ACK);
            }
            for pair in [&mut calm, &mut attacked] {
                pair.send(end, &vec![number as u8 | 0x80; len]);
                pair.settle();
                pair.send(1 - end, b"feedback");
                pair.settle();
                pair.wait(Duration::from_millis(later));
                pair.settle();
            }
        }
        prop_assert_eq!(&attacked.received, &calm.received);
        prop_assert_eq!(attacked.ends[0].connections(), 1);
    }

    /// [E-9] [E-11]
    #[test]
    fn whatever_unknown_hosts_do_a_connection_with_a_peer_stays(
        steps in prop::collection::vec((0_u32..1_500, any::<bool>(), 0_u64..30, 1_usize..40), 0..60),
    ) {
        let mut pair = Pair::established();
        let mut expected = pair.header(1);
        for (number, closes, later, count) in steps {
            pair.now += Duration::from_millis(later);
            for port in 0..count {
                let from = other(number, port as u16);
                let server = &mut pair.ends[1];
                let Some(answer) = answer(server, pair.now, from) else { break };
                echo(server, pair.now, from, answer.sequence, b"!flood");
                if closes {
                    let header = Header {
                        sequence: 1,
                        acknowledgement: answer.sequence.wrapping_add(1),
                        flags: flag::FIN | flag::ACK,
                        ..Header::default()
                    };
                    server.receive(pair.now, from, &header, &mut [], &mut |_| false);
                    while server.poll_control().is_some() {}
                }
            }
            pair.ends[1].handle_timeout(pair.now);
            let header = pair.header(1);
            expected.sequence = expected.sequence.wrapping_add(3);
            expected.timestamps = header.timestamps;
            prop_assert_eq!(header, expected);
            prop_assert!(pair.ends[1].connections() <= 1 + MAX_UNCONFIRMED);
        }
    }

    /// The server is heard all the time.
    #[test]
    fn a_connection_is_replaced_only_when_nothing_that_is_sent_arrives(
        steps in prop::collection::vec((1_u32..=20, prop::bool::weighted(0.15)), 1..200),
    ) {
        let mut pair = Pair::established();
        pair.send_on(1, b"probe");
        let mut arrived = pair.now;
        for (later, arrives) in steps {
            pair.wait(Duration::from_millis(50) * later);
            pair.send(0, b"data");
            let opens = flags(&pair.wire) == [flag::SYN];
            let time = pair.now.since(arrived);
            let timely = if opens { time >= SECOND * 3 } else { time <= SECOND * 7 };
            prop_assert!(timely, "{time:?}, opens: {opens}");
            if opens || arrives {
                pair.settle();
                prop_assert_eq!(pair.received[1].last().expect("some"), b"data");
                arrived = pair.now;
            } else {
                pair.wire.clear();
            }
            pair.send(1, b"probe");
            pair.settle();
            prop_assert_eq!(pair.ends.each_ref().map(Endpoint::connections), [1, 1]);
        }
    }

    /// Both ends open connections, at any time and with any losses. In the end each receives what
    /// the other sends.
    #[test]
    fn both_ends_agree_on_a_connection_in_the_end(
        steps in prop::collection::vec((0_usize..3, 0_u64..1_500, fate(), fate(), any::<bool>()), 0..60),
    ) {
        let mut pair = Pair::new();
        for (end, later, one, other, sealed) in steps {
            match end {
                0 | 1 => pair.send(end, if sealed { b"sealed" } else { b"!query" }),
                _ => pair.wait(Duration::from_millis(later)),
            }
            pair.suffer(one);
            pair.suffer(other);
        }
        for _ in 0..80 {
            pair.wait(SECOND / 4);
            for end in 0..2 {
                pair.send(end, b"sealed");
            }
            pair.settle();
        }
        for end in 0..2 {
            let before = pair.received[1 - end].len();
            pair.send(end, b"sealed");
            pair.settle();
            prop_assert_eq!(pair.received[1 - end].len(), before + 1);
            let place = pair.ends[end].pool(Kind::Confirmed).find(&address(1 - end));
            prop_assert!(place.is_some());
        }
    }

    #[test]
    fn nothing_that_is_received_can_break_an_endpoint(
        segments in prop::collection::vec(
            (any::<[u32; 2]>(), 0_u8..32, any::<[Option<(u32, u32)>; 1]>(), 0_u64..4_000,
             prop::collection::vec(any::<u8>(), 0..50)),
            0..100,
        ),
    ) {
        let mut pair = Pair::established();
        for (numbers, flags, timestamps, later, mut payload) in segments {
            pair.now += Duration::from_millis(later);
            let near = pair.ends[1].data(pair.now, client(), 1, false).unwrap_or_default();
            let header = Header {
                sequence: near.acknowledgement.wrapping_add(numbers[0] % 4_096),
                acknowledgement: near.sequence.wrapping_sub(numbers[1] % 4_096),
                flags,
                timestamps: timestamps[0],
                ..Header::default()
            };
            pair.ends[1].receive(pair.now, client(), &header, &mut payload, &mut |_| true);
            pair.ends[1].handle_timeout(pair.now);
            prop_assert!(pair.ends[1].connections() <= 3);
            prop_assert!(pair.ends[1].control.len() <= MAX_CONTROL);
        }
    }
}

/// Writes a segment of the client with a datagram, damages it, and hands it to the server. Returns
/// how many datagrams were taken.
fn receive_damaged(pair: &mut Pair, damage: impl FnOnce(&mut [u8])) -> usize {
    let datagram = [7; 30];
    let header = pair.ends[0].data(pair.now, server(), datagram.len(), true).expect("open");
    let mut room = vec![0; segment::HEADROOM + datagram.len()];
    room[segment::HEADROOM..].copy_from_slice(&datagram);
    let start = segment::frame(&header, &mut room);
    segment::seal(client(), server(), &mut room[start..]);
    damage(&mut room[start..]);
    let mut taken = 0;
    let mut take = |_, datagram: &mut [u8]| {
        taken += 1;
        datagram == [7; 30]
    };
    pair.ends[1].receive_bytes(pair.now, client().ip(), &mut room[start..], &mut take);
    taken
}

/// [E-15]
#[test]
fn a_damaged_header_brings_its_datagram_and_moves_no_number() {
    let mut pair = Pair::established();
    let before = pair.header(1);
    for byte in (4..12).chain([13, 14, 24, 25, 26, 27, 28, 29, 30, 31]) {
        let expected = pair.header(1).acknowledgement;
        // A number far away is dropped as a whole.
        assert!(receive_damaged(&mut pair, |segment| segment[byte] ^= 0x01) <= 1);
        assert_eq!(pair.header(1).acknowledgement, expected, "byte {byte}");
    }
    assert_eq!(receive_damaged(&mut pair, |segment| segment[5] ^= 0x01), 1);
    assert_eq!(pair.header(1).acknowledgement, before.acknowledgement);
    assert_eq!(receive_damaged(&mut pair, |_| {}), 1);
    let after = pair.header(0).sequence;
    assert_eq!(pair.header(1).acknowledgement, after);
}

/// [E-15]
#[test]
fn a_segment_that_a_kernel_has_joined_moves_the_numbers() {
    let mut pair = Pair::established();
    let expected = pair.header(1).acknowledgement;
    let joined = |segment: &mut [u8]| {
        // The complement of the checksum without the segment's own bytes.
        segment[16..18].fill(0);
        let own = packet::fold(packet::sum(segment));
        segment::seal(client(), server(), segment);
        let all = !u16::from_ne_bytes([segment[16], segment[17]]);
        let pseudo = packet::fold(u64::from(all) + u64::from(!own));
        segment[16..18].copy_from_slice(&pseudo.to_ne_bytes());
    };
    assert_eq!(receive_damaged(&mut pair, joined), 1);
    assert!(pair.header(1).acknowledgement.wrapping_sub(expected) >= 32);
}
