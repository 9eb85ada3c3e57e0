//! Trees in a store in memory.

mod directories;
mod full;
mod large;
mod names;
mod receive;
mod resume;
mod send;

use std::time::Duration;

use bytes::Bytes;
use headroom_store::{Condition, Metadata as Tags, Store};
use headroom_transfer_proto::message::Time;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{Hash, SPAN_BYTES, Spans};
use tokio::runtime::{Builder, Handle};

use super::{Root, StoreOptions};
use crate::files::{Offer, Seal};

const MIB: usize = 1 << 20;
const TIME: Time = Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 };

/// Runs a test on a thread that may block, beside a runtime for requests.
pub(super) fn run(test: impl FnOnce(&Handle)) {
    let runtime = Builder::new_multi_thread().enable_all().build().expect("threads");
    test(runtime.handle());
    runtime.shutdown_timeout(Duration::from_secs(60));
}

pub(super) fn store(runtime: &Handle) -> Store {
    Store::in_memory(runtime.clone())
}

/// Stores an object as another program does.
pub(super) fn put(store: &Store, key: &str, content: &[u8]) {
    let content = Bytes::copy_from_slice(content);
    store.put(key, content, &Tags::new(), Condition::Any).expect("it is stored");
}

/// A root over an empty store, as a transfer has it.
fn root(runtime: &Handle) -> Root {
    Root::new(store(runtime), &StoreOptions::default(), runtime.clone())
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

/// Bytes that do not repeat, and others for another `seed`.
fn bytes(seed: u8, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

fn offer(size: usize) -> Offer {
    Offer { size: size as u64, mtime: TIME, data: size as u64, reuse: true }
}

fn seal_of(root: Hash) -> Seal {
    Seal { root, mode: 0o640, mtime: TIME, fsync: false }
}

fn seal(content: &[u8]) -> Seal {
    seal_of(blake3::hash(content))
}

/// Writes some spans of a file.
fn write_spans(partial: &super::Partial, spans: impl IntoIterator<Item = u64>, file: &[u8]) {
    for span in spans {
        let range = Spans::new(file.len() as u64).range(span).expect("a span");
        let bytes = &file[range.start as usize..range.end as usize];
        partial.write_at(range.start, bytes).expect("it is written");
    }
}

/// The whole content of an object.
fn read(store: &Store, key: &str) -> Vec<u8> {
    let object = store.look(key).expect("an answer").expect("an object");
    store.read(key, 0..object.size, None).expect("its content").to_vec()
}

/// Spans that are there when a transfer begins.
fn present(partial: &super::Partial) -> Vec<u64> {
    let mut found = Vec::new();
    let mut next = partial.next_present(0);
    while let Some(span) = next {
        assert!(partial.present(span).is_some(), "span {span}");
        found.push(span);
        next = partial.next_present(span + 1);
    }
    found
}

/// Spans of a part.
const PART: u64 = 8;

const _: () = assert!(PART * SPAN_BYTES == super::whole::MAX_AT_ONCE);
