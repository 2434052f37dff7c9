//! `mpip join`: this host joins a gateway by a token.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mpip_api::PathStatus;
use mpip_crypto::{Invitation, JOIN_ANSWER_LEN, JoinRequest, Note, Verdict};

use crate::daemon;
use crate::failure::Failure;
use crate::keys::{rng, write_new};
use crate::output::{listed, print};
use crate::progress::Progress;
use crate::setup::Files;
use crate::units::{duration, unix_time};

/// How long the gateway is asked, and how often.
const ASKED: Duration = Duration::from_secs(15);
const INTERVAL: Duration = Duration::from_millis(500);
/// How long an answer that anybody can forge is doubted.
const DOUBT: Duration = Duration::from_secs(3);
/// Longest wait for the first path, and for another one after the last.
const FIRST_PATH: Duration = Duration::from_secs(30);
const NEXT_PATH: Duration = Duration::from_secs(3);
/// Interval at which both are looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Longest input read as a token, bytes.
const INPUT_MAX: u64 = 8_192;

/// What to do besides joining.
pub(crate) struct Options {
    /// Send everything through the gateway that has no other way.
    pub(crate) default_route: bool,
    /// Write the configuration only.
    pub(crate) no_start: bool,
}

/// Joins the gateway of `token`; `-` reads the token from standard input. The configuration `file`
/// is written, its daemon started, and its paths are shown as they come up.
pub(crate) fn join(token: &str, file: &Path, options: &Options) -> Result<(), Failure> {
    let invitation = Invitation::from_token(&token_of(token)?)?;
    let files = Files::new(file)?;
    if options.default_route && !invitation.forwards {
        return Err(Failure(format!(
            "--default-route: the gateway `{}` does not forward to the Internet; set `forward = \
             true` and `masquerade = true` in its [gateway] section, restart it, and make a new \
             token. Or join without --default-route",
            invitation.gateway_name
        )));
    }
    let own = files.own_key()?;
    if own == invitation.gateway {
        return Err(Failure(
            "the token is of this host itself: use it on the host that is to join".to_owned(),
        ));
    }
    let request = JoinRequest::new(&mut rng()?, &invitation, &own);
    print(&format!(
        "asking the gateway `{}` at {}\n",
        invitation.gateway_name,
        listed(&invitation.endpoints)
    ))?;
    ask(&invitation, &request)?;
    write(&files, &invitation, options.default_route)?;
    let addresses: Vec<String> =
        invitation.addresses.iter().map(|(address, _)| address.to_string()).collect();
    print(&format!(
        "joined as `{}` with {}; wrote `{}`\n",
        invitation.name,
        addresses.join(", "),
        files.config.display()
    ))?;
    if options.no_start {
        return print(&format!("start it with `mpip up {}`\n", files.config.display()));
    }
    daemon::start(&files.config)?;
    show_paths(&daemon::socket_of(&files.config)?, &invitation)
}

fn token_of(argument: &str) -> Result<zeroize::Zeroizing<String>, Failure> {
    let mut text = zeroize::Zeroizing::new(String::new());
    match argument {
        "-" => drop(std::io::stdin().take(INPUT_MAX).read_to_string(&mut text)?),
        token => text.push_str(token),
    }
    Ok(text)
}

