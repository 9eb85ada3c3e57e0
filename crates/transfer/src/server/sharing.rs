//! What share links need, and what a share restricts its sessions to.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE32_NOPAD;
use headroom_transfer_proto::message::ErrorCode;
use headroom_transfer_proto::path::RelPath;
use tokio::task::JoinHandle;

use super::Server;
use crate::access::Grant;
use crate::connection::Connection;
use crate::error::{Closing, Error};
use crate::key::PublicKey;
use crate::trust::{Share, Shares, Unusable};

/// How often a session looks at the clock, which may be set, for the end of its share.
const LOOK: Duration = Duration::from_secs(30);

/// What share links need.
#[derive(Debug)]
pub(super) struct Sharing {
    pub(super) shares: Shares,
    /// The URL of the page.
    pub(super) page: String,
}

/// Ends a session when its share expires, unless it is dropped before.
#[derive(Debug)]
pub(super) struct Expiry(JoinHandle<()>);

impl Expiry {
    pub(super) fn watch(connection: Connection, share: Arc<Share>) -> Self {
        Self(tokio::spawn(async move {
            loop {
                match share.left() {
                    Duration::ZERO => break,
                    left => tokio::time::sleep(left.min(LOOK)).await,
                }
            }
            connection.close(Closing::Refused, &Error::share_ended().reason());
        }))
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    /// Serves share links, which lead to the page with this URL, and accepts the holder of the
    /// server's own key, so that the user who runs it can make some. Called once.
    pub fn set_shares(&self, own: PublicKey, shares: Shares, page: &str) {
        let _ = self.shared.sharing.set(Arc::new(Sharing { shares, page: page.to_owned() }));
        self.shared.access_control.accept_own(own);
    }
}

/// Makes the error for a share that a key cannot use.
pub(super) fn unusable(why: Unusable) -> Error {
    match why {
        Unusable::Ended => Error::share_ended(),
        Unusable::Used => {
            let reason = "this share link was used as often as it may be: ask for another one";
            Error::Denied { code: ErrorCode::SHARE_USED, reason: reason.to_owned() }
        }
    }
}

/// Returns the name of the file that is shared, if it is one.
pub(super) fn file_name(share: &Share) -> Option<&[u8]> {
    share.path.as_ref().filter(|_| share.is_file).map(RelPath::name)
}

/// Returns where the paths of a share's session begin, below the server's root, without a `/` at the
/// end; `None` if the session is not of a share.
pub(super) fn root_of(client: &Grant) -> Option<Vec<u8>> {
    let share = client.share.as_ref()?;
    let folder = client.key.filter(|_| share.write).and_then(|key| upload_folder(&key).ok());
    let mut root = Vec::new();
    for path in client.access.root.iter().chain(&folder) {
        root.push(b'/');
        root.extend_from_slice(path.as_bytes());
    }
    Some(root)
}

/// Names the folder for files that the holder of a key sends.
pub(super) fn upload_folder(key: &PublicKey) -> Result<RelPath, Error> {
    let hash = digest(&SHA256, &key.bytes());
    let name = BASE32_NOPAD.encode(&hash.as_ref()[..10]).to_ascii_lowercase();
    let name = RelPath::single(format!("upload-{name}").as_bytes());
    name.map_err(|error| Error::Refused(error.to_string()))
}
