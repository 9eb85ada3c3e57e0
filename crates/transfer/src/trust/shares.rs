//! Shares: links, each of which lets its holder fetch one path, or send into it, until a time or a
//! number of uses. They are kept in a file; of their secrets only hashes are.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::{BASE32_NOPAD, BASE64, HEXLOWER};
use headroom_transfer_proto::path::{RelPath, printable};
use nix::fcntl::OFlag;

use super::authorized_keys::{Access, text};
use super::error::Error;
use super::policy::AccessPolicy;
use crate::identity::make_directory;
use crate::key::PublicKey;

/// The first line of the file.
const HEADER: &str = "headroom-shares 1";
/// The most shares of a server.
pub(crate) const MAX_SHARES: usize = 256;
/// The most shares of one key, so that none takes the places of all others.
pub(crate) const MAX_OF_ONE: usize = 64;
/// The most browsers that are counted for a share.
pub(crate) const MAX_USES: u32 = 100;
/// The longest time that a share is open.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// The most bytes of a share's note.
const MAX_NAME: usize = 64;

/// The shares of a server, and the file that keeps them.
#[derive(Debug)]
pub struct Shares {
    path: PathBuf,
    /// Locked as long as this server uses the file.
    _lock: File,
    list: Mutex<Vec<Arc<Share>>>,
}

/// A share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Its ID, which is no secret.
    pub id: String,
    /// The SHA-256 hash of the secret.
    hash: [u8; 32],
    /// The key that made it.
    pub by: PublicKey,
    /// The file or directory below the server's root; `None` is the root.
    pub path: Option<RelPath>,
    /// Whether that is a file.
    pub is_file: bool,
    /// Whether its holder may only send files; otherwise only fetch.
    pub write: bool,
    /// When it was made, in seconds since 1970 (UTC).
    pub created: u64,
    /// When it expires, in seconds since 1970 (UTC).
    pub expires: u64,
    /// The most browsers that may use it.
    pub uses: Option<u32>,
    /// A note for people.
    pub name: String,
    /// The keys of browsers that have used it, at most [`MAX_USES`].
    used: Vec<PublicKey>,
}

/// What a new share allows.
#[derive(Debug, Clone)]
pub struct NewShare {
    /// The key that makes it.
    pub by: PublicKey,
    /// The file or directory below the server's root; `None` is the root.
    pub path: Option<RelPath>,
    /// Whether that is a file.
    pub is_file: bool,
    /// Whether its holder may only send files; otherwise only fetch.
    pub write: bool,
    /// How long it is open.
    pub open_for: Duration,
    /// The most browsers that may use it.
    pub uses: Option<u32>,
    /// A note for people.
    pub name: String,
}

/// A share that was made, and its secret.
pub type NewLink = (Arc<Share>, [u8; 32]);

