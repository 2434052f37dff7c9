//! Kernel MPTCP. Its path manager is set to use all paths: the client opens subflows from all its
//! addresses to all addresses that the server announces.

use std::io;

use super::running::Running;
use crate::scenario::{Scenario, Traffic};
use crate::subject::{ends, first_address};
use crate::testbed::Testbed;
use crate::traffic::Endpoint;

/// Most subflows that the kernel permits.
const SUBFLOWS: &str = "8";

pub(super) struct Mptcp;

/// Makes programs use MPTCP in place of TCP (from the mptcpd project).
pub(super) fn wrapper() -> Vec<String> {
    ["mptcpize", "run"].map(str::to_owned).to_vec()
}

impl Mptcp {
    pub(super) fn start(testbed: &Testbed) -> io::Result<Self> {
        configure(testbed, true)?;
        Ok(Self)
    }
}

/// Configures the endpoints of both hosts. `bound`: subflows leave by the interface that has their
/// address. What is bound to an interface passes by mpip.
pub(super) fn configure(testbed: &Testbed, bound: bool) -> io::Result<()> {
    let scenario = testbed.scenario();
    let (client, server) = ends(scenario)?;
    for host in [client, server] {
        let namespace = testbed.host(host)?;
        // A lost announcement of an address is repeated after 1 s instead of 2 min.
        namespace.sysctl(&[("net.mptcp.enabled", "1"), ("net.mptcp.add_addr_timeout", "1")])?;
        namespace.ip(&[
            "mptcp",
            "limits",
            "set",
            "subflows",
            SUBFLOWS,
            "add_addr_accepted",
            SUBFLOWS,
        ])?;
        for port in scenario.interfaces_of(host).collect::<Vec<_>>() {
            endpoint(testbed, scenario, port, true, bound)?;
        }
    }
    Ok(())
}

fn endpoint(
    testbed: &Testbed,
    scenario: &Scenario,
    port: usize,
    add: bool,
    bound: bool,
) -> io::Result<()> {
    let (_, server) = ends(scenario)?;
    let interface = &scenario.interfaces[port];
    let host = testbed.host(&interface.host)?;
    let address = interface.address.to_string();
    if !add {
        let list = host.ip(&["mptcp", "endpoint", "show"])?;
        let id = list.lines().find(|line| line.split_whitespace().next() == Some(&address));
        let id = id.and_then(|line| line.split_whitespace().skip_while(|w| *w != "id").nth(1));
        return match id {
            Some(id) => host.ip(&["mptcp", "endpoint", "delete", "id", id]).map(drop),
            None => Ok(()),
        };
    }
    let flags: &[&str] =
        if interface.host == server { &["signal"] } else { &["subflow", "fullmesh"] };
    let device: &[&str] = if bound { &["dev", &interface.name] } else { &[] };
    let line = [&["mptcp", "endpoint", "add", &address], device, flags].concat();
    host.ip(&line).map(drop)
}

impl Running for Mptcp {
    fn endpoint(&self, testbed: &Testbed, traffic: &Traffic) -> io::Result<Endpoint> {
        let remote = first_address(testbed.scenario(), &traffic.to)?;
        Ok(Endpoint { local: None, remote, wrapper: wrapper() })
    }

    /// As a network manager does: adds and removes endpoints with their addresses.
    fn interface_changed(&mut self, testbed: &Testbed, port: usize, up: bool) -> io::Result<()> {
        endpoint(testbed, testbed.scenario(), port, up, true)
    }
}
