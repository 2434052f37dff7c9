//! Inner addresses for peers that join.

use std::net::IpAddr;

use mpip_core::Prefix;

/// Most addresses of a network that are tried.
const TRIED: u32 = 65_536;

/// An address out of each network of `pool`, with the bits of its prefix: the first ones that
/// nothing in `held` has. All have the same number in their network, if there is one.
pub(super) fn choose(pool: &[Prefix], held: &[Prefix]) -> Result<Vec<(IpAddr, u8)>, String> {
    if pool.is_empty() {
        return Err("no network to give addresses from: set `pool` in [gateway], or `addresses` \
                    in [interface]"
            .to_owned());
    }
    let free = |network: &Prefix, number| {
        address(*network, number).filter(|ip| is_free(*network, *ip, held))
    };
    let same =
        (1..TRIED).find(|number| pool.iter().all(|network| free(network, *number).is_some()));
    let of = |network: &Prefix| {
        let first = same.or_else(|| (1..TRIED).find(|number| free(network, *number).is_some()));
        let ip = first.and_then(|number| address(*network, number));
        ip.map(|ip| (ip, network.prefix_len())).ok_or_else(|| {
            format!("no address of {network} is free: remove peers, or add a network to `pool`")
        })
    };
    pool.iter().map(of).collect()
}

/// The address with this number in `network`, if it has so many: neither the network's own nor, in
/// IPv4, its broadcast address.
fn address(network: Prefix, number: u32) -> Option<IpAddr> {
    let ip = match network.address() {
        IpAddr::V4(first) => IpAddr::V4(u32::from(first).checked_add(number)?.into()),
        IpAddr::V6(first) => IpAddr::V6(u128::from(first).checked_add(number.into())?.into()),
    };
    let broadcast = match (network.address(), ip) {
        (IpAddr::V4(first), IpAddr::V4(ip)) => {
            let hosts = u32::MAX.checked_shr(network.prefix_len().into()).unwrap_or(0);
            u32::from(ip) == u32::from(first) | hosts
        }
        _ => false,
    };
    (network.contains(ip) && !broadcast).then_some(ip)
}

/// Whether no more specific network than `network` in `held` has the address.
fn is_free(network: Prefix, ip: IpAddr, held: &[Prefix]) -> bool {
    let specific = held.iter().filter(|held| held.prefix_len() > network.prefix_len());
    !specific.into_iter().any(|held| held.contains(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().expect("valid")).collect()
    }

    fn shown(pool: &[&str], held: &[&str]) -> Result<Vec<String>, String> {
        let chosen = choose(&prefixes(pool), &prefixes(held))?;
        Ok(chosen.iter().map(|(ip, len)| format!("{ip}/{len}")).collect())
    }

    #[test]
    fn the_first_free_number_is_taken_in_every_network() {
        let pool = ["10.77.0.0/24", "fd77::/64"];
        let held = ["10.77.0.1/32", "fd77::1/128", "10.77.0.2/32", "fd77::3/128", "0.0.0.0/0"];
        assert_eq!(shown(&pool, &held), Ok(vec!["10.77.0.4/24".into(), "fd77::4/64".into()]));
        assert_eq!(shown(&["10.77.0.0/24"], &["10.77.0.0/25"]), Ok(vec!["10.77.0.128/24".into()]));
    }

    #[test]
    fn a_network_that_is_full_is_named_and_its_broadcast_address_is_not_given() {
        let held = ["10.77.0.1/32", "10.77.0.2/32"];
        let error = shown(&["10.77.0.0/30"], &held).expect_err("full");
        assert!(error.starts_with("no address of 10.77.0.0/30 is free"), "{error}");
        assert_eq!(shown(&["10.77.0.0/30"], &held[..1]), Ok(vec!["10.77.0.2/30".into()]));
        assert!(shown(&[], &[]).is_err());
    }
}
