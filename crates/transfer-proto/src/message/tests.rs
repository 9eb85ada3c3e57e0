//! Every message survives the way there; nothing that arrives does harm.

mod messages;
mod parts;
mod versions;

use proptest::collection::vec;
use proptest::prelude::*;

use self::messages::message;
use super::*;
use crate::path::RelPath;
use crate::span::ChainingValue;

proptest! {
    #[test]
    fn what_is_framed_is_read(message in message()) {
        let mut bytes = vec![7];
        message.frame(&mut bytes).expect("a message within its bounds");
        let length = bytes[1..5].try_into().expect("four bytes");
        prop_assert_eq!(body_len(length), Ok(bytes.len() - 5));
        prop_assert_eq!(Message::parse(&bytes[5..]), Ok(message));
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        let _ = Message::parse(&bytes);
        let _ = DataHeader::parse(&bytes);
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(
        message in message(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        message.frame(&mut bytes).expect("a message within its bounds");
        let mut body = bytes.split_off(4);
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(read) = Message::parse(&body) {
            // whatever was read keeps to the bounds: it can be sent again
            read.frame(&mut bytes).expect("a message within its bounds");
        }
        prop_assert!(Message::parse(&body[..at]).is_err());
    }

    #[test]
    fn a_header_is_read(id in any::<u64>(), offset in any::<u64>(), len in any::<u64>()) {
        let header = DataHeader { id, offset, len, zstd: Some(true) };
        let mut bytes = Vec::new();
        header.frame(&mut bytes).expect("a header is short");
        prop_assert_eq!(DataHeader::parse(&bytes[4..]), Ok(header));
    }
}

#[test]
fn an_extra_byte_is_refused() {
    let mut bytes = Vec::new();
    Message::ACCEPTED.frame(&mut bytes).expect("a short message");
    bytes.push(0);
    assert_eq!(Message::parse(&bytes[4..]), Err(Error::Trailing(1)));
}

#[test]
fn lengths_and_lists_are_bounded() {
    assert_eq!(body_len([0, 16, 0, 0]), Ok(MAX_BYTES));
    assert_eq!(body_len([0, 16, 0, 1]), Err(Error::TooLong(MAX_BYTES + 1)));
    assert!(Message::parse(&vec![0; MAX_BYTES + 1]).is_err());

    let have = |count| Message::Have {
        id: 1,
        first_span: 0,
        values: vec![ChainingValue([7; 32]); count],
        last: true,
        old: None,
    };
    let body = |message: Message| {
        let mut bytes = Vec::new();
        message.frame(&mut bytes).expect("within a frame");
        bytes.split_off(4)
    };
    assert!(Message::parse(&body(have(MAX_VALUES))).is_ok());
    assert!(Message::parse(&body(have(MAX_VALUES + 1))).is_err());

    let sync = |count, bytes| Message::Sync {
        path: None,
        upload: true,
        delete: false,
        dry_run: false,
        checksum: false,
        fsync: false,
        exclude: vec!["x".repeat(bytes); count],
        compress: None,
        tree: None,
    };
    assert!(Message::parse(&body(sync(MAX_PATTERNS, 1024))).is_ok());
    assert!(Message::parse(&body(sync(MAX_PATTERNS + 1, 1))).is_err());
    assert!(Message::parse(&body(sync(1, 1025))).is_err());

    let get = |count| Message::Get {
        from: vec![Wanted { path: None, contents: true }; count],
        compress: None,
        lanes: None,
        tree: None,
        ranges: None,
    };
    assert!(Message::parse(&body(get(MAX_SOURCES))).is_ok());
    assert!(Message::parse(&body(get(MAX_SOURCES + 1))).is_err());
}

#[test]
fn the_greatest_messages_fit() {
    let path =
        RelPath::parse(&vec![b"x".as_slice(); 2048].join(&b'/')).expect("a name of 4095 bytes");
    let time = Time { seconds: i64::MIN, nanoseconds: 999_999_999 };
    let wanted = Wanted { path: Some(path.clone()), contents: true };
    let inline = Inline { content: vec![1; MAX_INLINE], root: [255; 32] };
    let kind = EntryKind::File {
        size: u64::MAX,
        mode: u32::MAX,
        mtime: time,
        inline: Some(inline),
        hash: Some([7; 32]),
        data: Some(u64::MAX),
        more: Some(Box::new(greatest_attributes())),
    };
    let mut out = Vec::new();
    Message::Entry { id: u64::MAX, path, kind }.frame(&mut out).expect("it fits");
    // lists of the longest names are cut by whoever makes them
    let wanted = vec![wanted; MAX_SOURCES];
    let get = Message::Get { from: wanted, compress: None, lanes: None, tree: None, ranges: None };
    let error = get.frame(&mut out);
    assert!(matches!(error, Err(Error::TooLong(_))));
    assert!(Message::parse(&out[4..]).is_ok(), "the message before is still whole");
}

#[test]
fn a_long_text_is_truncated_between_characters() {
    let mut bytes = Vec::new();
    Message::Refused { reason: "ä".repeat(5000), about_files: None, code: None }
        .frame(&mut bytes)
        .expect("it is cut");
    let Ok(Message::Refused { reason, .. }) = Message::parse(&bytes[4..]) else {
        panic!("a refusal was sent");
    };
    assert_eq!(reason, "ä".repeat(4096));
}

#[test]
fn control_characters_of_a_peers_message_are_escaped_when_it_is_parsed() {
    let hostile = "\u{202e}gpj.exe\u{200b} \x1b[2J";
    let escaped = "\\u{202e}gpj.exe\\u{200b} \\u{1b}[2J";
    let reason = || hostile.to_owned();
    let program = reason();
    for message in [
        Message::Refused {
            reason: reason(),
            about_files: Some(true),
            code: Some(ErrorCode::NOT_FOUND),
        },
        Message::Withdrawn { id: 1, reason: reason(), code: None },
        Message::Failed { id: 1, reason: reason(), code: None },
        Message::Unreadable { reason: reason(), path: None, code: None },
        Message::Remark { text: reason(), left_out: 0 },
        Message::Left { reason: reason(), failed: true, code: None },
        Message::Hello { version: VERSION, program, rate_bps: None, priority: None, counts: None },
    ] {
        let mut bytes = Vec::new();
        message.frame(&mut bytes).expect("a short message");
        let text = match Message::parse(&bytes[4..]).expect("a message") {
            Message::Refused { reason, .. }
            | Message::Withdrawn { reason, .. }
            | Message::Failed { reason, .. }
            | Message::Unreadable { reason, .. }
            | Message::Remark { text: reason, .. }
            | Message::Left { reason, .. } => reason,
            Message::Hello { program, .. } => program,
            other => panic!("{other:?}"),
        };
        assert_eq!(text, escaped);
    }
    // however long it becomes, it keeps to its bound
    let mut bytes = Vec::new();
    Message::Refused { reason: "\x1b".repeat(8192), about_files: None, code: None }
        .frame(&mut bytes)
        .expect("it fits");
    let Ok(Message::Refused { reason, .. }) = Message::parse(&bytes[4..]) else {
        panic!("a refusal was sent");
    };
    assert!(reason.len() <= 8192 && reason.starts_with("\\u{1b}\\u{1b}"), "{}", reason.len());
}

#[test]
fn messages_with_names_that_lead_out_are_refused() {
    for name in ["../x", "/etc/passwd", "a/../../b", "", "a//b", "a\0b", "."] {
        let mut bytes = Vec::new();
        let mut e = minicbor::Encoder::new(&mut bytes);
        let map = e.array(2).and_then(|e| e.u32(3)).and_then(|e| e.map(1)).expect("a vector");
        map.u32(0).and_then(|e| e.bytes(name.as_bytes())).expect("a vector");
        assert!(Message::parse(&bytes).is_err(), "{name:?}");
        for number in [28, 29, 30] {
            assert!(Message::parse(&about_name(number, name)).is_err(), "{number}: {name:?}");
            assert!(Message::parse(&about_name(number, "name")).is_ok(), "{number}");
        }
    }
}

/// A message that makes, renames or removes this name.
fn about_name(number: u32, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut e = minicbor::Encoder::new(&mut bytes);
    let flag = if number == 29 { 2 } else { 1 };
    let map = e.array(2).and_then(|e| e.u32(number)).and_then(|e| e.map(2));
    let map = map.and_then(|e| e.u32(0)).and_then(|e| e.bytes(name.as_bytes()));
    map.and_then(|e| e.u32(flag)).and_then(|e| e.bool(true)).expect("a vector");
    bytes
}

#[test]
fn chunks_and_ranges_are_bounded_and_in_order() {
    let parsed = |message: Message| {
        let mut bytes = Vec::new();
        message.frame(&mut bytes).expect("within a frame");
        Message::parse(&bytes[4..])
    };
    let described = |count, len| {
        let chunks = vec![ChunkHash { len, hash: [7; 16] }; count];
        parsed(Message::Described { id: 1, chunks, last: true })
    };
    assert!(described(MAX_CHUNKS, 1).is_ok());
    assert!(described(MAX_CHUNKS + 1, 1).is_err());
    assert!(described(1, 0).is_err(), "an empty chunk");
    let describe = |ranges: Vec<std::ops::Range<u64>>| {
        parsed(Message::Describe { id: 1, size: ChunkSize::MIN, kind: ChunkKind::Group, ranges })
    };
    let many = |count: usize| (0..count as u64).map(|n| 4 * n..4 * n + 3).collect::<Vec<_>>();
    assert!(describe(many(MAX_DESCRIBED)).is_ok());
    assert!(describe(many(MAX_DESCRIBED + 1)).is_err());
    assert!(describe(vec![0..5, 6..u64::MAX]).is_ok());
    for (start, end, next) in [(5, 5, 7), (0, 5, 5), (0, 5, 4), (6, 5, 7)] {
        assert!(describe(vec![start..end, next..9]).is_err(), "{start}..{end}, {next}..9");
    }
    let literal =
        |bytes| parsed(Message::Literal { id: 1, offset: 0, len: 1, content: vec![1; bytes] });
    assert!(literal(MAX_INLINE).is_ok());
    assert!(literal(MAX_INLINE + 1).is_err());
}

#[test]
fn only_some_average_lengths_of_chunks_exist() {
    let others = [0, 1, 2048, 4097, 6 << 10, (1 << 20) + 1, 2 << 20, u32::MAX];
    for (bytes, exists) in others.map(|bytes| (bytes, false)).into_iter().chain([(8192, true)]) {
        assert_eq!(ChunkSize::new(bytes).is_some(), exists, "{bytes}");
        // as a message of a peer has it
        let mut body = Vec::new();
        let mut e = minicbor::Encoder::new(&mut body);
        let map = e.array(2).and_then(|e| e.u32(48)).and_then(|e| e.map(4)).expect("a vector");
        let map = map.u32(0).and_then(|e| e.u64(1)).and_then(|e| e.u32(1)).expect("a vector");
        let map = map.u32(bytes).and_then(|e| e.u32(2)).and_then(|e| e.u32(0));
        map.and_then(|e| e.u32(3)).and_then(|e| e.array(0)).expect("a vector");
        assert_eq!(Message::parse(&body).is_ok(), exists, "{bytes}");
    }
    assert_eq!(ChunkSize::new(4 << 10), Some(ChunkSize::MIN));
    assert_eq!(ChunkSize::new(1 << 20), Some(ChunkSize::MAX));
}

fn greatest_attributes() -> Attributes {
    let owner = || Some(Owner { id: u32::MAX, name: "x".repeat(64) });
    let xattr = |n| Xattr { name: format!("user.{n:0>250}").into_bytes(), value: vec![7] };
    Attributes {
        linked: Some(true),
        owner: owner(),
        group: owner(),
        xattrs: Some((0..MAX_XATTRS).map(xattr).collect()),
        acls: Some(Acls {
            access: vec![7; MAX_ATTRIBUTE_BYTES],
            default: vec![7; MAX_ATTRIBUTE_BYTES],
        }),
    }
}

#[test]
fn attributes_are_bounded_and_only_a_users() {
    let entry = |more: Attributes| {
        let time = Time { seconds: 0, nanoseconds: 0 };
        let kind = EntryKind::Directory { mode: 0, mtime: time, more: Some(Box::new(more)) };
        let path = RelPath::parse(b"x").expect("a path");
        let mut bytes = Vec::new();
        Message::Entry { id: 0, path, kind }.frame(&mut bytes).expect("within a frame");
        Message::parse(&bytes[4..])
    };
    let xattrs = |names: &[&str], bytes: usize| {
        let xattr = |name: &&str| Xattr { name: name.as_bytes().to_vec(), value: vec![7; bytes] };
        entry(Attributes {
            xattrs: Some(names.iter().map(xattr).collect()),
            ..Attributes::default()
        })
    };
    assert!(entry(greatest_attributes()).is_ok());
    assert!(xattrs(&["user.a"; MAX_XATTRS], 1).is_ok());
    assert!(xattrs(&["user.a"; MAX_XATTRS + 1], 1).is_err());
    assert!(xattrs(&["user.a"; 2], MAX_ATTRIBUTE_BYTES / 2 - 6).is_ok());
    assert!(xattrs(&["user.a"; 2], MAX_ATTRIBUTE_BYTES / 2).is_err());
    for name in ["security.capability", "trusted.a", "system.posix_acl_access", "user.", "user.a\0"]
    {
        assert!(xattrs(&[name], 1).is_err(), "{name}");
    }
    let acls = Acls { access: vec![0; MAX_ATTRIBUTE_BYTES + 1], default: Vec::new() };
    assert!(entry(Attributes { acls: Some(acls), ..Attributes::default() }).is_err());
}
