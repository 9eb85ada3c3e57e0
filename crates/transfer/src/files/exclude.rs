//! Exclude patterns of a sync, as in a `.gitignore`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use headroom_transfer_proto::message::MAX_PATTERNS;
use headroom_transfer_proto::path::{RelPath, shown};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The most bytes of all patterns together, which a peer sends.
const MAX_BYTES: usize = 32 << 10;

/// Names that are neither sent nor removed. An excluded directory excludes its content.
#[derive(Debug, Clone)]
pub struct Excludes {
    patterns: Vec<String>,
    matcher: Gitignore,
}

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It is not a valid glob.
    #[error("`{pattern}` is not a pattern: {cause}")]
    Glob {
        /// As it was written.
        pattern: String,
        /// What is wrong with it.
        cause: String,
    },
    /// There are too many.
    #[error("too many patterns: at most {MAX_PATTERNS}, and {MAX_BYTES} bytes together")]
    TooMany,
}

impl Excludes {
    /// Parses patterns; later ones take precedence.
    ///
    /// # Errors
    /// A pattern is invalid, or there are too many.
    pub fn new(patterns: Vec<String>) -> Result<Self, BadPattern> {
        let bytes: usize = patterns.iter().map(String::len).sum();
        if patterns.len() > MAX_PATTERNS || bytes > MAX_BYTES {
            return Err(BadPattern::TooMany);
        }
        let bad = |pattern: &str, cause: &ignore::Error| BadPattern::Glob {
            pattern: shown(pattern.as_bytes()).to_string(),
            cause: shown(cause.to_string().as_bytes()).to_string(),
        };
        let mut builder = GitignoreBuilder::new("");
        builder.allow_unclosed_class(false);
        for pattern in &patterns {
            builder.add_line(None, pattern).map_err(|cause| bad(pattern, &cause))?;
        }
        let all = || patterns.join(", ");
        let matcher = builder.build().map_err(|cause| bad(&all(), &cause))?;
        Ok(Self { patterns, matcher })
    }

    /// Excludes nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { patterns: Vec::new(), matcher: Gitignore::empty() }
    }

    /// Returns the patterns as they were written.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Whether a name or one of its parents is excluded.
    #[must_use]
    pub fn cover(&self, path: &RelPath, is_directory: bool) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        let mut above = path.parent();
        while let Some(directory) = above {
            if self.matches(&directory, true) {
                return true;
            }
            above = directory.parent();
        }
        self.matches(path, is_directory)
    }

    /// Whether a name, relative to the top of the tree, is excluded, if its parents are not.
    #[must_use]
    pub fn matches(&self, path: &RelPath, is_directory: bool) -> bool {
        let path = OsStr::from_bytes(path.as_bytes());
        !self.patterns.is_empty() && self.matcher.matched(path, is_directory).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excludes(patterns: &[&str]) -> Excludes {
        Excludes::new(patterns.iter().map(ToString::to_string).collect()).expect("patterns")
    }

    #[test]
    fn patterns_mean_what_they_mean_to_git() {
        let matches = |pattern: &str, path: &[u8], is_directory| {
            let path = RelPath::parse(path).expect("a path");
            excludes(&[pattern]).matches(&path, is_directory)
        };
        for (pattern, path) in [
            ("*.o", &b"a/b/x.o"[..]),
            ("*.o", b"\xff\xfe.o"),
            ("/top", b"top"),
            ("a/*.c", b"a/x.c"),
            ("**/deep", b"a/b/deep"),
            ("a/**", b"a/b/c"),
            ("x?[0-9]", b"xy7"),
        ] {
            assert!(matches(pattern, path, false), "{pattern}");
        }
        for (pattern, path) in [
            ("*.o", &b"x.oo"[..]),
            ("/top", b"a/top"),
            ("a/*.c", b"a/b/x.c"),
            ("a/*.c", b"b/a/x.c"),
            ("build/", b"build"),
            ("# not a pattern", b"# not a pattern"),
        ] {
            assert!(!matches(pattern, path, false), "{pattern}");
        }
        assert!(matches("build/", b"a/build", true));
        let within = RelPath::parse(b"a/build/b/c").expect("a path");
        let build = excludes(&["build/"]);
        assert!(build.cover(&within, false) && !build.matches(&within, false));
        assert!(!build.cover(&RelPath::parse(b"a/build").expect("a path"), false));
        let but = excludes(&["*.o", "!keep.o"]);
        let path = |name: &[u8]| RelPath::parse(name).expect("a path");
        assert!(but.matches(&path(b"a/x.o"), false) && !but.matches(&path(b"a/keep.o"), false));
        assert!(!Excludes::none().matches(&path(b"x"), false));
    }

    #[test]
    fn invalid_patterns_and_too_many_are_refused() {
        let error = Excludes::new(vec!["a[".into()]).expect_err("it is none");
        assert!(error.to_string().contains("`a[` is not a pattern"), "{error}");
        let many = vec!["x".into(); MAX_PATTERNS + 1];
        assert!(matches!(Excludes::new(many), Err(BadPattern::TooMany)));
        let long = vec!["x".repeat(MAX_BYTES + 1)];
        assert!(matches!(Excludes::new(long), Err(BadPattern::TooMany)));
    }
}
