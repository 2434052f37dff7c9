//! The daemon itself: its configuration, its capabilities, the kernel, and whether it answers.

use std::io;
use std::time::Duration;

use mpip_api::Status;
use mpip_net::udp::Granted;

use super::finding::{Finding, Mend};
use super::subject::Subject;
use super::survey::{Running, Survey};
use crate::config::ConfigError;

/// Bits of a capability set (capabilities(7)).
const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;

/// First kernel with epoll_pwait2(2), which the daemon needs.
const OLDEST_KERNEL: (u32, u32) = (5, 11);
/// First kernel with UDP super-packets from the TUN device (`TUN_F_USO4`).
const UDP_SUPER_PACKETS: (u32, u32) = (6, 2);

/// Separates the problem from its mend in errors of the configuration.
const MEND: &str = "; mend it with `";

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, running, .. } = survey;
    let mut findings = configuration(survey.refused.as_ref());
    findings.extend(tun(&survey.tun));
    findings.extend(capabilities(survey.capabilities, subject, running.status().is_some()));
    findings.extend(kernel(&survey.kernel));
    findings.extend(survey.granted.and_then(offloads));
    findings.extend(clock(survey.unix_time, survey.newest_file));
    findings.extend(daemon(survey));
    findings
}

/// Everything that is wrong with the configuration and its key files, as `mpip check` says it.
fn configuration(refused: Option<&ConfigError>) -> Vec<Finding> {
    let Some(error) = refused else { return Vec::new() };
    let finding = |line: &str| {
        let why = "mpipd does not start with it";
        match line.split_once(MEND) {
            Some((what, command)) => {
                Finding::wrong(what, why, Mend::command(command.trim_end_matches('`')))
            }
            None => Finding::wrong(line, why, Mend::words("correct that, and `mpip check` it")),
        }
    };
    error.to_string().lines().map(finding).collect()
}

fn tun(opened: &io::Result<()>) -> Option<Finding> {
    let error = opened.as_ref().err()?;
    let why = "mpipd makes its interface with it";
    Some(match error.kind() {
        // Most systems let every user open it, but not all.
        io::ErrorKind::PermissionDenied => Finding::note(
            "/dev/net/tun may not be opened by this user",
            why,
            Mend::words("start mpipd as root or as a user that may"),
        ),
        _ => Finding::wrong(
            format!("/dev/net/tun cannot be opened ({error})"),
            why,
            Mend::command(
                "modprobe tun; [ -e /dev/net/tun ] || { mkdir -p /dev/net; mknod -m 666 \
                 /dev/net/tun c 10 200; }",
            ),
        ),
    })
}

/// `held` are the capabilities of the running daemon, else those of a daemon started by this user.
fn capabilities(held: u64, subject: &Subject, running: bool) -> Option<Finding> {
    let who = if running { "the running mpipd" } else { "mpipd, started by this user," };
    let all = "setcap cap_net_admin,cap_net_raw,cap_net_bind_service+ep";
    let program = std::env::current_exe().map_or("mpipd".into(), |file| file.display().to_string());
    let mend = || Mend::command(format!("{all} {program}"));
    let low = |port: u16| port < 1024;
    let tcp = subject.tcp_port;
    if held & NET_ADMIN == 0 {
        let why = "it can make no device and no routes";
        Some(Finding::wrong(format!("{who} lacks CAP_NET_ADMIN"), why, mend()))
    } else if tcp.is_some() && held & NET_RAW == 0 {
        let what = format!("{who} lacks CAP_NET_RAW");
        let why = "there are no paths by TCP";
        let required = tcp.is_some_and(|tcp| tcp.required);
        Some(if required { Finding::wrong } else { Finding::note }(what, why, mend()))
    } else if (low(subject.listen_port) || tcp.is_some_and(|tcp| low(tcp.number)))
        && held & NET_BIND_SERVICE == 0
    {
        let what = format!("{who} lacks CAP_NET_BIND_SERVICE");
        Some(Finding::wrong(what, "its port is below 1024", mend()))
    } else {
        None
    }
}

fn kernel(release: &str) -> Option<Finding> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let mend = || Mend::words("install a newer kernel");
    if version < OLDEST_KERNEL {
        let what = format!("the kernel is {release}");
        return Some(Finding::wrong(what, "mpipd needs Linux 5.11 or newer", mend()));
    }
    (version < UDP_SUPER_PACKETS).then(|| {
        let why = "UDP of the host's programs passes packet by packet before Linux 6.2, which is \
                   slower";
        Finding::note(format!("the kernel is {release}"), why, mend())
    })
}

