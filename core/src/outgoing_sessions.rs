//! Outgoing sessions, by connection and by the number that the peer knows.

use core::ops::Deref;
use core::time::Duration;
use std::collections::BTreeMap;

use mpip_wire::SessionId;

use crate::session::Outgoing;
use mpip_types::Instant;
use mpip_types::packet::SessionKey;
use mpip_types::table::{Inserted, Removed, Table};

type Sessions = Table<SessionKey, Outgoing>;

/// See the module. A session keeps its number as long as it is in the table.
#[derive(Debug)]
pub(crate) struct OutgoingSessions {
    table: Sessions,
    /// The slot of each session, by its number.
    by_number: BTreeMap<u32, u32>,
}

impl Deref for OutgoingSessions {
    type Target = Sessions;

    fn deref(&self) -> &Sessions {
        &self.table
    }
}

impl OutgoingSessions {
    /// As [`Table::new`].
    pub(crate) fn new(limit: usize, seed: [u8; 16]) -> Self {
        Self { table: Table::new(limit, seed), by_number: BTreeMap::new() }
    }

    /// The slot of the session with the number `id`.
    pub(crate) fn slot_of(&self, id: SessionId) -> Option<u32> {
        self.by_number.get(&id.0).copied()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Outgoing> {
        self.table.get_mut(slot)
    }

    pub(crate) fn get_key_value_mut(&mut self, slot: u32) -> Option<(&SessionKey, &mut Outgoing)> {
        self.table.get_key_value_mut(slot)
    }

    pub(crate) fn touch(&mut self, slot: u32, now: Instant) {
        self.table.touch(slot, now);
    }

    /// As [`Table::insert`].
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        key: SessionKey,
        session: Outgoing,
    ) -> Inserted<SessionKey, Outgoing> {
        let id = session.id;
        let inserted = self.table.insert(now, key, session);
        self.forget(inserted.removed.as_ref());
        self.by_number.insert(id.0, inserted.index);
        inserted
    }

    /// As [`Table::remove`].
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Removed<SessionKey, Outgoing>> {
        let removed = self.table.remove(slot);
        self.forget(removed.as_ref());
        removed
    }

    /// As [`Table::expire`].
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        idle: Duration,
    ) -> Option<Removed<SessionKey, Outgoing>> {
        let removed = self.table.expire(now, idle);
        self.forget(removed.as_ref());
        removed
    }

    fn forget(&mut self, removed: Option<&Removed<SessionKey, Outgoing>>) {
        if let Some(removed) = removed {
            self.by_number.remove(&removed.value.id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use mpip_types::packet::{Endpoint, protocol};

    fn key(port: u16) -> SessionKey {
        let end = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port };
        SessionKey { protocol: protocol::TCP, source: end, destination: end }
    }

    #[test]
    fn a_session_is_found_by_its_number_as_long_as_it_is_there() {
        let mut sessions = OutgoingSessions::new(4, [7; 16]);
        let at = Instant::from_millis;
        for number in 0..20u32 {
            let port = (number % 6) as u16;
            let session = Outgoing::new(SessionId(number), &key(port), true);
            let slot = sessions.insert(at(number.into()), key(port), session).index;
            if number % 7 == 3 {
                sessions.remove(slot);
            }
            if number == 15 {
                while sessions.expire(at(15), Duration::from_millis(2)).is_some() {}
            }
            let numbers = sessions.iter().map(|(slot, _, session)| (session.id.0, slot));
            let numbers: BTreeMap<u32, u32> = numbers.collect();
            assert_eq!(numbers, sessions.by_number);
            for number in 0..20 {
                assert_eq!(sessions.slot_of(SessionId(number)), numbers.get(&number).copied());
            }
        }
        assert!(sessions.len() >= 2, "{}", sessions.len());
    }
}
