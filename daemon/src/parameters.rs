//! Kernel parameters that the daemon changes, and puts back.
//!
//! They are [recorded](Record) before they are changed. A line is the parameter's file below
//! `/proc/sys/net`, its former value, and the one that it is given. For a parameter of an interface
//! the index of that follows, by which it is found when it has another name by then.

use std::fs;
use std::io;
use std::path::Path;

use mpip_net::netlink::{Link, Netlink};

use crate::record::Record;

const SETTINGS: &str = "/proc/sys/net";

/// A parameter that gets another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its file below `/proc/sys/net`, by the name that its interface has or had.
    pub(crate) name: String,
    /// The former value,
    pub(crate) from: String,
    /// and the one that it is given.
    pub(crate) to: String,
    /// The index of the interface whose it is.
    pub(crate) link: Option<u32>,
}

impl Change {
    /// Of a parameter that is no interface's.
    pub(crate) fn of_host(name: &str, from: &str, to: &str) -> Self {
        let [name, from, to] = [name, from, to].map(ToOwned::to_owned);
        Self { name, from, to, link: None }
    }

    /// Of what `parameter` is for `link` by `family`, `ipv4` or `ipv6`.
    pub(crate) fn of_link(
        link: &Link,
        (family, parameter): (&str, &str),
        from: &str,
        to: &str,
    ) -> Self {
        let name = format!("{family}/conf/{}/{parameter}", link.name);
        Self { link: Some(link.index), ..Self::of_host(&name, from, to) }
    }

    /// What a line of a record says, if it is one.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let change = match words[..] {
            // So release 0.1.0 recorded reverse path filters.
            [link, from] => Self::of_host(&format!("ipv4/conf/{link}/rp_filter"), from, "2"),
            [name, from, to] => Self::of_host(name, from, to),
            [name, from, to, link] => {
                Self { link: Some(link.parse().ok()?), ..Self::of_host(name, from, to) }
            }
            _ => return None,
        };
        Some(change)
    }

    fn line(&self) -> String {
        let Self { name, from, to, link } = self;
        let link = link.map(|link| format!(" {link}")).unwrap_or_default();
        format!("{name} {from} {to}{link}\n")
    }

    /// The parameter's file below `/proc/sys/net` on a host that has `links` now; `None` if its
    /// interface is gone. Every host has links: if there are none here, they could not be listed,
    /// and the recorded name is the best guess.
    pub(crate) fn present_name(&self, links: &[Link]) -> Option<String> {
        let index = self.link.filter(|_| !links.is_empty());
        let Some(index) = index else { return Some(self.name.clone()) };
        let link = links.iter().find(|link| link.index == index)?;
        let mut parts: Vec<&str> = self.name.split('/').collect();
        *parts.get_mut(2)? = &link.name;
        Some(parts.join("/"))
    }

    /// Whether the parameter has its former value.
    pub(crate) fn is_due(&self) -> bool {
        read(&self.name).is_ok_and(|value| value == self.from)
    }

    /// Gives the parameter its new value.
    pub(crate) fn make(&self) -> io::Result<()> {
        write(&self.name, &self.to)
    }

    /// Gives the parameter its former value, unless another program has changed it since.
    fn put_back(&self, links: &[Link]) {
        let Some(name) = self.present_name(links) else { return };
        if read(&name).is_ok_and(|present| present == self.to)
            && let Err(error) = write(&name, &self.from)
        {
            log::warn!("cannot put back `{name}` to {}: {error}", self.from);
        }
    }
}

/// What one part of a daemon has changed.
#[derive(Debug)]
pub(crate) struct Changes {
    record: Record,
    list: Vec<Change>,
}

impl Changes {
    /// Nothing is changed yet.
    pub(crate) fn new(record: Record) -> Self {
        Self { record, list: Vec::new() }
    }

    /// Whether a change of the interface with this index is recorded.
    pub(crate) fn has_link(&self, index: u32) -> bool {
        self.list.iter().any(|change| change.link == Some(index))
    }

