//! The documents: their tables render, and their links lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// What is wrong with the documents of the repository at `root`: those in it and below `docs`.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut files = markdown(root)?;
    for directory in [root.join("docs"), root.join("docs/decisions")] {
        if directory.is_dir() {
            files.extend(markdown(&directory)?);
        }
    }
    let mut texts = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
        texts.insert(plain(&file), text);
    }
    let anchors: BTreeMap<&PathBuf, BTreeSet<String>> =
        texts.iter().map(|(file, text)| (file, anchors(text))).collect();
    let mut findings = Vec::new();
    for (file, text) in &texts {
        let here = file.display();
        let found = tables(text).into_iter().chain(links(text, |target, anchor| {
            let directory = file.parent().unwrap_or(root);
            let target =
                if target.is_empty() { file.clone() } else { plain(&directory.join(target)) };
            match anchors.get(&target) {
                Some(all) => anchor.is_empty() || all.contains(anchor),
                None => target.exists(),
            }
        }));
        findings.extend(found.map(|(line, what)| format!("{here}:{line}: {what}")));
    }
    Ok(findings)
}

fn markdown(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    Ok(files)
}

/// `path` without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// Lines with their numbers, without blocks of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let free =
            std::iter::once(anchor.clone()).chain(again).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// The number of cells of a row. A bar in code or behind a backslash separates nothing.
fn cells(row: &str) -> usize {
    let (mut bars, mut code, mut escaped) = (0, false, false);
    for c in row.trim().chars() {
        match c {
            '`' if !escaped => code = !code,
            '|' if !escaped && !code => bars += 1,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    bars - 1
}

/// Rows that have not as many cells as the line of dashes above them.
fn tables(text: &str) -> Vec<(usize, String)> {
    let mut findings = Vec::new();
    let (mut width, mut before) = (None, None);
    for (number, line) in prose(text) {
        let is_row = line.starts_with('|');
        let is_rule = is_row && line.contains("---") && line.chars().all(|c| "|-: ".contains(c));
        if is_rule {
            width = Some(cells(line));
        }
        let wrong = match (is_row, width) {
            (true, Some(width)) if is_rule => before.filter(|(_, head)| *head != width),
            (true, Some(width)) => Some((number, cells(line))).filter(|(_, found)| *found != width),
            _ => None,
        };
        if let (Some((number, found)), Some(width)) = (wrong, width) {
            findings.push((number, format!("a row of {found} cells in a table of {width}")));
        }
        if !is_row {
            width = None;
        }
        before = is_row.then(|| (number, cells(line)));
    }
    findings
}

/// Links for which `leads` is false, given the file and the anchor that they name.
fn links(text: &str, leads: impl Fn(&str, &str) -> bool) -> Vec<(usize, String)> {
    let mut findings = Vec::new();
    for (number, line) in prose(text) {
        for rest in line.split("](").skip(1) {
            let Some((link, _)) = rest.split_once(')') else { continue };
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let elsewhere = link.contains("://") || link.starts_with("mailto:");
            if !elsewhere && !leads(target, anchor) {
                findings.push((number, format!("the link `{link}` leads nowhere")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_another_number_of_cells_than_its_table_is_found() {
        let good = "| a | b |\n|---|--:|\n| `x|y` | 2 \\| 3 |\n\n```\n| a |\n|---|---|\n```\n";
        assert_eq!(tables(good), []);
        let head = "| a | b | c |\n|---|---|\n| 1 | 2 |\n";
        assert_eq!(tables(head), [(1, "a row of 3 cells in a table of 2".to_owned())]);
        let row = "| a | b |\n|---|---|\n| 1 | 2 |\n| 1 |\n";
        assert_eq!(tables(row), [(4, "a row of 1 cells in a table of 2".to_owned())]);
    }

    #[test]
    fn headings_have_the_anchors_that_browsers_are_sent_to() {
        let text = "# `[[peer]]`\n## A b, c: d–e\n## Same\n## Same\n```\n# no heading\n```\n";
        let expected = ["a-b-c-de", "peer", "same", "same-1"].map(str::to_owned);
        assert_eq!(anchors(text), BTreeSet::from(expected));
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("docs")).expect("created");
        let write = |name: &str, text: &str| {
            std::fs::write(root.path().join(name), text).expect("written");
        };
        write("README.md", "# Top\n[a](docs/a.md#one) [b](docs/a.md#two) [c](#top) [d](x.rs)\n");
        write("docs/a.md", "## One\n[up](../README.md#top) [out](https://a.example/b#c)\n");
        let findings = check(root.path()).expect("readable");
        let places: Vec<&str> =
            findings.iter().filter_map(|finding| finding.rsplit("README.md").next()).collect();
        assert_eq!(
            places,
            [":2: the link `docs/a.md#two` leads nowhere", ":2: the link `x.rs` leads nowhere"]
        );
    }
}
