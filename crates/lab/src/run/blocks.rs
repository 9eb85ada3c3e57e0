//! The cells of a link, in groups that are compared.

use headroom_lab_results::analysis;

use super::cell::{self, Cell};
use crate::link::LinkSpec;
use crate::plan::Plan;
use crate::workload::{Workload, WorkloadKind};

/// The blocks of a plan's workloads on one link.
pub(super) struct Blocks {
    pub(super) cells: Vec<Cell>,
    /// Workload by workload and size by size: indices into `cells`.
    pub(super) groups: Vec<Vec<usize>>,
}

impl Blocks {
    pub(super) fn of(plan: &Plan, link: &LinkSpec, workloads: &[Workload]) -> Self {
        let mut blocks = Self { cells: Vec::new(), groups: Vec::new() };
        let real = plan.hosts.is_some();
        let cell = |stack: &String, workload: &Workload, size: u64| {
            let cell = Cell::new(link, stack, workload, size);
            if real { cell.on_real_link() } else { cell }
        };
        for workload in workloads {
            for &size in &workload.sizes {
                let first = blocks.cells.len();
                blocks
                    .cells
                    .extend(workload.stacks.iter().map(|stack| cell(stack, workload, size)));
                blocks.groups.push((first..blocks.cells.len()).collect());
            }
        }
        blocks
    }

    /// Expected time of one block of these cells.
    pub(super) fn expected_s(&self, cells: &[usize]) -> f64 {
        cells.iter().map(|&index| self.cells[index].expected_s()).sum()
    }
}

/// Downloads, and folders of small files, on validation links: predictions are compared with
/// them.
pub(super) fn check_workload(plan: &Plan) -> Vec<Workload> {
    let able = plan
        .stacks
        .iter()
        .filter(|planned| planned.stack.application.accepts(WorkloadKind::Download));
    let stacks = able.map(|planned| planned.stack.name.clone()).collect();
    let downloads = Workload::new(WorkloadKind::Download, plan.validation_sizes.clone(), stacks);
    let folders = plan.workloads.iter().filter(|workload| workload.kind == WorkloadKind::Many);
    std::iter::once(downloads).chain(folders.cloned()).collect()
}

/// Number of blocks on a validation link.
pub(super) fn check_repetitions(plan: &Plan, link: &LinkSpec) -> u32 {
    // where packets are lost at random no few blocks tell
    let lossy = link.down.loss.average_pct() > 0.0;
    if lossy { plan.repetitions } else { plan.repetitions.min(CHECK_REPETITIONS) }
}

/// A link that is full leaves little to chance: as many blocks as a comparison needs.
const CHECK_REPETITIONS: u32 = analysis::stats::MIN_RUNS as u32;

/// Larger transfers would take gigabytes of trace.
pub(super) const LARGEST_ACCOUNTED: u64 = 1 << 30;

/// Bytes that test files and their copies need: each size once, and the
/// largest transfer (or a batch of small ones) twice over.
pub(super) fn scratch_bytes(plan: &Plan) -> u64 {
    const MARGIN: u64 = 64 << 20;
    let check = plan.validation_sizes.iter().copied().filter(|_| !plan.validation_links.is_empty());
    let has_files = |kind: WorkloadKind| !kind.is_timed() || kind.is_closed_loop();
    let files = plan.workloads.iter().filter(|workload| has_files(workload.kind));
    let bytes = files.flat_map(|w| {
        let kept = u64::from(w.transfers_per_sample.unwrap_or(1));
        w.sizes.iter().map(move |&s| w.bytes(s) * kept)
    });
    let bytes: Vec<u64> = bytes.chain(check).collect();
    // what large ones are warmed up with has a quarter of their size at most
    let files: u64 = bytes.iter().map(|bytes| bytes + bytes / 4).sum();
    let largest = bytes.iter().copied().max().unwrap_or(0);
    files + 2 * largest.max(cell::BATCH_BYTES) + MARGIN
}
