//! Makes, renames, removes and matches names on the server.

use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use headroom_transfer_proto::message::{ErrorCode, ListedKind, MAX_SOURCES, Message};
use headroom_transfer_proto::path::{RelPath, shown};

use super::connection::Client;
use crate::control::{MessageReader, unexpected};
use crate::delivery::{Event, Observer, Summary};
use crate::error::{Error, from_peer};

impl Client {
    /// Makes a directory below the server's root; with `parents` also missing parents, and a
    /// directory that exists is accepted.
    ///
    /// # Errors
    /// It cannot be made, or the key may not write.
    pub async fn make_directory(&mut self, path: &[u8], parents: bool) -> Result<(), Error> {
        let path = self.name(path)?;
        let request = Message::MakeDirectory { path, parents };
        let (_speaker, mut reader, _) = self.request(&request, None).await?;
        self.receive_removals(&mut reader, &()).await.map(drop)
    }

    /// Renames something below the server's root. A file or link of the new name is replaced only
    /// with `replace`; if the new name is a directory, it is moved into it.
    ///
    /// # Errors
    /// It is missing, the new name cannot be used, or the key may not write.
    pub async fn rename(&mut self, from: &[u8], to: &[u8], replace: bool) -> Result<(), Error> {
        let request = Message::Rename { from: self.name(from)?, to: self.below(to)?, replace };
        self.check_slash(from).await?;
        let (_speaker, mut reader, _) = self.request(&request, None).await?;
        self.receive_removals(&mut reader, &()).await.map(drop)
    }

    /// Removes a file, link or empty directory below the server's root; with `recursive`, a
    /// directory and everything in it. Links are removed, not followed.
    ///
    /// # Errors
    /// It is missing, or the key may not write. What cannot be removed from a directory is counted
    /// as failed and reported to `observer`.
    pub async fn remove(
        &mut self,
        path: &[u8],
        recursive: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let request = Message::Remove { path: self.name(path)?, recursive };
        self.check_slash(path).await?;
        let (_speaker, mut reader, _) = self.request(&request, None).await?;
        self.receive_removals(&mut reader, &*observer).await
    }

