//! Receives ranges of one file, of which other servers of the same store receive other ranges.

use std::sync::Arc;

use headroom_transfer_proto::message::{Message, UPLOAD_BYTES};
use headroom_transfer_proto::span::ChainingValue;

use super::incoming::Incoming;
use super::sent::{Sent, SentRanges};
use super::worker::Worker;
use crate::control::unexpected;
use crate::error::Error;
use crate::files::Partial;

impl Worker {
    /// Whether this request receives ranges of one file, and stores them as parts.
    pub(super) fn receives_parts(&self) -> bool {
        self.parts.is_some_and(|parts| parts.completes != Some(true))
    }

    /// Tells the client which upload receives the parts of a file.
    pub(super) fn parts_begun(&self, id: u64, upload: [u8; UPLOAD_BYTES], partial: &Partial) {
        let part_spans = partial.part_spans().unwrap_or_default();
        self.send(Message::PartsBegun { id, upload, part_spans });
    }

    /// Handles the end of a range.
    pub(super) fn range_of_parts(
        &mut self,
        id: u64,
        first_span: u64,
        values: Vec<ChainingValue>,
    ) -> Result<(), Error> {
        // the sender may not know yet that the file failed here
        let Some(file) = self.files.get(&id) else { return Ok(()) };
        let incoming = Arc::clone(&file.incoming);
        let Some(sent) = &incoming.sent else {
            return Err(unexpected(&Message::RangeSent { id, first_span, values }));
        };
        sent.add(&incoming.partial, first_span, values)?;
        self.settle_parts(id);
        Ok(())
    }

    /// Stores the next range, if it is here and no other is being stored.
    pub(super) fn settle_parts(&mut self, id: u64) {
        let Some(file) = self.files.get(&id) else { return };
        let incoming = Arc::clone(&file.incoming);
        let Some(sent) = &incoming.sent else { return };
        match sent.take_next(&incoming.partial) {
            Ok(Some(range)) => self.store_range_later(id, range, incoming),
            Ok(None) => {}
            Err(reason) => {
                self.close(id);
                self.failed(id, reason);
            }
        }
    }

    /// Waits on another thread until a range is stored.
    fn store_range_later(&mut self, id: u64, (spans, values): Sent, incoming: Arc<Incoming>) {
        self.in_flight.run(move || {
            let stored = incoming.partial.store_range(&spans, &values);
            incoming.sent.iter().for_each(SentRanges::stored);
            drop(incoming);
            Box::new(move |worker: &mut Self| {
                match stored {
                    Ok(()) => {
                        let (first_span, spans) = (spans.start, spans.end - spans.start);
                        worker.send(Message::RangeStored { id, first_span, spans });
                        worker.settle_parts(id);
                    }
                    // the first one reports it
                    Err(error) => {
                        if worker.close(id).is_some() {
                            worker.failed(id, error);
                        }
                    }
                }
                Ok(())
            })
        });
    }

    /// Leaves the upload to others: no more ranges come.
    pub(super) fn end_ranges(&mut self, id: u64) {
        let Some(file) = self.close(id) else { return };
        self.in_flight.files += 1;
        self.in_flight.run(move || {
            let left = file.incoming.partial.leave();
            drop(file);
            Box::new(move |worker: &mut Self| {
                worker.in_flight.files -= 1;
                match left {
                    // the file is not stored before a request completes it
                    Ok(()) => worker.send(Message::Stored { id }),
                    Err(error) => worker.failed(id, error),
                }
                Ok(())
            })
        });
    }
}
