//! Our table of nftables: forwarding for peers, networks behind this host, and the kill switch.
//!
//! The daemon gives up the privilege to start a program that changes the packet filter. So before
//! that it starts a helper ([`helper::run`]), which keeps `CAP_NET_ADMIN` and nothing else, and
//! hands it rulesets for `nft`. When the daemon is gone, however it ended, the helper sets what is
//! to stay: nothing, or after a crash the kill switch alone. If it is killed too, the next start
//! replaces the table, and `mpip down FILE` removes it.

mod helper;
mod ruleset;

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use mpip_core::Prefix;
use mpip_net::netlink::{HostAddress, Netlink};

use crate::config::Settings;
use crate::error::Error;
use crate::forwarding::Forwarding;
use ruleset::Plan;

pub use helper::run as helper;
pub(crate) use ruleset::table;

/// The table, and the helper that changes it, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Firewall {
    plan: Plan,
    helper: Child,
    scripts: Option<ChildStdin>,
    /// Networks on interfaces of this host.
    local: BTreeSet<Prefix>,
    /// Whether the table stays, as far as it refuses packets.
    stays: bool,
    forwarding: Forwarding,
}

impl Firewall {
    /// Sets up what `settings` ask for; `None` if that is nothing. Privileges are still there.
    pub(crate) fn start(settings: &Settings) -> Result<Option<Self>, Error> {
        let mut forwarding = Forwarding::new(&settings.control_socket);
        forwarding.restore();
        let mut plan = Plan::of(settings);
        let found = exists(&plan)?;
        if plan.is_nothing() {
            if found {
                log::info!("removing what a former daemon left: table inet {}", plan.table);
                nft(&ruleset::removed(&plan))?;
            }
            return Ok(None);
        }
        let mut netlink = Netlink::new()?;
        let tun = netlink.link(&settings.interface).map_or(0, |link| link.index);
        let local = local_networks(&netlink.addresses()?, tun);
        // Before anything is forwarded.
        plan.closed = if plan.forwards() { forwarding.off() } else { [false; 2] };
        nft(&ruleset::all(&plan, &local))?;
        let helper = switch_on(&plan, &mut forwarding);
        let mut helper = helper.inspect_err(|_| {
            forwarding.restore();
            if let Err(error) = nft(&ruleset::left(&plan, &local, found)) {
                log::warn!("table inet {} is left: {error}", plan.table);
            }
        })?;
        let scripts = helper.stdin.take();
        let mut firewall = Self { plan, helper, scripts, local, stays: found, forwarding };
        firewall.tell_end();
        Ok(Some(firewall))
    }

    /// The daemon works from here on: however it ends, what refuses packets stays.
    pub(crate) fn started(&mut self) {
        self.stays = true;
        self.tell_end();
    }

    /// The daemon was told to end: nothing stays.
    pub(crate) fn open(&mut self) {
        self.stays = false;
        self.tell_end();
    }

    /// Follows the host's addresses; `tun` is our device.
    pub(crate) fn follow(&mut self, addresses: &[HostAddress], tun: u32) {
        let local = local_networks(addresses, tun);
        if local != self.local && self.plan.locks {
            self.local = local;
            self.send("now", &ruleset::all(&self.plan, &self.local));
            self.tell_end();
        }
    }

    /// Tells the helper what is to be there when the daemon is gone.
    fn tell_end(&mut self) {
        let script = ruleset::left(&self.plan, &self.local, self.stays);
        self.send("end", &script);
    }

    fn send(&mut self, when: &str, script: &str) {
        let Some(scripts) = &mut self.scripts else { return };
        let message = format!("{when} {}\n{script}", script.len());
        if let Err(error) = scripts.write_all(message.as_bytes()).and_then(|()| scripts.flush()) {
            log::error!("the helper for nftables is gone ({error}): its table stays as it is");
            self.scripts = None;
        }
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        // Forwarding goes before the rules that limit it.
        self.forwarding.restore();
        drop(self.scripts.take());
        if let Err(error) = self.helper.wait() {
            log::warn!("the helper for nftables: {error}");
        }
    }
}

/// Has the host forward, if `plan` asks for it, and starts the helper.
fn switch_on(plan: &Plan, forwarding: &mut Forwarding) -> Result<Child, Error> {
    if plan.forwards() {
        forwarding.switch_on()?;
    }
    let program = std::env::current_exe().map_err(crate::error::system("find mpipd"))?;
    Command::new(program)
        .arg("--firewall-helper")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(crate::error::system("start the helper for nftables"))
}

/// The name of the table that a daemon with these settings has; `None` if it needs none.
pub(crate) fn table_of(settings: &Settings) -> Option<String> {
    let plan = Plan::of(settings);
    (!plan.is_nothing()).then_some(plan.table)
}

/// Removes what a daemon with these settings left that was killed. Returns whether that was
/// anything.
pub(crate) fn clean_up(settings: &Settings) -> Result<bool, Error> {
    let forwarding = Forwarding::new(&settings.control_socket).restore();
    let plan = Plan::of(settings);
    let found = exists(&plan)?;
    if found {
        nft(&ruleset::removed(&plan))?;
    }
    Ok(found || forwarding)
}

/// Whether the host has the table. Without `nft` it has not.
fn exists(plan: &Plan) -> Result<bool, Error> {
    let listed = Command::new("nft")
        .args(["list", "table", "inet", &plan.table])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match listed {
        Ok(status) => Ok(status.success()),
        Err(_) if plan.is_nothing() => Ok(false),
        Err(error) => Err(Error::Firewall(format!(
            "cannot run `nft`, which [gateway] `forward`, [router] and `default_route` need: \
             {error}; install the package nftables"
        ))),
    }
}

fn nft(script: &str) -> Result<(), Error> {
    helper::apply(script).map_err(|error| Error::Firewall(format!("nftables: {error}")))
}

/// The networks that are directly on an interface other than ours.
fn local_networks(addresses: &[HostAddress], tun: u32) -> BTreeSet<Prefix> {
    let others = addresses.iter().filter(|address| address.link != tun || tun == 0);
    let prefixes = others.filter_map(|host| Prefix::new(host.address, host.prefix_len));
    let shared = |prefix: &Prefix| {
        *prefix != Prefix::host(prefix.address())
            && prefix.prefix_len() > 0
            && !prefix.address().is_loopback()
    };
    prefixes.filter(shared).collect()
}
