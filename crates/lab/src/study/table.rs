//! A section filled with what its parts have measured.

use std::collections::BTreeMap;

use headroom_lab_results::schema::{Results, UNSHAPED_S};

use super::claim::ClaimResults;
use super::measure::{self, Form, Measure};
use super::section::{CellTemplate, Column, Place, Section, Shows};
use super::section_results::{
    ChartResults, ColumnResults, Origin, RowResults, SectionResults, Value,
};
use super::sentence::{self, Sentence};
use super::template::{self, Row};
use super::{Study, derived, section, verdict};

/// The results of the parts that were run, by name.
pub(super) type Parts = BTreeMap<String, Results>;

/// A study's page: figures first, then the sentences that they support.
pub(super) struct Page {
    pub(super) sections: Vec<SectionResults>,
    pub(super) claims: Vec<ClaimResults>,
    pub(super) sentences: Vec<Sentence>,
    /// None: the study has none but its tables.
    pub(super) answer: Option<String>,
}

/// Fills a study with figures. A reason of which a figure was not measured is left out, of
/// the answer the sentences that lack one.
pub(super) fn page(study: &Study, parts: &Parts) -> Page {
    let mut sections: Vec<_> = study.sections.iter().map(|one| section(one, parts)).collect();
    derive(study, &mut sections);
    for section in &mut sections {
        section.compared = verdict::sentence(section);
    }
    let ratios = |measure: &str, one: &Origin, other: &Origin| {
        let stacks = [one.stack.as_str(), &other.stack];
        let results = parts.get(&one.part)?;
        measure::find(measure).ok()?.ratio(results, stacks, &one.workload, one.size_bytes)
    };
    let claims: Vec<_> = study.claims.iter().map(|claim| claim.judge(&sections, &ratios)).collect();
    let reason = |section: &Section| {
        let because = section.because.as_ref()?;
        let filled = sentence::filled(&section.id, because, study, &sections, &claims);
        (!filled.lacks_some && !filled.sentences.is_empty()).then_some(filled)
    };
    let reasons: Vec<_> = study.sections.iter().map(reason).collect();
    let answer = study.answer.as_ref();
    let answer = answer.map(|text| sentence::filled("answer", text, study, &sections, &claims));
    let text = answer.as_ref().map(|answer| {
        let rest = "What else the answer speaks of was not measured in this run.";
        match answer.lacks_some {
            true => [answer.text().as_str(), rest].join(" ").trim().to_owned(),
            false => answer.text(),
        }
    });
    let mut sentences = answer.map_or_else(Vec::new, |answer| answer.sentences);
    for (section, filled) in sections.iter_mut().zip(reasons) {
        section.because = filled.as_ref().map(sentence::Filled::text);
        sentences.extend(filled.into_iter().flat_map(|filled| filled.sentences));
    }
    Page { sections, claims, sentences, answer: text }
}

fn section(section: &Section, parts: &Parts) -> SectionResults {
    let columns = section.columns.iter().map(|column| {
        let (measure, unit, form) = match &column.shows {
            Shows::Cell { measure, form, .. } => (measure.name, measure.unit_as(*form), *form),
            // taken from what it is made of
            Shows::Mean(_) => ("mean", "", Form::Value),
            Shows::Line(_) => ("line", "%", Form::OverheadPct),
        };
        ColumnResults {
            id: column.id.clone(),
            title: column.title.clone(),
            unit: unit.to_owned(),
            signed: matches!(form, Form::Added | Form::OverheadPct | Form::LossPct),
            published: column.published.is_some(),
            measure: measure.to_owned(),
            form,
            drawn: column.drawn,
            panel: column.panel.clone(),
        }
    });
    let rows = section.rows.iter().map(|(name, row)| RowResults {
        name: name.clone(),
        label: section.label(name).to_owned(),
        x: section.chart.as_ref().and_then(|chart| chart.x_of(row).ok().flatten()),
        values: section.columns.iter().map(|column| value(column, row, parts)).collect(),
    });
    SectionResults {
        id: section.id.clone(),
        title: section.title.clone(),
        paper: section.paper.clone(),
        note: section.note.clone(),
        because: None,  // until all sections have figures
        compared: None, // the same
        source: section.source,
        columns: columns.collect(),
        rows: rows.collect(),
        chart: section.chart.as_ref().map(ChartResults::from),
    }
}

