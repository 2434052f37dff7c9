//! Memory and work depend on what has arrived, whatever numbers the peer chooses.

use super::*;

const PACKET: InnerPacket<'_> =
    InnerPacket { head: &[0; 40], tail: &[0; 20], checksum: Checksum::Complete };

fn receive(session: &mut Resequencer, hold: &mut Hold<'_>, sequence: u32) -> Received {
    session.receive(at(0), sequence, PACKET, LIMITS, hold, |_| {})
}

/// [S-15] Two small packets at the ends of what a session may span.
#[test]
fn memory_follows_what_waits_and_not_how_far_apart_that_is() {
    let mut pool = HoldPool::new(64 << 20, ReleaseParameters::default());
    let mut share = Share::new(32 << 20);
    let mut sessions: Vec<_> = (0..1_000).map(|_| Resequencer::new()).collect();
    for session in &mut sessions {
        let hold = &mut Hold::new(&mut pool, &mut share);
        receive(session, hold, 0);
        assert_eq!(receive(session, hold, SPAN), Received::Held);
        session.skip(at(0), 2, SPAN / 2, hold, |_| {});
        session.pass_by(at(0), SPAN - 2, PACKET, LIMITS, hold, |_| {});
    }
    assert!(share.held() <= 1_000 * 2_560, "{}", share.held());
    assert!(pool.memory() <= share.held() * 9 / 8, "{}", pool.memory());
    for session in &mut sessions {
        session.discard(&mut Hold::new(&mut pool, &mut share));
    }
    assert_eq!((share.held(), share.waiting(), pool.held()), (0, 0, 0));
    pool.trim();
    assert_eq!(pool.memory(), 0);
}

/// [S-15] In every way that takes memory, again and again.
#[test]
fn no_association_takes_more_than_its_share_and_none_is_left_without() {
    const LIMIT: usize = 4 << 20;
    const SHARE: usize = 2 << 20;
    let mut pool = HoldPool::new(LIMIT, ReleaseParameters::default());
    let mut shares = vec![Share::new(SHARE); 8];
    let mut sessions = Vec::from_iter((0..7 * 40).map(|_| Resequencer::new()));
    for round in 0..100u32 {
        let now = at(100 * u64::from(round));
        for (index, session) in sessions.iter_mut().enumerate() {
            let hold = &mut Hold::new(&mut pool, &mut shares[index % 7]);
            session.expire(now, LIMITS.max_wait * 20, hold, |_| {});
            let front = session.expected();
            for step in 1..200 {
                let ahead = front + 2 * step + round % 2;
                let limits = HoldLimits { max_wait: LIMITS.max_wait * 20, ..LIMITS };
                match index % 7 % 3 {
                    0 => drop(session.receive(now, ahead, PACKET, limits, hold, |_| {})),
                    1 => session.skip(now, ahead + 1, 1, hold, |_| {}),
                    _ => drop(session.pass_by(now, ahead, PACKET, limits, hold, |_| {})),
                }
            }
        }
        assert!(pool.memory() <= LIMIT && shares.iter().all(|share| share.held() <= SHARE));
    }
    assert!(pool.held() > LIMIT * 3 / 4, "they take what they can: {shares:?}");
    // An eighth is left, and the last one may have half of that.
    let mut hold = Hold::new(&mut pool, &mut shares[7]);
    let mut last = Resequencer::new();
    let held = (1..200).filter(|ahead| receive(&mut last, &mut hold, *ahead) == Received::Held);
    assert!(held.count() * 2_048 > LIMIT / 17);
    for (index, session) in sessions.iter_mut().enumerate() {
        session.discard(&mut Hold::new(&mut pool, &mut shares[index % 7]));
    }
    last.discard(&mut Hold::new(&mut pool, &mut shares[7]));
    assert_eq!(pool.held(), 0);
}

/// [S-15]
#[test]
fn unknown_nodes_together_leave_three_quarters_to_configured_peers() {
    let mut pool = HoldPool::new(4 << 20, ReleaseParameters::default());
    let mut shares = vec![Share::new(2 << 20); 65];
    shares[1..].iter_mut().for_each(Share::of_unknown);
    let mut sessions: Vec<_> = (0..65).map(|_| Resequencer::new()).collect();
    for ahead in 1..1_000 {
        for number in 1..65 {
            let hold = &mut Hold::new(&mut pool, &mut shares[number]);
            receive(&mut sessions[number], hold, 2 * ahead);
        }
    }
    assert!(pool.held() <= 1 << 20 && pool.held() > 900 << 10, "{}", pool.held());
    let mut hold = Hold::new(&mut pool, &mut shares[0]);
    for ahead in 1..500 {
        assert_eq!(receive(&mut sessions[0], &mut hold, ahead), Received::Held);
    }
}

