//! The helper: reads rulesets from standard input and hands them to `nft`.
//!
//! A message is a line `now LENGTH` or `end LENGTH`, and so many bytes. What comes with `now` is
//! applied at once; the last that came with `end`, when the input ends.

use std::io::{self, BufRead, Read, Write};
use std::process::{Command, Stdio};

use mpip_net::{ignore_termination, privileges};

/// Longest ruleset, bytes.
const LONGEST: u64 = 1 << 20;

/// Runs until standard input ends, which is when the daemon is gone.
pub fn run() -> io::Result<()> {
    // Whoever ends the daemon's whole group, as systemd does, ends neither the helper before it nor
    // an `nft` that sets what is to stay.
    ignore_termination()?;
    privileges::hand_on_net_admin()?;
    let mut input = io::stdin().lock();
    let mut end = String::new();
    while let Some((when, script)) = read(&mut input)? {
        match when.as_str() {
            "now" => report(apply(&script)),
            _ => end = script,
        }
    }
    if !end.is_empty() {
        report(apply(&end));
    }
    Ok(())
}

fn report(result: Result<(), String>) {
    if let Err(error) = result {
        log::error!("nftables: {error}");
    }
}

/// The next message.
fn read(input: &mut impl BufRead) -> io::Result<Option<(String, String)>> {
    let mut line = String::new();
    if input.by_ref().take(64).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let (when, len) = line.trim_end().split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
    let len: u64 = len.parse().map_err(|_| io::ErrorKind::InvalidData)?;
    if len > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut script = String::new();
    // Half a message is what a daemon was writing that was killed.
    let read = input.by_ref().take(len).read_to_string(&mut script)?;
    Ok((read as u64 == len).then(|| (when.to_owned(), script)))
}

/// Has `nft` apply `script`: all of it, or nothing.
pub(super) fn apply(script: &str) -> Result<(), String> {
    let nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut nft = nft.map_err(|error| format!("cannot run `nft`: {error}"))?;
    if let Some(mut stdin) = nft.stdin.take() {
        // If it does not read, it says why.
        let _ = stdin.write_all(script.as_bytes());
    }
    let output = nft.wait_with_output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_are_read_whole_or_not_at_all() {
        let mut input = &b"now 3\nabcend 2\nxynow 9\nhalf"[..];
        let read = |input: &mut &[u8]| super::read(input).expect("well-formed");
        assert_eq!(read(&mut input), Some(("now".to_owned(), "abc".to_owned())));
        assert_eq!(read(&mut input), Some(("end".to_owned(), "xy".to_owned())));
        assert_eq!(read(&mut input), None);
        for bad in ["now\n", "now x\n", "now 9999999\n"] {
            assert!(super::read(&mut bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