fn value(column: &Column, row: &Row, parts: &Parts) -> Value {
    let printed = column.published.as_ref().and_then(|name| row.get(name));
    let ours = match &column.shows {
        Shows::Cell { measure, form, cell } => measured(measure, *form, cell, row, parts),
        Shows::Mean(_) | Shows::Line(_) => None,
    };
    let published = printed.and_then(|text| text.parse().ok());
    Value { published, ..ours.unwrap_or_default() }
}

/// Returns the cell of the first part that measured it.
fn measured(
    measure: &Measure,
    form: Form,
    cell: &CellTemplate,
    row: &Row,
    parts: &Parts,
) -> Option<Value> {
    cell.places(row).ok()?.into_iter().find_map(|place| {
        let results = parts.get(&place.part)?;
        let measured = measure.of(results, &place.cell, form, place.against.as_deref())?;
        let against = place.against.clone().filter(|_| form.is_relative()).or_else(|| {
            let is_relative = form.is_relative() || measure.name == "cost-model";
            is_relative.then(|| measure::baseline(results, &place.cell.stack))?.map(str::to_owned)
        });
        let stacks = [Some(&place.cell.stack), against.as_ref()];
        let was_not_shaped = |stack: &String| was_not_shaped(results, measure, &place, stack);
        Some(Value {
            published: None,
            measured: Some(measured),
            not_shaped: measure.is_of_time() && stacks.into_iter().flatten().any(was_not_shaped),
            origin: Some(Origin {
                part: place.part,
                stack: place.cell.stack,
                workload: place.cell.workload,
                size_bytes: place.cell.size_bytes,
                against,
            }),
        })
    })
}

/// Whether a sample of the stack in this place passed the link's token bucket undelayed by
/// the clock that is shown: a session that waits for seconds did not, however short the
/// transfer in it. A model is of all sizes.
fn was_not_shaped(results: &Results, measure: &Measure, place: &Place, stack: &str) -> bool {
    let is_main = |link: &String| *link == results.link.name;
    let size = place.cell.size_bytes.filter(|_| !measure.is_of_a_model());
    results.samples.iter().any(|sample| {
        sample.not_shaped
            && measure.clock_s(sample).is_none_or(|seconds| seconds < UNSHAPED_S)
            && is_main(&sample.link)
            && sample.stack == stack
            && sample.workload == place.cell.workload
            && size.is_none_or(|size| sample.size_bytes == size)
    })
}

/// Fills columns that are made of others.
fn derive(study: &Study, sections: &mut [SectionResults]) {
    for (index, section) in study.sections.iter().enumerate() {
        for (nth, column) in section.columns.iter().enumerate() {
            let found = |row: &Row| match &column.shows {
                Shows::Cell { .. } => None,
                Shows::Mean(references) => derived::mean(study, sections, references, row),
                Shows::Line(line) => derived::line(sections, line, row),
            };
            let values: Vec<_> = section.rows.iter().map(|(_, row)| found(row)).collect();
            if let Shows::Mean(references) = &column.shows
                && let Some((_, row)) = section.rows.first()
            {
                let like = references.first().and_then(|reference| {
                    let name = template::fill(reference, row).ok()?;
                    let (section, column, _) = section::find(&study.sections, &name)?;
                    Some(sections[section].columns[column].clone())
                });
                if let Some(like) = like {
                    let column = &mut sections[index].columns[nth];
                    (column.unit, column.signed, column.form) = (like.unit, like.signed, like.form);
                }
            }
            for (row, value) in sections[index].rows.iter_mut().zip(values) {
                if let Some(value) = value {
                    let published = row.values[nth].published;
                    row.values[nth] = Value { published, ..value };
                }
            }
        }
    }
}
