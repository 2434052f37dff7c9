//! Work on several threads, where each piece takes a share of the machine.

use std::io;
use std::num::NonZeroU32;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A piece of work.
pub(crate) struct Piece<T> {
    /// Which share of the machine it takes, above 0 and up to 1.
    pub(crate) share: f64,
    /// Pieces of one round are all begun before those of the next.
    pub(crate) round: u32,
    pub(crate) work: T,
}

struct State<T> {
    waiting: Vec<Piece<T>>,
    running: usize,
    taken: f64,
}

impl<T> State<T> {
    /// Takes the first piece of the present round that fits beside what runs.
    fn next(&mut self) -> Option<Piece<T>> {
        let round = self.waiting.first()?.round;
        let free = 1.0 - self.taken + f64::EPSILON * 8.0;
        let fits = |piece: &Piece<T>| self.running == 0 || piece.share <= free;
        let mut present = self.waiting.iter().take_while(|piece| piece.round == round);
        let piece = self.waiting.remove(present.position(fits)?);
        self.running += 1;
        self.taken += piece.share;
        Some(piece)
    }

    fn give_back(&mut self, share: f64) {
        self.running -= 1;
        self.taken = if self.running == 0 { 0.0 } else { self.taken - share };
    }
}

/// Pieces that wait for a thread, and for room beside those that run.
struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a piece fits; none if none is left.
    fn next(&self) -> Option<Piece<T>> {
        let mut state = self.lock();
        loop {
            if let Some(piece) = state.next() {
                return Some(piece);
            }
            if state.waiting.is_empty() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does pieces until none is left.
    fn work(&self, work: &impl Fn(T) -> io::Result<()>) -> io::Result<()> {
        while let Some(piece) = self.next() {
            let done = work(piece.work);
            let mut state = self.lock();
            state.give_back(piece.share);
            if done.is_err() {
                state.waiting.clear();
            }
            self.changed.notify_all();
            drop(state);
            done?;
        }
        Ok(())
    }
}

/// Does `pieces`, ordered by round, on up to `threads` threads, at least one. The shares of those
/// that are done at once do not exceed 1 together, so one with a share of 1 is done alone.
///
/// # Errors
/// The first error of `work`; what has not begun by then is not done.
pub(crate) fn run<T: Send>(
    pieces: Vec<Piece<T>>,
    threads: u32,
    work: impl Fn(T) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let state = State { waiting: pieces, running: 0, taken: 0.0 };
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new() };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| queue.work(&work))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Does pieces that all take the same, on `threads` threads.
///
/// # Errors
/// As [`run`].
pub(crate) fn each<T: Send>(
    pieces: impl IntoIterator<Item = T>,
    threads: u32,
    work: impl Fn(T) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let share = 1.0 / f64::from(threads);
    let piece = |work| Piece { share, round: 0, work };
    run(pieces.into_iter().map(piece).collect(), threads, work)
}

/// The number of threads: `wanted`, or one for each processor.
pub(crate) fn threads(wanted: Option<NonZeroU32>) -> u32 {
    let here = || thread::available_parallelism().ok()?.try_into().ok();
    wanted.or_else(here).map_or(1, NonZeroU32::get)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn piece(share: f64, round: u32, work: u32) -> Piece<u32> {
        Piece { share, round, work }
    }

    #[test]
    fn what_fits_goes_before_what_does_not_but_not_before_an_earlier_round() {
        let waiting = vec![piece(0.6, 0, 0), piece(1.0, 0, 1), piece(0.4, 0, 2), piece(0.1, 1, 3)];
        let mut state = State { waiting, running: 0, taken: 0.0 };
        let mut next = || state.next().map(|piece| piece.work);
        assert_eq!([next(), next(), next()], [Some(0), Some(2), None]);
        state.give_back(0.6);
        assert!(state.next().is_none(), "the piece of the whole machine is left of this round");
        state.give_back(0.4);
        let (whole, then) = (state.next(), state.next());
        assert_eq!(whole.map(|piece| piece.work), Some(1));
        assert!(then.is_none(), "nothing fits beside it");
    }

    #[test]
    fn as_many_run_at_once_as_there_is_room_for() {
        let (together, done) = (Barrier::new(3), AtomicU32::new(0));
        let pieces = (0..6).map(|number| piece(1.0 / 3.0, 0, number)).collect();
        run(pieces, 3, |_| {
            together.wait();
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .expect("no error");
        assert_eq!(done.into_inner(), 6);
    }

    #[test]
    fn an_error_ends_the_rest() {
        let done = AtomicU32::new(0);
        let result = run((0..9).map(|number| piece(1.0, 0, number)).collect(), 2, |number| {
            done.fetch_add(1, Ordering::Relaxed);
            if number == 2 { Err(io::Error::other("no room on the disk")) } else { Ok(()) }
        });
        assert_eq!(result.expect_err("an error").to_string(), "no room on the disk");
        assert_eq!(done.into_inner(), 3);
    }
}
