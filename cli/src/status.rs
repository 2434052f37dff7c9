//! `mpip status`: the state of a daemon, for people or as JSON.
//!
//! [`brief`] is what people get, [`verbose`] has the engine's inner figures, [`sessions`] is the
//! list of both.

mod brief;
mod sessions;
mod verbose;

use std::path::Path;
use std::thread;
use std::time::Duration;

use mpip_api::{Client, Status};

use crate::failure::Failure;
use crate::output::{colours, print};
use crate::rates::Rates;

/// Time between the two samples from which rates are computed: long enough for a few hundred
/// packets of a slow link, too short to be waited for.
const SAMPLE: Duration = Duration::from_millis(250);

/// How the state is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) json: bool,
    pub(crate) sessions: bool,
    pub(crate) verbose: bool,
}

/// Prints the state of the daemon that listens on `socket`.
pub(crate) fn show(socket: &Path, shown: Shown) -> Result<(), Failure> {
    let Shown { json, sessions, verbose } = shown;
    let mut client = Client::connect(socket)?;
    let status = client.status(sessions)?;
    if json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&status)?));
    }
    if verbose {
        return print(&verbose::render(&status, sessions, colours()));
    }
    let (status, rates) = sampled(&mut client, status, sessions)?;
    print(&brief::render(&status, &rates, sessions, colours()))
}

/// A second sample, and the rates since the first.
fn sampled(client: &mut Client, first: Status, sessions: bool) -> Result<(Status, Rates), Failure> {
    if first.peers.iter().all(|peer| peer.paths.is_empty()) {
        return Ok((first, Rates::default()));
    }
    thread::sleep(SAMPLE);
    let second = client.status(sessions)?;
    let rates = Rates::between(&first, &second);
    Ok((second, rates))
}

#[cfg(test)]
mod tests;
