//! `mpip top`: paths, sessions and events live, in the terminal.
//!
//! [`model`] is what is known and selected, [`keys`] what a key does, [`draw`] shows the model.
//! This file owns the terminal, and gives it back however the program ends.

mod draw;
mod keys;
mod model;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::sampler::{self, Sampler};
use keys::Next;
use model::Model;

/// How often signals are looked for.
const WAIT: Duration = Duration::from_millis(200);

/// Gives the terminal back when dropped. The hook that `ratatui::try_init` sets does so at a panic.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the daemon that listens on `socket` until a key or a signal ends the program.
pub(crate) fn run(socket: &Path) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return Err(Failure("expected a terminal; `mpip status` prints the state once".to_owned()));
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let mut sampler = Sampler::new(socket.to_owned());
    // What is wrong from the start is said without a screen.
    let mut model = Model::default();
    model.take(sampler.sample()?);
    model.colours = std::env::var_os("NO_COLOR").is_none();
    let mut screen = Screen(ratatui::try_init()?);
    let mut next = Instant::now() + sampler::interval(Duration::ZERO);
    screen.0.draw(|frame| draw::draw(&model, frame))?;
    while !ended.load(Ordering::Relaxed) {
        let now = Instant::now();
        let mut changed = false;
        if now >= next {
            let busy = sampler::processor_time();
            match sampler.sample() {
                Ok(sampled) => model.take(sampled),
                Err(error) => model.lose(error.to_string()),
            }
            let took = sampler::processor_time().saturating_sub(busy);
            next = now + sampler::interval(took);
            changed = true;
        }
        let wait = next.saturating_duration_since(Instant::now()).min(WAIT);
        // A signal that interrupts the wait is seen at the head of the loop.
        if event::poll(wait).unwrap_or(false) {
            if let Input::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && keys::press(&mut model, key) == Next::End
            {
                break;
            }
            changed = true;
        }
        if changed {
            screen.0.draw(|frame| draw::draw(&model, frame))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