/// Why a share cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It has expired, was revoked, or never was.
    Ended,
    /// Other browsers have used it as often as it may be.
    Used,
}

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
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(cause)) => return Err(system("lock")(cause)),
        }
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

    /// Makes a share, and returns its secret, which is stored nowhere else. `None`: there are too
    /// many.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn make(&self, new: NewShare) -> Result<Option<NewLink>, Error> {
        let (mut secret, mut id) = ([0; 32], [0; 5]);
        let filled = aws_lc_rs::rand::fill(&mut secret).and(aws_lc_rs::rand::fill(&mut id));
        filled.map_err(|_| self.system(io::Error::other("no randomness")))?;
        let created = now();
        let share = Share {
            id: BASE32_NOPAD.encode(&id).to_ascii_lowercase(),
            hash: hash(&secret),
            by: new.by,
            path: new.path,
            is_file: new.is_file,
            write: new.write,
            created,
            expires: created + new.open_for.min(LONGEST).as_secs(),
            uses: new.uses.map(|uses| uses.clamp(1, MAX_USES)),
            name: note(&new.name),
            used: Vec::new(),
        };
        let mut list = self.lock();
        let mut next: Vec<_> = list.iter().filter(|it| it.expires > created).cloned().collect();
        let of_one = next.iter().filter(|it| it.by == share.by).count();
        if next.len() >= MAX_SHARES || of_one >= MAX_OF_ONE {
            return Ok(None);
        }
        let share = Arc::new(share);
        next.push(Arc::clone(&share));
        self.replace(&mut list, next)?;
        Ok(Some((share, secret)))
    }

    /// Returns the share with this secret, if this key may use it.
    pub(crate) fn find(&self, secret: &[u8; 32], key: &PublicKey) -> Result<Arc<Share>, Unusable> {
        let (hash, now) = (hash(secret), now());
        let list = self.lock();
        let found = list.iter().find(|it| verify_slices_are_equal(&it.hash, &hash).is_ok());
        let share = found.filter(|it| it.expires > now).ok_or(Unusable::Ended)?;
        if share.is_used_up_for(key) { Err(Unusable::Used) } else { Ok(Arc::clone(share)) }
    }

    /// Whether a share is still open.
    pub(crate) fn is_open(&self, id: &str) -> bool {
        let now = now();
        self.lock().iter().any(|it| it.id == id && it.expires > now)
    }

    /// Counts the holder of a key as one use of a share, once. The count is on the disk before this
    /// returns.
    ///
    /// # Errors
    /// The outer one if the file cannot be written.
    pub(crate) fn claim(&self, id: &str, key: &PublicKey) -> Result<Result<(), Unusable>, Error> {
        let now = now();
        let mut list = self.lock();
        let Some(at) = list.iter().position(|it| it.id == id && it.expires > now) else {
            return Ok(Err(Unusable::Ended));
        };
        let share = &list[at];
        if share.used.contains(key) {
            return Ok(Ok(()));
        }
        if share.is_used_up_for(key) {
            return Ok(Err(Unusable::Used));
        }
        if share.used.len() >= MAX_USES as usize {
            // any number may use it; these are not counted
            return Ok(Ok(()));
        }
        let mut used = Share::clone(share);
        used.used.push(*key);
        let mut next = list.clone();
        next[at] = Arc::new(used);
        self.replace(&mut list, next)?;
        Ok(Ok(()))
    }

    /// Removes a share; only of this maker, if one is named. Returns whether there was one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn revoke(&self, id: &str, by: Option<&PublicKey>) -> Result<bool, Error> {
        let mut list = self.lock();
        let is_it = |it: &Arc<Share>| it.id == id && by.is_none_or(|by| it.by == *by);
        let next: Vec<_> = list.iter().filter(|it| !is_it(it)).cloned().collect();
        let was_there = next.len() < list.len();
        if was_there {
            self.replace(&mut list, next)?;
        }
        Ok(was_there)
    }

    /// Returns the open shares; only of this maker, if one is named.
    pub fn list(&self, by: Option<&PublicKey>) -> Vec<Arc<Share>> {
        let now = now();
        let list = self.lock();
        let open = list.iter().filter(|it| it.expires > now);
        open.filter(|it| by.is_none_or(|by| it.by == *by)).cloned().collect()
    }

    /// Writes a new list, and uses it once it is on the disk.
    fn replace(
        &self,
        list: &mut MutexGuard<'_, Vec<Arc<Share>>>,
        next: Vec<Arc<Share>>,
    ) -> Result<(), Error> {
        self.write(&next).map_err(|cause| self.system(cause))?;
        **list = next;
        Ok(())
    }

    fn write(&self, list: &[Arc<Share>]) -> io::Result<()> {
        let mut text = format!("{HEADER}\n");
        list.iter().for_each(|share| share.line(&mut text));
        let draft = beside(&self.path, "new");
        // what is there is of an interrupted write, or somebody else's, perhaps a link
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        // a use that was counted stays counted after a power loss
        File::open(folder_of(&self.path))?.sync_all()
    }

    fn system(&self, cause: io::Error) -> Error {
        Error::System { doing: "write", path: self.path.clone(), cause }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Share>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn expire(&self, id: &str) {
        for share in &mut *self.lock() {
            if share.id == id {
                Arc::make_mut(share).expires = now();
            }
        }
    }
}

