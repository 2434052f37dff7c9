//! `mpip doctor`: what on this host keeps mpip from working, and how to mend it.
//!
//! [`examine`] gathers the host's state once (`survey`) and hands it to the checks. Each check is a
//! function of that state that returns [`Finding`]s. Nothing is changed. What the caller's rights
//! do not suffice to look at is reported as not checked.
//!
//! The files, those that need none of the others first:
//!
//! - `finding` and `report`: what `mpip doctor` prints
//! - `subject`: what the configuration asks of this host
//! - `sockets`, `ruleset`: the host's open ports, and its packet filter
//! - `survey`: all of the host's state, these two included
//! - the checks, which use the survey and never each other: `program`, `ports`, `firewall`,
//!   `routing`, `source_routing`, `beyond`, `buffers`, `paths`, `ends`

mod beyond;
mod buffers;
mod ends;
mod finding;
mod firewall;
mod paths;
mod ports;
mod program;
mod refused;
mod report;
mod routing;
mod ruleset;
mod sockets;
mod source_routing;
mod subject;
mod survey;
#[cfg(test)]
pub(crate) mod tests_support;

pub use finding::{Finding, Mend, Severity};
pub use report::Report;
pub use survey::Target;

use survey::Survey;

/// Examines this host.
pub fn examine(target: &Target) -> Report {
    let survey = Survey::take(target);
    let mut findings = Vec::new();
    for check in [
        program::check,
        ports::check,
        firewall::check,
        routing::check,
        refused::check,
        source_routing::check,
        beyond::check,
        buffers::check,
        paths::check,
        ends::check,
    ] {
        findings.extend(check(&survey));
    }
    // A stable sort: within one severity the order of the checks stays.
    findings.sort_by_key(|finding| finding.severity);
    let asked = survey.answer.as_deref().map(ends::summary);
    Report { findings, not_checked: survey.not_checked, asked }
}
