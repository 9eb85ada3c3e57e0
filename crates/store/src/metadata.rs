//! The user metadata of an object.

use std::collections::BTreeMap;

use crate::error::Error;

/// Bytes of a name, and of a value, at most.
const LONGEST_KEY: usize = 64;
const LONGEST_VALUE: usize = 1024;

/// Bytes of all names and values, which S3 limits to 2 KiB.
const MAX: usize = 2048;

/// User metadata: names in lower-case ASCII, values in printable ASCII.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(BTreeMap<String, String>);

impl Metadata {
    /// Makes metadata without an entry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an entry.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`]: a name that is not 1 to 64 of `a`-`z`, `0`-`9` and `-`, a value that is
    /// not printable ASCII or longer than 1 KiB, or more than 2 KiB in all.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        if !is_key(key) {
            return Err(Error::Misuse(format!(
                "{key:?} cannot name metadata: 1 to {LONGEST_KEY} of a-z, 0-9 and -"
            )));
        }
        if !is_value(value) {
            return Err(Error::Misuse(format!(
                "the metadata {key} cannot be {value:?}: printable ASCII, at most {LONGEST_VALUE} bytes"
            )));
        }
        let others: usize = self
            .0
            .iter()
            .filter(|(name, _)| name.as_str() != key)
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if others + key.len() + value.len() > MAX {
            return Err(Error::Misuse(format!(
                "more than {MAX} bytes of metadata, with {key}: stores take no more"
            )));
        }
        self.0.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// The value of an entry.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All entries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes what a store answered, without the entries that this crate could not write.
    pub fn from_store<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut metadata = Self::new();
        for (key, value) in entries.take(256) {
            // what others wrote in other letters or at greater length is none of ours
            let _ = metadata.set(&key.to_ascii_lowercase(), value);
        }
        metadata
    }
}

fn is_key(key: &str) -> bool {
    (1..=LONGEST_KEY).contains(&key.len())
        && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Spaces at the ends would be lost on the way.
fn is_value(value: &str) -> bool {
    value.len() <= LONGEST_VALUE
        && value.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
        && value.trim() == value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_no_header_holds() {
        let mut metadata = Metadata::new();
        for key in ["", "Mode", "a_b", "a b", "ü", &"k".repeat(65)] {
            assert!(matches!(metadata.set(key, "1"), Err(Error::Misuse(_))), "{key:?}");
        }
        for value in ["a\r\nb", "ü", " a", "a ", &"v".repeat(1025)] {
            assert!(matches!(metadata.set("k", value), Err(Error::Misuse(_))), "{value:?}");
        }
        assert!(metadata.is_empty());
        metadata.set("headroom-mode", "644").expect("metadata");
        metadata.set("headroom-mode", "600").expect("metadata");
        assert_eq!(metadata.get("headroom-mode"), Some("600"));
    }

    #[test]
    fn holds_two_kibibytes() {
        let mut metadata = Metadata::new();
        metadata.set("a", &"v".repeat(1023)).expect("metadata");
        metadata.set("b", &"v".repeat(1023)).expect("metadata");
        assert!(metadata.set("c", "").is_err());
        metadata.set("b", "v").expect("metadata");
        metadata.set("c", "v").expect("metadata");
    }

    #[test]
    fn leaves_out_what_others_wrote_differently() {
        let answered = [("Mtime", "1.5"), ("x_y", "1"), ("name", "ü")];
        let metadata = Metadata::from_store(answered.into_iter());
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("mtime", "1.5")]);
    }
}
