//! Cuts the content of files into blocks of one length, or into chunks that end where the content
//! says so, so that content that moved within a file gives the same chunks again (FastCDC: Xia et
//! al., *The Design of Fast Content-Defined Chunking for Data Deduplication Based Storage Systems*,
//! IEEE TPDS 31(9), 2020).

use std::io;
use std::ops::Range;

use fastcdc::v2020::{Normalization, cut, select_masks};
use headroom_transfer_proto::message::{ChunkHash, ChunkKind, ChunkSize};

/// Bytes that are read at once, at least.
const READ: usize = 1 << 20;
/// A group ends behind a chunk whose hash begins with 7 bits of zero: it has 128 on average.
const GROUP_ENDS_BELOW: u8 = 2;
/// The most chunks of a group.
const MAX_IN_GROUP: u32 = 512;

/// Describes ranges of a file by their chunks; `read` fills a buffer with the file's bytes from an
/// offset on. Each chunk goes to `each` with its offset, in order, until that returns `false`. A
/// chunk ends with its range.
///
/// # Errors
/// The file cannot be read; `UnexpectedEof` if it is shorter.
pub(super) fn describe(
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ranges: &[Range<u64>],
    size: ChunkSize,
    kind: ChunkKind,
    mut each: impl FnMut(u64, ChunkHash) -> bool,
) -> io::Result<()> {
    for range in ranges {
        let (mut group, mut start) = (Group::default(), range.start);
        let is_fixed = kind == ChunkKind::Block;
        let goes_on = cut_range(&read, range, size, is_fixed, |offset, bytes| {
            let chunk = hashed(bytes);
            if kind != ChunkKind::Group {
                return each(offset, chunk);
            }
            match group.add(chunk) {
                Some(whole) => {
                    let begins = std::mem::replace(&mut start, offset + u64::from(chunk.len));
                    each(begins, whole)
                }
                None => true,
            }
        })?;
        let rest = (group.chunks > 0).then(|| group.end());
        if !goes_on || rest.is_some_and(|rest| !each(start, rest)) {
            return Ok(());
        }
    }
    Ok(())
}

/// Chunks of a group that is not complete.
#[derive(Default)]
struct Group {
    len: u32,
    chunks: u32,
    hasher: blake3::Hasher,
    /// Whether a chunk has no hash.
    lacks_hash: bool,
}

impl Group {
    /// Adds a chunk, and returns the group if it is the last one.
    fn add(&mut self, chunk: ChunkHash) -> Option<ChunkHash> {
        self.hasher.update(&chunk.to_bytes());
        self.len += chunk.len;
        self.chunks += 1;
        self.lacks_hash |= !chunk.has_hash();
        let is_last = chunk.hash[0] < GROUP_ENDS_BELOW || self.chunks == MAX_IN_GROUP;
        is_last.then(|| self.end())
    }

    /// Returns the group, and begins the next one.
    fn end(&mut self) -> ChunkHash {
        let group = std::mem::take(self);
        let hash = match group.lacks_hash {
            true => ChunkHash::NO_HASH,
            false => truncated(&group.hasher.finalize()),
        };
        ChunkHash { len: group.len, hash }
    }
}

