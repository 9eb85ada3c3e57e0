//! The send queue: pieces of files, lost ones first.

use std::collections::{BTreeMap, VecDeque};

/// A range of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The file's number in the transfer.
    pub file: u32,
    /// The offset of the first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// Pieces that wait, and how much of each file is not acknowledged. It grows with what the
/// engine queues and with losses, never with what the peer sends.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    fresh: VecDeque<Piece>,
    lost: VecDeque<Piece>,
    waiting: u64,
    outstanding: BTreeMap<u32, u64>,
}

impl Queue {
    /// Queues new data.
    pub(crate) fn push(&mut self, piece: Piece) {
        if piece.len > 0 {
            self.waiting += piece.len;
            *self.outstanding.entry(piece.file).or_default() += piece.len;
            append(&mut self.fresh, piece);
        }
    }

    /// Queues lost data, ahead of all new data.
    pub(crate) fn lose(&mut self, piece: Piece) {
        if self.outstanding.contains_key(&piece.file) {
            self.waiting += piece.len;
            append(&mut self.lost, piece);
        }
    }

    /// Takes up to `most` bytes of one piece; `None` if nothing waits.
    pub(crate) fn take(&mut self, most: u64) -> Option<Piece> {
        let pieces = if self.lost.is_empty() { &mut self.fresh } else { &mut self.lost };
        let first = pieces.front_mut()?;
        let taken = Piece { len: first.len.min(most), ..*first };
        first.offset += taken.len;
        first.len -= taken.len;
        if first.len == 0 {
            pieces.pop_front();
        }
        self.waiting -= taken.len;
        Some(taken)
    }

    /// Notes that a piece arrived. Returns whether it was the last of its file.
    pub(crate) fn arrived(&mut self, piece: Piece) -> bool {
        let Some(left) = self.outstanding.get_mut(&piece.file) else { return false };
        *left = left.saturating_sub(piece.len);
        let done = *left == 0;
        if done {
            self.outstanding.remove(&piece.file);
        }
        done
    }

    /// Removes a file.
    pub(crate) fn cancel(&mut self, file: u32) {
        self.outstanding.remove(&file);
        for pieces in [&mut self.fresh, &mut self.lost] {
            pieces.retain(|piece| {
                if piece.file == file {
                    self.waiting -= piece.len;
                }
                piece.file != file
            });
        }
    }

    /// Takes out everything that is not acknowledged; what was in flight must have been declared
    /// lost before.
    pub(crate) fn drain(&mut self) -> Vec<Piece> {
        self.waiting = 0;
        self.outstanding.clear();
        self.lost.drain(..).chain(self.fresh.drain(..)).collect()
    }

    /// Returns the bytes that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Whether anything of a file is not acknowledged.
    pub(crate) fn expects(&self, file: u32) -> bool {
        self.outstanding.contains_key(&file)
    }

    /// Whether anything is not acknowledged.
    pub(crate) fn outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }
}

/// Appends `piece`, merged with the last one if they are adjacent.
fn append(pieces: &mut VecDeque<Piece>, piece: Piece) {
    match pieces.back_mut() {
        Some(last) if last.file == piece.file && last.offset + last.len == piece.offset => {
            last.len += piece.len;
        }
        _ => pieces.push_back(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_data_is_sent_first_and_a_file_completes_when_all_arrived() {
        let mut queue = Queue::default();
        let piece = |file, offset, len| Piece { file, offset, len };
        queue.push(piece(1, 0, 250));
        queue.push(piece(2, 0, 100));
        assert_eq!(queue.take(100), Some(piece(1, 0, 100)));
        assert_eq!(queue.take(100), Some(piece(1, 100, 100)));
        queue.lose(piece(1, 0, 100));
        assert_eq!(queue.waiting(), 250);
        // in packets of another size than it was lost in
        assert_eq!(queue.take(60), Some(piece(1, 0, 60)));
        assert_eq!(queue.take(60), Some(piece(1, 60, 40)));
        assert_eq!(queue.take(60), Some(piece(1, 200, 50)));
        assert!(!queue.arrived(piece(1, 100, 100)) && !queue.arrived(piece(1, 0, 100)));
        assert!(queue.arrived(piece(1, 200, 50)) && queue.outstanding());
        queue.cancel(2);
        assert!(!queue.outstanding() && queue.take(1).is_none());
        assert_eq!(queue.waiting(), 0);
        queue.lose(piece(2, 0, 100));
        assert_eq!(queue.waiting(), 0, "of a file that is forgotten");
    }
}
