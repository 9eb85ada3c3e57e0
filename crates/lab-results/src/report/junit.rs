//! A comparison as a test report that CI systems read (JUnit's XML): a test for each cell.

use headroom_units as units;

use super::html::escaped;
use crate::analysis::compare::{CellChange, Comparison};

/// Writes a test suite for each later run: a cell that is slower than the limit beyond doubt fails,
/// one with too few runs is skipped, and one that was not measured is an error.
pub fn text(comparisons: &[(&str, &Comparison)], limit_pct: f64) -> String {
    let suites: String = comparisons.iter().map(|(run, of)| suite(run, of, limit_pct)).collect();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{suites}</testsuites>\n")
}

fn suite(run: &str, comparison: &Comparison, limit_pct: f64) -> String {
    let (cells, broken) = (&comparison.cells, &comparison.broken);
    let failures = cells.iter().filter(|cell| cell.is_slower_than(limit_pct)).count();
    let skipped = cells.iter().filter(|cell| is_skipped(cell, limit_pct)).count();
    let mut text = format!(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{}\" skipped=\"{skipped}\">\n",
        attribute(run),
        cells.len() + broken.len(),
        broken.len()
    );
    for cell in cells {
        text += &test(&cell.name(), &outcome(cell, limit_pct));
    }
    for sentence in broken {
        // named like the test that it was, so that a CI system knows it again
        let name = sentence.trim_end_matches(" is not in the second run");
        let name = name.split_once(": ").map_or(name, |(name, _)| name);
        text += &test(name, &format!("<error message=\"{}\"/>", attribute(sentence)));
    }
    text + "  </testsuite>\n"
}

fn is_skipped(cell: &CellChange, limit_pct: f64) -> bool {
    !cell.is_slower_than(limit_pct) && !cell.change.is_comparable()
}

fn test(name: &str, outcome: &str) -> String {
    format!(
        "    <testcase classname=\"headroom\" name=\"{}\">{outcome}</testcase>\n",
        attribute(name)
    )
}

fn outcome(cell: &CellChange, limit_pct: f64) -> String {
    let [a, b] = cell.change.n;
    let signed = |pct: f64| units::signed(pct, 1);
    let interval = |[lo, hi]: [f64; 2]| format!(" [{}, {}]", signed(lo), signed(hi));
    let interval = cell.change.ci95_pct.map_or_else(String::new, interval);
    let told = format!("{} %{interval}, {a} and {b} runs", signed(cell.change.pct));
    if cell.is_slower_than(limit_pct) {
        let message = format!("slower by more than {limit_pct} %: {told}");
        format!("<failure message=\"{}\"/>", attribute(&message))
    } else if is_skipped(cell, limit_pct) {
        format!("<skipped message=\"{}\"/>", attribute(&format!("too few runs: {told}")))
    } else {
        format!("<system-out>{}</system-out>", escaped(&told))
    }
}

/// XML 1.0 has no control characters, and a reader would make a space of a line's end.
fn attribute(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    escaped(&text.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare::Change;

    #[test]
    fn a_test_for_each_cell_and_an_error_for_each_that_is_missing() {
        let cell = |stack: &str, pct: f64, n: usize| CellChange {
            link: "100mbit".to_owned(),
            stack: stack.to_owned(),
            workload: "download".to_owned(),
            size_bytes: 1024,
            change: Change { pct, ci95_pct: Some([pct - 1.0, pct + 1.0]), n: [5, n], p: None },
            overhead_change: None,
        };
        let comparison = Comparison {
            cells: vec![cell("a<b", 20.0, 5), cell("http", 1.0, 5), cell("ftp", 1.0, 2)],
            differences: Vec::new(),
            only_in_a: Vec::new(),
            only_in_b: Vec::new(),
            broken: vec![
                "sftp is not in the second run".to_owned(),
                "rtp: 1 of 5 failed in the second run".to_owned(),
            ],
            doubts: [None, None],
        };
        let text = text(&[("new \"run\"\n", &comparison)], 5.0);
        for line in [
            "<testsuite name=\"new &quot;run&quot; \" tests=\"5\" failures=\"1\" errors=\"2\" skipped=\"1\">",
            "name=\"a&lt;b download 1 KiB on 100mbit\"><failure message=\"slower by more than 5 %: +20.0 % [+19.0, +21.0], 5 and 5 runs\"/></testcase>",
            "name=\"http download 1 KiB on 100mbit\"><system-out>+1.0 % [+0.0, +2.0], 5 and 5 runs</system-out>",
            "<skipped message=\"too few runs: +1.0 % [+0.0, +2.0], 5 and 2 runs\"/>",
            "name=\"sftp\"><error message=\"sftp is not in the second run\"/>",
            "name=\"rtp\"><error message=\"rtp: 1 of 5 failed in the second run\"/>",
        ] {
            assert!(text.contains(line), "`{line}` is not in {text}");
        }
    }
}
