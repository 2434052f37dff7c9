//! A kernel that counts, and refuses what it is told to.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;

use mpip_core::Prefix;
use mpip_net::netlink::{Link, Route, RoutingRule};
use mpip_testing::Directory;

use super::Kernel;
use crate::error::Error;
use crate::routes::Tables;

/// What the kernel has.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<RoutingRule>,
    pub(crate) links: Vec<Link>,
    /// The answer to every question for a source address.
    pub(crate) source: Option<IpAddr>,
    /// Routes to here are refused.
    pub(crate) refused: Option<Prefix>,
    pub(crate) refuses_sinks: bool,
    /// Messages that a kernel would have got.
    pub(crate) requests: u64,
}

/// Several hands on one kernel: a daemon's, and the test's.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    state: Rc<RefCell<State>>,
    /// Where daemons with this kernel have their control sockets.
    directory: Rc<Directory>,
}

impl Default for Fake {
    fn default() -> Self {
        Self { state: Rc::default(), directory: Rc::new(Directory::new()) }
    }
}

/// An interface that is up.
pub(crate) fn link(index: u32, name: &str) -> Link {
    crate::doctor::tests_support::link(index, name)
}

impl Fake {
    /// What it has.
    pub(crate) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// What daemons with this interface have recorded of their tables.
    pub(crate) fn recorded(&self, interface: &str) -> Tables {
        Tables::open(&self.directory.join(interface))
    }

    /// The files that daemons have beside their control sockets, with what is in them.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, String> {
        let entries = fs::read_dir(self.directory.path()).expect("there");
        let read = |path: PathBuf| (path.clone(), fs::read_to_string(path).expect("readable"));
        entries.map(|entry| read(entry.expect("listed").path())).collect()
    }

    /// Drops `daemon`, but leaves everything as it is, as if its process was killed.
    pub(crate) fn kill<T>(&self, daemon: T) {
        let (state, files) = (self.state().clone(), self.files());
        drop(daemon);
        *self.state() = state;
        for (file, text) in files {
            fs::write(file, text).expect("writable");
        }
    }

    /// How many rules and links it has.
    pub(crate) fn rules_and_links(&self) -> (usize, usize) {
        let state = self.state();
        (state.rules.len(), state.links.len())
    }

    /// Messages since the last call.
    pub(crate) fn take_requests(&self) -> u64 {
        std::mem::take(&mut self.state().requests)
    }

    /// All routes, one a line, in the order in which they would be taken.
    pub(crate) fn shown(&self) -> Vec<String> {
        let mut state = self.state();
        state.routes.sort_by_key(|route| (route.table, route.prefix, route.metric));
        let to = |route: &Route| match state.links.iter().find(|link| link.index == route.link) {
            Some(link) => link.name.clone(),
            None => "nothing".to_owned(),
        };
        let line = |route: &Route| format!("{} {} to {}", route.table, route.prefix, to(route));
        state.routes.iter().map(line).collect()
    }

    /// An interface goes, and takes its routes with it, of which nobody tells.
    pub(crate) fn lose_routes(&self, index: u32) {
        self.state().routes.retain(|route| route.link != index);
    }

    fn asked(&self, messages: u64) -> RefMut<'_, State> {
        let mut state = self.state();
        state.requests += messages;
        state
    }
}

fn same(a: &Route, b: &Route) -> bool {
    (a.table, a.prefix, a.metric) == (b.table, b.prefix, b.metric)
}

fn refuse(what: &'static str) -> Result<(), Error> {
    Err(Error::System { operation: what, source: io::ErrorKind::PermissionDenied.into() })
}

impl State {
    fn refuses(&self, route: &Route) -> bool {
        self.refused.is_some_and(|prefix| prefix == route.prefix)
    }
}

impl Kernel for Fake {
    fn routes(&mut self) -> Result<Vec<Route>, Error> {
        // One for each IP version.
        Ok(self.asked(2).routes.clone())
    }

    fn routes_in(&mut self, table: u32, ipv6: bool) -> Result<Vec<Route>, Error> {
        let mut routes = self.asked(1).routes.clone();
        routes.retain(|route| route.table == table && route.prefix.address().is_ipv6() == ipv6);
        Ok(routes)
    }

    fn add_route(&mut self, route: &Route) -> Result<(), Error> {
        let mut state = self.asked(1);
        if state.refuses(route) {
            return refuse("add it");
        }
        if !state.routes.contains(route) {
            state.routes.push(route.clone());
        }
        Ok(())
    }

    fn replace_route(&mut self, route: &Route) -> Result<(), Error> {
        let mut state = self.asked(1);
        if state.refuses(route) {
            return refuse("replace it");
        }
        state.routes.retain(|other| !same(other, route));
        state.routes.push(route.clone());
        Ok(())
    }

    fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        let mut state = self.asked(1);
        if state.refuses(route) {
            return refuse("delete it");
        }
        state.routes.retain(|other| !(same(other, route) && other.link == route.link));
        Ok(())
    }

    fn rules(&mut self) -> Result<Vec<RoutingRule>, Error> {
        Ok(self.asked(1).rules.clone())
    }

    fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), Error> {
        let mut state = self.asked(1);
        if !state.rules.contains(rule) {
            state.rules.push(*rule);
        }
        Ok(())
    }

    fn delete_rule(&mut self, rule: &RoutingRule) -> Result<(), Error> {
        self.asked(1).rules.retain(|other| other != rule);
        Ok(())
    }

    fn source_toward(&mut self, _: IpAddr, _: u32) -> Result<Option<IpAddr>, Error> {
        Ok(self.asked(1).source)
    }

    fn chosen_ports(&mut self) -> (u16, u16) {
        (32_768, 60_999)
    }

    fn make_sink(&mut self, alias: &str) -> Result<Link, Error> {
        let mut state = self.asked(5);
        if state.refuses_sinks {
            refuse("make the device")?;
        }
        let index = 100 + u32::try_from(state.links.len()).expect("few");
        let sink = Link { alias: Some(alias.to_owned()), ..link(index, &format!("sink{index}")) };
        state.links.push(sink.clone());
        Ok(sink)
    }

    fn set_up(&mut self, link: &Link) -> Result<(), Error> {
        let mut state = self.asked(1);
        state.links.iter_mut().filter(|other| other.index == link.index).for_each(|l| l.up = true);
        Ok(())
    }

    fn delete_link(&mut self, link: &Link) -> Result<(), Error> {
        let mut state = self.asked(1);
        state.links.retain(|other| other.index != link.index);
        state.routes.retain(|route| route.link != link.index);
        Ok(())
    }
}
