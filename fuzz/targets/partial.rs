//! Any sequence of writes to a file that is received, in any order, with breaks between
//! and lies: what gets the name is what came first of each byte since the last break,
//! and its hash is right; else it does not get it.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use headroom_transfer::files::{ErrorKind, Offer, Partial, Root, Seal, Time};
use headroom_transfer::path::RelPath;
use libfuzzer_sys::fuzz_target;

const SPAN: usize = 1 << 20;
const SIZES: [usize; 8] = [0, 1, 5000, 100_000, 200_000, SPAN, SPAN + 1, SPAN + 70_000];
const MTIME: Time = Time { seconds: 1_700_000_000, nanoseconds: 5 };

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, steps)) = bytes.split_first() else { return };
    let mut ground = Ground::new(SIZES[usize::from(size) % SIZES.len()]);
    let mut partial = ground.begin();
    for step in steps.chunks_exact(8).take(60) {
        let [what, seed, a, b, c, d, e, f] = *step else { return };
        // places are fine where borders of spans and of what is hashed together lie
        let near = |block: u8, off: i16| {
            let at = i64::from(block) * 16384 + i64::from(off);
            usize::try_from(at).unwrap_or(0).min(ground.size + 1)
        };
        let start = near(a, i16::from_be_bytes([b, c]) >> 4);
        let end = near(d, i16::from_be_bytes([e, f]) >> 4);
        let (start, len) = (start.min(end), start.abs_diff(end));
        match what % 8 {
            0..=3 => ground.write(&partial, start, &content(seed, start, len)),
            4 => ground.write_zeros(&partial, start, len),
            5 => {
                drop(partial);
                partial = ground.begin();
            }
            6 => {
                let finished = ground.finish(&partial);
                if finished {
                    ground.forget();
                    drop(partial);
                    partial = ground.begin();
                }
            }
            _ if seed < 8 => {
                ground.finish_falsely(&partial);
                drop(partial);
                partial = ground.begin();
            }
            _ => {}
        }
    }
    ground.finish(&partial);
});

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    folder.expect("a folder")
});

struct Ground {
    root: Root,
    path: RelPath,
    size: usize,
    /// What lies in the temporary file.
    lies: Vec<u8>,
    /// Which bytes came since the last break.
    came: Vec<bool>,
    /// Which spans were there after the last break.
    claimed: Vec<bool>,
    /// What has the name.
    old: Option<Vec<u8>>,
}

impl Ground {
    fn new(size: usize) -> Self {
        for name in std::fs::read_dir(FOLDER.path()).expect("a folder") {
            std::fs::remove_file(name.expect("a name").path()).expect("it is removed");
        }
        let root = Root::open(FOLDER.path()).expect("a folder");
        let path = RelPath::parse(b"file").expect("a name");
        let (lies, came) = (vec![0; size], vec![false; size]);
        let claimed = vec![false; size.div_ceil(SPAN).max(1)];
        Self { root, path, size, lies, came, claimed, old: None }
    }

    /// Begins, or goes on after a break.
    fn begin(&mut self) -> Partial {
        let offer = Offer { size: self.size as u64, mtime: MTIME, data: 0, reuse: true };
        let mut partial = self.root.begin(&self.path, &offer).expect("it begins");
        self.came.fill(false);
        let spans = partial.spans();
        for (n, claimed) in self.claimed.iter_mut().enumerate() {
            let value = partial.present(n as u64).expect("it is read");
            *claimed = value.is_some();
            let range = spans.range(n as u64).unwrap_or_default();
            let range = range.start as usize..range.end as usize;
            let lies = &mut self.lies[range.clone()];
            let Some(value) = value else {
                assert!(is_zero(lies), "it was forgotten");
                continue;
            };
            let ours = spans.value(n as u64, lies);
            if ours != Some(value) {
                let old = self.old.as_ref().expect("it lies nowhere");
                assert!(is_zero(lies), "it was replaced");
                assert_eq!(spans.value(n as u64, &old[range.clone()]), Some(value));
                lies.copy_from_slice(&old[range]);
            }
        }
        partial
    }

    fn write(&mut self, partial: &Partial, start: usize, bytes: &[u8]) {
        let written = partial.write_at(start as u64, bytes).map(drop);
        if self.is_within(start, bytes.len(), written.map_err(|error| is_beyond(error.kind()))) {
            self.note(start, bytes);
        }
    }

    fn write_zeros(&mut self, partial: &Partial, start: usize, len: usize) {
        let written = partial.write_zeros(start as u64, len as u64).map(drop);
        if self.is_within(start, len, written.map_err(|error| is_beyond(error.kind()))) {
            self.note(start, &vec![0; len]);
        }
    }

    fn is_within(&self, start: usize, len: usize, written: Result<(), bool>) -> bool {
        let is_within = start + len <= self.size;
        assert_eq!(written, if is_within { Ok(()) } else { Err(true) });
        is_within
    }

    fn note(&mut self, start: usize, bytes: &[u8]) {
        let range = start..start + bytes.len();
        let (lies, came) = (&mut self.lies[range.clone()], &mut self.came[range]);
        if came.contains(&true) {
            for ((lies, byte), came) in lies.iter_mut().zip(bytes).zip(came) {
                if !std::mem::replace(came, true) {
                    *lies = *byte;
                }
            }
        } else {
            lies.copy_from_slice(bytes);
            came.fill(true);
        }
    }

    fn is_whole(&self) -> bool {
        let spans = self.came.chunks(SPAN);
        spans
            .zip(&self.claimed)
            .all(|(came, claimed)| !came.contains(&false) || *claimed && !came.contains(&true))
    }

    fn finish(&mut self, partial: &Partial) -> bool {
        let finished = partial.finish(&seal(&self.lies));
        // an empty file is whole from the beginning
        if self.size > 0 {
            assert_eq!(finished.is_ok(), self.is_whole(), "{finished:?}");
        }
        let Ok(stored) = finished else { return false };
        assert_eq!(stored.replaced, self.old.is_some());
        let stored = std::fs::read(FOLDER.path().join("file")).expect("it is there");
        assert!(stored == self.lies, "it holds something else");
        self.old = Some(stored);
        true
    }

    /// The sender's hash is another: what came goes.
    fn finish_falsely(&mut self, partial: &Partial) {
        let finished = partial.finish(&seal(b"something else")).map(drop);
        match finished.map_err(|error| matches!(error.kind(), ErrorKind::Mismatch)) {
            Ok(()) => panic!("it is not what was sent"),
            Err(true) => self.forget(),
            Err(false) => {}
        }
    }

    fn forget(&mut self) {
        self.lies.fill(0);
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn is_beyond(why: &ErrorKind) -> bool {
    matches!(why, ErrorKind::BeyondEnd)
}

fn seal(content: &[u8]) -> Seal {
    Seal { root: blake3::hash(content), mode: 0o644, mtime: MTIME, fsync: false }
}

/// Bytes of one of several writers, some of whom write zeros.
fn content(seed: u8, start: usize, len: usize) -> Vec<u8> {
    let unit: Vec<u8> = (0..251).map(|n| if seed & 3 == 0 { 0 } else { n ^ seed | 1 }).collect();
    let skip = start % unit.len();
    let mut content = unit.repeat((skip + len).div_ceil(unit.len()));
    content.drain(..skip);
    content.truncate(len);
    content
}
