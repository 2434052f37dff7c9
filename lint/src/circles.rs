//! No module may need, directly or by others, a module that needs it.
//!
//! A file is a module together with its inline modules. It needs the files that define the names in
//! its `use` items and in the paths of its code. For a re-exported name, the file with the
//! definition counts; a `pub use` itself needs nothing. Test code is left out, and so are method
//! calls, because the source does not show the types.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::graph;
use crate::modules::Crate;

/// The circles among the modules of the crate at `directory`, each in words.
pub(crate) fn check(directory: &Path) -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    for root in ["src/lib.rs", "src/main.rs"] {
        let root = directory.join(root);
        if root.is_file() {
            findings.extend(find(&Crate::read(&root)?));
        }
    }
    Ok(findings)
}

fn find(found: &Crate) -> Vec<String> {
    // Which names each file takes from which other.
    let mut taken: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
    for (index, module) in found.modules.iter().enumerate() {
        for path in &module.paths {
            let Some(definition) = found.definition(index, path) else { continue };
            let (from, to) = (module.file, found.modules[definition].file);
            if from != to {
                taken.entry((from, to)).or_default().insert(path.join("::"));
            }
        }
    }
    let mut edges = vec![Vec::new(); found.files.len()];
    for (from, to) in taken.keys() {
        edges[*from].push(*to);
    }
    let circles = graph::circles(&edges).into_iter();
    circles.map(|files| describe(found, &files, &taken)).collect()
}

fn describe(
    found: &Crate,
    files: &[usize],
    taken: &BTreeMap<(usize, usize), BTreeSet<String>>,
) -> String {
    let mut text = format!("{} modules need each other in a circle:", files.len());
    for ((from, to), names) in taken {
        if files.contains(from) && files.contains(to) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (from, to) = (found.files[*from].display(), found.files[*to].display());
            text += &format!("\n    {from} needs {to} for {}", names.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings for a crate of these files.
    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = directory.path().join("src").join(name);
            std::fs::create_dir_all(path.parent().expect("below src")).expect("created");
            std::fs::write(path, text).expect("written");
        }
        check(directory.path()).expect("a crate")
    }

    #[test]
    fn a_child_that_uses_what_its_parent_defines_and_the_parent_what_the_child_does_are_a_circle() {
        let child = ("engine/path.rs", "use super::Engine; pub struct Path; fn f(_: Engine) {}");
        let found = findings(&[
            ("lib.rs", "mod engine;"),
            ("engine.rs", "mod path; pub struct Engine { path: path::Path }"),
            child,
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("engine.rs needs"), "{found:?}");
        assert!(found[0].contains("for path::Path"), "{found:?}");
        let found = findings(&[
            ("lib.rs", "mod engine;"),
            ("engine.rs", "mod path; pub struct Engine;"),
            child,
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_circle_through_re_exports_macros_and_three_files_is_found() {
        let found = findings(&[
            ("lib.rs", "mod a; mod b; mod c; pub use c::C;"),
            ("a.rs", "pub struct A(crate::b::B);"),
            ("b.rs", "pub struct B; fn f() { println!(\"{}\", crate::C::NAME); }"),
            ("c.rs", "use crate::a; pub struct C; fn f(_: a::A) {}"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("3 modules"), "{found:?}");
    }

    #[test]
    fn what_tests_import_and_what_other_crates_define_ties_nothing() {
        let found = findings(&[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "use std::fmt::Debug; pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("b.rs", "use crate::a::A; pub struct B(A);"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_module_that_is_missing_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("src")).expect("created");
        std::fs::write(directory.path().join("src/lib.rs"), "mod gone;").expect("written");
        let error = check(directory.path()).expect_err("there is no such file");
        assert!(error.contains("gone"), "{error}");
    }
}
