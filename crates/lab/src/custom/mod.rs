//! Applications and layers that a plan, or a file that it includes, defines as commands. They
//! stand in stacks as those of the catalogues do, and get all that those get.

mod application;
mod command;
mod keep;
mod layer;
pub mod reference;
mod surroundings;
mod template;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use headroom_lab_results::schema::DefinitionRecord;
use headroom_suggest::suggestion;
use serde::Deserialize;
use toml::{Spanned, Table};

use crate::application::Application;
use crate::at::{At, at};
use crate::catalogue::{Catalogue, Entry, split};
use crate::layer::Layer;
use crate::toml_error;

pub(crate) use application::ApplicationFile;
pub(crate) use layer::LayerFile;

/// Applications and layers of a plan.
#[derive(Clone, Default)]
pub struct Custom {
    applications: Vec<&'static Entry<dyn Application>>,
    layers: Vec<&'static Entry<dyn Layer>>,
    definitions: Vec<Definition>,
}

/// A definition, for the record.
#[derive(Clone)]
struct Definition {
    record: DefinitionRecord,
    /// Names of applications and layers that it mentions.
    mentions: Vec<String>,
}

/// Definitions as TOML has them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefinitionsFile {
    #[serde(default)]
    pub(crate) application: BTreeMap<Spanned<String>, ApplicationFile>,
    #[serde(default)]
    pub(crate) layer: BTreeMap<Spanned<String>, LayerFile>,
}

/// Definitions that a plan may have, and bytes of a file that it may include.
const MAX_DEFINITIONS: usize = 100;
const LARGEST_FILE: u64 = 1 << 20;

/// The words of a record that say what it defines.
const APPLICATION: &str = "application";
const LAYER: &str = "layer";

