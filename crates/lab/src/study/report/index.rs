//! One page over several studies: from question to answer in each.

use std::fmt::Write as _;
use std::path::Path;

use headroom_lab_host::error::{Doing, Error, Result};

use super::page::{around, both, notices as notices_shown};
use super::{JSON, answers, chart, notices, read};
use crate::study::results::StudyResults;
use headroom_lab_results::report::html::escaped;

/// Writes `index.html` and `index.md` into `folder`, over the studies in its folders, in the order of
/// their names; returns how many.
///
/// # Errors
/// There is none, one cannot be read, or the page cannot be written.
pub fn write(folder: &Path) -> Result<usize> {
    let doing = || format!("look for studies in {}", folder.display());
    let mut studies: Vec<(String, StudyResults)> = Vec::new();
    for entry in std::fs::read_dir(folder).doing(doing)? {
        let entry = entry.doing(doing)?;
        if entry.path().join(JSON).is_file() {
            studies.push((entry.file_name().to_string_lossy().into_owned(), read(&entry.path())?));
        }
    }
    studies.sort_by(|(a, _), (b, _)| a.cmp(b));
    if studies.is_empty() {
        return Err(Error::Plan(format!(
            "no folder in {} has a {JSON}: run a study with `headroom lab run plans/studies/NAME.toml --out {}/NAME`",
            folder.display(),
            folder.display()
        )));
    }
    for (name, text) in [("index.html", page(&studies)), ("index.md", markdown(&studies))] {
        let path = folder.join(name);
        std::fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
    }
    Ok(studies.len())
}

const TITLE: &str = "What does securing a transfer cost? The studies, run again";

/// How the figures of the answers are to be read.
const LEGEND: &str = "Brackets are 95 % intervals, n is the number of runs: five at least where it is not given. \
                      Each report names its links, programs and machines.";

/// The same for where pages are not shown: a repository.
fn markdown(studies: &[(String, StudyResults)]) -> String {
    let mut text = format!("# {TITLE}\n\n{LEGEND}\n\n");
    for (folder, study) in studies {
        let _ = writeln!(text, "## {}\n", study.question);
        if let Some(paper) = &study.paper {
            let _ = writeln!(text, "{paper}\n");
        }
        for (what, answer) in answers(study) {
            let _ = writeln!(text, "{what}: {answer}\n");
        }
        for notice in notices(study) {
            let _ = writeln!(text, "> {notice}\n");
        }
        if let Some(drawn) = study.sections.iter().find(|section| chart::alone(section).is_some()) {
            let _ = writeln!(text, "![{}]({folder}/{}.svg)\n", drawn.title, drawn.id);
        }
        let _ = writeln!(text, "[The whole report]({folder}/study.md)\n");
    }
    text
}

fn page(studies: &[(String, StudyResults)]) -> String {
    let mut body = String::from(
        "<header class=\"page\"><p class=\"eyebrow\">Headroom · studies</p></header>\n<main>\n",
    );
    let _ = writeln!(
        body,
        "<h1>{TITLE}</h1>\n<p class=\"lead\">Papers asked; this machine was measured. Each question leads to the paper's answer, to ours, and to every figure behind it. {LEGEND}</p>\n<ul>"
    );
    for (folder, study) in studies {
        let _ = writeln!(
            body,
            "<li><a href=\"#{0}\">{1}</a></li>",
            escaped(folder),
            escaped(&study.question)
        );
    }
    body += "</ul>\n";
    for (folder, study) in studies {
        let _ = writeln!(
            body,
            "<section class=\"study\" id=\"{0}\">\n<h2><a href=\"{0}/report.html\">{1}</a></h2>\n{2}{3}{4}",
            escaped(folder),
            escaped(&study.question),
            study.paper.as_deref().map_or_else(String::new, |paper| {
                format!("<p class=\"lead\">{}</p>\n", escaped(paper))
            }),
            notices_shown(study),
            both(study)
        );
        let drawn = study.sections.iter().find_map(|s| Some((s, chart::inline(s)?)));
        if let Some((section, picture)) = drawn {
            let _ = writeln!(
                body,
                "<figure>{picture}<figcaption class=\"notes\"><a href=\"{}/report.html#{}\">{}</a></figcaption></figure>",
                escaped(folder),
                escaped(&section.id),
                escaped(&section.title)
            );
        }
        body += "<ul class=\"notes\">";
        for section in &study.sections {
            let _ = write!(
                body,
                "<li><a href=\"{}/report.html#{}\">{}</a>{}</li>",
                escaped(folder),
                escaped(&section.id),
                escaped(&section.title),
                section
                    .compared
                    .as_ref()
                    .map_or_else(String::new, |said| format!(" – {}", escaped(said)))
            );
        }
        let _ = writeln!(
            body,
            "</ul>\n<p class=\"go\"><a href=\"{}/report.html\">The whole report</a></p>\n</section>",
            escaped(folder)
        );
    }
    body += "</main>\n";
    around(TITLE, &body)
}
