//! Attributes of files beside content, permissions and times: read by the sender, set by the
//! receiver, and compared.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use headroom_transfer_proto::message::{
    Acls, Attributes, Keep, MAX_ATTRIBUTE_BYTES, MAX_XATTRS, Owner, Xattr,
};
use nix::errno::Errno;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown, geteuid};
use xattr::FileExt;

use crate::files::error::ErrorKind;
use crate::files::metadata::Metadata;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Attributes that need an open file to be read.
const OF_OPEN_FILES: [Keep; 2] = [Keep::XATTRS, Keep::ACLS];

/// Returns what this user may set: only root changes owners.
#[must_use]
pub fn settable() -> Keep {
    let all = Keep::HARD_LINKS.or(Keep::XATTRS).or(Keep::ACLS).or(Keep::GROUP);
    let all = all.or(Keep::NUMERIC_IDS);
    if geteuid().is_root() { all.or(Keep::OWNER) } else { all }
}

/// Whether a file must be opened for its attributes.
pub(super) fn takes_an_open_file(keep: Keep) -> bool {
    OF_OPEN_FILES.iter().any(|kept| keep.has(*kept))
}

/// Reads the attributes to keep. Without an open file there are no extended attributes and
/// access control lists.
///
/// # Errors
/// The file system refuses, or the attributes exceed the limits of an entry.
pub(super) fn read(
    metadata: &Metadata,
    file: Option<&File>,
    keep: Keep,
) -> Result<Attributes, ErrorKind> {
    let owner = |kept, id| keep.has(kept).then(|| Owner { id, name: String::new() });
    let read = |kept| file.filter(|_| keep.has(kept));
    let attributes = Attributes {
        linked: None,
        owner: owner(Keep::OWNER, metadata.owner),
        group: owner(Keep::GROUP, metadata.group),
        xattrs: read(Keep::XATTRS).map(xattrs).transpose().map_err(ErrorKind::of)?,
        acls: read(Keep::ACLS).map(acls).transpose().map_err(ErrorKind::of)?,
    };
    let count = attributes.xattrs.as_ref().map_or(0, Vec::len);
    if count > MAX_XATTRS || attributes.bytes() > MAX_ATTRIBUTE_BYTES {
        return Err(ErrorKind::Attributes);
    }
    Ok(attributes)
}

/// Sets owner, attributes and permissions of a file of this user.
///
/// # Errors
/// The file system refuses.
pub(super) fn set(
    file: &File,
    mode: Mode,
    attributes: Option<&Attributes>,
) -> Result<(), ErrorKind> {
    let Some(attributes) = attributes else { return set_mode(file, mode) };
    // before the mode, because a change of owner clears bits of it
    set_owner(file, attributes)?;
    if let Some(wanted) = &attributes.xattrs {
        set_xattrs(file, mode, wanted)?;
    }
    set_mode(file, mode)?;
    if let Some(Acls { access, default }) = &attributes.acls {
        set_acl(file, ACCESS, access).map_err(ErrorKind::of)?;
        set_acl(file, DEFAULT, default).map_err(ErrorKind::of)?;
        // removing a list leaves its mask as the group's permissions
        if access.is_empty() {
            set_mode(file, mode)?;
        }
    }
    Ok(())
}

/// Whether a file has these attributes already.
///
/// # Errors
/// The file system refuses.
pub(super) fn are_set(
    metadata: &Metadata,
    file: &File,
    attributes: &Attributes,
) -> Result<bool, ErrorKind> {
    let Attributes { owner, group, xattrs: wanted, acls: lists, .. } = attributes;
    let may_give = geteuid().is_root();
    let is_owners = owner.as_ref().is_none_or(|owner| !may_give || owner.id == metadata.owner);
    let is_groups = group.as_ref().is_none_or(|group| !may_give || group.id == metadata.group);
    if !is_owners || !is_groups {
        return Ok(false);
    }
    if let Some(wanted) = wanted
        && xattrs(file).map_err(ErrorKind::of)? != *wanted
    {
        return Ok(false);
    }
    match lists {
        Some(wanted) => Ok(acls(file).map_err(ErrorKind::of)? == *wanted),
        None => Ok(true),
    }
}

/// Returns the user and group to set; `None` if this user may not.
pub(super) fn to_whom(attributes: &Attributes) -> (Option<Uid>, Option<Gid>) {
    let user = attributes.owner.as_ref().filter(|_| geteuid().is_root());
    let user = user.map(|owner| Uid::from_raw(owner.id));
    (user, attributes.group.as_ref().map(|group| Gid::from_raw(group.id)))
}

/// Sets permissions, and set-group-id and sticky unless the system forbids them (as systemd's
/// `RestrictSUIDSGID=` does).
fn set_mode(file: &File, mode: Mode) -> Result<(), ErrorKind> {
    let plain = mode & (Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO);
    match fchmod(file, mode) {
        Err(Errno::EPERM) if plain != mode => Ok(fchmod(file, plain)?),
        outcome => Ok(outcome?),
    }
}

fn set_owner(file: &File, attributes: &Attributes) -> Result<(), ErrorKind> {
    let (user, group) = to_whom(attributes);
    if user.is_none() && group.is_none() {
        return Ok(());
    }
    match fchown(file.as_fd(), user, group) {
        // other users than root may only use groups that they are in
        Err(Errno::EPERM) if user.is_none() => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn xattrs(file: &File) -> io::Result<Vec<Xattr>> {
    let names = match file.list_xattr() {
        Err(error) if is_unsupported(&error) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in names.filter(|name| name.as_bytes().starts_with(b"user.")) {
        if let Some(value) = file.get_xattr(&name)? {
            found.push(Xattr { name: name.into_vec(), value });
        }
    }
    found.sort();
    Ok(found)
}

fn set_xattrs(file: &File, mode: Mode, wanted: &[Xattr]) -> Result<(), ErrorKind> {
    let found = xattrs(file).map_err(ErrorKind::of)?;
    if found == wanted {
        return Ok(());
    }
    // setting them needs write permission
    fchmod(file, mode | Mode::S_IWUSR | Mode::S_IRUSR)?;
    for xattr in found.iter().filter(|found| wanted.iter().all(|xattr| xattr.name != found.name)) {
        file.remove_xattr(OsStr::from_bytes(&xattr.name)).map_err(ErrorKind::of)?;
    }
    for xattr in wanted.iter().filter(|xattr| !found.contains(xattr)) {
        file.set_xattr(OsStr::from_bytes(&xattr.name), &xattr.value).map_err(ErrorKind::of)?;
    }
    Ok(())
}

fn acls(file: &File) -> io::Result<Acls> {
    let read = |name| match file.get_xattr(name) {
        Err(error) if is_unsupported(&error) => Ok(Vec::new()),
        value => value.map(Option::unwrap_or_default),
    };
    Ok(Acls { access: read(ACCESS)?, default: read(DEFAULT)? })
}

fn set_acl(file: &File, name: &str, wanted: &[u8]) -> io::Result<()> {
    let here = match file.get_xattr(name) {
        Err(error) if is_unsupported(&error) => None,
        value => value?,
    };
    match (here, wanted) {
        (None, []) => Ok(()),
        (Some(_), []) => file.remove_xattr(name),
        (Some(here), wanted) if here == wanted => Ok(()),
        (_, wanted) => file.set_xattr(name, wanted),
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32)
}
