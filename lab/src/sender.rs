//! Kinds of senders that can take the place of a scenario's bulk flows: `--senders`.

use std::fmt;
use std::str::FromStr;

use crate::scenario::{QuicImplementation, TrafficKind};
use crate::scenarios::Loaded;

/// An implementation of a transport with a congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    name: &'static str,
    /// `None` for the kernel's TCP.
    quic: Option<QuicImplementation>,
    congestion_control: &'static str,
}

/// All of them, by name.
pub(crate) const ALL: [Sender; 7] = [
    Sender { name: "tcp-cubic", quic: None, congestion_control: "cubic" },
    Sender { name: "tcp-reno", quic: None, congestion_control: "reno" },
    Sender { name: "tcp-bbr", quic: None, congestion_control: "bbr" },
    quinn("quinn-cubic", "cubic"),
    quinn("quinn-reno", "reno"),
    quinn("quinn-bbr", "bbr"),
    Sender { name: "quic-go", quic: Some(QuicImplementation::QuicGo), congestion_control: "reno" },
];

const fn quinn(name: &'static str, congestion_control: &'static str) -> Sender {
    Sender { name, quic: Some(QuicImplementation::Quinn), congestion_control }
}

impl FromStr for Sender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ALL.into_iter().find(|sender| sender.name == text).ok_or_else(|| {
            let names = ALL.map(|sender| sender.name).join(", ");
            format!("expected one of {names}; found {text:?}")
        })
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Sender {
    /// Whether it is QUIC.
    pub(crate) fn is_quic(self) -> bool {
        self.quic.is_some()
    }

    /// The scenario with this sender in place of its bulk TCP and QUIC flows, and with its name
    /// added to the scenario's.
    pub(crate) fn replace(self, mut loaded: Loaded) -> Loaded {
        for traffic in &mut loaded.scenario.traffic {
            let (streams, download) = match &traffic.kind {
                TrafficKind::Tcp { streams, download } => (*streams, *download),
                TrafficKind::Quic { download, .. } => (1, *download),
                _ => continue,
            };
            traffic.kind = match self.quic {
                None => TrafficKind::Tcp { streams, download },
                Some(implementation) => TrafficKind::Quic {
                    implementation,
                    congestion_control: Some(self.congestion_control.to_owned()),
                    download,
                },
            };
        }
        if self.quic.is_none() {
            self.congestion_control.clone_into(&mut loaded.scenario.congestion_control);
        }
        loaded.name += &format!("@{self}");
        loaded.text += &format!("# sender {self}\n");
        loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios;

    #[test]
    fn a_sender_replaces_bulk_flows_and_nothing_else() {
        for sender in ALL {
            assert_eq!(sender.to_string().parse(), Ok(sender));
        }
        let loaded = scenarios::find("voip-rule").expect("it comes with the lab");
        let sender: Sender = "quinn-bbr".parse().expect("known");
        let other = sender.replace(loaded.clone());
        assert_eq!(other.name, "voip-rule@quinn-bbr");
        assert_ne!(other.text, loaded.text);
        assert_eq!(other.scenario.congestion_control, loaded.scenario.congestion_control);
        let kinds: Vec<_> = other.scenario.traffic.iter().map(|traffic| &traffic.kind).collect();
        assert!(matches!(kinds[0], TrafficKind::Quic { download: false, .. }));
        assert!(matches!(kinds[1..], [TrafficKind::Udp { .. }, TrafficKind::Voip { .. }]));
        let tcp: Sender = "tcp-bbr".parse().expect("known");
        assert_eq!(tcp.replace(other).scenario.congestion_control, "bbr");
        let message = "tcp-vegas".parse::<Sender>().expect_err("unknown");
        assert!(message.contains("quic-go"), "{message}");
    }
}
