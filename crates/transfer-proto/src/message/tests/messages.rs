//! Any message.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample;

use super::parts::{
    code, compress, kind, listed, offer, parts_request, path, sentence, terms, tree_options,
    verification, wanted,
};
use crate::message::{
    ChunkHash, ChunkKind, ChunkSize, Inline, Keep, LanesAnswer, Message, StoreRequests,
};
use crate::proof::Binding;
use crate::rate::Priority;
use crate::span::ChainingValue;

pub(super) fn message() -> impl Strategy<Value = Message> {
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
