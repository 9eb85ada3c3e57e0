//! A share, and what its holder may do.

use std::time::{Duration, SystemTime};

use headroom_transfer_proto::path::{RelPath, printable};

use crate::key::PublicKey;
use crate::trust::{Access, AccessPolicy};

/// The most bytes of a share's note.
const MAX_NAME: usize = 64;

/// A share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Its ID, which is no secret.
    pub id: String,
    /// The SHA-256 hash of the secret.
    pub(super) hash: [u8; 32],
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
    /// The keys of browsers that have used it, at most [`MAX_USES`](super::MAX_USES).
    pub(super) used: Vec<PublicKey>,
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

    pub(super) fn is_used_up_for(&self, key: &PublicKey) -> bool {
        self.uses.is_some_and(|uses| self.used() >= uses) && !self.used.contains(key)
    }
}

/// Makes a text a note: one line of at most [`MAX_NAME`] bytes.
pub(super) fn note(text: &str) -> String {
    let text = printable(text.trim());
    text[..text.floor_char_boundary(MAX_NAME)].trim_end().to_owned()
}

/// Returns the seconds since 1970 (UTC).
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
