//! Keys pinned to addresses: a text file, as `known_hosts` is for `ssh`.
//!
//! A line is an address and the public key in base64; what follows `#` is a comment. The daemon
//! appends to it when an address proves to hold a key for the first time, and never changes or
//! removes a line: who trusts a changed key removes the line and starts the daemon anew.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use mpip_crypto::PublicKey;

/// Lines that a file begins with.
const HEADER: &str = "# Keys of mpip nodes, pinned to their addresses on first use: address, key.\n\
                      # To trust a node's new key, remove its line and restart mpipd.\n";

/// The pins in `file`; none if it does not exist.
pub(crate) fn load(file: &Path) -> Result<Vec<(IpAddr, PublicKey)>, String> {
    match fs::read_to_string(file) {
        Ok(text) => parse(&text).map_err(|error| format!("`{}`: {error}", file.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!(
            "expected a file of pinned keys or none, `{}` cannot be read: {error}",
            file.display()
        )),
    }
}

fn parse(text: &str) -> Result<Vec<(IpAddr, PublicKey)>, String> {
    let mut pins = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut fields = line.split('#').next().unwrap_or_default().split_whitespace();
        let (address, key) = match (fields.next(), fields.next(), fields.next()) {
            (None, ..) => continue,
            (Some(address), Some(key), None) => (address, key),
            _ => return Err(format!("line {number}: expected an address and a key")),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("line {number}: expected an address, found `{address}`"))?;
        let key: PublicKey = key.parse().map_err(|error| format!("line {number}: {error}"))?;
        if pins.insert(address, key).is_some() {
            return Err(format!(
                "line {number}: expected one key for an address, {address} has one"
            ));
        }
    }
    Ok(pins.into_iter().collect())
}

/// The file as the daemon adds to it.
#[derive(Debug)]
pub(crate) struct Pins {
    file: PathBuf,
}

impl Pins {
    /// The file, which need not exist yet.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// Adds a line. The file is replaced as a whole, so that whoever reads it, also after a loss
    /// of power, finds it with or without the line.
    pub(crate) fn add(&self, address: IpAddr, key: &PublicKey) -> Result<(), String> {
        let Self { file } = self;
        let replace = || {
            let mut text = match fs::read_to_string(file) {
                Ok(text) => text,
                Err(error) if error.kind() == ErrorKind::NotFound => HEADER.to_owned(),
                Err(error) => return Err(error),
            };
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("{address} {key}\n"));
            let directory = file.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(directory)?;
            let name = file.file_name().ok_or(io::Error::from(ErrorKind::InvalidInput))?;
            let mut new = name.to_owned();
            new.push(format!(".{}", std::process::id()));
            let new = directory.join(new);
            let mut written = File::create(&new)?;
            written.write_all(text.as_bytes())?;
            written.sync_all()?;
            fs::rename(&new, file)
        };
        replace().map_err(|error: io::Error| {
            format!("the key of {address} cannot be written to `{}`: {error}", file.display())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";

    fn key() -> PublicKey {
        KEY.parse().expect("a key")
    }

    fn directory(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("mpip-pins-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    #[test]
    fn pins_are_added_one_after_the_other_and_read_again() {
        let directory = directory("add");
        let file = directory.join("deeper/known_nodes");
        assert_eq!(load(&file), Ok(Vec::new()), "no file is no pins");
        let pins = Pins::new(file.clone());
        let addresses: [IpAddr; 2] = ["198.18.0.2", "2001:db8::2"].map(|a| a.parse().expect("v"));
        for address in addresses {
            pins.add(address, &key()).expect("written");
        }
        assert_eq!(load(&file), Ok(addresses.map(|address| (address, key())).to_vec()));
        let text = fs::read_to_string(&file).expect("readable");
        assert!(text.starts_with(HEADER) && text.lines().count() == 4, "{text}");
        let files = fs::read_dir(directory.join("deeper")).expect("listed").count();
        assert_eq!(files, 1, "nothing else is left there");
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn what_the_user_wrote_stays() {
        let directory = directory("keep");
        let file = directory.join("known_nodes");
        fs::write(&file, format!("  198.18.0.9\t{KEY}  # the gateway")).expect("written");
        Pins::new(file.clone()).add("198.18.0.2".parse().expect("v"), &key()).expect("written");
        let text = fs::read_to_string(&file).expect("readable");
        assert!(text.contains("# the gateway\n198.18.0.2 "), "{text}");
        assert_eq!(load(&file).map(|pins| pins.len()), Ok(2));
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn a_wrong_line_is_named() {
        let cases = [
            ("198.18.0.2\n".to_owned(), "line 1: expected an address and a key"),
            (format!("\n198.18.0.300 {KEY}"), "line 2: expected an address, found `198.18.0.300`"),
            (format!("198.18.0.2 {KEY} x"), "line 1: expected an address and a key"),
            (format!("198.18.0.2 {KEY}\n198.18.0.2 {KEY}"), "line 2: expected one key for"),
            ("198.18.0.2 abc".to_owned(), "line 1: "),
        ];
        for (text, expected) in cases {
            let error = parse(&text).expect_err(&text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
