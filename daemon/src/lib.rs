//! `mpipd`: one mpip node on this host.
//!
//! The daemon is thin: it reads the [`config`]uration, sets up the host (TUN device, addresses,
//! routes, sockets), hands packets, datagrams and time to the engine of `mpip-core`, and answers
//! the [`control`] socket.
//!
//! [`doctor`] finds what on the host keeps it from working. [`logging`] is the form of the log.
//!
//! One thread owns the engine and everything that it uses of the host ([`run()`]). Another one does
//! the public-key work of handshakes. The control socket has threads of its own, which send
//! requests to the first one through a channel and wait for its answer.

mod budget;
mod capture;
pub mod config;
pub mod control;
mod day;
mod destinations;
mod diagnosis;
pub mod doctor;
mod error;
mod events;
mod faults;
mod firewall;
mod forwarding;
mod handover;
mod host;
mod invite;
mod joined;
mod kernel;
mod lines;
mod local;
mod local_ports;
pub mod logging;
mod network;
mod node;
mod notify;
mod parameters;
mod pins;
mod qlog;
mod record;
mod reload;
mod replace;
mod reverse_path;
mod routes;
mod rules;
mod run;
mod snapshot;
mod sockets;
mod worker;

pub use diagnosis::Permits;
pub use error::Error;
pub use firewall::helper as firewall_helper;
pub use network::listed;
pub use run::{clean_up, run};