fn offloads(granted: Granted) -> Option<Finding> {
    let missing = match (granted.segmentation, granted.receive_offload) {
        (true, true) => return None,
        (false, true) => "UDP_SEGMENT",
        (true, false) => "UDP_GRO",
        (false, false) => "UDP_SEGMENT and UDP_GRO",
    };
    Some(Finding::note(
        format!("the kernel refuses {missing}"),
        "datagrams pass one by one, which is slower",
        Mend::words("use a kernel, or outside of a sandbox a host, that has them"),
    ))
}

/// Whether the clock is behind the time `written` of a file, so it must have gone back.
fn clock(now: Duration, written: Duration) -> Option<Finding> {
    const TOLERANCE: Duration = Duration::from_secs(60);
    let back = written.checked_sub(now + TOLERANCE)?;
    Some(Finding::wrong(
        format!("the clock is {} s behind the time at which files were written", back.as_secs()),
        "peers refuse a handshake that seems older than the last one",
        Mend::words("set the clock, for instance with `timedatectl set-ntp true`"),
    ))
}

/// Whether a daemon answers, is of this release and has this configuration.
fn daemon(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, socket, running, .. } = survey;
    match running {
        Running::Yes(status) => {
            release(status).into_iter().chain(outdated(status, subject)).collect()
        }
        Running::Silent(error) => silent(&error.to_string()).into_iter().collect(),
        Running::No => {
            let file = socket.as_ref().map(|socket| socket.display().to_string());
            not_running(file.as_deref(), subject).into_iter().collect()
        }
    }
}

fn release(status: &Status) -> Option<Finding> {
    let ours = env!("CARGO_PKG_VERSION");
    let theirs = &status.daemon_version;
    (theirs != ours).then(|| {
        Finding::wrong(
            format!("the running mpipd is of release {theirs}, this one of {ours}"),
            "they may not understand each other",
            restart(status),
        )
    })
}

/// Whether the configuration was changed since the daemon read it.
fn outdated(status: &Status, subject: &Subject) -> Option<Finding> {
    let key = subject.public_key.as_ref()?;
    let changed = [
        ("key", status.public_key != *key),
        ("listen_port", status.listen_port != subject.listen_port),
        ("interface", status.interface.name != subject.interface),
    ];
    let names: Vec<_> = changed.iter().filter(|(_, changed)| *changed).map(|(n, _)| *n).collect();
    (!names.is_empty()).then(|| {
        let what = format!("the running mpipd has another {} than the file", names.join(", "));
        Finding::wrong(what, "the configuration was changed since it started", restart(status))
    })
}

fn restart(status: &Status) -> Mend {
    let file = &status.config_file;
    Mend::command(format!("mpip down {file} && mpip up {file}"))
}

fn silent(error: &str) -> Option<Finding> {
    Some(Finding::wrong(
        error,
        "nothing is known of the daemon",
        Mend::words("run `mpip doctor` as root, or see what the daemon's process does"),
    ))
}

