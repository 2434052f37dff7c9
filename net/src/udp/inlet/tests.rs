//! Receiving ahead of the engine's thread, over the loopback interface.

use std::net::UdpSocket as Sender;
use std::time::{Duration, Instant};

use super::*;
use crate::udp::SocketConfig;

/// Limit on hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const LOCAL: LocalId = LocalId(3);

/// Adds to every byte behind the index, and takes a different time for each datagram. Refuses those
/// that end with 255.
#[derive(Debug)]
struct Sum(u8);

impl Open for Sum {
    fn open(&self, datagram: &mut [u8]) -> Opened {
        if datagram.last() == Some(&255) {
            return Opened::Forged;
        }
        let number = number_of(datagram);
        (0..(number * 7919) % 3_000).for_each(|_| core::hint::spin_loop());
        datagram[8..].iter_mut().for_each(|byte| *byte = byte.wrapping_add(self.0));
        Opened::Authentic { number: number.into(), key: self.0.into() }
    }
}

/// The first four bytes.
fn index_of(datagram: &[u8]) -> Option<u32> {
    datagram.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).filter(|index| *index > 0)
}

/// The next four.
fn number_of(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(datagram[4..8].try_into().expect("4 bytes"))
}

fn datagram(index: u32, number: u32, len: usize, last: u8) -> Vec<u8> {
    let mut bytes = [index.to_be_bytes(), number.to_be_bytes()].concat();
    bytes.resize(len, 1);
    bytes[len - 1] = last;
    bytes
}

/// A socket with threads, and one that sends to it.
struct Wire {
    // Dropped in this order.
    receiver: UdpReceiver,
    sender: Sender,
    socket: Arc<UdpSocket>,
    _crew: UdpSender,
}

/// Number, last byte, and what became of each datagram taken.
type Taken = Vec<(u32, u8, Opened)>;

impl Wire {
    fn new(threads: usize) -> Self {
        let config = SocketConfig {
            id: LOCAL,
            interface: None,
            address: "127.0.0.1:0".parse().expect("valid"),
            mark: 0,
            buffer: 1 << 20,
        };
        let socket = Arc::new(UdpSocket::bind(&config).expect("a loopback address"));
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let crew = UdpSender::with_threads(threads, &waker).expect("threads");
        let mut receiver = UdpReceiver::beside(&crew, &waker, index_of);
        receiver.insert(Arc::clone(&socket));
        let sender = Sender::bind("127.0.0.1:0").expect("a loopback address");
        sender.connect(socket.address()).expect("a loopback address");
        Self { receiver, sender, socket, _crew: crew }
    }

    fn send(&self, datagram: &[u8]) {
        assert_eq!(self.sender.send(datagram).expect("sent"), datagram.len());
    }

    fn inlet(&self) -> Arc<Inlet> {
        Arc::clone(self.receiver.inlet(LOCAL).expect("it was inserted"))
    }

    /// Has threads receive, if they do not.
    fn start(&self) {
        if !self.receiver.is_ahead(LOCAL) {
            self.inlet().start();
        }
    }

    fn take(&self, taken: &mut Taken) {
        self.receiver.take(|local, _, _, (datagram, opened)| {
            assert_eq!(local, LOCAL);
            taken.push((number_of(datagram), *datagram.last().expect("bytes"), opened));
        });
    }
}

/// Calls `step` until `done`.
fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "nothing happens");
        std::thread::yield_now();
    }
}

#[test]
fn datagrams_are_taken_opened_and_in_order_whoever_opened_them() {
    for (threads, helps) in [(2, false), (2, true), (4, false), (4, true)] {
        let wire = Wire::new(threads);
        wire.receiver.set_key(1, Some(Arc::new(Sum(10))));
        let mut taken = Taken::new();
        // Never more on its way than any socket's buffer holds.
        for round in 0..60 {
            for number in round * 50..(round + 1) * 50 {
                wire.send(&datagram(1, number, 200 + number as usize % 700, 7));
            }
            until(|| {
                wire.start();
                if helps {
                    wire.receiver.help();
                }
                wire.take(&mut taken);
                taken.len() == 50 * (round as usize + 1)
            });
        }
        for (number, taken) in (0..).zip(taken) {
            let opened = Opened::Authentic { number: u64::from(number), key: 10 };
            assert_eq!(taken, (number, 17, opened));
        }
    }
}

