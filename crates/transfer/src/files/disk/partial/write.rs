//! Writes what arrives, with holes for zeros, and hashes each span.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use super::{HOLE, Partial, State};
use crate::files::content;
use crate::files::error::{Error, ErrorKind};

impl Partial {
    /// Writes bytes at an offset, in any order. Bytes that arrived before are not written again;
    /// returns how many were written. Pieces of 64 KiB and more that follow others are hashed from
    /// `bytes`; smaller ones are read back, but none for a CRC.
    ///
    /// # Errors
    /// They are beyond the file's end, cannot be written (they may arrive again), or there are too
    /// many separate pieces.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<u64, Error> {
        let written = self.each_span(offset, bytes.len() as u64, |span, range| {
            let at = |position: u64| usize::try_from(position - offset).unwrap_or(bytes.len());
            self.write_span(span, range, Some(&bytes[at(range.start)..at(range.end)]))
        });
        written.map_err(|kind| self.error("written", kind))
    }

    /// Does what [`Self::write_at`] does with `len` zeros, which use no disk space if the file
    /// system supports holes.
    ///
    /// # Errors
    /// As those of `write_at`.
    pub fn write_zeros(&self, offset: u64, len: u64) -> Result<u64, Error> {
        let written = self.each_span(offset, len, |span, range| self.write_span(span, range, None));
        written.map_err(|kind| self.error("written", kind))
    }

    fn each_span(
        &self,
        offset: u64,
        len: u64,
        write: impl Fn(u64, &Range<u64>) -> Result<u64, ErrorKind>,
    ) -> Result<u64, ErrorKind> {
        let end = offset.checked_add(len).filter(|end| *end <= self.spans.size());
        let bytes = offset..end.ok_or(ErrorKind::BeyondEnd)?;
        let mut new = 0;
        for span in self.spans.touched(bytes.clone()) {
            let Some(whole) = self.spans.range(span) else { return Err(ErrorKind::BeyondEnd) };
            new += write(span, &(whole.start.max(bytes.start)..whole.end.min(bytes.end)))?;
        }
        Ok(new)
    }

    /// Writes bytes or zeros of one span, and hashes what is contiguous.
    fn write_span(
        &self,
        span: u64,
        range: &Range<u64>,
        bytes: Option<&[u8]>,
    ) -> Result<u64, ErrorKind> {
        let gaps = self.progress().take(span, range)?;
        if gaps.is_empty() {
            return Ok(0);
        }
        *self.state() = State::Written;
        let of_gap = |gap: &Range<u64>| {
            let at = |position: u64| usize::try_from(position - range.start).unwrap_or(0);
            bytes.map(|bytes| &bytes[at(gap.start)..at(gap.end)])
        };
        for (n, gap) in gaps.iter().enumerate() {
            let bytes = of_gap(gap);
            // of what arrived, whatever the disk makes of it
            let sum = self.spans.piece_sum(gap, bytes);
            let outcome = match bytes {
                Some(bytes) => self.put(gap.start, bytes),
                None => self.put_zeros(gap),
            };
            let mut progress = self.progress();
            if let Err(kind) = outcome {
                // a part of it may have been written
                self.is_blank.store(false, Relaxed);
                gaps[n..].iter().for_each(|gap| progress.given_back(span, gap));
                return Err(kind);
            }
            progress.written(span, gap, sum);
        }
        self.hash_span(span, |wanted| {
            let gap = gaps.iter().find(|gap| gap.start <= wanted.start && wanted.end <= gap.end)?;
            let at = |position: u64| usize::try_from(position - gap.start).unwrap_or(0);
            Some(of_gap(gap).map(|bytes| &bytes[at(wanted.start)..at(wanted.end)]))
        })?;
        Ok(gaps.iter().map(|gap| gap.end - gap.start).sum())
    }

    /// Hashes what can be hashed of a span. `in_memory` returns a range's bytes (`Some(None)` for
    /// zeros), or `None` if they must be read back.
    fn hash_span<'a>(
        &self,
        span: u64,
        in_memory: impl Fn(&Range<u64>) -> Option<Option<&'a [u8]>>,
    ) -> Result<(), ErrorKind> {
        loop {
            let Some(mut task) = self.progress().next_task(span) else { return Ok(()) };
            match in_memory(&task.range) {
                Some(Some(bytes)) => {
                    task.hasher.update(bytes);
                }
                Some(None) => {
                    content::hash_zeros(task.range.end - task.range.start, &mut task.hasher);
                }
                None => {
                    let outcome = content::hash(&self.file, &task.range, &mut task.hasher);
                    if let Err(error) = outcome {
                        self.progress().not_hashed(span);
                        return Err(ErrorKind::of(error));
                    }
                }
            }
            self.progress().hashed(span, task);
        }
    }

    /// Writes bytes; runs of zeros become holes.
    fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
        let lead = usize::try_from(offset.next_multiple_of(HOLE as u64) - offset)
            .unwrap_or(0)
            .min(bytes.len());
        let (mut done, mut at) = (0, lead);
        // `done..at` is to be written; from `at` on is not decided yet
        while at < bytes.len() {
            let block = &bytes[at..bytes.len().min(at + HOLE)];
            if block.len() == HOLE && is_zero(block) {
                self.write_all(offset + done as u64, &bytes[done..at])?;
                let start = offset + at as u64;
                self.put_zeros(&(start..start + HOLE as u64))?;
                done = at + HOLE;
            }
            at += block.len();
        }
        self.write_all(offset + done as u64, &bytes[done..])
    }

    fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(bytes, offset).map_err(ErrorKind::of)
    }

    fn put_zeros(&self, range: &Range<u64>) -> Result<(), ErrorKind> {
        if self.has_data(range)? {
            content::clear(&self.file, range).map_err(ErrorKind::of)?;
        }
        Ok(())
    }
}

fn is_zero(block: &[u8]) -> bool {
    let (first, rest) = block.split_at(block.len().min(16));
    first.iter().all(|byte| *byte == 0)
        && rest.chunks(1024).all(|piece| piece == &[0; 1024][..piece.len()])
}
