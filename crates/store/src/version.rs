//! Versions of objects, and what a write may require of them.

use std::fmt;

use crate::error::Error;

/// Bytes of an ETag or a generation that are accepted at most.
const LONGEST: usize = 1024;

/// A version of an object: its ETag, and its generation where the store has those.
///
/// Some servers list objects without ETags: such a version is unknown, and equal only to
/// another unknown one.
#[derive(Clone, Debug)]
pub struct Version {
    etag: Option<String>,
    generation: Option<String>,
}

impl Version {
    /// Makes a version of what a store answered. What no header could hold counts as unknown.
    pub fn new(etag: Option<String>, generation: Option<String>) -> Self {
        let etag = etag.filter(|etag| is_plain(etag));
        Self {
            generation: generation.filter(|generation| etag.is_some() && is_plain(generation)),
            etag,
        }
    }

    /// Makes the version of an object of which the store did not tell one.
    pub fn unknown() -> Self {
        Self { etag: None, generation: None }
    }

    /// Says whether requests can be made conditional on it.
    pub fn is_known(&self) -> bool {
        self.etag.is_some()
    }

    /// The ETag as the store wrote it.
    pub fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    /// The generation or version number as the store wrote it.
    pub fn generation(&self) -> Option<&str> {
        self.generation.as_deref()
    }
}

/// Compares ETags without their quotes, which Azure leaves out of its listings.
impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        bare(self.etag()) == bare(other.etag())
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.etag.as_deref().unwrap_or("unknown"))
    }
}

/// What has to be true of an object before it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing: it is replaced.
    #[default]
    Any,
    /// It is not there.
    New,
    /// It is there in this version.
    Is(Version),
}

impl Condition {
    /// Requires what is there now: nothing, or this version. One that is unknown cannot be
    /// required.
    pub fn over(here: Option<&Version>) -> Self {
        match here {
            None => Self::New,
            Some(version) if version.is_known() => Self::Is(version.clone()),
            Some(_) => Self::Any,
        }
    }

    /// Refuses a version that is unknown: no request could require it.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        match self {
            Self::Is(version) if !version.is_known() => Err(Error::Misuse(format!(
                "cannot replace {name:?} in a version that is unknown: look at it first"
            ))),
            _ => Ok(()),
        }
    }
}

fn bare(etag: Option<&str>) -> Option<&str> {
    etag.map(|etag| etag.trim_matches('"'))
}

/// A header can hold it: printable ASCII without spaces.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && value.len() <= LONGEST && value.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etag(text: &str) -> Version {
        Version::new(Some(text.to_owned()), None)
    }

    #[test]
    fn compares_etags_without_quotes() {
        assert_eq!(etag("\"0x8D\""), etag("0x8D"));
        assert_ne!(etag("\"1\""), etag("\"2\""));
        assert_ne!(etag("\"1\""), Version::unknown());
    }

    #[test]
    fn an_unknown_version_is_no_condition() {
        assert!(Condition::New.check("a").is_ok());
        assert!(Condition::Is(etag("\"1\"")).check("a").is_ok());
        let unknown = Condition::Is(Version::unknown()).check("a");
        assert!(matches!(unknown, Err(Error::Misuse(_))));
    }

    #[test]
    fn what_is_there_is_required_as_far_as_it_is_known() {
        let version = etag("\"1\"");
        assert_eq!(Condition::over(None), Condition::New);
        assert_eq!(Condition::over(Some(&version)), Condition::Is(version.clone()));
        assert_eq!(Condition::over(Some(&Version::unknown())), Condition::Any);
    }

    #[test]
    fn takes_no_etag_that_a_header_cannot_hold() {
        for bad in ["", "a\nb", "ü", "a b", &"x".repeat(LONGEST + 1)] {
            assert!(!etag(bad).is_known(), "{bad:?}");
        }
        assert!(!Version::new(None, Some("7".to_owned())).is_known());
        assert_eq!(Version::new(None, Some("7".to_owned())).generation(), None);
        let bad_generation = Version::new(Some("e".to_owned()), Some("7\r\n".to_owned()));
        assert!(bad_generation.is_known());
        assert_eq!(bad_generation.generation(), None);
    }
}
