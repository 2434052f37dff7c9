//! A finding of `mpip doctor`: what is wrong, its effect, and how to mend it.

use std::fmt;
use std::path::Path;

use mpip_net::netlink::Link;
use serde::Serialize;

use crate::parameters::{Change, sysctl_name};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work, or will not.
    Wrong,
    /// It works, but not as well as it could, or not always.
    Note,
}

/// How a finding is mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mend {
    /// A shell command that mends it when root runs it.
    Command(String),
    /// What somebody has to decide or do.
    Words(String),
}

/// One thing that is wrong or could be better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// Its effect.
    pub why: String,
    /// How to mend it.
    pub mend: Mend,
}

impl Finding {
    pub(super) fn wrong(what: impl Into<String>, why: impl Into<String>, mend: Mend) -> Self {
        Self { severity: Severity::Wrong, what: what.into(), why: why.into(), mend }
    }

    pub(super) fn note(what: impl Into<String>, why: impl Into<String>, mend: Mend) -> Self {
        Self { severity: Severity::Note, ..Self::wrong(what, why, mend) }
    }
}

impl Mend {
    pub(super) fn command(text: impl Into<String>) -> Self {
        Self::Command(text.into())
    }

    /// Puts back the kernel parameters that a killed daemon recorded in `file`, which has `text`.
    /// `links` are the host's interfaces.
    pub(super) fn putting_back(file: &Path, text: &str, links: &[Link]) -> Self {
        let changes = text.lines().rev().filter_map(Change::parse);
        let commands = changes.filter_map(|change| {
            let name = sysctl_name(&change.present_name(links)?);
            Some(format!("sysctl -w {name}={}", change.from))
        });
        let commands: Vec<String> = commands.chain([format!("rm {}", file.display())]).collect();
        Self::command(commands.join(" && "))
    }

    pub(super) fn words(text: impl Into<String>) -> Self {
        Self::Words(text.into())
    }
}

/// One line, even if the texts have several.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, what, why, mend } = self;
        let severity = match severity {
            Severity::Wrong => "wrong",
            Severity::Note => "note",
        };
        let line = match mend {
            Mend::Command(command) => format!("{what}: {why}; mend it with `{command}`"),
            Mend::Words(words) => format!("{what}: {why}; to mend it, {words}"),
        };
        write!(f, "{severity}: {}", line.replace('\n', " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding::wrong("a\nb", "why", Mend::command("true"));
        assert_eq!(finding.to_string(), "wrong: a b: why; mend it with `true`");
        let note = Finding::note("a", "why", Mend::words("look"));
        assert_eq!(note.to_string(), "note: a: why; to mend it, look");
    }
}
