//! Columns of a terminal: tables that line up, and sentences that fit.

use super::table::Table;

/// Prints a table whose columns line up.
pub fn aligned(table: &Table) -> String {
    let widths = table.widths();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            let (space, cell) = (" ".repeat(width - cell.chars().count()), plain(cell));
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

/// Replaces what would steer a terminal: names in results are anybody's.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Names the `command` that prints more, behind `what` or, where that is wider than `width` columns,
/// on a line of its own. Nothing breaks the command, so that it can be copied.
pub fn hint(what: &str, command: &str, width: usize) -> String {
    let line = plain(&format!("{what} {command}"));
    if line.chars().count() <= width {
        return line + "\n";
    }
    format!("{}  {}\n", wrapped(what, width), plain(command))
}

/// Breaks a sentence at spaces; further lines are indented.
pub fn wrapped(sentence: &str, width: usize) -> String {
    let (mut text, sentence) = (String::new(), plain(sentence));
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
    fn names_do_not_steer_the_terminal() {
        let evil = "evil\u{1b}[31m\u{7}";
        let row = |cell: &str| vec![cell.to_owned()];
        let table = Table { header: row("cell"), rows: vec![row(evil)] };
        let hints = [80, 5].map(|width| hint("More:", evil, width));
        for text in [wrapped(evil, 80), aligned(&table)].into_iter().chain(hints) {
            assert!(text.contains("evil") && !text.contains(['\u{1b}', '\u{7}']), "{text:?}");
        }
    }

    #[test]
    fn long_sentences_are_broken_at_spaces() {
        assert_eq!(wrapped("one two three", 8), "one two\n  three\n");
    }

    #[test]
    fn a_command_that_does_not_fit_has_a_line_of_its_own() {
        assert_eq!(hint("More:", "headroom lab", 18), "More: headroom lab\n");
        assert_eq!(hint("More:", "headroom lab", 17), "More:\n  headroom lab\n");
        let command = "headroom lab report --full '/a folder/with a name'";
        let text = hint("More, with the table of upload:", command, 20);
        assert_eq!(text, format!("More, with the table\n  of upload:\n  {command}\n"));
    }
}
