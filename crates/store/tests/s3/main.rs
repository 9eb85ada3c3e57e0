//! The store against S3 servers of other people on the loopback interface: `s3s-fs` in this
//! process, versitygw, which `scripts/fetch-parts versitygw` builds, and moto, which
//! `scripts/fetch-parts moto` fetches. Where one is missing its tests are skipped, unless
//! `HEADROOM_TESTS=required`.
//!
//! A store reads its server and its credentials from the environment, so each test starts this
//! program again with another one, and with the name of an ignored test.

mod access;
mod faults;
mod objects;
mod servers;

use std::time::Duration;

use headroom_store::{Entry, Error, Patience, Store};
use tokio::runtime::Runtime;

const MIB: usize = 1 << 20;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("it is possible")
}

/// Opens the store of which the environment speaks. A slow machine is no reason to repeat.
fn open(runtime: &Runtime) -> Store {
    let store = Store::open("s3://bucket/a/prefix", runtime.handle().clone());
    store
        .expect("the store does it")
        .with_patience(Patience { attempt: Duration::from_secs(3600), ..Patience::default() })
}

fn names(entries: impl Iterator<Item = Result<Entry, Error>>) -> Vec<String> {
    entries
        .map(|entry| match entry.expect("an entry") {
            Entry::Object(object) => object.name,
            Entry::Directory(name) => format!("{name}/"),
        })
        .collect()
}
