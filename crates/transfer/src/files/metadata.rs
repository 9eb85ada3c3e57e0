//! Metadata of files.

use std::os::fd::AsFd;

use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, UtimensatFlags, fstat, fstatat, futimens, utimensat};
use nix::sys::time::TimeSpec;

use super::error::FileType;
use headroom_transfer_proto::message::Time;

/// Metadata of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Its type.
    pub file_type: FileType,
    /// The size of a file in bytes.
    pub size: u64,
    /// Permission bits, at most `0o777`; of a directory also set-group-id and sticky.
    pub mode: u32,
    /// When its content was changed.
    pub mtime: Time,
    /// Bytes that it uses on the disk.
    pub(crate) allocated: u64,
    pub(crate) links: u64,
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(crate) identity: Identity,
    ctime: Time,
}

/// The identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Metadata {
    /// Reads the metadata of a name in a directory; links are followed with `follow`.
    pub(super) fn at(directory: impl AsFd, name: &[u8], follow: bool) -> nix::Result<Self> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
        fstatat(directory, name, flags).map(Self::of_stat)
    }

    /// Reads the metadata of an open file.
    pub(super) fn of(file: impl AsFd) -> nix::Result<Self> {
        fstat(file).map(Self::of_stat)
    }

    /// Makes the metadata of an object, which has no inode: its key takes the place of one.
    pub(super) fn of_object(
        file_type: FileType,
        size: u64,
        mode: u32,
        [mtime, ctime]: [Time; 2],
        key: &str,
    ) -> Self {
        let mut inode = [0; 8];
        inode.copy_from_slice(&blake3::hash(key.as_bytes()).as_bytes()[..8]);
        let identity = Identity { device: u64::MAX, inode: u64::from_le_bytes(inode) };
        let mode = mode & kept_mode(file_type);
        let (allocated, links, owner, group) = (size, 1, 0, 0);
        Self { file_type, size, mode, mtime, allocated, links, owner, group, identity, ctime }
    }

    /// Whether this is the same file with, as far as the file system tells, the same content.
    pub(super) fn is_unchanged(&self, now: &Self) -> bool {
        // a file that was removed or replaced within a tick of the clock has a link less; one more
        // is none of its content, and some network file systems count links only of open files
        now.links >= self.links
            && (self.identity, self.size, self.mtime, self.ctime)
                == (now.identity, now.size, now.mtime, now.ctime)
    }

    /// Whether neither content nor metadata changed since then. A program can set the modification
    /// time, but not the change time.
    pub(super) fn is_older(&self, than: std::time::SystemTime) -> bool {
        let since_1970 = than.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
        self.ctime < Time { seconds, nanoseconds: since_1970.subsec_nanos() }
    }

    // the types of these fields differ between architectures
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
    fn of_stat(stat: FileStat) -> Self {
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds: nanoseconds as u32 };
        let file_type = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => FileType::File,
            SFlag::S_IFDIR => FileType::Directory,
            SFlag::S_IFLNK => FileType::Symlink,
            SFlag::S_IFIFO => FileType::Pipe,
            SFlag::S_IFSOCK => FileType::Socket,
            _ => FileType::Device,
        };
        Self {
            file_type,
            size: stat.st_size as u64,
            mode: stat.st_mode & kept_mode(file_type),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            allocated: stat.st_blocks as u64 * 512,
            links: stat.st_nlink as u64,
            owner: stat.st_uid,
            group: stat.st_gid,
            identity: Identity { device: stat.st_dev as u64, inode: stat.st_ino as u64 },
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// Sets the modification time of a name; links are not followed.
pub(crate) fn set_mtime_at(directory: impl AsFd, name: &[u8], mtime: Time) -> nix::Result<()> {
    let mtime = TimeSpec::new(mtime.seconds, i64::from(mtime.nanoseconds.min(999_999_999)));
    let flags = UtimensatFlags::NoFollowSymlink;
    utimensat(directory, name, &TimeSpec::UTIME_OMIT, &mtime, flags)
}

/// Returns the mode bits that are kept. Set-user-id, set-group-id and sticky of files are not:
/// a program with them would run with the rights of its receiver.
pub(super) const fn kept_mode(file_type: FileType) -> u32 {
    if matches!(file_type, FileType::Directory) { 0o3777 } else { 0o777 }
}

/// Sets the modification time of an open file.
pub(super) fn set_mtime(file: impl AsFd, mtime: Time) -> nix::Result<()> {
    let mtime = TimeSpec::new(mtime.seconds, i64::from(mtime.nanoseconds.min(999_999_999)));
    futimens(file, &TimeSpec::UTIME_OMIT, &mtime)
}
