//! Of changed files only what changed is sent, either way.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::{Compress, Delta, SyncOptions, TreeOptions};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Two versions of a file, in directories of both sides.
struct Versions {
    ground: Ground,
    up: bool,
    new: Vec<u8>,
}

impl Versions {
    fn new(up: bool, old: &[u8], new: Vec<u8>) -> Self {
        let ground = Ground::new();
        let (here, served) = (ground.here("tree/file"), ground.served("tree/file"));
        let (from, to) = if up { (here, served) } else { (served, here) };
        write(&to, old);
        write(&from, &new);
        // the first second of 1970: no file made by the test has that
        let file = std::fs::File::options().write(true).open(&to).expect("it is there");
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("a time");
        Self { ground, up, new }
    }

    fn source(&self) -> PathBuf {
        if self.up { self.ground.here("tree/file") } else { self.ground.served("tree/file") }
    }

    fn destination(&self) -> PathBuf {
        if self.up { self.ground.served("tree/file") } else { self.ground.here("tree/file") }
    }

    async fn sync_as(
        &self,
        client: &mut Client,
        options: &SyncOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let here = self.ground.here("tree");
        match self.up {
            true => client.sync_to(&here, b"tree", options, observer).await,
            false => client.sync_from(b"tree", &here, options, observer).await,
        }
    }

    /// Sends the new version, and returns also the bytes of all UDP datagrams of the connection.
    async fn sync(&self, options: &SyncOptions, compress: Compress) -> (Summary, u64) {
        let server = self.ground.start();
        let mut client = self.ground.connect(&server).await.expect("a connection");
        client.compress(compress);
        let notes = Notes::new();
        let summary = self.sync_as(&mut client, options, notes.clone()).await;
        let stats = client.connection().stats();
        server.stop();
        let summary = summary.expect("an answer");
        assert_eq!((summary.stored, summary.failed), (1, 0), "{notes:?}");
        assert!(std::fs::read(self.destination()).expect("a file") == self.new);
        assert_eq!(summary.kept + summary.moved, self.new.len() as u64, "{summary:?}");
        (summary, stats.udp_tx.bytes + stats.udp_rx.bytes)
    }
}

/// Sends the new version in both directions, and checks the bytes of content and of datagrams that
/// move. The second bound includes the handshake, values of spans and chunks, headers, and half a
/// MiB of what a busy machine lets be sent again.
///
/// Behind a change the cuts of both versions meet again after 1.6 average lengths of a chunk on
/// average, and of 10 that are left 9 meet within each 1.6 that follow: after 32 none is left.
fn assert_moves_at_most(old: &[u8], new: &[u8], content: u64, wire: u64) {
    for up in [true, false] {
        let versions = Versions::new(up, old, new.to_vec());
        let (summary, bytes) =
            run(async { versions.sync(&SyncOptions::default(), Compress::Never).await });
        assert!(summary.moved <= content, "up {up}: {summary:?}");
        assert!(bytes <= wire, "up {up}: {bytes} bytes on the wire, {summary:?}");
    }
}

#[test]
fn of_a_log_that_grew_the_new_lines_are_sent() {
    let old = content((64 << 20) + 512_345);
    let added = content(100_000);
    let new = [&old[..], &added].concat();
    // and the last block of before
    assert_moves_at_most(&old, &new, 100_000 + 4 * KIB, 100_000 + 600 * KIB);
}

#[test]
fn of_a_disk_image_with_scattered_writes_only_these_are_sent() {
    const WRITES: u64 = 25;
    let old = content(64 << 20);
    let mut new = old.clone();
    for n in 0..WRITES {
        let at = (n * 2_621_440 + n * n * 4096) as usize;
        new[at..at + 4096].copy_from_slice(&content(4096 + n as usize)[..4096]);
    }
    // each is a block; 256 blocks of its span are described by 20 bytes each
    assert_moves_at_most(&old, &new, WRITES * 4 * KIB, WRITES * 12 * KIB + 600 * KIB);
}

#[test]
fn of_a_small_file_with_an_insertion_that_is_sent() {
    let old = content(3 << 20);
    let new = [&old[..700_001], b"inserted", &old[700_001..]].concat();
    // chunks of 4 KiB on average
    assert_moves_at_most(&old, &new, 160 * KIB, 700 * KIB);
}

