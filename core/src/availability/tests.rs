use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes([byte; 32])
}

fn host(number: u32) -> IpAddr {
    IpAddr::from((u32::from_be_bytes([198, 18, 0, 0]) + number).to_be_bytes())
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + SECOND * seconds as u32
}

/// A table, and the source of its nonces.
struct World {
    table: Availability,
    nonce: u64,
}

impl World {
    fn new() -> Self {
        Self { table: Availability::new([7; 16]), nonce: 0 }
    }

    fn note(&mut self, now: Instant, destination: u32) -> bool {
        self.table.note(now, host(0), host(destination))
    }

    /// The queries that are due at `now`.
    fn queries(&mut self, now: Instant) -> Vec<Query> {
        let Self { table, nonce } = self;
        core::iter::from_fn(|| {
            table.poll_query(now, || {
                *nonce += 1;
                *nonce
            })
        })
        .collect()
    }

    fn state(&self, now: Instant, destination: u32) -> Option<AvailabilityState> {
        let mut all = self.table.status(now);
        all.find(|entry| entry.address == host(destination)).map(|entry| entry.state)
    }
}

///
#[test]
fn a_destination_that_does_not_answer_is_asked_five_times_and_then_once_in_ten_minutes() {
    let mut world = World::new();
    let mut asked = Vec::new();
    for second in 0..2_000 {
        world.note(at(second), 1);
        asked.extend(world.queries(at(second)).iter().map(|_| second));
    }
    assert_eq!(asked, [0, 1, 3, 7, 15, 615, 1_215, 1_815]);
}

#[test]
fn states_follow_from_what_happened() {
    let mut world = World::new();
    assert_eq!(world.state(at(0), 1), None);
    assert!(world.note(at(0), 1));
    for (second, count) in [(0, 1), (1, 2), (3, 3), (7, 4), (15, 5)] {
        assert_eq!(world.queries(at(second)).len(), 1);
        assert_eq!(world.state(at(second), 1), Some(AvailabilityState::Queried(count)));
    }
    assert!(world.queries(at(31)).is_empty());
    assert_eq!(world.state(at(31), 1), Some(AvailabilityState::NotEnabled));
    assert_eq!(world.table.next_timeout(), None, "nobody talks to it");
    assert!(world.note(at(615), 1));
    let query = world.queries(at(615))[0];
    assert_eq!(world.table.on_answer(at(616), host(1), query.nonce, key(1)), Some(host(0)));
    assert_eq!(world.state(at(616), 1), Some(AvailabilityState::Enabled { public_key: key(1) }));
    assert!(!world.note(at(616 + 3_599), 1), "the answer is believed for an hour");
    assert!(world.note(at(616 + 3_600), 1));
    assert_eq!(world.queries(at(616 + 3_600)).len(), 1);
    let changed = AvailabilityState::KeyChanged { public_key: key(2) };
    world.table.refuse(at(4_217), host(1), changed);
    assert_eq!(world.state(at(4_217), 1), Some(changed));
    assert!(!world.note(at(4_215 + 600), 1));
    assert!(world.note(at(4_216 + 600), 1));
}

///
#[test]
fn an_answer_counts_from_the_asked_address_with_the_nonce_of_the_latest_query_once() {
    let mut world = World::new();
    world.note(at(0), 1);
    world.note(at(0), 2);
    let first: Vec<_> = world.queries(at(0));
    let second: Vec<_> = world.queries(at(1));
    assert_eq!((first.len(), second.len()), (2, 2));
    let nonce = second.iter().find(|query| query.to == host(1)).expect("asked").nonce;
    let answers = [
        (host(1), first[0].nonce, "the nonce of a former query"),
        (host(1), nonce ^ 1, "another nonce"),
        (host(2), nonce, "the nonce of another's query"),
        (host(3), nonce, "an address that was not asked"),
    ];
    for (from, nonce, what) in answers {
        assert_eq!(world.table.on_answer(at(1), from, nonce, key(1)), None, "{what}");
    }
    assert!(world.table.on_answer(at(1), host(1), nonce, key(1)).is_some());
    assert_eq!(world.table.on_answer(at(1), host(1), nonce, key(2)), None, "once");
    assert_eq!(world.state(at(1), 1), Some(AvailabilityState::Enabled { public_key: key(1) }));
}

