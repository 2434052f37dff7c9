//! The output of the demonstration: bars redrawn in place on a terminal, else plain lines from time
//! to time.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::world::{self, LINK_RATE, PATHS};

const BAR: usize = 30;
/// Interval of plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(2);
const NAME: usize = 32;

/// A moment of a transfer.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    /// Time since its start.
    pub(super) seconds: f64,
    /// Payload rate, in bit/s.
    pub(super) rate: f64,
    /// Rate of each path, in bit/s.
    pub(super) paths: [f64; PATHS],
    /// Progress, 0 to 1.
    pub(super) done: f64,
    /// A note on the current event.
    pub(super) note: String,
}

/// Standard output.
pub(super) struct Screen {
    terminal: bool,
    colour: bool,
    /// Lines of the block that the next one replaces.
    drawn: usize,
    plain_since: Option<Instant>,
    name: String,
}

impl Screen {
    pub(super) fn new() -> Self {
        let terminal = io::stdout().is_terminal()
            && std::env::var_os("TERM").is_some_and(|terminal| terminal != "dumb");
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { terminal, colour, drawn: 0, plain_since: None, name: String::new() }
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, name: &str) -> io::Result<()> {
        name.clone_into(&mut self.name);
        self.plain_since = None;
        if self.terminal { self.replace(&[format!("  {name} …")]) } else { Ok(()) }
    }

    /// Ends a step; `result` stays on the screen.
    pub(super) fn end(&mut self, result: &str) -> io::Result<()> {
        let line = format!("  {}{}", self.padded_name(), self.bold(result));
        if self.terminal {
            self.replace(&[])?;
        }
        self.text(&line)
    }

    /// Prints lines that stay.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        self.drawn = 0;
        writeln!(io::stdout(), "{text}")
    }

    /// Shows the progress of the step.
    pub(super) fn show(&mut self, view: &View) -> io::Result<()> {
        if self.terminal { self.draw(view) } else { self.print(view) }
    }

    fn draw(&mut self, view: &View) -> io::Result<()> {
        let total = self.bold(&format!("{:5.1} Mbit/s", view.rate / 1e6));
        let (done, note) = (view.done * 100.0, self.highlight(&view.note));
        let progress = bar(view.done, '━', '─');
        let mut lines = vec![
            format!("  {}{total}   {:4.1} s", self.padded_name(), view.seconds),
            format!("    {:7}  {progress} {done:5.0} %   {note}", ""),
        ];
        for (path, rate) in view.paths.iter().enumerate() {
            let drawn = self.colour_of(path, &bar(rate / LINK_RATE, '█', '░'));
            lines.push(format!("    {:7}  {drawn} {:5.1} Mbit/s", path_name(path), rate / 1e6));
        }
        self.replace(&lines)
    }

    fn print(&mut self, view: &View) -> io::Result<()> {
        if self.plain_since.is_none() {
            writeln!(io::stdout(), "  {} …", self.name)?;
        }
        let due = *self.plain_since.get_or_insert_with(Instant::now) + PLAIN_INTERVAL;
        if Instant::now() < due {
            return Ok(());
        }
        self.plain_since = Some(Instant::now());
        let paths = (0..PATHS).filter(|path| view.paths[*path] > 0.0);
        let paths = paths.map(|path| format!("{} {:.1}", path_name(path), view.paths[path] / 1e6));
        let paths = paths.collect::<Vec<_>>().join(", ");
        let note = if view.note.is_empty() { String::new() } else { format!("; {}", view.note) };
        writeln!(
            io::stdout(),
            "    {:4.1} s, {:3.0} %: {:5.1} Mbit/s ({paths}){note}",
            view.seconds,
            view.done * 100.0,
            view.rate / 1e6
        )
    }

    /// Draws a block over the last one.
    fn replace(&mut self, lines: &[String]) -> io::Result<()> {
        // Lines that are too long for the terminal are cut, or the block would grow.
        let mut frame = String::from("\x1b[?7l");
        if self.drawn > 0 {
            frame += &format!("\x1b[{}A\r\x1b[J", self.drawn);
        }
        for line in lines {
            frame += line;
            frame.push('\n');
        }
        frame += "\x1b[?7h";
        self.drawn = lines.len();
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }

    fn padded_name(&self) -> String {
        format!("{:NAME$}", self.name)
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Emphasises text.
    pub(super) fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    fn highlight(&self, text: &str) -> String {
        self.styled("1;33", text)
    }

    /// Paths that leave by the same link have the same colour.
    fn colour_of(&self, path: usize, text: &str) -> String {
        self.styled(if path < PATHS / 2 { "36" } else { "35" }, text)
    }
}

/// `a1→b2`.
pub(super) fn path_name(path: usize) -> String {
    let (a, b) = world::path_ends(path);
    format!("{}→{}", a.name, b.name)
}

fn bar(part: f64, full: char, empty: char) -> String {
    let filled = ((part.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
    (0..BAR).map(|index| if index < filled { full } else { empty }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_width_whatever_is_to_be_shown() {
        for (part, filled) in [(-1.0, 0), (0.0, 0), (0.5, 15), (1.0, 30), (7.0, 30), (f64::NAN, 0)]
        {
            let bar = bar(part, '#', '-');
            assert_eq!(bar.len(), BAR);
            assert_eq!(bar.matches('#').count(), filled, "{part}");
        }
    }

    #[test]
    fn paths_have_the_names_of_their_ends() {
        let names: Vec<_> = (0..PATHS).map(path_name).collect();
        assert_eq!(names, ["a1→b1", "a1→b2", "a2→b1", "a2→b2"]);
    }
}
