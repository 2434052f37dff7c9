//! The rules that lead packets of this host to our own tables.

use mpip_core::packet::protocol;
use mpip_core::{Instant, TRANSLATED_PORTS};
use mpip_net::netlink::RoutingRule;

use super::{NATS, Routes, Subject, TRANSLATED};
use crate::config::HostMode;
use crate::error::Error;
use crate::kernel::Kernel;

impl<K: Kernel> Routes<K> {
    /// Takes over the rules for our tables that the host has: those that are not wanted go.
    pub(super) fn list_rules(&mut self) -> Result<(), Error> {
        let tables = self.tables();
        self.rules = self.kernel.rules()?;
        self.rules.retain(|rule| tables.contains(&rule.table));
        self.rules_dirty = true;
        Ok(())
    }

    /// Finds the rules for tables of a former configuration.
    pub(super) fn list_outdated_rules(&mut self) -> Result<(), Error> {
        let own = self.tables();
        if !self.recorded.had_other_than(*own.start()) && !self.ending.has_outdated() {
            return Ok(());
        }
        let mut rules = self.kernel.rules()?;
        rules.retain(|rule| {
            let table = rule.table;
            let former = self.recorded.offset_of(table).is_some();
            !own.contains(&table) && (former || self.ending.has_outdated_in(table))
        });
        self.ending.outdated_rules(rules.into_iter());
        Ok(())
    }

    /// The kernel has told that one of our rules is gone, by whomever.
    pub(crate) fn rule_gone(&mut self, rule: &RoutingRule) {
        let before = self.rules.len();
        self.rules.retain(|other| other != rule);
        self.rules_dirty |= self.rules.len() != before;
    }

    /// Whether the rule leads to one of our tables.
    pub(crate) fn is_own_rule(&self, rule: &RoutingRule) -> bool {
        self.tables().contains(&rule.table)
    }

    /// Makes the rules those that the wanted routes need.
    pub(super) fn settle_rules(&mut self, now: Instant) {
        let wanted = self.wanted_rules(|table, ipv6| self.uses(table, ipv6), self.active);
        let result = self.change_rules(&wanted);
        self.note(now, Subject::Rules, result);
    }

    fn change_rules(&mut self, wanted: &[RoutingRule]) -> Result<(), Error> {
        if !wanted.is_empty() {
            self.recorded.add(self.settings.table);
        }
        for rule in wanted {
            if !self.rules.contains(rule) {
                self.kernel.add_rule(rule)?;
                self.rules.push(*rule);
            }
        }
        while let Some(at) = self.rules.iter().position(|rule| !wanted.contains(rule)) {
            self.kernel.delete_rule(&self.rules[at])?;
            self.rules.swap_remove(at);
        }
        Ok(())
    }

    /// The rules for tables with routes, as `uses` says of a table and an IP version (6 or not);
    /// with `always` also those for the first table without any.
    pub(super) fn wanted_rules(
        &self,
        uses: impl Fn(u32, bool) -> bool,
        always: bool,
    ) -> Vec<RoutingRule> {
        let HostMode { table, mark, priority, .. } = self.settings;
        let mut rules = Vec::new();
        for ipv6 in [false, true] {
            let icmp = if ipv6 { protocol::ICMPV6 } else { protocol::ICMP };
            let rule = RoutingRule {
                ipv6,
                priority,
                without_mark: mark,
                protocol: None,
                source_ports: None,
                ports: None,
                table,
            };
            rules.extend((always || uses(table, ipv6)).then_some(rule));
            let of = |protocol, ports, offset| RoutingRule {
                protocol: Some(protocol),
                ports,
                table: table + offset,
                ..rule
            };
            if uses(table + TRANSLATED, ipv6) {
                rules.extend([protocol::TCP, icmp].map(|number| of(number, None, TRANSLATED)));
                // From other ports services send, whose flows others begin.
                let source_ports = Some(self.chosen_ports);
                let udp = of(protocol::UDP, None, TRANSLATED);
                rules.push(RoutingRule { source_ports, ..udp });
            }
            if uses(table + NATS, ipv6) {
                let ports = Some((*TRANSLATED_PORTS.start(), *TRANSLATED_PORTS.end()));
                rules.extend([
                    of(protocol::TCP, ports, NATS),
                    of(protocol::UDP, ports, NATS),
                    of(icmp, None, NATS),
                ]);
            }
        }
        rules
    }

    /// Lets running connections by IPv6 find new routes. Linux keeps a connection's route while
    /// nothing changes in the table that it is from, or among the rules. So a rule comes and
    /// goes that says no more than ours.
    pub(super) fn ask_again(&mut self) {
        let HostMode { table, mark, priority, .. } = self.settings;
        let protocol = Some(protocol::TCP);
        let rule = RoutingRule {
            ipv6: true,
            priority,
            without_mark: mark,
            protocol,
            source_ports: None,
            ports: None,
            table,
        };
        let result = self.kernel.add_rule(&rule).and_then(|()| self.kernel.delete_rule(&rule));
        if let Err(error) = result {
            log::warn!("{error}; running connections by IPv6 may take their time to follow");
        }
    }
}
