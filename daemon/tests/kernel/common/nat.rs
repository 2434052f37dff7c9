//! A client behind a router with NAT.
//!
//! ```text
//!   client                   router                         server
//!   eth0 198.19.0.2 -------- lan 198.19.0.1
//!                            wan 198.18.N.1 --- masquerade - wanN 198.18.N.9
//! ```
//!
//! Every client has the same address. A datagram to a router's own address that no mapping leads
//! on is refused there by ICMP, as most home routers do.

use std::fs;

use super::{Host, run};

/// A client behind its router, which masquerades toward `server`.
pub(crate) struct Site {
    pub(crate) client: Host,
    pub(crate) router: Host,
}

impl Site {
    /// Site number `number` of `server`.
    pub(crate) fn new(test: &str, server: &Host, number: u8, kind: &str) -> Self {
        let client = Host::new(test, &format!("c{number}"));
        let router = Host::new(test, &format!("r{number}"));
        let wan = format!("wan{number}");
        for (near, far, a, b) in
            [("eth0", "lan", &client, &router), ("wan", wan.as_str(), &router, server)]
        {
            let [a, b] = [&a.name, &b.name];
            let pair = ["link", "add", near, "netns", a, "type", "veth"];
            run("ip", &[&pair[..], &["peer", "name", far, "netns", b]].concat());
        }
        let outside = [format!("198.18.{number}.1/24"), format!("198.18.{number}.9/24")];
        for (host, name, address) in [
            (&client, "eth0", "198.19.0.2/24"),
            (&router, "lan", "198.19.0.1/24"),
            (&router, "wan", outside[0].as_str()),
            (server, wan.as_str(), outside[1].as_str()),
        ] {
            host.ip(&["addr", "add", address, "dev", name]);
            host.ip(&["link", "set", name, "up"]);
        }
        client.ip(&["route", "add", "default", "via", "198.19.0.1"]);
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        router.spawn(forward).join().expect("no panic").expect("our own namespace");
        let rules = format!(
            "table ip nat {{\n chain post {{\n type nat hook postrouting priority 100;\n \
             oifname wan {kind};\n }}\n}}\n"
        );
        run("ip", &["netns", "exec", &router.name, "nft", &rules]);
        Self { client, router }
    }

    /// The router forgets every mapping, as when it restarts.
    pub(crate) fn forget(&self) {
        run("ip", &["netns", "exec", &self.router.name, "conntrack", "-F"]);
    }

    /// The router forgets a mapping for UDP after so many seconds without a datagram.
    pub(crate) fn forget_after(&self, seconds: u8) {
        for name in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
            let file = format!("/proc/sys/net/netfilter/{name}");
            let set = move || fs::write(file, seconds.to_string());
            self.router.spawn(set).join().expect("no panic").expect("our own namespace");
        }
    }
}

/// Gives `server` a private network with the addresses of the client's own.
pub(crate) fn add_private_network(server: &Host) {
    server.ip(&["link", "add", "inside", "type", "veth", "peer", "name", "nobody"]);
    server.ip(&["addr", "add", "198.19.0.3/24", "dev", "inside"]);
    for name in ["inside", "nobody"] {
        server.ip(&["link", "set", name, "up"]);
    }
}
