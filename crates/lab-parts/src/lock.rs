//! The packages of the tree, as this program was built with them.

/// The lock file.
pub(crate) const TEXT: &str = include_str!("../debian-13.lock");

/// A package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Package<'a> {
    pub(crate) name: &'a str,
    /// Of its file.
    pub(crate) bytes: u64,
    /// In lower hexadecimal digits.
    pub(crate) sha256: &'a str,
    /// Below an archive that has `debian` and `debian-security`.
    pub(crate) place: &'a str,
}

/// Reads a lock file; lines of another form are left out.
pub(crate) fn packages(text: &str) -> impl Iterator<Item = Package<'_>> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let &["deb", name, _version, bytes, sha256, place] = words.as_slice() else { return None };
        Some(Package { name, bytes: bytes.parse().ok()?, sha256, place })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_lock_is_a_package() {
        let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(packages(TEXT).count(), lines.count());
        for package in packages(TEXT) {
            assert_eq!(package.sha256.len(), 64, "{package:?}");
            assert!(package.place.starts_with("debian") && package.place.ends_with(".deb"));
            assert!(!package.place.contains(".."), "{package:?}");
        }
        for name in ["libc6", "openssh-server", "nginx", "pure-ftpd", "curl", "dash", "coreutils"] {
            assert!(packages(TEXT).any(|package| package.name == name), "{name}");
        }
    }
}
