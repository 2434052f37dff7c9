//! The parts of an association. Each owns its state and returns what follows from a call; none
//! knows the association.

pub(crate) mod addresses;
pub(crate) mod challenge_budget;
pub(crate) mod handshakes;
pub(crate) mod host_mode;
pub(crate) mod identity;
pub(crate) mod keys;
pub(crate) mod outbox;
mod path_ids;
pub(crate) mod path_set;
pub(crate) mod peer_addresses;
pub(crate) mod plain_sessions;
pub(crate) mod playout;
pub(crate) mod receive_key;
pub(crate) mod receiving;
pub(crate) mod resting;
pub(crate) mod selection;
pub(crate) mod sending;
pub(crate) mod sizes;
pub(crate) mod tiers;
pub(crate) mod withheld;
