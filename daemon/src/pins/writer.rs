//! The thread that writes pins down.
//!
//! Changes are gathered on the packets' side, one for each address, and handed over as a whole when
//! the thread has nothing to do, at most once in [`PAUSE`]. So nobody waits for the disk, many
//! changes cost one write, and what is gathered is bounded by the engine's table. What could not be
//! written is kept and tried again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use mpip_core::{Instant, PinChange};

use super::{HEADER, apply};
use crate::handover::Handover;
use crate::replace::replace;

/// Least time between two writes.
const PAUSE: Duration = Duration::from_secs(1);
/// After so long what could not be written is tried again.
const RETRY: Duration = Duration::from_secs(60);

type Changes = BTreeMap<IpAddr, PinChange>;

/// The thread as its owner sees it.
#[derive(Debug)]
pub(crate) struct Writer {
    thread: Handover<Changes>,
    gathered: Changes,
    /// When they are handed over at the soonest.
    next: Instant,
}

impl Writer {
    /// Starts the thread, which writes to `file`. The file need not exist yet.
    pub(crate) fn start(file: PathBuf) -> io::Result<Self> {
        let thread = Handover::start("pins", move |todo| write_all(&file, todo))?;
        Ok(Self::over(thread))
    }

    fn over(thread: Handover<Changes>) -> Self {
        Self { thread, gathered: Changes::new(), next: Instant::ZERO }
    }

    /// Takes a change, to be written soon.
    pub(crate) fn note(&mut self, change: PinChange) {
        gather(&mut self.gathered, change);
    }

    /// When [`flush`](Self::flush) is to be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        (!self.gathered.is_empty()).then_some(self.next)
    }

    /// Hands over what was gathered, if it is time and the thread takes it. Waits for nothing.
    pub(crate) fn flush(&mut self, now: Instant) {
        if self.gathered.is_empty() || now < self.next {
            return;
        }
        self.next = now + PAUSE;
        let offered = self.thread.offer(std::mem::take(&mut self.gathered));
        self.gathered = offered.err().unwrap_or_default();
    }

    /// Has everything written, and waits until it is, but no longer than `limit`.
    pub(crate) fn finish(self, limit: Duration) {
        let Self { thread, gathered, .. } = self;
        if !thread.finish((!gathered.is_empty()).then_some(gathered), limit) {
            log::error!("pinned keys could not be written within {limit:?}");
        }
    }
}

fn gather(changes: &mut Changes, change: PinChange) {
    let address = change.pin().address;
    let before = changes.remove(&address);
    changes.insert(address, before.map_or(change, |before| before.then(change)));
}

/// The thread: until there is nobody to hand anything over, and for what is left then once more.
fn write_all(file: &Path, todo: &Receiver<Changes>) {
    let mut unwritten = Changes::new();
    let mut failures = 0_u32;
    loop {
        let batch = match unwritten.is_empty() {
            true => todo.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => todo.recv_timeout(RETRY),
        };
        let last = batch == Err(RecvTimeoutError::Disconnected);
        batch.into_iter().flatten().for_each(|(_, change)| gather(&mut unwritten, change));
        if !unwritten.is_empty() {
            match write(file, &unwritten) {
                Ok(()) if failures > 0 => {
                    log::info!("`{}` is written again", file.display());
                    failures = 0;
                }
                Ok(()) => {}
                Err(error) => {
                    // Of a disk that is full for long one line in a while.
                    failures = failures.saturating_add(1);
                    if failures.is_power_of_two() || last {
                        log::error!(
                            "{} pinned keys cannot be written to `{}`: {error} (attempt {failures})",
                            unwritten.len(),
                            file.display()
                        );
                    }
                    if last {
                        return;
                    }
                    continue;
                }
            }
            unwritten.clear();
        }
        if last {
            return;
        }
    }
}

