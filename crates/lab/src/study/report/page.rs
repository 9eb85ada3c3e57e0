//! A study's report: one page that needs no network and no script.

use std::fmt::Write as _;

use super::{
    NOT_MEASURED, answers, chart, figures, machines, notices as all_notices, programs, set_up,
};
use crate::study::results::{SectionResults, StudyResults};
use headroom_lab_results::report::html::escaped;

/// Additional styles of study pages.
const STYLE: &str = include_str!("study.css");

/// A whole page around `body`.
pub(super) fn around(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} · Headroom</title>\n<style>{}{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escaped(title),
        headroom_lab_results::report::html::STYLE
    )
}

pub(super) fn page(study: &StudyResults) -> String {
    let what = match &study.paper {
        Some(paper) => format!("a study, run again · {}", escaped(paper)),
        None => "a study".to_owned(),
    };
    let mut body =
        format!("<header class=\"page\"><p class=\"eyebrow\">Headroom · {what}</p><nav>");
    for section in &study.sections {
        let name = name_among(&study.sections, section);
        let _ = write!(body, "<a href=\"#{}\">{}</a>", escaped(&section.id), escaped(name));
    }
    let _ = write!(
        body,
        "<a href=\"#differs\">Set-up</a></nav></header>\n<main>\n<h1>{}</h1>\n{}{}",
        escaped(&study.question),
        notices(study),
        both(study)
    );
    for one in &study.sections {
        section(&mut body, study, one);
    }
    setup(&mut body, study);
    body += "</main>\n";
    around(&study.question, &body)
}

/// Returns the text before the colon of a section's title, if it is unique.
fn name_among<'a>(all: &[SectionResults], section: &'a SectionResults) -> &'a str {
    let short = section.title.split(':').next().unwrap_or(&section.title);
    let alike = |other: &&SectionResults| other.title.split(':').next() == Some(short);
    if all.iter().filter(alike).count() > 1 { &section.title } else { short }
}

/// The paper's answer beside ours, where there are such.
pub(super) fn both(study: &StudyResults) -> String {
    let answer = |(what, answer): (&str, &str)| {
        format!("<div><h3>{what}</h3><p>{}</p></div>", escaped(answer))
    };
    let answers: String = answers(study).map(answer).collect();
    if answers.is_empty() { answers } else { format!("<div class=\"both\">{answers}</div>\n") }
}

/// Notices above everything else.
pub(super) fn notices(study: &StudyResults) -> String {
    let notice = |sentence: &String| {
        format!("<p class=\"notice\" role=\"alert\">{}</p>\n", escaped(sentence))
    };
    all_notices(study).iter().map(notice).collect()
}

fn section(body: &mut String, study: &StudyResults, section: &SectionResults) {
    let _ = write!(
        body,
        "<section id=\"{}\">\n<h2>{}</h2>\n",
        escaped(&section.id),
        escaped(&section.title)
    );
    if let Some(paper) = &section.paper {
        let _ = writeln!(body, "<p class=\"lead\">The paper: {}</p>", escaped(paper));
    }
    if let Some(compared) = &section.compared {
        let _ = writeln!(body, "<p><strong>{}</strong></p>", escaped(compared));
    }
    if let Some(picture) = chart::inline(section) {
        let _ = writeln!(body, "<figure>{picture}</figure>");
    }
    if !section.is_measured() {
        let _ = writeln!(body, "<p class=\"notes\">{NOT_MEASURED}</p>");
    }
    if section.filled().next().is_some() {
        for columns in figures::tables(section) {
            table(body, section, &columns);
        }
        if let Some(note) = figures::note(study, section) {
            let _ = writeln!(body, "<p class=\"notes\">{}</p>", escaped(&note));
        }
    }
    for (what, text) in [("Checked", &section.note), ("Why", &section.because)] {
        if let Some(text) = text {
            let _ = writeln!(body, "<p class=\"aside\"><b>{what}.</b> {}</p>", escaped(text));
        }
    }
    *body += "</section>\n";
}