    /// Expands a path whose components may be patterns (`*`, `?`, `[a-z]`, `{a,b}`), in the order
    /// of names. A pattern matches no slash, and no name with a leading dot unless it has one
    /// itself. Names after a pattern are looked up as well: only what exists is found. A path
    /// without patterns is returned as it is.
    ///
    /// # Errors
    /// Nothing matches, more than 1024 names match, or a directory on the way cannot be listed.
    pub async fn matching(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if !path.iter().copied().any(is_special) {
            return Ok(vec![path.to_vec()]);
        }
        let parts: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let mut found: Vec<Vec<u8>> = vec![Vec::new()];
        let mut is_searched = false;
        for (at, part) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            let slash: &[u8] = if is_last { b"" } else { b"/" };
            let pattern = pattern(part)?;
            if pattern.is_none() && (!is_searched || matches!(*part, b"" | b"." | b"..")) {
                found.iter_mut().for_each(|path| path.extend([part, slash].concat()));
                continue;
            }
            let is_first = !std::mem::replace(&mut is_searched, true);
            let mut longer = Vec::new();
            for directory in found {
                // a listing of a file is the file itself, and nothing is below it
                if is_first && !self.is_directory(&directory).await? {
                    continue;
                }
                let mut names = Vec::new();
                let taken = longer.len();
                let place = directory_of(&directory);
                let listed = self.list(&place, |listed| {
                    let name = listed.path.name();
                    let may = is_last || listed.kind == ListedKind::Directory;
                    let hidden = name.starts_with(b".") && !part.starts_with(b".");
                    let is_it = match &pattern {
                        Some(pattern) => !hidden && matches(pattern, name),
                        None => name == *part,
                    };
                    if may && is_it && names.len() + taken <= MAX_SOURCES {
                        names.push(name.to_vec());
                    }
                });
                match listed.await {
                    // it was removed meanwhile, or does not contain this name
                    Err(Error::OnServer { .. }) if at > 0 => {}
                    listed => listed?,
                }
                names.sort();
                longer.extend(names.into_iter().map(|name| [&*directory, &name, slash].concat()));
                if longer.len() > MAX_SOURCES {
                    return Err(Error::Usage(format!(
                        "`{}` matches more than {MAX_SOURCES} names: fetch the directory, or name fewer",
                        shown(path)
                    )));
                }
            }
            found = longer;
        }
        match found.is_empty() {
            true => Err(Error::OnServer {
                reason: format!("nothing matches `{}`", shown(path)),
                code: Some(ErrorCode::NOT_FOUND),
            }),
            false => Ok(found),
        }
    }

    /// Whether a name is a directory's, or a link's that may lead to one where links are followed:
    /// a listing of its parent shows it. A missing name counts as a directory, so that the server
    /// reports it.
    async fn is_directory(&mut self, path: &[u8]) -> Result<bool, Error> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (above, last) = (&path[..start], &path[start..end]);
        if matches!(last, b"" | b"." | b".." | b"~") {
            return Ok(true);
        }
        let (mut is_directory, follows) = (true, self.ssh_server.is_some());
        let above = directory_of(above);
        let listed = self.list(&above, |listed| {
            if listed.path.name() == last {
                is_directory = match listed.kind {
                    ListedKind::Directory => true,
                    ListedKind::Symlink => follows,
                    ListedKind::File | ListedKind::Other => false,
                };
            }
        });
        match listed.await {
            Ok(()) | Err(Error::OnServer { .. }) => Ok(is_directory),
            Err(error) => Err(error),
        }
    }

    /// Receives the results of a request about names.
    async fn receive_removals(
        &self,
        reader: &mut MessageReader,
        observer: &dyn Observer,
    ) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        loop {
            match reader.expect().await? {
                Message::Removed { path } => {
                    summary.removed += 1;
                    observer.event(Event::Removed { path: &path });
                }
                Message::Left { reason, code, .. } => {
                    summary.failed += 1;
                    let reason = from_peer(self.connection.side(), &reason);
                    observer.event(Event::Failed { reason: &reason, code });
                }
                Message::End { .. } => return Ok(summary),
                Message::Refused { reason, about_files, code } => {
                    return Err(Error::refused(reason, about_files, code));
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Refuses names that mean something else than what would be renamed or removed: the content of
    /// a directory, or a file with a slash behind it.
    async fn check_slash(&mut self, path: &[u8]) -> Result<(), Error> {
        let last = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
        let last = last.unwrap_or_default();
        if matches!(last, b"." | b"..") {
            return Err(Error::Usage(format!(
                "`{}` ends with `{}`: name the directory itself",
                shown(path),
                shown(last)
            )));
        }
        match path.ends_with(b"/") && !self.is_directory(path).await? {
            true => Err(Error::OnServer {
                reason: format!("{} is not a directory", shown(path)),
                code: None,
            }),
            false => Ok(()),
        }
    }

    fn name(&self, path: &[u8]) -> Result<RelPath, Error> {
        self.below(path)?.ok_or_else(|| {
            Error::Usage(format!(
                "`{}` is the root itself, which cannot be made, renamed or removed",
                shown(path)
            ))
        })
    }
}

/// Returns a directory's path for a listing; the empty path is `.`.
fn directory_of(path: &[u8]) -> Vec<u8> {
    if path.is_empty() { b".".to_vec() } else { path.to_vec() }
}

const fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'{')
}

/// Parses a component as a pattern, if it is one.
fn pattern(part: &[u8]) -> Result<Option<GlobMatcher>, Error> {
    if !part.iter().copied().any(is_special) {
        return Ok(None);
    }
    let wrong = |cause: String| {
        Error::Usage(format!(
            "`{}` is not a pattern: {cause}. Write a backslash before a literal `*`, `?`, `[` or `{{`",
            shown(part)
        ))
    };
    let text = str::from_utf8(part).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
    let glob =
        glob.map_err(|error| wrong(shown(error.kind().to_string().as_bytes()).to_string()))?;
    Ok(Some(glob.compile_matcher()))
}

fn matches(pattern: &GlobMatcher, name: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    pattern.is_match(std::ffi::OsStr::from_bytes(name))
}
