//! A section as lines: measured ones drawn through with their intervals, published ones
//! dashed; in one field, or in one for each panel that the columns name.

use std::fmt::Write as _;

use super::super::figures::source;
use super::axis::{Axis, Scale};
use super::{COLOURS, Entry, Mark, WIDTH, legend, svg_around};
use crate::study::results::{ChartResults, SectionResults, Value};
use crate::units;
use headroom_lab_results::report::html::escaped;

const LEFT: f64 = 74.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 14.0;
/// Points from a field to the next, where axes are labelled.
const BELOW: f64 = 52.0;

/// One line: its points, left to right.
struct Line {
    title: String,
    panel: Option<String>,
    colour: &'static str,
    measured: Vec<Point>,
    published: Vec<(f64, f64)>,
}

struct Point {
    x: f64,
    y: f64,
    ci95: Option<[f64; 2]>,
    not_shaped: bool,
}

/// The rectangle that lines are drawn in.
#[derive(Clone, Copy)]
struct Field {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

struct Axes<'a> {
    x: Axis,
    y: Axis,
    /// The values of x, which are its marks where they are few.
    xs: Vec<f64>,
    chart: &'a ChartResults,
    ink: &'a str,
}

pub(super) fn picture(
    section: &SectionResults,
    chart: &ChartResults,
    ink: &str,
    paper: &str,
) -> Option<String> {
    let lines = lines(section, chart);
    let xs: Vec<f64> = lines.iter().flat_map(Line::xs).collect();
    let ys: Vec<f64> = lines.iter().flat_map(Line::ys).collect();
    let scale = match (chart.log_y, chart.symlog_y) {
        (true, _) => Scale::Log,
        (_, true) => Scale::SymLog,
        _ => Scale::Linear,
    };
    let axes = Axes {
        x: Axis::tight(&xs, chart.log_x)?,
        y: Axis::roomy(&ys, scale, !chart.free_y)?,
        xs,
        chart,
        ink,
    };
    let mut panels: Vec<Option<&str>> = Vec::new();
    for line in &lines {
        if !panels.contains(&line.panel.as_deref()) {
            panels.push(line.panel.as_deref());
        }
    }
    let mut svg = String::new();
    let mut bottom = TOP;
    for (index, panel) in panels.iter().enumerate() {
        let field = field(index, panels.len());
        bottom = field.bottom;
        axes.draw(&mut svg, field, *panel);
        for line in lines.iter().filter(|line| line.panel.as_deref() == *panel) {
            line.draw(&mut svg, &axes, field);
        }
    }
    let mut entries: Vec<Entry> = Vec::new();
    for line in &lines {
        let entry = line.entry(source(section));
        if entries.iter().all(|known| known.title != entry.title) {
            entries.push(entry);
        }
    }
    let is_marked = lines.iter().flat_map(|line| &line.measured).any(|point| point.not_shaped);
    if is_marked {
        let title = "hollow: not shaped".to_owned();
        entries.push(Entry { title, colour: "#70757a", mark: Mark::Hollow });
    }
    let height = legend(&mut svg, &entries, LEFT, bottom + BELOW + 12.0);
    Some(svg_around(&section.title, height, ink, paper, &svg))
}

/// Places one of several panels: one fills the width, several have two columns.
fn field(index: usize, panels: usize) -> Field {
    if panels == 1 {
        return Field { left: LEFT, right: RIGHT, top: TOP, bottom: TOP + 294.0 };
    }
    let (column, row) = ((index % 2) as f64, (index / 2) as f64);
    let width = (RIGHT - LEFT - 96.0) / 2.0;
    let left = LEFT + column * (width + 96.0);
    let top = TOP + 22.0 + row * (190.0 + BELOW + 22.0);
    Field { left, right: left + width, top, bottom: top + 190.0 }
}

fn lines(section: &SectionResults, chart: &ChartResults) -> Vec<Line> {
    let drawable = |x: f64, y: f64| (!chart.log_x || x > 0.0) && (!chart.log_y || y > 0.0);
    let mut titles: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for (index, column) in section.columns.iter().enumerate().filter(|(_, column)| column.drawn) {
        // the same line in another panel has the same colour
        let nth = titles.iter().position(|title| *title == column.title).unwrap_or_else(|| {
            titles.push(&column.title);
            titles.len() - 1
        });
        let values: Vec<(f64, &Value)> =
            section.rows.iter().filter_map(|row| Some((row.x?, &row.values[index]))).collect();
        let point = |(x, value): &(f64, &Value)| {
            let estimate = value.measured?;
            let (y, ci95) = (estimate.value, estimate.shown_interval());
            drawable(*x, y).then_some(Point { x: *x, y, ci95, not_shaped: value.not_shaped })
        };
        let printed = |(x, value): &(f64, &Value)| {
            value.published.map(|y| (*x, y)).filter(|(x, y)| drawable(*x, *y))
        };
        let mut line = Line {
            title: column.title.clone(),
            panel: column.panel.clone(),
            colour: COLOURS[nth % COLOURS.len()],
            measured: values.iter().filter_map(point).collect(),
            published: values.iter().filter_map(printed).collect(),
        };
        line.measured.sort_by(|a, b| a.x.total_cmp(&b.x));
        line.published.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !line.measured.is_empty() || !line.published.is_empty() {
            all.push(line);
        }
    }
    all
}

