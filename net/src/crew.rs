//! Threads that do what needs no engine: they seal and send, receive and open.

use core::fmt;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// What a crew works for. Each call does one piece of work, on any thread.
pub(crate) trait Work: Send + Sync {
    /// Does the next piece.
    fn work(&self);
}

/// Threads that sleep until there is work. They end, after all that they were given, when this is
/// dropped.
pub(crate) struct Crew {
    desk: Desk,
    threads: Vec<JoinHandle<()>>,
}

/// Where a crew gets its work. What works for a crew may have it, unlike the crew itself, which no
/// thread of its own may drop.
#[derive(Clone, Default)]
pub(crate) struct Desk(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    /// For whom to work, once for each piece.
    pieces: VecDeque<Arc<dyn Work>>,
    /// Threads that sleep and were not woken yet.
    asleep: usize,
    ended: bool,
}

impl Crew {
    /// Starts `count` threads.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let mut crew = Self { desk: Desk::default(), threads: Vec::with_capacity(count) };
        for number in 1..=count {
            let shared = Arc::clone(&crew.desk.0);
            let thread = thread::Builder::new().name(format!("packets-{number}"));
            crew.threads.push(thread.spawn(move || shared.run())?);
        }
        Ok(crew)
    }

    /// Where it gets its work.
    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }
}

impl Desk {
    /// Has `count` pieces of work done for `whom`, which has them already.
    pub(crate) fn give(&self, whom: &Arc<dyn Work>, count: usize) {
        let mut state = lock(&self.0.state);
        state.pieces.extend((0..count).map(|_| Arc::clone(whom)));
        let woken = state.asleep.min(count);
        state.asleep -= woken;
        drop(state);
        for _ in 0..woken {
            self.0.ready.notify_one();
        }
    }

    /// Whether there is a piece of work for `whom` that no thread has begun with.
    pub(crate) fn has(&self, whom: &Arc<dyn Work>) -> bool {
        lock(&self.0.state).pieces.iter().any(|other| Arc::ptr_eq(other, whom))
    }

    /// Takes a piece of work for `whom` back, which the caller does then; `false` if threads have
    /// begun with all of them.
    pub(crate) fn take_back(&self, whom: &Arc<dyn Work>) -> bool {
        let mut state = lock(&self.0.state);
        let found = state.pieces.iter().position(|other| Arc::ptr_eq(other, whom));
        found.is_some_and(|index| state.pieces.remove(index).is_some())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        lock(&self.desk.0.state).ended = true;
        self.desk.0.ready.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crew({})", self.threads.len())
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

impl Shared {
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(whom) = state.pieces.pop_front() {
                drop(state);
                whom.work();
                drop(whom);
                state = lock(&self.state);
            } else if state.ended {
                return;
            } else {
                state.asleep += 1;
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Locks `mutex`, whose content is whole also after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Work for Count {
        fn work(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_piece_is_done_by_the_crew_or_taken_back() {
        let crew = Crew::start(2).expect("threads");
        let count = Arc::new(Count::default());
        let whom: Arc<dyn Work> = Arc::clone(&count) as Arc<dyn Work>;
        let mut taken = 0;
        for _ in 0..500 {
            crew.desk().give(&whom, 3);
            taken += usize::from(crew.desk().take_back(&whom));
        }
        drop(crew);
        assert_eq!(count.0.load(Ordering::Relaxed) + taken, 1_500);
    }

    #[test]
    fn every_piece_is_done_before_the_crew_ends() {
        for threads in 1..4 {
            let crew = Crew::start(threads).expect("threads");
            let counts: Vec<_> = (0..3).map(|_| Arc::new(Count::default())).collect();
            for round in 0..400 {
                for (index, count) in counts.iter().enumerate() {
                    let whom: Arc<dyn Work> = Arc::clone(count) as Arc<dyn Work>;
                    crew.desk().give(&whom, (round + index) % 4);
                }
            }
            drop(crew);
            let done: Vec<_> = counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect();
            assert_eq!(done, [600; 3], "{threads} threads");
        }
    }
}
