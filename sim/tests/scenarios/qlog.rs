//! A trace tells the same as the statistics.

use core::fmt;
use core::time::Duration;
use std::sync::mpsc::{Sender, channel};

use crate::common::{both, client_and_gateway, link};
use mpip_core::trace::qlog::Writer;
use mpip_link::{LinkConfig, Loss};
use mpip_sim::clock::SECOND;
use mpip_sim::world::{Observe, World};

#[derive(Debug)]
struct Lines(Sender<String>);

impl fmt::Write for Lines {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.send(text.to_owned()).map_err(|_| fmt::Error)
    }
}

#[test]
fn every_datagram_and_every_loss_is_in_the_trace() {
    let lossy = LinkConfig { loss: Loss::Random(0.02), ..link(10, 5, 100) };
    let spec = client_and_gateway(1, &[both(lossy), both(link(10, 20, 100))]);
    let mut world = World::new(spec.with_bulk(SECOND, 1 << 20), Observe::default());
    let (sender, lines) = channel();
    let writer = Writer::new(Lines(sender), "alice to bob", Duration::ZERO, u64::MAX);
    assert!(world.trace_peer(0, 1, Box::new(writer.expect("a channel"))));
    world.run_until(5 * SECOND);

    let lines: Vec<String> = lines.try_iter().collect();
    let count = |parts: &[&str]| {
        lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).count() as u64
    };
    let status = world.status(0).expect("it runs mpip");
    let paths: Vec<_> = status.peers[0].paths.iter().collect();
    for path in paths.iter().filter(|path| path.state.name() == "active") {
        let of_path = format!("\"path_id\":{},", path.id);
        assert_eq!(count(&["quic:packet_sent", &of_path]), path.packets_sent);
        assert_eq!(count(&["quic:packet_received", &of_path]), path.packets_received);
        let lost = lines
            .iter()
            .filter(|line| line.contains("mpip:packets_lost") && line.contains(&of_path))
            .filter_map(|line| {
                line.split("\"packets\":").nth(1)?.split(',').next()?.parse::<u64>().ok()
            })
            .sum::<u64>();
        assert_eq!(lost, path.packets_lost);
        assert!(count(&["recovery_metrics_updated", &of_path]) > 100);
        assert!(count(&["mpip:path_state_updated", &of_path, "\"new\":\"active\""]) > 0);
    }
    assert!(count(&["congestion_state_updated", "\"old\":\"startup\""]) > 0);
    assert!(paths.iter().any(|path| path.packets_lost > 10), "there is something to compare");
}

/// A receiver that waits for what was lost shows it as a distribution.
#[test]
fn waits_of_a_session_are_a_distribution() {
    let lossy = LinkConfig { loss: Loss::Random(0.02), ..link(10, 5, 100) };
    let spec = client_and_gateway(1, &[both(lossy), both(link(10, 20, 100))]);
    let mut world = World::new(spec.with_bulk(SECOND, 1 << 20), Observe::default());
    world.run_until(5 * SECOND);
    let status = world.status(1).expect("it runs mpip");
    let session = status.peers[0].sessions.iter().find(|session| !session.outgoing);
    let session = session.expect("the transfer's");
    let waited: u64 = session.waits.iter().map(|count| u64::from(*count)).sum();
    assert!(waited > 100 && waited < session.packets, "{waited} of {}", session.packets);
    let highest = session.waits.iter().rposition(|count| *count > 0).expect("some waited");
    let bounds = (1_u128 << highest) / 2..1_u128 << highest;
    assert!(bounds.contains(&session.longest_wait.as_micros()), "{session:?}");
}
