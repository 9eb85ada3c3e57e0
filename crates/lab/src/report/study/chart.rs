//! A section as a picture (SVG): a line for each column over the rows, what was
//! measured drawn through with its intervals, what the paper printed dashed.

use std::fmt::Write as _;

use crate::report::html::escaped;
use crate::study::results::{ChartResults, SectionResults, Value};
use crate::units;

/// Points of the whole picture and of the field that is drawn in.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 52.0;
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

/// The picture as a file of its own.
pub(super) fn alone(section: &SectionResults) -> Option<String> {
    let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>";
    picture(section, "#16191d", paper)
}

/// One line: its points, left to right.
struct Line {
    title: String,
    colour: &'static str,
    measured: Vec<(f64, f64, Option<[f64; 2]>)>,
    published: Vec<(f64, f64)>,
}

fn picture(section: &SectionResults, ink: &str, paper: &str) -> Option<String> {
    let chart = section.chart.as_ref()?;
    let lines = lines(section, chart);
    let xs: Vec<f64> = lines.iter().flat_map(Line::xs).collect();
    let ys: Vec<f64> = lines.iter().flat_map(Line::ys).collect();
    let x = Axis::over(&xs, chart.log_x, false)?;
    let y = Axis::over(&ys, chart.log_y, true)?;
    let (right, down) = (|v: f64| x.place(v, LEFT, RIGHT), |v: f64| y.place(v, BOTTOM, TOP));

    let rows = lines.len().div_ceil(2) as f64;
    let height = HEIGHT + rows * LEGEND_LINE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\" font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"{ink}\">{paper}",
        escaped(&section.title)
    );
    for tick in y.ticks() {
        let at = down(tick);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{ink}\" stroke-opacity=\".15\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            units::three(tick)
        );
    }
    let mut free_from = f64::NEG_INFINITY;
    for tick in x.ticks_at(&xs) {
        let (at, label) = (right(tick), x_label(tick, chart));
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\" stroke=\"{ink}\" stroke-opacity=\".5\"/>",
            BOTTOM + 5.0
        );
        let half = label.len() as f64 * 3.6;
        if at - half > free_from {
            free_from = at + half + 6.0;
            let _ = write!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                BOTTOM + 20.0
            );
        }
    }
    if y.lo < 0.0 && y.hi > 0.0 && !y.log {
        let at = down(0.0);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{ink}\" stroke-opacity=\".6\"/>"
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, RIGHT),
        BOTTOM + 40.0,
        escaped(&chart.x_title),
        f64::midpoint(TOP, BOTTOM),
        escaped(&chart.y_title)
    );
    for line in &lines {
        draw(&mut svg, line, &right, &down);
    }
    legend(&mut svg, &lines);
    svg += "</svg>";
    Some(svg)
}

fn lines(section: &SectionResults, chart: &ChartResults) -> Vec<Line> {
    let drawable = |x: f64, y: f64| (!chart.log_x || x > 0.0) && (!chart.log_y || y > 0.0);
    let of_column = |index: usize| {
        let values: Vec<(f64, Value)> =
            section.rows.iter().filter_map(|row| Some((row.x?, row.values[index]))).collect();
        let mut line = Line {
            title: section.columns[index].title.clone(),
            colour: COLOURS[index % COLOURS.len()],
            measured: values
                .iter()
                .filter_map(|(x, value)| value.measured.map(|m| (*x, m.value, m.ci95)))
                .filter(|(x, y, _)| drawable(*x, *y))
                .collect(),
            published: values
                .iter()
                .filter_map(|(x, value)| Some((*x, value.published?)))
                .filter(|(x, y)| drawable(*x, *y))
                .collect(),
        };
        line.measured.sort_by(|a, b| a.0.total_cmp(&b.0));
        line.published.sort_by(|a, b| a.0.total_cmp(&b.0));
        line
    };
    let all = (0..section.columns.len()).map(of_column);
    all.filter(|line| !line.measured.is_empty() || !line.published.is_empty()).collect()
}

impl Line {
    fn xs(&self) -> impl Iterator<Item = f64> {
        self.measured.iter().map(|p| p.0).chain(self.published.iter().map(|p| p.0))
    }

    fn ys(&self) -> impl Iterator<Item = f64> {
        self.measured.iter().map(|p| p.1).chain(self.published.iter().map(|p| p.1))
    }
}

