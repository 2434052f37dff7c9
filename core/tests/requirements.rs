//! Every numbered requirement of `docs/protocol.md` with a MUST has a test that cites its number,
//! and no test cites one that does not exist.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose tests prove requirements.
const CRATES: [&str; 9] =
    ["types", "wire", "crypto", "transport", "segments", "core", "sim", "net", "daemon"];
/// Areas of requirements.
const AREAS: [char; 11] = ['W', 'H', 'P', 'F', 'S', 'O', 'A', 'E', 'T', 'J', 'D'];

/// A requirement: its area and number.
type Id = (char, u32);

/// All `[X-n]` in `text`.
fn cited(text: &str) -> impl Iterator<Item = Id> {
    text.split('[').skip(1).filter_map(|rest| {
        let (area, number) = rest.split(']').next()?.split_once('-')?;
        let area = area.parse().ok().filter(|area| AREAS.contains(area))?;
        Some((area, number.parse().ok()?))
    })
}

/// The requirements, each with its text.
fn requirements(document: &str) -> BTreeMap<Id, String> {
    let mut found = BTreeMap::new();
    let mut current = None;
    for line in document.lines() {
        if let Some(item) = line.strip_prefix("- `[") {
            let id = cited(&format!("[{item}")).next().unwrap();
            assert!(found.insert(id, String::new()).is_none(), "{id:?} stands twice");
            current = Some(id);
        } else if !line.starts_with("  ") {
            current = None;
        }
        if let Some(id) = current {
            *found.get_mut(&id).unwrap() += line;
        } else {
            let stray =
                line.contains("MUST") && !line.contains("`MUST`") && !line.contains("a MUST");
            assert!(!stray, "a MUST without a number: {line}");
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The requirements that the comment right before a test in `source` names.
fn proved(source: &str) -> BTreeSet<Id> {
    let mut proved = BTreeSet::new();
    let mut comment = String::new();
    let mut test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("//") {
            comment += line;
        } else if line.starts_with("#[") {
            test |= line == "#[test]";
        } else {
            if test && line.starts_with("fn ") {
                proved.extend(cited(&comment));
            }
            comment.clear();
            test = false;
        }
    }
    proved
}

#[test]
fn every_must_has_a_test_that_cites_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let requirements = requirements(&fs::read_to_string(root.join("docs/protocol.md")).unwrap());
    let mut files = Vec::new();
    for name in CRATES {
        for folder in ["src", "tests"] {
            let folder = root.join(name).join(folder);
            if folder.is_dir() {
                sources(&folder, &mut files);
            }
        }
    }
    let mut proofs = BTreeSet::new();
    for file in files {
        for id in proved(&fs::read_to_string(&file).unwrap()) {
            assert!(requirements.contains_key(&id), "{} cites {id:?}", file.display());
            proofs.insert(id);
        }
    }
    let must = requirements.iter().filter(|(_, text)| text.contains("MUST"));
    let open: Vec<_> = must.map(|(id, _)| id).filter(|id| !proofs.contains(id)).collect();
    assert!(open.is_empty(), "no test cites {open:?}");
    assert!(requirements.len() > 80, "{} requirements were found", requirements.len());
    for (area, number) in requirements.keys().filter(|(_, number)| *number > 1) {
        assert!(requirements.contains_key(&(*area, number - 1)), "{area}-{number} follows a hole");
    }
}

#[test]
fn citations_count_beside_tests_only() {
    let source = "/// [H-1] [P-2]\n#[test]\nfn proof() {\n // [S-3]\n}\n/// [F-1]\nfn helper() {}";
    assert_eq!(proved(source), BTreeSet::from([('H', 1), ('P', 2)]));
}
