//! Errors with their place in the text of a plan.

use std::ops::Range;

use toml::Spanned;

/// A message and the place in the plan that it is about.
#[derive(Debug)]
pub(crate) struct At {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
}

impl At {
    /// `LINE: sentence`.
    pub(crate) fn in_text(self, text: &str) -> String {
        format!("{}: {}", line_of(text, &self.span), self.message)
    }
}

pub(crate) fn at<T>(spanned: &Spanned<T>, message: impl Into<String>) -> At {
    At { span: spanned.span(), message: message.into() }
}

pub(crate) fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// The number of `key`, or `default` where nothing is written.
pub(crate) fn bounded(
    key: &str,
    value: Option<&Spanned<u32>>,
    default: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, At> {
    match value {
        None => Ok(default),
        Some(value) if range.contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => {
            let (found, least, most) = (value.get_ref(), range.start(), range.end());
            Err(at(value, format!("`{key}` is {found}: it must be from {least} to {most}")))
        }
    }
}

/// A word that can stand in a path or a command line.
pub(crate) fn plain(word: Option<&Spanned<String>>) -> Result<Option<String>, At> {
    let Some(word) = word else { return Ok(None) };
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if word.get_ref().is_empty() || !word.get_ref().chars().all(letters) {
        return Err(at(
            word,
            format!("`{}` is not one word of letters, digits, - and _", word.get_ref()),
        ));
    }
    Ok(Some(word.get_ref().clone()))
}
