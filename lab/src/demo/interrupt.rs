//! Ends the demonstration after a signal, at points where it can clean up.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether this process was asked to end. A second signal ends it at once; the guard process
/// cleans up then.
pub(super) struct Interrupt {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Takes over SIGINT and SIGTERM.
    pub(super) fn register() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            // In this order: the first signal only sets the flag that the second one finds.
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&asked))?;
            flag::register(number, Arc::clone(&asked))?;
            flag::register_usize(number, Arc::clone(&signal), number.cast_unsigned() as usize)?;
        }
        Ok(Self { asked, signal })
    }

    /// # Errors
    /// [`io::ErrorKind::Interrupted`] once a signal came.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.asked.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        Ok(())
    }

    /// Sleeps, and fails like [`Self::check`].
    pub(super) fn sleep(&self, time: Duration) -> io::Result<()> {
        self.check()?;
        std::thread::sleep(time);
        self.check()
    }

    /// The exit code that shells use for the signal that came.
    pub(super) fn exit_code(&self) -> Option<ExitCode> {
        let signal = self.signal.load(Ordering::Relaxed);
        (signal != 0).then(|| ExitCode::from(128 + signal as u8))
    }
}
