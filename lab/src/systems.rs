//! Systems under test: how each is started in the hosts, and which addresses its traffic uses.
//!
//! Each system is a file and implements [`Running`]: `plain`, `mptcp`, `mpip` (which can run above
//! `mptcp`), `floor` (what moving packets costs), and `adapter` for any other program. To add one,
//! write its file and a line in [`start`].

use std::io;
use std::path::Path;

use crate::subject::{Subject, over};
use crate::testbed::Testbed;

mod adapter;
mod floor;
mod mpip;
mod mptcp;
mod plain;
mod running;

pub(crate) use plain::plain;
pub(crate) use running::Running;

/// Starts a subject. `directory` is for its files.
pub(crate) fn start(
    subject: &Subject,
    testbed: &Testbed,
    directory: &Path,
) -> io::Result<Box<dyn Running>> {
    Ok(match subject.system.kind.as_str() {
        "tcp" => Box::new(plain::PlainTcp { path: subject.path }),
        "mptcp" => Box::new(mptcp::Mptcp::start(testbed)?),
        "mpip" | mpip::HOST_MODE | mpip::WITH_MPTCP => {
            Box::new(mpip::Mpip::start(&subject.system, testbed, directory)?)
        }
        floor::KIND => Box::new(floor::Floor::start(&subject.system, testbed)?),
        _ => {
            let below =
                below(subject).map(|below| start(&below, testbed, directory)).transpose()?;
            let adapter = adapter::Adapter::start(&subject.system, below, testbed, directory)?;
            Box::new(adapter)
        }
    })
}

/// The system over which an adapter's program runs: its setting `over`.
fn below(subject: &Subject) -> Option<Subject> {
    let mut system = subject.system.clone();
    system.kind = over(&system)?.to_owned();
    system.settings.remove("over");
    Some(Subject { name: subject.name.clone(), system, path: subject.path })
}
