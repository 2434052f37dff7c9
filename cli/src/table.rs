//! Text in columns.

/// A text and the colour that it has on a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
}

/// Colours, by meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// It works.
    Green,
    /// It may work soon, or need not.
    Yellow,
    /// It does not work.
    Red,
    /// Less important.
    Dim,
}

impl Colour {
    /// The ECMA-48 sequence that begins the colour.
    fn begin(self) -> &'static str {
        match self {
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
            Self::Dim => "\x1b[2m",
        }
    }

    /// `text` in this colour, or as it is without `colours`.
    pub(crate) fn paint(self, text: &str, colours: bool) -> String {
        if colours { format!("{}{text}\x1b[0m", self.begin()) } else { text.to_owned() }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, colour: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    pub(crate) fn coloured(text: &str, colour: Colour) -> Self {
        Self { text: text.to_owned(), colour: Some(colour) }
    }
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a heading; every column is as wide as its widest text.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell per column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// The table's lines, each behind `indent`.
    pub(crate) fn render(&self, indent: &str, colours: bool) -> String {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, (heading, _))| {
                let cells = self.rows.iter().map(|row| row[index].text.chars().count());
                cells.chain([heading.chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let heading: Vec<Cell> =
            self.columns.iter().map(|(name, _)| Cell::coloured(name, Colour::Dim)).collect();
        let mut out = String::new();
        for row in [&heading].into_iter().chain(&self.rows) {
            let mut line = String::from(indent);
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                if line.len() > indent.len() {
                    line.push_str("  ");
                }
                let space = " ".repeat(width - cell.text.chars().count());
                let text = match cell.colour {
                    Some(colour) => colour.paint(&cell.text, colours),
                    None => cell.text.clone(),
                };
                match align {
                    Align::Left => line.extend([text, space]),
                    Align::Right => line.extend([space, text]),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_with_and_without_colours() {
        let mut table = Table::new(&[("a", Align::Left), ("rate", Align::Right)]);
        table.row(vec![Cell::coloured("active", Colour::Green), "9".into()]);
        table.row(vec!["é".into(), "12345".into()]);
        let plain = table.render("  ", false);
        assert_eq!(plain, "  a        rate\n  active      9\n  é       12345\n");
        let coloured = table.render("  ", true);
        assert!(coloured.contains("\x1b[32mactive\x1b[0m      9"), "{coloured:?}");
    }
}
