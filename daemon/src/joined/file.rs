//! The file of records.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;

use mpip_core::Prefix;
use mpip_crypto::{InvitationSecret, PresharedKey, PublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::record::Record;
use crate::replace::replace;

/// Lines that the file begins with.
const HEADER: &str = "# Peers that joined by `mpip invite` and `mpip join`, and invitations. mpipd writes this file:\n\
     # use `mpip peers` and `mpip remove NAME`. It has secrets.\n\n";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    peer: Vec<Line>,
}

/// A record as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    addresses: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    prefixes: Vec<String>,
    secret: Zeroizing<String>,
    token_digest: String,
    expires_unix: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    joined_unix: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

impl Line {
    fn of(record: &Record) -> Self {
        // Both are 32 bytes in base64, as keys are.
        let secret = PresharedKey::from_bytes(*record.secret.secret_bytes());
        Self {
            name: record.name.clone(),
            addresses: record.addresses.clone(),
            prefixes: record.prefixes.iter().map(ToString::to_string).collect(),
            secret: secret.secret_base64(),
            token_digest: PublicKey::from_bytes(record.digest).to_string(),
            expires_unix: record.expires,
            public_key: record.joined.map(|(key, _)| key.to_string()),
            joined_unix: record.joined.map(|(_, at)| at),
            removed: record.removed,
        }
    }

    fn record(self) -> Result<Record, String> {
        let key = |text: &str| text.parse::<PublicKey>().map_err(|error| error.to_string());
        let secret: PresharedKey = self.secret.parse().map_err(|error| format!("{error}"))?;
        let prefixes: Result<Vec<Prefix>, _> =
            self.prefixes.iter().map(|text| text.parse()).collect();
        let public_key = self.public_key.as_deref().map(key).transpose()?;
        Ok(Record {
            name: self.name,
            addresses: self.addresses,
            prefixes: prefixes.map_err(|error| error.to_string())?,
            secret: InvitationSecret::from_bytes(*secret.secret_bytes()),
            digest: *key(&self.token_digest)?.as_bytes(),
            expires: self.expires_unix,
            joined: public_key.map(|key| (key, self.joined_unix.unwrap_or(0))),
            removed: self.removed,
        })
    }
}

/// The records in `file`; none if it does not exist.
pub(crate) fn load(file: &Path) -> Result<Vec<Record>, String> {
    let shown = file.display();
    let text = match fs::read_to_string(file) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(format!(
                "expected the file of peers that joined, or none, `{shown}` cannot be read: {error}"
            ));
        }
    };
    let wrong = |error: &str| format!("`{shown}`, which mpipd writes, was changed: {error}");
    let text: Text = toml::from_str(&text).map_err(|error| wrong(error.message()))?;
    text.peer.into_iter().map(|line| line.record().map_err(|error| wrong(&error))).collect()
}

/// Writes `records` into `file`, which only its owner can read.
pub(super) fn write(file: &Path, records: &[Record]) -> io::Result<()> {
    let lines = Text { peer: records.iter().map(Line::of).collect() };
    let lines = Zeroizing::new(toml::to_string(&lines).map_err(io::Error::other)?);
    let text = Zeroizing::new([HEADER, lines.as_str()].concat());
    replace(file, ".new", 0o600, text.as_bytes())
}
