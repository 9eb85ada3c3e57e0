//! Accounting: the packets and bytes of a cell's transfers, counted with
//! offloads off in runs of their own.

use std::path::Path;
use std::slice::from_ref;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::testbed::Counters;
use headroom_lab_results::schema::{KeptCapture, Wire};
use headroom_lab_trace::{Record, Totals};

use crate::workload::{Key, TimeOf};

use super::bench::Bench;
use super::captures::{PcapFile, Taken};
use super::cell::Cell;

/// Transfers of a cell that are counted again at most because the capture and the
/// interface disagreed, which a machine with a busy core brought about now and then.
const MAX_RECOUNTED: u32 = 3;

impl Bench<'_> {
    /// Counts the packets of a few transfers, of which the one with the median
    /// bytes counts: how a sender cuts its segments varies. Its packets are kept in
    /// the folder `captures`, where there is one.
    ///
    /// # Errors
    /// A transfer failed, or what the capture saw cannot be all there was.
    pub(super) fn account(
        &mut self,
        cell: &Cell,
        captures: Option<&Path>,
    ) -> Result<Option<(Wire, Option<KeptCapture>)>> {
        if cell.workload.kind.time() == TimeOf::LayerSetup {
            return Ok(Some((self.account_set_up(cell)?, None)));
        }
        let times = if cell.bytes() <= 1 << 20 { 7 } else { 3 };
        let mut rows: Vec<(Wire, Option<Taken>)> = Vec::new();
        self.resume(cell)?;
        let (mut nth, mut recounted) = (0, 0);
        while nth < times {
            let prepared = self.prepare(cell)?;
            self.prepare_clients(cell, from_ref(&prepared))?;
            // the last words of an earlier transfer are not this one's
            if let Some(capture) = &self.testbed.router_capture {
                capture.settle();
            }
            let taking = captures
                .map(|folder| Taken::begin(&self.testbed, folder, nth, cell))
                .transpose()?;
            let before = self.testbed.router_counters()?;
            let (seen, totals) = match self.transfer_whole(cell, &prepared) {
                Err(Error::FramesLost(_)) if recounted < MAX_RECOUNTED => {
                    recounted += 1;
                    self.remove(&prepared)?;
                    continue;
                }
                whole => whole?,
            };
            let counted = self.testbed.router_counters()?.since(before);
            let taken = taking.map(|(taken, capture)| -> Result<Taken> {
                capture.exchange(PcapFile::default())?.end()?;
                Ok(taken)
            });
            let taken = taken.transpose()?;
            let wrong = self.verify(&prepared)?;
            self.remove(&prepared)?;
            let Some(totals) = totals else { return Ok(None) };
            let too_long = || over(&totals, self.testbed.largest_frame());
            let failed = seen.error.or(wrong).or_else(too_long);
            let disagreed = disagreement(&totals, counted);
            if failed.is_none() && disagreed.is_some() && recounted < MAX_RECOUNTED {
                recounted += 1;
                continue;
            }
            nth += 1;
            if let Some(why) = failed.or(disagreed) {
                let sentence = format!("the packets of {cell} cannot be counted: {why}");
                return Err(self.attribute_failure(Error::Failed(sentence)));
            }
            rows.extend(seen.record.map(|record| (row(cell, times, &record, &totals), taken)));
        }
        self.quiesce(cell)?;
        let round_trips = rows.iter().filter_map(|(wire, _)| wire.round_trips).min();
        let round_trips_after = rows.iter().filter_map(|(wire, _)| wire.round_trips_after).min();
        rows.sort_by_key(|(wire, _)| wire.bytes);
        let Some((wire, taken)) = rows.get(rows.len() / 2) else { return Ok(None) };
        let kept = taken.as_ref().map(|taken| taken.keep(cell, wire.packets)).transpose()?;
        Ok(Some((Wire { round_trips, round_trips_after, recounted, ..*wire }, kept)))
    }
}

/// Explains a frame that was longer than the link's largest.
fn over(totals: &Totals, largest: u32) -> Option<String> {
    (totals.largest() > largest).then(|| {
        format!(
            "a frame of {} bytes passed a link for {largest}; offload is still on",
            totals.largest()
        )
    })
}

/// Explains a difference between capture and interface.
fn disagreement(totals: &Totals, counted: Counters) -> Option<String> {
    let seen = Counters { frames: totals.frames(), bytes: totals.bytes() };
    (seen != counted).then(|| {
        format!(
            "the capture saw {} frames of {} bytes, the interface counted {} of {}",
            seen.frames, seen.bytes, counted.frames, counted.bytes
        )
    })
}

fn row(cell: &Cell, captures: u32, record: &Record, totals: &Totals) -> Wire {
    let upload = cell.workload.kind.goes_up();
    let (file_direction, ack_direction) = (totals.direction(upload), totals.direction(!upload));
    Wire {
        captures,
        recounted: 0,
        bytes: totals.bytes(),
        file_direction_bytes: file_direction.bytes,
        ack_direction_bytes: ack_direction.bytes,
        packets: totals.frames(),
        largest_frame_bytes: totals.largest(),
        payload_efficiency_pct: file_direction.efficiency_pct(cell.bytes()),
        header_bytes_per_packet: file_direction.header_bytes(cell.bytes()),
        round_trips: record.round_trips.filter(|_| !cell.workload.takes(Key::Clients)),
        round_trips_after: record.round_trips_after.filter(|_| !cell.workload.takes(Key::Clients)),
        connections: record.connections,
        handshakes: record.handshakes,
        hello_retries: record.hello_retries,
        refused_commands: record.refused_commands,
        first_handshake: record.handshake,
        data_handshake: record.data_handshake,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(frames: &[u32]) -> Totals {
        let mut totals = Totals::new(std::net::IpAddr::from([10, 77, 1, 1]));
        frames.iter().for_each(|&wire_len| totals.add(&[], wire_len));
        totals
    }

    #[test]
    fn a_frame_over_the_mtu_and_one_that_only_the_interface_saw_are_found() {
        let counted = |frames, bytes| Counters { frames, bytes };
        let seen = totals(&[66, 1514]);
        assert_eq!((over(&seen, 1514), disagreement(&seen, counted(2, 1580))), (None, None));
        let over = over(&seen, 1513).expect("a doubt");
        assert!(over.contains("1514 bytes"), "{over}");
        for other in [counted(3, 1580), counted(2, 1581), counted(1, 66)] {
            let missed = disagreement(&seen, other).expect("a doubt");
            assert!(missed.contains("the interface counted"), "{missed}");
        }
    }
}
