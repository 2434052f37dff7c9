//! What the counters of drops mean, in words.

/// Counters by name, each with what it counts. Those of the engine first, then those of the host.
const WORDS: [(&str, &str); 49] = [
    ("malformed_packet", "packets of the host that are no whole IP packet"),
    ("malformed_offload", "packets of the host whose offload state contradicts their bytes"),
    ("no_peer", "packets of the host that no peer has the destination of"),
    ("not_established", "packets sent before there were keys"),
    ("no_path", "packets that waited while no path worked"),
    ("no_rule_path", "packets whose rule permits only paths that did not work"),
    ("too_big", "packets larger than any path carries"),
    ("waits", "TCP retransmissions of what still waited for a path"),
    ("malformed_datagram", "datagrams that are not mpip's, or broken"),
    ("too_much_work", "datagrams with more control frames than one may have"),
    ("unknown_index", "datagrams of no association"),
    ("authentication", "datagrams that did not authenticate"),
    ("replay", "datagrams received twice, or too old to tell"),
    ("unknown_path", "datagrams on a path that was given up, or that the peer may not open"),
    ("too_many_paths", "datagrams on a path beyond the limit"),
    ("foreign_source", "packets from a source that is not the peer's"),
    ("foreign_destination", "packets to a destination that the peer may not reach"),
    ("other_session", "packets of another connection than their session's"),
    ("unknown_session", "compact packets of a session that is not known"),
    ("duplicate", "packets that had arrived before"),
    ("thinned", "TCP acknowledgements that later ones repeat, left out (no fault)"),
    ("handshake", "handshake messages that were forged, replayed or too many"),
    ("under_load", "handshakes answered with a cookie"),
    ("too_many_handshakes", "handshakes beyond the rate of their source"),
    ("too_many_addresses", "lists of addresses that came too often"),
    ("availability", "availability queries and answers that were refused"),
    ("no_port", "packets from behind a NAT for which no port was free"),
    ("not_begun", "packets behind a NAT of connections that began as plain IP"),
    ("no_buffer", "packets to peers behind NATs without a free buffer"),
    ("tun_no_buffer", "times the TUN device waited because all buffers were in use"),
    ("tun_no_room", "packets that the TUN device had no room for"),
    ("tun_refused", "packets that the TUN device refused"),
    ("tun_broken_frame", "broken packets from the TUN device"),
    ("plain_refused", "packets that the kernel refused to send as plain IP"),
    ("send_unreachable", "datagrams without a route, or with the interface down"),
    ("send_too_long", "datagrams longer than the interface's MTU (probes)"),
    ("send_full", "datagrams that an interface's queue had no room for"),
    ("send_not_permitted", "datagrams that the host's firewall forbade"),
    ("send_other", "datagrams that the kernel refused for another reason"),
    ("send_address_gone", "datagrams whose local address was gone"),
    ("tcp_reset_ignored", "forged or stale TCP resets ignored"),
    ("tcp_unknown", "TCP segments of no connection"),
    ("tcp_malformed", "damaged TCP segments"),
    ("tcp_evicted", "TCP connections that made room for others"),
    ("tcp_unconfirmed", "TCP connections on which nothing authenticated"),
    ("tcp_limited", "TCP SYNs beyond the limit of answers"),
    ("tcp_not_open", "datagrams that waited for a TCP connection in vain"),
    ("tcp_not_answered", "answers to TCP SYNs that could not be sent"),
    ("receive_truncated", "datagrams longer than any that mpip sends"),
];

/// What the counter `name` counts; `None` for one of another release.
pub(crate) fn words(name: &str) -> Option<&'static str> {
    WORDS.iter().find(|(known, _)| *known == name).map(|(_, words)| *words)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_counter_has_words_and_stands_once() {
        let known: BTreeSet<&str> = WORDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(known.len(), WORDS.len());
        assert_eq!(words("tcp_reset_ignored"), Some("forged or stale TCP resets ignored"));
        assert_eq!(words("of_tomorrow"), None);
    }

    #[test]
    fn every_counter_is_explained_in_the_documents() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/troubleshooting.md");
        let text = fs::read_to_string(root).expect("the document exists");
        for (name, _) in WORDS {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
    }
}