impl Custom {
    /// Reads a file that has definitions and nothing else.
    ///
    /// # Errors
    /// A sentence that begins with the file's name, and the line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let mut custom = Self::default();
        custom.include(path)?;
        Ok(custom)
    }

    /// Adds the definitions of a file.
    ///
    /// # Errors
    /// A sentence that begins with the file's name, and the line.
    pub(crate) fn include(&mut self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        let read = || {
            let metadata = std::fs::metadata(path)?;
            if !metadata.is_file() || metadata.len() > LARGEST_FILE {
                let message = format!("it is no file of at most {LARGEST_FILE} bytes");
                return Err(std::io::Error::other(message));
            }
            std::fs::read_to_string(path)
        };
        let text = read().map_err(|error| format!("cannot read {shown}: {error}"))?;
        let file: DefinitionsFile = toml::from_str(&text)
            .map_err(|error| format!("{shown}:{}", toml_error::in_text(&error, &text)))?;
        self.add(&file).map_err(|error| format!("{shown}:{}", error.in_text(&text)))
    }

    /// Adds definitions; they may mention those that are there already.
    pub(crate) fn add(&mut self, file: &DefinitionsFile) -> Result<(), At> {
        for (name, definition) in &file.layer {
            self.require_new(name)?;
            let record = record(LAYER, name, definition)?;
            self.layers.push(layer::entry(name, definition, &record.toml)?);
            self.definitions.push(Definition { record, mentions: Vec::new() });
        }
        let (mut names, layers) = (
            names(&crate::application::ALL, &self.applications),
            names(&crate::layer::ALL, &self.layers),
        );
        names.extend(file.application.keys().map(|name| name.get_ref().as_str()));
        let mut new = Vec::new();
        for (name, definition) in &file.application {
            self.require_new(name)?;
            let mut mentions = Vec::new();
            if let Some(baseline) = &definition.baseline {
                for (nth, written) in baseline.get_ref().split('/').enumerate() {
                    let part = split(written).map_or(written, |(name, _)| name);
                    match nth {
                        0 => require_known(baseline, part, "application", &names)?,
                        _ => require_known(baseline, part, "layer", &layers)?,
                    }
                    mentions.push(part.to_owned());
                }
                if baseline.get_ref() == name.get_ref() {
                    return Err(at(baseline, "an application cannot be its own baseline"));
                }
            }
            for layer in definition.layers.iter().flatten() {
                require_known(layer, layer.get_ref(), "layer", &layers)?;
                mentions.push(layer.get_ref().clone());
            }
            let record = record(APPLICATION, name, definition)?;
            new.push(application::entry(name, definition, &record.toml)?);
            self.definitions.push(Definition { record, mentions });
        }
        self.applications.extend(new);
        Ok(())
    }

    /// Its applications.
    pub fn applications(&self) -> &[&'static Entry<dyn Application>] {
        &self.applications
    }

    /// Its layers.
    pub fn layers(&self) -> &[&'static Entry<dyn Layer>] {
        &self.layers
    }

    /// The records of the definitions with these names, and of those that they mention.
    pub(crate) fn records<'a>(&self, used: impl Iterator<Item = &'a str>) -> Vec<DefinitionRecord> {
        let mut needed: Vec<&str> = used.collect();
        let mut next = 0;
        while let Some(&name) = needed.get(next) {
            next += 1;
            for definition in self.definitions.iter().filter(|one| one.record.name == name) {
                for mentioned in &definition.mentions {
                    if !needed.contains(&mentioned.as_str()) {
                        needed.push(mentioned);
                    }
                }
            }
        }
        let is_needed = |one: &&Definition| needed.contains(&one.record.name.as_str());
        let mut records: Vec<DefinitionRecord> =
            self.definitions.iter().filter(is_needed).map(|one| one.record.clone()).collect();
        records.sort_by(|one, other| (&one.defines, &one.name).cmp(&(&other.defines, &other.name)));
        records
    }

    /// Adds recorded definitions to a plan's table.
    ///
    /// # Errors
    /// A sentence: one is no definition.
    pub(crate) fn write_to(plan: &mut Table, records: &[DefinitionRecord]) -> Result<(), String> {
        for DefinitionRecord { defines, name, toml } in records {
            let table: Table =
                toml.parse().map_err(|error| format!("the definition of {name}: {error}"))?;
            if ![APPLICATION, LAYER].contains(&defines.as_str()) {
                return Err(format!("`{defines}` of {name} is neither application nor layer"));
            }
            let all = plan.entry(defines.clone()).or_insert_with(|| Table::new().into());
            if let Some(all) = all.as_table_mut() {
                all.insert(name.clone(), table.into());
            }
        }
        Ok(())
    }

    fn require_new(&self, name: &Spanned<String>) -> Result<(), At> {
        const LONGEST: usize = 32;
        let text = name.get_ref();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !text.starts_with(|c: char| c.is_ascii_lowercase())
            || !text.chars().all(plain)
            || text.len() > LONGEST
        {
            return Err(at(
                name,
                format!(
                    "`{text}`: a name has lower-case letters, digits and `-`, at most {LONGEST}, and begins with a letter"
                ),
            ));
        }
        let applications = names(&crate::application::ALL, &[]);
        if applications.into_iter().chain(names(&crate::layer::ALL, &[])).any(|known| known == text)
        {
            return Err(at(name, format!("`{text}` is built in: choose another name")));
        }
        if self.definitions.iter().any(|one| one.record.name == *text) {
            return Err(at(name, format!("`{text}` is defined twice")));
        }
        if self.definitions.len() >= MAX_DEFINITIONS {
            return Err(at(name, format!("more than {MAX_DEFINITIONS} definitions")));
        }
        Ok(())
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.definitions.iter().map(|one| &one.record.name);
        f.debug_set().entries(names).finish()
    }
}

/// The names of a catalogue and of what a plan adds to it.
fn names<T: ?Sized>(all: &Catalogue<T>, more: &[&'static Entry<T>]) -> Vec<&'static str> {
    all.entries.iter().chain(more.iter().copied()).map(|entry| entry.name).collect()
}

fn require_known(
    written: &Spanned<String>,
    name: &str,
    sort: &str,
    known: &[&str],
) -> Result<(), At> {
    if known.contains(&name) {
        return Ok(());
    }
    let meant = suggestion(name, known.iter().copied());
    Err(at(written, format!("there is no {sort} `{name}`{meant}")))
}

/// The record of a definition, in one form however it was written.
fn record(
    defines: &str,
    name: &Spanned<String>,
    definition: &impl serde::Serialize,
) -> Result<DefinitionRecord, At> {
    let toml = toml::to_string(definition)
        .map_err(|error| at(name, format!("the definition cannot be recorded: {error}")))?;
    Ok(DefinitionRecord { defines: defines.to_owned(), name: name.get_ref().clone(), toml })
}

#[cfg(test)]
mod tests;