/// Asks at every endpoint until the gateway answers.
fn ask(invitation: &Invitation, request: &JoinRequest) -> Result<(), Failure> {
    let sockets =
        [UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)), UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))];
    let [v4, v6] =
        sockets.map(|socket| socket.and_then(|it| it.set_nonblocking(true).map(|()| it)));
    let socket = |endpoint: &SocketAddr| if endpoint.is_ipv4() { &v4 } else { &v6 };
    let start = Instant::now();
    let mut progress = Progress::new(Some(ASKED));
    let (mut next, mut note, mut unreachable) = (Duration::ZERO, None, None);
    while start.elapsed() < ASKED {
        progress.tell("no answer yet");
        if start.elapsed() >= next {
            next = start.elapsed() + INTERVAL;
            for endpoint in &invitation.endpoints {
                let sent = socket(endpoint).as_ref().map_err(std::io::Error::kind);
                let sent = sent.and_then(|socket| {
                    socket.send_to(request.datagram(), endpoint).map_err(|error| error.kind())
                });
                unreachable = sent.err().or(unreachable);
            }
        }
        for socket in [&v4, &v6].into_iter().flatten() {
            let mut datagram = [0; JOIN_ANSWER_LEN + 1];
            let Ok(len) = socket.recv(&mut datagram) else { continue };
            match request.read_answer(&datagram[..len]) {
                Some(Ok(Verdict::Accepted)) => return Ok(()),
                Some(Ok(verdict)) => return Err(Failure(refusal(invitation, verdict))),
                Some(Err(said)) => drop(note.get_or_insert((said, Instant::now()))),
                None => {}
            }
        }
        if let Some((said, at)) = note
            && at.elapsed() >= DOUBT
        {
            return Err(Failure(unproved(invitation, said)));
        }
        thread::sleep(Duration::from_millis(10));
    }
    let why = unreachable.map(|kind| format!(" (this host: {kind})")).unwrap_or_default();
    let expired = if is_expired(invitation) {
        " By this host's clock the token has expired, too: make a new one with `mpip invite`."
    } else {
        ""
    };
    Err(Failure(format!(
        "the gateway `{}` did not answer at {} within {} s{why}: is mpipd running there (`mpip \
         status`), and does its firewall let the UDP port in?{expired}",
        invitation.gateway_name,
        listed(&invitation.endpoints),
        ASKED.as_secs()
    )))
}

fn is_expired(invitation: &Invitation) -> bool {
    unix_time() >= invitation.expires.into()
}

/// Why the gateway refuses, and what to do.
fn refusal(invitation: &Invitation, verdict: Verdict) -> String {
    let gateway = &invitation.gateway_name;
    let again = format!("make a new one on `{gateway}` with `mpip invite {}`", invitation.name);
    match verdict {
        Verdict::Accepted => String::new(),
        Verdict::Expired => format!("the token has expired: {again}"),
        Verdict::Used => format!(
            "the token was used already by another key: {again}. If it was not you who used it, \
             somebody else has your token: run `mpip remove {}` on `{gateway}` first",
            invitation.name
        ),
        Verdict::Altered => {
            format!("the token is not as `{gateway}` made it, somebody altered it: {again}")
        }
        Verdict::Withdrawn => format!("the token was withdrawn on `{gateway}`: {again}"),
        Verdict::KeyInUse => format!(
            "`{gateway}` knows this host's key already, as that of another peer: join with another \
             configuration (--config), or remove that peer there with `mpip remove NAME`"
        ),
        Verdict::NotStored => format!(
            "`{gateway}` could not write the key down: see the log of mpipd there, and try again"
        ),
        Verdict::Other(code) => format!(
            "`{gateway}` refuses with reason {code}, which this release does not know: install the \
             same release here and there"
        ),
    }
}

/// What a node without the secret says.
fn unproved(invitation: &Invitation, note: Note) -> String {
    let at = listed(&invitation.endpoints);
    match note {
        Note::Unknown => format!(
            "the gateway `{}` does not know this token: it was withdrawn long ago, or the list of \
             invitations there is lost. Make a new one with `mpip invite {}`",
            invitation.gateway_name, invitation.name
        ),
        Note::AnotherNode => format!(
            "the token is for another gateway: the one at {at} has another key than `{}` had when \
             the token was made. Make a new one with `mpip invite {}`",
            invitation.gateway_name, invitation.name
        ),
    }
}

/// Writes the preshared key and the configuration.
fn write(files: &Files, invitation: &Invitation, default_route: bool) -> Result<(), Failure> {
    // Of a former attempt that did not get as far as the configuration.
    match fs::remove_file(&files.preshared) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let key = invitation.secret.preshared_key();
    write_new(&files.preshared, &key.secret_base64())?;
    write_new(&files.config, configuration(files, invitation, default_route).trim_end())
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.map(|item| quoted(&item)).collect::<Vec<_>>().join(", "))
}

