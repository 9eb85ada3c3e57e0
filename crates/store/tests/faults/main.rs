//! Stores that fail, lie, answer late or not at all, and writers that meet.

mod faulty;
mod late;
mod listings;
mod refusals;
mod requests;
mod uploads;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headroom_store::{
    Backend, Condition, Entry, Error, Metadata, Patience, SPAN, Store, Upload, UploadOffer, Version,
};
use tokio::runtime::Runtime;

use faulty::{Conditions, Faulty};

const MIB: usize = 1 << 20;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("it is possible")
}

/// Opens a store in memory of which a test says what it does.
fn open(runtime: &Runtime) -> (Arc<Faulty>, Store) {
    open_with(runtime, Conditions::Known)
}

fn open_with(runtime: &Runtime, conditions: Conditions) -> (Arc<Faulty>, Store) {
    let faulty = Arc::new(Faulty::new(conditions));
    let backend = Arc::clone(&faulty) as Arc<dyn Backend>;
    let store = Store::of(backend, "memory://", runtime.handle().clone());
    (faulty, store.with_patience(brisk()))
}

/// Pauses that a test does not notice.
fn brisk() -> Patience {
    Patience {
        attempts: 4,
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(2),
        ..Patience::default()
    }
}

fn hashed(hash: &str) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("headroom-blake3", hash).expect("metadata");
    metadata
}

fn put(store: &Store, key: &str) -> Result<Version, Error> {
    store.put(key, Bytes::from_static(b"content"), &Metadata::new(), Condition::Any)
}

fn names(entries: impl Iterator<Item = Result<Entry, Error>>) -> Vec<String> {
    entries
        .map(|entry| match entry.expect("an entry") {
            Entry::Object(object) => object.name,
            Entry::Directory(name) => format!("{name}/"),
        })
        .collect()
}

/// An object of two parts, of 8 MiB and 1 MiB + 1.
const SIZE: u64 = (9 << 20) + 1;

fn offer(tag: u8) -> UploadOffer {
    UploadOffer { size: SIZE, tag: [tag; 16], metadata: hashed("later") }
}

fn part(number: u32) -> (Bytes, Vec<[u8; 32]>) {
    let bytes = [8 * MIB, MIB + 1][number as usize];
    let fill = number as u8 + 1;
    let values = vec![[fill; 32]; bytes.div_ceil(SPAN as usize)];
    (Bytes::from(vec![fill; bytes]), values)
}

fn put_part(upload: &Upload, number: u32) -> Result<(), Error> {
    let (content, values) = part(number);
    upload.put_part(number, content, values)
}

fn is_whole(store: &Store, key: &str) -> bool {
    let content = store.read(key, 0..SIZE, None).expect("the store does it");
    content == [part(0).0, part(1).0].concat()
}
