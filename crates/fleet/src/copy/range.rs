//! Copies a range of a large file into the partial file that other workers write other ranges
//! into.
//!
//! The file itself is an item that comes afterwards. Its transfer finds in the partial file what
//! the ranges have brought, compares every span of that with the source's, sends what differs or is
//! missing, and stores the file. So a range that was lost, is not what it should be or could not be
//! copied at all costs time and nothing else.

use std::collections::HashSet;
use std::sync::Arc;

use headroom_transfer::files::{self, Root};
use headroom_transfer::path::RelPath;
use headroom_transfer::{Client, DividedFile, Error, FileVersion, ListedKind};

use super::{Prepared, Rules, is_about_files, make_parents, prepare_entry};
use crate::ends::{blocking, on_server};
use crate::entry::Entry;
use crate::ledger::{Ledger, Noting};

/// A range of a file.
pub(super) struct FileRange<'a> {
    pub(super) rules: Rules,
    /// The directory below the root of the source's server.
    pub(super) from: &'a [u8],
    pub(super) root: &'a Root,
    pub(super) file: &'a Entry,
    /// Which range of the file it is.
    pub(super) index: u32,
}

impl FileRange<'_> {
    /// Copies it, and notes whether it has ended.
    ///
    /// # Errors
    /// A request failed as a whole, as [`super::copy`] says.
    pub(super) async fn copy(self, client: &mut Client, ledger: &Arc<Ledger>) -> Result<(), Error> {
        match self.fetch(client, ledger).await {
            Ok(Ended::Here | Ended::LeftToFile) => ledger.range_ended(),
            Ok(Ended::Failed(reason)) => ledger.failed(&reason, None),
            Err(error) if is_about_files(&error) => {
                ledger.failed(&error.to_string(), error.code());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn fetch(&self, client: &mut Client, ledger: &Arc<Ledger>) -> Result<Ended, Error> {
        let Self { rules, root, file, .. } = *self;
        let (there, entry) = (root.clone(), file.clone());
        let prepare = move || -> Result<Prepared, files::Error> {
            make_parents(&there, &entry.path, &mut HashSet::new())?;
            prepare_entry(rules, &there, &entry)
        };
        if blocking(prepare).await?? != Prepared::Wanted {
            return Ok(Ended::Here);
        }
        let (directory, name) = (file.path.parent(), file.path.name());
        let Ok(name) = RelPath::single(name) else { return Ok(Ended::LeftToFile) };
        // of another size the ranges are others, too
        let version = self.version(client, &name).await?;
        let Some(version) = version.filter(|version| version.size == file.size()) else {
            return Ok(Ended::LeftToFile);
        };
        let (there, below, named) = (root.clone(), directory.clone(), name.clone());
        let (bytes, server) = (file.range(self.index), client.address().to_string());
        let begin = move || -> Result<_, files::Error> {
            let root = match &below {
                Some(directory) => there.below(directory)?,
                None => there,
            };
            DividedFile::begin_part(&root, &named, (version, &server), bytes)
        };
        let Some(part) = blocking(begin).await?? else { return Ok(Ended::LeftToFile) };
        let noting = Noting { ledger: Arc::clone(ledger), directory: directory.clone() };
        let place = (directory.as_ref(), &name);
        let got = client.get_ranges(self.from, place, &part, Arc::new(noting)).await?;
        if got.is_none() {
            // a server of an older version
            return Ok(Ended::LeftToFile);
        }
        if !part.is_complete() {
            let nameless = || format!("a range of {} has not arrived", file.path);
            return Ok(Ended::Failed(part.failure().unwrap_or_else(nameless)));
        }
        if rules.fsync {
            blocking(move || part.sync()).await??;
        }
        Ok(Ended::Here)
    }

    /// Asks the server for the version of the file: a listing of a store knows no times of files.
    /// `None` if there is no such file, or it cannot be read: its own item says so.
    async fn version(
        &self,
        client: &mut Client,
        name: &RelPath,
    ) -> Result<Option<FileVersion>, Error> {
        let mut version = None;
        let place = on_server(self.from, &self.file.path);
        let listing = client.list(&place, |listed| {
            let is_it = listed.path == *name && listed.kind == ListedKind::File;
            version = is_it.then_some(FileVersion { size: listed.size, mtime: listed.mtime });
        });
        let listed = listing.await;
        match listed {
            Err(error) if !is_about_files(&error) => Err(error),
            Err(_) => Ok(None),
            Ok(()) => Ok(version),
        }
    }
}

/// How a range has ended.
enum Ended {
    /// It is at the destination.
    Here,
    /// The transfer of the file copies it, or says why that is not possible.
    LeftToFile,
    /// It failed, for this reason: a sentence.
    Failed(String),
}