fn table(body: &mut String, section: &SectionResults, columns: &[usize]) {
    let columns: Vec<_> = columns.iter().map(|index| (*index, &section.columns[*index])).collect();
    let unit = |unit: &str| {
        if unit.is_empty() { String::new() } else { format!("<small>{}</small>", escaped(unit)) }
    };
    *body += "<div class=\"scroll\"><table><thead><tr><th rowspan=\"2\"></th>";
    for (_, column) in &columns {
        let span = if column.published { " colspan=\"2\"" } else { " rowspan=\"2\"" };
        let title = column.heading();
        let _ = write!(
            body,
            "<th scope=\"col\"{span} class=\"group\">{}{}</th>",
            escaped(&title),
            unit(&column.unit)
        );
    }
    *body += "</tr><tr>";
    for _ in columns.iter().filter(|(_, column)| column.published) {
        let source = figures::source(section);
        let _ = write!(body, "<th scope=\"col\">{source}</th><th scope=\"col\">measured</th>");
    }
    *body += "</tr></thead><tbody>\n";
    for row in section.filled() {
        let _ = write!(body, "<tr><th scope=\"row\">{}</th>", escaped(&row.label));
        for (index, column) in &columns {
            let value = &row.values[*index];
            if column.published {
                let _ = write!(body, "<td class=\"printed\">{}</td>", figures::published(value));
            }
            let text = figures::measured(section, value);
            let (figure, interval) = match text.split_once(" [") {
                Some((figure, interval)) => (figure, format!("<small>[{interval}</small>")),
                None => (text.as_str(), String::new()),
            };
            let _ = write!(body, "<td>{figure}{interval}</td>");
        }
        *body += "</tr>\n";
    }
    *body += "</tbody></table></div>\n";
}

fn setup(body: &mut String, study: &StudyResults) {
    let _ = write!(body, "<section id=\"differs\">\n<h2>{}</h2>\n", set_up(study));
    let differs = study.differs.iter();
    let differs: String = differs.map(|one| format!("<li>{}</li>", escaped(one))).collect();
    if !differs.is_empty() {
        let _ = writeln!(body, "<ul>{differs}</ul>");
    }
    *body += "<h3>What was measured</h3>\n<div class=\"scroll\"><table><thead><tr><th>part</th><th \
              class=\"text\">question</th><th class=\"text\">link</th><th>family</th><th>samples</th><th>failed</th>\
              <th class=\"text\">from, to</th></tr></thead><tbody>\n";
    for part in &study.parts {
        let _ = writeln!(
            body,
            "<tr><th scope=\"row\"><a href=\"{0}/report.html\">{1}</a></th><td class=\"text\">{2}</td><td class=\"text\">\
             {3}</td><td>{4}</td><td>{5}</td><td>{6}</td><td class=\"text\">{7}<small>{8}</small></td></tr>",
            escaped(&part.folder),
            escaped(&part.name),
            escaped(&part.question),
            escaped(&part.link),
            escaped(&part.family),
            part.samples,
            part.failed,
            escaped(&part.started),
            escaped(&part.finished)
        );
    }
    *body += "</tbody></table></div>\n";
    let _ = writeln!(
        body,
        "<p class=\"notes\">{}. The cores are for both ends and what is between. Brackets are 95 % intervals; overheads \
         are taken within blocks in which all stacks ran one after the other in random order. {}</p>",
        escaped(&machines(study)),
        escaped(&programs(study))
    );
    let warned = study.parts.iter().filter(|part| !part.warnings.is_empty());
    for part in warned {
        let _ = write!(
            body,
            "<details><summary>{}: {} warnings</summary><ul class=\"notes\">",
            escaped(&part.name),
            part.warnings.len()
        );
        for warning in &part.warnings {
            let _ = write!(body, "<li>{}</li>", escaped(warning));
        }
        *body += "</ul></details>\n";
    }
    *body += "</section>\n";
}
