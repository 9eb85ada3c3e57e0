//! A cell: one stack with one workload at one size on one link, its transfers per sample,
//! and the time that a sample may take.

use std::fmt;
use std::time::Duration;

use crate::link::{LinkSpec, Trace};
use crate::units;
use crate::workload::{Key, Workload};

/// Clock ticks are 10 ms, so less than this is measured in batches.
const MIN_SAMPLE_S: f64 = 0.3;
const LARGEST_BATCH: u32 = 100;
/// A warm-up moves the bytes that the link passes in this time, and at least `MIN_BRIEF`.
const WARM_AFTER_S: f64 = 2.0;
const MIN_BRIEF: u64 = 1 << 20;
/// The longest part of a trace in which it delivers next to nothing of its mean.
const LONGEST_SLOW_PART: Duration = Duration::from_secs(600);
/// A batch keeps its files until the clocks have stopped; no more than this.
pub(super) const BATCH_BYTES: u64 = 256 << 20;

/// One stack doing one workload at one size on one link.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) link: LinkSpec,
    pub(super) stack: String,
    pub(super) workload: Workload,
    pub(super) size: u64,
    /// Transfers in a sample; set by the warm-up.
    batch: u32,
    /// Of one transfer, process start and all; set by the warm-up.
    transfer_s: f64,
    /// Assumed minimum rate of an unshaped link.
    least_bps: u64,
}

impl Cell {
    pub(super) fn new(link: &LinkSpec, stack: &str, workload: &Workload, size: u64) -> Self {
        let (link, stack, workload) = (link.clone(), stack.to_owned(), workload.clone());
        Self { link, stack, workload, size, batch: 1, transfer_s: 0.0, least_bps: 50_000_000 }
    }

    /// The same between real machines, whose link nobody knows.
    pub(super) fn on_real_link(self) -> Self {
        Self { least_bps: 1_000_000, ..self }
    }

    /// Bytes of file that one transfer moves.
    pub(super) fn bytes(&self) -> u64 {
        self.workload.bytes(self.size)
    }

    pub(super) fn batch(&self) -> u32 {
        self.batch
    }

    /// Makes a sample the mean of as many transfers as it was in the blocks that
    /// were measured before.
    pub(super) fn set_batch(&mut self, batch: u32) {
        let asked = self.workload.transfers_per_sample;
        self.batch = asked.unwrap_or(batch.clamp(1, self.largest_batch()));
    }

    /// Takes what one transfer takes, process start and all, from the warm-up, and with it
    /// how many of them make a sample.
    pub(super) fn set_time(&mut self, seconds: f64) {
        self.set_batch((MIN_SAMPLE_S / seconds.max(1e-4)).ceil() as u32);
        self.expect(seconds);
    }

    /// Takes so long for the time of one transfer, and leaves how many make a sample.
    pub(super) fn expect(&mut self, seconds: f64) {
        // an agent's word, perhaps of another machine
        self.transfer_s = seconds.clamp(0.0, 1e6);
    }

    /// A shorter cell, after which this one is as warm, and how long this one takes if
    /// that took so many seconds.
    pub(super) fn brief(&self) -> (Self, impl Fn(f64) -> f64 + use<>) {
        let mut brief = self.clone();
        let (mut more_s, mut times) = (0.0, 1.0);
        if self.workload.kind.is_timed() {
            more_s = f64::from(std::mem::replace(&mut brief.workload.seconds, 1) - 1);
        } else if let Some(bps) = self.link.slowest_bps()
            && self.workload.takes(Key::TransfersPerSample)
        {
            // past slow start on any link that people have, and no minutes without a figure
            let bytes = (bps as f64 / 8.0 * WARM_AFTER_S) as u64;
            if self.size / 4 >= bytes.max(MIN_BRIEF) {
                brief.size = bytes.max(MIN_BRIEF);
                times = self.size as f64 / brief.size as f64;
            }
        }
        (brief, move |seconds| more_s + times * seconds)
    }