#[test]
fn of_an_archive_with_a_file_inserted_in_front_that_file_is_sent() {
    let old = content(64 << 20);
    let inserted = content(70_000);
    let new = [&inserted[..], &old].concat();
    // chunks of 8 KiB on average
    assert_moves_at_most(&old, &new, 70_000 + 320 * KIB, 70_000 + 1000 * KIB);
}

#[test]
fn of_a_log_that_lost_its_beginning_nearly_nothing_is_sent() {
    let old = content(24 << 20);
    let new = old[5_000_003..].to_vec();
    assert_moves_at_most(&old, &new, 320 * KIB, 1000 * KIB);
}

#[test]
fn blocks_that_changed_places_are_found() {
    let old = content(24 << 20);
    let middle = 11_111_111;
    let new = [&old[middle..], &old[..middle]].concat();
    // the cuts meet again at two places
    assert_moves_at_most(&old, &new, 640 * KIB, 1300 * KIB);
}

#[test]
fn another_file_is_sent_as_a_whole() {
    let (old, new) = (content(20 << 20), content((20 << 20) + 1));
    for up in [true, false] {
        let versions = Versions::new(up, &old, new.clone());
        let (summary, _) =
            run(async { versions.sync(&SyncOptions::default(), Compress::Never).await });
        assert_eq!((summary.moved, summary.reused), (new.len() as u64, 0));
    }
}

#[test]
fn what_lies_between_copies_is_compressed() {
    let old = content(4 << 20);
    let words = "so many words that say so little, again and again; ".repeat(10_000);
    let new = [&old[..1_500_000], words.as_bytes(), &old[1_500_000..]].concat();
    for up in [true, false] {
        let versions = Versions::new(up, &old, new.clone());
        let (summary, _) =
            run(async { versions.sync(&SyncOptions::default(), Compress::Always).await });
        assert!(summary.reused > 2 * MIB, "{summary:?}");
        assert!(summary.saved > words.len() as u64 / 2, "{summary:?}");
    }
}

#[test]
fn the_option_says_which_files_are_searched() {
    for up in [true, false] {
        for (size, delta, is_searched) in [
            (200_000, Delta::Auto, false),
            (200_000, Delta::On, true),
            (200_000, Delta::Off, false),
            (3 << 20, Delta::Auto, true),
            (3 << 20, Delta::On, true),
            (3 << 20, Delta::Off, false),
        ] {
            let old = content(size);
            let mut new = old.clone();
            new[150_000] ^= 1;
            let versions = Versions::new(up, &old, new);
            let options = SyncOptions { delta, ..SyncOptions::default() };
            let (summary, _) = run(async { versions.sync(&options, Compress::Never).await });
            assert_eq!(summary.reused > 0, is_searched, "{size} {delta:?}: {summary:?}");
            if is_searched {
                assert!(summary.moved <= 48 * KIB, "{size} {delta:?}: {summary:?}");
            } else {
                assert_eq!(summary.moved, MIB.min(size as u64), "{size} {delta:?}");
            }
        }
    }
}

#[test]
fn a_file_that_may_change_is_read_once_and_not_searched() {
    let old = content(3 << 20);
    let mut new = old.clone();
    new[7] ^= 1;
    for up in [true, false] {
        let versions = Versions::new(up, &old, new.clone());
        run(async {
            let server = versions.ground.start();
            let mut client = versions.ground.connect(&server).await.expect("a connection");
            client.set_tree(TreeOptions { changing: true, ..TreeOptions::default() });
            let options = SyncOptions::default();
            let summary = versions.sync_as(&mut client, &options, Arc::new(())).await;
            let summary = summary.expect("an answer");
            assert_eq!((summary.stored, summary.reused, summary.moved), (1, 0, MIB));
        });
        assert!(std::fs::read(versions.destination()).expect("a file") == new);
    }
}

/// Does something whenever the receiver turns out to have a part of a file.
struct AtKept<F>(F);

impl<F: Fn() + Send + Sync> Observer for AtKept<F> {
    fn event(&self, event: Event<'_>) {
        if let Event::Kept { .. } = event {
            (self.0)();
        }
    }
}

