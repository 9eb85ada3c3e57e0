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

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |row: &[String]| format!("| {} |\n", row.join(" | "));
        let rule = |column| if self.has_figures(column) { "---:|" } else { "---|" };
        let rules: String = (0..self.header.len()).map(rule).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}|{rules}\n{rows}", line(&self.header))
    }
}
