//! The rulesets, as text for `nft`.

use std::collections::BTreeSet;
use std::fmt::Write;

use mpip_core::Prefix;

use crate::config::{RouterSettings, Settings};

/// What the table is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Its name.
    pub(super) table: String,
    /// Our device.
    tun: String,
    /// The mark of our datagrams.
    mark: u32,
    /// The kill switch: nothing but our datagrams leaves for elsewhere than a local network.
    pub(super) locks: bool,
    /// Whether peers reach other hosts through this one, and whether with an address of it.
    gateway: Option<bool>,
    router: Option<RouterSettings>,
    /// Whether this host forwarded nothing before, by IPv4 and by IPv6: then it forwards nothing
    /// else now.
    pub(super) closed: [bool; 2],
}

impl Plan {
    pub(super) fn of(settings: &Settings) -> Self {
        let gateway = settings.gateway.as_ref().filter(|gateway| gateway.forward);
        Self {
            table: table(&settings.interface),
            tun: settings.interface.clone(),
            mark: settings.host_mode.mark,
            locks: settings.default_route,
            gateway: gateway.map(|gateway| gateway.masquerade),
            router: settings.router.clone(),
            closed: [false; 2],
        }
    }

    /// Whether no table is needed.
    pub(super) fn is_nothing(&self) -> bool {
        !self.locks && !self.forwards()
    }

    /// Whether anything is forwarded.
    pub(super) fn forwards(&self) -> bool {
        self.gateway.is_some() || self.router.is_some()
    }
}

/// The table of the daemon with the device `interface`, in characters that `nft` takes. Each device
/// has another one: no device has a slash in its name.
pub(crate) fn table(interface: &str) -> String {
    let mut table = "mpip_".to_owned();
    for byte in interface.bytes() {
        match byte {
            b'-' | b'_' | b'.' => table.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => table.push(byte.into()),
            _ => _ = write!(table, "/{byte:02x}"),
        }
    }
    table
}

/// No table.
pub(super) fn removed(plan: &Plan) -> String {
    // The first line makes it, so that the second one does not fail.
    let table = &plan.table;
    format!("table inet {table}\ndelete table inet {table}\n")
}

/// Everything that is planned, in place of what there is.
pub(super) fn all(plan: &Plan, local: &BTreeSet<Prefix>) -> String {
    let mut text = head(plan);
    if plan.locks {
        text += &lock(plan, local);
    }
    if plan.forwards() {
        text += &forward(plan);
    }
    text + "}\n"
}

/// What is left without a daemon: the kill switch alone if what refuses packets `stays`, otherwise
/// no table.
pub(super) fn left(plan: &Plan, local: &BTreeSet<Prefix>, stays: bool) -> String {
    match stays && plan.locks {
        true => head(plan) + &lock(plan, local) + "}\n",
        false => removed(plan),
    }
}

fn head(plan: &Plan) -> String {
    format!("{}table inet {} {{\n", removed(plan), plan.table)
}

/// Packets leave by our device, to a local network, or carry our mark: whatever the routes say, and
/// whatever interface a socket is bound to.
fn lock(plan: &Plan, local: &BTreeSet<Prefix>) -> String {
    let Plan { tun, mark, .. } = plan;
    let mut text = String::new();
    for (name, kind, ipv4) in [("local4", "ipv4_addr", true), ("local6", "ipv6_addr", false)] {
        let of = local.iter().filter(|prefix| prefix.address().is_ipv4() == ipv4);
        let elements: Vec<String> = of.map(ToString::to_string).collect();
        let elements = match elements.is_empty() {
            true => String::new(),
            false => format!("; elements = {{ {} }}", elements.join(", ")),
        };
        let _ =
            writeln!(text, "set {name} {{ type {kind}; flags interval; auto-merge{elements}; }}");
    }
    let _ = write!(
        text,
        "chain plain {{\n\
         oifname {{ \"lo\", {tun:?}, \"mpip-refuse*\" }} accept\n\
         ip daddr @local4 accept\n\
         ip6 daddr @local6 accept\n\
         ip daddr {{ 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255 }} accept\n\
         ip6 daddr {{ fe80::/10, ff00::/8 }} accept\n\
         udp sport 68 udp dport 67 accept\n\
         udp sport 546 udp dport 547 accept\n\
         counter reject with icmpx type admin-prohibited\n\
         }}\n\
         chain leaving {{\n\
         type filter hook output priority 10; policy accept;\n\
         meta mark & {mark:#x} == {mark:#x} accept\n\
         jump plain\n\
         }}\n\
         chain passing {{\n\
         type filter hook forward priority 10; policy accept;\n\
         jump plain\n\
         }}\n"
    );
    text
}

