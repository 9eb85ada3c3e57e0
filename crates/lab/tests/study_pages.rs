//! The pages in docs/studies: made again from the samples that are published, no sentence of
//! theirs is contradicted by a figure beside it; and what is published shows runs and marks.

use std::path::{Path, PathBuf};
use std::process::Command;

use headroom_lab::plan::Scale;
use headroom_lab::study::results::{ChartResults, ColumnResults, SectionResults, Value};
use headroom_lab::study::{self, Study, StudyResults};
use headroom_lab_results::analysis::fit::log_line;
use headroom_lab_results::report::terminal::Detail;
use tempfile::TempDir;

const STUDIES: [&str; 5] = ["fmft", "ftps-ipsec-ipv6", "ipsec-study", "layering", "qesp"];

/// Prints a study in full.
const COMMAND: &str = "headroom lab report --full results/study";

/// The published samples in a folder of their own, which goes when this does.
struct Samples(TempDir);

impl Samples {
    fn unpacked() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let archive = root().join("docs/studies/samples.tar.xz");
        let mut command = Command::new("tar");
        command.arg("-xJf").arg(archive).arg("-C").arg(folder.path());
        assert!(command.status().expect("tar runs").success());
        Self(folder)
    }

    fn page(&self, study: &Study) -> StudyResults {
        study::rebuild(study, Scale::Full, &self.0.path().join(&study.name)).expect("a page")
    }
}

#[test]
fn no_sentence_is_contradicted_by_a_figure_of_its_page() {
    let samples = Samples::unpacked();
    let index = published("index.md");
    for name in STUDIES {
        let page = samples.page(&read(name));
        assert_eq!(page.contradicted, [""; 0], "{name}");
        assert!(page.sentences.len() > 2, "{name}: sentences were looked at");
        let shown = published(&format!("{name}/study.md"));
        let told = page.sections.iter().filter_map(|section| section.because.as_ref());
        for sentence in told.chain(&page.answer) {
            assert!(
                shown.contains(sentence),
                "{name}: scripts/remake-studies was not run: {sentence}"
            );
        }
        let answer = page.answer.expect("an answer");
        assert!(index.contains(&answer), "the index has another answer of {name}");
    }
}

#[test]
fn prints_the_answer_of_a_study_on_one_screen() {
    let samples = Samples::unpacked();
    for name in STUDIES {
        let page = samples.page(&read(name));
        let printed = study::report::terminal(&page, COMMAND, 80, Detail::Main);
        assert!(printed.lines().count() <= 22, "{name}: {printed}");
    }
    let page = samples.page(&read("layering"));
    insta::assert_snapshot!(study::report::terminal(&page, COMMAND, 80, Detail::Main));
    insta::assert_snapshot!(study::report::terminal(&page, COMMAND, 80, Detail::Full));
}

#[test]
fn sentences_that_leave_out_what_they_depend_on_are_contradicted() {
    let samples = Samples::unpacked();
    // answers of pages that were published before sentences were checked, and two like them
    for (name, answer, why) in [
        (
            "ipsec-study",
            "DES with SHA-1 takes {table-3-loss/offload/des-cbc, hmac-sha1}, AES-128-GCM {suites/loss/aes-128-gcm}.",
            "was measured with offload on",
        ),
        (
            "layering",
            "A download takes {table-2/base/sftp/ipsec, download} over IPsec.",
            "is of a layer in user space",
        ),
        (
            "qesp",
            "Q-ESP carries {figure-8/gcm/512} of ESP's packets of 512 bytes.",
            "AES-128-GCM has",
        ),
        (
            "fmft",
            "At 1100 bytes the link carries {figure-2/xor/1100} with XOR, {figure-2/aes/1100} with AES-128-GCM.",
            "do not differ significantly",
        ),
        (
            "ipsec-study",
            "Here DES with SHA-1 is faster than with MD5, as in the paper.",
            "no claim chose it",
        ),
        ("ipsec-study", "The figure depends on the offload profile.", "no claim chose it"),
        ("ipsec-study", "Instructions raise the throughput.", "no claim chose it"),
        // a claim about something else is no claim about these two
        (
            "fmft",
            "At 1100 bytes the link carries {figure-2/xor/1100} with XOR, {figure-2/aes/1100} with AES-128-GCM{?sizes}.",
            "do not differ significantly",
        ),
        (
            "qesp",
            "A datagram of 64 bytes takes {bytes/esp/64} on the link by ESP.",
            "is of a layer in user space",
        ),
    ] {
        let mut study = read(name);
        study.answer = Some(answer.to_owned());
        let page = samples.page(&study);
        let found =
            page.contradicted.iter().any(|said| said.starts_with("answer") && said.contains(why));
        assert!(found, "{name}: {answer}: {:?}", page.contradicted);
    }
}

