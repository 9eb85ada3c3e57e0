//! The answer on the terminal: one screen, or all tables and notes.

use super::markdown::{LEGEND, further_tables, tables};
use super::table::Table;
use crate::schema::Results;

/// Amount of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The answer and one table, on one screen.
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

/// Prints the answer, `width` columns wide where that is possible.
pub fn answer(results: &Results, width: usize, detail: Detail) -> String {
    match detail {
        Detail::Main => super::brief::answer(results, width),
        Detail::Full => full(results, width),
    }
}

fn full(results: &Results, width: usize) -> String {
    let interrupted = results.incomplete();
    let mut text = String::new();
    for sentence in interrupted.iter().chain([&results.plan.question]) {
        text += &wrapped(sentence, width);
        text.push('\n');
    }
    for sentence in &results.answer {
        text += &wrapped(sentence, width);
    }
    for table in tables(results).iter().chain(&further_tables(results)) {
        text.push('\n');
        text += &aligned(table);
    }
    text.push('\n');
    text += &wrapped(LEGEND, width);
    text += &wrapped(FULL_LEGEND, width);
    for link in super::links::sentences(results) {
        text += &wrapped(&link, width);
    }
    for warning in results.warnings.iter().filter(|warning| Some(*warning) != interrupted.as_ref())
    {
        text += &wrapped(&format!("Note: {warning}"), width);
    }
    text
}

const FULL_LEGEND: &str = "Round trips: before the first payload byte. +bytes/MB: protocol overhead per MB of payload. \
                           Fixed cost and cost/GB: of the session, with the 95 % interval. AICc prefers: this model of \
                           the overhead, or a line over log(size). Payload efficiency: payload bytes per byte on the \
                           wire, in their direction. Headers/packet: bytes of a full packet that are not payload. \
                           Content: whether a marker in a file was readable on the wire.";

pub(super) fn aligned(table: &Table) -> String {
    let widths = table.widths();
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