#[test]
fn each_datagram_is_opened_by_the_key_of_its_index_as_long_as_there_is_one() {
    let wire = Wire::new(2);
    let mut taken = Taken::new();
    let mut exchange = |datagrams: &[Vec<u8>]| {
        datagrams.iter().for_each(|datagram| wire.send(datagram));
        taken.clear();
        until(|| {
            wire.start();
            wire.take(&mut taken);
            taken.len() == datagrams.len()
        });
        taken.clone()
    };
    wire.receiver.set_key(1, Some(Arc::new(Sum(10))));
    wire.receiver.set_key(2, Some(Arc::new(Sum(20))));
    let datagrams = [
        datagram(1, 0, 100, 1),
        datagram(2, 1, 100, 1),
        datagram(3, 2, 100, 1),
        datagram(1, 3, 100, 255),
    ];
    let by = |number, key| Opened::Authentic { number, key };
    let first = (0, 11, by(0, 10));
    let second = (1, 21, by(1, 20));
    let (third, fourth) = ((2, 1, Opened::NotYet), (3, 255, Opened::Forged));
    assert_eq!(exchange(&datagrams), [first, second, third, fourth]);
    // Index 1 gets a new key, and that of 2 is erased.
    let erased = Arc::new(Sum(20));
    wire.receiver.set_key(2, Some(Arc::clone(&erased) as Arc<dyn Open>));
    wire.receiver.set_key(1, Some(Arc::new(Sum(30))));
    wire.receiver.set_key(2, None);
    assert_eq!(Arc::strong_count(&erased), 1);
    assert_eq!(exchange(&datagrams)[..2], [(0, 31, by(0, 30)), (1, 1, Opened::NotYet)]);
}

#[test]
fn what_is_not_taken_stays_in_the_socket_and_nothing_is_lost() {
    let wire = Wire::new(3);
    let inlet = wire.inlet();
    let count = 4 * 16 + 30;
    (0..count).for_each(|number| wire.send(&datagram(1, number, 60, 1)));
    wire.start();
    until(|| lock(&inlet.state).starved);
    assert_eq!(lock(&inlet.state).count, MAX_BATCHES);
    assert!(wire.receiver.is_ahead(LOCAL) && !wire.receiver.has_work());
    // The loop does not receive from it either: it would be first.
    let mut buffers = ReceiveBuffers::new(1);
    wire.receiver
        .receive(&wire.socket, &mut buffers, |_, _, _| panic!("not its turn"))
        .expect("ok");
    let mut taken = Taken::new();
    until(|| {
        wire.take(&mut taken);
        !wire.receiver.is_ahead(LOCAL)
    });
    assert!(taken.iter().map(|(number, ..)| *number).eq(0..count), "{taken:?}");
    // It is empty now, and the loop's again.
    wire.send(&datagram(1, 77, 60, 1));
    let mut number = None;
    until(|| {
        let take = |_, _, datagram: &mut [u8]| number = Some(number_of(datagram));
        wire.receiver.receive(&wire.socket, &mut buffers, take).expect("received");
        number == Some(77)
    });
    assert!(!wire.receiver.is_ahead(LOCAL), "little has arrived");
}

#[test]
fn threads_go_on_when_much_has_arrived() {
    let wire = Wire::new(2);
    wire.receiver.set_key(1, Some(Arc::new(Sum(10))));
    let mut buffers = ReceiveBuffers::new(32);
    // The kernel counts more than the bytes, and an unprivileged socket has room for few.
    let (len, count) = (60_000, BACKLOG.div_ceil(60_000) as u32);
    let mut sent = 0;
    until(|| {
        for number in 0..count {
            wire.send(&datagram(1, number, len, 1));
            sent += 1;
        }
        let take = |_, _, _: &mut [u8]| ();
        wire.receiver.receive(&wire.socket, &mut buffers, take).expect("received");
        buffers.len() >= BACKLOG
    });
    // They say so when they have received, or found nothing more, which takes them no time.
    let threads = wire.receiver.threads.as_ref().expect("two");
    until(|| threads.shared.told.load(Ordering::Acquire));
    until(|| {
        wire.take(&mut Taken::new());
        !wire.receiver.is_ahead(LOCAL)
    });
}

#[test]
fn a_socket_can_be_removed_and_threads_end_while_datagrams_are_on_their_way() {
    for round in 0..50 {
        let mut wire = Wire::new(1 + round % 4);
        wire.receiver.set_key(1, Some(Arc::new(Sum(10))));
        (0..60).for_each(|number| wire.send(&datagram(1, number, 300, 1)));
        if let Some(inlet) = wire.receiver.inlet(LOCAL) {
            inlet.start();
        }
        if round % 2 == 0 {
            wire.receiver.remove(LOCAL);
            wire.receiver.take(|_, _, _, _| panic!("it was removed"));
            assert!(!wire.receiver.is_ahead(LOCAL) && !wire.receiver.help());
        }
    }
}
