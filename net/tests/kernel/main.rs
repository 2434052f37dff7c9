//! This crate on the machine's kernel, in network namespaces. Needs root.

mod common;
mod netlink;
mod privileges;
mod tcp;
mod tun;
mod udp;