#[test]
fn marks_follow_the_clock_that_is_shown_and_what_a_figure_is_made_of() {
    let samples = Samples::unpacked();
    let mut relative = 0;
    for name in STUDIES {
        let page = samples.page(&read(name));
        let cells = || {
            page.sections.iter().flat_map(|section| {
                section.rows.iter().flat_map(|row| section.columns.iter().zip(&row.values))
            })
        };
        for (column, value) in cells() {
            let Some(measured) = value.measured else { continue };
            let told = format!("{name}, {}: {value:?}", column.title);
            if column.measure == "cost-model" {
                assert!(measured.n.is_some(), "{told}");
            }
            let is_time = ["session", "transfer"].contains(&column.measure.as_str());
            if is_time && column.unit == "s" && value.not_shaped {
                // one run in which it was short is enough, but it is no mark of minutes
                assert!(measured.ends()[0] < 0.15, "{told}");
            }
            let Some(origin) = &value.origin else { continue };
            let is_of_baseline = |other: &ColumnResults, cell: &Value| {
                other.measure == column.measure
                    && other.unit != "%"
                    && cell.not_shaped
                    && cell.origin.as_ref().is_some_and(|cell| {
                        Some(&cell.stack) == origin.against.as_ref()
                            && (&cell.part, &cell.workload, cell.size_bytes)
                                == (&origin.part, &origin.workload, origin.size_bytes)
                    })
            };
            if cells().any(|(other, cell)| is_of_baseline(other, cell)) {
                relative += 1;
                assert!(value.not_shaped, "{told}");
            }
        }
    }
    assert!(relative > 0, "no figure against a baseline that was not shaped");
}

#[test]
fn overheads_over_one_baseline_are_compared_by_block() {
    let samples = Samples::unpacked();
    let page = samples.page(&read("layering"));
    let claim = page.claims.iter().find(|claim| claim.id == "both-download").expect("the claim");
    let [paired] = claim.paired.as_slice() else { panic!("{claim:?}") };
    let [lo, hi] = paired.ratio.ends();
    // as the page has it in its table of what is over one layer
    let told = |id: &str, column: &str, row: &str| {
        let section = page.sections.iter().find(|section| section.id == id).expect(id);
        let index = section.columns.iter().position(|known| known.id == column).expect(column);
        let row = section.rows.iter().find(|known| known.name == row).expect(row);
        row.values[index].measured.expect("measured")
    };
    let both = told("table-2", "base", "sftp/tls/ipsec, download");
    let one = told("table-2", "base", "sftp/ipsec, download");
    assert!((paired.ratio.value / (both.value / one.value) - 1.0).abs() < 1e-6);
    let outcome = format!("{:?}", claim.outcome);
    let expected = match (lo > 1.0, hi < 1.0) {
        (true, _) => "Holds",
        (_, true) => "Fails",
        _ => "Unknown",
    };
    assert_eq!(outcome, expected, "{claim:?}");
}

fn section<'a>(page: &'a StudyResults, id: &str) -> &'a SectionResults {
    page.sections.iter().find(|section| section.id == id).unwrap_or_else(|| panic!("no {id}"))
}

/// A cell by the titles of its column and row, which are what a reader sees.
fn cell<'a>(page: &'a StudyResults, id: &str, column: &str, row: &str) -> &'a Value {
    let section = section(page, id);
    let titles = || section.columns.iter().map(ColumnResults::heading);
    let at = titles().position(|title| title == column);
    let at =
        at.unwrap_or_else(|| panic!("{id}: no {column} in {:?}", titles().collect::<Vec<_>>()));
    let row = section.rows.iter().find(|known| known.label == row);
    &row.unwrap_or_else(|| panic!("{id}: no such row")).values[at]
}