fn draw(svg: &mut String, line: &Line, right: &impl Fn(f64) -> f64, down: &impl Fn(f64) -> f64) {
    let colour = line.colour;
    let path = |points: &[(f64, f64)]| {
        let to = |(index, (x, y)): (usize, &(f64, f64))| {
            format!("{}{:.1} {:.1}", if index == 0 { "M" } else { "L" }, right(*x), down(*y))
        };
        points.iter().enumerate().map(to).collect::<String>()
    };
    let dots = line.published.len() < 60;
    let _ = write!(
        svg,
        "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"/>",
        path(&line.published)
    );
    for (x, y) in line.published.iter().filter(|_| dots) {
        let (x, y) = (right(*x), down(*y));
        let _ = write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }
    for (x, _, ends) in &line.measured {
        let Some([lo, hi]) = ends else { continue };
        let (x, lo, hi) = (right(*x), down(*lo), down(*hi));
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{lo:.1}\" y2=\"{hi:.1}\" stroke=\"{colour}\" stroke-opacity=\".5\" \
             stroke-width=\"3\"/>"
        );
    }
    let points: Vec<(f64, f64)> = line.measured.iter().map(|p| (p.0, p.1)).collect();
    let _ = write!(
        svg,
        "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        path(&points)
    );
    for (x, y) in points.iter().filter(|_| points.len() < 60) {
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.2\" fill=\"{colour}\"/>",
            right(*x),
            down(*y)
        );
    }
}

fn legend(svg: &mut String, lines: &[Line]) {
    for (index, line) in lines.iter().enumerate() {
        let (column, row) = ((index % 2) as f64, (index / 2) as f64);
        let x = LEFT + column * (RIGHT - LEFT) / 2.0;
        let y = HEIGHT + row * LEGEND_LINE + 4.0;
        let printed = match (line.measured.is_empty(), line.published.is_empty()) {
            (true, _) => " (paper)",
            (false, false) => " (dashed: paper)",
            (false, true) => "",
        };
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" stroke-width=\"3\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{}{printed}</text>",
            x + 22.0,
            y - 4.0,
            y - 4.0,
            line.colour,
            x + 30.0,
            escaped(&line.title)
        );
    }
}

fn x_label(value: f64, chart: &ChartResults) -> String {
    if chart.x_is_octets { units::size(value as u64) } else { units::three(value) }
}

/// An axis from its lowest to its highest mark.
struct Axis {
    lo: f64,
    hi: f64,
    log: bool,
}

impl Axis {
    /// An axis for these values; `zero`: a linear one begins at 0, or below.
    fn over(values: &[f64], log: bool, zero: bool) -> Option<Self> {
        let mut lo = values.iter().copied().reduce(f64::min)?;
        let mut hi = values.iter().copied().reduce(f64::max)?;
        if log {
            (lo, hi) = if hi > lo { (lo, hi) } else { (lo / 2.0, hi * 2.0) };
            return Some(Self {
                lo: if zero { lo / 1.3 } else { lo },
                hi: if zero { hi * 1.3 } else { hi },
                log,
            });
        }
        if zero {
            (lo, hi) = (lo.min(0.0), hi.max(0.0));
        }
        if hi <= lo {
            (lo, hi) = (lo - 1.0, hi + 1.0);
        }
        let room = if zero { (hi - lo) * 0.05 } else { 0.0 };
        Some(Self { lo: if lo < 0.0 { lo - room } else { lo }, hi: hi + room, log })
    }

    /// Where a value lies between two points.
    fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        let share = if self.log {
            (value.max(self.lo) / self.lo).ln() / (self.hi / self.lo).ln()
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        // an interval may end far outside
        from + share.clamp(0.0, 1.0) * (to - from)
    }

    /// Round values, about six.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = self.lo.log10().floor() as i32..=self.hi.log10().ceil() as i32;
            let fine = (self.hi / self.lo).log10() < 2.5;
            let steps: &[f64] = if fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let all = decades.flat_map(|power| steps.iter().map(move |s| s * 10f64.powi(power)));
            return all.filter(|tick| (self.lo..=self.hi).contains(tick)).collect();
        }
        let rough = (self.hi - self.lo) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        let (first, last) = ((self.lo / step).ceil() as i64, (self.hi / step).floor() as i64);
        (first..=last.min(first + 20)).map(|nth| nth as f64 * step).collect()
    }

    /// The values themselves where these are few, as sizes are; else [`Axis::ticks`].
    fn ticks_at(&self, values: &[f64]) -> Vec<f64> {
        let mut all = values.to_vec();
        all.sort_by(f64::total_cmp);
        all.dedup();
        if all.len() <= 12 { all } else { self.ticks() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_within_the_axis() {
        let axis = Axis::over(&[3.0, 97.0], false, true).expect("an axis");
        assert_eq!(axis.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let axis = Axis::over(&[1e3, 1e9], true, false).expect("an axis");
        assert_eq!(axis.ticks().len(), 7);
        assert!((axis.place(1e6, 0.0, 10.0) - 5.0).abs() < 1e-9);
        assert!(Axis::over(&[], false, true).is_none());
        let flat = Axis::over(&[5.0], false, false).expect("an axis");
        assert!((flat.place(5.0, 0.0, 10.0) - 5.0).abs() < 1e-9);
    }
}
