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

use std::path::Path;

use serde::Deserialize;

use crate::error::{Doing, Error, Result};
use crate::schema::{Results, SCHEMA};

/// Permissions of a new file, before the umask.
const NEW_FILE: u32 = 0o666;

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
        let path = folder.join(name);
        // what a full disk cut short must not be taken for results
        headroom_atomic_file::replace(&path, content.as_bytes(), NEW_FILE)
            .doing(|| format!("write {}", path.display()))?;
    }
    Ok(())
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
