//! A section as a picture (SVG): lines over the rows, or a group of bars for each.

mod axis;
mod bars;
mod lines;

use std::fmt::Write as _;

use crate::study::results::SectionResults;
use headroom_lab_results::report::html::escaped;

/// Points of the whole picture.
const WIDTH: f64 = 860.0;
/// Points of a line of the legend.
const LEGEND_LINE: f64 = 20.0;

/// Okabe and Ito's colours, as in the report of a run, and two more.
const COLOURS: [&str; 9] = [
    "#0072b2", "#d55e00", "#009e73", "#b8559a", "#c48600", "#3b9bd6", "#70757a", "#8a5a44",
    "#7f8f00",
];

/// The picture within a page, which gives it its ink; none where nothing is to be drawn.
pub(super) fn inline(section: &SectionResults) -> Option<String> {
    picture(section, "currentColor", "")
}

/// The picture as a file of its own, on white.
pub(super) fn alone(section: &SectionResults) -> Option<String> {
    let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>";
    picture(section, "#16191d", paper)
}

fn picture(section: &SectionResults, ink: &str, paper: &str) -> Option<String> {
    let chart = section.chart.as_ref()?;
    if chart.bars {
        bars::picture(section, chart, ink, paper)
    } else {
        lines::picture(section, chart, ink, paper)
    }
}

/// A line of the legend.
struct Entry {
    title: String,
    colour: &'static str,
    mark: Mark,
}

/// The symbol in front of it.
enum Mark {
    Line,
    Hollow,
}

/// Writes the legend in two columns from `top` on; returns where it ends.
fn legend(svg: &mut String, entries: &[Entry], left: f64, top: f64) -> f64 {
    let longest = entries.iter().map(|entry| entry.title.chars().count()).max().unwrap_or(0);
    let columns = if longest > 48 { 1 } else { 2 };
    for (index, entry) in entries.iter().enumerate() {
        let (column, row) = ((index % columns) as f64, (index / columns) as f64);
        let x = left + column * (WIDTH - 16.0 - left) / 2.0;
        let y = top + row * LEGEND_LINE;
        let Entry { title, colour, mark } = entry;
        let _ = match mark {
            Mark::Line => write!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>",
                x + 22.0,
                y - 4.0,
                y - 4.0
            ),
            Mark::Hollow => write!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"#ffffff\" stroke=\"{colour}\"/>",
                x + 7.0,
                y - 8.0
            ),
        };
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 30.0, escaped(title));
    }
    top + entries.len().div_ceil(columns) as f64 * LEGEND_LINE
}

fn svg_around(title: &str, height: f64, ink: &str, paper: &str, drawn: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\" font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"{ink}\">{paper}{drawn}</svg>",
        escaped(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::section_results::testing::section;

    fn drawn(bars: bool, halves: [f64; 2]) -> String {
        let rows: [&[_]; 2] = [&[(10.0, halves[0], 5)], &[(12.0, halves[1], 5)]];
        let mut section = section("s", &["c"], &[("a", rows[0]), ("b", rows[1])]);
        for (row, x) in section.rows.iter_mut().zip([1.0, 2.0]) {
            row.x = Some(x);
        }
        let chart = serde_json::json!({
            "x_title": "x", "y_title": "y, s", "log_x": false, "log_y": false, "bars": bars,
            "x_is_bytes": false
        });
        section.chart = Some(serde_json::from_value(chart).expect("a chart"));
        alone(&section).expect("a picture")
    }

    #[test]
    fn an_interval_that_leaves_the_field_has_an_arrow() {
        // the head of an arrow, and an arrow behind a bar's figure
        for (bars, arrow) in [(false, "Z\""), (true, " →")] {
            let arrows = |halves| drawn(bars, halves).matches(arrow).count();
            assert_eq!(arrows([0.1, 0.1]), 0, "both within");
            assert_eq!(arrows([0.1, 500.0]), if bars { 1 } else { 2 }, "one beyond, at each end");
        }
    }

    #[test]
    fn an_interval_of_two_runs_is_not_drawn() {
        let mut of_two =
            section("s", &["c"], &[("a", &[(10.0, 3.0, 2)]), ("b", &[(12.0, 3.0, 2)])]);
        let chart = serde_json::json!({
            "x_title": "", "y_title": "y, s", "log_x": false, "log_y": false, "bars": true,
            "x_is_bytes": false
        });
        of_two.chart = Some(serde_json::from_value(chart).expect("a chart"));
        let drawn = alone(&of_two).expect("a picture");
        assert!(!drawn.contains("stroke-width=\"1.5\""), "{drawn}");
    }
}
