//! Names of objects.

use crate::error::Error;

/// The first component of this crate's own names.
pub(crate) const RESERVED: &str = ".headroom";

/// Bytes of a key, with the prefix of the store, that S3, GCS and Azure take at most.
const LONGEST: usize = 1024;

/// The name of an object below the prefix of the store, `a/b/c`; `a/b/` is the marker of a
/// directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// Parses a name from outside.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]: empty, longer than 1024 bytes with the `prefix`, with a control
    /// character, with a component that is empty, `.` or `..`, or one of this crate's own.
    pub(crate) fn parse(prefix: &str, name: &str) -> Result<Self, Error> {
        let refuse = |found: &str| {
            Err(Error::Name(format!(
                "a store cannot hold {name:?}: {found}. Rename it, or leave it out"
            )))
        };
        let path = name.strip_suffix('/').unwrap_or(name);
        if prefix.len() + name.len() > LONGEST {
            return refuse(&format!(
                "{} bytes, and {LONGEST} are possible",
                prefix.len() + name.len()
            ));
        }
        // XML, in which stores list, has no U+FFFE and U+FFFF
        if path.chars().any(|c| c.is_ascii_control() || matches!(c, '\u{fffe}' | '\u{ffff}')) {
            return refuse("a control character");
        }
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return refuse("a component that is empty, `.` or `..`");
        }
        if path.split('/').next() == Some(RESERVED) {
            return refuse("names below `.headroom/` are headroom's own");
        }
        Ok(Self(name.to_owned()))
    }

    /// Makes one of this crate's own names, `.headroom/…`.
    pub(crate) fn reserved(name: &str) -> Self {
        Self(format!("{RESERVED}/{name}"))
    }

    /// The name below the prefix.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// It is the marker of a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.0.ends_with('/')
    }

    /// The last component.
    pub(crate) fn name(&self) -> &str {
        let path = self.0.strip_suffix('/').unwrap_or(&self.0);
        path.rsplit('/').next().unwrap_or(path)
    }

    /// 16 bytes that stand for the name, in hexadecimal.
    pub(crate) fn digest(&self) -> String {
        let hash = blake3::hash(self.0.as_bytes());
        data_encoding::HEXLOWER.encode(&hash.as_bytes()[..16])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_paths_and_markers() {
        for good in ["a", "a/b c/ü", "a/b/", "a/.headroom/b", ".headroomy", "...", "%2F"] {
            assert_eq!(Key::parse("p/", good).expect("a name").as_str(), good);
        }
        assert_eq!(Key::parse("", "a/b/").expect("a name").name(), "b");
        assert!(Key::parse("", "a/b/").expect("a name").is_directory());
        assert_eq!(Key::parse("", "a").expect("a name").name(), "a");
    }

    #[test]
    fn refuses_what_a_store_cannot_hold() {
        for bad in [
            "",
            "/",
            "/a",
            "a//b",
            "a//",
            "./a",
            "a/..",
            "a\nb",
            "a\u{7f}",
            "a\u{ffff}",
            ".headroom",
            ".headroom/uploads/x",
            ".headroom/",
        ] {
            assert!(matches!(Key::parse("p/", bad), Err(Error::Name(_))), "{bad:?}");
        }
    }

    #[test]
    fn counts_the_prefix_to_the_longest_name() {
        let name = "n".repeat(1022);
        assert!(Key::parse("p/", &name).is_ok());
        assert!(Key::parse("pp/", &name).is_err());
    }
}
