//! The state of a daemon again and again, for what shows it live.

use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use mpip_api::{Client, ClientError, Event, Status};

/// Shortest and longest time between two samples.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// A sample may take this part of a processor until the next one, so that a daemon with many
/// sessions is asked less often.
const PART: u32 = 200;

/// Time from a sample that took so much of a processor to the next one.
pub(crate) fn interval(took: Duration) -> Duration {
    let (shortest, longest) = PAUSE;
    (took * PART).clamp(shortest, longest)
}

/// Time that the calling thread has had a processor.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is negative, and there are less than 10^9 nanoseconds.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A connection to a daemon, made anew when it breaks.
#[derive(Debug)]
pub(crate) struct Sampler {
    socket: PathBuf,
    client: Option<Client>,
    /// The daemon's process and how many events it had when they were last asked for.
    seen: Option<(u32, u64)>,
}

/// The state at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    /// With sessions.
    pub(crate) status: Status,
    /// The latest events, the newest first, if there are new ones since the last sample.
    pub(crate) events: Option<Vec<Event>>,
}

impl Sampler {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, client: None, seen: None }
    }

    /// Asks the daemon.
    pub(crate) fn sample(&mut self) -> Result<Sampled, ClientError> {
        // A connection that is kept breaks when the daemon is started anew.
        let kept = self.client.take().and_then(|client| self.ask(client).ok());
        match kept {
            Some(sampled) => Ok(sampled),
            None => {
                self.seen = None;
                let client = Client::connect(&self.socket)?;
                self.ask(client)
            }
        }
    }

    fn ask(&mut self, mut client: Client) -> Result<Sampled, ClientError> {
        let status = client.status(true)?;
        let count = status.events.iter().map(|event| event.count).sum();
        let mut events = None;
        if self.seen != Some((status.pid, count)) {
            events = Some(client.recent_events()?.into_iter().rev().collect());
            self.seen = Some((status.pid, count));
        }
        self.client = Some(client);
        Ok(Sampled { status, events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_answers_slowly_is_asked_less_often() {
        let millis = Duration::from_millis;
        assert_eq!(interval(millis(1)), millis(1_000));
        assert_eq!(interval(millis(15)), millis(3_000));
        assert_eq!(interval(millis(5_000)), millis(10_000));
    }
}
