//! The daemon on this machine's kernel: network namespaces for hosts, veth pairs for links. Needs
//! root.
//!
//! One program, so that tests run beside each other: most of their time is waiting. Each has
//! namespaces, directories and daemons of its own, and nothing of the machine is shared but its
//! processors. No verdict here depends on how fast something is, so none has to run alone.

mod common;

mod address_change;
mod coexistence;
mod diagnosis;
mod doctor;
mod gateway;
mod host_mode;
mod lifecycle;
mod link_change;
mod nat;
mod nat_host_mode;
mod nat_udp;
mod opportunistic;
mod other_traffic;
mod path_mtu;
mod path_properties;
mod reload;
mod require;
mod rule_actions;
mod tcp;
mod threads;
mod traffic;
mod untrusted_peer;
mod wrong_key;
