//! Works on the content of open files: hashes spans, finds holes, copies ranges.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use headroom_transfer_proto::span::{ChainingValue, Hash, SpanHasher, Spans, Tree};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, copy_file_range, fallocate};
use nix::unistd::{Whence, lseek};

/// Bytes read or written, and hashed while they are in the cache.
pub(super) const PIECE: usize = 128 << 10;

static ZEROS: [u8; PIECE] = [0; PIECE];

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// Reads and hashes a range of the file that was not hashed yet.
///
/// # Errors
/// It cannot be read; `UnexpectedEof` if the file is shorter.
pub(super) fn hash(file: &File, range: &Range<u64>, hasher: &mut SpanHasher) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut at = range.start;
        while at < range.end {
            let len = PIECE.min(usize::try_from(range.end - at).unwrap_or(PIECE));
            file.read_exact_at(&mut buffer[..len], at)?;
            hasher.update(&buffer[..len]);
            at += len as u64;
        }
        Ok(())
    })
}

/// Hashes a range of zeros, without reading it.
pub(super) fn hash_zeros(len: u64, hasher: &mut SpanHasher) {
    let mut left = len;
    while left > 0 {
        let piece = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
        hasher.update(&ZEROS[..piece]);
        left -= piece as u64;
    }
}

/// Hashes a span; `None` if there is no such span. Holes are not read.
pub(super) fn value(file: &File, spans: Spans, span: u64) -> io::Result<Option<ChainingValue>> {
    let Some(range) = spans.range(span) else { return Ok(None) };
    let Some(mut hasher) = spans.hasher(span) else { return Ok(None) };
    if has_data(file, &range)? {
        hash(file, &range, &mut hasher)?;
    } else {
        hash_zeros(range.end - range.start, &mut hasher);
    }
    Ok(hasher.finish())
}

/// Hashes a whole file of this size.
pub(super) fn whole_hash(file: &File, size: u64) -> io::Result<Hash> {
    let spans = Spans::new(size);
    let mut tree = Tree::new(spans);
    for span in 0..spans.count() {
        let Some(value) = value(file, spans, span)? else { break };
        tree.insert(span, value);
    }
    tree.root().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Finds the start of the next data at `from` or later; `None` up to the file's end. If the
/// file system does not support holes, everything is data.
pub(super) fn next_data(file: &File, from: u64) -> io::Result<Option<u64>> {
    let Ok(from) = i64::try_from(from) else { return Ok(None) };
    match lseek(file, from, Whence::SeekData) {
        Ok(start) => Ok(Some(start.cast_unsigned())),
        Err(Errno::ENXIO) => Ok(None),
        Err(Errno::EINVAL | Errno::EOPNOTSUPP) => {
            let from = from.cast_unsigned();
            Ok((from < file.metadata()?.len()).then_some(from))
        }
        Err(error) => Err(error.into()),
    }
}

/// Finds the next range of data. On tmpfs the kernel inspects every page of it: do not call
/// this for each span of a file.
pub(super) fn next_data_range(file: &File, from: u64) -> io::Result<Option<Range<u64>>> {
    let Some(start) = next_data(file, from)? else { return Ok(None) };
    let end = match lseek(file, start.cast_signed(), Whence::SeekHole) {
        Ok(end) => end.cast_unsigned(),
        // the file was truncated between the two calls
        Err(Errno::ENXIO) => return Ok(None),
        Err(Errno::EINVAL | Errno::EOPNOTSUPP) => file.metadata()?.len(),
        Err(error) => return Err(error.into()),
    };
    Ok((start < end).then_some(start..end))
}

/// Whether a range contains data.
pub(super) fn has_data(file: &File, range: &Range<u64>) -> io::Result<bool> {
    Ok(next_data(file, range.start)?.is_some_and(|start| start < range.end))
}

/// Zeroes a range, by a hole if the file system supports that.
pub(super) fn clear(file: &File, range: &Range<u64>) -> io::Result<()> {
    let (Ok(start), Ok(len)) = (i64::try_from(range.start), i64::try_from(range.end - range.start))
    else {
        return Err(io::ErrorKind::FileTooLarge.into());
    };
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match fallocate(file, hole, start, len) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => write_zeros(file, range),
        outcome => Ok(outcome?),
    }
}

