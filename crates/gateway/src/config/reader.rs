//! The state that all parts of the reader share.

use std::path::Path;

use toml::Spanned;
use zeroize::Zeroizing;

use super::model::Purpose;
use super::problem::line_of;

/// The state that all parts of the reader share.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) purpose: Purpose,
    pub(super) read_key: &'a dyn Fn(&Path) -> Result<Zeroizing<String>, String>,
}

impl Reader<'_> {
    pub(super) fn line<T>(&self, spanned: &Spanned<T>) -> usize {
        line_of(self.text, spanned.span().start)
    }
}
