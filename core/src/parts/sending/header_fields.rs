//! Header fields that the packets of a session share: they are announced to the peer, and then
//! omitted.

use mpip_wire::{SessionFields, SessionId};

use super::Sending;
use crate::parts::outbox::{Notice, Outbox};
use crate::session::{HeaderFields, HeaderState};

impl Sending {
    /// Announces the header fields of a session to the peer.
    pub(crate) fn send_header_fields(
        &mut self,
        slot: u32,
        id: SessionId,
        fields: HeaderFields,
        outbox: &mut Outbox,
    ) {
        if let Some(session) = self.sessions.get_mut(slot)
            && outbox.owe(Notice::SessionOpen(slot, id))
        {
            session.header_state = HeaderState::Sent(Box::new(fields));
        }
    }

    /// Announces the same fields again: the first announcement may still be in flight.
    pub(crate) fn resend_header_fields(&mut self, slot: u32, id: SessionId, outbox: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        session.header_state =
            match core::mem::replace(&mut session.header_state, HeaderState::Unsent) {
                HeaderState::Lost(fields) if outbox.owe(Notice::SessionOpen(slot, id)) => {
                    HeaderState::Sent(fields)
                }
                other => other,
            };
    }

    /// The header fields of session `id` in `slot`, if they are announced and not confirmed.
    pub(crate) fn unconfirmed_fields(&self, slot: u32, id: SessionId) -> Option<SessionFields> {
        let session = self.sessions.get(slot).filter(|session| session.id == id)?;
        match &session.header_state {
            HeaderState::Sent(fields) => Some(fields.fields.at(session.next_sequence)),
            HeaderState::Unsent | HeaderState::Lost(_) | HeaderState::Confirmed(_) => None,
        }
    }

    /// The receiver has the header fields of a session (`confirmed`), or lacks them.
    pub(crate) fn on_header_fields_result(&mut self, slot: u32, id: SessionId, confirmed: bool) {
        let session = self.sessions.get_mut(slot).filter(|session| session.id == id);
        let Some(session) = session else { return };
        session.header_state =
            match (core::mem::replace(&mut session.header_state, HeaderState::Unsent), confirmed) {
                (HeaderState::Sent(fields) | HeaderState::Confirmed(fields), true) => {
                    HeaderState::Confirmed(fields)
                }
                (
                    HeaderState::Sent(fields)
                    | HeaderState::Confirmed(fields)
                    | HeaderState::Lost(fields),
                    _,
                ) => HeaderState::Lost(fields),
                (HeaderState::Unsent, _) => HeaderState::Unsent,
            };
    }

    /// The peer does not know the header fields of a session.
    pub(crate) fn on_session_unknown(&mut self, id: SessionId) {
        if let Some(slot) = self.sessions.slot_of(id) {
            self.on_header_fields_result(slot, id, false);
        }
    }
}
