//! The report: one HTML file that needs no network, with its data inside.

use crate::analysis::advise::{Basis, Grid, LossAnswer};
use crate::analysis::sentence::read;
use crate::error::{Doing, Error, Result};
use crate::schema::Results;

/// The style of every page.
pub const STYLE: &str = include_str!("page/report.css");
const TEMPLATE: &str = include_str!("page/template.html");

/// One script of many files, so that each can be about one thing; the last
/// begins to draw.
const SCRIPT: &str = concat!(
    "'use strict';\n",
    include_str!("page/js/values.js"),
    include_str!("page/js/format.js"),
    include_str!("page/js/page.js"),
    include_str!("page/js/marks.js"),
    include_str!("page/js/save.js"),
    include_str!("page/js/save_shapes.js"),
    include_str!("page/js/save_strips.js"),
    include_str!("page/js/read.js"),
    include_str!("page/js/advice.js"),
    include_str!("page/js/costs.js"),
    include_str!("page/js/models.js"),
    include_str!("page/js/size_plot.js"),
    include_str!("page/js/predict.js"),
    include_str!("page/js/picture_model.js"),
    include_str!("page/js/picture.js"),
    include_str!("page/js/chart.js"),
    include_str!("page/js/errors.js"),
    include_str!("page/js/timelines.js"),
    include_str!("page/js/wire.js"),
    include_str!("page/js/cells.js"),
    include_str!("page/js/sessions.js"),
    include_str!("page/js/links.js"),
    include_str!("page/js/machine.js"),
    include_str!("page/js/main.js"),
);

/// Sentences above the picture, so that both fit the first screen.
const MAX_LEADING: usize = 4;

pub(super) fn page(results: &Results) -> Result<String> {
    let json = serde_json::to_string(results).doing(|| "write the report's data".into())?;
    let notice = results.incomplete().map_or_else(String::new, |sentence| {
        format!("<p class=\"notice\" role=\"alert\">{}</p>", escaped(&sentence))
    });
    let paragraph = |sentence: &String| format!("<p>{}</p>", escaped(sentence));
    let (lead, more) = results.answer.split_at(read::lead(results).min(MAX_LEADING));
    let lead: String = std::iter::once(notice).chain(lead.iter().map(paragraph)).collect();
    let more: String = more.iter().map(paragraph).collect();
    let title = escaped(&results.plan.question);
    let in_clear = |stack: &str| {
        let row = results.clear_text.iter().find(|row| row.stack == stack)?;
        Some(!row.secured)
    };
    // the links of the panel lose nothing
    let basis = Basis::of(results, |_| LossAnswer::Unknown);
    let advice = basis.ok().and_then(|basis| Grid::of(&basis, in_clear));
    let advice = serde_json::to_string(&advice).doing(|| "write the report's advice".into())?;
    fill(
        TEMPLATE,
        &[
            ("/*{{uplot_css}}*/", include_str!("page/vendor/uPlot.min.css")),
            ("/*{{report_css}}*/", STYLE),
            ("/*{{uplot_js}}*/", include_str!("page/vendor/uPlot.iife.min.js")),
            ("/*{{report_js}}*/", SCRIPT),
            // a `<` in a string of the data could end the script element
            ("{{results_json}}", &json.replace('<', "\\u003c")),
            ("{{advice_json}}", &advice.replace('<', "\\u003c")),
            ("{{title}}", &title),
            ("{{answer_html}}", &lead),
            ("{{more_html}}", &more),
        ],
    )
}

/// Replaces each placeholder once, in one pass over the template, so that data
/// which looks like a placeholder stays data.
fn fill(template: &str, values: &[(&str, &str)]) -> Result<String> {
    let mut places: Vec<(usize, &str, &str)> = values
        .iter()
        .map(|&(placeholder, value)| {
            let at = template.find(placeholder);
            let at = at.ok_or_else(|| Error::Template(placeholder.to_owned()))?;
            Ok((at, placeholder, value))
        })
        .collect::<Result<_>>()?;
    places.sort_unstable_by_key(|&(at, ..)| at);
    let mut page =
        String::with_capacity(template.len() + values.iter().map(|(_, v)| v.len()).sum::<usize>());
    let mut done = 0;
    for (at, placeholder, value) in places {
        page.push_str(&template[done..at]);
        page.push_str(value);
        done = at + placeholder.len();
    }
    page.push_str(&template[done..]);
    Ok(page)
}

/// Escapes a text for a page.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_looks_like_a_placeholder_stays_data() {
        let page = fill("a {{x}} b {{y}} c", &[("{{y}}", "{{x}}"), ("{{x}}", "1")]);
        assert_eq!(page.expect("both are there"), "a 1 b {{x}} c");
        assert!(fill("a", &[("{{x}}", "1")]).is_err());
    }

    #[test]
    fn the_template_has_every_placeholder_once() {
        for placeholder in [
            "{{results_json}}",
            "{{advice_json}}",
            "{{title}}",
            "{{answer_html}}",
            "{{more_html}}",
            "/*{{report_js}}*/",
        ] {
            assert_eq!(TEMPLATE.matches(placeholder).count(), 1, "{placeholder}");
        }
    }
}
