//! The configuration file: text → raw structures → [`Settings`].
//!
//! The raw structures say which keys exist and of what type they are; the settings are what the
//! daemon works with, every value checked. An error names file, line, what was expected and what
//! came; all that is wrong with values is reported together.

mod error;
mod keys;
mod opportunistic;
mod raw;
mod resolve;
mod rule;
mod settings;

use std::path::{Path, PathBuf};

pub use error::{ConfigError, Problem};
pub use settings::{HostMode, InterfaceAddress, OpportunisticSettings, Place, Settings};

/// Reads and checks the configuration in `file` and the key files that it names.
pub fn load(file: &Path) -> Result<Settings, ConfigError> {
    parse(file, &read(file)?)
}

fn read(file: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(file).map_err(|error| {
        let message = format!("expected a configuration file that can be read: {error}");
        ConfigError::new(file, vec![Problem { line: None, message }])
    })
}

/// The control socket of the configuration in `file`, whatever else is wrong with it and whether or
/// not its key files can be read.
pub fn control_socket(file: &Path) -> Result<PathBuf, ConfigError> {
    let text = read(file)?;
    let table: toml::Table = text
        .parse()
        .map_err(|error| ConfigError::new(file, vec![Problem::syntax(&text, &error)]))?;
    let value =
        |section: &str, key: &str| table.get(section)?.get(key)?.as_str().map(str::to_owned);
    Ok(value("node", "control_socket").map_or_else(
        || {
            let interface = value("interface", "name");
            resolve::default_socket(interface.as_deref().unwrap_or(resolve::DEFAULT_INTERFACE))
        },
        PathBuf::from,
    ))
}

/// Checks the configuration `text`; `file` is named in errors, and relative paths start from its
/// directory.
pub fn parse(file: &Path, text: &str) -> Result<Settings, ConfigError> {
    let raw: raw::Config = toml::from_str(text)
        .map_err(|error| ConfigError::new(file, vec![Problem::syntax(text, &error)]))?;
    resolve::resolve(file, text, &raw).map_err(|problems| ConfigError::new(file, problems))
}

#[cfg(test)]
mod tests;
