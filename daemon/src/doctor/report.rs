//! All findings of one examination.

use std::fmt;

use serde::Serialize;

use super::finding::{Finding, Severity};

/// What an examination found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The findings, those that are `Wrong` first.
    pub findings: Vec<Finding>,
    /// What could not be checked, and why.
    pub not_checked: Vec<String>,
    /// Which peer was asked, and how it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

impl Report {
    /// Whether nothing is wrong. There may be notes.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Wrong)
    }
}

/// A line for each finding, and a summary.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(asked) = &self.asked {
            writeln!(f, "asked: {asked}")?;
        }
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

#[cfg(test)]
mod tests {
    use super::super::finding::Mend;
    use super::*;

    #[test]
    fn a_report_counts_what_is_wrong() {
        let note = Finding::note("a", "why", Mend::words("look"));
        let mut report =
            Report { findings: vec![note], not_checked: vec!["x".to_owned()], asked: None };
        assert!(report.is_healthy());
        assert!(report.to_string().ends_with("\nnot checked: x\nnothing is wrong\n"));
        report.findings.push(Finding::wrong("b", "why", Mend::command("true")));
        assert!(!report.is_healthy());
        assert!(report.to_string().ends_with("1 thing is wrong\n"));
    }
}
