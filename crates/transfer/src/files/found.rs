//! What a walk finds.

use headroom_transfer_proto::message::Attributes;
use headroom_transfer_proto::path::RelPath;

use super::metadata::Metadata;
use super::reader::SourceFile;

/// Something to send.
#[derive(Debug)]
pub struct Found {
    /// The name under which it is sent.
    pub path: RelPath,
    /// What it is.
    pub kind: SourceKind,
    /// Its attributes, if any are kept.
    pub attributes: Option<Box<Attributes>>,
}

/// What it is.
#[derive(Debug)]
pub enum SourceKind {
    /// A directory; its content follows.
    Directory(Metadata),
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: Vec<u8>,
        /// Its metadata.
        metadata: Metadata,
    },
    /// A file.
    File(SourceFile),
}
