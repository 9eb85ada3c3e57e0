//! The clear-text check: each stack moves a file full of a marker both ways, and
//! the router looks for it.

use std::path::PathBuf;

use headroom_lab_host::content::Content;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::role::Role;
use headroom_lab_results::schema::ClearText;
use headroom_lab_trace::{Marker, MarkerSearch};

use crate::link::LinkSpec;
use crate::stack::Stack;
use crate::workload::{Kind, Sending, Task, Workload};

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
        let tap = self.testbed.capture_whole(MarkerSearch::new(marker.clone()))?;
        for (cell, prepared) in self.marker_transfers(stack, link, &marker)? {
            self.resume(&cell)?;
            let (seen, _) = self.transfer_whole(&cell, &prepared)?;
            self.quiesce(&cell)?;
            let wrong = self.verify(&prepared)?;
            self.remove(&prepared)?;
            if let Some(why) = seen.error.or(wrong) {
                let sentence = format!("{cell} does not work on this testbed: {why}");
                return Err(self.attribute_failure(Error::Failed(sentence)));
            }
        }
        Expected::from(stack).verdict(&tap.exchange(MarkerSearch::new(marker))?)
    }

    /// Notes the commands of the check.
    pub(super) fn rehearse_clear_text(&mut self, stack: &Stack, link: &LinkSpec) -> Result<()> {
        for (_, prepared) in self.marker_transfers(stack, link, &Marker::new(rand::random()))? {
            self.note(&prepared);
        }
        Ok(())
    }

    /// A download and an upload of a file full of the marker; where a stack moves
    /// no files, a command that says it.
    fn marker_transfers(
        &self,
        stack: &Stack,
        link: &LinkSpec,
        marker: &Marker,
    ) -> Result<Vec<(Cell, Prepared)>> {
        let (client, server) = (&self.testbed.client, &self.testbed.server);
        let accepts = |kind: &Kind| stack.service.accepts(*kind);
        let mut kinds: Vec<Kind> =
            [Kind::Download, Kind::Upload].into_iter().filter(accepts).collect();
        if kinds.is_empty() {
            let others = [Kind::Commands, Kind::Stream, Kind::Packets, Kind::Realtime];
            kinds.extend(others.into_iter().filter(accepts));
        }
        let content = marker.file();
        for host in [client, server] {
            let path = host.root.join("files").join(FILE);
            let (size, to) = (content.len(), path.display());
            let line = || format!("yes MARKER | tr -d '\\n' | head -c {size} > {to}");
            host.write_as(line, &path, &content)?;
        }
        let hash = Content { size: content.len() as u64, hash: blake3::hash(content.as_bytes()) };
        let sent = || Some(client.root.join("files").join(FILE));
        let transfer = |kind: Kind| {
            let local = client.root.join("downloads").join(FILE);
            let remote = format!("incoming/{FILE}");
            let (task, arrives): (Task, Option<PathBuf>) = match kind {
                Kind::Upload => (
                    Task::Upload {
                        local: client.root.join("files").join(FILE),
                        remote: remote.clone(),
                    },
                    Some(server.root.join("files").join(&remote)),
                ),
                Kind::Commands => (Task::Commands(vec![format!("echo {}", marker.as_str())]), None),
                Kind::Stream => (Task::Stream { seconds: 1, content: sent() }, None),
                Kind::Packets | Kind::Realtime => {
                    let sending = match kind {
                        Kind::Packets => Sending::Echo,
                        _ => Sending::Realtime { per_second: 50.0, cross_traffic: Some((0, 1)) },
                    };
                    (Task::Datagrams { sending, size: 512, seconds: 1, content: sent() }, None)
                }
                _ => {
                    let task = Task::Download { remote: FILE.to_owned(), local: local.clone() };
                    (task, Some(local))
                }
            };
            let size = if arrives.is_some() { hash.size } else { 0 };
            let workload = Workload::new(kind, vec![size], vec![stack.name.clone()]);
            let cell = Cell::new(link, &stack.name, &workload, size);
            let expected = arrives.into_iter().map(|path| (path, hash)).collect();
            let on = if kind == Kind::Upload { Role::Server } else { Role::Client };
            let prepared = self.invoke(&cell, &[task], on, expected)?;
            Ok((cell, prepared))
        };
        kinds.into_iter().map(transfer).collect()
    }
}
