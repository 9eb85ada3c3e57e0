//! Invitations: secrets, each of which lets one client add its key to `authorized_keys`.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use headroom_mutex::lock;
use headroom_transfer_proto::path::printable;

use super::authorized_keys::{Access, AuthorizedKeys};
use super::error::Error;
use crate::identity::make_directory;
use crate::key::PublicKey;

/// How long an invitation is open.
const OPEN: Duration = Duration::from_secs(3600);

/// What one client that is invited will be: a line of a file of authorized keys, without the key.
#[derive(Debug, Clone)]
pub struct Invitation {
    file: PathBuf,
    options: String,
    access: Access,
}

/// Open invitations. They live as long as the server.
#[derive(Debug, Default)]
pub struct Invitations(Mutex<Vec<Open>>);

#[derive(Debug)]
struct Open {
    /// The SHA-256 hash of the secret.
    hash: Vec<u8>,
    until: Instant,
    invitation: Invitation,
}

impl Invitation {
    /// Makes an invitation to this file of authorized keys, with these options of a line.
    ///
    /// # Errors
    /// The options are wrong: the text says how.
    pub fn new(file: &Path, options: &str) -> Result<Self, String> {
        let options = options.trim();
        if options.contains(['\n', '\r']) {
            return Err("options are one line".to_owned());
        }
        let access = AuthorizedKeys::parse_options(options)?;
        Ok(Self { file: file.to_owned(), options: options.to_owned(), access })
    }

    /// Returns what the client will be allowed to do.
    #[must_use]
    pub const fn access(&self) -> &Access {
        &self.access
    }

    /// Adds the line of a key to the file, which is made if it is missing.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn add(&self, key: PublicKey, name: &str) -> Result<(), Error> {
        let comment = printable(name.trim());
        let space = if self.options.is_empty() { "" } else { " " };
        let comment = if comment.is_empty() { "invited" } else { &comment };
        let line = format!("{}{space}{key} {comment}\n", self.options);
        append(&self.file, &line).map_err(|cause| Error::System {
            doing: "add a key to",
            path: self.file.clone(),
            cause,
        })
    }
}

impl Invitations {
    /// Opens an invitation for an hour, and returns its secret, which is stored nowhere else.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn open(&self, invitation: Invitation) -> Result<[u8; 32], io::Error> {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).map_err(|_| io::Error::other("no randomness"))?;
        let (hash, until) = (hash(&secret), Instant::now() + OPEN);
        self.lock().push(Open { hash, until, invitation });
        Ok(secret)
    }

    /// Closes the invitation with this secret, if it is open.
    pub(crate) fn take(&self, secret: &[u8; 32]) -> Option<Invitation> {
        let (hash, now) = (hash(secret), Instant::now());
        let mut open = self.lock();
        open.retain(|it| it.until > now);
        let index = open.iter().position(|it| verify_slices_are_equal(&it.hash, &hash).is_ok())?;
        Some(open.remove(index).invitation)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Open>> {
        lock(&self.0)
    }
}

fn hash(secret: &[u8; 32]) -> Vec<u8> {
    digest(&SHA256, secret).as_ref().to_vec()
}

/// Appends a line to a file, on a line of its own.
fn append(path: &Path, line: &str) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty())
        && !fs::exists(parent)?
    {
        make_directory(parent)?;
    }
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let break_before = if last == *b"\n" { "" } else { "\n" };
    // in one call, so that no reader finds half a line
    file.write_all(format!("{break_before}{line}").as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    fn key() -> PublicKey {
        Identity::ephemeral().expect("a key").public()
    }

    #[test]
    fn an_invitation_is_taken_once_and_only_with_its_secret() {
        let ground = tempfile::tempdir().expect("a folder");
        let file = ground.path().join("new/authorized_keys");
        let invitation = Invitation::new(&file, "read-only,root=\"/a\"").expect("options");
        let invitations = Invitations::default();
        let secret = invitations.open(invitation).expect("a secret");
        let other = invitations.open(Invitation::new(&file, "").expect("options"));
        assert!(invitations.take(&[0; 32]).is_none());
        let taken = invitations.take(&secret).expect("it is open");
        assert!(invitations.take(&secret).is_none(), "it was used");
        assert!(invitations.take(&other.expect("a secret")).is_some());
        assert!(taken.access().read_only);
    }

    #[test]
    fn an_expired_invitation_is_closed() {
        let invitations = Invitations::default();
        let invitation = Invitation::new(Path::new("keys"), "").expect("options");
        let secret = invitations.open(invitation).expect("a secret");
        invitations.lock()[0].until = Instant::now();
        assert!(invitations.take(&secret).is_none());
    }

    #[test]
    fn a_key_is_added_on_a_line_of_its_own_and_its_name_cannot_add_another() {
        let ground = tempfile::tempdir().expect("a folder");
        let file = ground.path().join("new/authorized_keys");
        let [first, second, third] = [key(), key(), key()];
        let plain = Invitation::new(&file, "").expect("options");
        plain.add(first, "a browser").expect("it is written");
        let text = fs::read_to_string(&file).expect("a file");
        assert_eq!(text, format!("{first} a browser\n"));
        fs::write(&file, format!("{first} without an end")).expect("a file");
        let reader = Invitation::new(&file, " read-only ").expect("options");
        reader.add(second, &format!("x\n{third} y\r\n")).expect("it is written");
        let keys = AuthorizedKeys::read(&file).expect("every line is right");
        assert_eq!(keys.len(), 2);
        assert!(keys.access(&first).is_some_and(|access| !access.read_only));
        assert!(keys.access(&second).is_some_and(|access| access.read_only));
        for wrong in ["read-olny", "read-only\nroot=\"/\"", "read-only extra", "root=\"x\""] {
            assert!(Invitation::new(&file, wrong).is_err(), "{wrong}");
        }
    }
}
