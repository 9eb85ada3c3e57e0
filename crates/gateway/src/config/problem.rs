//! The errors of a configuration, with their lines.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting is invalid.
    #[error("{}:{line}: {message}", origin.display())]
    Invalid {
        /// The file.
        origin: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem and its remedy.
        message: String,
    },
    /// The file cannot be read, or others can read it.
    #[error("{0}")]
    Unreadable(String),
}

/// A message and its position in the text.
pub(super) struct Problem {
    pub(super) offset: usize,
    pub(super) message: String,
}

pub(super) fn problem<T>(spanned: &Spanned<T>, message: impl Into<String>) -> Problem {
    Problem { offset: spanned.span().start, message: message.into() }
}

pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|octet| **octet == b'\n').count()
}

pub(super) fn in_range(
    number: &Spanned<u64>,
    what: &str,
    range: Range<u64>,
) -> Result<u64, Problem> {
    let value = *number.get_ref();
    if range.contains(&value) {
        return Ok(value);
    }
    let Range { start, end } = range;
    Err(problem(number, format!("`{what}` must be {start} to {}, not {value}", end - 1)))
}

/// Returns the first characters of a text from the file, for a message.
pub(super) fn excerpt(text: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if text.chars().count() > SHOWN { shown + "…" } else { shown }
}
