//! A thread of its own for what packets must not wait for, a disk above all.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// Longest time that the end of the daemon waits for a disk.
pub(crate) const FAREWELL: Duration = Duration::from_secs(5);
/// Pause before a thread that is busy at the end is asked again.
const FAREWELL_STEP: Duration = Duration::from_millis(10);

/// The thread as its owner sees it. It takes one `T` after the other.
#[derive(Debug)]
pub(crate) struct Handover<T> {
    /// Room for one, so that there is at most one piece of work behind the one under way.
    todo: SyncSender<T>,
    /// Says that the thread has ended.
    ended: Receiver<()>,
}

impl<T: Send + 'static> Handover<T> {
    /// Starts the thread `name`, which does `work` until there is nobody to hand anything over.
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(&Receiver<T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (todo, taken) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            work(&taken);
            let _ = end.send(());
        })?;
        Ok(Self { todo, ended })
    }

    /// Hands `item` over. Waits for nothing; gives it back if the thread is busy.
    pub(crate) fn offer(&self, item: T) -> Result<(), T> {
        match self.todo.try_send(item) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(item)) => Err(item),
        }
    }

    /// Hands over the last `item`, if there is one, and waits until the thread has done everything,
    /// but no longer than `limit`. Returns whether it has.
    pub(crate) fn finish(self, mut item: Option<T>, limit: Duration) -> bool {
        let mut left = limit;
        while let Some(next) = item.take() {
            item = self.offer(next).err();
            if item.is_none() || left.is_zero() {
                break;
            }
            left = left.saturating_sub(FAREWELL_STEP);
            thread::sleep(FAREWELL_STEP);
        }
        let Self { todo, ended } = self;
        drop(todo);
        ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout) && item.is_none()
    }
}
