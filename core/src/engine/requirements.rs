//! The requirements of `docs/protocol.md`, tested on two engines; `[X-n]` names the requirement
//! that a test proves.

mod advertised;
mod availability;
mod copies;
mod cost;
mod early;
mod encapsulation;
mod extremes;
mod fall_back;
mod feedback;
mod handshake;
mod host_mode;
mod hostile;
mod loss;
mod many_peers;
mod memory;
mod moving;
mod mtu;
mod opened;
mod opener;
mod paths;
mod pauses;
mod rate_limits;
mod reload;
mod rest;
mod rule_actions;
mod sessions;
mod shared;
mod translated_udp;
mod translation;
mod work;
