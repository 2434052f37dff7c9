//! The thread that does the public-key work of handshakes, so that packets need not wait for it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use mpip_core::{HandshakeDone, HandshakeJob};

/// Jobs handed to the thread at a time: one that it does, and some to go on with. Other jobs wait
/// in the engine, which decides which are next.
const AT_ONCE: usize = 4;

/// The handle of the thread.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Sender<HandshakeJob>,
    results: Receiver<HandshakeDone>,
    /// Number of jobs whose results were not taken yet.
    busy: usize,
}

impl Worker {
    /// Starts the thread. It calls `wake` after each job, and ends when the worker is dropped.
    pub(crate) fn start(wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (jobs, todo) = channel::<HandshakeJob>();
        let (done, results) = channel();
        thread::Builder::new().name("handshakes".to_owned()).spawn(move || {
            if let Err(error) = mpip_net::lower_priority() {
                log::debug!("handshakes have the priority of packets: {error}");
            }
            for job in todo {
                if done.send(job.run()).is_err() {
                    return;
                }
                wake();
            }
        })?;
        Ok(Self { jobs, results, busy: 0 })
    }

    /// Hands jobs from `poll` to the thread, up to [`AT_ONCE`].
    pub(crate) fn feed(
        &mut self,
        mut poll: impl FnMut() -> Option<HandshakeJob>,
    ) -> io::Result<()> {
        while self.busy < AT_ONCE
            && let Some(job) = poll()
        {
            self.busy += 1;
            let ended = |_| io::Error::other("its thread has ended");
            self.jobs.send(job).map_err(ended)?;
        }
        Ok(())
    }

    /// The next result.
    pub(crate) fn take(&mut self) -> Option<HandshakeDone> {
        let done = self.results.try_recv().ok()?;
        self.busy -= 1;
        Some(done)
    }
}

/// Starts a worker that wakes the poller of `waker`.
pub(crate) fn start(waker: &Arc<mpip_net::Waker>) -> io::Result<Worker> {
    let waker = Arc::clone(waker);
    Worker::start(move || waker.wake())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use mpip_core::{
        Command, Config, DatagramSink, Ecn, Encapsulation, Engine, InnerPacket, Instant,
        LocalAddress, LocalId, PacketSink, PathAddress, PeerConfig, Policy, Slot,
    };
    use mpip_crypto::PrivateKey;

    use super::*;

    struct Out(Vec<Vec<u8>>, bool);

    impl DatagramSink for Out {
        fn reserve(&mut self, _: PathAddress, _: Ecn, len: usize) -> Option<Slot<'_>> {
            self.0.push(vec![0; len]);
            Some(Slot::new(self.0.last_mut()?, &mut self.1))
        }
    }

    impl PacketSink for Out {
        fn packet(&mut self, _: InnerPacket<'_>) {}
    }

    /// An engine that has initiations to `peers` peers to make.
    fn engine(peers: u8) -> Engine {
        let peer = |number: u8| PeerConfig {
            name: format!("peer {number}"),
            public_key: *PrivateKey::from_bytes([number + 2; 32]).public_key(),
            endpoints: vec![([198, 18, 0, number], 6182).into()],
            host_mode: false,
            policy: Policy::Require,
            ..PeerConfig::unnamed()
        };
        let peers = (1..=peers).map(|number| peer(number * 4)).collect();
        let config = Config::new(PrivateKey::from_bytes([1; 32]), false, peers);
        let mut engine = Engine::new(config, [0; 32], Instant::ZERO, Duration::ZERO);
        let local = LocalAddress {
            id: LocalId(0),
            interface: "eth0".to_owned(),
            address: ([198, 18, 0, 1], 6182).into(),
            mtu: 1_500,
            encapsulation: Encapsulation::Udp,
        };
        engine.handle_command(Instant::ZERO, Command::LocalAddresses(vec![local]));
        let (mut out, mut host) = (Out(vec![], false), Out(vec![], false));
        engine.handle_timeout(Instant::ZERO, &mut out, &mut host);
        assert!(out.0.is_empty(), "packets would have waited for that");
        engine
    }

    fn worker() -> (Worker, Receiver<()>) {
        let (wake, woken) = channel();
        let worker = Worker::start(move || {
            let _ = wake.send(());
        });
        (worker.expect("a thread"), woken)
    }

    #[test]
    fn jobs_are_done_on_the_thread_and_their_results_come_back() {
        let mut engine = engine(20);
        let (mut worker, woken) = worker();
        let mut out = Out(vec![], false);
        while out.0.len() < 20 {
            worker.feed(|| engine.poll_job()).expect("the thread runs");
            assert!(worker.busy <= AT_ONCE);
            woken.recv().expect("it wakes its owner");
            while let Some(done) = worker.take() {
                engine.handle_job(Instant::ZERO, done).expect("an initiation");
            }
            engine.flush(Instant::ZERO, &mut out);
        }
        assert_eq!(worker.busy, 0);
        assert!(out.0.iter().all(|datagram| datagram[0] == 1 && datagram.len() == 160));
    }

    #[test]
    fn the_thread_ends_with_its_owner_and_is_missed_when_it_ended() {
        let (worker, woken) = worker();
        drop(worker);
        woken.recv().expect_err("the thread has ended");

        let mut engine = engine(1);
        let (_, results) = channel();
        let mut orphan = Worker { jobs: channel().0, results, busy: 0 };
        orphan.feed(|| engine.poll_job()).expect_err("nobody takes it");
    }
}