/// Writes `changes` into `file`.
fn write(file: &Path, changes: &Changes) -> io::Result<()> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => HEADER.to_owned(),
        Err(error) => return Err(error),
    };
    let text = apply(&text, changes);
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
    replace(file, &format!(".{}", std::process::id()), 0o644, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::sync_channel;
    use std::thread;

    use mpip_core::Pin;
    use mpip_testing::Directory;

    use super::super::{load, tests::pin};
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn addresses(file: &Path) -> Vec<IpAddr> {
        let pins = load(file).expect("a file of pins");
        pins.into_iter().map(|pin| pin.address).collect()
    }

    fn numbered(number: u32) -> Pin {
        pin(&std::net::Ipv4Addr::from_bits(0xc612_0000 + number).to_string(), 1, Some(20_000))
    }

    #[test]
    fn what_was_noted_is_in_the_file_after_an_orderly_end() {
        let directory = Directory::new();
        let file = directory.join("deeper/known_nodes");
        let mut writer = Writer::start(file.clone()).expect("a thread");
        let now = Instant::from_millis(1_000);
        for number in 0..3 {
            // Only the first is handed over before the end: the others come too soon.
            writer.note(PinChange::Pinned(numbered(number)));
            writer.flush(now);
        }
        assert_eq!(writer.next_timeout(), Some(now + PAUSE));
        writer.finish(LONG);
        assert_eq!(addresses(&file), [0, 1, 2].map(|number| numbered(number).address));
        let left = fs::read_dir(directory.join("deeper")).expect("listed").count();
        assert_eq!(left, 1, "nothing else is left there");
    }

    /// A file that is a pipe is waited for.
    #[test]
    fn who_notes_pins_waits_for_no_disk_and_keeps_one_change_for_an_address() {
        let directory = Directory::new();
        let file = directory.join("pipe");
        assert!(Command::new("mkfifo").arg(&file).status().expect("mkfifo is there").success());
        let (end, ended) = sync_channel(1);
        let thread = {
            let file = file.clone();
            let work = move |todo: &_| {
                write_all(&file, todo);
                end.send(()).expect("awaited");
            };
            Handover::start("pins", work).expect("a thread")
        };
        let mut writer = Writer::over(thread);
        let mut now = Instant::from_millis(1_000);
        for round in 0..1_000_u32 {
            let pin = Pin { met: Some(20_000 + round), ..numbered(round % 10) };
            writer.note(PinChange::Met(pin));
            writer.flush(now);
            now += PAUSE;
            assert!(writer.gathered.len() <= 10);
        }
        // The thread has the first change and waits; the second lies ready; all later ones are
        // here.
        assert_eq!(writer.gathered.len(), 10);
        let newest = writer.gathered.values().filter_map(|change| change.pin().met).max();
        assert_eq!(newest, Some(20_999));
        writer.finish(Duration::from_millis(30));
        // Its reader is let go, and finds that this is no file of pins.
        fs::write(&file, "").expect("somebody reads");
        ended.recv_timeout(LONG).expect("the thread ends before its directory goes");
    }

    #[test]
    fn what_could_not_be_written_is_written_with_what_comes_next() {
        let directory = Directory::new();
        // Where a directory is to be, there is a file.
        let (parent, file) = (directory.join("in"), directory.join("in/known_nodes"));
        fs::write(&parent, "").expect("writable");
        let (batches, todo) = sync_channel(8);
        let batch = |number| {
            let change = PinChange::Pinned(numbered(number));
            batches.send(Changes::from([(change.pin().address, change)])).expect("received");
        };
        let thread = {
            let file = file.clone();
            thread::spawn(move || write_all(&file, &todo))
        };
        batch(1);
        // Whether it was tried before or not: what is written in the end is all.
        thread::sleep(Duration::from_millis(20));
        fs::remove_file(&parent).expect("removed");
        batch(2);
        drop(batches);
        thread.join().expect("no panic");
        assert_eq!(addresses(&file), [1, 2].map(|number| numbered(number).address));
    }

    #[test]
    fn a_write_that_fails_leaves_the_file_as_it_was() {
        let directory = Directory::new();
        let file = directory.join("known_nodes");
        let change = |number| PinChange::Pinned(numbered(number));
        let changes = |number| Changes::from([(numbered(number).address, change(number))]);
        write(&file, &changes(1)).expect("written");
        let before = fs::read(&file).expect("readable");
        // The name of the new file is taken by something that cannot be removed.
        let taken = directory.join(format!("known_nodes.{}", std::process::id()));
        fs::create_dir(&taken).expect("made");
        write(&file, &changes(2)).expect_err("its place is taken");
        assert_eq!(fs::read(&file).expect("readable"), before);
        fs::remove_dir(&taken).expect("still there");
        write(&file, &changes(2)).expect("written");
        assert_eq!(addresses(&file).len(), 2);
    }
}
