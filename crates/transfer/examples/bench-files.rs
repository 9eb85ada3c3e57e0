//! How much of a processor it takes to receive a file of 1 GiB, and to read it to
//! be sent: `cargo run --release -p headroom-transfer --example bench-files -- /dev/shm`.
//! Then a file of 1 KiB, ten thousand times. What is told is CPU time, of the
//! kernel's work as well, which others' load changes less than the wall's clock.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use headroom_transfer::files::{Links, Offer, Root, Seal, Source, SourceKind, Time};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Tree;
use nix::time::{ClockId, clock_gettime};

const SIZE: usize = 1 << 30;
const SMALL_FILES: u32 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let folder = tempfile::tempdir_in(folder)?;
    let mut content = vec![0; SIZE];
    blake3::Hasher::new().finalize_xof().fill(&mut content);

    let start = cpu_time()?;
    let plain = File::create(folder.path().join("plain"))?;
    for (n, piece) in content.chunks(1 << 20).enumerate() {
        plain.write_all_at(piece, (n as u64) << 20)?;
    }
    tell("written and not hashed, in pieces of 1 MiB", start)?;
    drop(plain);
    std::fs::remove_file(folder.path().join("plain"))?;

    for piece in [1 << 20, 64 << 10, 1400] {
        receive(folder.path(), &content, piece)?;
    }
    send(folder.path())?;
    many(folder.path(), &content[..1024])
}

fn receive(folder: &Path, content: &[u8], piece: usize) -> Result<(), Box<dyn Error>> {
    let mtime = Time { seconds: 0, nanoseconds: 0 };
    let hash = blake3::hash(content);
    let (path, root) = (RelPath::parse(b"file")?, Root::open(folder)?);
    if root.look(&path)?.is_some() {
        root.remove(&path)?;
    }
    let start = cpu_time()?;
    let size = content.len() as u64;
    let partial = root.begin(&path, &Offer { size, mtime, data: size, reuse: false })?;
    for (n, bytes) in content.chunks(piece).enumerate() {
        partial.write_at((n * piece) as u64, bytes)?;
    }
    partial.finish(&Seal { root: hash, mode: 0o644, mtime, fsync: false })?;
    tell(&format!("received, in pieces of {piece} bytes"), start)?;
    Ok(())
}

fn send(folder: &Path) -> Result<(), Box<dyn Error>> {
    let start = cpu_time()?;
    for found in Source::new([folder.join("file")], Links::Keep) {
        let SourceKind::File(file) = found?.kind else { continue };
        let reader = file.open()?;
        let mut tree = Tree::new(reader.spans());
        let mut room = vec![0; 1 << 20];
        for span in 0..reader.spans().count() {
            let len = reader.read_at(span << 20, &mut room)?;
            if let Some(value) = reader.spans().value(span, &room[..len]) {
                tree.insert(span, value);
            }
        }
        if tree.root().is_none() || !reader.is_unchanged()? {
            return Err("the file changed".into());
        }
    }
    tell("read and hashed, in pieces of 1 MiB", start)?;
    Ok(())
}

fn many(folder: &Path, content: &[u8]) -> Result<(), Box<dyn Error>> {
    let root = Root::open(folder)?;
    let mtime = Time { seconds: 0, nanoseconds: 0 };
    let seal = Seal { root: blake3::hash(content), mode: 0o644, mtime, fsync: false };
    let start = cpu_time()?;
    root.make_directory(&RelPath::parse(b"many")?, 0o755)?;
    for n in 0..SMALL_FILES {
        root.store(&RelPath::parse(format!("many/{n}").as_bytes())?, content, &seal)?;
    }
    let each = (cpu_time()? - start) / SMALL_FILES;
    println!("{each:>10.1?}  a file of 1 KiB stored");
    let start = cpu_time()?;
    let mut room = vec![0; 1024];
    for found in Source::new([folder.join("many")], Links::Keep) {
        if let SourceKind::File(file) = found?.kind {
            let reader = file.open()?;
            reader.read_at(0, &mut room)?;
            reader.is_unchanged()?;
        }
    }
    let each = (cpu_time()? - start) / SMALL_FILES;
    println!("{each:>10.1?}  a file of 1 KiB found and read");
    Ok(())
}

fn tell(what: &str, start: Duration) -> Result<(), Box<dyn Error>> {
    let rate = SIZE as f64 / 1e9 / (cpu_time()? - start).as_secs_f64();
    println!("{rate:>5.2} GB a CPU second  {what}");
    Ok(())
}

fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}