fn write_zeros(file: &File, range: &Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let len = PIECE.min(usize::try_from(range.end - at).unwrap_or(PIECE));
        file.write_all_at(&ZEROS[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

/// Copies a range to the same offset of another file, by reference if the file systems support
/// that. Where `from` has only a hole up to the next multiple of [`PIECE`], `to` is not
/// changed.
pub(super) fn copy(from: &File, to: &File, range: &Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let Some(start) = next_data(from, at)?.filter(|start| *start < range.end) else {
            return Ok(());
        };
        at = (start + 1).next_multiple_of(PIECE as u64).min(range.end);
        copy_data(from, to, &(start..at))?;
    }
    Ok(())
}

fn copy_data(from: &File, to: &File, range: &Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let (mut source, mut target) = (at.cast_signed(), at.cast_signed());
        let len = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut source), to, Some(&mut target), len) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(copied) => at += copied as u64,
            Err(Errno::EINTR) => {}
            Err(Errno::EXDEV | Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                return copy_by_hand(from, to, &(at..range.end));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(from: &File, to: &File, range: &Range<u64>) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut at = range.start;
        while at < range.end {
            let len = PIECE.min(usize::try_from(range.end - at).unwrap_or(PIECE));
            from.read_exact_at(&mut buffer[..len], at)?;
            to.write_all_at(&buffer[..len], at)?;
            at += len as u64;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn islands() -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(40 * MIB).expect("a hole");
        file.write_all_at(&[7; 4096], 3 * MIB).expect("an island");
        file.write_all_at(&[9; 8192], 20 * MIB - 4096).expect("an island");
        file
    }

    #[test]
    fn holes_are_found_and_copied_as_holes() {
        let (from, to) = (islands(), tempfile::tempfile().expect("a file"));
        to.set_len(40 * MIB).expect("a hole");
        copy(&from, &to, &(0..40 * MIB)).expect("a copy");
        for file in [&from, &to] {
            let next = |from| next_data_range(file, from).expect("an answer");
            let first = next(0).expect("an island");
            assert!(first.start == 3 * MIB && first.end <= 3 * MIB + PIECE as u64, "{first:?}");
            let second = next(4 * MIB).expect("an island");
            assert!(second.start == 20 * MIB - 4096 && second.end <= 20 * MIB + PIECE as u64);
            assert_eq!((next(21 * MIB), next(u64::MAX)), (None, None));
            assert!(!has_data(file, &(4 * MIB..5 * MIB)).expect("an answer"));
            assert!(has_data(file, &(3 * MIB..3 * MIB + 1)).expect("an answer"));
        }
        let spans = Spans::new(40 * MIB);
        for span in [2, 3, 19, 20] {
            let read = value(&to, spans, span).expect("a span");
            let mut bytes = vec![0; MIB as usize];
            from.read_exact_at(&mut bytes, span * MIB).expect("bytes");
            assert_eq!(read, spans.value(span, &bytes));
        }
    }

    #[test]
    fn cleared_ranges_are_zeros_without_data() {
        let file = islands();
        clear(&file, &(3 * MIB..4 * MIB)).expect("a hole");
        assert!(!has_data(&file, &(0..4 * MIB)).expect("an answer"));
        write_zeros(&file, &(20 * MIB..21 * MIB)).expect("zeros");
        let mut bytes = [1; 4096];
        file.read_exact_at(&mut bytes, 20 * MIB).expect("bytes");
        assert_eq!(bytes, [0; 4096]);
        file.read_exact_at(&mut bytes, 20 * MIB - 4096).expect("bytes");
        assert_eq!(bytes, [9; 4096]);
    }

    #[test]
    fn a_copy_by_hand_is_the_same() {
        let (from, to) = (islands(), tempfile::tempfile().expect("a file"));
        copy_by_hand(&from, &to, &(3 * MIB..20 * MIB)).expect("a copy");
        let hash = |file: &File| {
            let mut bytes = vec![0; 17 * MIB as usize];
            file.read_exact_at(&mut bytes, 3 * MIB).expect("bytes");
            blake3::hash(&bytes)
        };
        assert_eq!(hash(&from), hash(&to));
    }
}
