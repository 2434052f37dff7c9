//! The identity of an association, and which of its nodes opens the paths.

use super::keys::Origin;

/// Flag in an association's number: the sender is the opener.
const OPENER: u16 = 1 << 15;

/// What both nodes of an association have agreed on.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The peer's run. Another run has none of our paths and sessions.
    peer_instance: Option<u64>,
    /// Whether this node opens the paths.
    opener: bool,
    /// The association's number; 0 before the first keys.
    number: u16,
    established: bool,
}

impl Identity {
    /// Whether this node opens the paths.
    pub(crate) fn opens(&self) -> bool {
        self.opener
    }

    /// Whether there are keys that the peer has confirmed.
    pub(crate) fn is_established(&self) -> bool {
        self.established
    }

    /// The known run of the peer.
    pub(crate) fn peer_instance(&self) -> Option<u64> {
        self.peer_instance
    }

    /// The claim in this node's handshakes: the association's number, and whether this node is the
    /// opener.
    pub(crate) fn claim(&self) -> u16 {
        if self.opener && self.number > 0 { self.number | OPENER } else { self.number }
    }

    /// Whether keys from `origin` belong to the current association.
    pub(crate) fn continues(&self, origin: Origin) -> bool {
        origin.goes_on && self.peer_instance == Some(origin.instance)
    }

    /// A new association begins, with keys from `origin`.
    pub(crate) fn begin(&mut self, origin: Origin) {
        self.peer_instance = Some(origin.instance);
        self.opener = origin.initiated;
        self.number = origin.number;
    }

    /// The peer has confirmed keys. Returns whether they are the first.
    pub(crate) fn establish(&mut self) -> bool {
        !core::mem::replace(&mut self.established, true)
    }

    /// The association has ended. The opener is remembered until another begins.
    pub(crate) fn end(&mut self) {
        self.number = 0;
        self.established = false;
    }

    /// The peer is lost, and may return as another run.
    pub(crate) fn forget_peer(&mut self) {
        self.peer_instance = None;
    }
}

/// The number of an association that begins with the handshake of these receiver indices; never 0.
pub(crate) fn fresh_number(initiator: u32, responder: u32) -> u16 {
    let mixed = initiator ^ responder;
    ((mixed ^ mixed >> 16) as u16 & !OPENER).max(1)
}

/// Whether two claims name the same association with exactly one opener.
pub(crate) fn agree(one: u16, other: u16) -> bool {
    one & !OPENER != 0 && one ^ other == OPENER
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn origin(initiated: bool, number: u16, goes_on: bool) -> Origin {
        Origin { initiated, instance: 7, number, goes_on }
    }

    proptest! {
        #[test]
        fn the_claims_of_one_association_agree_and_those_of_two_do_not(
            indices in any::<[u32; 2]>(),
            others in any::<[u32; 2]>(),
        ) {
            let number = |[one, other]: [u32; 2]| fresh_number(one, other);
            let end = |initiated, number| {
                let mut identity = Identity::default();
                identity.begin(origin(initiated, number, false));
                identity.claim()
            };
            let (number, other) = (number(indices), number(others));
            prop_assert!(agree(end(true, number), end(false, number)));
            prop_assert!(!agree(end(true, number), end(true, number)), "two openers");
            prop_assert_eq!(agree(end(true, number), end(false, other)), number == other);
        }
    }

    #[test]
    fn without_keys_no_association_is_claimed_or_continued() {
        let mut identity = Identity::default();
        assert_eq!(identity.claim(), 0);
        assert!(!agree(identity.claim(), identity.claim()));
        identity.begin(origin(true, 3, false));
        assert!(identity.continues(origin(false, 9, true)));
        assert!(!identity.continues(origin(false, 9, false)));
        identity.end();
        assert_eq!(identity.claim(), 0);
        identity.forget_peer();
        assert!(!identity.continues(origin(false, 9, true)));
    }
}
