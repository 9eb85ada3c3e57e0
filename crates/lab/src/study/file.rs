//! A study as it is written in TOML, checked on the way to a [`Study`].

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

use super::claim::{Claim, Comparison};
use super::kept::Source;
use super::measure::{self, Form};
use super::section::{CellTemplate, Chart, Column, LineTemplate, PublishedSource, Section, Shows};
use super::template::{self, Row};
use super::{Study, published, section, sentence};
use crate::plan::{At, Plan, PlanFile, at, expand};
use crate::toml_error;
use crate::units;

/// Reads the text of a table that a study names.
pub(super) type Tables<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Reads a study; an error is `LINE: sentence`.
pub(super) fn read(text: &str, name: &str, tables: Tables<'_>) -> Result<Study, String> {
    let file: StudyFile =
        toml::from_str(text).map_err(|error| toml_error::in_text(&error, text))?;
    let study = file.into_study(name, tables).map_err(|error| error.in_text(text))?;
    let tables = study.source.tables;
    Ok(Study { source: Source { text: text.to_owned(), tables }, ..study })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StudyFile {
    question: String,
    paper: Option<String>,
    says: Option<Spanned<String>>,
    answer: Option<Spanned<String>>,
    answer_quick: Option<Spanned<String>>,
    #[serde(default)]
    differs: Vec<String>,
    part: Spanned<Vec<Spanned<PlanFile>>>,
    #[serde(default)]
    section: Vec<Spanned<SectionFile>>,
    /// Sentences that the figures choose.
    #[serde(default)]
    claim: Vec<Spanned<ClaimFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimFile {
    id: String,
    compare: Vec<Spanned<String>>,
    holds: Spanned<String>,
    fails: Spanned<String>,
    unknown: Spanned<String>,
}

/// One part, or several, of which the first that has measured a cell is shown.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "`part` is the name of a part, or a list of such names")]
enum PartNames {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SectionFile {
    id: String,
    title: String,
    paper: Option<String>,
    note: Option<String>,
    because: Option<Spanned<String>>,
    /// A table that the paper printed, whose rows are the section's.
    published: Option<Spanned<String>>,
    /// Only its rows with these values.
    #[serde(default, rename = "where")]
    filter: BTreeMap<String, String>,
    /// Rows without such a table; each is `{row}`.
    #[serde(default)]
    rows: Vec<Spanned<String>>,
    /// Origin of the published columns, if the paper did not print them.
    #[serde(default)]
    source: PublishedSource,
    /// The name of a row.
    row: Option<Spanned<String>>,
    /// Labels of rows in the report, if not their names.
    #[serde(default)]
    labels: BTreeMap<Spanned<String>, String>,
    chart: Option<Chart>,
    column: Vec<Spanned<ColumnFile>>,
    // what columns have that do not say it themselves
    part: Option<PartNames>,
    stack: Option<String>,
    workload: Option<String>,
    size: Option<String>,
    measure: Option<String>,
    form: Option<Form>,
    against: Option<String>,
    /// Which second, of a measure that is told over time.
    at: Option<String>,
    #[serde(default)]
    names: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ColumnFile {
    id: String,
    title: String,
    published: Option<String>,
    #[serde(default = "yes")]
    drawn: bool,
    panel: Option<String>,
    /// The mean of these figures.
    mean: Option<Vec<Spanned<String>>>,
    /// A line through another column.
    line: Option<Spanned<LineTemplate>>,
    part: Option<PartNames>,
    stack: Option<String>,
    workload: Option<String>,
    size: Option<String>,
    measure: Option<String>,
    form: Option<Form>,
    against: Option<String>,
    at: Option<String>,
    #[serde(default)]
    names: BTreeMap<String, String>,
}

impl StudyFile {
    fn into_study(self, name: &str, tables: Tables<'_>) -> Result<Study, At> {
        if let Some(says) = self.says.as_ref().filter(|_| self.paper.is_none()) {
            let message = "`says` is the answer of a paper, and no `paper` is named: name it, or leave out `says`";
            return Err(at(says, message));
        }
        let span = self.part.span();
        let mut parts: Vec<Plan> = Vec::new();
        for (number, part) in self.part.into_inner().into_iter().enumerate() {
            let span = part.span();
            let plan = part.into_inner().into_plan(&format!("part-{}", number + 1), None)?;
            if parts.iter().any(|other| other.name == plan.name) {
                return Err(At { span, message: format!("two parts are called `{}`", plan.name) });
            }
            parts.push(plan);
        }
        if parts.is_empty() {
            return Err(At { span, message: "the study has no [[part]]".to_owned() });
        }
        let (mut sections, mut source) = (Vec::<Section>::new(), Source::default());
        let answers = self.answer.iter().chain(&self.answer_quick);
        let mut figured: Vec<Spanned<String>> = answers.cloned().collect();
        for file in self.section {
            let span = file.span();
            let told = |message: String| At { span: span.clone(), message };
            let file = file.into_inner();
            if let Some(table) = &file.published {
                let text = tables(table.get_ref()).map_err(|why| at(table, why))?;
                if source.tables.iter().all(|(name, _)| name != table.get_ref()) {
                    source.tables.push((table.get_ref().clone(), text));
                }
            }
            figured.extend(file.because.clone());
            let section = file.into_section(&parts, &source.tables, &told)?;
            section.check(&parts).map_err(&told)?;
            if sections.iter().any(|other| other.id == section.id) {
                return Err(told(format!("two sections are called `{}`", section.id)));
            }
            sections.push(section);
        }
        let claims = self.claim.into_iter().map(|claim| claim.into_inner().into_claim(&sections));
        let claims = claims.collect::<Result<Vec<_>, At>>()?;
        let known = |reference: &str| match reference.strip_prefix('?') {
            Some(id) if claims.iter().any(|claim: &Claim| claim.id == id) => Ok(String::new()),
            Some(id) => Err(format!("there is no claim `{id}`")),
            None => figure(&sections, reference),
        };
        for text in &figured {
            template::fill_with(text.get_ref(), known).map_err(|message| at(text, message))?;
        }
        Ok(Study {
            name: name.to_owned(),
            question: self.question,
            paper: self.paper,
            says: self.says.map(Spanned::into_inner),
            answer: self.answer.map(Spanned::into_inner),
            answer_quick: self.answer_quick.map(Spanned::into_inner),
            differs: self.differs,
            parts,
            sections,
            claims,
            source,
        })
    }
}

impl ClaimFile {
    fn into_claim(self, sections: &[Section]) -> Result<Claim, At> {
        let compare = self.compare.iter().map(|text| {
            let comparison =
                Comparison::parse(text.get_ref()).map_err(|message| at(text, message))?;
            for side in comparison.references() {
                if !has_cells(sections, side) {
                    return Err(at(
                        text,
                        format!("there is no `{side}`: write section/column/row"),
                    ));
                }
            }
            Ok(comparison)
        });
        let compare = compare.collect::<Result<Vec<_>, At>>()?;
        let texts = [self.holds, self.fails, self.unknown];
        let told_as_the_papers =
            texts.iter().find(|text| text.get_ref().contains("as in the paper"));
        if let Some(text) =
            told_as_the_papers.filter(|_| compare.iter().any(Comparison::has_number))
        {
            let why = "what is compared with a number may be far from the paper's figure: say that figure instead";
            return Err(at(text, why));
        }
        for text in &texts {
            let known = |name: &str| {
                let is_known = sentence::OF_CLAIMS.contains(&name);
                if is_known { Ok(String::new()) } else { figure(sections, name) }
            };
            template::fill_with(text.get_ref(), known).map_err(|message| at(text, message))?;
        }
        let [holds, fails, unknown] = texts.map(Spanned::into_inner);
        Ok(Claim { id: self.id, compare, holds, fails, unknown })
    }
}

/// Nothing, where the reference is to a figure.
fn figure(sections: &[Section], reference: &str) -> Result<String, String> {
    let found = section::find(sections, reference).map(|_| String::new());
    found.ok_or_else(|| format!("there is no `{reference}`: write section/column/row"))
}

/// Whether a reference, in which `*` is every column or row, is to anything.
fn has_cells(sections: &[Section], reference: &str) -> bool {
    let mut names = reference.splitn(3, '/');
    let (Some(section), Some(column), Some(row)) = (names.next(), names.next(), names.next())
    else {
        return false;
    };
    let Some(section) = sections.iter().find(|known| known.id == section) else { return false };
    (column == "*" || section.columns.iter().any(|known| known.id == column))
        && (row == "*" || section.rows.iter().any(|(known, _)| known == row))
}

fn yes() -> bool {
    true
}

impl SectionFile {
    fn into_section(
        self,
        parts: &[Plan],
        tables: &[(String, String)],
        told: &dyn Fn(String) -> At,
    ) -> Result<Section, At> {
        let rows = self.rows_of(tables, told)?;
        let is_no_row = |name: &&Spanned<String>| rows.iter().all(|(row, _)| row != name.get_ref());
        if let Some(unknown) = self.labels.keys().find(is_no_row) {
            let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
            let (label, names) = (unknown.get_ref(), names.join("`, `"));
            let message = format!("`labels` names the row `{label}`; the rows are `{names}`");
            return Err(at(unknown, message));
        }
        let columns = self.column.iter().map(|column| {
            let told = |message: String| at(column, message);
            self.column_of(column.get_ref(), parts, &told)
        });
        Ok(Section {
            rows,
            columns: columns.collect::<Result<_, At>>()?,
            id: self.id,
            title: self.title,
            paper: self.paper,
            note: self.note,
            because: self.because.map(Spanned::into_inner),
            labels: self.labels.into_iter().map(|(row, label)| (row.into_inner(), label)).collect(),
            source: self.source,
            chart: self.chart,
        })
    }

    fn column_of(
        &self,
        column: &ColumnFile,
        parts: &[Plan],
        told: &dyn Fn(String) -> At,
    ) -> Result<Column, At> {
        let shows = match (&column.mean, &column.line) {
            (Some(references), None) => {
                Shows::Mean(references.iter().map(|text| text.get_ref().clone()).collect())
            }
            (None, Some(line)) => Shows::Line(line.get_ref().clone()),
            (None, None) => self.cell_of(column, parts, told)?,
            (Some(_), Some(_)) => {
                return Err(told("a column is a `mean` or a `line`, not both".to_owned()));
            }
        };
        Ok(Column {
            id: column.id.clone(),
            title: column.title.clone(),
            published: column.published.clone(),
            drawn: column.drawn,
            panel: column.panel.clone(),
            shows,
        })
    }

    fn cell_of(
        &self,
        column: &ColumnFile,
        parts: &[Plan],
        told: &dyn Fn(String) -> At,
    ) -> Result<Shows, At> {
        let missing = |key: &str| told(format!("say which `{key}` the column is of"));
        let said = |key: &str, own: &Option<String>, section: &Option<String>| {
            own.as_ref().or(section.as_ref()).cloned().ok_or_else(|| missing(key))
        };
        let only =
            || Some(PartNames::One(parts.first().filter(|_| parts.len() == 1)?.name.clone()));
        let named = column.part.clone().or_else(|| self.part.clone()).or_else(only);
        let measure = said("measure", &column.measure, &self.measure)?;
        let names = self.names.iter().chain(&column.names);
        Ok(Shows::Cell {
            measure: measure::find(&measure).map_err(told)?,
            form: column.form.or(self.form).unwrap_or(Form::Value),
            cell: CellTemplate {
                parts: match named.ok_or_else(|| missing("part"))? {
                    PartNames::One(name) => vec![name],
                    PartNames::Several(names) => names,
                },
                stack: said("stack", &column.stack, &self.stack)?,
                workload: said("workload", &column.workload, &self.workload)?,
                size: column.size.clone().or_else(|| self.size.clone()),
                against: column.against.clone().or_else(|| self.against.clone()),
                at: column.at.clone().or_else(|| self.at.clone()),
                names: names.map(|(from, to)| (from.clone(), to.clone())).collect(),
            },
        })
    }

    fn rows_of(
        &self,
        tables: &[(String, String)],
        told: &dyn Fn(String) -> At,
    ) -> Result<Vec<(String, Row)>, At> {
        let rows: Vec<Row> = match &self.published {
            Some(name) if self.rows.is_empty() => {
                let text = tables.iter().find(|(known, _)| known == name.get_ref());
                let text = text.map_or("", |(_, text)| text.as_str());
                let all = published::parse(text)
                    .map_err(|why| at(name, format!("the table {}: {why}", name.get_ref())))?;
                let wanted = |row: &Row| {
                    self.filter.iter().all(|(name, value)| row.get(name) == Some(value))
                };
                all.into_iter().filter(wanted).collect()
            }
            Some(name) => {
                return Err(at(name, "rows are those of the published table or `rows`, not both"));
            }
            None => {
                let mut rows = Vec::new();
                for text in &self.rows {
                    let all = expand(text.get_ref()).map_err(|why| at(text, why))?;
                    let row = |value: String| Row::from([("row".to_owned(), value)]);
                    rows.extend(all.into_iter().map(row));
                }
                rows
            }
        };
        if rows.is_empty() {
            let message = if let Some(table) = &self.published {
                let table = table.get_ref();
                format!(
                    "no row of the table {table} is left: it has none, or none that `where` asks for"
                )
            } else {
                "the section has no rows: list them as `rows = [\"a\", \"b\"]` (each is `{row}`), or name a table of \
                 the folder published/ by `published`; `row` is only the name that each of them gets"
                    .to_owned()
            };
            return Err(told(message));
        }
        self.named(rows, told)
    }

    /// Gives rows their names, which tell them apart.
    fn named(&self, rows: Vec<Row>, told: &dyn Fn(String) -> At) -> Result<Vec<(String, Row)>, At> {
        let wrong = |message: String| match &self.row {
            Some(row) => at(row, message),
            None => told(message),
        };
        let text = self.row.as_ref().map_or("{row}", |row| row.get_ref());
        let mut named: Vec<(String, Row)> = Vec::new();
        for row in rows {
            let name = readable(template::fill(text, &row).map_err(&wrong)?);
            if named.iter().any(|(other, _)| *other == name) {
                let known: Vec<&str> = row.keys().map(String::as_str).collect();
                return Err(wrong(format!(
                    "two rows are called `{name}`: `row` is a text that is filled for each row and tells them apart, \
                     with `{{{}}}`",
                    known.join("}`, `{")
                )));
            }
            named.push((name, row));
        }
        Ok(named)
    }
}

/// A label that is a size, in the unit that people would use: 1 GiB for 1048576 KiB.
fn readable(label: String) -> String {
    let size = label.ends_with("iB").then(|| units::parse_size(&label).ok()).flatten();
    size.map_or(label, units::size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDY: &str = r#"
question = "What does FTPS cost?"
paper = "Nobody: Nothing"
says = "much"
answer = "It costs {times/ftps/1 KiB}."
[[part]]
name = "lan"
stacks = ["ftp", "ftps"]
[[part.workload]]
kind = "download"
sizes = ["1KiB", "10KiB"]
[part.quick]
largest = "1KiB"
[part.smoke]
skip = true
[[section]]
id = "times"
title = "Table 1"
published = "times.csv"
row = "{size_kib} KiB"
chart = { x = "{size_kib}KiB", x-title = "size", y-title = "s", log-x = true }
workload = "download"
[[section.column]]
id = "ftps"
title = "FTPS"
published = "ftps_s"
stack = "ftps"
size = "{size_kib}KiB"
measure = "transfer"
form = "overhead-pct"
"#;

    fn tables(name: &str) -> Result<String, String> {
        let here = name == "times.csv";
        here.then(|| "size_kib,ftps_s\n1,0.1\n10,0.2\n".to_owned())
            .ok_or_else(|| format!("no table {name}"))
    }

    #[test]
    fn the_example_of_the_documents_is_a_study() {
        const TEXT: &str = include_str!("../../../../docs/writing-a-study.md");
        let block = |language: &str| {
            let (_, behind) = TEXT.split_once(&format!("```{language}\n")).expect("it begins");
            behind.split_once("```").expect("it ends").0
        };
        let tables = |name: &str| {
            assert!(TEXT.contains(&format!("`published/{name}`")), "{name}");
            Ok(block("csv").to_owned())
        };
        let study = read(block("toml"), "doe", &tables).expect("a good study");
        study.clone().at_scale(crate::plan::Scale::Smoke).expect("a part is left");
        let quick = study.at_scale(crate::plan::Scale::Quick).expect("a part is left");
        let answer = quick.answer.expect("an answer");
        assert!(answer.starts_with("A file of 1 KiB"), "{answer}");
        let (_, told) = TEXT.split_once("### Measures").expect("measures are listed");
        for measure in crate::study::measure::ALL {
            let name = format!("`{}`", measure.name);
            assert!(told.contains(&name), "{name} is not told");
            let is_marked = told.contains(&format!("{name}†"));
            assert_eq!(is_marked, !measure.is_of_samples(), "† of {name}");
        }
    }

    /// A study without a paper: its section lists its rows.
    const LISTED: &str = r#"question = "How much?"
[[part]]
name = "a"
stacks = ["ftp"]
[[part.workload]]
kind = "download"
sizes = ["1KiB"]
[[section]]
id = "s"
title = "S"
rows = ["a"]
row = "{row}"
part = "{row}"
workload = "download"
size = "1KiB"
measure = "session"
[[section.column]]
id = "ftp"
title = "FTP"
stack = "ftp"
[section.labels]
a = "the first"
"#;

    #[test]
    fn a_study_needs_no_paper_and_no_answer() {
        let study = read(LISTED, "s", &tables).expect("a good study");
        assert_eq!((&study.paper, &study.says, &study.answer), (&None, &None, &None));
        assert_eq!(study.sections[0].label("a"), "the first");
        assert!(!study.is_smaller_at(crate::plan::Scale::Quick));
        assert!(
            read(STUDY, "s", &tables)
                .is_ok_and(|study| study.is_smaller_at(crate::plan::Scale::Quick))
        );
    }

    #[test]
    fn says_what_rows_and_parts_lack() {
        for (from, to, why) in [
            (
                "rows = [\"a\"]\n",
                "",
                "8: the section has no rows: list them as `rows = [\"a\", \"b\"]`",
            ),
            (
                "\"{row}\"\npart",
                "\"{link}\"\npart",
                "12: `{link}`: there is no `link` in a row; there are row",
            ),
            ("a = \"the", "b = \"the", "22: `labels` names the row `b`; the rows are `a`"),
            ("part = \"{row}\"", "part = \"b\"", "column ftp: there is no part `b`; there are `a`"),
            (
                "stacks = [\"ftp\"]\n",
                "",
                "2: missing field `stacks`; each [[part]] of a study is a plan",
            ),
            (
                "[[part]]",
                "says = \"x\"\n[[part]]",
                "2: `says` is the answer of a paper, and no `paper` is named",
            ),
        ] {
            assert_eq!(LISTED.matches(from).count(), 1, "{from}");
            let error = read(&LISTED.replace(from, to), "s", &tables).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
        let same = LISTED
            .replace("[\"a\"]", "[\"a\", \"b\"]")
            .replace("\"{row}\"\npart", "\"link\"\npart");
        let error = read(&same, "s", &tables).expect_err("one name for two rows");
        assert!(error.starts_with("12: two rows are called `link`"), "{error}");
        assert!(error.ends_with("with `{row}`"), "{error}");
        let none = STUDY.replace("row =", "where = { size_kib = \"7\" }\nrow =");
        let error = read(&none, "s", &tables).expect_err("no row");
        assert!(error.contains("no row of the table times.csv is left"), "{error}");
    }

    #[test]
    fn the_study_of_the_guide_has_a_row_for_each_part() {
        const GUIDE: &str = include_str!("../../../../docs/lab.md");
        let texts = GUIDE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let studies: Vec<&str> = texts.filter(|text| text.contains("[[part]]")).collect();
        let [text] = studies[..] else { panic!("{} studies", studies.len()) };
        let study = read(text, "guide", &tables).expect("a good study");
        let section = &study.sections[0];
        assert_eq!((study.parts.len(), section.rows.len(), section.columns.len()), (2, 2, 2));
    }

    #[test]
    fn a_claim_about_a_number_is_not_as_in_the_paper() {
        let claim = "[[claim]]\nid = \"c\"\ncompare = [\"times/ftps/1 KiB > 5\"]\nholds = \"It is as in the paper.\"\n\
                     fails = \"\"\nunknown = \"\"\n";
        let tables = |_: &str| Ok("size_kib,ftps_s\n1,0.01\n".to_owned());
        let said = read(&format!("{STUDY}\n{claim}"), "s", &tables);
        assert!(
            said.as_ref().is_err_and(|why| why.contains("say that figure instead")),
            "{said:?}"
        );
    }

    #[test]
    fn sizes_are_labelled_as_people_say_them() {
        for (label, read) in
            [("1048576 KiB", "1 GiB"), ("10 KiB", "10 KiB"), ("64", "64"), ("x KiB", "x KiB")]
        {
            assert_eq!(readable(label.to_owned()), read);
        }
    }

    #[test]
    fn a_study_is_parts_and_sections_that_refer_to_them() {
        let study = read(STUDY, "s", &tables).expect("a good study");
        assert_eq!((study.parts.len(), study.sections[0].rows.len()), (1, 2));
        assert_eq!(section::find(&study.sections, "times/ftps/10 KiB"), Some((0, 0, 1)));
        let quick = study.clone().at_scale(crate::plan::Scale::Quick).expect("a part is left");
        assert_eq!(quick.parts[0].workloads[0].sizes, [1024]);
        assert!(study.at_scale(crate::plan::Scale::Smoke).is_err(), "no part is left");
    }

    #[test]
    fn what_is_of_all_sizes_needs_none() {
        let text = STUDY.replace("size = \"{size_kib}KiB\"\n", "");
        let text = text.replace("form = \"overhead-pct\"\n", "");
        for measure in ["model-per-gb", "bytes-searched"] {
            let text = text.replace("\"transfer\"", &format!("\"{measure}\""));
            assert!(read(&text, "s", &tables).is_ok(), "{measure}");
        }
    }

    #[test]
    fn compares_shares_of_a_link() {
        for form in ["overhead-pct", "pct-of", "loss-pct"] {
            let text = STUDY.replace("\"transfer\"", "\"link-rate-pct\"");
            let text = text.replace("\"overhead-pct\"", &format!("\"{form}\""));
            assert!(read(&text, "s", &tables).is_ok(), "{form}");
        }
    }

    #[test]
    fn what_refers_to_nothing_is_refused_with_its_line() {
        for (from, to, why) in [
            ("times.csv", "none.csv", "19: no table none.csv"),
            ("\"ftps_s\"", "\"ftps_ms\"", "the published table has no column `ftps_ms`"),
            ("{size_kib} KiB", "{size} KiB", "there is no `size` in a row"),
            ("stack = \"ftps\"", "stack = \"sftp\"", "the part `lan` has no stack `sftp`"),
            ("size = \"{size_kib}KiB\"", "size = \"7KiB\"", "has no `download` of 7 KiB of `ftps`"),
            (
                "size = \"{size_kib}KiB\"\n",
                "",
                "the part `lan` has `download` of several sizes, 1 KiB, 10 KiB: say which by `size`",
            ),
            (
                "[part.quick]",
                "[part.baselines]\nftps = \"none\"\n[part.quick]",
                "row 1 KiB, column ftps: its stack has no baseline there: name the other stack by `against`",
            ),
            ("\"transfer\"", "\"time\"", "there is no measure `time`"),
            ("\"transfer\"", "\"model-fixed\"", "`model-fixed` is of the whole run"),
            (
                "\"transfer\"",
                "\"link-high\"",
                "leave out `form`, or name a measure of single samples",
            ),
            ("times/ftps", "times/sftp", "5: there is no `times/sftp/1 KiB`"),
            (
                "[[part]]",
                "answer-quick = \"{times/ftps}\"\n[[part]]",
                "6: there is no `times/ftps`",
            ),
            (
                "row =",
                "because = \"{times/sftp/1 KiB}\"\nrow =",
                "20: there is no `times/sftp/1 KiB`",
            ),
            ("[\"ftp\", \"ftps\"]", "[\"ftp\", \"gopher\"]", "8: there is no application `gopher`"),
            ("largest", "largst", "unknown field `largst`"),
        ] {
            assert!(STUDY.contains(from), "{from}");
            let error = read(&STUDY.replace(from, to), "s", &tables).expect_err(to);
            assert!(error.contains(why), "{error}");
        }
    }
}
