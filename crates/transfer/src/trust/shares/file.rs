//! The file that keeps shares: a line for each, behind a header. It is locked as long as a server
//! uses it, and replaced as a whole.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::{BASE64, HEXLOWER};
use headroom_file_lock::LockedFile;
use headroom_transfer_proto::path::RelPath;
use nix::fcntl::OFlag;

use super::share::note;
use super::{MAX_SHARES, MAX_USES, Share, Shares};
use crate::identity::make_directory;
use crate::key::PublicKey;
use crate::trust::Error;
use crate::trust::authorized_keys::text;

/// The first line of the file.
pub(super) const HEADER: &str = "headroom-shares 1";

impl Shares {
    /// Reads the file, which is made with the first share, and locks it for this server. `None`:
    /// another server uses it.
    ///
    /// # Errors
    /// It cannot be read, can be written by others, or says something else than it should.
    pub fn open(path: &Path) -> Result<Option<Self>, Error> {
        let system = |doing| move |cause| Error::System { doing, path: path.to_owned(), cause };
        if let Some(parent) = path.parent() {
            make_directory(parent).map_err(system("make the directory of"))?;
        }
        check_folder(path)?;
        let lock_path = beside(path, "lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&lock_path)
            .map_err(|cause| Error::System { doing: "lock", path: lock_path.clone(), cause })?;
        check_owner(&lock_path, &lock.metadata().map_err(system("lock"))?)?;
        let lock = match LockedFile::try_exclusive(lock) {
            Ok(lock) => lock,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(cause)) => return Err(system("lock")(cause)),
        };
        let list = match text(path) {
            Ok(text) => parse(&text).map_err(|(line, cause)| Error::Line {
                path: path.to_owned(),
                line,
                cause,
            })?,
            Err(Error::System { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let list = Mutex::new(list.into_iter().map(Arc::new).collect());
        Ok(Some(Self { path: path.to_owned(), _lock: lock, list }))
    }

    /// Writes the file anew.
    pub(super) fn write(&self, list: &[Arc<Share>]) -> io::Result<()> {
        let mut text = format!("{HEADER}\n");
        list.iter().for_each(|share| share.line(&mut text));
        headroom_atomic_file::replace(&self.path, text.as_bytes(), 0o600)?;
        // a use that was counted stays counted after a power loss
        File::open(folder_of(&self.path))?.sync_all()
    }
}

impl Share {
    fn line(&self, text: &mut String) {
        let kind = if self.is_file { "file" } else { "directory" };
        let direction = if self.write { "put" } else { "get" };
        let uses = self.uses.map_or_else(|| "any".to_owned(), |uses| uses.to_string());
        let path = self.path.as_ref().map_or(&b""[..], RelPath::as_bytes);
        let used: Vec<_> = self.used.iter().map(|key| HEXLOWER.encode(&key.bytes())).collect();
        let _ = writeln!(
            text,
            "{} {} {} {direction} {kind} {} {} {uses} /{} ={} [{}]",
            self.id,
            HEXLOWER.encode(&self.hash),
            HEXLOWER.encode(&self.by.bytes()),
            self.created,
            self.expires,
            BASE64.encode(path),
            BASE64.encode(self.name.as_bytes()),
            used.join(",")
        );
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let [id, hash, by, direction, kind, created, expires, uses, path, name, used] = words[..]
        else {
            return None;
        };
        let bytes = |text: &str| <[u8; 32]>::try_from(HEXLOWER.decode(text.as_bytes()).ok()?).ok();
        let key = |text: &str| bytes(text).map(PublicKey::from);
        let path = match BASE64.decode(path.strip_prefix('/')?.as_bytes()).ok()? {
            path if path.is_empty() => None,
            path => Some(RelPath::parse(&path).ok()?),
        };
        let name = BASE64.decode(name.strip_prefix('=')?.as_bytes()).ok()?;
        let used = used.strip_prefix('[')?.strip_suffix(']')?;
        let share = Self {
            id: Some(id).filter(|id| is_id(id))?.to_owned(),
            hash: bytes(hash)?,
            by: key(by)?,
            path,
            is_file: choice(kind, "directory", "file")?,
            write: choice(direction, "get", "put")?,
            created: created.parse().ok()?,
            expires: expires.parse().ok()?,
            uses: match uses {
                "any" => None,
                uses => Some(uses.parse().ok().filter(|uses| (1..=MAX_USES).contains(uses))?),
            },
            name: note(&String::from_utf8(name).ok()?),
            used: match used {
                "" => Vec::new(),
                used => used.split(',').map(key).collect::<Option<_>>()?,
            },
        };
        let fits = share.used() <= MAX_USES && !(share.path.is_none() && share.is_file);
        (fits && !(share.is_file && share.write)).then_some(share)
    }
}

/// Reads the text of the file; an error comes with its line, from 1.
pub(super) fn parse(text: &str) -> Result<Vec<Share>, (usize, String)> {
    let mut lines = (1..).zip(text.lines());
    let whole = text.ends_with('\n');
    match lines.next() {
        Some((_, HEADER)) if whole => {}
        _ => return Err((1, "this is not a whole file of shares".to_owned())),
    }
    let mut shares: Vec<Share> = Vec::new();
    for (number, line) in lines {
        let share = Share::parse(line).ok_or_else(|| {
            (
                number,
                "this line is damaged. Restore the file, or remove it: all share links then end"
                    .to_owned(),
            )
        })?;
        if shares.iter().any(|it| it.id == share.id) || shares.len() == MAX_SHARES {
            return Err((number, "a share is there twice, or there are too many".to_owned()));
        }
        shares.push(share);
    }
    Ok(shares)
}

/// Fails if other users can replace files in the directory of a file.
fn check_folder(path: &Path) -> Result<(), Error> {
    let folder = folder_of(path);
    let meta = fs::metadata(folder).map_err(|cause| Error::System {
        doing: "examine",
        path: folder.to_owned(),
        cause,
    })?;
    let mode = meta.mode() & 0o7777;
    // in a sticky directory they can only add files
    let is_sticky = mode & 0o1000 != 0;
    match mode & 0o022 == 0 || is_sticky {
        true => Ok(()),
        false => Err(Error::Writable { path: folder.to_owned(), mode }),
    }
}

/// Fails if a file is another user's, who could keep it locked.
fn check_owner(path: &Path, meta: &fs::Metadata) -> Result<(), Error> {
    match meta.uid() == nix::unistd::geteuid().as_raw() {
        true => Ok(()),
        false => Err(Error::Writable { path: path.to_owned(), mode: meta.mode() & 0o7777 }),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Names the file of shares of the server of a directory.
#[must_use]
pub fn root_name(root: &Path) -> String {
    HEXLOWER.encode(&digest(&SHA256, root.as_os_str().as_bytes()).as_ref()[..16])
}

fn choice(text: &str, no: &str, yes: &str) -> Option<bool> {
    (text == yes || text == no).then_some(text == yes)
}

fn is_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{end}"));
    name.into()
}