#[test]
fn models_beside_the_papers_are_the_papers_fit_of_the_table_above() {
    let samples = Samples::unpacked();
    let page = samples.page(&read("ftps-ipsec-ipv6"));
    for scenario in
        ["FTPS, download", "FTP over IPsec, download", "FTPS, upload", "FTP over IPsec, upload"]
    {
        let table = section(&page, "table-2");
        let points = table.rows.iter().map(|row| {
            let value = cell(&page, "table-2", scenario, &row.label);
            let size = value.origin.as_ref().and_then(|origin| origin.size_bytes).expect("a size");
            (size as f64 / 1024.0, value.measured.expect("measured").value)
        });
        let line = log_line(&points.collect::<Vec<_>>()).expect("seven sizes");
        for (column, expected) in [
            ("the paper's fit, at 1 KiB", line.intercept),
            ("the paper's fit, per factor e of size", line.slope),
        ] {
            let shown = cell(&page, "models", column, scenario);
            assert!(shown.published.is_some(), "the paper's own stands beside it");
            let shown = shown.measured.expect("measured").value;
            let told = format!("{scenario}, {column}: {shown}, and {line:?}");
            assert!((shown - expected).abs() <= 1e-9 * expected.abs(), "{told}");
        }
    }
}

#[test]
fn each_table_and_figure_of_a_paper_has_its_measured_values() {
    let samples = Samples::unpacked();
    // study, section, column, row, and whether the paper (or a formula) has a value
    let wanted: &[(&str, &str, &str, &str, bool)] = &[
        ("ftps-ipsec-ipv6", "table-1", "FTP, download", "1 KiB", true),
        ("ftps-ipsec-ipv6", "table-2", "FTPS, download", "1 GiB", true),
        ("ftps-ipsec-ipv6", "figure-3", "FTPS", "1 GiB", true),
        ("ftps-ipsec-ipv6", "figure-4", "FTP over IPsec", "1 GiB", true),
        ("ftps-ipsec-ipv6", "models", "weighted fit, at 1 KiB", "FTPS, upload", false),
        ("ftps-ipsec-ipv6", "figure-5", "FTPS, download: line by the paper's fit", "1 KiB", true),
        ("ftps-ipsec-ipv6", "figure-5", "FTPS, upload: cost model", "1 GiB", false),
        ("qesp", "table-1", "Q-ESP", "64 bytes", true),
        ("qesp", "bytes", "ESP", "64 bytes", true),
        ("qesp", "bytes", "Q-ESP", "1024 bytes", true),
        ("qesp", "figure-8", "AES-128-GCM", "64", false),
        ("qesp", "figure-9-delay", "Q-ESP", "3", false),
        ("ipsec-study", "table-1", "throughput lost", "with hardware", true),
        ("ipsec-study", "table-3", "mean of the sizes", "no tunnel", true),
        ("ipsec-study", "table-3", "200 MB", "DES, SHA-1", false),
        ("ipsec-study", "table-3-loss", "baseline with offload", "DES, SHA-1", true),
        ("ipsec-study", "table-3-loss", "baseline per packet", "DES, SHA-1", false),
        ("ipsec-study", "table-5", "all instructions", "triple DES, MD5", true),
        ("ipsec-study", "figure-6", "improvement", "DES, SHA-1", true),
        ("ipsec-study", "table-5-average", "improvement", "average", true),
        ("ipsec-study", "table-6", "throughput (measured: headroom tunnel)", "50 MB", true),
        ("ipsec-study", "table-7", "average", "encrypted", true),
        ("layering", "table-1", "time", "sftp/tls/ipsec, download", true),
        ("layering", "table-2", "% of base", "sftp/ipsec, upload", true),
        ("fmft", "figure-2-points", "throughput", "raw, 700 bytes", true),
        ("fmft", "loss", "XOR (SimpleCrypt)", "600", false),
        ("fmft", "sizes", "cost of XOR", "20 MB", false),
        ("fmft", "sizes", "cost of XOR", "50 MB", false),
        ("fmft", "sizes", "cost of XOR", "200 MB", false),
    ];
    for name in STUDIES {
        let page = samples.page(&read(name));
        for (_, id, column, row, published) in wanted.iter().filter(|(study, ..)| *study == name) {
            let value = cell(&page, id, column, row);
            let told = format!("{name}: {id}, {column}, {row}: {value:?}");
            assert!(value.measured.is_some(), "{told}");
            assert_eq!(value.published.is_some(), *published, "{told}");
        }
    }
    let because = |name: &str, id: &str| {
        let page = samples.page(&read(name));
        section(&page, id).because.clone().unwrap_or_default()
    };
    assert!(because("fmft", "loss").contains("the paper's"), "{}", because("fmft", "loss"));
    let sizes = because("fmft", "sizes");
    assert!(sizes.contains("20, 50 and 200 MB") && !sizes.contains("all these"), "{sizes}");
}

