//! Share links: makes, lists and ends them for a client whose key is known, and checks requests of
//! their holders.

use std::sync::Arc;
use std::time::Duration;

use headroom_transfer_proto::message::{ErrorCode, MAX_SHARES_LISTED, Message, ShareTerms};
use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::listing::listed;
use super::request::Request;
use super::sharing::{Sharing, file_name, unusable, upload_folder};
use crate::delivery::{Summary, make_directories};
use crate::error::Error;
use crate::files::{self, ErrorKind, FileType};
use crate::key::PublicKey;
use crate::trust::{LONGEST, MAX_USES, NewShare, Share};

impl Request<'_> {
    /// Fails unless the session's share, if it has one, is open and allows this request. A request
    /// for content takes one use of the share for the client's key.
    pub(super) async fn check_share(&mut self, request: &Message) -> Result<(), Error> {
        let Some(share) = self.client.share.clone() else { return Ok(()) };
        let (Some(sharing), Some(key)) = (self.sharing.cloned(), self.client.key) else {
            return Err(Error::share_ended());
        };
        if !sharing.shares.is_open(&share.id) {
            return Err(Error::share_ended());
        }
        let file = file_name(&share);
        let is_shared = |path: Option<&RelPath>| match file {
            Some(file) => path.is_some_and(|path| path.as_bytes() == file),
            None => true,
        };
        match request {
            // what joins an upload is bound to the key and the share of the upload
            Message::Rights | Message::Join { .. } => return Ok(()),
            Message::List { path } if !share.write => {
                return match path.is_none() || is_shared(path.as_ref()) {
                    true => Ok(()),
                    false => Err(Error::not_shared()),
                };
            }
            Message::Get { from, .. }
                if !share.write && from.iter().all(|wanted| is_shared(wanted.path.as_ref())) => {}
            Message::GetStream { from, .. } if !share.write && is_shared(Some(from)) => {}
            Message::Put { .. } | Message::PutStream { .. } | Message::MakeDirectory { .. }
                if share.write => {}
            _ => return Err(Error::not_shared()),
        }
        let id = share.id.clone();
        let claim = spawn_blocking(move || sharing.shares.claim(&id, &key)).await;
        claim.map_err(|error| Error::task(&error))??.map_err(unusable)?;
        if share.write {
            // a folder for each browser: nobody meets, replaces or finds out files of others
            let (root, name) = (self.root.clone(), upload_folder(&key)?);
            let enter = move || {
                make_directories(&root, &name)?;
                root.below(&name)
            };
            self.root = spawn_blocking(enter).await.map_err(|error| Error::task(&error))??;
        }
        Ok(())
    }

    /// Lists the file of a share: it alone, and nothing if it is one no longer.
    pub(super) async fn list_shared_file(&mut self, name: RelPath) -> Result<(), Error> {
        let root = self.root.clone();
        let look = move || {
            let found = root.look(&name)?;
            let file = found.filter(|found| found.file_type == FileType::File);
            let Some(file) = file else { return Err(files::Error::not_there(&name)) };
            Ok(listed(name, &file, None))
        };
        let entry = spawn_blocking(look).await.map_err(|error| Error::task(&error))??;
        self.writer.queue(&Message::ACCEPTED).await?;
        self.writer.send(&Message::Listing { entries: vec![entry], last: true }).await
    }

    pub(super) async fn share(
        &mut self,
        path: Option<RelPath>,
        write: bool,
        seconds: u64,
        uses: Option<u32>,
        name: String,
    ) -> Result<(), Error> {
        let (sharing, by) = self.maker()?;
        if write {
            self.may_write()?;
        }
        let open_for = Duration::from_secs(seconds);
        if open_for.is_zero() || open_for > LONGEST {
            let days = LONGEST.as_secs() / (24 * 3600);
            return Err(Error::Refused(format!(
                "a share link is open for at least a second and at most {days} days"
            )));
        }
        if uses.is_some_and(|uses| !(1..=MAX_USES).contains(&uses)) {
            return Err(Error::Refused(format!(
                "the uses of a share link are counted from 1 to {MAX_USES}"
            )));
        }
        let (root, below) = (self.root.clone(), self.client.access.root.clone());
        let resolve = move || {
            let file_type = match &path {
                None => FileType::Directory,
                Some(path) => match root.look(path)? {
                    Some(metadata) => metadata.file_type,
                    None => return Err(files::Error::not_there(path)),
                },
            };
            let is_file = match file_type {
                FileType::Directory => false,
                FileType::File => true,
                FileType::Symlink | FileType::Pipe | FileType::Socket | FileType::Device => {
                    let shown = path.as_ref().map_or(&b"."[..], RelPath::as_bytes);
                    return Err(files::Error::unshared(shown, ErrorKind::Special(file_type)));
                }
            };
            let path = match (below, path) {
                (Some(below), Some(path)) => {
                    Some(below.join(&path).map_err(|error| files::Error::path(&path, error))?)
                }
                (below, path) => below.or(path),
            };
            Ok((path, is_file))
        };
        let resolved = spawn_blocking(resolve).await.map_err(|error| Error::task(&error))?;
        let (path, is_file) = resolved?;
        if write && is_file {
            return Err(Error::Refused(
                "files are sent into a directory, and this is a file".to_owned(),
            ));
        }
        let new = NewShare { by, path, is_file, write, open_for, uses, name };
        let keeping = Arc::clone(&sharing);
        let made = spawn_blocking(move || keeping.shares.make(new)).await;
        let made = made.map_err(|error| Error::task(&error))??;
        let Some((share, secret)) = made else {
            return Err(Error::Refused(
                "it has too many share links: revoke some, or wait until they expire".to_owned(),
            ));
        };
        self.share_id = Some(share.id.clone());
        let (terms, page) = (Box::new(self.terms(&share)), sharing.page.clone());
        self.writer.send(&Message::Shared { terms, secret, page }).await
    }

    pub(super) async fn shares(&mut self) -> Result<(), Error> {
        let (sharing, by) = self.maker()?;
        let shares = sharing.shares.list((!self.client.is_own).then_some(&by));
        let terms: Vec<_> = shares.iter().map(|share| self.terms(share)).collect();
        for part in terms.chunks(MAX_SHARES_LISTED) {
            self.writer
                .queue(&Message::SharesListed { shares: part.to_vec(), last: false })
                .await?;
        }
        self.writer.send(&Message::SharesListed { shares: Vec::new(), last: true }).await
    }

    pub(super) async fn revoke(&mut self, id: String) -> Result<Summary, Error> {
        let (sharing, by) = self.maker()?;
        let by = (!self.client.is_own).then_some(by);
        let named = id.clone();
        let revoked = spawn_blocking(move || sharing.shares.revoke(&named, by.as_ref())).await;
        if !revoked.map_err(|error| Error::task(&error))?? {
            let reason = format!("this key has no share link `{id}` that is open");
            return Err(Error::Denied { code: ErrorCode::NOT_FOUND, reason });
        }
        self.access_control.end_share(&id);
        self.share_id = Some(id);
        self.one_done().await
    }

    /// Returns what the client may be told of its session's share.
    pub(super) fn shared_terms(&self) -> Option<Box<ShareTerms>> {
        let share = self.client.share.as_deref()?;
        let path = share.path.as_ref().and_then(|path| RelPath::single(path.name()).ok());
        Some(Box::new(ShareTerms { path, ..self.terms(share) }))
    }

    /// Whether the client may make share links.
    pub(super) fn may_share(&self) -> bool {
        self.maker().is_ok()
    }

    /// Returns what share links need, and the key that makes one.
    fn maker(&self) -> Result<(Arc<Sharing>, PublicKey), Error> {
        let key = self.client.key.filter(|_| self.client.is_known);
        let Some(key) = key else {
            return Err(Error::Refused(
                "only keys in its file of authorized keys can make share links".to_owned(),
            ));
        };
        let sharing = self.sharing.cloned().ok_or_else(|| {
            Error::Refused(
                "it has no page, to which share links lead: start it with --web".to_owned(),
            )
        })?;
        Ok((sharing, key))
    }

    /// Describes a share, with its path below the client's root.
    fn terms(&self, share: &Share) -> ShareTerms {
        let skipped = self.client.access.root.as_ref().map_or(0, |root| root.components().count());
        let below: Vec<_> = share.path.iter().flat_map(RelPath::components).skip(skipped).collect();
        let by = self.access_control.comment(&share.by);
        ShareTerms {
            id: share.id.clone(),
            path: RelPath::parse(&below.join(&b'/')).ok(),
            is_file: share.is_file,
            write: share.write,
            created: share.created,
            expires: share.expires,
            uses: share.uses,
            used: share.used(),
            name: share.name.clone(),
            by: by.unwrap_or_else(|| share.by.fingerprint().to_string()),
        }
    }
}
