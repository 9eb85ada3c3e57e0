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
    pub(super) read_file: &'a ReadFile<'a>,
}

/// Returns the text of a file that a configuration names.
type ReadFile<'a> = dyn Fn(&Path, Content) -> Result<Zeroizing<String>, String> + 'a;

/// What a file contains that a configuration names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A key: only its owner may read it.
    Secret,
    /// Certificates.
    Public,
}

impl Reader<'_> {
    pub(super) fn line<T>(&self, spanned: &Spanned<T>) -> usize {
        line_of(self.text, spanned.span().start)
    }
}
