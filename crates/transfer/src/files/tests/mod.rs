//! Files sent and received on this machine's file system, and what hostile peers
//! and neighbours do to them.

mod delta;
mod fsync;
mod full;
mod hostile;
mod receive;
mod resume;
mod send;
mod small;
mod sparse;
mod walk;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{Hash, Spans};
use nix::errno::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};
use tempfile::TempDir;

use super::{Offer, Partial, Root, Seal, Time};

const MIB: usize = 1 << 20;
const TIME: Time = Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 };

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

/// An empty root, with the folder that it is in.
fn root() -> (TempDir, Root) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Root::open(folder.path()).expect("a root");
    (folder, root)
}

/// Both ways to stay below a root.
fn both_ways(folder: &Path) -> [Root; 2] {
    let root = Root::open(folder).expect("a root");
    [root.clone(), root.by_components()]
}

/// Bytes that are not zeros, and others for another `seed`.
fn bytes(seed: u8, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

fn offer(size: usize) -> Offer {
    Offer { size: size as u64, mtime: TIME, data: size as u64, reuse: false }
}

fn seal_of(root: Hash) -> Seal {
    Seal { root, mode: 0o640, mtime: TIME, fsync: false }
}

fn seal(content: &[u8]) -> Seal {
    seal_of(blake3::hash(content))
}

fn write_span(partial: &Partial, span: u64, file: &[u8]) {
    let range = Spans::new(file.len() as u64).range(span).expect("a span");
    let bytes = &file[range.start as usize..range.end as usize];
    partial.write_at(range.start, bytes).expect("it can be written");
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().as_bytes().to_vec()).collect();
    names.sort();
    names
}

/// Runs something on a thread to whose system calls of these numbers, if the rules apply, the
/// kernel answers `errno`.
fn where_refused<T: Send>(
    calls: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>,
    errno: Errno,
    work: impl FnOnce() -> T + Send,
) -> T {
    let arch = std::env::consts::ARCH.try_into().expect("an architecture");
    let (calls, refuse) = (calls.into_iter().collect(), SeccompAction::Errno(errno as u32));
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refuse, arch);
    let program: BpfProgram = filter.expect("a filter").try_into().expect("a program");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            seccompiler::apply_filter(&program).expect("it may");
            work()
        });
        thread.join().expect("it ends")
    })
}

/// Returns the number of a system call on this architecture.
const fn system_call(x86_64: i64, aarch64: i64) -> i64 {
    if cfg!(target_arch = "x86_64") { x86_64 } else { aarch64 }
}
