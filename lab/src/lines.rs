//! Files of results: a JSON record in each line, added when it is known. What was measured before
//! an interruption is not lost.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A file of results that this process adds to.
#[derive(Debug)]
pub(crate) struct Lines(File);

impl Lines {
    /// Opens the file `name` in `directory`, and makes both if they do not exist. A last line that
    /// was interrupted is removed.
    ///
    /// # Errors
    /// Another process adds to the file; or it cannot be opened.
    pub(crate) fn open(directory: &Path, name: &str) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let path = directory.join(name);
        let file = OpenOptions::new().create(true).read(true).append(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                let message = format!(
                    "another mpip-lab adds results to {path}: wait until it ends, or choose another directory"
                );
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !ends_whole(&file)? {
            let bytes = std::fs::read(&path)?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            file.set_len(whole as u64)?;
        }
        Ok(Self(file))
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_string(record)?;
        line.push('\n');
        self.0.write_all(line.as_bytes())
    }
}

/// Whether the last line of `file` was not interrupted.
fn ends_whole(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == *b"\n")
}

/// The records of the file `name` in `directory`; none where there is no file. Lines that are no
/// such record, as an interrupted one, are ignored.
///
/// # Errors
/// The file cannot be opened.
pub(crate) fn read<T: DeserializeOwned>(directory: &Path, name: &str) -> io::Result<Vec<T>> {
    let path = directory.join(name);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let lines = BufReader::new(File::open(path)?).lines().map_while(Result::ok);
    Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use mpip_testing::Directory;

    use super::*;

    #[test]
    fn a_line_that_was_interrupted_is_removed_before_others_follow() {
        let directory = Directory::new();
        let path = directory.join("numbers.jsonl");
        std::fs::write(&path, "1\n2\n3").expect("written");
        let mut lines = Lines::open(directory.path(), "numbers.jsonl").expect("opened");
        lines.add(&4).expect("added");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "1\n2\n4\n");
        let numbers: Vec<u32> = read(directory.path(), "numbers.jsonl").expect("there");
        assert_eq!(numbers, [1, 2, 4]);
    }

    #[test]
    fn one_process_at_a_time_adds_to_a_file() {
        let directory = Directory::new();
        let lines = Lines::open(directory.path(), "a.jsonl").expect("opened");
        let error = Lines::open(directory.path(), "a.jsonl").expect_err("it is open");
        assert!(error.to_string().contains("a.jsonl: wait until it ends"), "{error}");
        Lines::open(directory.path(), "b.jsonl").expect("another file");
        drop(lines);
        Lines::open(directory.path(), "a.jsonl").expect("it is free");
    }
}