fn forward(plan: &Plan) -> String {
    let Plan { tun, gateway, router, closed, .. } = plan;
    let mut text =
        String::from("chain forward {\ntype filter hook forward priority 0; policy accept;\n");
    for (family, closed) in ["ipv4", "ipv6"].into_iter().zip(closed) {
        if *closed {
            let _ = writeln!(
                text,
                "meta nfproto {family} iifname != {tun:?} oifname != {tun:?} counter drop"
            );
        }
    }
    // A path has less room than the Ethernet that the other end sees, and many drop what would tell
    // it.
    let syn = "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu";
    let _ = write!(text, "oifname {tun:?} {syn}\niifname {tun:?} {syn}\n}}\n");
    text += "chain source {\ntype nat hook postrouting priority 100; policy accept;\n";
    if *gateway == Some(true) {
        let _ = writeln!(text, "iifname {tun:?} oifname != {{ {tun:?}, \"lo\" }} masquerade");
    }
    if let Some(router) = router.as_ref().filter(|router| router.masquerade) {
        let names: Vec<String> = router.interfaces.iter().map(|name| format!("{name:?}")).collect();
        let _ = writeln!(text, "iifname {{ {} }} oifname {tun:?} masquerade", names.join(", "));
    }
    text + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            table: table("mpip-0"),
            tun: "mpip-0".to_owned(),
            mark: 0x800,
            locks: false,
            gateway: None,
            router: None,
            closed: [false; 2],
        }
    }

    #[test]
    fn a_table_has_what_is_planned_and_nothing_else() {
        assert!(plan().is_nothing());
        let local = BTreeSet::from(["198.18.1.0/24".parse().expect("valid")]);
        let gateway = Plan { gateway: Some(true), closed: [true, false], ..plan() };
        let text = all(&gateway, &local);
        assert!(text.starts_with("table inet mpip_mpip-0\ndelete table inet mpip_mpip-0\n"));
        assert!(text.contains("iifname \"mpip-0\" oifname != { \"mpip-0\", \"lo\" } masquerade"));
        assert!(text.contains("meta nfproto ipv4 iifname != \"mpip-0\""), "{text}");
        assert!(!text.contains("nfproto ipv6") && !text.contains("reject"), "{text}");

        let locked = Plan { locks: true, ..gateway };
        let rest = left(&locked, &local, true);
        assert!(rest.contains("elements = { 198.18.1.0/24 }") && rest.contains("& 0x800 == 0x800"));
        assert!(!rest.contains("masquerade"), "after a crash nothing is forwarded: {rest}");
        assert!(all(&locked, &local).contains("masquerade"));

        let router = RouterSettings { interfaces: vec!["lan0".to_owned()], masquerade: true };
        let text = all(&Plan { router: Some(router), ..plan() }, &local);
        assert!(text.contains("iifname { \"lan0\" } oifname \"mpip-0\" masquerade"), "{text}");
    }

    /// No part of a name is understood as more than a name.
    #[test]
    fn a_name_cannot_end_its_rule() {
        assert_eq!(table("a;b{ }"), "mpip_a/3bb/7b/20/7d");
        assert_ne!(table("mpip-0"), table("mpip_0"));
    }
}
