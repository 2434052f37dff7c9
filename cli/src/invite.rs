//! `mpip invite`, `peers` and `remove`: who may join this gateway, and who has.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mpip_api::{Client, InvitationStatus, KnownPeer, PeerStatus, Request, Response};
use qrcodegen::{QrCode, QrCodeEcc};

use crate::daemon;
use crate::failure::Failure;
use crate::output::{listed, print};
use crate::table::{Align, Cell, Colour, Table};
use crate::units::{duration, unix_time};

/// What to invite.
pub(crate) struct Invitation<'a> {
    pub(crate) name: &'a str,
    pub(crate) valid: Duration,
    pub(crate) endpoints: &'a [String],
    pub(crate) prefixes: &'a [String],
}

/// The socket of the daemon that is meant. If none runs with the configuration `file`, starts it.
fn running(socket: Option<&Path>, file: &Path) -> Result<PathBuf, Failure> {
    if let Some(socket) = socket {
        return Ok(socket.to_owned());
    }
    let socket = daemon::socket_of(file)?;
    if Client::connect(&socket).is_err_and(|error| error.is_not_running()) {
        daemon::start(file)?;
    }
    Ok(socket)
}

/// Makes an invitation and prints its token, with `qr` as a QR code too.
pub(crate) fn invite(
    socket: Option<&Path>,
    file: &Path,
    wanted: &Invitation<'_>,
    qr: bool,
) -> Result<(), Failure> {
    let request = Request::Invite {
        name: wanted.name.to_owned(),
        valid_s: wanted.valid.as_secs(),
        endpoints: wanted.endpoints.to_vec(),
        prefixes: wanted.prefixes.to_vec(),
    };
    let socket = running(socket, file)?;
    let Response::Invitation { invitation } = mpip_api::request(&socket, &request)? else {
        return Err(Failure("expected an invitation of mpipd, got another answer".to_owned()));
    };
    if let [first, ..] = &*invitation.endpoints
        && invitation.endpoints.iter().all(|endpoint| is_private(endpoint.ip()))
    {
        let (name, port) = (wanted.name, first.port());
        eprintln!(
            "note: every address in the token is a private one. If `{name}` comes from elsewhere, \
             name the public address: `mpip invite {name} --endpoint ADDRESS:{port}`"
        );
    }
    print(&shown(&invitation, wanted.valid, qr))
}

fn is_private(ip: std::net::IpAddr) -> bool {
    match ip {
        std::net::IpAddr::V4(ip) => ip.is_private(),
        std::net::IpAddr::V6(ip) => ip.segments()[0] & 0xfe00 == 0xfc00,
    }
}

fn shown(invitation: &InvitationStatus, valid: Duration, qr: bool) -> String {
    let InvitationStatus { name, token, addresses, endpoints, .. } = invitation;
    let code = if qr { qr_code(token) } else { None };
    let code = code.map(|code| format!("{code}\n")).unwrap_or_default();
    format!(
        "On `{name}`, within {}, once:\n\n    mpip join {token}\n\n{code}\
         It gets {} and finds this host at {}. Whoever has the token can join: keep it secret.\n",
        duration(Some(valid.as_secs_f64() * 1e3)),
        listed(addresses),
        listed(endpoints),
    )
}

