//! The workload `setup`: a stack's outermost layer is set up from nothing, and what passed
//! on the wire is what is measured: from the first packet to the last, how many, how long; and
//! the CPU time that it took at the server.

use std::time::Instant;

use headroom_lab_host::error::{self, Result};
use headroom_lab_results::schema::{Sample, Wire};

use super::bench::{Bench, quiet};
use super::cell::Cell;
use super::sample::Measured;
use super::stack_instance::ObservedSetUp;

/// Times that packets are counted; the median by bytes counts.
const COUNTED: u32 = 5;

impl Bench<'_> {
    /// Before it counts: whether it works, and how long one takes with all around it.
    pub(super) fn warm_up_set_up(&mut self, cell: &Cell, times: u32) -> Result<f64> {
        let started = Instant::now();
        let times = times.max(1);
        for _ in 0..times {
            self.set_up_layer(cell)?;
        }
        Ok(started.elapsed().as_secs_f64() / f64::from(times))
    }

    /// One set-up as a sample.
    ///
    /// # Errors
    /// Only what ends the run; what did not come up is a sample with its error.
    pub(super) fn measure_set_up(&mut self, cell: &Cell, block: u32) -> Result<Measured> {
        let (seen, error) = match self.set_up_layer(cell) {
            Ok(seen) => (Some(seen), None),
            Err(error) if error.is_failure() => (None, Some(error.to_string())),
            Err(other) => return Err(other),
        };
        if error.is_some() {
            self.require_servers()?;
        }
        let seconds = seen.map(|seen| seen.wire.seconds);
        let sample = Sample {
            link: cell.link.to_string(),
            stack: cell.stack.clone(),
            workload: cell.workload.name(),
            files: 1,
            block,
            ok: error.is_none(),
            seconds,
            session_seconds: seconds,
            transfers: 1,
            set_up_server_cpu_seconds: seen.and_then(|seen| seen.server_cpu_s),
            error,
            ..Sample::default()
        };
        Ok(Measured { sample, rtts_s: Vec::new(), round_trips: None, last: None })
    }

    /// The packets of one set-up.
    pub(super) fn account_set_up(&mut self, cell: &Cell) -> Result<Wire> {
        let mut seen = Vec::new();
        for _ in 0..COUNTED {
            seen.push(self.set_up_layer(cell)?.wire);
        }
        seen.sort_by_key(|set_up| (set_up.bytes, set_up.packets));
        let middle = seen[seen.len() / 2];
        Ok(Wire {
            captures: COUNTED,
            bytes: middle.bytes,
            file_direction_bytes: middle.bytes - middle.client_bytes,
            ack_direction_bytes: middle.client_bytes,
            packets: middle.packets,
            largest_frame_bytes: middle.largest_frame_bytes,
            round_trips: Some(middle.round_trips),
            handshakes: 1,
            first_handshake: Some(middle),
            ..Wire::default()
        })
    }

    fn set_up_layer(&mut self, cell: &Cell) -> Result<ObservedSetUp> {
        error::check(self.interrupted())?;
        let quiet = quiet(cell.link.longest_round_trip());
        let (stack, testbed) = self.instance_mut(&cell.stack)?;
        stack.set_up_once(testbed, quiet)
    }
}