/// Pictures that a paper's curves need an axis or fields of their own for.
#[test]
fn pictures_have_the_axes_that_their_curves_need() {
    type Needs = fn(&ChartResults) -> bool;
    let needs: &[(&str, &str, Needs)] = &[
        ("ftps-ipsec-ipv6", "figure-3", |chart| chart.symlog_y),
        ("ftps-ipsec-ipv6", "figure-4", |chart| chart.symlog_y),
        ("ftps-ipsec-ipv6", "figure-5", |chart| chart.symlog_y),
        ("qesp", "figure-8", |chart| chart.free_y),
        ("qesp", "figure-9-rate", |chart| chart.free_y),
        ("fmft", "clients", |chart| chart.log_y),
        ("ipsec-study", "figure-6", |chart| chart.bars),
        ("ipsec-study", "table-3-loss", |chart| chart.bars),
        ("layering", "table-2", |chart| chart.bars),
    ];
    let samples = Samples::unpacked();
    for name in STUDIES {
        let page = samples.page(&read(name));
        for (_, id, need) in needs.iter().filter(|(study, ..)| *study == name) {
            let chart = section(&page, id).chart.as_ref();
            assert!(chart.is_some_and(need), "{name}: {id}: {chart:?}");
        }
    }
    let page = samples.page(&read("ftps-ipsec-ipv6"));
    let columns = &section(&page, "figure-5").columns;
    let panels: std::collections::BTreeSet<_> =
        columns.iter().filter(|column| column.drawn).map(|column| &column.panel).collect();
    assert_eq!(panels.len(), 4, "twelve lines are too many for one field");
}

#[test]
fn labels_of_pictures_lie_inside_and_name_their_units() {
    let samples = Samples::unpacked();
    let mut drawn = 0;
    for name in STUDIES {
        let page = samples.page(&read(name));
        let to = samples.0.path().join(format!("{name}-report"));
        std::fs::create_dir(&to).expect("a folder");
        study::report::write(&to, &page).expect("a report");
        for id in page.sections.iter().filter(|one| one.chart.is_some()).map(|one| &one.id) {
            let file = format!("{id}.svg");
            let svg = std::fs::read_to_string(to.join(&file))
                .unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
            assert_eq!(
                svg,
                published(&format!("{name}/{file}")),
                "scripts/remake-studies was not run"
            );
            assert_labels(&format!("{name}/{file}"), &svg);
            let chart = section(&page, id).chart.as_ref().expect("a chart");
            let what_is_counted = ["bytes", "clients", "size of the file", "datagram"];
            let is_told = |title: &str| {
                let unit = title.rsplit_once(", ").map(|(_, unit)| unit);
                let is_unit = |unit: &str| {
                    ["s", "ms", "Mbit/s", "kbit/s"].contains(&unit) || unit.starts_with('%')
                };
                unit.is_some_and(is_unit)
                    || title.starts_with('%')
                    || what_is_counted.iter().any(|what| title.starts_with(what))
            };
            for title in [&chart.x_title, &chart.y_title].into_iter().filter(|one| !one.is_empty())
            {
                assert!(is_told(title), "{name}/{file}: `{title}` has no unit");
                assert!(svg.contains(&format!(">{title}</text>")), "{name}/{file}: `{title}`");
            }
            drawn += 1;
        }
    }
    assert_eq!(drawn, 24);
}

