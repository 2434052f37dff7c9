//! The physical limit of a run: the payload rate that the links can carry with plain TCP/IP
//! headers, without tunnel and encryption, less their loss.
//!
//! It is the largest sum of flows over all paths that exceeds the rate of no link (a linear
//! program, solved by the simplex method). Where events change the links, it is averaged over the
//! run. Delay and jitter do not lower it: their cost is what the systems are compared by.

use core::time::Duration;

use mpip_link::LinkConfig;

use crate::scenario::{Path, Scenario};

/// IPv4 and TCP headers with the timestamp option (RFC 7323), as Linux sends them.
const TCP_HEADERS: f64 = 20.0 + 20.0 + 12.0;
/// IPv4 and UDP headers.
const UDP_HEADERS: f64 = 20.0 + 8.0;

/// The packets that a limit is computed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packets {
    /// Full TCP segments with timestamps.
    Tcp,
    /// UDP datagrams with this many bytes of payload.
    Udp(u32),
}

impl Packets {
    /// Length of the payload and of the IP packet with this MTU, in bytes.
    fn sizes(self, mtu: f64) -> (f64, f64) {
        match self {
            Self::Tcp => ((mtu - TCP_HEADERS).max(0.0), mtu),
            Self::Udp(length) => (f64::from(length), f64::from(length) + UDP_HEADERS),
        }
    }
}

/// The limit between two hosts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Limit {
    /// Payload bit/s of all paths together; infinite where no link has a rate.
    pub(crate) total: f64,
    /// Payload bit/s of each path alone, in the order of [`Scenario::paths`].
    pub(crate) alone: Vec<f64>,
}

/// The limit from `from` to `to` between `start` and `end`, averaged over time.
pub(crate) fn limit(
    scenario: &Scenario,
    packets: Packets,
    (from, to): (&str, &str),
    (start, end): (Duration, Duration),
) -> Limit {
    let paths = scenario.paths(from, to);
    let mut edges: Vec<Duration> = scenario
        .events
        .iter()
        .map(|event| event.at)
        .filter(|at| *at > start && *at < end)
        .collect();
    edges.insert(0, start);
    edges.push(end);
    let mut total = 0.0;
    let mut alone = vec![0.0; paths.len()];
    let length = end.saturating_sub(start).as_secs_f64();
    for pair in edges.windows(2) {
        let share = (pair[1] - pair[0]).as_secs_f64() / length;
        if share == 0.0 {
            continue;
        }
        let links = scenario.links_at(pair[0]);
        total += share * best(&paths.iter().collect::<Vec<_>>(), packets, scenario, &links);
        for (index, path) in paths.iter().enumerate() {
            alone[index] += share * best(&[path], packets, scenario, &links);
        }
    }
    Limit { total, alone }
}

/// The largest payload rate over `paths` together.
fn best(
    paths: &[&Path],
    packets: Packets,
    scenario: &Scenario,
    links: &[(LinkConfig, LinkConfig)],
) -> f64 {
    let config = |hop: &crate::scenario::Hop| {
        let (forward, reverse) = &links[hop.link];
        if hop.forward { forward } else { reverse }
    };
    let live: Vec<&&Path> =
        paths.iter().filter(|path| path.hops.iter().all(|hop| config(hop).passes())).collect();
    let gains: Vec<f64> = live
        .iter()
        .map(|path| {
            let (payload, packet) = packets.sizes(mtu(path, scenario, &config));
            let survives: f64 = path.hops.iter().map(|hop| 1.0 - config(hop).loss.mean()).product();
            survives * payload / packet
        })
        .collect();
    let mut hops: Vec<_> = live.iter().flat_map(|path| path.hops.iter().copied()).collect();
    hops.sort_unstable();
    hops.dedup();
    let mut rows = Vec::new();
    let mut bounds = Vec::new();
    for hop in hops {
        let Some(rate) = config(&hop).mean_rate() else { continue };
        rows.push(
            live.iter()
                .map(|path| {
                    let before = path.hops.iter().take_while(|other| **other != hop);
                    let arriving: f64 = before.map(|hop| 1.0 - config(hop).loss.mean()).product();
                    let (_, packet) = packets.sizes(mtu(path, scenario, &config));
                    let framed = (packet + f64::from(config(&hop).overhead)) / packet;
                    if path.hops.contains(&hop) { arriving * framed } else { 0.0 }
                })
                .collect(),
        );
        bounds.push(rate);
    }
    maximise(&gains, &rows, &bounds)
}

fn mtu<'a>(
    path: &Path,
    scenario: &Scenario,
    config: &impl Fn(&crate::scenario::Hop) -> &'a LinkConfig,
) -> f64 {
    let links = path.hops.iter().map(|hop| config(hop).mtu).min().unwrap_or(1500);
    let ends = scenario.interfaces[path.from].mtu.min(scenario.interfaces[path.to].mtu);
    f64::from(links.min(ends))
}

