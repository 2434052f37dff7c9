//! Hosts and links in virtual time. One program, which links once and keeps all cores busy.

mod common;

mod address_change;
mod aggregation;
mod attacker;
mod bottleneck;
mod clock_drift;
mod cost;
mod found_by_tcp;
mod harm;
mod inner_bbr;
mod interactive;
mod jitter;
mod loss_switched;
mod overtaking;
mod path_mtu;
mod qlog;
mod quic;
mod rate_limits;
mod rebinding;
mod redundant;
mod rekey;
mod repair;
mod rest;
mod short_queue;
mod silent_death;
mod slow_start;
mod throughput_table;
mod worlds;