/// Fails where a text of a picture leaves its view box.
fn assert_labels(file: &str, svg: &str) {
    let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("{file}: {text}"));
    let attribute = |tag: &str, name: &str| {
        let from = tag.find(&format!(" {name}=\""))? + name.len() + 3;
        Some(tag[from..].split('"').next().expect("an end").to_owned())
    };
    let view = attribute(svg, "viewBox").expect("a view box");
    let view: Vec<f64> = view.split(' ').map(number).collect();
    for text in svg.split("<text").skip(1) {
        let (tag, rest) = text.split_once('>').expect("a tag");
        let label = rest.split('<').next().expect("a label");
        let size = attribute(tag, "font-size").map_or(13.0, |size| number(&size));
        // about as wide as letters are in common fonts
        let width = 0.54 * size * label.chars().count() as f64;
        let start = match attribute(tag, "text-anchor").as_deref() {
            Some("middle") => -width / 2.0,
            Some("end") => -width,
            _ => 0.0,
        };
        let (along, across, most) = match attribute(tag, "transform") {
            // turned to the left
            Some(moved) => {
                let moved = moved.strip_prefix("translate(").and_then(|rest| rest.split_once(')'));
                let (x, y) = moved.and_then(|(at, _)| at.split_once(' ')).expect("a place");
                (number(y), number(x), [view[3], view[2]])
            }
            None => {
                let at = |name| number(&attribute(tag, name).expect("a place"));
                (at("x"), at("y"), [view[2], view[3]])
            }
        };
        let inside = along + start >= 0.0 && along + start + width <= most[0];
        assert!(inside && across >= 0.0 && across <= most[1], "{file}: `{label}` is cut off");
    }
}

#[test]
fn what_is_published_has_positive_intervals_runs_and_marks() {
    let positive = ["s", "ms", "Mbit/s", "kbit/s", "kB/s", "s/GB", "B", "1/s"];
    for name in STUDIES {
        let (csv, page) =
            (published(&format!("{name}/study.csv")), published(&format!("{name}/study.md")));
        let mut marked = 0;
        for line in csv.lines().skip(1) {
            let fields = fields(line);
            let [_, _, _, unit, _, measured, low, high, n, not_shaped] = &fields[..] else {
                panic!("{name}: {line}")
            };
            marked += usize::from(not_shaped == "true" && !measured.is_empty());
            if low.is_empty() {
                continue;
            }
            let [low, high]: [f64; 2] = [low, high].map(|end| end.parse().expect("a number"));
            assert!(low <= high && !n.is_empty(), "{name}: {line}");
            assert!(low >= 0.0 || !positive.contains(&unit.as_str()), "{name}: {line}");
        }
        let shown: usize =
            page.lines().filter(|l| l.starts_with('|')).map(|l| l.matches('†').count()).sum();
        assert_eq!(shown, marked, "{name}: cells that are marked as not shaped");
        for section in page.split("\n## ").skip(1).filter(|section| section.contains("] |")) {
            assert!(section.contains("\nn = "), "{name}: no number of runs: {section}");
        }
    }
}

#[test]
fn parts_have_the_labels_of_their_rows() {
    for name in STUDIES {
        let page = published(&format!("{name}/study.md"));
        let told = page.lines().find(|line| line.starts_with("Measured from ")).expect("a line");
        for plan in &read(name).parts {
            let row = page.lines().any(|line| line.starts_with(&format!("| {} |", plan.name)));
            assert!(
                !plan.name.contains("permille") || !told.contains(&plan.name),
                "{name}: {told}"
            );
            assert!(!row, "{name}: a row has the name of its part: {}", plan.name);
        }
    }
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("a field").push(c),
        }
    }
    fields
}

fn read(name: &str) -> Study {
    Study::read(&root().join(format!("plans/studies/{name}.toml"))).expect("a study")
}

fn published(name: &str) -> String {
    std::fs::read_to_string(root().join("docs/studies").join(name)).expect("a published file")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
