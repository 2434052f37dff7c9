//! `mpip-lab parameters`: the table of the engine's parameters in `docs/engine.md`.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use clap::Args;
use mpip_core::Parameters;

use crate::document;

/// The table is behind this line.
const BEGIN: &str = "<!-- `mpip-lab parameters --write` makes what follows -->\n";

/// Prints the table, or writes it.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Writes the table into the document instead of printing it
    #[arg(long)]
    write: bool,
    /// The document
    #[arg(long, default_value = "docs/engine.md")]
    file: PathBuf,
}

/// Parameters with `settings`, each as `mechanism.parameter=value`.
///
/// # Errors
/// If a setting is malformed, or its parameter unknown or out of range.
pub(crate) fn set(
    mut parameters: Parameters,
    settings: &[impl AsRef<str>],
) -> io::Result<Parameters> {
    for setting in settings {
        let setting = setting.as_ref();
        let number = |text: &str| text.parse::<f64>().map_err(|error| error.to_string());
        let pair = setting.split_once('=').ok_or("expected mechanism.parameter=value".to_owned());
        let done = pair.and_then(|(name, value)| parameters.set(name, number(value)?));
        done.map_err(|error| io::Error::other(format!("{setting}: {error}")))?;
    }
    Ok(parameters)
}

/// The parameters of all mechanisms, in Markdown.
fn tables() -> String {
    let mut text = String::new();
    let mut parameters = Parameters::default();
    for (mechanism, about) in Parameters::mechanisms() {
        let _ = writeln!(text, "\n### `{mechanism}`\n\n{}\n", about.trim());
        text += "| parameter | default | range | what it does | source |\n|---|--:|---|---|---|\n";
        parameters.visit(&mut |name, parameter| {
            if name != mechanism {
                return;
            }
            let unit = parameter.unit;
            let (from, to) = (*parameter.range.start(), *parameter.range.end());
            let range = if unit.is_empty() && to == 1.0 {
                "off, on".to_owned()
            } else {
                format!("{from} to {to}")
            };
            let default = format!("{} {unit}", parameter.value.text());
            let (name, about) = (parameter.name, parameter.about.trim());
            let _ = writeln!(
                text,
                "| `{name}` | {} | {range} | {about} | {} |",
                default.trim(),
                parameter.source
            );
        });
    }
    text.push('\n');
    text
}

/// Prints or writes the table.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    if options.write {
        return document::update(&options.file, BEGIN, &tables());
    }
    print!("{}", tables());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_present_parameters() {
        let document = include_str!("../../docs/engine.md");
        let present = document::updated(document, BEGIN, &tables())
            .expect("the document has a place for the table");
        assert!(document == present, "run `mpip-lab parameters --write`");
    }

    #[test]
    fn every_parameter_is_in_the_table_once() {
        let tables = tables();
        let mut count = 0;
        Parameters::default().visit(&mut |_, parameter| {
            count += 1;
            assert!(!parameter.about.contains('|') && !parameter.source.contains('|'));
        });
        assert_eq!(tables.lines().filter(|line| line.starts_with("| `")).count(), count);
        assert!(count > 50, "{count}");
    }
}
