//! Host mode: which addresses belong to a peer.

use mpip_wire::{AddressList, Frame};

use super::super::harness::{Pair, SECOND, address, locals};
use super::super::*;
use crate::config::Policy;

fn host_mode() -> Pair {
    Pair::with(|_, config| {
        config.peers[0].host_mode = true;
        config.peers[0].policy = Policy::Prefer;
    })
}

/// Advertises `list` to host 0 as addresses of host 1, besides its own ones.
fn tell(pair: &mut Pair, list: &[&str]) {
    let mut list: Vec<SocketAddr> = list.iter().map(|text| text.parse().expect("valid")).collect();
    list.extend([address(1, 0), address(1, 1)]);
    let list = AddressList::new(&list).expect("not too many");
    pair.inject(1, 0, &[Frame::Addresses { generation: 1_000, list }]);
    pair.run_for(SECOND * 2);
}

/// [P-23]
#[test]
fn invalid_addresses_and_our_own_are_not_used_for_paths() {
    let mut pair = host_mode();
    pair.run_for(SECOND);
    let captured = |pair: &Pair| pair.engines[0].status(pair.now, false).peers[0].captured.clone();
    let before = captured(&pair);
    assert!(!before.is_empty());
    let own = address(0, 1).to_string();
    // No path starts from it, but it is an address of this host.
    let elsewhere: SocketAddr = "198.19.7.7:6182".parse().expect("valid");
    pair.engines[0].handle_command(pair.now, Command::OwnAddresses(vec![elsewhere.ip()]));
    tell(
        &mut pair,
        &[
            "0.0.0.0:6182",
            "127.0.0.1:6182",
            "169.254.1.1:6182",
            "224.0.0.1:6182",
            "255.255.255.255:6182",
            "198.18.0.9:0",
            "[::]:6182",
            "[::1]:6182",
            "[fe80::1]:6182",
            "[ff02::1]:6182",
            "[::ffff:127.0.0.1]:6182",
            &own,
            "198.19.7.7:6182",
        ],
    );
    let status = pair.engines[0].status(pair.now, false);
    let ends: BTreeSet<_> = status.peers[0].paths.iter().map(|path| path.remote).collect();
    assert_eq!(ends, BTreeSet::from([address(1, 0), address(1, 1)]), "no path leads elsewhere");
    assert_eq!(captured(&pair), before);
    // Once it is no longer ours, it may be the peer's.
    let rest = vec![locals(0)[0].clone()];
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(rest));
    pair.run_for(SECOND / 10);
    let status = pair.engines[0].status(pair.now, false);
    assert!(status.peers[0].paths.iter().any(|path| path.remote == address(0, 1)));
}
