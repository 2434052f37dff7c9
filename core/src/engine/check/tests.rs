use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

/// Seeds named `data*` must deliver packets to the other host, those named `none*` must not. Inputs
/// found by the fuzzer (40 hexadecimal digits) may do either.
#[test]
#[allow(clippy::disallowed_methods, reason = "corpora are files")]
fn the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/peer");
    let mut seeds = 0;
    for entry in fs::read_dir(&corpus).expect("a corpus") {
        let entry = entry.expect("readable");
        let name = entry.file_name().into_string().expect("ASCII");
        let brought = peer(&fs::read(entry.path()).expect("readable"));
        if name.len() != 40 {
            assert_eq!(brought > 0, name.starts_with("data"), "{name}: {brought}");
            seeds += 1;
        }
    }
    assert!(seeds >= 8, "{seeds} in {}", corpus.display());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn invariants_hold_whatever_an_authenticated_peer_sends(
        setting: [u8; 2],
        things in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..60)), 0..60),
    ) {
        let mut bytes = setting.to_vec();
        for (what, data) in things {
            bytes.extend([what, data.len() as u8]);
            bytes.extend(data);
        }
        peer(&bytes);
    }
}
