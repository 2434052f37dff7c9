//! From the raw configuration to [`Settings`]: calls the module of each section, and collects
//! everything that is wrong.

use std::ops::Range;
use std::path::Path;

use mpip_core::{DEFAULT_PORT, PeerConfig};
use toml::Spanned;

use super::error::Problem;
use super::peer::Peers;
use super::problems::Problems;
use super::settings::{InterfaceState, Place, RouterSettings, Settings};
use super::{gateway, host_mode, interface, node, opportunistic, path, rule, structure};
use crate::diagnosis::Permits;

/// The settings, or everything that is wrong with them, in the file's order.
pub(super) fn resolve(file: &Path, text: &str) -> Result<Settings, Vec<Problem>> {
    let directory = file.parent().unwrap_or(Path::new(""));
    let mut problems = Problems::new(text);
    let Some(raw) = structure::read(text, &mut problems) else {
        return Err(problems.check().expect_err("what cannot be read has a problem"));
    };
    let interface = interface::name(&raw.interface, &mut problems);
    let node = node::resolve(raw.node.as_ref(), &interface, directory, &mut problems);
    let addresses = interface::addresses(&raw.interface, &mut problems);
    let path_interfaces = interface::path_interfaces(&raw.path, &interface, &mut problems);
    let path_encapsulations = interface::path_encapsulations(&raw.path, &mut problems);
    let path_properties = path::properties(&raw.path, &mut problems);
    let mut path_states = interface::path_states(&raw.path, &mut problems);
    let host_mode = host_mode::resolve(&raw.host_mode, &mut problems);
    let raw_node = raw.node.as_ref().map(Spanned::get_ref);
    let own_key = node.private_key.as_ref().map(|key| *key.public_key());
    let mut peers = Peers::new(own_key, directory, &addresses, path_interfaces.as_deref());
    let mut peers: Vec<PeerConfig> =
        raw.peer.iter().filter_map(|peer| peers.resolve(peer, &mut problems)).collect();
    let default_route = raw.peer.iter().any(|peer| peer.get_ref().default_route);
    let peer_names = raw.peer.iter().filter_map(|peer| peer.get_ref().name.as_ref());
    let known = rule::Known {
        peers: peer_names.map(|name| name.get_ref().as_str()).collect(),
        others_join: raw.gateway.is_some(),
        labels: path_properties.values().filter_map(|path| path.label.as_deref()).collect(),
    };
    let rules = rule::resolve(&raw.rule, &known, &mut problems);
    let opportunistic = raw.opportunistic.as_ref();
    let opportunistic = opportunistic.and_then(|raw| {
        opportunistic::resolve(raw, directory, path_interfaces.as_deref(), &mut problems)
    });
    let context = gateway::Context { file, own_key, addresses: &addresses, peers: &peers };
    let gateway = raw.gateway.as_ref();
    let gateway = gateway.and_then(|raw| gateway::resolve(raw, &context, &mut problems));
    let router = raw.router.as_ref();
    let router = router.and_then(|raw| gateway::resolve_router(raw, &interface, &mut problems));
    problems.check()?;
    // Paths lead elsewhere than to the networks behind this host.
    for interface in router.iter().flat_map(|router: &RouterSettings| &router.interfaces) {
        if path_interfaces.as_ref().is_none_or(|named| !named.contains(interface)) {
            path_states.entry(interface.clone()).or_insert(InterfaceState::Off);
        }
    }
    let gateway = gateway.map(|(settings, joined)| {
        // Who has no limit of its own reaches what this host forwards to.
        let unlimited = |peer: &&mut PeerConfig| peer.reaches.is_empty() && !peer.host_mode;
        for peer in peers.iter_mut().filter(unlimited).filter(|_| settings.forward) {
            peer.reaches.clone_from(&settings.terms.reaches);
        }
        peers.extend(joined);
        settings
    });
    let place = |span: Option<Range<usize>>| Place {
        file: file.to_owned(),
        line: span.map(|span| problems.line_of(&span)),
    };
    let default = Permits::default();
    let checked = "without problems every required value is there";
    Ok(Settings {
        file: file.to_owned(),
        private_key: node.private_key.expect(checked),
        listen_port: node.listen_port.expect(checked),
        listen_port_place: place(
            raw_node.and_then(|node| node.listen_port.as_ref()).map(Spanned::span),
        ),
        tcp_port: node.tcp_port.unwrap_or(DEFAULT_PORT),
        tcp_port_place: place(raw_node.and_then(|node| node.tcp_port.as_ref()).map(Spanned::span)),
        control_socket: node.control_socket,
        control_group: node.control_group,
        keepalive: node.keepalive,
        threads: node.threads.expect(checked),
        busy_poll: node.busy_poll.expect(checked),
        interface,
        interface_place: place(raw.interface.name.as_ref().map(Spanned::span)),
        addresses,
        path_interfaces,
        path_states,
        path_encapsulations,
        path_properties,
        host_mode,
        peers,
        rules,
        opportunistic,
        gateway,
        router,
        default_route,
        diagnosis: Permits {
            view: raw.diagnosis.answer.unwrap_or(default.view),
            bench: raw.diagnosis.bench.unwrap_or(default.bench),
        },
    })
}