fn configuration(files: &Files, invitation: &Invitation, default_route: bool) -> String {
    let prefix = |(address, len): &(std::net::IpAddr, u8)| format!("{address}/{len}");
    let mut text = String::new();
    let _ = write!(
        text,
        "# Written by `mpip join`. Every key: docs/configuration.md\n\n\
         [node]\nprivate_key_file = {}\n\n\
         [interface]\nname = {}\naddresses = {}\n\n\
         [[peer]]\nname = {}\npublic_key = {}\npreshared_key_file = {}\nendpoints = {}\n\
         allowed_prefixes = {}\n",
        quoted(&Files::name(&files.key)),
        quoted(&files.interface),
        list(invitation.addresses.iter().map(prefix)),
        quoted(&invitation.gateway_name),
        quoted(&invitation.gateway.to_string()),
        quoted(&Files::name(&files.preshared)),
        list(invitation.endpoints.iter().map(ToString::to_string)),
        list(invitation.prefixes.iter().map(prefix)),
    );
    if default_route {
        text += "# Everything that has no other way goes through the gateway, or nowhere.\n\
                 default_route = true\n";
    }
    text
}

/// Shows paths as they come up, until no more do.
fn show_paths(socket: &Path, invitation: &Invitation) -> Result<(), Failure> {
    let start = Instant::now();
    let mut progress = Progress::new(Some(FIRST_PATH));
    let (mut shown, mut last): (Vec<u16>, Instant) = (Vec::new(), start);
    loop {
        if shown.is_empty() {
            progress.tell("no path yet");
        }
        let peer = mpip_api::status(socket, false)?.peers.into_iter().next();
        let paths = peer.map(|peer| peer.paths).unwrap_or_default();
        let active = paths.iter().filter(|path| path.state == "active");
        let active: Vec<&PathStatus> = active.collect();
        for path in &active {
            if !shown.contains(&path.id) {
                shown.push(path.id);
                last = Instant::now();
                print(&format!(
                    "path up after {}: {} {} to {}, round trip {}\n",
                    duration(Some(start.elapsed().as_secs_f64() * 1e3)),
                    path.interface_name(),
                    path.local.ip(),
                    path.remote,
                    duration(path.rtt_ms)
                ))?;
            }
        }
        if shown.is_empty() && start.elapsed() >= FIRST_PATH {
            return Err(Failure(format!(
                "no path to `{}` works after {} s: it goes on trying; `mpip doctor` says what is \
                 in the way, `mpip status` how far it got",
                invitation.gateway_name,
                FIRST_PATH.as_secs()
            )));
        }
        if !active.is_empty() && last.elapsed() >= NEXT_PATH {
            let count = active.len();
            return print(&format!(
                "connected to `{}` by {count} path{}; `mpip status` shows them\n",
                invitation.gateway_name,
                if count == 1 { "" } else { "s" }
            ));
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use mpip_crypto::{InvitationSecret, PrivateKey, Rng};

    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            secret: InvitationSecret::from_bytes([7; 32]),
            gateway: *PrivateKey::generate(&mut Rng::new([1; 32])).public_key(),
            expires: 0,
            forwards: true,
            gateway_name: "the \"gate\"".to_owned(),
            name: "laptop".to_owned(),
            endpoints: vec!["198.18.0.1:6182".parse().expect("valid")],
            addresses: vec![("10.77.0.2".parse().expect("valid"), 24)],
            prefixes: vec![("10.77.0.0".parse().expect("valid"), 24)],
        }
    }

    #[test]
    fn the_configuration_has_what_the_token_says() {
        let files = Files::new(Path::new("/nowhere/mpip1.toml")).expect("usable");
        let text = configuration(&files, &invitation(), true);
        for line in [
            "private_key_file = \"mpip1.key\"",
            "preshared_key_file = \"mpip1.psk\"",
            "addresses = [\"10.77.0.2/24\"]",
            "name = \"the \\\"gate\\\"\"",
            "endpoints = [\"198.18.0.1:6182\"]",
            "allowed_prefixes = [\"10.77.0.0/24\"]",
            "default_route = true",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!configuration(&files, &invitation(), false).contains("default_route"));
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        for code in 1..10 {
            let verdict = [
                Verdict::Expired,
                Verdict::Used,
                Verdict::Altered,
                Verdict::Withdrawn,
                Verdict::KeyInUse,
                Verdict::NotStored,
            ];
            let verdict = verdict.get(code - 1).copied().unwrap_or(Verdict::Other(9));
            let words = refusal(&invitation(), verdict);
            assert!(words.contains("mpip") || words.contains("install"), "{words}");
        }
        assert!(is_expired(&invitation()));
    }
}