    /// Transfers whose files can be kept until the clocks have stopped.
    fn largest_batch(&self) -> u32 {
        // each file of a folder is a file to verify
        let fits = (BATCH_BYTES / self.bytes().max(1))
            .min(u64::from(LARGEST_BATCH.min(10_000 / self.workload.files)));
        fits.max(1) as u32
    }

    /// Expected time of a sample.
    pub(super) fn expected_s(&self) -> f64 {
        self.transfer_s * f64::from(self.batch)
    }

    /// After so long without an answer one looks whether the servers still run: never
    /// in a transfer as expected, so that looking costs none of them anything.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs_f64(2.0 + 3.0 * self.transfer_s)
    }

    /// Long enough for anything that is not stuck, in a closed loop for one session: a fifth
    /// of the link's rate, or a quarter of what loss (Mathis et al. 1997) and an SSH window
    /// leave of it; and where the rate is the mean of a trace, its slow parts beside that.
    pub(super) fn timeout(&self) -> Duration {
        if self.workload.kind.is_timed() && !self.workload.kind.is_closed_loop() {
            return Duration::from_secs(30 + 2 * u64::from(self.workload.seconds));
        }
        const SEGMENT_BITS: f64 = 1448.0 * 8.0;
        const SSH_WINDOW_BITS: f64 = 2_097_152.0 * 8.0;
        let rtt_s = self.link.longest_round_trip().as_secs_f64();
        let mut slowest_bps = self.link.slowest_bps().unwrap_or(self.least_bps) as f64 / 5.0;
        if rtt_s > 0.0 {
            slowest_bps = slowest_bps.min(SSH_WINDOW_BITS / rtt_s / 4.0);
        }
        let loss_pct = self.link.down.loss.average_pct().max(self.link.up.loss.average_pct());
        if loss_pct > 0.0 {
            let mathis = SEGMENT_BITS / rtt_s.max(0.001) / (loss_pct / 100.0).sqrt();
            slowest_bps = slowest_bps.min(mathis / 4.0);
        }
        let slow = self.link.traces().map(Trace::period).max().unwrap_or_default();
        let slow_s = slow.min(LONGEST_SLOW_PART).as_secs_f64();
        let files = f64::from(self.workload.files);
        let moving_s = self.bytes() as f64 * 8.0 / slowest_bps;
        let seconds = 60.0 + slow_s + files * 20.0 * rtt_s + moving_s;
        Duration::from_secs_f64(seconds)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.stack, self.workload.name())?;
        if self.size > 0 && self.workload.takes(Key::Sizes) {
            write!(f, " {}", units::chosen_size(self.size))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadKind;

    fn cell(kind: WorkloadKind, size: u64, link: &str) -> Cell {
        let workload = Workload::new(kind, vec![size], Vec::new());
        Cell::new(
            &link.parse().expect("a link"),
            "ftp",
            &Workload { seconds: 10, ..workload },
            size,
        )
    }

    #[test]
    fn what_takes_minutes_is_warmed_up_by_seconds_of_it() {
        let brief = |kind, size, link| {
            let (brief, whole_s) = cell(kind, size, link).brief();
            (brief.size, brief.workload.seconds, whole_s(2.0))
        };
        assert_eq!(brief(WorkloadKind::Upload, 1_000_000_000, "100mbit"), (25_000_000, 10, 80.0));
        assert_eq!(
            brief(WorkloadKind::Download, 99_000_000, "100mbit").0,
            99_000_000,
            "not worth it"
        );
        assert_eq!(brief(WorkloadKind::Download, 1 << 30, "unshaped").0, 1 << 30, "nobody knows");
        assert_eq!(brief(WorkloadKind::Download, 5 << 20, "100kbit").0, 1 << 20);
        assert_eq!(brief(WorkloadKind::Realtime, 1000, "100mbit"), (1000, 1, 11.0));
    }

    #[test]
    fn a_sample_is_as_many_transfers_as_are_measured_well() {
        let mut cell = cell(WorkloadKind::Download, 1 << 20, "unshaped");
        for (seconds, batch) in [(0.1, 3), (10.0, 1), (0.0, 100), (f64::NAN, 100)] {
            cell.set_time(seconds);
            assert_eq!(cell.batch(), batch, "{seconds}");
        }
    }
}