#[test]
fn who_waits_with_long_packets_leaves_no_long_buffers_to_others() {
    let mut pool = HoldPool::new(64 << 20, ReleaseParameters::default());
    let mut shares = [Share::new(32 << 20), Share::new(32 << 20)];
    let long = InnerPacket { tail: &[0; 60_000], ..PACKET };
    let mut session = Resequencer::new();
    for (ahead, packet) in (1..100).map(|ahead| (ahead, long)).chain([(0, PACKET)]) {
        let hold = &mut Hold::new(&mut pool, &mut shares[0]);
        session.receive(at(0), ahead, packet, LIMITS, hold, |_| {});
    }
    assert_eq!(pool.held(), 0);
    let mut other = Resequencer::new();
    for ahead in 1..100 {
        receive(&mut other, &mut Hold::new(&mut pool, &mut shares[1]), ahead);
    }
    assert_eq!(shares[1].waiting(), 99 * 2_048);
}

#[test]
fn memory_that_was_not_needed_of_late_is_given_back() {
    let mut bench = Bench::new();
    for round in 0..100u32 {
        for ahead in [5, 4, 3, 2, 1, 0] {
            bench.receive(u64::from(round), round * 6 + ahead);
        }
        bench.pool.settle(at(100 * u64::from(round)));
        assert!(bench.pool.memory() > 4 * 2_048 || round == 0, "what is in use each time is kept");
    }
    bench.pool.settle(at(20_000));
    bench.pool.settle(at(21_000));
    assert_eq!(bench.pool.memory(), 0);
    bench.receive(21_000, 602);
    bench.receive(21_000, 601);
    bench.pool.settle(at(30_000));
    assert_eq!(bench.resequencer.bytes(), 2 * 2_048);
    bench.receive(30_000, 600);
    assert_eq!(bench.delivered, Vec::from_iter(0..603));
    bench.check_memory();
}

/// [S-15] Each held packet has a gap before it, and the peer skips all of them.
#[test]
fn a_skip_costs_the_same_whatever_it_spans_and_whatever_waits() {
    let mut bench = Bench::with_pool(64 << 20);
    for ahead in 1..8_000 {
        bench.receive(0, 4 * ahead);
    }
    bench.pool.take_steps();
    for count in 0..10_000u32 {
        bench.skip(0, 1 + count % 4, SPAN);
        bench.skip(0, 1 + (count * 7) % SPAN, 1 + count % 9);
        bench.skip(0, SPAN.wrapping_sub(count), u32::MAX);
    }
    let steps = bench.pool.take_steps();
    assert!(steps <= 5 * 30_000, "{steps}");
    assert!(bench.delivered.is_empty());
    bench.receive(0, 0);
    assert_eq!(bench.delivered.len(), 8_000);
    let steps = bench.pool.take_steps();
    assert!(steps <= 3 * 8_000, "each packet and each gap once: {steps}");
    assert_eq!(bench.resequencer.expected(), SPAN);
}

/// Numbers far apart, each time as far ahead as it may be, and back.
#[test]
fn numbers_that_jump_cost_no_more_than_those_that_follow() {
    let mut bench = Bench::with_pool(8 << 20);
    bench.receive(0, 0);
    let mut front = 0u32;
    for round in 0..20_000u32 {
        let ahead = [SPAN - 1, 1 << 20, 17, SPAN, i32::MAX as u32 / 1_000][round as usize % 5];
        let sequence = front.wrapping_add(ahead);
        match round % 3 {
            0 => drop(bench.receive(0, sequence)),
            1 => drop(bench.pass_by(0, sequence)),
            _ => bench.skip(0, front, ahead),
        }
        front = bench.resequencer.expected();
    }
    let steps = bench.pool.take_steps();
    assert!(steps <= 20_000 * 6, "{steps}");
    bench.check_memory();
}
