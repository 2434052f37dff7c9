//! Scenario files on disk.

use std::io;
use std::path::{Path, PathBuf};

use crate::scenario::Scenario;

/// A scenario with its file.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// Name of the scenario: that of its file, without directory and extension.
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) scenario: Scenario,
}

impl Loaded {
    /// Writes the text into `scenarios/NAME-HASH.toml` beside results, so that they can be repeated
    /// after the file has changed.
    pub(crate) fn keep(&self, directory: &Path) -> io::Result<()> {
        let directory = directory.join("scenarios");
        let file = directory.join(format!("{}-{}.toml", self.name, hash(&self.text)));
        if file.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&directory)?;
        std::fs::write(file, &self.text)
    }
}

/// Hash of the text of a scenario: FNV-1a, as hexadecimal digits.
pub(crate) fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Parses a scenario; files that it names are relative to its own.
pub(crate) fn parse(file: &str, text: &str) -> io::Result<Scenario> {
    let directory = Path::new(file).parent().unwrap_or(Path::new(".")).to_owned();
    let mut load =
        |name: &str| std::fs::read_to_string(directory.join(name)).map_err(|e| e.to_string());
    Scenario::parse(file, text, &mut load)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads a scenario file.
pub(crate) fn load(path: &Path) -> io::Result<Loaded> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))?;
    let scenario = parse(&file, &text)?;
    let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Loaded { name, file, text, scenario })
}

/// The directory with the scenarios that come with the lab: `MPIP_LAB_SCENARIOS`, or beside the
/// sources.
pub(crate) fn directory() -> PathBuf {
    std::env::var_os("MPIP_LAB_SCENARIOS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios"), PathBuf::from)
}

/// All scenarios that come with the lab, by name.
pub(crate) fn all() -> io::Result<Vec<Loaded>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    paths.iter().map(|path| load(path)).collect()
}

/// A scenario by the name of one that comes with the lab, or by its file.
pub(crate) fn find(name: &str) -> io::Result<Loaded> {
    let own = directory().join(format!("{name}.toml"));
    if own.exists() { load(&own) } else { load(Path::new(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_that_comes_with_the_lab_is_valid() {
        let all = all().expect("all parse");
        assert!(all.len() >= 50, "{} scenarios", all.len());
        for loaded in &all {
            let subjects = crate::subject::subjects(&loaded.scenario);
            assert!(!subjects.is_empty(), "{}", loaded.name);
            assert!(!loaded.scenario.sets.is_empty(), "{}", loaded.name);
        }
    }
}
