//! Link sets that the command line gives instead of drawn ones.

use std::io;

use super::distribution::{Path, Set};
use crate::scenario::Scenario;

/// The set of these paths, each with the keys of a scenario's `[[link]]`, separated by commas.
///
/// # Errors
/// What is wrong with the first path that is none.
pub(super) fn set(paths: &[String], seed: u64) -> io::Result<Set> {
    let paths = paths.iter().map(|keys| path(keys)).collect::<io::Result<_>>()?;
    Ok(Set::new(seed, paths))
}

/// Reads the keys in a scenario of this one link.
fn path(keys: &str) -> io::Result<Path> {
    let text = format!(
        r#"
        title = ""
        duration = "1 s"
        systems = []
        traffic = []
        interface = [
            {{ host = "client", name = "a", address = "198.18.0.1" }},
            {{ host = "server", name = "a", address = "198.18.0.2" }},
        ]
        link = [{{ name = "a", ends = ["client.a", "server.a"], {keys} }}]
        "#
    );
    let mut load = |file: &str| std::fs::read_to_string(file).map_err(|error| error.to_string());
    let found = Scenario::parse("--path", &text, &mut load).map_err(|error| error.message);
    let link = found.and_then(|scenario| match <[_; 1]>::try_from(scenario.links) {
        Ok([link]) if link.forward.rate.is_none() || link.reverse.rate.is_none() => {
            Err("expected a `rate`: nothing else limits a sender in virtual time".to_owned())
        }
        Ok([link]) => Ok(link),
        Err(links) => Err(format!("expected one link, found {}", links.len())),
    });
    link.map(|link| Path::new((link.forward, link.reverse))).map_err(|message| {
        let text = format!(
            "--path '{keys}': {message}\nexpected keys of a [[link]] of scenarios, as in --path \
             'rate = \"20 Mbit/s\", delay = \"10 ms\", loss = \"1 %\"'"
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use mpip_link::Loss;

    use super::*;

    #[test]
    fn a_path_has_the_keys_of_a_link() {
        let fast = r#"rate = "20 Mbit/s", delay = "10 ms", reverse = { loss = "1 %" }"#;
        let slow = r#"rate = "2 Mbit/s""#;
        let set = set(&[fast.to_owned(), slow.to_owned()], 7).expect("two links");
        let [(forward, back), (other, _)] = &set.links()[..] else { panic!("two paths") };
        assert_eq!((forward.rate, forward.delay), (Some(20_000_000), Duration::from_millis(10)));
        assert_eq!((forward.loss, back.loss), (Loss::None, Loss::Random(0.01)));
        assert_eq!((set.seed, other.rate), (7, Some(2_000_000)));
    }

    #[test]
    fn what_is_no_path_is_refused_with_an_example() {
        let refused = |keys: &str| set(&[keys.to_owned()], 0).expect_err(keys).to_string();
        assert!(refused(r#"speed = "20 Mbit/s""#).contains("unknown field `speed`"));
        assert!(refused(r#"rate = "fast""#).contains("fast"));
        assert!(refused("").contains("expected a `rate`"));
        assert!(refused(r#"delay = "10 ms""#).contains("expected a `rate`"));
        assert!(refused("rate").contains("expected keys of a [[link]]"));
        assert!(refused("}, {").contains("[[link]]"));
    }
}
