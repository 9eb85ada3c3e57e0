//! The answer on the terminal: question, answer, what was measured, notes.

use super::markdown::{LEGEND, further_tables, tables};
use super::table::Table;
use crate::schema::Results;

/// How much is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The answer, the first workloads' tables, and notes; the rest is in the report.
    Main,
    /// Every table, and what each link's test found.
    Full,
}

impl Detail {
    /// The detail that `--full` asks for, or not.
    pub fn of(full: bool) -> Self {
        if full { Self::Full } else { Self::Main }
    }
}

/// Tables of workloads that are printed without `--full`: downloads and uploads, mostly.
const MAIN_TABLES: usize = 2;

/// Prints the answer, `width` columns wide where that is possible.
pub fn answer(results: &Results, width: usize, detail: Detail) -> String {
    let interrupted = results.incomplete();
    let mut text = String::new();
    for sentence in interrupted.iter().chain([&results.plan.question]) {
        text += &wrapped(sentence, width);
        text.push('\n');
    }
    for sentence in &results.answer {
        text += &wrapped(sentence, width);
    }
    let (mut shown, mut hidden) = (tables(results), 0);
    if detail == Detail::Main {
        hidden = shown.len().saturating_sub(MAIN_TABLES);
        shown.truncate(MAIN_TABLES);
    } else {
        shown.extend(further_tables(results));
    }
    for table in &shown {
        text.push('\n');
        text += &aligned(table);
    }
    text.push('\n');
    if hidden > 0 {
        let tables = if hidden == 1 { "table is" } else { "tables are" };
        text += &wrapped(&format!("{hidden} more {tables} in the report, or with --full."), width);
    }
    text += &wrapped(LEGEND, width);
    if detail == Detail::Full {
        text += &wrapped(FULL_LEGEND, width);
        for link in super::links::sentences(results) {
            text += &wrapped(&link, width);
        }
    }
    for warning in results.warnings.iter().filter(|warning| Some(*warning) != interrupted.as_ref())
    {
        text += &wrapped(&format!("Note: {warning}"), width);
    }
    text
}

const FULL_LEGEND: &str = "Round trips: before the first byte of the file. +bytes/MB: on the wire beyond the file, in \
                           its direction, per MB of it. Fixed cost and cost per GB: of the whole session, with the \
                           95 % interval; AICc prefers: that model of the overhead, or a line over log(size). Payload \
                           efficiency: bytes of file for each byte on the wire in its direction; headers: bytes of a \
                           full packet that are not the file's; content: whether a marker in a file could be read on \
                           the wire.";

pub(super) fn aligned(table: &Table) -> String {
    let columns = table.header.len();
    let width = |column: usize| {
        let rows = std::iter::once(&table.header).chain(&table.rows);
        rows.map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            let space = " ".repeat(width - cell.chars().count());
            if table.has_figures(column) {
                format!("{space}{cell}")
            } else {
                format!("{cell}{space}")
            }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let rule = widths.iter().map(|&w| "─".repeat(w)).collect::<Vec<_>>().join("──");
    let rows: String = table.rows.iter().map(line).collect();
    format!("{}{rule}\n{rows}", line(&table.header))
}

/// Breaks a sentence at spaces; further lines are indented.
pub fn wrapped(sentence: &str, width: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in sentence.split(' ') {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > width {
            text.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += len;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_letters() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let table =
            Table { header: row(["stack", "µs", "by"]), rows: vec![row(["ftp", "1 200", "CPU"])] };
        assert_eq!(aligned(&table), "stack     µs  by\n─────────────────\nftp    1 200  CPU\n");
        let table =
            Table { header: row(["stack", "", "off"]), rows: vec![row(["ftp", "get", "+1 %"])] };
        assert_eq!(aligned(&table), "stack        off\n────────────────\nftp    get  +1 %\n");
    }

    #[test]
    fn long_sentences_are_broken_at_spaces() {
        assert_eq!(wrapped("one two three", 8), "one two\n  three\n");
    }
}
