//! Attributes of files beside content, permissions and times, and policies for symbolic links.

use minicbor::{Decode, Encode};

use super::bounded;
use crate::span::Verification;

/// How the trees of a request are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct TreeOptions {
    /// Which attributes are kept.
    #[n(0)]
    pub keep: Keep,
    /// What to do with symbolic links.
    #[n(1)]
    pub links: Links,
    /// Whether to send a file that changes while it is read.
    #[n(2)]
    pub changing: bool,
    /// How to verify files of which the receiver has nothing; `None` is by BLAKE3. The server may
    /// refuse that ([`Message::Accepted`](super::Message::Accepted)), and ignores it in a sync.
    #[n(3)]
    pub verification: Option<Verification>,
}

/// A set of attributes to keep beside content, permissions and times, as bits. Unknown bits
/// mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Keep(#[n(0)] pub u32);

impl Keep {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Hard links: files with several names get them at the receiver, too.
    pub const HARD_LINKS: Self = Self(1);
    /// Extended attributes `user.*`.
    pub const XATTRS: Self = Self(2);
    /// POSIX access control lists.
    pub const ACLS: Self = Self(4);
    /// The owner.
    pub const OWNER: Self = Self(8);
    /// The group.
    pub const GROUP: Self = Self(16);
    /// Owner and group by number, not by name.
    pub const NUMERIC_IDS: Self = Self(32);

    /// Returns what is in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns what is in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns what is in this set and not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether it contains all of another set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Names what is in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [
            (Self::HARD_LINKS, "hard links"),
            (Self::XATTRS, "extended attributes"),
            (Self::ACLS, "access control lists"),
            (Self::OWNER, "owners"),
            (Self::GROUP, "groups"),
        ];
        names.into_iter().filter_map(move |(keep, name)| self.has(keep).then_some(name))
    }
}

/// What to do with symbolic links in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum Links {
    /// Send links that stay within the tree, leave out others.
    #[default]
    #[n(0)]
    Inside,
    /// Send all links.
    #[n(1)]
    Keep,
    /// Leave out all links.
    #[n(2)]
    Skip,
    /// As `Inside`, but others are failures.
    #[n(3)]
    Refuse,
    /// Send what links lead to.
    #[n(4)]
    Follow,
}

/// Attributes of an entry. It has none that the request does not keep.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Attributes {
    /// Whether hard links to this file may follow.
    #[n(0)]
    pub linked: Option<bool>,
    /// The owner.
    #[n(1)]
    pub owner: Option<Owner>,
    /// The group.
    #[n(2)]
    pub group: Option<Owner>,
    /// All extended attributes `user.*`, at most `MAX_XATTRS`.
    #[cbor(n(3), with = "xattrs")]
    pub xattrs: Option<Vec<Xattr>>,
    /// The access control lists.
    #[n(4)]
    pub acls: Option<Acls>,
}

/// A user or group.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Owner {
    /// Its number at the sender.
    #[n(0)]
    pub id: u32,
    /// Its name at the sender: the receiver uses the number that it has for that name, if any.
    /// Empty if the number is to be used.
    #[cbor(n(1), with = "bounded::name")]
    pub name: String,
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(map)]
pub struct Xattr {
    /// Its name, which begins with `user.`: at most 255 bytes, none of them zero.
    #[cbor(n(0), with = "bounded::xattr_name")]
    pub name: Vec<u8>,
    /// Its value.
    #[cbor(n(1), with = "bounded::attribute")]
    pub value: Vec<u8>,
}

/// The POSIX access control lists of a file or directory, as Linux keeps them in
/// `system.posix_acl_access` and `system.posix_acl_default`. Empty ones are none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Acls {
    /// The access ACL.
    #[cbor(n(0), with = "bounded::attribute")]
    pub access: Vec<u8>,
    /// The default ACL of a directory.
    #[cbor(n(1), with = "bounded::attribute")]
    pub default: Vec<u8>,
}

impl Attributes {
    /// Returns the size of its lists in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let xattrs = self.xattrs.iter().flatten().map(|xattr| xattr.name.len() + xattr.value.len());
        let acls = self.acls.iter().map(|acls| acls.access.len() + acls.default.len());
        xattrs.chain(acls).sum()
    }

    /// Removes what is not in a set.
    #[must_use]
    pub fn limited(self, keep: Keep) -> Self {
        Self {
            linked: self.linked.filter(|_| keep.has(Keep::HARD_LINKS)),
            owner: self.owner.filter(|_| keep.has(Keep::OWNER)),
            group: self.group.filter(|_| keep.has(Keep::GROUP)),
            xattrs: self.xattrs.filter(|_| keep.has(Keep::XATTRS)),
            acls: self.acls.filter(|_| keep.has(Keep::ACLS)),
        }
    }
}

/// The codec of a list of extended attributes, which may be absent.
mod xattrs {
    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{self, Encoder, Write};

    use crate::message::attributes::Xattr;
    use crate::message::bounded;
    use crate::message::limits::{MAX_ATTRIBUTE_BYTES, MAX_XATTRS};

    pub(crate) fn encode<C, W: Write>(
        value: &Option<Vec<Xattr>>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.encode(value)?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Option<Vec<Xattr>>, Error> {
        let xattrs = bounded::optional(d, |d| bounded::items::<Xattr>(d, MAX_XATTRS))?;
        let bytes: usize =
            xattrs.iter().flatten().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
        if bytes > MAX_ATTRIBUTE_BYTES {
            return Err(Error::message("extended attributes are too long"));
        }
        Ok(xattrs)
    }
}