impl Share {
    /// Returns the number of browsers that have used it.
    pub fn used(&self) -> u32 {
        u32::try_from(self.used.len()).unwrap_or(u32::MAX)
    }

    /// Returns how long it is still open.
    pub(crate) fn left(&self) -> Duration {
        Duration::from_secs(self.expires.saturating_sub(now()))
    }

    /// Returns what its holder may do: no more than the key that made it may do now.
    pub(crate) fn access(&self, maker: &Access) -> Option<Access> {
        let is_within = match &maker.root {
            None => true,
            Some(root) => self.path.as_ref().is_some_and(|path| {
                let mut names = path.components();
                root.components().all(|name| names.next() == Some(name))
            }),
        };
        if !is_within || (self.write && maker.read_only) {
            return None;
        }
        let root = match (&self.path, self.is_file) {
            (Some(path), true) => path.parent(),
            (path, _) => path.clone(),
        };
        Some(Access { root, read_only: !self.write, rate_bps: maker.rate_bps })
    }

    /// Returns what its maker may do, if it is still one of those that the policy accepts.
    pub(crate) fn maker(&self, policy: &AccessPolicy, own: Option<&PublicKey>) -> Option<Access> {
        let listed = policy.keys.access(&self.by).cloned();
        listed.or_else(|| (own == Some(&self.by)).then(Access::default))
    }

    fn is_used_up_for(&self, key: &PublicKey) -> bool {
        self.uses.is_some_and(|uses| self.used() >= uses) && !self.used.contains(key)
    }

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
fn parse(text: &str) -> Result<Vec<Share>, (usize, String)> {
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

/// Makes a text a note: one line of at most [`MAX_NAME`] bytes.
fn note(text: &str) -> String {
    let text = printable(text.trim());
    text[..text.floor_char_boundary(MAX_NAME)].trim_end().to_owned()
}

fn hash(secret: &[u8; 32]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, secret).as_ref());
    bytes
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{end}"));
    name.into()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::identity::Identity;

    fn key() -> PublicKey {
        Identity::ephemeral().expect("a key").public()
    }

    fn new(by: PublicKey, uses: Option<u32>) -> NewShare {
        NewShare {
            by,
            path: RelPath::parse(b"a/b \xff").ok(),
            is_file: false,
            write: false,
            open_for: Duration::from_secs(60),
            uses,
            name: " for\nAlice ".to_owned(),
        }
    }

    fn open(path: &Path) -> Shares {
        Shares::open(path).expect("a file").expect("no other server")
    }

    fn make(shares: &Shares, new: NewShare) -> (Arc<Share>, [u8; 32]) {
        shares.make(new).expect("it is written").expect("there are few")
    }

    #[test]
    fn a_share_is_found_by_its_secret_until_it_expires_or_is_revoked() {
        let ground = tempfile::tempdir().expect("a folder");
        let shares = open(&ground.path().join("new/shares"));
        let (maker, guest) = (key(), key());
        let (share, secret) = make(&shares, new(maker, None));
        let (other, other_secret) = make(&shares, new(maker, None));
        assert_eq!(shares.find(&secret, &guest), Ok(Arc::clone(&share)));
        assert_eq!(shares.find(&[0; 32], &guest), Err(Unusable::Ended));
        shares.expire(&share.id);
        assert_eq!(shares.find(&secret, &guest), Err(Unusable::Ended));
        assert!(!shares.is_open(&share.id) && shares.is_open(&other.id));
        assert_eq!(shares.claim(&share.id, &guest).expect("no error"), Err(Unusable::Ended));
        assert!(!shares.revoke(&other.id, Some(&guest)).expect("no error"), "of another key");
        assert!(shares.revoke(&other.id, Some(&maker)).expect("it is written"));
        assert_eq!(shares.find(&other_secret, &guest), Err(Unusable::Ended));
        assert_eq!(shares.list(None).len(), 0);
    }

