use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SEED: [u8; 16] = [7; 16];

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[test]
fn at_the_bound_the_longest_unused_entry_goes() {
    let mut table = Table::new(2, SEED);
    let a = table.insert(at(1), "a", 1).index;
    let b = table.insert(at(2), "b", 2).index;
    table.touch(a, at(3));
    let inserted = table.insert(at(4), "c", 3);
    assert_eq!(inserted.removed, Some(Removed { index: b, key: "b", value: 2 }));
    assert_eq!((table.find(&"a"), table.find(&"b")), (Some(a), None));
    assert_eq!((table.len(), table.evictions()), (2, 1));
}

#[test]
fn inserting_a_known_key_replaces_and_evicts_nobody() {
    let mut table = Table::new(2, SEED);
    table.insert(at(1), "a", 1);
    table.insert(at(1), "b", 2);
    let inserted = table.insert(at(2), "a", 3);
    assert_eq!(inserted.removed.map(|removed| removed.value), Some(1));
    assert_eq!(table.get(inserted.index), Some(&3));
    assert_eq!((table.len(), table.evictions()), (2, 0));
}

#[test]
fn entries_expire_when_they_were_idle_and_not_before() {
    let mut table = Table::new(8, SEED);
    let idle = Duration::from_millis(100);
    let a = table.insert(at(0), "a", ()).index;
    table.insert(at(10), "b", ());
    table.touch(a, at(50));
    assert_eq!(table.next_expiry(idle), Some(at(110)));
    assert_eq!(table.expire(at(109), idle), None);
    assert_eq!(table.expire(at(110), idle).map(|removed| removed.key), Some("b"));
    assert_eq!(table.expire(at(110), idle), None);
    assert_eq!(table.expire(at(150), idle).map(|removed| removed.key), Some("a"));
    assert_eq!(table.next_expiry(idle), None);
}

#[test]
fn a_vacant_slot_answers_nothing() {
    let mut table = Table::new(2, SEED);
    let index = table.insert(at(0), 1u8, 'x').index;
    assert!(table.remove(index).is_some());
    table.touch(index, at(1));
    assert_eq!((table.get(index), table.key(index), table.used(index)), (None, None, None));
    assert!(table.get_mut(index).is_none() && table.remove(index).is_none());
    assert!(table.get(NONE).is_none());
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8),
    Touch(u8),
    Remove(u8),
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..24).prop_map(Step::Insert),
        4 => (0u8..24).prop_map(Step::Touch),
        1 => (0u8..24).prop_map(Step::Remove),
        1 => Just(Step::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_table_agrees_with_a_sorted_map(steps in proptest::collection::vec(step(), 1..200)) {
        const LIMIT: usize = 8;
        let idle = Duration::from_millis(20);
        let mut table = Table::new(LIMIT, SEED);
        let mut model: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
        let oldest = |model: &BTreeMap<u8, (u64, u64)>| {
            model.iter().min_by_key(|(_, (_, used))| *used).map(|(key, (_, used))| (*key, *used))
        };
        let mut evictions = 0;
        for (now, step) in (0u64..).zip(steps) {
            match step {
                Step::Insert(key) => {
                    let mut expected = model.remove(&key).map(|(value, _)| (key, value));
                    if expected.is_none() && model.len() == LIMIT {
                        let (victim, _) = oldest(&model).expect("full");
                        expected = model.remove(&victim).map(|(value, _)| (victim, value));
                        evictions += 1;
                    }
                    model.insert(key, (now, now));
                    let removed = table.insert(at(now), key, now).removed;
                    prop_assert_eq!(removed.map(|gone| (gone.key, gone.value)), expected);
                }
                Step::Touch(key) => {
                    if let Some(index) = table.find(&key) {
                        table.touch(index, at(now));
                    }
                    if let Some((_, used)) = model.get_mut(&key) {
                        *used = now;
                    }
                }
                Step::Remove(key) => {
                    let removed = table.find(&key).and_then(|index| table.remove(index));
                    let expected = model.remove(&key);
                    prop_assert_eq!(removed.map(|gone| gone.value), expected.map(|(v, _)| v));
                }
                Step::Expire => {
                    while let Some(gone) = table.expire(at(now), idle) {
                        let (key, used) = oldest(&model).expect("something expired");
                        prop_assert!(now - used >= 20);
                        prop_assert_eq!(gone.key, key);
                        model.remove(&key);
                    }
                    prop_assert!(oldest(&model).is_none_or(|(_, used)| now - used < 20));
                }
            }
            let mut entries: Vec<_> = table.iter().map(|(_, key, value)| (*key, *value)).collect();
            prop_assert!(table.iter().map(|(index, ..)| index).is_sorted());
            prop_assert!(table.iter().all(|(index, key, _)| table.find(key) == Some(index)));
            entries.sort_unstable();
            let expected: Vec<_> = model.iter().map(|(key, (value, _))| (*key, *value)).collect();
            prop_assert_eq!(entries, expected);
            prop_assert_eq!((table.len(), table.evictions()), (model.len(), evictions));
            prop_assert!(table.slots.len() <= LIMIT);
        }
    }
}