    /// Records `changes`, which are to be made only if this succeeds. The last ones are put back
    /// first.
    pub(crate) fn add(&mut self, changes: impl IntoIterator<Item = Change>) -> io::Result<()> {
        let before = self.list.len();
        self.list.extend(changes);
        let text: String = self.list.iter().map(Change::line).collect();
        self.record.write(&text).inspect_err(|_| self.list.truncate(before))
    }

    /// The file with the record.
    pub(crate) fn file(&self) -> &Path {
        self.record.file()
    }

    /// Puts back what is recorded, also by a daemon that was killed. Returns whether there was
    /// anything.
    pub(crate) fn put_back(&mut self) -> bool {
        self.list.clear();
        let Some(recorded) = self.record.read() else { return false };
        let links = Netlink::new().and_then(|mut netlink| netlink.links());
        let links = links.inspect_err(|error| log::warn!("{error}")).unwrap_or_default();
        for change in recorded.lines().rev().filter_map(Change::parse) {
            change.put_back(&links);
        }
        self.record.remove();
        true
    }
}

/// How `sysctl` calls the parameter `name`, a file below `/proc/sys/net`. With dots between its
/// parts an interface such as `eth0.7` would be two.
pub(crate) fn sysctl_name(name: &str) -> String {
    match name.contains('.') {
        true => format!("net/{name}"),
        false => format!("net.{}", name.replace('/', ".")),
    }
}

/// The value of the parameter `name`, a file below `/proc/sys/net`.
pub(crate) fn read(name: &str) -> io::Result<String> {
    fs::read_to_string(Path::new(SETTINGS).join(name)).map(|value| value.trim().to_owned())
}

fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new(SETTINGS).join(name), value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests_support::link;

    #[test]
    fn a_parameter_is_found_by_its_interface_whatever_that_is_called() {
        let change = Change::of_link(&link(4, "eth0"), ("ipv4", "rp_filter"), "1", "2");
        assert_eq!(change.line(), "ipv4/conf/eth0/rp_filter 1 2 4\n");
        assert_eq!(Change::parse(change.line().trim_end()).as_ref(), Some(&change));
        let found = |links: &[Link]| change.present_name(links);
        let wan = found(&[link(3, "eth0"), link(4, "wan0")]);
        assert_eq!(wan.as_deref(), Some("ipv4/conf/wan0/rp_filter"));
        assert_eq!(found(&[link(3, "eth0")]), None, "another one");
        assert_eq!(found(&[]).as_ref(), Some(&change.name), "the list failed");

        let change = Change::of_host("ipv4/ip_forward", "0", "1");
        assert_eq!(change.line(), "ipv4/ip_forward 0 1\n");
        assert_eq!(change.present_name(&[]).as_deref(), Some("ipv4/ip_forward"));
    }

    #[test]
    fn an_interface_with_a_dot_in_its_name_is_one_part_of_it_for_sysctl() {
        assert_eq!(sysctl_name("ipv4/conf/eth0/rp_filter"), "net.ipv4.conf.eth0.rp_filter");
        assert_eq!(sysctl_name("ipv4/conf/eth0.7/rp_filter"), "net/ipv4/conf/eth0.7/rp_filter");
    }

    #[test]
    fn records_of_former_releases_are_read_and_no_line_can_break_one() {
        let former = Change::of_host("ipv4/conf/eth0/rp_filter", "1", "2");
        assert_eq!(Change::parse("eth0 1"), Some(former));
        for line in ["", "eth0", "ipv4/ip_forward 0 1 x", "ipv4/ip_forward 0 1 2 3"] {
            assert_eq!(Change::parse(line), None, "{line}");
        }
        let odd = Change::parse("ipv4/ip_forward 0 1 4").expect("four words");
        assert_eq!(odd.present_name(&[link(4, "eth0")]), None);
    }
}
