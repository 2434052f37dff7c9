//! What the packets of a session have in common: the peer is told, and then they leave it out.

use mpip_wire::SessionId;

use crate::association::Association;
use crate::session::{Known, Told};

/// Sessions whose header fields wait to be told; beyond it a session tells them later.
const OPENS: usize = 64;

impl Association {
    /// Lets the peer know what the packets of a session have in common.
    pub(super) fn tell(&mut self, slot: u32, id: SessionId, told: Told) {
        if self.opens.len() < OPENS
            && let Some(session) = self.outgoing.get_mut(slot)
        {
            self.opens.push_back((slot, id, told.fields));
            session.known = Known::Told(Box::new(told));
        }
    }

    /// Tells it anew, and nothing else: what was told first may still be on its way.
    pub(super) fn tell_again(&mut self, slot: u32, id: SessionId) {
        if self.opens.len() >= OPENS {
            return;
        }
        let Some(session) = self.outgoing.get_mut(slot) else { return };
        session.known = match core::mem::replace(&mut session.known, Known::Nothing) {
            Known::Lapsed(told) => {
                self.opens.push_back((slot, id, told.fields.at(session.next_sequence)));
                Known::Told(told)
            }
            other => other,
        };
    }

    /// The receiver has the header fields of a session, or was found not to have them.
    pub(in crate::association) fn settle_open(
        &mut self,
        slot: u32,
        id: SessionId,
        confirmed: bool,
    ) {
        let session = self.outgoing.get_mut(slot).filter(|session| session.id == id);
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
    pub(in crate::association) fn on_session_unknown(&mut self, id: SessionId) {
        if let Some(slot) = self.outgoing.slot_of(id) {
            self.settle_open(slot, id, false);
        }
    }
}
