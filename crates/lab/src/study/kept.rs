//! A study in the folder of its results: what was asked, so that the run can go on and
//! the report be made again without the plans it came from.

use std::path::Path;

use headroom_lab_host::error::{Doing, Error, Result};

use super::Study;
use crate::plan::Scale;

/// The folder within a study's.
const HOME: &str = "study";

/// The text of a study, and of the tables that it refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) text: String,
    /// Name of the file, and what is in it.
    pub(super) tables: Vec<(String, String)>,
}

/// Writes the study to `folder`, over an earlier one.
///
/// # Errors
/// It cannot be written.
pub fn keep(study: &Study, scale: Scale, folder: &Path) -> Result<()> {
    let home = folder.join(HOME);
    let tables = home.join("published");
    std::fs::create_dir_all(&tables).doing(|| format!("create {}", tables.display()))?;
    let Source { text, tables: all } = &study.source;
    let mut files = vec![
        (home.join(format!("{}.toml", study.name)), text.as_str()),
        (home.join("scale"), scale.name()),
        (home.join("name"), study.name.as_str()),
    ];
    files.extend(all.iter().map(|(name, text)| (tables.join(name), text.as_str())));
    for (path, text) in files {
        std::fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Reads the study of `folder`; none: it is not the folder of a study.
///
/// # Errors
/// It can no longer be read.
pub fn kept(folder: &Path) -> Result<Option<(Study, Scale)>> {
    let home = folder.join(HOME);
    if !home.is_dir() {
        return Ok(None);
    }
    let read = |name: &str| {
        let path = home.join(name);
        std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))
    };
    let (name, scale) = (read("name")?, read("scale")?);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(Error::Plan(format!("{}/name is no name of a study", home.display())));
    }
    let scale = Scale::ALL.into_iter().find(|known| known.name() == scale).ok_or_else(|| {
        Error::Plan(format!("{}/scale says `{scale}`, which is none", home.display()))
    })?;
    Ok(Some((Study::read(&home.join(format!("{name}.toml")))?, scale)))
}
