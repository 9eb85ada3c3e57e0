//! What a server serves: a directory, or an object store.

use std::path::{Path, PathBuf};

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::error::Error;
use crate::files::{self, Root, StoreOptions};
use crate::trust::{self, AuthorizedKeys};

/// What a server serves.
#[derive(Debug, Clone)]
pub enum Served {
    /// A directory, which is opened when the server starts.
    Directory(PathBuf),
    /// What is open already.
    Opened(Root),
}

impl From<PathBuf> for Served {
    fn from(path: PathBuf) -> Self {
        Self::Directory(path)
    }
}

impl Served {
    /// Opens an object store by its URL, such as `s3://bucket/prefix`, with the credentials of the
    /// environment. Must be called within a multi-threaded tokio runtime.
    ///
    /// # Errors
    /// The URL or the environment is wrong, the store cannot be reached, or refuses.
    pub async fn store(url: &str, options: StoreOptions) -> Result<Self, Error> {
        let (url, runtime) = (url.to_owned(), Handle::current());
        let opened = spawn_blocking(move || Root::open_store(&url, &options, runtime)).await;
        Ok(Self::Opened(opened.map_err(|error| Error::task(&error))??))
    }

    pub(super) fn open(self) -> Result<Root, files::Error> {
        match self {
            Self::Directory(path) => Root::open(&path),
            Self::Opened(root) => Ok(root),
        }
    }
}

/// Returns the keys of a file whose `root` is a directory below what is served, and an error for
/// each line that names another. Must be called within a tokio runtime.
///
/// # Errors
/// What is served cannot be opened.
pub async fn roots_below(
    keys: AuthorizedKeys,
    served: &Served,
    file: &Path,
) -> Result<(AuthorizedKeys, Vec<trust::Error>), Error> {
    let (served, file) = (served.clone(), file.to_owned());
    let look = move || Ok::<_, files::Error>(keys.with_roots_below(&served.open()?, &file));
    Ok(spawn_blocking(look).await.map_err(|error| Error::task(&error))??)
}
