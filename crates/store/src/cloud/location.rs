//! Keys as `object_store` writes them.

use object_store::path::Path;

use crate::backend::{Failure, FailureKind};

/// The path of a key. That of a marker of a directory keeps the `/` at its end, which
/// `Path::parse` would take off and `Path::join` with nothing leaves: hence the exact version in
/// Cargo.toml, and the test below.
pub(super) fn of(key: &str) -> Result<Path, Failure> {
    let (path, is_directory) = match key.strip_suffix('/') {
        Some(path) => (path, true),
        None => (key, false),
    };
    let path =
        Path::parse(path).map_err(|_| Failure::new(FailureKind::Invalid, "its name is no path"))?;
    let path = if is_directory { path.join("") } else { path };
    if path.as_ref() == key {
        return Ok(path);
    }
    Err(Failure::new(FailureKind::Invalid, "its name is no path"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_what_they_are() {
        for key in ["a", "a/b c/ü%2F", "a/b/", "a/"] {
            assert_eq!(of(key).expect("a path").as_ref(), key);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for key in ["/", "a//", "a//b", "../a", "/a", ""] {
            assert_eq!(of(key).is_ok(), key.is_empty(), "{key:?}");
        }
    }
}
