//! Tables as every report has them.

/// A header and rows of as many cells.
#[derive(Debug)]
pub struct Table {
    /// The titles of the columns; the first is that of the rows.
    pub header: Vec<String>,
    /// As many cells each.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Whether a column's cells are figures, which stand to the right.
    pub fn has_figures(&self, column: usize) -> bool {
        let is_figure = |row: &Vec<String>| {
            row[column].starts_with(|c: char| c.is_ascii_digit() || "+-×".contains(c))
        };
        column > 0 && self.rows.iter().any(is_figure)
    }

    /// Characters of each column's widest cell.
    pub fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let rows = std::iter::once(&self.header).chain(&self.rows);
            rows.map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        (0..self.header.len()).map(width).collect()
    }

    /// Characters of a line on a terminal.
    pub fn columns_wide(&self) -> usize {
        self.widths().iter().sum::<usize>() + 2 * self.header.len().saturating_sub(1)
    }

    /// Shortens the names of the rows, so that the table is narrower by `excess` characters.
    pub fn shorten_names(&mut self, excess: usize) {
        let longest = self.widths().first().copied().unwrap_or(0);
        let most = longest.saturating_sub(excess).max(8);
        for name in std::iter::once(&mut self.header).chain(&mut self.rows) {
            if name[0].chars().count() > most {
                name[0] = name[0].chars().take(most - 1).chain(['…']).collect();
            }
        }
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |row: &[String]| format!("| {} |\n", row.join(" | "));
        let rule = |column| if self.has_figures(column) { "---:|" } else { "---|" };
        let rules: String = (0..self.header.len()).map(rule).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}|{rules}\n{rows}", line(&self.header))
    }
}
