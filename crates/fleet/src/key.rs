//! Directories in the order of a walk.

use headroom_transfer::path::RelPath;

/// A directory of the source. Keys compare as a walk goes: a directory before what is in it, and
/// names in byte order. The path's slashes are zeros, which no name has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryKey(Vec<u8>);

impl DirectoryKey {
    /// Makes the key of a path; `None` is the source itself, the first of all.
    #[must_use]
    pub fn of(path: Option<&RelPath>) -> Self {
        let bytes = path.map_or(&b""[..], RelPath::as_bytes);
        Self(bytes.iter().map(|byte| if *byte == b'/' { 0 } else { *byte }).collect())
    }

    /// Reads a key as an engine has it; `None` if it is damaged.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let key = Self(bytes);
        key.read().is_some().then_some(key)
    }

    /// Returns the bytes for an engine.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path; `None` is the source itself.
    #[must_use]
    pub fn path(&self) -> Option<RelPath> {
        self.read().flatten()
    }

    fn read(&self) -> Option<Option<RelPath>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let slash = |byte: &u8| if *byte == 0 { b'/' } else { *byte };
        let bytes: Vec<u8> = self.0.iter().map(slash).collect();
        RelPath::parse(&bytes).ok().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_a_walk_and_are_read_back() {
        // as bytes of paths, `a-b` would come before `a/b`
        let paths = [&b"a"[..], b"a/b", b"a/b/c", b"a-b", b"b\xff", b"b\xff/x"];
        let paths = paths.map(|path| RelPath::parse(path).expect("a path"));
        let mut keys: Vec<_> = paths.iter().map(|path| DirectoryKey::of(Some(path))).collect();
        keys.insert(0, DirectoryKey::of(None));
        assert!(keys.is_sorted(), "{keys:?}");
        for (key, path) in keys.iter().zip([None].into_iter().chain(paths.map(Some))) {
            assert_eq!(key.path(), path);
            assert_eq!(DirectoryKey::from_bytes(key.as_bytes().to_vec()).as_ref(), Some(key));
        }
    }

    #[test]
    fn damaged_keys_are_refused() {
        for bytes in [&b"\0a"[..], b"a\0", b"a\0\0b", b"..", b"a\0..\0b"] {
            assert_eq!(DirectoryKey::from_bytes(bytes.to_vec()), None, "{bytes:?}");
        }
    }
}