#[test]
fn an_answer_after_the_wait_comes_too_late() {
    let mut world = World::new();
    world.note(at(0), 1);
    let mut nonce = 0;
    for second in [0, 1, 3, 7, 15] {
        nonce = world.queries(at(second))[0].nonce;
    }
    world.queries(at(31));
    assert_eq!(world.table.on_answer(at(31), host(1), nonce, key(1)), None);
}

#[test]
fn a_million_destinations_are_asked_at_the_documented_rate_within_the_bound() {
    let mut world = World::new();
    let mut noted = 0;
    let mut begun = 0;
    let mut last_asked: BTreeMap<IpAddr, (u32, Instant)> = BTreeMap::new();
    for second in 0..1_000 {
        for _ in 0..1_000 {
            noted += 1;
            begun += u32::from(world.note(at(second), noted));
        }
        // The first ones are talked to all the time.
        for old in 1..=20 {
            world.note(at(second), old);
        }
        for query in world.queries(at(second)) {
            let (count, former) = last_asked.get(&query.to).copied().unwrap_or_default();
            assert!(count < 5 || at(second).since(former) >= ASK_AGAIN, "{}", query.to);
            last_asked.insert(query.to, (count + 1, at(second)));
        }
        assert!(world.table.table.len() <= DESTINATIONS);
    }
    assert!(begun <= PER_SECOND.per_second * 1_001, "{begun}");
    assert!(world.table.table.evictions() > 0, "the bound was reached");
    assert!(world.table.due.len() <= world.table.table.len());
}

#[test]
fn a_destination_takes_no_more_memory_than_documented() {
    let (slot, index) = Table::<IpAddr, Entry>::BYTES;
    let due = size_of::<(Instant, u32)>() * 2;
    assert!(slot + index + due <= 256, "{slot} + {index} + {due}");
}

#[derive(Clone, Debug)]
enum Step {
    Note(u32),
    Wait(u64),
    Answer(u32, bool),
    Refuse(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..8_u32).prop_map(Step::Note),
        (0..700_000_u64).prop_map(Step::Wait),
        (0..8_u32, any::<bool>()).prop_map(|(host, right)| Step::Answer(host, right)),
        (0..8_u32).prop_map(Step::Refuse),
    ]
}

proptest! {
    ///
    #[test]
    fn whatever_happens_nobody_is_asked_too_often(steps in prop::collection::vec(step(), 0..200)) {
        let mut world = World::new();
        let mut now = Instant::ZERO;
        let mut asked: BTreeMap<IpAddr, Vec<(Instant, u64)>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Note(number) => { world.note(now, number); }
                Step::Wait(ms) => now += Duration::from_millis(ms),
                Step::Refuse(number) => {
                    world.table.refuse(now, host(number), AvailabilityState::NotEnabled);
                }
                Step::Answer(number, right) => {
                    let last = asked.get(&host(number)).and_then(|list| list.last());
                    let nonce = last.map_or(0, |(_, nonce)| *nonce);
                    let nonce = if right { nonce } else { nonce ^ (1 << 40) };
                    let taken = world.table.on_answer(now, host(number), nonce, key(1)).is_some();
                    prop_assert!(!taken || (right && last.is_some()));
                }
            }
            for query in world.queries(now) {
                asked.entry(query.to).or_default().push((now, query.nonce));
            }
            let listed = world.table.table.iter().filter(|(_, _, entry)| entry.due).count();
            prop_assert_eq!(world.table.due.len(), listed);
        }
        for times in asked.values() {
            for pair in times.windows(2).skip(4) {
                prop_assert!(pair[1].0.since(pair[0].0) >= ASK_AGAIN, "{:?}", times);
            }
        }
    }
}
