//! Every requirement on the encoding (`[W-n]` in `docs/protocol.md`) has a test that cites it, and
//! no test cites a requirement that does not exist.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The `n` of all `[W-n]` in `text`.
fn cited(text: &str) -> BTreeSet<u32> {
    text.split("[W-").skip(1).filter_map(|rest| rest.split(']').next()?.parse().ok()).collect()
}

#[test]
fn every_wire_requirement_has_a_test_that_cites_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let required = cited(&fs::read_to_string(root.join("../docs/protocol.md")).unwrap());
    let mut tests = fs::read_to_string(root.join("src/tests.rs")).unwrap();
    for entry in fs::read_dir(root.join("src/tests")).unwrap() {
        tests += &fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    assert_eq!(cited(&tests), required);
    let count = u32::try_from(required.len()).unwrap();
    assert_eq!(required, (1..=count).collect(), "numbers without a hole");
}
