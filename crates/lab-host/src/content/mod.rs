//! The files that are moved: made once, incompressible unless a plan says otherwise,
//! verified by hash.

mod kind;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use headroom_units as units;
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};

pub use kind::ContentKind;

/// A file's content, by hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of all of them.
    pub hash: blake3::Hash,
}

/// Name of the i-th file of a tree.
pub fn tree_name(i: u32) -> String {
    format!("{i:05}")
}

/// Makes a file of this size and kind of content.
pub(crate) fn make(path: &Path, size: u64, seed: u64, kind: ContentKind) -> Result<Content> {
    let doing = || format!("write the test file {} ({})", path.display(), units::size(size));
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).doing(doing)?);
    let mut maker = kind.maker(seed);
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        let now = left.min(piece.len() as u64) as usize;
        maker.fill(&mut piece[..now]);
        hasher.update(&piece[..now]);
        file.write_all(&piece[..now]).doing(doing)?;
        left -= now as u64;
    }
    file.flush().doing(doing)?;
    Ok(Content { size, hash: hasher.finalize() })
}

/// The BLAKE3 digest of a file, in hexadecimal.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn digest(path: &Path) -> Result<String> {
    Ok(hash_of(path).doing(|| format!("read {}", path.display()))?.to_hex().to_string())
}

fn hash_of(path: &Path) -> std::io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize())
}

/// Says whether the file at `path` is what was sent, byte for byte.
///
/// # Errors
/// A sentence: the file is missing, short, long or different.
pub(crate) fn verify(path: &Path, expected: Content) -> Result<()> {
    let name =
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let length = std::fs::metadata(path)
        .map_err(|error| {
            Error::Failed(format!("the transferred file {name} is not there: {error}"))
        })?
        .len();
    if length != expected.size {
        return Err(Error::Failed(format!(
            "the transferred file {name} has {length} bytes instead of {}",
            expected.size
        )));
    }
    let hash = hash_of(path).doing(|| format!("read {} for verification", path.display()))?;
    if hash != expected.hash {
        return Err(Error::Failed(format!(
            "the transferred file {name} has the right length but wrong content"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_short_and_a_missing_file_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f3000");
        let content = make(&path, 3000, 7, ContentKind::Random).expect("made");
        verify(&path, content).expect("as made");
        assert_eq!(digest(&path).expect("a digest"), content.hash.to_hex().to_string());

        let good = std::fs::read(&path).expect("read");
        let mut changed = good.clone();
        changed[1234] ^= 1;
        std::fs::write(&path, &changed).expect("write");
        assert!(verify(&path, content).is_err_and(|e| e.to_string().contains("wrong content")));
        std::fs::write(&path, &good[..2999]).expect("write");
        assert!(verify(&path, content).is_err_and(|e| e.to_string().contains("2999 bytes")));
        std::fs::remove_file(&path).expect("remove");
        assert!(verify(&path, content).is_err_and(|e| e.to_string().contains("not there")));
        assert!(digest(&path).is_err());
    }
}