/// The maximum of `gains . x` for `rows x <= bounds` and `x >= 0`; infinite if a gain is unbounded.
/// No bound is negative, so zero is a feasible start. Bland's rule guarantees that it ends.
fn maximise(gains: &[f64], rows: &[Vec<f64>], bounds: &[f64]) -> f64 {
    const EPSILON: f64 = 1e-9;
    let (n, m) = (gains.len(), rows.len());
    let mut table: Vec<Vec<f64>> = rows
        .iter()
        .zip(bounds)
        .enumerate()
        .map(|(i, (row, bound))| {
            let slack = (0..m).map(|j| if i == j { 1.0 } else { 0.0 });
            row.iter().copied().chain(slack).chain([*bound]).collect()
        })
        .collect();
    let mut objective: Vec<f64> =
        gains.iter().map(|gain| -gain).chain(core::iter::repeat_n(0.0, m + 1)).collect();
    let mut basis: Vec<usize> = (n..n + m).collect();
    while let Some(enter) = (0..n + m).find(|column| objective[*column] < -EPSILON) {
        let mut leave: Option<(f64, usize, usize)> = None;
        for (i, row) in table.iter().enumerate() {
            if row[enter] > EPSILON {
                let candidate = (row[n + m] / row[enter], basis[i], i);
                if leave.is_none_or(|best| (candidate.0, candidate.1) < (best.0, best.1)) {
                    leave = Some(candidate);
                }
            }
        }
        let Some((_, _, pivot)) = leave else { return f64::INFINITY };
        let scale = table[pivot][enter];
        table[pivot].iter_mut().for_each(|value| *value /= scale);
        let pivot_row = table[pivot].clone();
        for row in table.iter_mut().enumerate().filter(|(i, _)| *i != pivot).map(|(_, row)| row) {
            eliminate(row, &pivot_row, enter);
        }
        eliminate(&mut objective, &pivot_row, enter);
        basis[pivot] = enter;
    }
    objective[n + m]
}

fn eliminate(row: &mut [f64], pivot_row: &[f64], column: usize) {
    let factor = row[column];
    for (value, pivot) in row.iter_mut().zip(pivot_row) {
        *value -= factor * pivot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(links: &str) -> Scenario {
        let mut text = String::from(
            "title = \"t\"\nduration = \"10 s\"\nsystems = [\"tcp\"]\n\
             [[traffic]]\nkind = \"tcp\"\nfrom = \"client\"\nto = \"server\"\n",
        );
        for (index, host) in ["client", "server"].into_iter().enumerate() {
            for (number, name) in ["a", "b"].into_iter().enumerate() {
                text += &format!(
                    "[[interface]]\nhost = \"{host}\"\nname = \"{name}\"\n\
                     address = \"198.18.{number}.{index}\"\n"
                );
            }
        }
        text += links;
        Scenario::parse("test", &text, &mut |_| Err("none".to_owned())).expect("valid")
    }

    fn limit_of(links: &str) -> Limit {
        limit_for(links, Packets::Tcp)
    }

    fn limit_for(links: &str, packets: Packets) -> Limit {
        let time = (Duration::ZERO, Duration::from_secs(10));
        limit(&scenario(links), packets, ("client", "server"), time)
    }

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 1e-6, "{value}, expected {expected}");
    }

    const TWO: &str = "[[link]]\nname = \"a\"\nends = [\"client.a\", \"server.a\"]\nrate = \"100 Mbit/s\"\n\
                       [[link]]\nname = \"b\"\nends = [\"client.b\", \"server.b\"]\nrate = \"40 Mbit/s\"\n";

    #[test]
    fn disjoint_links_add_up_less_headers() {
        let limit = limit_of(TWO);
        near(limit.total, 140e6 * 1448.0 / 1514.0);
        assert_eq!(limit.alone.len(), 2);
        near(limit.alone[1], 40e6 * 1448.0 / 1514.0);
    }

    #[test]
    fn datagrams_have_their_own_share_of_headers() {
        near(limit_for(TWO, Packets::Udp(1200)).total, 140e6 * 1200.0 / 1242.0);
    }

    #[test]
    fn loss_reduces_what_arrives() {
        near(limit_of(&format!("{TWO}loss = \"5 %\"\n")).total, 138e6 * 1448.0 / 1514.0);
    }

    #[test]
    fn a_shared_bottleneck_bounds_the_sum() {
        let mut links = String::new();
        for (from, to, rate) in [
            ("client.a", "west", 100),
            ("client.b", "west", 100),
            ("west", "east", 30),
            ("server.a", "east", 100),
            ("server.b", "east", 100),
        ] {
            links +=
                &format!("[[link]]\nends = [\"{from}\", \"{to}\"]\nrate = \"{rate} Mbit/s\"\n");
        }
        let limit = limit_of(&links);
        assert_eq!(limit.alone.len(), 4);
        near(limit.total, 30e6 * 1448.0 / 1514.0);
    }

    #[test]
    fn a_pair_limit_holds_for_its_pair_only() {
        let mut links = String::new();
        for end in ["client.a", "client.b", "server.a", "server.b"] {
            links += &format!("[[link]]\nends = [\"{end}\", \"sw\"]\nrate = \"100 Mbit/s\"\n");
        }
        for server in ["server.a", "server.b"] {
            links +=
                &format!("[[pair]]\nends = [\"client.a\", \"{server}\"]\nrate = \"20 Mbit/s\"\n");
        }
        near(limit_of(&links).total, 140e6 * 1448.0 / 1514.0);
    }

    #[test]
    fn the_limit_follows_events() {
        let cut = "[[event]]\nat = \"5 s\"\nlink = \"a\"\nup = false\n";
        near(limit_of(&format!("{TWO}{cut}")).total, 90e6 * 1448.0 / 1514.0);
    }

    #[test]
    fn links_without_a_rate_have_no_limit() {
        let links = "[[link]]\nname = \"a\"\nends = [\"client.a\", \"server.a\"]\n";
        assert_eq!(limit_of(links).total, f64::INFINITY);
    }
}