impl Axes<'_> {
    fn right(&self, field: Field, x: f64) -> f64 {
        self.x.place(x, field.left, field.right)
    }

    fn down(&self, field: Field, y: f64) -> f64 {
        self.y.place(y, field.bottom, field.top)
    }

    fn draw(&self, svg: &mut String, field: Field, panel: Option<&str>) {
        let Self { ink, chart, .. } = self;
        let Field { left, right, top, bottom } = field;
        let mut labelled: Vec<f64> = Vec::new();
        for tick in self.y.ticks() {
            let at = self.down(field, tick);
            // a label keeps its distance from those before it
            if labelled.iter().any(|other| (at - other).abs() < 13.0) {
                continue;
            }
            labelled.push(at);
            let strong = if tick == 0.0 && self.y.lo < 0.0 { ".6" } else { ".15" };
            let _ = write!(
                svg,
                "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{ink}\" \
                 stroke-opacity=\"{strong}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                at + 4.0,
                units::three(tick)
            );
        }
        let mut free_from = f64::NEG_INFINITY;
        for tick in self.x.ticks_at(&self.xs) {
            let (at, label) = (self.right(field, tick), self.label(tick));
            let _ = write!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"{ink}\" stroke-opacity=\".5\"/>",
                bottom + 5.0
            );
            // the last label ends where the field does
            let half = label.len() as f64 * 3.6;
            let middle = at.min(right + 12.0 - half);
            if middle - half > free_from {
                free_from = middle + half + 6.0;
                let _ = write!(
                    svg,
                    "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                    bottom + 20.0
                );
            }
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate({:.1} {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(left, right),
            bottom + 40.0,
            escaped(&chart.x_title),
            left - 58.0,
            f64::midpoint(top, bottom),
            escaped(&chart.y_title)
        );
        if let Some(panel) = panel {
            let _ = write!(
                svg,
                "<text x=\"{left:.1}\" y=\"{:.1}\" font-weight=\"600\">{}</text>",
                top - 8.0,
                escaped(panel)
            );
        }
    }

    fn label(&self, value: f64) -> String {
        if self.chart.x_is_bytes { units::size(value as u64) } else { units::three(value) }
    }
}

impl Line {
    fn xs(&self) -> impl Iterator<Item = f64> {
        self.measured.iter().map(|p| p.x).chain(self.published.iter().map(|p| p.0))
    }

    fn ys(&self) -> impl Iterator<Item = f64> {
        self.measured.iter().map(|p| p.y).chain(self.published.iter().map(|p| p.1))
    }

    fn entry(&self, source: &str) -> Entry {
        let printed = match (self.measured.is_empty(), self.published.is_empty()) {
            (true, _) => format!(" ({source})"),
            (false, false) => format!(" (dashed: {source})"),
            (false, true) => String::new(),
        };
        let title = format!("{}{printed}", self.title);
        Entry { title, colour: self.colour, mark: Mark::Line }
    }

    fn draw(&self, svg: &mut String, axes: &Axes<'_>, field: Field) {
        let colour = self.colour;
        let place = |x: f64, y: f64| (axes.right(field, x), axes.down(field, y));
        let path = |points: Vec<(f64, f64)>| {
            let to = |(index, (x, y)): (usize, (f64, f64))| {
                let (x, y) = place(x, y);
                format!("{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" })
            };
            points.into_iter().enumerate().map(to).collect::<String>()
        };
        let published = path(self.published.clone());
        let _ = write!(
            svg,
            "<path d=\"{published}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"/>"
        );
        for &(x, y) in self.published.iter().filter(|_| self.published.len() < 60) {
            let (x, y) = place(x, y);
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
            );
        }
        for point in &self.measured {
            self.draw_interval(svg, point, axes, field);
        }
        let measured = path(self.measured.iter().map(|p| (p.x, p.y)).collect());
        let _ = write!(
            svg,
            "<path d=\"{measured}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        for point in self.measured.iter().filter(|_| self.measured.len() < 60) {
            let (x, y) = place(point.x, point.y);
            let _ = if point.not_shaped {
                write!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"#ffffff\" stroke=\"{colour}\" \
                     stroke-width=\"1.5\"/>",
                    x - 4.0,
                    y - 4.0
                )
            } else {
                write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\" fill=\"{colour}\"/>")
            };
        }
    }

    /// An interval; an arrow where it goes on beyond the field.
    fn draw_interval(&self, svg: &mut String, point: &Point, axes: &Axes<'_>, field: Field) {
        let Some([lo, hi]) = point.ci95 else { return };
        let colour = self.colour;
        let x = axes.right(field, point.x);
        let (low, high) = (axes.down(field, lo), axes.down(field, hi));
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"{colour}\" \
             stroke-opacity=\".5\" stroke-width=\"3\"/>"
        );
        for (end, at, ahead) in [(lo, low, 7.0), (hi, high, -7.0)] {
            if !axes.y.has(end) {
                let base = at - ahead;
                let _ = write!(
                    svg,
                    "<path d=\"M{:.1} {base:.1}L{:.1} {base:.1}L{x:.1} {at:.1}Z\" fill=\"{colour}\"/>",
                    x - 5.0,
                    x + 5.0
                );
            }
        }
    }
}
