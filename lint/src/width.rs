//! The width of comments, which rustfmt leaves as they are.

use std::path::Path;

use crate::modules::source_files;

/// Columns of a line, as `max_width` of rustfmt.
const WIDTH: usize = 100;

/// The lines of comments in the crate at `directory` that are too long.
pub(crate) fn check(directory: &Path) -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    for file in source_files(directory)? {
        let text = std::fs::read_to_string(&file).map_err(|error| {
            format!("{}: {error}", file.display()) //
        })?;
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(width) = too_wide(line) {
                let place = file.display();
                findings
                    .push(format!("{place}:{number}: a comment of {width} columns, {WIDTH} fit"));
            }
        }
    }
    Ok(findings)
}

/// The width of `line`, if it is a comment that does not fit. A link cannot be broken.
fn too_wide(line: &str) -> Option<usize> {
    let width = line.chars().count();
    let comment = line.trim_start().starts_with("//");
    (comment && width > WIDTH && !line.contains("://")).then_some(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_is_wider_than_code_may_be_is_found() {
        let fits = format!("    // {}", "x".repeat(93));
        assert_eq!(too_wide(&fits), None);
        assert_eq!(too_wide(&format!("{fits}x")), Some(101));
        assert_eq!(too_wide(&"x".repeat(200)), None, "rustfmt's business");
    }

    #[test]
    fn all_directories_of_a_crate_are_searched_also_where_some_are_missing() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("src/deep");
        std::fs::create_dir_all(&source).expect("created");
        let comment = format!("// {}\n", "x".repeat(WIDTH));
        std::fs::write(source.join("file.rs"), comment).expect("written");
        let findings = check(directory.path()).expect("readable");
        assert_eq!(findings.len(), 1, "{findings:?}");
    }
}
