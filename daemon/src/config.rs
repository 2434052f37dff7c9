//! The configuration file: text → raw structures → [`Settings`].
//!
//! The raw structures (`raw`) define which keys exist and their types; the settings (`settings`)
//! are what the daemon works with, every value checked. An error (`error`) names file and line,
//! what was expected and what was found. Everything that is wrong is reported together.
//!
//! `structure` reads raw structures and notes unknown keys and values of wrong types; `suggestion`
//! finds what was meant. `resolve` makes settings; `change` says what of them can change while
//! the daemon runs, and `rule_list` is the part of it that is about rules. `resolve` calls a module
//! for each kind of section: `node`, `interface`, `path`, `host_mode`, `peer`, `rule`,
//! `opportunistic`. A rule that is given by itself is read by `structure` and `rule` too. These use
//! `values` (checks of single values), `rule_text` (those of rules), `keys` (key files) and
//! `problems` (the list of what is wrong), and never each other.

mod change;
mod error;
mod gateway;
mod host_mode;
mod interface;
mod keys;
mod node;
mod opportunistic;
mod path;
mod peer;
mod problems;
mod raw;
mod resolve;
mod rule;
mod rule_list;
pub(crate) mod rule_text;
mod settings;
mod structure;
mod suggestion;
mod values;

use std::path::{Path, PathBuf};

pub use change::{Changeable, SETTABLE};
pub(crate) use change::{Fixed, no_interface};
pub use error::{ConfigError, Problem};
pub use path::parse_loss_threshold;
pub use rule::Known;
pub use rule_list::{ListedRule, RuleList};
pub(crate) use settings::AMOUNT_UNITS;
pub use settings::{
    Budget, GatewaySettings, HostMode, InterfaceAddress, InterfaceState, OpportunisticSettings,
    PathProperties, Period, Place, RouterSettings, Settings,
};
pub(crate) use suggestion::did_you_mean;
pub(crate) use values::is_visible_name;

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

/// The control socket of the configuration in `file`, which may have errors elsewhere.
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
            node::default_socket(interface.as_deref().unwrap_or(interface::DEFAULT_NAME))
        },
        PathBuf::from,
    ))
}

/// Checks the configuration `text`. Errors name `file`, and relative paths start from its
/// directory.
pub fn parse(file: &Path, text: &str) -> Result<Settings, ConfigError> {
    resolve::resolve(file, text).map_err(|problems| ConfigError::new(file, problems))
}

#[cfg(test)]
pub(crate) mod tests;