/// Cuts a range of a file into chunks, with `is_fixed` all of the average length, and passes each
/// with its offset to `each`, until that returns `false`. Returns whether it never did.
fn cut_range(
    read_at: &impl Fn(u64, &mut [u8]) -> io::Result<()>,
    range: &Range<u64>,
    size: ChunkSize,
    is_fixed: bool,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> io::Result<bool> {
    let [least, average, most] =
        [size.least_bytes(), size.bytes(), size.most_bytes()].map(|bytes| bytes as usize);
    // more normalization would take more chunks until they are the same again behind a change
    let (strict, loose) = select_masks(average, Normalization::Level1);
    let whole = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    let mut buffer = vec![0; READ.max(2 * most).min(whole)];
    // `start..end` of the buffer is read and not cut yet; the file's next bytes are at `next`
    let (mut start, mut end, mut next) = (0, 0, range.start);
    let mut offset = range.start;
    loop {
        // a chunk ends at the same place wherever the buffer does: it is cut when all of the bytes
        // are there that it may have
        if end - start < most && next < range.end {
            buffer.copy_within(start..end, 0);
            (start, end) = (0, end - start);
            let left = usize::try_from(range.end - next).unwrap_or(usize::MAX);
            let read = (buffer.len() - end).min(left);
            read_at(next, &mut buffer[end..end + read])?;
            end += read;
            next += read as u64;
        }
        if start == end {
            return Ok(true);
        }
        let rest = &buffer[start..end];
        let len = match is_fixed {
            true => average.min(rest.len()),
            false => cut(rest, least, average, most, strict, loose, strict << 1, loose << 1).1,
        };
        if !each(offset, &rest[..len]) {
            return Ok(false);
        }
        start += len;
        offset += len as u64;
    }
}

fn hashed(chunk: &[u8]) -> ChunkHash {
    // the longest chunk has 4 MiB
    let len = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
    let hash = match len < ChunkHash::MIN_HASHED {
        true => ChunkHash::NO_HASH,
        false => truncated(&blake3::hash(chunk)),
    };
    ChunkHash { len, hash }
}

fn truncated(hash: &blake3::Hash) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&hash.as_bytes()[..16]);
    first
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use headroom_transfer_proto::message::ChunkKind::{Block, Chunk, Group as Groups};

    use super::*;

    const SIZE: ChunkSize = ChunkSize::MIN;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        blake3::Hasher::new().update(b"chunks").finalize_xof().fill(&mut noise);
        noise
    }

    fn file(content: &[u8]) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(content, 0).expect("content");
        file
    }

    fn reading(file: &File) -> impl Fn(u64, &mut [u8]) -> io::Result<()> {
        move |offset, into: &mut [u8]| file.read_exact_at(into, offset)
    }

    fn one(range: Range<u64>) -> Vec<Range<u64>> {
        Vec::from([range])
    }

    fn described(file: &File, ranges: &[Range<u64>], kind: ChunkKind) -> Vec<(u64, ChunkHash)> {
        let mut all = Vec::new();
        describe(reading(file), ranges, SIZE, kind, |offset, chunk| {
            all.push((offset, chunk));
            true
        })
        .expect("chunks");
        all
    }

    #[test]
    fn chunks_cover_their_ranges_in_order_and_keep_to_their_lengths() {
        let size = (5 << 20) + 77;
        let file = file(&noise(size));
        let ranges = [5..900_000, 1_000_000..1_000_001, 2 << 20..size as u64];
        for kind in [Block, Chunk, Groups] {
            let all = described(&file, &ranges, kind);
            let mut left = all.iter();
            for range in &ranges {
                let mut at = range.start;
                while at < range.end {
                    let (offset, chunk) = left.next().expect("the range is not covered");
                    assert_eq!(*offset, at);
                    at += u64::from(chunk.len);
                    let is_last = at == range.end;
                    assert!(is_last || chunk.len >= SIZE.least_bytes(), "{chunk:?}");
                    assert!(kind == Groups || chunk.len <= SIZE.most_bytes(), "{chunk:?}");
                    assert!(kind != Block || is_last || chunk.len == SIZE.bytes(), "{chunk:?}");
                }
                assert_eq!(at, range.end);
            }
            assert!(left.next().is_none());
        }
    }

    #[test]
    fn chunks_begin_again_where_one_ended() {
        let size = 3 << 20;
        let file = file(&noise(size as usize));
        let all = described(&file, &one(0..size), Chunk);
        let (from, to) = (all[20].0, all[90].0);
        assert_eq!(described(&file, &one(from..to), Chunk), all[20..90]);
    }

    #[test]
    fn content_that_moved_gives_the_same_chunks_and_groups() {
        let old = noise(24 << 20);
        let new = [&b"inserted"[..], &old].concat();
        // of about 5000 chunks and 40 groups: two sequences of cuts meet after 1.6 average lengths
        // on average, and 999 of 1000 within 7
        for (kind, most) in [(Chunk, 64), (Groups, 6)] {
            let [there, here] = [&old, &new]
                .map(|content| described(&file(content), &one(0..content.len() as u64), kind));
            let known: std::collections::HashSet<_> =
                there.iter().map(|(_, chunk)| *chunk).collect();
            let unknown = here.iter().filter(|(_, chunk)| !known.contains(chunk)).count();
            assert!(here.len() > 2 * most && unknown <= most, "{unknown} of {}", here.len());
        }
    }

    /// A sender chooses the ranges, and could try all contents of a byte.
    #[test]
    fn few_bytes_have_no_hash() {
        let file = file(&noise(20_000));
        let least = u64::from(ChunkHash::MIN_HASHED);
        for kind in [Block, Chunk, Groups] {
            for (end, is_hashed) in [(least, true), (least - 1, false), (1, false)] {
                let [(0, chunk)] = described(&file, &one(0..end), kind)[..] else {
                    panic!("{kind:?} of {end} bytes");
                };
                assert_eq!((u64::from(chunk.len), chunk.has_hash()), (end, is_hashed), "{kind:?}");
            }
        }
        // nor has a group with such a chunk, behind four blocks
        let blocks = described(&file, &one(0..4 * 4096 + 1), Block);
        let have: Vec<_> = blocks.iter().map(|(_, block)| block.has_hash()).collect();
        assert_eq!(have, [true, true, true, true, false]);
        let mut group = Group::default();
        let ended: Vec<_> = blocks.iter().filter_map(|(_, block)| group.add(*block)).collect();
        assert!(!ended.last().expect("a group").has_hash());
    }

    #[test]
    fn an_empty_range_has_no_chunk_and_a_file_that_is_shorter_is_an_error() {
        let file = file(&noise(100));
        assert!(described(&file, &one(50..50), Chunk).is_empty());
        assert!(described(&file, &[], Groups).is_empty());
        let beyond = one(0..101);
        let error =
            describe(reading(&file), &beyond, SIZE, Chunk, |_, _| true).expect_err("100 bytes");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_description_ends_when_no_more_is_wanted() {
        let file = file(&noise(1 << 20));
        for kind in [Block, Chunk, Groups] {
            let mut told = 0;
            let each = |_, _| {
                told += 1;
                false
            };
            let ranges = [0..1 << 19, (1 << 19) + 1..1 << 20];
            describe(reading(&file), &ranges, SIZE, kind, each).expect("chunks");
            assert_eq!(told, 1);
        }
    }
}
