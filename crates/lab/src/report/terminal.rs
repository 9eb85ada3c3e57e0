//! The answer on the terminal: sentences, then a table.

use super::markdown::{Table, tables};
use crate::results::Results;

/// The answer, `width` columns wide where that is possible.
pub fn answer(results: &Results, width: usize) -> String {
    let mut text = String::new();
    let cut = results.incomplete();
    if let Some(sentence) = &cut {
        text += &wrapped(sentence, width);
        text += "\n";
    }
    for sentence in &results.answer {
        text += &wrapped(sentence, width);
    }
    for table in tables(results) {
        text += "\n";
        text += &aligned(&table);
    }
    text += "\n";
    text += &wrapped(
        "Round trips: before the file's first octet. Bytes: octets on the wire beyond the file, per MB of \
         file, in its direction. Overhead: time from the first data command to completion against \
         the baseline, ± half of its 95 % interval; a baseline shows its time. Limited by: at the largest size. Fixed cost and cost per GB: of the whole \
         session, login included, ± half of the 95 % interval; fits within: the worst size; AICc prefers: \
         that model of the overhead, or a line over log(size). Payload \
         efficiency: octets of file for each octet on the wire in its direction; headers: octets of a full packet that are \
         not the file's; content: whether a marker in a file could be read on the wire.",
        width,
    );
    for link in super::links::sentences(results) {
        text += &wrapped(&link, width);
    }
    for warning in results.warnings.iter().filter(|warning| Some(*warning) != cut.as_ref()) {
        text += &wrapped(&format!("Note: {warning}"), width);
    }
    text
}

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
pub(super) fn wrapped(sentence: &str, width: usize) -> String {
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
