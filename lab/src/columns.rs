//! Tables for a terminal.

/// `lines` with columns as wide as their widest cell, in characters, two spaces apart.
pub(crate) fn aligned<const N: usize>(lines: &[[impl AsRef<str>; N]]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].as_ref().chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: [usize; N] = core::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let cells =
            line.iter().zip(widths).map(|(cell, width)| format!("{:width$}", cell.as_ref()));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_with_text() {
        let lines = [["a", "bc", "d"], ["äöü", "", ""], ["", "b", "c"]];
        assert_eq!(aligned(&lines), "a    bc  d\näöü\n     b   c\n");
    }
}
