//! `[node]`: this node's key, its ports and its control socket.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mpip_core::DEFAULT_PORT;
use mpip_crypto::PrivateKey;
use toml::Spanned;

use super::problems::Problems;
use super::raw;
use super::values::{integer, key_file};

/// Longest path of a control socket, in bytes: `sun_path` less the terminating zero (unix(7)), less
/// the suffix that the socket has until it is ready.
const SOCKET_PATH_MAX: usize = 107 - crate::control::NEW_SUFFIX.len();

/// Permitted keepalive intervals, s.
const KEEPALIVE: RangeInclusive<i64> = 2..=600;

/// Permitted numbers of threads.
const THREADS: RangeInclusive<i64> = 1..=64;

/// Permitted times of asking without sleeping, µs.
const BUSY_POLL: RangeInclusive<i64> = 0..=1_000_000;

/// The resolved section. A value that is `None` without a default was wrong.
pub(super) struct Node {
    pub(super) private_key: Option<PrivateKey>,
    pub(super) listen_port: Option<u16>,
    pub(super) tcp_port: Option<u16>,
    /// `None` by default.
    pub(super) keepalive: Option<Duration>,
    pub(super) threads: Option<usize>,
    pub(super) busy_poll: Option<Duration>,
    pub(super) control_socket: PathBuf,
    /// `None` by default.
    pub(super) control_group: Option<u32>,
}

/// Resolves the section of the node whose TUN device is `interface`. Key files are relative to
/// `directory`.
pub(super) fn resolve(
    section: Option<&Spanned<raw::Node>>,
    interface: &str,
    directory: &Path,
    problems: &mut Problems<'_>,
) -> Node {
    let none = raw::Node::default();
    let raw = section.map_or(&none, Spanned::get_ref);
    let private_key = match (section, &raw.private_key_file) {
        (_, Some(file)) => key_file(directory, file, problems),
        (Some(section), None) => problems.missing(&section.span(), "private_key_file"),
        (None, None) => problems.missing(&(0..0), "node"),
    };
    let listen_port = match &raw.listen_port {
        Some(port) => integer(port, "listen_port", 1..=65_535, problems),
        None => Some(DEFAULT_PORT),
    };
    let tcp_port = match &raw.tcp_port {
        Some(port) => integer(port, "tcp_port", 1..=65_535, problems),
        None => listen_port,
    };
    let keepalive = raw.keepalive.as_ref();
    let keepalive = keepalive.and_then(|value| integer(value, "keepalive", KEEPALIVE, problems));
    let threads = match &raw.threads {
        Some(value) => integer(value, "threads", THREADS, problems),
        None => Some(1),
    };
    let busy_poll = match &raw.busy_poll {
        Some(value) => integer(value, "busy_poll", BUSY_POLL, problems),
        None => Some(0),
    };
    Node {
        private_key,
        listen_port,
        tcp_port,
        keepalive: keepalive.map(Duration::from_secs),
        threads,
        busy_poll: busy_poll.map(Duration::from_micros),
        control_socket: control_socket(raw, interface, problems),
        control_group: raw.control_group.as_ref().and_then(|name| group(name, problems)),
    }
}

/// The control socket of the daemon with the TUN device `interface`, unless its configuration sets
/// another.
pub(super) fn default_socket(interface: &str) -> PathBuf {
    Path::new(mpip_api::SOCKET_DIRECTORY).join(format!("{interface}.sock"))
}

fn control_socket(node: &raw::Node, interface: &str, problems: &mut Problems<'_>) -> PathBuf {
    let Some(text) = &node.control_socket else {
        return default_socket(interface);
    };
    let path = PathBuf::from(text.get_ref());
    if !path.is_absolute() || path.as_os_str().len() > SOCKET_PATH_MAX {
        let message = format!(
            "control_socket: expected an absolute path of at most {SOCKET_PATH_MAX} bytes, \
             found `{}`",
            path.display()
        );
        problems.add(&text.span(), message);
    }
    path
}

/// The number of the group with this name in /etc/group (group(5)).
fn group(name: &Spanned<String>, problems: &mut Problems<'_>) -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name.get_ref())).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.or_else(|| {
        let message = format!(
            "control_group: expected the name of a group in /etc/group, found `{}`",
            name.get_ref()
        );
        problems.none(&name.span(), message)
    })
}
