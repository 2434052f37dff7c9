//! Waits for several sources at once, with timeouts in nanoseconds.

use core::mem::{MaybeUninit, size_of, zeroed};
use core::num::NonZeroU64;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use mpip_types::Instant;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use crate::clock;

/// Most events that one [`Poller::wait`] returns. The next one returns the rest.
const MAX_EVENTS: usize = 64;

/// What to wait for at a source. Errors and hang-ups are always reported, as readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something can be read.
    Readable,
    /// Something can be written.
    Writable,
    /// Something can be read or written.
    ReadableWritable,
    /// Nothing but errors and hang-ups: the source is paused.
    Nothing,
}

impl Interest {
    /// The interest in reading, writing, both or nothing.
    pub fn of(read: bool, write: bool) -> Self {
        match (read, write) {
            (true, true) => Self::ReadableWritable,
            (true, false) => Self::Readable,
            (false, true) => Self::Writable,
            (false, false) => Self::Nothing,
        }
    }

    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Readable => epoll::EventFlags::IN,
            Self::Writable => epoll::EventFlags::OUT,
            Self::ReadableWritable => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Self::Nothing => epoll::EventFlags::empty(),
        }
    }
}

/// A source that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The token with which the source was added.
    pub token: u64,
    /// Whether a read returns something, perhaps an error.
    pub readable: bool,
    /// Whether a write may succeed.
    pub writable: bool,
    /// Whether there is an error or the other end hung up.
    pub failed: bool,
}

/// Waits for sources, level-triggered: a source is reported until it is read empty.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// A poller without sources.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds `source`, which events will name by `token`. Closing the source removes it.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, source, data, interest.flags())?)
    }

    /// Changes what is waited for at `source`.
    pub fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(&self.epoll, source, data, interest.flags())?)
    }

    /// Removes `source`.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Waits until sources are ready, at most for `timeout` (`None` for no limit), and puts them
    /// into `ready`. If a signal handler interrupts it, none are.
    pub fn wait(&self, ready: &mut Vec<Readiness>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); MAX_EVENTS];
        let events = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let failed = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        ready.extend(events.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            Readiness {
                token: data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | failed),
                writable: flags.contains(epoll::EventFlags::OUT),
                failed: flags.intersects(failed),
            }
        }));
        Ok(())
    }

    /// As [`wait`](Self::wait), but asks again and again until `until` instead of sleeping, so that
    /// what becomes ready meanwhile is known at once. Other threads get the processor if they want
    /// it.
    pub fn poll_busily(
        &self,
        ready: &mut Vec<Readiness>,
        timeout: Option<Duration>,
        until: Instant,
    ) -> io::Result<()> {
        let start = clock::now();
        let until = timeout.map_or(until, |timeout| until.min(start + timeout));
        let mut now = start;
        while now < until {
            self.wait(ready, Some(Duration::ZERO))?;
            if !ready.is_empty() {
                return Ok(());
            }
            rustix::thread::sched_yield();
            now = clock::now();
        }
        self.wait(ready, timeout.map(|timeout| timeout.saturating_sub(now.since(start))))
    }
}

/// Makes timeouts of the calling thread, and of threads that it spawns, precise to microseconds.
/// The kernel's default slack is 50 µs.
pub fn set_precise_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// Lowers the priority of the calling thread to nice value 5. On a busy core it gets a third of the
/// time of a thread with ordinary priority (sched(7)).
pub fn lower_priority() -> io::Result<()> {
    rustix::process::nice(5)?;
    Ok(())
}