fn not_running(socket: Option<&str>, subject: &Subject) -> Option<Finding> {
    let socket = socket?;
    Some(Finding::note(
        format!("no mpipd answers on {socket}"),
        "nothing uses the paths now",
        Mend::command(subject.up.clone()),
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mpip_testing::Directory;

    use super::super::finding::Severity;
    use super::super::subject::TcpPort;
    use super::super::tests_support::status;
    use super::*;

    #[test]
    fn each_problem_of_the_configuration_is_one_finding() {
        let text = "[node]\nprivate_key_file = '/nonexistent'\nlisten_port = 0\n";
        let error = crate::config::parse(Path::new("x.toml"), text).expect_err("refused");
        let findings = configuration(Some(&error));
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[1].what.starts_with("x.toml:3: listen_port: expected"), "{findings:?}");
        assert_eq!(configuration(None), []);
    }

    #[test]
    fn a_key_file_that_others_can_read_is_mended_by_a_command() {
        let directory = Directory::new();
        let file = directory.join("node.key");
        std::fs::write(&file, "x").expect("writable");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&file, mode).expect("ours");
        let text = format!("[node]\nprivate_key_file = '{}'\n", file.display());
        let error = crate::config::parse(Path::new("x.toml"), &text).expect_err("refused");
        let findings = configuration(Some(&error));
        assert_eq!(findings[0].mend, Mend::command(format!("chmod 600 {}", file.display())));
    }

    #[test]
    fn a_missing_tun_driver_is_wrong() {
        assert_eq!(tun(&Ok(())), None);
        let missing = tun(&Err(io::ErrorKind::NotFound.into())).expect("missing");
        assert_eq!(missing.severity, Severity::Wrong);
        let refused = tun(&Err(io::ErrorKind::PermissionDenied.into())).expect("refused");
        assert_eq!(refused.severity, Severity::Note);
    }

    #[test]
    fn the_capability_that_is_missing_is_named() {
        let tcp = |required| Some(TcpPort { number: 6182, required, named: false });
        let subject = |tcp_port| Subject { tcp_port, ..Subject::default() };
        let found = |held, subject: &Subject| {
            let finding = capabilities(held, subject, false)?;
            Some((finding.severity, finding.what.rsplit(' ').next()?.to_owned()))
        };
        let is = |severity, name: &str| Some((severity, name.to_owned()));
        let (wrong, note) = (Severity::Wrong, Severity::Note);
        assert_eq!(found(0, &subject(None)), is(wrong, "CAP_NET_ADMIN"));
        assert_eq!(found(NET_ADMIN, &subject(None)), None);
        assert_eq!(found(NET_ADMIN, &subject(tcp(false))), is(note, "CAP_NET_RAW"));
        assert_eq!(found(NET_ADMIN, &subject(tcp(true))), is(wrong, "CAP_NET_RAW"));
        assert_eq!(found(NET_ADMIN | NET_RAW, &subject(tcp(true))), None);
        let low = Subject { listen_port: 443, ..subject(None) };
        assert_eq!(found(NET_ADMIN, &low), is(wrong, "CAP_NET_BIND_SERVICE"));
        assert_eq!(found(NET_ADMIN | NET_BIND_SERVICE, &low), None);
    }

    #[test]
    fn old_kernels_are_told_from_new_ones() {
        let severity = |release| kernel(release).map(|finding| finding.severity);
        assert_eq!(severity("5.10.0-28-amd64"), Some(Severity::Wrong));
        assert_eq!(severity("5.11.0"), Some(Severity::Note));
        assert_eq!(severity("6.1.0-rc3"), Some(Severity::Note));
        assert_eq!(severity("6.2.0"), None);
        assert_eq!(severity("6.18.44-fc-v595"), None);
        assert_eq!(severity("something"), None);
    }

    #[test]
    fn missing_offloads_are_named() {
        let granted = |segmentation, receive_offload| Granted {
            receive_buffer: 0,
            segmentation,
            receive_offload,
        };
        assert_eq!(offloads(granted(true, true)), None);
        let what = |granted| offloads(granted).expect("missing").what;
        assert_eq!(what(granted(false, true)), "the kernel refuses UDP_SEGMENT");
        assert_eq!(what(granted(true, false)), "the kernel refuses UDP_GRO");
    }

    #[test]
    fn a_clock_behind_the_files_is_wrong() {
        let day = Duration::from_secs(86_400);
        assert_eq!(clock(day * 2, day), None);
        assert_eq!(clock(day, day + Duration::from_secs(59)), None);
        assert!(clock(day, day * 2).expect("behind").what.contains("86340 s behind"));
    }

    #[test]
    fn a_daemon_of_another_release_or_configuration_is_to_be_restarted() {
        let mut status = status();
        assert_eq!(release(&status), None);
        let subject = Subject {
            public_key: Some(status.public_key.clone()),
            listen_port: status.listen_port,
            interface: status.interface.name.clone(),
            ..Subject::default()
        };
        assert_eq!(outdated(&status, &subject), None);
        assert_eq!(outdated(&status, &Subject::default()), None, "no configuration is known");
        status.listen_port = 7;
        status.daemon_version = "0.0.1".to_owned();
        let restart = Mend::command("mpip down /x.toml && mpip up /x.toml");
        assert_eq!(release(&status).expect("another").mend, restart);
        let finding = outdated(&status, &subject).expect("changed");
        assert_eq!((finding.what.contains("listen_port"), finding.mend), (true, restart));
    }

    #[test]
    fn a_daemon_that_does_not_run_is_a_note() {
        assert_eq!(not_running(None, &Subject::default()), None);
        let finding = not_running(Some("/x.sock"), &Subject::default()).expect("a socket is known");
        assert_eq!(finding.severity, Severity::Note);
        assert_eq!(silent("no answer").expect("wrong").severity, Severity::Wrong);
    }
}
