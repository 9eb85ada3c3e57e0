//! What a definition's processes find: files, variables, and how a server shows that it is
//! ready.

use std::collections::BTreeMap;

use headroom_lab_host::command::Command;
use headroom_lab_host::host::Ready;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::command::require_line;
use super::keep;
use super::template::{Template, Values};
use crate::at::{At, at};
use crate::catalogue::Fact;

/// Texts by name, as TOML has them.
pub(super) type TextsFile = BTreeMap<Spanned<String>, Spanned<String>>;

/// How a server shows that it is ready, as TOML has it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReadyFile {
    Tcp,
    Udp,
}

/// Texts with placeholders, by name.
#[derive(Debug, Clone)]
pub(super) struct Texts(Vec<(String, Template)>);

/// Texts of one sort in a definition, and bytes of one.
const MAX_ENTRIES: usize = 32;
const LONGEST: usize = 64 << 10;

/// Reads how a server shows that it is ready.
pub(super) fn ready(
    ready: Option<&Spanned<ReadyFile>>,
    line: Option<&Spanned<String>>,
    default: Ready,
) -> Result<Ready, At> {
    match (ready, line) {
        (Some(ready), Some(_)) => {
            Err(at(ready, "a server is ready by `ready` or by `ready-line`, not by both"))
        }
        (None, None) => Ok(default),
        (Some(ready), None) => Ok(match ready.get_ref() {
            ReadyFile::Tcp => Ready::Tcp,
            ReadyFile::Udp => Ready::Udp,
        }),
        (None, Some(line)) => {
            require_line(line, "what a server prints")?;
            Ok(Ready::Line(keep::text(line.get_ref())))
        }
    }
}

/// Reads files, whose names are plain: none is outside the folder that they are written to.
pub(super) fn files(written: &TextsFile, known: &[&'static str]) -> Result<Texts, At> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    texts(
        written,
        known,
        "a file's name has letters, digits, `.`, `-` and `_`, and begins with none of these marks",
        |name| name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric()),
    )
}

/// Reads variables of the environment.
pub(super) fn variables(written: &TextsFile, known: &[&'static str]) -> Result<Texts, At> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    texts(
        written,
        known,
        "a variable's name has letters, digits and `_`, and does not begin with a digit",
        |name| name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()),
    )
}

fn texts(
    written: &TextsFile,
    known: &[&'static str],
    names: &str,
    is_name: impl Fn(&str) -> bool,
) -> Result<Texts, At> {
    if let Some((name, _)) = written.iter().nth(MAX_ENTRIES) {
        return Err(at(name, format!("there are at most {MAX_ENTRIES} of these")));
    }
    let read = written.iter().map(|(name, text)| {
        let written_name = name.get_ref();
        if written_name.is_empty() || written_name.len() > 64 || !is_name(written_name) {
            return Err(at(name, format!("`{written_name}`: {names}")));
        }
        if text.get_ref().len() > LONGEST || text.get_ref().contains('\0') {
            return Err(at(text, format!("a text has at most {LONGEST} bytes, none of them zero")));
        }
        let template =
            Template::parse(text.get_ref(), known).map_err(|message| at(text, message))?;
        Ok((written_name.clone(), template))
    });
    Ok(Texts(read.collect::<Result<_, At>>()?))
}

/// Reads facts for the record, which also says where they are from.
pub(super) fn facts(written: &TextsFile) -> Result<Vec<Fact>, At> {
    if let Some((name, _)) = written.iter().nth(MAX_ENTRIES) {
        return Err(at(name, format!("there are at most {MAX_ENTRIES} of these")));
    }
    let read = written.iter().map(|(name, value)| {
        require_line(name, "the name of a fact")?;
        require_line(value, "a fact")?;
        Ok((keep::text(name.get_ref()), value.get_ref().clone()))
    });
    read.chain([Ok(("definition", "of the plan".to_owned()))]).collect()
}

impl Texts {
    /// Name and text of each, with a value for each placeholder.
    pub(super) fn filled(&self, values: &Values) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().map(|(name, template)| (name.as_str(), template.fill(values)))
    }

    /// A command that has these variables.
    pub(super) fn around(&self, values: &Values, command: Command) -> Command {
        if self.0.is_empty() {
            return command;
        }
        let variables = self.filled(values).map(|(name, value)| format!("{name}={value}"));
        Command::new("env", variables).running(command)
    }
}