    #[test]
    fn a_use_is_a_key_and_counts_once() {
        let ground = tempfile::tempdir().expect("a folder");
        let shares = open(&ground.path().join("shares"));
        let [first, second, third] = [key(), key(), key()];
        let (share, secret) = make(&shares, new(key(), Some(2)));
        for _ in 0..3 {
            assert_eq!(shares.claim(&share.id, &first).expect("it is written"), Ok(()));
        }
        // looking at it takes no use
        assert!(shares.find(&secret, &third).is_ok());
        assert_eq!(shares.claim(&share.id, &second).expect("it is written"), Ok(()));
        assert_eq!(shares.find(&secret, &third), Err(Unusable::Used));
        assert_eq!(shares.claim(&share.id, &third).expect("no error"), Err(Unusable::Used));
        assert!(shares.find(&secret, &first).is_ok());
        assert_eq!(shares.list(None)[0].used(), 2);
    }

    #[test]
    fn no_note_makes_the_file_unreadable() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("shares");
        let shares = open(&path);
        // a mark that is first after trimming becomes longer, and a cut can end in a space
        for name in [format!(" \u{301}{} bbbb", "a".repeat(56)), "\u{1}".repeat(64)] {
            make(&shares, NewShare { name, ..new(key(), None) });
        }
        let names = |shares: &Shares| -> Vec<_> {
            shares.list(None).iter().map(|share| share.name.clone()).collect()
        };
        let before = names(&shares);
        drop(shares);
        assert_eq!(names(&open(&path)), before);
    }

    #[test]
    fn one_key_cannot_take_the_places_of_all() {
        let ground = tempfile::tempdir().expect("a folder");
        let shares = open(&ground.path().join("shares"));
        let maker = key();
        for _ in 0..MAX_OF_ONE {
            make(&shares, new(maker, None));
        }
        assert!(shares.make(new(maker, None)).expect("no error").is_none());
        make(&shares, new(key(), None));
    }

    #[test]
    fn a_restart_keeps_shares_and_uses_and_the_file_has_no_secret() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("shares");
        let (maker, guest) = (key(), key());
        let (made, secret) = {
            let shares = open(&path);
            let (share, secret) = make(&shares, new(maker, Some(1)));
            assert!(Shares::open(&path).expect("no error").is_none(), "another server uses it");
            shares.claim(&share.id, &guest).expect("it is written").expect("the first use");
            (shares.list(Some(&maker)), secret)
        };
        let shares = open(&path);
        assert_eq!(shares.list(Some(&maker)), made);
        assert_eq!((made[0].name.as_str(), made[0].used()), ("for\\nAlice", 1));
        assert_eq!(shares.find(&secret, &key()), Err(Unusable::Used));
        let mode = fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(&path).expect("the file");
        for encoded in [HEXLOWER.encode(&secret), BASE64.encode(&secret)] {
            assert!(!text.contains(&encoded), "{text}");
        }
    }

    #[test]
    fn a_damaged_file_of_shares_is_refused_with_its_line() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("shares");
        let shares = open(&path);
        make(&shares, new(key(), Some(3)));
        make(&shares, new(key(), None));
        drop(shares);
        let right = fs::read_to_string(&path).expect("the file");
        assert!(parse(&right).is_ok());
        let lines: Vec<_> = right.lines().collect();
        for (wrong, line) in [
            (right.replace(HEADER, "headroom-shares 2"), 1),
            (right[..right.len() - 1].to_owned(), 1),
            (String::new(), 1),
            (right.replace(" get directory ", " get folder "), 2),
            (right.replace(" 3 /", " 0 /"), 2),
            (right.replace(" any /", " 101 /"), 3),
            (right.replace(" any /", " any "), 3),
            (format!("{right}{}\n", lines[1]), 4),
            (format!("{right}\n"), 4),
            (right.replace("\n", " \n"), 1),
        ] {
            let (found, cause) = parse(&wrong).expect_err(&wrong);
            assert_eq!(found, line, "{cause}: {wrong}");
        }
        fs::write(&path, right.replace(" any /", " some /")).expect("a file");
        let error = Shares::open(&path).expect_err("damaged").to_string();
        assert!(error.contains("shares:3:"), "{error}");
        fs::write(&path, &right).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("a mode");
        assert!(Shares::open(&path).is_err(), "others can write it");
    }

    #[test]
    fn links_beside_the_file_are_not_followed() {
        let ground = tempfile::tempdir().expect("a folder");
        let (path, victim) = (ground.path().join("shares"), ground.path().join("victim"));
        fs::write(&victim, "precious").expect("a file");
        let lock = ground.path().join("shares.lock");
        std::os::unix::fs::symlink(&victim, &lock).expect("a link");
        let error = Shares::open(&path).expect_err("the lock is a link").to_string();
        assert!(error.contains("shares.lock"), "{error}");
        fs::remove_file(&lock).expect("it is there");
        std::os::unix::fs::symlink(&victim, ground.path().join("shares.new")).expect("a link");
        let shares = open(&path);
        make(&shares, new(key(), None));
        assert_eq!(fs::read_to_string(&victim).expect("the file"), "precious");
        assert!(fs::symlink_metadata(&path).expect("the shares").is_file());
    }

    #[test]
    fn a_directory_in_which_others_can_replace_files_is_refused() {
        let ground = tempfile::tempdir().expect("a folder");
        let set_mode = |mode| {
            fs::set_permissions(ground.path(), fs::Permissions::from_mode(mode)).expect("a mode");
        };
        let path = ground.path().join("shares");
        for mode in [0o777, 0o770] {
            set_mode(mode);
            let error = Shares::open(&path).expect_err("others can write").to_string();
            assert!(error.contains(&format!("mode {mode:o}")), "{error}");
            assert!(!ground.path().join("shares.lock").exists());
        }
        set_mode(0o1777);
        drop(open(&path));
        // a lock of another user
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(ground.path().join("shares.lock"), Some(1), None)
                .expect("another owner");
            assert!(Shares::open(&path).is_err());
        }
    }

    #[test]
    fn a_share_allows_no_more_than_the_key_that_made_it() {
        let ground = tempfile::tempdir().expect("a folder");
        let shares = open(&ground.path().join("shares"));
        let root = |path: &[u8]| RelPath::parse(path).ok();
        let maker =
            |path: &[u8], read_only| Access { root: root(path), read_only, rate_bps: Some(7) };
        let (share, _) = make(&shares, new(key(), None));
        let access = share.access(&maker(b"a", true)).expect("it is within");
        assert_eq!(access, Access { root: root(b"a/b \xff"), read_only: true, rate_bps: Some(7) });
        assert!(share.access(&Access::default()).is_some());
        for outside in [&b"a/c"[..], b"a/b \xff/d", b"b", b"a/b"] {
            assert!(share.access(&maker(outside, false)).is_none());
        }
        let file = NewShare { is_file: true, ..new(key(), None) };
        let access = make(&shares, file).0.access(&Access::default()).expect("it is within");
        assert_eq!((access.root, access.read_only), (root(b"a"), true));
        let put = make(&shares, NewShare { write: true, ..new(key(), None) }).0;
        assert!(put.access(&Access { read_only: true, ..Access::default() }).is_none());
        assert!(!put.access(&Access::default()).expect("it may write").read_only);
        // removing the key ends it
        let mut policy = AccessPolicy::default();
        assert_eq!(put.maker(&policy, None), None);
        assert_eq!(put.maker(&policy, Some(&put.by)), Some(Access::default()));
        policy.keys.insert(put.by, maker(b"a", true));
        assert_eq!(put.maker(&policy, Some(&put.by)), Some(maker(b"a", true)));
    }
}
