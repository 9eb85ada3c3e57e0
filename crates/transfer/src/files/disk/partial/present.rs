//! Finds what is present of an offer: in what an earlier transfer left, or in the current file of
//! that name.

use std::sync::atomic::Ordering::Relaxed;

use headroom_transfer_proto::span::{ChainingValue, SPAN_BYTES};

use super::{Partial, State};
use crate::files::content;
use crate::files::error::{Error, ErrorKind};

impl Partial {
    /// Hashes a span that is present: in what an earlier transfer left, or in the current file of
    /// that name, from which it is then copied. `None` if nothing is present.
    ///
    /// The span counts as the sender's unless data for it is written: the caller reports it to the
    /// sender, which sends spans with other values.
    ///
    /// # Errors
    /// The file cannot be read, or the copy cannot be written.
    pub fn present(&mut self, span: u64) -> Result<Option<ChainingValue>, Error> {
        self.find(span).map_err(|kind| self.error("resumed", kind))
    }

    /// Returns the first span from `from` on that may be [`Self::present`]. Holes are skipped: an
    /// offer may have more spans than anybody can ask for.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_present(&self, from: u64) -> Result<Option<u64>, Error> {
        self.next(from).map_err(|kind| self.error("resumed", kind))
    }

    fn find(&mut self, span: u64) -> Result<Option<ChainingValue>, ErrorKind> {
        let Some(range) = self.spans.range(span) else { return Ok(None) };
        {
            let progress = self.progress();
            if !progress.is_untouched(span) {
                return Ok(progress.claimed(span));
            }
        }
        // nobody else writes: `&mut self`
        if !self.has_data(&range)? {
            let Some((old, size)) = &self.old else { return Ok(None) };
            if range.end > *size {
                return Ok(None);
            }
            self.is_blank.store(false, Relaxed);
            *self.state() = State::Written;
            if content::copy(old, &self.file, &range).is_err() {
                // a partial copy does no harm: nothing is claimed of it
                return Ok(None);
            }
        }
        let value = content::value(&self.file, self.spans, span).map_err(ErrorKind::of)?;
        if let Some(value) = value {
            self.progress().claim(span, value);
        }
        Ok(value)
    }

    fn next(&self, from: u64) -> Result<Option<u64>, ErrorKind> {
        let Some(range) = self.spans.range(from) else { return Ok(None) };
        if self.old.as_ref().is_some_and(|(_, size)| range.end <= *size) {
            return Ok(Some(from));
        }
        if self.is_blank.load(Relaxed) {
            return Ok(None);
        }
        let data = content::next_data(&self.file, range.start).map_err(ErrorKind::of)?;
        let span = data.map(|start| start / SPAN_BYTES);
        Ok(span.filter(|span| *span < self.spans.count()))
    }
}
