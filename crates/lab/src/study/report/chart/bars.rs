//! A section as horizontal bars: a group for each row, in it a bar for each column,
//! published ones outlined.

use std::fmt::Write as _;

use headroom_lab_results::analysis::measured::Estimate;

use super::super::figures::source;
use super::axis::{Axis, Scale};
use super::{COLOURS, Entry, Mark, WIDTH, legend, svg_around};
use crate::study::results::{ChartResults, SectionResults};
use crate::units;
use headroom_lab_results::report::html::escaped;

const LEFT: f64 = 230.0;
/// Behind it there is room for a figure.
const RIGHT: f64 = WIDTH - 90.0;
const TOP: f64 = 14.0;
const BAR: f64 = 13.0;
/// Points between groups.
const BETWEEN: f64 = 12.0;

/// A bar of a group.
struct Bar {
    colour: &'static str,
    value: Estimate,
    is_published: bool,
    not_shaped: bool,
}

pub(super) fn picture(
    section: &SectionResults,
    chart: &ChartResults,
    ink: &str,
    paper: &str,
) -> Option<String> {
    let groups: Vec<(&str, Vec<Bar>)> = (0..section.rows.len())
        .map(|row| (section.rows[row].label.as_str(), bars(section, row)))
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    let all = groups.iter().flat_map(|(_, bars)| bars);
    let scale = if chart.log_y { Scale::Log } else { Scale::Linear };
    let values: Vec<f64> = all.clone().map(|bar| bar.value.value).collect();
    if values.is_empty() || (chart.log_y && values.iter().any(|value| *value <= 0.0)) {
        return None;
    }
    let axis = Axis::roomy(&values, scale, true)?;
    let height: f64 = groups.iter().map(|(_, bars)| bars.len() as f64 * BAR + BETWEEN).sum();
    let bottom = TOP + height;
    let mut svg = String::new();
    for tick in axis.ticks() {
        let at = axis.place(tick, LEFT, RIGHT);
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\" stroke=\"{ink}\" stroke-opacity=\".15\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            units::three(tick)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, RIGHT),
        bottom + 38.0,
        escaped(&chart.y_title)
    );
    let mut y = TOP + BETWEEN / 2.0;
    for (label, bars) in &groups {
        let middle = y + bars.len() as f64 * BAR / 2.0;
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            middle + 4.0,
            escaped(label)
        );
        for bar in bars {
            bar.draw(&mut svg, &axis, y, ink);
            y += BAR;
        }
        y += BETWEEN;
    }
    let mut entries: Vec<Entry> = Vec::new();
    for (nth, column) in section.columns.iter().filter(|column| column.drawn).enumerate() {
        let outlined = if column.published {
            format!(" (outlined: {})", source(section))
        } else {
            String::new()
        };
        entries.push(Entry {
            title: format!("{}{outlined}", column.title),
            colour: COLOURS[nth % COLOURS.len()],
            mark: Mark::Line,
        });
    }
    if groups.iter().flat_map(|(_, bars)| bars).any(|bar| bar.not_shaped) {
        let title = "pale: not shaped".to_owned();
        entries.push(Entry { title, colour: "#70757a", mark: Mark::Hollow });
    }
    let height = legend(&mut svg, &entries, LEFT, bottom + 64.0);
    Some(svg_around(&section.title, height, ink, paper, &svg))
}

fn bars(section: &SectionResults, row: usize) -> Vec<Bar> {
    let mut all = Vec::new();
    let drawn = section.columns.iter().zip(&section.rows[row].values).filter(|(c, _)| c.drawn);
    for (nth, (_, value)) in drawn.enumerate() {
        let colour = COLOURS[nth % COLOURS.len()];
        let bar = |value: Estimate, is_published: bool, not_shaped: bool| Bar {
            colour,
            value,
            is_published,
            not_shaped,
        };
        all.extend(value.published.map(|printed| bar(Estimate::exact(printed), true, false)));
        all.extend(value.measured.map(|measured| bar(measured, false, value.not_shaped)));
    }
    all
}

impl Bar {
    fn draw(&self, svg: &mut String, axis: &Axis, y: f64, ink: &str) {
        let colour = self.colour;
        let start = axis.place(0.0_f64.max(axis.lo), LEFT, RIGHT);
        let end = axis.place(self.value.value, LEFT, RIGHT);
        let (left, width) = (start.min(end), (end - start).abs().max(1.0));
        let fill = if self.is_published { "none" } else { colour };
        let opacity = if self.not_shaped { ".35" } else { "1" };
        let dashes = if self.is_published { " stroke-dasharray=\"4 2\"" } else { "" };
        let _ = write!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{fill}\" \
             fill-opacity=\"{opacity}\" stroke=\"{colour}\"{dashes}/>",
            y + 1.0,
            BAR - 2.0
        );
        let [lo, hi] = self.value.shown_interval().unwrap_or([self.value.value; 2]);
        let (low, high) = (axis.place(lo, LEFT, RIGHT), axis.place(hi, LEFT, RIGHT));
        let middle = y + BAR / 2.0;
        if self.value.shown_interval().is_some() {
            let _ = write!(
                svg,
                "<line x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"{ink}\" \
                 stroke-width=\"1.5\"/>"
            );
        }
        // beyond the axis the interval goes on
        let beyond = if axis.has(hi) { "" } else { " →" };
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\">{}{beyond}</text>",
            high.max(end).max(start) + 5.0,
            middle + 4.0,
            units::three(self.value.value)
        );
    }
}
