//! Writes reports: terminal, HTML, CSV, Markdown, JSON.

pub mod advice;
mod brief;
pub mod columns;
pub mod compare;
pub mod csv;
pub mod history;
pub mod html;
pub mod junit;
mod links;
pub mod markdown;
mod models;
#[cfg(feature = "parquet")]
pub mod parquet;
mod rows;
mod sessions;
pub mod since;
pub mod table;
pub mod terminal;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::Deserialize;

use crate::error::{Doing, Error, Result};
use crate::schema::{Results, SCHEMA};

/// Writes `results.json` and everything derived from it into `folder`.
///
/// # Errors
/// A file could not be written.
pub fn write(folder: &Path, results: &Results) -> Result<()> {
    std::fs::create_dir_all(folder)
        .doing(|| format!("create the output folder {}", folder.display()))?;
    let json = serde_json::to_string_pretty(results).doing(|| "write results.json".into())?;
    let files = [
        ("results.json", json),
        ("results.csv", csv::table(results)),
        ("summary.md", markdown::summary(results)),
        ("report.html", html::page(results)?),
    ];
    let streams = csv::streams(results).map(|streams| ("streams.csv", streams));
    for (name, content) in files.into_iter().chain(streams) {
        write_whole(&folder.join(name), &content)?;
    }
    Ok(())
}

/// Writes a file that has its name only when all of it is on the disk: what a full disk cut
/// short is not taken for results.
fn write_whole(path: &Path, content: &str) -> Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let new = path.with_file_name(name);
    let written = File::create(&new)
        .and_then(|mut file| file.write_all(content.as_bytes()).and_then(|()| file.sync_data()))
        .and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.doing(|| format!("write {}", path.display()))
}

/// Reads `results.json` of a folder.
///
/// # Errors
/// It is not there, not JSON, or of another schema.
pub fn read(folder: &Path) -> Result<Results> {
    read_file(&folder.join("results.json"))
}

/// Reads a `results.json`.
///
/// # Errors
/// As [`read`].
pub fn read_file(path: &Path) -> Result<Results> {
    let text = std::fs::read_to_string(path).doing(|| format!("read {}", path.display()))?;
    parse(&text, path)
}

/// Reads the text of a `results.json`; `path` is what errors name.
///
/// # Errors
/// It is not JSON, or of another schema.
pub fn parse(text: &str, path: &Path) -> Result<Results> {
    /// All that other versions are sure to have.
    #[derive(Deserialize)]
    struct Version {
        schema: Option<serde_json::Value>,
    }
    let schema = match serde_json::from_slice::<Version>(text.as_bytes()) {
        Ok(version) => version.schema.and_then(|schema| schema.as_u64()),
        Err(error) if error.is_data() => None,
        Err(error) => return Err(error).doing(|| format!("read {}", path.display())),
    };
    if schema != Some(u64::from(SCHEMA)) {
        return Err(Error::NotResults(format!(
            "{} has schema {}, this program reads schema {SCHEMA}: measure again with this program, or read that \
             run with the headroom that wrote it (`environment.headroom` in the file)",
            path.display(),
            schema.map_or("none".to_owned(), |schema| schema.to_string())
        )));
    }
    // From bytes, as journals are: each other source compiles all of the schema again.
    serde_json::from_slice(text.as_bytes())
        .map_err(|error| Error::NotResults(format!("{}: {error}", path.display())))
}