#[test]
fn a_file_that_changes_after_it_was_compared_is_sent_as_it_is_then() {
    let old = content(3 << 20);
    let mut new = old.clone();
    new[7] ^= 1;
    let versions = Versions::new(true, &old, new.clone());
    let source = versions.source();
    let act = move || {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&source).expect("it is there");
        file.write_all_at(b"changed", 100).expect("it is written");
    };
    run(async {
        let server = versions.ground.start();
        let mut client = versions.ground.connect(&server).await.expect("a connection");
        client.set_tree(TreeOptions { changing: true, ..TreeOptions::default() });
        let observer = Arc::new(AtKept(act));
        let summary = versions.sync_as(&mut client, &SyncOptions::default(), observer).await;
        let summary = summary.expect("an answer");
        assert_eq!((summary.stored, summary.failed, summary.moved), (1, 0, MIB));
    });
    new[100..107].copy_from_slice(b"changed");
    assert!(std::fs::read(versions.destination()).expect("a file") == new);
}

/// Does something once, as soon as a literal between copies was moved.
struct Meanwhile<F> {
    moved: AtomicU64,
    act: F,
}

impl<F: Fn() + Send + Sync> Observer for Meanwhile<F> {
    fn event(&self, event: Event<'_>) {
        if let Event::Moved { bytes } = event
            && self.moved.fetch_add(bytes, Ordering::Relaxed) == 0
        {
            (self.act)();
        }
    }
}

/// Two versions of which one has an insertion in each MiB.
fn sprinkled(size: usize) -> (Vec<u8>, Vec<u8>) {
    let old = content(size);
    let parts = old.chunks(1 << 20).flat_map(|part| [part, b"inserted"]);
    let new = parts.collect::<Vec<_>>().concat();
    (old, new)
}

#[test]
fn a_file_that_changes_while_it_is_searched_fails_and_the_old_one_stays() {
    let (old, new) = sprinkled(12 << 20);
    let versions = Versions::new(true, &old, new);
    let source = versions.source();
    let act = move || {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&source).expect("it is there");
        file.write_all_at(b"changed", 11 << 20).expect("it is written");
    };
    run(async {
        let server = versions.ground.start();
        let mut client = versions.ground.connect(&server).await.expect("a connection");
        let meanwhile = Arc::new(Meanwhile { moved: AtomicU64::new(0), act });
        let summary = versions.sync_as(&mut client, &SyncOptions::default(), meanwhile).await;
        assert_eq!(summary.expect("an answer").failed, 1);
    });
    assert!(std::fs::read(versions.destination()).expect("a file") == old);
    assert_eq!(tree(&versions.ground.served("tree")).len(), 1, "no partial file is left");
}

#[test]
fn an_interrupted_sync_resumes() {
    let (old, new) = sprinkled(24 << 20);
    for up in [true, false] {
        let versions = Versions::new(up, &old, new.clone());
        run(async {
            let server = versions.ground.start();
            for _ in 0..2 {
                let mut client = versions.ground.connect(&server).await.expect("a connection");
                // most is still to be sent when it is cut
                client.limit(Some(2_000_000));
                let connection = client.connection().clone();
                let act = move || connection.close(0u32.into(), b"");
                let cut = Arc::new(Meanwhile { moved: AtomicU64::new(0), act });
                let summary = versions.sync_as(&mut client, &SyncOptions::default(), cut).await;
                assert!(summary.is_err(), "{summary:?}");
                assert!(std::fs::read(versions.destination()).expect("a file") == old);
            }
            server.stop();
            let (summary, _) = versions.sync(&SyncOptions::default(), Compress::Never).await;
            // a chunk of 32 KiB at most for each insertion, and where cuts have to meet again for
            // some: far less than the 23 spans that differ
            assert!(summary.moved <= 4 * MIB, "{summary:?}");
        });
    }
}

/// As a receiver of before, and one with `--delta off`, which offers nothing.
#[test]
fn a_receiver_that_offers_no_old_version_gets_whole_spans() {
    let old = content(4 << 20);
    let mut new = old.clone();
    new[3_000_000] ^= 1;
    let versions = Versions::new(false, &old, new);
    let options = SyncOptions { delta: Delta::Off, ..SyncOptions::default() };
    let (summary, _) = run(async { versions.sync(&options, Compress::Never).await });
    assert_eq!((summary.moved, summary.reused), (MIB, 0));
}
