//! `[gateway]`: nodes that are invited, and the way to the Internet for peers; `[router]`: the
//! networks behind this node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use mpip_core::{PeerConfig, Prefix};
use mpip_crypto::PublicKey;
use toml::Spanned;

use super::interface::check_name;
use super::problems::Problems;
use super::raw;
use super::settings::{GatewaySettings, InterfaceAddress, RouterSettings};
use super::values::{ENDPOINT, check_visible_name, everywhere, prefixes};
use crate::joined::{self, Surroundings, Terms};

/// The name of a gateway without one.
const DEFAULT_NAME: &str = "gateway";

/// What the section depends on.
pub(super) struct Context<'a> {
    /// The configuration.
    pub(super) file: &'a Path,
    pub(super) own_key: Option<PublicKey>,
    /// Addresses of the TUN device.
    pub(super) addresses: &'a [InterfaceAddress],
    /// Those of the configuration.
    pub(super) peers: &'a [PeerConfig],
}

/// The settings, and the peers that joined; `None` after everything that is wrong was added to
/// `problems`.
pub(super) fn resolve(
    raw: &Spanned<raw::Gateway>,
    context: &Context<'_>,
    problems: &mut Problems<'_>,
) -> Option<(GatewaySettings, Vec<PeerConfig>)> {
    let before = problems.count();
    let (span, raw) = (raw.span(), raw.get_ref());
    let name = name(raw.name.as_ref(), problems);
    let pool = match &raw.pool {
        Some(pool) => prefixes(pool.get_ref(), "pool", problems),
        None => context.addresses.iter().map(InterfaceAddress::prefix).collect(),
    };
    let endpoints = endpoints(&raw.endpoints, problems);
    let masquerade = raw.masquerade.as_ref();
    if let Some(masquerade) = masquerade.filter(|on| *on.get_ref() && !raw.forward) {
        let message = "masquerade: expected `forward = true` beside it".to_owned();
        problems.add(&masquerade.span(), message);
    }
    let peers_file = match &raw.peers_file {
        Some(file) => directory(context.file).join(file.get_ref()),
        None => context.file.with_extension("peers"),
    };
    let records = match joined::load(&peers_file) {
        Ok(records) => records,
        Err(message) => return problems.none(&span, format!("peers_file: {message}")),
    };
    let reaches = if raw.forward { everywhere().to_vec() } else { pool.clone() };
    let joined: Vec<PeerConfig> =
        records.iter().filter_map(|record| record.peer(&reaches)).collect();
    for peer in &joined {
        let same =
            |other: &&PeerConfig| other.name == peer.name || other.public_key == peer.public_key;
        let network = |prefix: &&Prefix| {
            let taken = |other: &PeerConfig| other.allowed_prefixes.contains(*prefix);
            context.peers.iter().any(taken)
        };
        if let Some(prefix) = peer.allowed_prefixes.iter().find(network) {
            let message = format!(
                "{prefix} belongs to the peer `{}`, which has joined by an invitation (`{}`), and \
                 to a [[peer]] too: expected each prefix once",
                peer.name,
                peers_file.display()
            );
            problems.add(&span, message);
        }
        if context.peers.iter().any(|other| same(&other)) {
            let message = format!(
                "peer `{}` has joined by an invitation (`{}`) and is in the configuration too: \
                 remove one of them",
                peer.name,
                peers_file.display()
            );
            problems.add(&span, message);
        }
    }
    if problems.count() > before {
        return None;
    }
    let around = Surroundings {
        public_key: context.own_key?,
        name,
        pool,
        own: context.addresses.iter().map(|own| own.address).collect(),
        taken: context.peers.iter().flat_map(|peer| peer.allowed_prefixes.clone()).collect(),
        peers: context.peers.iter().map(|peer| (peer.name.clone(), peer.public_key)).collect(),
        forwards: raw.forward,
    };
    let settings = GatewaySettings {
        terms: Terms { around, endpoints, reaches },
        peers_file,
        forward: raw.forward,
        masquerade: masquerade.is_some_and(|on| *on.get_ref()),
    };
    Some((settings, joined))
}

/// The settings of `[router]`.
pub(super) fn resolve_router(
    raw: &Spanned<raw::Router>,
    tun: &str,
    problems: &mut Problems<'_>,
) -> Option<RouterSettings> {
    let before = problems.count();
    let (span, raw) = (raw.span(), raw.get_ref());
    if raw.interfaces.is_empty() {
        let message = "interfaces: expected the interfaces of the networks behind this host, like \
                       [\"eth1\"]"
            .to_owned();
        problems.add(&span, message);
    }
    for name in &raw.interfaces {
        check_name(name, "interfaces", problems);
        if name.get_ref() == tun {
            let message =
                format!("interfaces: expected interfaces other than mpip's own, found `{tun}`");
            problems.add(&name.span(), message);
        }
    }
    let interfaces = raw.interfaces.iter().map(|name| name.get_ref().clone()).collect();
    let masquerade = raw.masquerade.unwrap_or(true);
    (problems.count() == before).then_some(RouterSettings { interfaces, masquerade })
}

fn directory(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).to_owned()
}

/// What this node calls itself: by default the host's name.
fn name(text: Option<&Spanned<String>>, problems: &mut Problems<'_>) -> String {
    let Some(text) = text else {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        let usable = (1..=64).contains(&host.chars().count()) && host != "localhost";
        return if usable { host.to_owned() } else { DEFAULT_NAME.to_owned() };
    };
    check_visible_name(text, problems);
    text.get_ref().clone()
}

fn endpoints(texts: &[Spanned<String>], problems: &mut Problems<'_>) -> Vec<SocketAddr> {
    let mut endpoints = Vec::new();
    for text in texts {
        match text.get_ref().parse::<SocketAddr>() {
            Ok(endpoint) if endpoint.port() != 0 && !endpoint.ip().is_unspecified() => {
                endpoints.push(endpoint);
            }
            _ => {
                let message = format!("endpoints: {ENDPOINT}, found `{}`", text.get_ref());
                problems.add(&text.span(), message);
            }
        }
    }
    endpoints
}
