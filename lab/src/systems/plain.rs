//! Plain TCP over one path, and plain IP beside other systems.

use std::io;

use super::running::Running;
use crate::scenario::Traffic;
use crate::testbed::Testbed;
use crate::traffic::Endpoint;

/// Plain IP over one path.
pub(super) struct PlainTcp {
    /// Sending and receiving interface; `None` for any path.
    pub(super) path: Option<(usize, usize)>,
}

impl Running for PlainTcp {
    fn endpoint(&self, testbed: &Testbed, traffic: &Traffic) -> io::Result<Endpoint> {
        let interfaces = &testbed.scenario().interfaces;
        // Traffic in the other direction uses the same path backwards.
        let path = self.path.map(|(from, to)| {
            if interfaces[from].host == traffic.from { (from, to) } else { (to, from) }
        });
        match path {
            Some((from, to)) => Ok(Endpoint {
                local: Some(interfaces[from].address),
                remote: interfaces[to].reached_at(),
                wrapper: Vec::new(),
            }),
            None => plain(testbed, traffic, None),
        }
    }
}

/// The endpoint of plain IP over `interface` of the sender, or over its first path.
pub(crate) fn plain(
    testbed: &Testbed,
    traffic: &Traffic,
    interface: Option<&str>,
) -> io::Result<Endpoint> {
    let scenario = testbed.scenario();
    let path = scenario
        .paths(&traffic.from, &traffic.to)
        .into_iter()
        .find(|path| interface.is_none_or(|name| scenario.interfaces[path.from].name == name))
        .ok_or_else(|| io::Error::other(format!("no path for traffic {:?}", traffic.name)))?;
    Ok(Endpoint {
        local: Some(scenario.interfaces[path.from].address),
        remote: scenario.interfaces[path.to].reached_at(),
        wrapper: Vec::new(),
    })
}
