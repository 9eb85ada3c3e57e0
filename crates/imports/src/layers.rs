//! Compares imports with the table of layers.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

use crate::resolve::Import;
use crate::source::Workspace;

const FILE: &str = "layers.toml";
/// The key of the table of crates; every other key is a crate's.
const WORKSPACE: &str = "workspace";

/// Rows of names, the highest first. A name may import names of lower rows.
#[derive(Debug)]
pub(crate) struct Layers(BTreeMap<String, Vec<Vec<String>>>);

impl Layers {
    /// Reads the table at the workspace's root.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let file = root.join(FILE);
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        Ok(Self(toml::from_str(&text).with_context(|| format!("parse {}", file.display()))?))
    }

    /// Returns a sentence for each import that does not point downwards, and for each name that is
    /// missing from the table or from the crate.
    pub(crate) fn problems(&self, workspace: &Workspace, imports: &[Import]) -> Vec<String> {
        let mut problems = self.wrong_names(workspace);
        for import in imports {
            let [from, to] = [import.from, import.to].map(|id| &workspace.modules[id]);
            let (table, names) = if from.krate == to.krate {
                let [Some(a), Some(b)] = [from.path.first(), to.path.first()] else { continue };
                (&from.krate, [a, b])
            } else {
                (&WORKSPACE.to_owned(), [&from.krate, &to.krate])
            };
            let Some([from_row, to_row]) = self.rows(table, names) else { continue };
            if names[0] != names[1] && from_row >= to_row {
                let relation = if from_row == to_row { "in the same row as" } else { "above" };
                problems.push(format!(
                    "{}:{}: `{}` of {} is imported, but `{}` stands {relation} `{}` in [{table}] of {FILE}.\n  \
                     Move what is needed to a module below both, or pass it in.",
                    from.file.display(),
                    import.line,
                    import.path,
                    to.file.display(),
                    names[1],
                    names[0],
                ));
            }
        }
        problems
    }

    /// Returns the rows of two names; `None` if one is missing, which is reported separately.
    fn rows(&self, table: &str, names: [&String; 2]) -> Option<[usize; 2]> {
        let rows = self.0.get(table)?;
        let row = |name: &String| rows.iter().position(|row| row.contains(name));
        Some([row(names[0])?, row(names[1])?])
    }

    fn wrong_names(&self, workspace: &Workspace) -> Vec<String> {
        let mut problems = Vec::new();
        let crates: Vec<&String> = workspace.crates.values().map(|krate| &krate.folder).collect();
        for (table, rows) in &self.0 {
            let roots = workspace.modules.iter().filter(|m| m.krate == *table && m.path.is_empty());
            let expected: Vec<&String> = match table.as_str() {
                WORKSPACE => crates.clone(),
                _ => roots.flat_map(|root| root.children.keys()).collect(),
            };
            let listed: Vec<&String> = rows.iter().flatten().collect();
            for name in expected.iter().filter(|name| !listed.contains(name)) {
                problems.push(format!("{FILE}: [{table}] lacks `{name}`. Add it to a row."));
            }
            for (index, name) in listed.iter().enumerate() {
                if !expected.contains(name) {
                    problems.push(format!(
                        "{FILE}: [{table}] has `{name}`, which does not exist. Remove it."
                    ));
                } else if listed[..index].contains(name) {
                    problems.push(format!("{FILE}: [{table}] has `{name}` twice. Remove one."));
                }
            }
        }
        if !self.0.contains_key(WORKSPACE) {
            problems.push(format!("{FILE}: there is no [{WORKSPACE}]. Add it, with all crates."));
        }
        problems
    }
}
