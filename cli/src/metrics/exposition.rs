//! The text format of Prometheus (version 0.0.4).

use std::fmt::Write;

/// Media type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric's value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows, until the daemon starts anew.
    Counter,
    /// It may fall.
    Gauge,
}

/// Text that grows by families of samples.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    out: String,
    name: &'static str,
    /// The family's lines, which are left out if no sample follows.
    heading: String,
}

impl Exposition {
    /// Begins a family, to which the samples that follow belong.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.name = name;
        self.heading = format!("# HELP {name} {}\n# TYPE {name} {kind}\n", escape(help, false));
    }

    /// One value of the family.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.out.push_str(&std::mem::take(&mut self.heading));
        self.out.push_str(self.name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let separator = if index == 0 { '{' } else { ',' };
            // Writing to a string does not fail.
            let _ = write!(self.out, "{separator}{label}=\"{}\"", escape(text, true));
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.out
    }
}

/// `text` with what would end its place escaped.
fn escape(text: &str, quoted: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quoted => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out
}
