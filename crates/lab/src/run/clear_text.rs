//! The clear-text check: each stack moves a file full of a marker both ways, and
//! the router looks for it.

use std::slice::from_ref;

use headroom_lab_host::content::Content;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_results::schema::ClearText;
use headroom_lab_trace::{Marker, MarkerSearch};

use crate::link::LinkSpec;
use crate::stack::Stack;
use crate::workload::{self, MarkerFile, Transfer, Workload, WorkloadKind};

use super::bench::Bench;
use super::cell::Cell;
use super::clear_text_verdict::Expected;
use super::transfer::Prepared;

/// Name of the marker file, in the folder of served files of both hosts.
const FILE: &str = "marker";

impl Bench<'_> {
    /// Checks a stack on a link that carries single packets.
    ///
    /// # Errors
    /// A transfer failed, or the stack is not what it says.
    pub(super) fn check_clear_text(&mut self, stack: &Stack, link: &LinkSpec) -> Result<ClearText> {
        let marker = Marker::new(rand::random());
        let capture = self.testbed.capture_whole(MarkerSearch::new(marker.clone()))?;
        for (cell, prepared) in self.marker_transfers(stack, link, &marker)? {
            self.resume(&cell)?;
            self.prepare_clients(&cell, from_ref(&prepared))?;
            let (seen, _) = self.transfer_whole(&cell, &prepared)?;
            self.quiesce(&cell)?;
            let wrong = self.verify(&prepared)?;
            self.remove(&prepared)?;
            if let Some(why) = seen.error.or(wrong) {
                let sentence = format!("{cell} does not work on this testbed: {why}");
                return Err(self.attribute_failure(Error::Failed(sentence)));
            }
        }
        Expected::from(stack).verdict(&capture.exchange(MarkerSearch::new(marker))?)
    }

    /// Notes the commands of the check.
    pub(super) fn rehearse_clear_text(&mut self, stack: &Stack, link: &LinkSpec) -> Result<()> {
        for (_, prepared) in self.marker_transfers(stack, link, &Marker::new(rand::random()))? {
            self.note(&prepared);
        }
        Ok(())
    }

    /// Downloads and uploads of a file full of the marker; where a stack moves no files,
    /// what else carries it.
    fn marker_transfers(
        &self,
        stack: &Stack,
        link: &LinkSpec,
        marker: &Marker,
    ) -> Result<Vec<(Cell, Prepared)>> {
        let (client, server) = (&self.testbed.client, &self.testbed.server);
        let text = marker.file();
        let (size, hash) = (text.len() as u64, blake3::hash(text.as_bytes()));
        for host in [client, server] {
            let path = host.root.join("files").join(FILE);
            let line = || format!("yes MARKER | tr -d '\\n' | head -c {size} > {}", path.display());
            host.write_as(line, &path, &text)?;
        }
        let content = Content { size, hash };
        let file = MarkerFile { client, server, name: FILE, marker: marker.as_str(), content };
        let able = workload::ALL.iter().filter(|work| stack.application.accepts(work.kind));
        let (files, others): (Vec<_>, Vec<_>) = able
            .filter_map(|work| Some((work.kind, (work.carry_marker)(&file)?)))
            .partition(|(kind, _)| kind.moves_files());
        let transfers = if files.is_empty() { others } else { files };
        let prepare = |(kind, transfer): (WorkloadKind, Transfer)| {
            let size = if transfer.expected.is_empty() { 0 } else { size };
            let workload = Workload::new(kind, vec![size], vec![stack.name.clone()]);
            let cell = Cell::new(link, &stack.name, &workload, size);
            let prepared = self.invoke(&cell, transfer)?;
            Ok((cell, prepared))
        };
        transfers.into_iter().map(prepare).collect()
    }
}
