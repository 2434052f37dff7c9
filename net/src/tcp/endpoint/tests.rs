use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const SEED: [u8; 32] = [7; 32];

fn client() -> SocketAddr {
    ([198, 18, 0, 1], 6_182).into()
}

fn server() -> SocketAddr {
    ([198, 18, 0, 2], 443).into()
}

fn endpoint(local: SocketAddr) -> Endpoint {
    let mut seed = SEED;
    seed[0] = local.port() as u8;
    Endpoint::new(local, 1_500, seed)
}

/// A segment on its way.
#[derive(Clone, Debug)]
struct Sent {
    from: SocketAddr,
    header: Header,
    payload: Vec<u8>,
}

/// Two endpoints and what travels between them.
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
        let mut take = |datagram: &mut [u8]| received.push(datagram.to_vec());
        let mut payload = sent.payload;
        self.ends[end].receive(self.now, sent.from, &sent.header, &mut payload, &mut take);
        self.collect(end);
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

/// [E-2]
#[test]
fn a_syn_leaves_nothing_behind() {
    let mut pair = Pair::new();
    for port in 1..10_000 {
        let header = Header { source: port, flags: flag::SYN, ..Header::default() };
        let from = SocketAddr::new(client().ip(), port);
        pair.ends[1].receive(pair.now, from, &header, &mut [], &mut |_| panic!("no data"));
        let answer = pair.ends[1].poll_control().expect("an answer");
        assert_eq!(answer.header.flags, flag::SYN | flag::ACK);
        assert!(answer.header.timestamps.is_none() && answer.header.window_scale.is_none());
    }
    assert_eq!(pair.ends[1].connections(), 0);
    assert_eq!(pair.ends[1].next_timeout(), None);
}

/// [E-2]
#[test]
fn a_connection_needs_an_answer_that_was_received_lately() {
    let data = |pair: &mut Pair, acknowledgement, later: Duration| {
        let header = Header { flags: flag::ACK, acknowledgement, ..Header::default() };
        let mut count = 0;
        let now = pair.now + later;
        let mut payload = *b"\0\x02ab";
        pair.ends[1].receive(now, client(), &header, &mut payload, &mut |_| count += 1);
        (count, pair.ends[1].connections())
    };
    let mut pair = Pair::new();
    let header = Header { flags: flag::SYN, window_scale: Some(7), ..Header::default() };
    pair.ends[1].receive(pair.now, client(), &header, &mut [], &mut |_| {});
    let cookie = pair.ends[1].poll_control().expect("an answer").header.sequence;
    for wrong in [0, 2, 3, 1 << 20] {
        assert_eq!(data(&mut pair, cookie.wrapping_add(wrong), Duration::ZERO), (0, 0));
    }
    assert_eq!(data(&mut pair, cookie.wrapping_add(1), SECOND * 200), (0, 0), "too late");
    assert_eq!(pair.ends[1].counters().unknown, 5);
    assert_eq!(data(&mut pair, cookie.wrapping_add(1), SECOND), (1, 1));
}

/// [E-3]
#[test]
fn a_reset_changes_nothing() {
    let mut pair = Pair::established();
    let expected = pair.ends[1].data(pair.now, client(), 1, false).expect("open").acknowledgement;
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
    // Late ones belong to nothing, and the next datagram opens another.
    pair.wire.clear();
    pair.send(0, b"again");
    pair.settle();
    assert_eq!(pair.received[1].last().expect("some"), b"again");
}

#[test]
fn a_fin_counts_in_sequence_only() {
    let mut pair = Pair::established();
    let expected = pair.ends[1].data(pair.now, client(), 1, false).expect("open");
    let fin = |sequence: u32| Sent {
        from: client(),
        header: Header {
            sequence,
            acknowledgement: expected.sequence,
            flags: flag::FIN | flag::ACK,
            ..Header::default()
        },
        payload: Vec::new(),
    };
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

#[test]
fn the_table_is_bounded() {
    let mut pair = Pair::established();
    for port in 1..=MAX_CONNECTIONS as u32 + 10 {
        let from = SocketAddr::from(([198, 19, (port >> 8) as u8, port as u8], 1));
        let syn = Header { flags: flag::SYN, ..Header::default() };
        pair.ends[1].receive(pair.now, from, &syn, &mut [], &mut |_| {});
        let cookie = pair.ends[1].poll_control().expect("an answer").header.sequence;
        let header = Header { flags: flag::ACK, acknowledgement: cookie.wrapping_add(1), ..syn };
        pair.ends[1].receive(pair.now, from, &header, &mut [0, 1, 0], &mut |_| {});
    }
    assert_eq!(pair.ends[1].connections(), MAX_CONNECTIONS);
    assert_eq!(pair.ends[1].counters().evicted, 11);
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
    let acknowledgement = |pair: &mut Pair| {
        pair.ends[1].data(pair.now, client(), 1, false).expect("open").acknowledgement
    };
    assert_eq!(acknowledgement(&mut pair), ends[2]);
    pair.deliver(late);
    assert_eq!(acknowledgement(&mut pair), ends[2], "it does not go back");
    assert_eq!(pair.received[1].len(), 1 + 2);
}

/// What happens to a segment on its way.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrive,
    Lose,
    Repeat,
    /// It is overtaken by the next.
    Delay,
    /// It is joined with those that follow it.
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
            pair.ends[1].receive(pair.now, client(), &header, &mut payload, &mut |_| {});
            pair.ends[1].handle_timeout(pair.now);
            prop_assert!(pair.ends[1].connections() <= 2);
            prop_assert!(pair.ends[1].control.len() <= MAX_CONTROL);
        }
    }
}
