//! What in the host treats the packets that it sends: chains of nftables, tables of iptables,
//! policies of IPsec.

use std::fs;
use std::io;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_XFRM};

use super::NetlinkError;
use super::plain::{PlainNetlink, attributes};

/// `NFT_MSG_GETCHAIN` of the subsystem `NFNL_SUBSYS_NFTABLES` (linux/netfilter).
const GET_CHAINS: u16 = 10 << 8 | 4;
/// Size in bytes of a `nfgenmsg`: family, version, resource. All zero is for every family.
const NFGENMSG: usize = 4;
/// Families with a hook for packets that the host sends.
const FAMILIES: [u8; 3] = [1, libc::AF_INET as u8, libc::AF_INET6 as u8];
/// Attributes of a chain (linux/netfilter/nf_tables.h).
const TABLE: u16 = 1;
const NAME: u16 = 3;
const HOOK: u16 = 4;
const POLICY: u16 = 5;
const USE: u16 = 6;
/// The attribute of a hook that has its number, and the numbers of output and postrouting.
const HOOK_NUMBER: u16 = 1;
const OUTPUT: [u32; 2] = [3, 4];
/// The policy `NF_ACCEPT`.
const ACCEPT: u32 = 1;
/// The tables of iptables without nftables, which exist since somebody used them.
const LEGACY: [&str; 2] =
    ["/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"];

/// `XFRM_MSG_GETPOLICY`, the size of its `xfrm_userpolicy_id`, where the direction is in an
/// `xfrm_userpolicy_info`, and the direction of what is sent (linux/xfrm.h).
const GET_POLICIES: u16 = 0x15;
const POLICY_ID: usize = 64;
const DIRECTION: usize = 160;
const OUT: u8 = 1;

/// Asks what treats the packets that the host sends.
#[derive(Debug)]
pub struct OutputRules {
    /// `None` where the kernel has no nftables.
    nftables: Option<PlainNetlink>,
    /// `None` where the kernel has no IPsec.
    ipsec: Option<PlainNetlink>,
}

impl OutputRules {
    /// Connects to the kernel.
    pub fn open() -> Result<Self, NetlinkError> {
        let open = |protocol, name| match PlainNetlink::open(protocol) {
            Ok(netlink) => Ok(Some(netlink)),
            Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(None),
            Err(error) => Err(NetlinkError::new(format!("open a socket to {name}"), error)),
        };
        Ok(Self {
            nftables: open(NETLINK_NETFILTER, "netfilter")?,
            ipsec: open(NETLINK_XFRM, "IPsec")?,
        })
    }

    /// What may treat packets that the host sends, for people, apart from the table `own` of
    /// nftables; `None` if nothing does. An empty chain that accepts is nothing. Needs
    /// `CAP_NET_ADMIN`.
    pub fn first(&mut self, own: &str) -> Result<Option<String>, NetlinkError> {
        if let Some(table) = legacy_table()? {
            return Ok(Some(format!("the table {table} of iptables")));
        }
        let mut found = None;
        if let Some(nftables) = &mut self.nftables {
            let result = nftables.dump(GET_CHAINS, &[0; NFGENMSG], |body| {
                if let Some(chain) = treats_output(body, own) {
                    found.get_or_insert(chain);
                }
            });
            match result {
                Ok(()) => {}
                // There is a netfilter, but no nftables in it.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(NetlinkError::new("list the chains of nftables", error)),
            }
        }
        if let Some(ipsec) = &mut self.ipsec {
            let policy = |body: &[u8]| {
                if body.get(DIRECTION) == Some(&OUT) {
                    found.get_or_insert_with(|| "a policy of IPsec".to_owned());
                }
            };
            ipsec
                .dump(GET_POLICIES, &[0; POLICY_ID], policy)
                .map_err(|error| NetlinkError::new("list the policies of IPsec", error))?;
        }
        Ok(found)
    }
}

/// A table of iptables without nftables.
fn legacy_table() -> Result<Option<String>, NetlinkError> {
    for file in LEGACY {
        match fs::read_to_string(file) {
            Ok(tables) => {
                if let Some(table) = tables.lines().next() {
                    return Ok(Some(table.to_owned()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(NetlinkError::new(format!("read {file}"), error)),
        }
    }
    Ok(None)
}

/// The chain, for people, if it is not in the table `own` and may treat packets that the host
/// sends.
fn treats_output(body: &[u8], own: &str) -> Option<String> {
    let family = body.first()?;
    let text = |value: &[u8]| String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
    let number = |value: &[u8]| value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let (mut table, mut name, mut hook) = (String::new(), String::new(), None);
    let (mut policy, mut used) = (None, None);
    for (kind, value) in attributes(body.get(NFGENMSG..)?) {
        match kind {
            TABLE => table = text(value),
            NAME => name = text(value),
            HOOK => {
                let found = attributes(value).find(|(kind, _)| *kind == HOOK_NUMBER);
                hook = found.and_then(|(_, value)| number(value));
            }
            POLICY => policy = number(value),
            USE => used = number(value),
            _ => {}
        }
    }
    let sees = FAMILIES.contains(family) && hook.is_some_and(|hook| OUTPUT.contains(&hook));
    let empty = used == Some(0) && policy == Some(ACCEPT);
    (sees && !empty && table != own)
        .then(|| format!("the chain {name} in the table {table} of nftables"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn chain(family: u8, hook: u32, policy: u32, used: u32) -> Vec<u8> {
        let hook = attribute(HOOK_NUMBER, &hook.to_be_bytes());
        [
            vec![family, 0, 0, 0],
            attribute(TABLE, b"filter\0"),
            attribute(NAME, b"out\0"),
            attribute(HOOK | 0x8000, &hook),
            attribute(POLICY, &policy.to_be_bytes()),
            attribute(USE, &used.to_be_bytes()),
        ]
        .concat()
    }

    #[test]
    fn chains_that_may_treat_what_the_host_sends_are_found() {
        let (drop, accept) = (0, ACCEPT);
        let inet = FAMILIES[0];
        for (family, hook, policy, used, expected) in [
            (inet, 3, accept, 1, true),
            (2, 4, accept, 2, true),
            (10, 3, drop, 0, true),
            (2, 3, accept, 0, false),
            (inet, 1, drop, 5, false),
            (inet, 2, accept, 5, false),
            // A bridge.
            (7, 3, accept, 5, false),
        ] {
            let bytes = chain(family, hook, policy, used);
            let found = treats_output(&bytes, "mpip_mpip0");
            assert_eq!(found.is_some(), expected, "{family} {hook} {policy} {used}: {found:?}");
        }
        let found = treats_output(&chain(inet, 3, accept, 1), "");
        assert_eq!(found.as_deref(), Some("the chain out in the table filter of nftables"));
        assert_eq!(treats_output(&chain(inet, 3, accept, 1), "filter"), None);
        let regular = [vec![inet, 0, 0, 0], attribute(USE, &1_u32.to_be_bytes())].concat();
        assert_eq!(treats_output(&regular, ""), None);
    }

    proptest! {
        #[test]
        fn no_chain_breaks_the_parser(bytes: Vec<u8>) {
            let _ = treats_output(&bytes, "");
        }
    }
}
