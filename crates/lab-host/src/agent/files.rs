//! Files on a host: configurations are written, test files made and verified
//! where they are, so that two machines need to share nothing.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::{Content, ContentKind, digest, make, tree_name, verify};
use crate::error::{Doing, Result};

/// An operation on files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Writes a text; nothing is answered.
    Write { path: PathBuf, content: String },
    /// Reads a text: `String`.
    Read { path: PathBuf },
    /// Hashes a file: `String`, its BLAKE3 digest in hexadecimal.
    Digest { path: PathBuf },
    /// Makes folders with those above them; nothing is answered.
    MakeFolders { paths: Vec<PathBuf> },
    /// Makes a file: its [`Content`].
    Make { path: PathBuf, size: u64, seed: u64, kind: ContentKind },
    /// Makes a folder of incompressible files, named by [`tree_name`]: a [`Content`] each.
    MakeTree { folder: PathBuf, size: u64, seeds: Vec<u64> },
    /// Compares files with what they should be: `Option<String>`, what is wrong
    /// with the first that is not.
    Verify { files: Vec<(PathBuf, Content)> },
    /// Removes files and folders, there or not; nothing is answered.
    Remove { paths: Vec<PathBuf> },
}

pub(super) fn answer(request: Request) -> Result<Value> {
    match request {
        Request::Write { path, content } => {
            std::fs::write(&path, content).doing(|| format!("write {}", path.display()))?;
            Ok(Value::Null)
        }
        Request::Read { path } => {
            value(&std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?)
        }
        Request::Digest { path } => value(&digest(&path)?),
        Request::MakeFolders { paths } => {
            paths.iter().try_for_each(|path| make_folder(path))?;
            Ok(Value::Null)
        }
        Request::Make { path, size, seed, kind } => value(&make(&path, size, seed, kind)?),
        Request::MakeTree { folder, size, seeds } => {
            make_folder(&folder)?;
            let contents = seeds
                .into_iter()
                .zip(0..)
                .map(|(seed, i)| make(&folder.join(tree_name(i)), size, seed, ContentKind::Random))
                .collect::<Result<Vec<_>>>()?;
            value(&contents)
        }
        Request::Verify { files } => {
            let wrong = files.iter().find_map(|(path, content)| verify(path, *content).err());
            value(&wrong.map(|error| error.to_string()))
        }
        Request::Remove { paths } => {
            for path in paths {
                // a file that was never transferred is not there
                let _ = match path.is_dir() {
                    true => std::fs::remove_dir_all(&path),
                    false => std::fs::remove_file(&path),
                };
            }
            Ok(Value::Null)
        }
    }
}

pub(super) fn value(of: &impl Serialize) -> Result<Value> {
    serde_json::to_value(of).doing(|| "write an answer".into())
}

fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).doing(|| format!("create {}", path.display()))
}
