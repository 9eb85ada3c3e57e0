//! Every message survives the way there; nothing that arrives does harm.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample;

use super::*;
use crate::path::{RelPath, printable};
use crate::proof::Binding;
use crate::rate::Priority;
use crate::span::{ChainingValue, Verification};

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
fn unknown_fields_are_ignored() {
    let mut bytes = Vec::new();
    let mut e = minicbor::Encoder::new(&mut bytes);
    // Stored { id: 5 } of a later version, which also says something else
    let map = e.array(2).and_then(|e| e.u32(11)).and_then(|e| e.map(2)).expect("a vector");
    let map = map.u32(0).and_then(|e| e.u64(5)).expect("a vector");
    map.u32(77).and_then(|e| e.array(1)).and_then(|e| e.str("more")).expect("a vector");
    assert_eq!(Message::parse(&bytes), Ok(Message::Stored { id: 5 }));
}

#[test]
fn an_older_version_has_no_verification() {
    let mut bytes = Vec::new();
    let mut e = minicbor::Encoder::new(&mut bytes);
    // the tree options of a version that knew three fields
    let map = e.map(3).and_then(|e| e.u32(0)).and_then(|e| e.u32(5)).expect("a vector");
    let map = map.u32(1).and_then(|e| e.u32(0)).and_then(|e| e.u32(2)).expect("a vector");
    map.bool(true).expect("a vector");
    let options: TreeOptions = minicbor::decode(&bytes).expect("it is read");
    let known = TreeOptions { keep: Keep(5), changing: true, ..TreeOptions::default() };
    assert_eq!(options, known);
    // and what says nothing new is written as that version does
    assert_eq!(minicbor::to_vec(options).expect("a vector"), bytes);
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

fn message() -> impl Strategy<Value = Message> {
    let id = any::<u64>;
    prop_oneof![
        (
            any::<u32>(),
            "[a-z0-9. ]{0,64}",
            option::of(any::<u64>()),
            option::of(0..3_usize),
            option::of(any::<bool>())
        )
            .prop_map(|(version, program, rate_bps, priority, counts)| Message::Hello {
                version,
                program,
                rate_bps,
                priority: priority.map(|number| Priority::ALL[number]),
                counts,
            }),
        (id(), id(), id()).prop_map(|(list, part, slowed)| Message::StoreRequests {
            requests: Box::new(StoreRequests { list, part, slowed, ..StoreRequests::default() })
        }),
        (
            option::of(path()),
            any::<bool>(),
            any::<bool>(),
            option::of(offer()),
            option::of(tree_options()),
            option::of(parts_request())
        )
            .prop_map(|(to, rename, fsync, lanes, tree, parts)| Message::Put {
                to,
                rename,
                fsync,
                lanes,
                tree,
                parts
            }),
        (id(), any::<[u8; 16]>(), id()).prop_map(|(id, upload, part_spans)| {
            Message::PartsBegun { id, upload, part_spans }
        }),
        (id(), id(), id()).prop_map(|(id, first_span, spans)| Message::RangeStored {
            id,
            first_span,
            spans
        }),
        id().prop_map(|id| Message::RangesEnd { id }),
        (
            vec(wanted(), 0..5),
            compress(),
            option::of(offer()),
            option::of(tree_options()),
            option::of(any::<bool>())
        )
            .prop_map(|(from, compress, lanes, tree, ranges)| Message::Get {
                from,
                compress,
                lanes,
                tree,
                ranges
            }),
        (id(), id(), id()).prop_map(|(id, offset, len)| Message::Hole { id, offset, len }),
        option::of(path()).prop_map(|path| Message::List { path }),
        option::of(
            (any::<u32>(), option::of(id()), option::of(any::<u32>()), option::of(any::<u16>()))
                .prop_map(|(suite, receive_buffer, chunk, port)| LanesAnswer {
                    suite,
                    receive_buffer,
                    chunk,
                    port
                })
        )
        .prop_flat_map(|lanes| {
            (
                Just(lanes),
                option::of(any::<u32>().prop_map(Keep)),
                option::of(any::<[u8; 16]>()),
                option::of(verification()),
                option::of(any::<bool>()),
                option::of(any::<bool>()),
            )
        })
        .prop_map(|(lanes, keep, ticket, verification, ranges, parts)| Message::Accepted {
            lanes,
            keep,
            ticket,
            verification,
            ranges,
            parts
        }),
        any::<[u8; 16]>().prop_map(|ticket| Message::Join { ticket }),
        any::<(u64, u64)>().prop_map(|(bytes, streams)| Message::Arrived { bytes, streams }),
        (
            any::<[u8; 32]>(),
            any::<[u8; 32]>(),
            option::of(sample::select(vec![
                Binding::Exporter,
                Binding::Certificate,
                Binding::Origin
            ])),
            option::of(any::<[u8; 32]>())
        )
            .prop_map(|(key, half, binding, nonce)| {
                let mut signature = [0; 64];
                signature[..32].copy_from_slice(&half);
                Message::Proof { key, signature, binding, nonce }
            }),
        any::<[u8; 32]>().prop_map(|nonce| Message::Challenge { nonce }),
        (any::<[u8; 32]>(), "[a-z ]{0,20}")
            .prop_map(|(secret, name)| Message::Invited { secret, name }),
        Just(Message::Rights),
        (
            any::<bool>(),
            any::<bool>(),
            option::of(id()),
            option::of(any::<bool>()),
            option::of(terms())
        )
            .prop_map(|(known, read_only, rate_bps, may_share, share)| {
                let share = share.map(Box::new);
                Message::Granted { known, read_only, rate_bps, may_share, share }
            }),
        (option::of(path()), any::<bool>(), id(), option::of(any::<u32>()), "[a-z ]{0,20}")
            .prop_map(|(path, write, seconds, uses, name)| Message::Share {
                path,
                write,
                seconds,
                uses,
                name
            }),
        (terms(), any::<[u8; 32]>(), sentence()).prop_map(|(terms, secret, page)| {
            Message::Shared { terms: Box::new(terms), secret, page }
        }),
        Just(Message::Shares),
        (vec(terms(), 0..4), any::<bool>())
            .prop_map(|(shares, last)| Message::SharesListed { shares, last }),
        "[a-z]{0,20}".prop_map(|id| Message::Revoke { id }),
        any::<[u8; 32]>().prop_map(|secret| Message::ShareSecret { secret }),
        (sentence(), option::of(any::<bool>()), code()).prop_map(|(reason, about_files, code)| {
            Message::Refused { reason, about_files, code }
        }),
        (id(), path(), kind()).prop_map(|(id, path, kind)| Message::Entry { id, path, kind }),
        (id(), id()).prop_map(|(files, bytes)| Message::EntriesEnd { files, bytes }),
        (
            id(),
            id(),
            vec(any::<[u8; 32]>().prop_map(ChainingValue), 0..40),
            any::<bool>(),
            option::of(id())
        )
            .prop_map(|(id, first_span, values, last, old)| Message::Have {
                id,
                first_span,
                values,
                last,
                old
            }),
        (id(), any::<[u8; 32]>(), id()).prop_map(|(id, root, bytes)| Message::Sealed {
            id,
            root,
            bytes
        }),
        (id(), sentence(), code()).prop_map(|(id, reason, code)| Message::Withdrawn {
            id,
            reason,
            code
        }),
        id().prop_map(|id| Message::Stored { id }),
        (id(), sentence(), code()).prop_map(|(id, reason, code)| Message::Failed {
            id,
            reason,
            code
        }),
        (id(), id()).prop_map(|(stored, failed)| Message::End { stored, failed }),
        (path(), any::<bool>())
            .prop_map(|(path, parents)| Message::MakeDirectory { path, parents }),
        (path(), option::of(path()), any::<bool>())
            .prop_map(|(from, to, replace)| Message::Rename { from, to, replace }),
        (path(), any::<bool>()).prop_map(|(path, recursive)| Message::Remove { path, recursive }),
        (vec(listed(), 0..5), any::<bool>())
            .prop_map(|(entries, last)| Message::Listing { entries, last }),
        (sentence(), option::of(path()), code())
            .prop_map(|(reason, path, code)| Message::Unreadable { reason, path, code }),
        (sentence(), id()).prop_map(|(text, left_out)| Message::Remark { text, left_out }),
        of_a_sync(),
        of_a_delta(),
        of_a_range(),
    ]
}

fn of_a_range() -> impl Strategy<Value = Message> {
    let values = vec(any::<[u8; 32]>().prop_map(ChainingValue), 0..40);
    prop_oneof![
        any::<(u64, u64, u64)>().prop_map(|(id, first_span, spans)| Message::AskRange {
            id,
            first_span,
            spans
        }),
        (any::<u64>(), any::<u64>(), values)
            .prop_map(|(id, first_span, values)| { Message::RangeSent { id, first_span, values } }),
    ]
}

fn terms() -> impl Strategy<Value = ShareTerms> {
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
fn sentence() -> impl Strategy<Value = String> {
    ".{0,100}".prop_map(|text| printable(&text))
}

fn code() -> impl Strategy<Value = Option<ErrorCode>> {
    option::of(any::<u32>().prop_map(ErrorCode))
}

fn compress() -> impl Strategy<Value = Option<Compress>> {
    option::of(prop_oneof![Just(Compress::Never), Just(Compress::Auto), Just(Compress::Always)])
}

fn of_a_sync() -> impl Strategy<Value = Message> {
    let id = any::<u64>;
    let inline = (vec(any::<u8>(), 0..100), any::<[u8; 32]>())
        .prop_map(|(content, root)| Inline { content, root });
    prop_oneof![
        (
            option::of(path()),
            any::<[bool; 5]>(),
            vec(".{0,30}", 0..5),
            compress(),
            option::of(tree_options())
        )
            .prop_map(
                |(path, [upload, delete, dry_run, checksum, fsync], exclude, compress, tree)| {
                    Message::Sync {
                        compress,
                        tree,
                        path,
                        upload,
                        delete,
                        dry_run,
                        checksum,
                        fsync,
                        exclude,
                    }
                }
            ),
        (path(), any::<bool>()).prop_map(|(to, fsync)| Message::PutStream { to, fsync }),
        (path(), option::of(tree_options()))
            .prop_map(|(from, tree)| Message::GetStream { from, tree }),
        path().prop_map(|path| Message::Passed { path }),
        id().prop_map(|id| Message::Wanted { id }),
        (id(), inline).prop_map(|(id, inline)| Message::Content { id, inline }),
        id().prop_map(|id| Message::Current { id }),
        (id(), id(), any::<bool>()).prop_map(|(id, bytes, new)| Message::Planned {
            id,
            bytes,
            new
        }),
        path().prop_map(|path| Message::Removed { path }),
        (sentence(), any::<bool>(), code()).prop_map(|(reason, failed, code)| Message::Left {
            reason,
            failed,
            code
        }),
    ]
}

fn of_a_delta() -> impl Strategy<Value = Message> {
    let id = any::<u64>;
    let size = (12..=20_u32).prop_map(|bits| ChunkSize::new(1 << bits).expect("a size"));
    let ranges = prop::collection::btree_set(any::<u64>(), 0..10).prop_map(|bounds| {
        let bounds: Vec<_> = bounds.into_iter().collect();
        bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect::<Vec<_>>()
    });
    let chunk = (1..=u32::MAX, any::<[u8; 16]>()).prop_map(|(len, hash)| ChunkHash { len, hash });
    let kind = sample::select(vec![ChunkKind::Block, ChunkKind::Chunk, ChunkKind::Group]);
    prop_oneof![
        (id(), size, kind, ranges).prop_map(|(id, size, kind, ranges)| Message::Describe {
            id,
            size,
            kind,
            ranges
        }),
        (id(), vec(chunk, 0..40), any::<bool>())
            .prop_map(|(id, chunks, last)| Message::Described { id, chunks, last }),
        any::<(u64, u64, u64, u64)>().prop_map(|(id, from, to, len)| Message::Copy {
            id,
            from,
            to,
            len
        }),
        (id(), id(), any::<u32>(), vec(any::<u8>(), 0..100))
            .prop_map(|(id, offset, len, content)| Message::Literal { id, offset, len, content }),
    ]
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

/// A peer of before knows nothing of the old file's size, and a later one ignores it.
#[test]
fn values_of_spans_are_those_of_an_older_version() {
    let mut body = Vec::new();
    let mut e = minicbor::Encoder::new(&mut body);
    let map = e.array(2).and_then(|e| e.u32(8)).and_then(|e| e.map(4)).expect("a vector");
    let map = map.u32(0).and_then(|e| e.u64(5)).and_then(|e| e.u32(1)).expect("a vector");
    let map = map.u64(0).and_then(|e| e.u32(2)).and_then(|e| e.bytes(&[])).expect("a vector");
    map.u32(3).and_then(|e| e.bool(true)).expect("a vector");
    let have = |old| Message::Have { id: 5, first_span: 0, values: Vec::new(), last: true, old };
    assert_eq!(Message::parse(&body), Ok(have(None)));
    let mut framed = Vec::new();
    have(None).frame(&mut framed).expect("a short message");
    assert_eq!(framed[4..], body, "an older receiver's bytes");
}

/// A peer of before knows nothing of ranges, and a later one ignores them.
#[test]
fn requests_and_answers_without_ranges_are_those_of_an_older_version() {
    let bytes = |message: Message| {
        let mut framed = Vec::new();
        message.frame(&mut framed).expect("a short message");
        framed.split_off(4)
    };
    let get =
        |ranges| Message::Get { from: Vec::new(), compress: None, lanes: None, tree: None, ranges };
    let accepted = |ranges| Message::Accepted {
        lanes: None,
        keep: None,
        ticket: None,
        verification: None,
        ranges,
        parts: None,
    };
    // [2, {0: []}], [2, {0: [], 10: true}], [4, {}], [4, {4: true}]
    assert_eq!(bytes(get(None)), [0x82, 0x02, 0xa1, 0x00, 0x80]);
    assert_eq!(bytes(get(Some(true))), [0x82, 0x02, 0xa2, 0x00, 0x80, 0x0a, 0xf5]);
    assert_eq!(bytes(accepted(None)), [0x82, 0x04, 0xa0]);
    assert_eq!(bytes(accepted(Some(true))), [0x82, 0x04, 0xa1, 0x04, 0xf5]);
    assert_eq!(Message::parse(&bytes(get(Some(true)))), Ok(get(Some(true))));
    let sent = |count| Message::RangeSent {
        id: 1,
        first_span: 2,
        values: vec![ChainingValue([7; 32]); count],
    };
    assert!(Message::parse(&bytes(sent(MAX_VALUES))).is_ok());
    assert!(Message::parse(&bytes(sent(MAX_VALUES + 1))).is_err());
}

/// A server of before ignores that a client divides a file, and accepts without.
#[test]
fn uploads_without_parts_are_those_of_an_older_version() {
    let bytes = |message: Message| {
        let mut framed = Vec::new();
        message.frame(&mut framed).expect("a short message");
        framed.split_off(4)
    };
    let put = |parts| Message::Put {
        to: None,
        rename: false,
        fsync: false,
        lanes: None,
        tree: None,
        parts,
    };
    // [1, {1: false, 2: false}], and 10: {1: true}
    assert_eq!(bytes(put(None)), [0x82, 0x01, 0xa2, 0x01, 0xf4, 0x02, 0xf4]);
    let completes = PartsRequest { completes: Some(true), ..PartsRequest::default() };
    assert_eq!(
        bytes(put(Some(completes))),
        [0x82, 0x01, 0xa3, 0x01, 0xf4, 0x02, 0xf4, 0x0a, 0xa1, 0x01, 0xf5]
    );
    // the name of an upload has 16 bytes
    let upload = Some([7; UPLOAD_BYTES]);
    let named = bytes(put(Some(PartsRequest { upload, ..PartsRequest::default() })));
    assert!(Message::parse(&named).is_ok());
    let at = named.iter().position(|byte| *byte == 0x50).expect("a string of 16 bytes");
    let mut short = named;
    short[at] = 0x4f;
    short.pop();
    assert!(Message::parse(&short).is_err());
}

fn parts_request() -> impl Strategy<Value = PartsRequest> {
    let flags = (option::of(any::<bool>()), option::of(any::<bool>()));
    (option::of(any::<[u8; 16]>()), flags).prop_map(|(upload, (completes, one_server))| {
        PartsRequest { upload, completes, one_server }
    })
}

fn offer() -> impl Strategy<Value = LanesOffer> {
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

fn kind() -> impl Strategy<Value = EntryKind> {
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

fn tree_options() -> impl Strategy<Value = TreeOptions> {
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

fn verification() -> impl Strategy<Value = Verification> {
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

fn wanted() -> impl Strategy<Value = Wanted> {
    (option::of(path()), any::<bool>()).prop_map(|(path, contents)| Wanted { path, contents })
}

fn listed() -> impl Strategy<Value = Listed> {
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

fn path() -> impl Strategy<Value = RelPath> {
    vec(vec(prop_oneof![Just(b'x'), 128u8..=255], 1..9), 1..5)
        .prop_map(|parts| RelPath::parse(&parts.join(&b'/')).expect("names of plain bytes"))
}
