//! Receives ranges of one file, of which other connections receive others.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use headroom_transfer_proto::message::{EntryKind, MAX_VALUES, Message};
use headroom_transfer_proto::span::ChainingValue;

use super::asked::AskedRanges;
use super::incoming::Incoming;
use super::lanes::Lanes;
use super::worker::{File, Worker};
use crate::control::unexpected;
use crate::delivery::divided::{FileVersion, NextRange, Participant};
use crate::error::Error;

impl Worker {
    /// Begins to receive ranges of the file that was asked for.
    pub(super) fn begin_ranges(
        &mut self,
        id: u64,
        part: Participant,
        kind: EntryKind,
    ) -> Result<(), Error> {
        if !self.files.is_empty() {
            return Err(Error::Protocol(
                "it offers a file twice of which ranges are asked for".to_owned(),
            ));
        }
        let kind = self.limited(kind);
        let EntryKind::File { size, mode, mtime, inline: None, more, .. } = kind else {
            part.confirm(None, 0, None);
            self.refuse_version(id);
            return Ok(());
        };
        if !part.confirm(Some(FileVersion { size, mtime }), mode, more) {
            self.refuse_version(id);
            return Ok(());
        }
        self.lanes.iter().for_each(Lanes::start);
        let incoming = Arc::new(Incoming {
            partial: part.partial(),
            _claim: None,
            receiving: None,
            ranges: Some(AskedRanges::new(part)),
            sent: None,
            sealed: AtomicU64::new(u64::MAX),
            writing: AtomicU64::new(0),
        });
        self.shared.open().insert(id, Arc::clone(&incoming));
        let file = File {
            incoming,
            mode,
            mtime,
            attributes: None,
            sealed: None,
            holes: 0,
            described: 0,
            copied: 0,
        };
        self.files.insert(id, file);
        self.ask_ranges(id);
        Ok(())
    }

    fn refuse_version(&self, id: u64) {
        let reason = "this is not the version of which ranges are asked for".to_owned();
        self.send(Message::Failed { id, reason, code: None });
    }

    /// Handles the end of a range: asks for the next one.
    pub(super) fn range_sent(
        &mut self,
        id: u64,
        first_span: u64,
        values: Vec<ChainingValue>,
    ) -> Result<(), Error> {
        if self.part.is_none() {
            return Err(unexpected(&Message::RangeSent { id, first_span, values }));
        }
        // the sender may not know yet that the file failed here
        let Some(file) = self.files.get(&id) else { return Ok(()) };
        let incoming = Arc::clone(&file.incoming);
        if let Some(ranges) = &incoming.ranges {
            ranges.sent(first_span, values)?;
        }
        self.settle_ranges(id);
        Ok(())
    }

    /// Notes complete ranges, and asks for others.
    pub(super) fn settle_ranges(&mut self, id: u64) {
        let Some(file) = self.files.get(&id) else { return };
        let incoming = Arc::clone(&file.incoming);
        let Some(ranges) = &incoming.ranges else { return };
        loop {
            match ranges.complete_next(&incoming.partial) {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => {
                    self.close(id);
                    self.fail_ranges(&reason);
                    self.send(Message::Failed { id, reason, code: None });
                    return;
                }
            }
        }
        self.ask_ranges(id);
    }

    /// Asks for ranges, as long as there are some and the sender needs more. When all are complete,
    /// the file is answered.
    fn ask_ranges(&mut self, id: u64) {
        let Some(file) = self.files.get(&id) else { return };
        let incoming = Arc::clone(&file.incoming);
        let Some(ranges) = &incoming.ranges else { return };
        while let Some(NextRange { spans, held }) = ranges.next() {
            let (mut first_span, mut values) = (spans.start, Vec::new());
            for (span, value) in held {
                let is_behind = first_span + values.len() as u64 != span;
                if !values.is_empty() && (is_behind || values.len() == MAX_VALUES) {
                    let values = std::mem::take(&mut values);
                    self.send(Message::Have { id, first_span, values, last: false, old: None });
                }
                if values.is_empty() {
                    first_span = span;
                }
                values.push(value);
            }
            if !values.is_empty() {
                self.send(Message::Have { id, first_span, values, last: false, old: None });
            }
            let (first_span, count) = (spans.start, spans.end - spans.start);
            self.send(Message::AskRange { id, first_span, spans: count });
        }
        // whoever still writes looks again when it has counted
        if ranges.is_empty() && !incoming.is_writing() {
            self.close(id);
            self.send(Message::Stored { id });
        }
    }

    /// Lets no connection ask for more of the file of which ranges are received.
    pub(super) fn fail_ranges(&self, reason: &str) {
        if let Some(part) = &self.part {
            part.fail(reason);
        }
    }
}
