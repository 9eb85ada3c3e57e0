//! Any part of a message.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::message::{
    Acls, Attributes, Compress, EntryKind, ErrorCode, Inline, Keep, LanesOffer, Links, Listed,
    ListedKind, MAX_LANES, MAX_SUITES, Owner, PartsRequest, ShareTerms, Time, TreeOptions, Wanted,
    Xattr,
};
use crate::path::{RelPath, printable};
use crate::span::Verification;

pub(super) fn terms() -> impl Strategy<Value = ShareTerms> {
    let flags = (any::<bool>(), any::<bool>(), option::of(any::<u32>()), any::<u32>());
    let texts = ("[a-z]{0,8}", option::of(path()), "[a-z ]{0,20}", "[a-z ]{0,20}");
    (texts, flags, any::<u64>(), any::<u64>()).prop_map(
        |((id, path, name, by), (is_file, write, uses, used), created, expires)| ShareTerms {
            id,
            path,
            is_file,
            write,
            created,
            expires,
            uses,
            used,
            name,
            by,
        },
    )
}

/// A sentence that a terminal may see: others do not arrive as they are.
pub(super) fn sentence() -> impl Strategy<Value = String> {
    ".{0,100}".prop_map(|text| printable(&text))
}

pub(super) fn code() -> impl Strategy<Value = Option<ErrorCode>> {
    option::of(any::<u32>().prop_map(ErrorCode))
}

pub(super) fn compress() -> impl Strategy<Value = Option<Compress>> {
    option::of(prop_oneof![Just(Compress::Never), Just(Compress::Auto), Just(Compress::Always)])
}

pub(super) fn parts_request() -> impl Strategy<Value = PartsRequest> {
    let flags = (option::of(any::<bool>()), option::of(any::<bool>()));
    (option::of(any::<[u8; 16]>()), flags).prop_map(|(upload, (completes, one_server))| {
        PartsRequest { upload, completes, one_server }
    })
}

pub(super) fn offer() -> impl Strategy<Value = LanesOffer> {
    let lists = (vec(any::<u64>(), 0..=MAX_LANES), vec(any::<u32>(), 0..=MAX_SUITES));
    let sizes = (option::of(any::<u64>()), option::of(any::<u32>()));
    (any::<[u8; 16]>(), lists, sizes).prop_map(
        |(transfer, (lanes, suites), (receive_buffer, chunk))| LanesOffer {
            transfer,
            lanes,
            suites,
            receive_buffer,
            chunk,
        },
    )
}

pub(super) fn kind() -> impl Strategy<Value = EntryKind> {
    let inline = (vec(any::<u8>(), 0..100), any::<[u8; 32]>())
        .prop_map(|(content, root)| Inline { content, root });
    prop_oneof![
        (any::<u32>(), time(), more()).prop_map(|(mode, mtime, more)| EntryKind::Directory {
            mode,
            mtime,
            more
        }),
        (vec(1..=u8::MAX, 1..50), option::of(time()), more())
            .prop_map(|(target, mtime, more)| EntryKind::Symlink { target, mtime, more }),
        (
            any::<u64>(),
            any::<u32>(),
            time(),
            (option::of(inline), option::of(any::<[u8; 32]>())),
            option::of(any::<u64>()),
            more()
        )
            .prop_map(|(size, mode, mtime, (inline, hash), data, more)| {
                EntryKind::File { size, mode, mtime, inline, hash, data, more }
            }),
        path().prop_map(|to| EntryKind::HardLink { to }),
    ]
}

pub(super) fn tree_options() -> impl Strategy<Value = TreeOptions> {
    let links = prop_oneof![
        Just(Links::Inside),
        Just(Links::Keep),
        Just(Links::Skip),
        Just(Links::Refuse),
        Just(Links::Follow)
    ];
    (any::<u32>(), links, any::<bool>(), option::of(verification())).prop_map(
        |(keep, links, changing, verification)| TreeOptions {
            keep: Keep(keep),
            links,
            changing,
            verification,
        },
    )
}

pub(super) fn verification() -> impl Strategy<Value = Verification> {
    prop_oneof![Just(Verification::Blake3), Just(Verification::Crc64)]
}

fn more() -> impl Strategy<Value = Option<Box<Attributes>>> {
    let owner =
        || option::of((any::<u32>(), "[a-z]{0,20}").prop_map(|(id, name)| Owner { id, name }));
    let bytes = || vec(any::<u8>(), 0..60);
    let xattr = ("user\\.[a-z]{1,20}", bytes())
        .prop_map(|(name, value)| Xattr { name: name.into_bytes(), value });
    let acls = (bytes(), bytes()).prop_map(|(access, default)| Acls { access, default });
    let all = (
        option::of(any::<bool>()),
        owner(),
        owner(),
        option::of(vec(xattr, 0..5)),
        option::of(acls),
    )
        .prop_map(|(linked, owner, group, xattrs, acls)| Attributes {
            linked,
            owner,
            group,
            xattrs,
            acls,
        });
    option::of(all.prop_map(Box::new))
}

pub(super) fn wanted() -> impl Strategy<Value = Wanted> {
    (option::of(path()), any::<bool>()).prop_map(|(path, contents)| Wanted { path, contents })
}

pub(super) fn listed() -> impl Strategy<Value = Listed> {
    let kind = prop_oneof![
        Just(ListedKind::File),
        Just(ListedKind::Directory),
        Just(ListedKind::Symlink),
        Just(ListedKind::Other)
    ];
    let target = option::of(vec(1..=u8::MAX, 1..50));
    (path(), kind, any::<u64>(), any::<u32>(), time(), target).prop_map(
        |(path, kind, size, mode, mtime, target)| Listed { path, kind, size, mode, mtime, target },
    )
}

fn time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000u32)
        .prop_map(|(seconds, nanoseconds)| Time { seconds, nanoseconds })
}

pub(super) fn path() -> impl Strategy<Value = RelPath> {
    vec(vec(prop_oneof![Just(b'x'), 128u8..=255], 1..9), 1..5)
        .prop_map(|parts| RelPath::parse(&parts.join(&b'/')).expect("names of plain bytes"))
}
