//! What a word that nobody knows was probably meant to be.

/// Words of other programs that have another name here.
const ELSEWHERE: [(&str, &str); 6] = [
    ("allowed_ips", "allowed_prefixes"),
    ("allowedips", "allowed_prefixes"),
    ("persistent_keepalive", "keepalive"),
    ("persistentkeepalive", "keepalive"),
    ("psk", "preshared_key_file"),
    ("address", "addresses"),
];

/// Letters of a word that begins another one, from which on that one was probably meant.
const BEGINNING: usize = 5;

/// The one of `known` that `found` was probably meant to be.
pub(super) fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = found.to_lowercase().replace('-', "_");
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == plain);
    if let Some(name) = elsewhere.and_then(|(_, here)| known.iter().find(|name| *name == here)) {
        return Some(name);
    }
    let close = |name: &&str| {
        let distance = distance(&plain, &name.replace('-', "_"));
        let longest = plain.chars().count().max(name.len());
        // A third of the letters may be wrong: `schedular`, `end_point`, but not `port` for `path`.
        (distance * 3 <= longest && distance < longest).then_some(distance)
    };
    let nearest = known.iter().filter_map(|name| Some((close(name)?, *name))).min();
    let begins = || {
        let longer = |name: &&&str| plain.len() >= BEGINNING && name.starts_with(plain.as_str());
        known.iter().filter(longer).min_by_key(|name| name.len()).copied()
    };
    nearest.map(|(_, name)| name).or_else(begins)
}

/// A question after the one of `known` that `found` was probably meant to be; empty if none was.
pub(crate) fn did_you_mean(found: &str, known: &[&str]) -> String {
    let meant = nearest(found, known);
    meant.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default()
}

/// Letters to be added, removed, changed or swapped with the next to make `a` into `b` (optimal
/// string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised_and_another_word_is_not() {
        let known = ["scheduler", "endpoints", "allowed_prefixes", "policy", "preshared_key_file"];
        for (found, meant) in [
            ("schedular", Some("scheduler")),
            ("shceduler", Some("scheduler")),
            ("Scheduler", Some("scheduler")),
            ("endpoint", Some("endpoints")),
            ("end_points", Some("endpoints")),
            ("polcy", Some("policy")),
            ("preshared_key", Some("preshared_key_file")),
            ("allowed-prefixes", Some("allowed_prefixes")),
            ("AllowedIPs", Some("allowed_prefixes")),
            ("mtu", None),
            ("port", None),
            ("", None),
            ("comment", None),
        ] {
            assert_eq!(nearest(found, &known), meant, "{found}");
        }
    }

    #[test]
    fn the_nearest_of_several_is_named() {
        assert_eq!(nearest("listen_prot", &["tcp_port", "listen_port"]), Some("listen_port"));
        assert_eq!(nearest("earliset", &["earliest", "weighted"]), Some("earliest"));
        assert_eq!(nearest("a", &[]), None);
    }
}
