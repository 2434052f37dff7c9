//! What the packets of a session have in common: the peer is told, and then they leave it out.

use mpip_wire::{SessionFields, SessionId};

use super::Sending;
use crate::parts::outbox::{Notice, Outbox};
use crate::session::{Known, Told};

impl Sending {
    /// Lets the peer know what the packets of a session have in common.
    pub(crate) fn tell(&mut self, slot: u32, id: SessionId, told: Told, outbox: &mut Outbox) {
        if let Some(session) = self.sessions.get_mut(slot)
            && outbox.owe(Notice::SessionOpen(slot, id))
        {
            session.known = Known::Told(Box::new(told));
        }
    }

    /// Tells it anew, and nothing else: what was told first may still be on its way.
    pub(crate) fn tell_again(&mut self, slot: u32, id: SessionId, outbox: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        session.known = match core::mem::replace(&mut session.known, Known::Nothing) {
            Known::Lapsed(told) if outbox.owe(Notice::SessionOpen(slot, id)) => Known::Told(told),
            other => other,
        };
    }

    /// The header fields of the session `id` in `slot`, if the peer is to be told now.
    pub(crate) fn fields_to_tell(&self, slot: u32, id: SessionId) -> Option<SessionFields> {
        let session = self.sessions.get(slot).filter(|session| session.id == id)?;
        match &session.known {
            Known::Told(told) => Some(told.fields.at(session.next_sequence)),
            Known::Nothing | Known::Lapsed(_) | Known::Header(_) => None,
        }
    }

    /// The receiver has the header fields of a session, or was found not to have them.
    pub(crate) fn settle_open(&mut self, slot: u32, id: SessionId, confirmed: bool) {
        let session = self.sessions.get_mut(slot).filter(|session| session.id == id);
        let Some(session) = session else { return };
        session.known = match (core::mem::replace(&mut session.known, Known::Nothing), confirmed) {
            (Known::Told(told) | Known::Header(told), true) => Known::Header(told),
            (Known::Told(told) | Known::Header(told) | Known::Lapsed(told), _) => {
                Known::Lapsed(told)
            }
            (Known::Nothing, _) => Known::Nothing,
        };
    }

    /// The peer has forgotten a session, or has never learnt its header fields.
    pub(crate) fn on_session_unknown(&mut self, id: SessionId) {
        if let Some(slot) = self.sessions.slot_of(id) {
            self.settle_open(slot, id, false);
        }
    }
}