/// Has the process ignore `SIGINT`, `SIGTERM` and `SIGHUP`, and the programs that it runs, too. A
/// program would get them again that is run while they are blocked.
pub fn ignore_termination() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: to ignore a signal takes no handler, whose code could be unsound.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Wakes a [`Poller`] from another thread.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// A waker, to be added to a poller and shared with other threads.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the poller return, now or at its next wait.
    pub fn wake(&self) {
        // Fails only when 2^64 - 2 wakes are pending; then it is awake.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Cancels all wakes so far, so that the poller can wait again.
    pub fn reset(&self) {
        // Fails only when no wake is pending.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A signal that the daemon answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGINT` or `SIGTERM`.
    Terminate,
    /// `SIGHUP`.
    Reload,
}

/// Signals as a source that can be polled.
///
/// They are blocked for the calling thread and for threads that it spawns later, so it has to be
/// made before any thread is spawned. They stay blocked when it is dropped.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Takes `SIGINT`, `SIGTERM` and `SIGHUP`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a signal set is plain data, for which zero is valid; each call gets a pointer to
        // it that is valid for the call.
        let fd = unsafe {
            let mut set: libc::sigset_t = zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            let error =
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, or `None`.
    pub fn read(&self) -> io::Result<Option<Signal>> {
        // SAFETY: the structure is plain data, for which zero is valid.
        let mut info: libc::signalfd_siginfo = unsafe { zeroed() };
        // SAFETY: `info` is writable for the length that is given.
        let count = unsafe {
            libc::read(
                self.0.as_raw_fd(),
                (&raw mut info).cast(),
                size_of::<libc::signalfd_siginfo>(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let hang_up = libc::SIGHUP.cast_unsigned();
        Ok(Some(if info.ssi_signo == hang_up { Signal::Reload } else { Signal::Terminate }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_ends_at_its_time_to_the_microsecond() {
        set_precise_timers().expect("timer slack");
        let poller = Poller::new().expect("epoll");
        let mut ready = Vec::new();
        let timeout = Duration::from_micros(1_300);
        // One of them is alone on its processor.
        let mut waits = (0..2_000).map(|_| {
            let start = Instant::now();
            poller.wait(&mut ready, Some(timeout)).expect("wait");
            assert!(ready.is_empty() && start.elapsed() >= timeout);
            start.elapsed()
        });
        assert!(waits.any(|wait| wait < timeout + Duration::from_micros(500)));
    }

    #[test]
    fn a_wake_from_another_thread_ends_the_wait_once() {
        let poller = Poller::new().expect("epoll");
        let waker = Arc::new(Waker::new().expect("eventfd"));
        poller.add(&*waker, 7, Interest::Readable).expect("add");
        let other = Arc::clone(&waker);
        let thread = std::thread::spawn(move || {
            other.wake();
            other.wake();
        });
        let mut ready = Vec::new();
        poller.wait(&mut ready, Some(Duration::from_secs(10))).expect("wait");
        assert_eq!(ready, [Readiness { token: 7, readable: true, writable: false, failed: false }]);
        thread.join().expect("no panic");
        waker.reset();
        poller.wait(&mut ready, Some(Duration::ZERO)).expect("wait");
        assert!(ready.is_empty());
    }

    #[test]
    fn busy_polling_ends_with_a_source_at_the_timeout_or_in_a_wait() {
        let poller = Poller::new().expect("epoll");
        let waker = Waker::new().expect("eventfd");
        poller.add(&waker, 7, Interest::Readable).expect("add");
        let mut ready = Vec::new();
        let (ever, timeout) = (super::Instant::FAR_FUTURE, Duration::from_millis(3));
        for until in [super::Instant::ZERO, clock::now() + timeout / 3, ever] {
            let start = clock::now();
            poller.poll_busily(&mut ready, Some(timeout), until).expect("poll");
            assert!(ready.is_empty() && clock::now().since(start) >= timeout, "{until:?}");
            waker.wake();
            poller.poll_busily(&mut ready, None, until).expect("poll");
            assert_eq!(ready.first().map(|ready| ready.token), Some(7), "{until:?}");
            waker.reset();
        }
    }

    #[test]
    fn a_paused_source_is_silent_until_it_is_resumed() {
        let poller = Poller::new().expect("epoll");
        let waker = Waker::new().expect("eventfd");
        poller.add(&waker, 1, Interest::Nothing).expect("add");
        waker.wake();
        let mut ready = Vec::new();
        poller.wait(&mut ready, Some(Duration::ZERO)).expect("wait");
        assert!(ready.is_empty());
        poller.modify(&waker, 1, Interest::ReadableWritable).expect("modify");
        poller.wait(&mut ready, Some(Duration::ZERO)).expect("wait");
        assert_eq!(ready, [Readiness { token: 1, readable: true, writable: true, failed: false }]);
        poller.remove(&waker).expect("remove");
        poller.wait(&mut ready, Some(Duration::ZERO)).expect("wait");
        assert!(ready.is_empty());
    }

    #[test]
    fn signals_arrive_as_data() {
        // A signal sent to the thread reaches the descriptor of the same thread only.
        let thread = std::thread::spawn(|| {
            let signals = Signals::new().expect("signalfd");
            assert_eq!(signals.read().expect("read"), None);
            for signal in [libc::SIGHUP, libc::SIGTERM] {
                // SAFETY: the signal is blocked in this thread, so nothing is interrupted.
                unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
            }
            let mut received = [signals.read(), signals.read()].map(|read| read.expect("read"));
            received.sort_by_key(|signal| *signal == Some(Signal::Terminate));
            assert_eq!(received, [Some(Signal::Reload), Some(Signal::Terminate)]);
            assert_eq!(signals.read().expect("read"), None);
        });
        thread.join().expect("no panic");
    }
}