/// `text` as a QR code of half blocks, dark on light whatever the terminal's colours; `None` if it
/// is too long.
fn qr_code(text: &str) -> Option<String> {
    const QUIET: i32 = 2;
    let code = QrCode::encode_text(text, QrCodeEcc::Low).ok()?;
    let mut shown = String::new();
    let light = |x: i32, y: i32| !code.get_module(x, y);
    for y in (-QUIET..code.size() + QUIET).step_by(2) {
        shown += "\x1b[97;40m";
        for x in -QUIET..code.size() + QUIET {
            shown.push(match (light(x, y), light(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        shown += "\x1b[0m\n";
    }
    Some(shown)
}

/// A time like `90s`, `30m`, `1h` or `7d`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a time like `90s`, `30m`, `1h` or `7d`, found `{text}`");
    let unit = text.chars().last().ok_or_else(expected)?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(expected()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| expected())?;
    number.checked_mul(factor).map(Duration::from_secs).ok_or_else(expected)
}

/// Lists peers and invitations.
pub(crate) fn list(socket: &Path, json: bool) -> Result<(), Failure> {
    let status = mpip_api::status(socket, false)?;
    let known = match mpip_api::request(socket, &Request::Peers) {
        Ok(Response::Peers { peers }) => peers,
        // Who invites nobody has the peers of its configuration.
        _ => Vec::new(),
    };
    if json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&known)?));
    }
    let now = unix_time();
    let configured = status.peers.iter();
    let configured = configured.filter(|peer| known.iter().all(|known| known.name != peer.name));
    let mut table = Table::new(&[
        ("peer", Align::Left),
        ("state", Align::Left),
        ("addresses", Align::Left),
        ("since", Align::Left),
    ]);
    for peer in configured {
        table.row(vec![
            peer.name.as_str().into(),
            state(Some(peer)),
            peer.allowed_prefixes.join(", ").into(),
            "configured".into(),
        ]);
    }
    for known in &known {
        let live = status.peers.iter().find(|peer| peer.name == known.name);
        table.row(row(known, live, now));
    }
    if status.peers.is_empty() && known.is_empty() {
        return print("no peers; `mpip invite NAME` invites one\n");
    }
    print(&table.render("", crate::output::colours()))
}

fn row(known: &KnownPeer, live: Option<&PeerStatus>, now: u64) -> Vec<Cell> {
    let ago = |at: u64| duration(Some(now.saturating_sub(at) as f64 * 1e3));
    let (state, since) = match known.state.as_str() {
        "joined" => {
            let at = known.joined_unix_s.unwrap_or(now);
            (state(live), format!("joined {} ago", ago(at)))
        }
        "invited" => {
            let left = known.expires_unix_s.unwrap_or(now).saturating_sub(now);
            let left = duration(Some(left as f64 * 1e3));
            (Cell::coloured("invited", Colour::Yellow), format!("token good for {left}"))
        }
        _ => (Cell::coloured("token expired", Colour::Dim), "not joined".to_owned()),
    };
    let networks = known.addresses.iter().map(ToString::to_string);
    let networks: Vec<String> = networks.chain(known.prefixes.iter().cloned()).collect();
    vec![known.name.as_str().into(), state, networks.join(", ").into(), since.into()]
}

fn state(peer: Option<&PeerStatus>) -> Cell {
    let active =
        |peer: &PeerStatus| peer.paths.iter().filter(|path| path.state == "active").count();
    match peer.map(|peer| (peer.established, active(peer))) {
        Some((true, 1)) => Cell::coloured("connected, 1 path", Colour::Green),
        Some((true, paths)) if paths > 1 => {
            Cell::coloured(&format!("connected, {paths} paths"), Colour::Green)
        }
        Some((true, _)) => Cell::coloured("no path works", Colour::Red),
        _ => Cell::coloured("not connected", Colour::Yellow),
    }
}

/// Forgets a peer, or withdraws an invitation.
pub(crate) fn remove(socket: &Path, name: &str) -> Result<(), Failure> {
    mpip_api::request(socket, &Request::RemovePeer { name: name.to_owned() })?;
    print(&format!("`{name}` is removed: its key and its token are refused from now on\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(parse_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(parse_time("7d"), Ok(Duration::from_secs(604_800)));
        for text in
            ["", "h", "5", "1.5h", "-1h", "5µ", "99999999999999999999d", "999999999999999999d"]
        {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_of_usual_length_is_a_code_that_fits_a_terminal() {
        let code = qr_code(&"a".repeat(330)).expect("short enough");
        let widest = code.lines().map(|line| line.chars().filter(|c| "█▀▄ ".contains(*c)).count());
        assert!(widest.max().is_some_and(|width| width <= 80), "{code}");
        assert_eq!(qr_code(&"a".repeat(4_000)), None);
    }
}
