//! `mpip doctor`: what on this host keeps mpip from working, and how to mend it.
//!
//! [`examine`] gathers the host's state once (`survey`); each check is a function of what it
//! judges, and adds its [`Finding`]s. Nothing is changed. It runs with the rights of whoever calls
//! it, and says what it could not look at for lack of them.

mod buffers;
mod firewall;
mod paths;
mod ports;
mod program;
mod refused;
mod routing;
mod subject;
mod survey;
#[cfg(test)]
pub(crate) mod tests_support;
mod ways;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use survey::Survey;

/// What is to be examined.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The configuration; without it the running daemon's.
    pub config: Option<PathBuf>,
    /// The control socket; without it the one that the configuration names.
    pub socket: Option<PathBuf>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work, or will not.
    Wrong,
    /// It works, but not as well as it could, or only under conditions.
    Note,
}

/// How a finding is mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mend {
    /// A command for a shell, as root, that mends it as it stands.
    Command(String),
    /// What somebody has to decide or to do.
    Words(String),
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// What follows from it.
    pub why: String,
    /// What helps.
    pub mend: Mend,
}

impl Finding {
    fn wrong(what: impl Into<String>, why: impl Into<String>, mend: Mend) -> Self {
        Self { severity: Severity::Wrong, what: what.into(), why: why.into(), mend }
    }

    fn note(what: impl Into<String>, why: impl Into<String>, mend: Mend) -> Self {
        Self { severity: Severity::Note, ..Self::wrong(what, why, mend) }
    }
}

impl Mend {
    fn command(text: impl Into<String>) -> Self {
        Self::Command(text.into())
    }

    fn words(text: impl Into<String>) -> Self {
        Self::Words(text.into())
    }
}

/// One line, whatever the texts hold.
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

/// What an examination found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What is wrong first.
    pub findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub not_checked: Vec<String>,
}

impl Report {
    /// Whether nothing is wrong; there may be notes.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Wrong)
    }
}

/// A line for each finding, and one that sums up.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        for reason in &self.not_checked {
            writeln!(f, "not checked: {}", reason.replace('\n', " "))?;
        }
        let wrong = |finding: &&Finding| finding.severity == Severity::Wrong;
        match self.findings.iter().filter(wrong).count() {
            0 => writeln!(f, "nothing is wrong"),
            1 => writeln!(f, "1 thing is wrong"),
            count => writeln!(f, "{count} things are wrong"),
        }
    }
}

/// Examines this host.
pub fn examine(target: &Target) -> Report {
    let survey = Survey::take(target);
    let mut findings = Vec::new();
    for check in [program::check, ports::check, firewall::check, routing::check] {
        findings.extend(check(&survey));
    }
    for check in [refused::check, ways::check, buffers::check, paths::check] {
        findings.extend(check(&survey));
    }
    // The order of the checks stays within one severity.
    findings.sort_by_key(|finding| finding.severity);
    Report { findings, not_checked: survey.not_checked }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        Finding::wrong("a\nb", "why", Mend::command("true"))
    }

    #[test]
    fn a_finding_is_one_line() {
        assert_eq!(finding().to_string(), "wrong: a b: why; mend it with `true`");
        let note = Finding::note("a", "why", Mend::words("look"));
        assert_eq!(note.to_string(), "note: a: why; to mend it, look");
    }

    #[test]
    fn a_report_counts_what_is_wrong() {
        let note = Finding::note("a", "why", Mend::words("look"));
        let mut report = Report { findings: vec![note], not_checked: vec!["x".to_owned()] };
        assert!(report.is_healthy());
        assert!(report.to_string().ends_with("\nnot checked: x\nnothing is wrong\n"));
        report.findings.push(finding());
        assert!(!report.is_healthy());
        assert!(report.to_string().ends_with("1 thing is wrong\n"));
    }
}
