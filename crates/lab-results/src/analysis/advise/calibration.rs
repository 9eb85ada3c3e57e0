//! How wide prediction intervals are, from the errors on links that were left out.
//!
//! Each link is predicted from all others (leave one out). The distance of a measured session
//! from its prediction, on logarithms, is divided by what is known to vary: 1 % of any time,
//! the noise of the stack on the main link, and the spread of simulated losses. The 95 %
//! quantile of these ratios, links with and without loss apart, is the factor that widens what
//! is known to vary to a prediction interval (split conformal prediction: Lei, G'Sell, Rinaldo,
//! Tibshirani and Wasserman 2018).

use super::super::stats;
use super::basis::{Basis, Cell, LossAnswer};
use super::model::{Predicted, Task};

/// The fewest links of a kind that calibrate it.
pub const MIN_LINKS: usize = 2;

/// Share of any time that varies at least.
const MIN_SPREAD: f64 = 0.01;

/// A cell that was predicted from the other links.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// The measured cell.
    pub cell: Cell,
    /// Its prediction.
    pub predicted: Predicted,
    /// Whether its link loses packets.
    pub lossy: bool,
    /// How far below and above its prediction sessions are known to vary, on logarithms.
    spread: [f64; 2],
}

impl LeftOut {
    /// Logarithm of the measured median over the prediction.
    pub fn log_error(&self) -> f64 {
        self.cell.median_s().ln() - self.predicted.log_s
    }

    fn scores(&self) -> impl Iterator<Item = f64> {
        self.cell.session_s.iter().map(|seconds| {
            let error = seconds.ln() - self.predicted.log_s;
            error.abs() / self.spread[usize::from(error > 0.0)]
        })
    }
}

/// Predicts the cells of a link from the other links; on a link with loss those of the stacks
/// whose answer to it is known.
pub fn leave_out(basis: &Basis, link: usize) -> Vec<LeftOut> {
    let others = basis.without_link(link);
    let models: Vec<_> = (0..basis.stacks.len()).map(|stack| others.fit(stack)).collect();
    let cells = basis.cells.iter().filter(|cell| cell.link == link);
    cells
        .filter_map(|cell| {
            let model = models[cell.stack].as_ref()?;
            let unknown = basis.stacks[cell.stack].loss_answer == LossAnswer::Unknown;
            if unknown && basis.links[link].loss > 0.0 {
                return None;
            }
            let task = Task { files: cell.files, bytes: cell.bytes as f64 };
            let (stack, link) = (&basis.stacks[cell.stack], &basis.links[cell.link]);
            let predicted = others.predict(model, stack, link, task, cell.transfers);
            let spread = spread(&others, cell.stack, &predicted, cell.transfers);
            Some(LeftOut { cell: cell.clone(), predicted, lossy: link.loss > 0.0, spread })
        })
        .collect()
}

/// How far below and above a prediction sessions are known to vary, on logarithms, as one
/// standard deviation.
fn spread(basis: &Basis, stack: usize, predicted: &Predicted, transfers: u32) -> [f64; 2] {
    let noise_s = noise_s(basis, stack) / f64::from(transfers.max(1)).sqrt();
    let noise = MIN_SPREAD.hypot(noise_s / predicted.arithmetic.total_s);
    [predicted.below, predicted.above].map(|side| noise.hypot(side / 1.96))
}

/// Standard deviation of one session of the smallest file on the main link, seconds.
fn noise_s(basis: &Basis, stack: usize) -> f64 {
    let on_main = basis.cells_of(stack).filter(|cell| cell.link == 0 && cell.files == 1);
    let smallest = on_main.min_by_key(|cell| cell.bytes);
    smallest
        .and_then(|cell| {
            let stddev = stats::mean(&cell.session_s)?.stddev?;
            Some(stddev * f64::from(cell.transfers.max(1)).sqrt())
        })
        .unwrap_or(0.0)
}

/// Factors for prediction intervals, and the errors that they are from.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Without loss and with; none: too few links.
    factors: [Option<f64>; 2],
    /// All left-out cells, with the name of the stack.
    errors: Vec<(String, LeftOut)>,
}

impl Calibration {
    /// Leaves out every link of a basis in turn.
    pub fn of(basis: &Basis) -> Self {
        Self::of_kinds(basis, &[false, true])
    }

    /// Leaves out every link without loss in turn, so that nothing has to be simulated; it knows
    /// nothing of links with loss.
    pub fn without_loss(basis: &Basis) -> Self {
        Self::of_kinds(basis, &[false])
    }

    fn of_kinds(basis: &Basis, kinds: &[bool]) -> Self {
        let errors: Vec<(String, LeftOut)> = kinds
            .iter()
            .flat_map(|&lossy| basis.shaped_links(lossy))
            .flat_map(|link| leave_out(basis, link))
            .map(|left| (basis.stacks[left.cell.stack].name.clone(), left))
            .collect();
        let factors = [false, true].map(|lossy| {
            let of_kind = || errors.iter().map(|(_, left)| left).filter(|l| l.lossy == lossy);
            let enough = kinds.contains(&lossy) && basis.shaped_links(lossy).len() >= MIN_LINKS;
            enough.then(|| quantile_95(of_kind().flat_map(LeftOut::scores).collect()))?
        });
        Self { factors, errors }
    }

    /// Whether it has enough links of a kind.
    pub fn knows(&self, lossy: bool) -> bool {
        self.factors[usize::from(lossy)].is_some()
    }

    /// 95 % prediction interval of the mean of `transfers` sessions, seconds; none: too few
    /// links. It begins no sooner than the bytes pass at the link's rate.
    pub fn interval_s(
        &self,
        basis: &Basis,
        stack: usize,
        predicted: &Predicted,
        lossy: bool,
        transfers: u32,
    ) -> Option<[f64; 2]> {
        let factor = self.factors[usize::from(lossy)]?;
        let [below, above] = spread(basis, stack, predicted, transfers);
        let log = predicted.log_s;
        let ends = [(log - factor * below).exp(), (log + factor * above).exp()];
        Some(ends.map(|end| end.max(predicted.on_link_s)))
    }

    /// Half of the 95 % interval of the logarithm of one stack's time over another's: both
    /// were left out on the same links, where errors that they share cancel. Of a pair that
    /// shares cells of fewer than two links, that of two errors which share nothing, each of the
    /// least spread, 1 % of the time, times the calibration's factor; none without a factor.
    pub fn half_width_of_ratio(&self, [a, b]: [&str; 2], lossy: bool) -> Option<f64> {
        let mut links: Vec<usize> = Vec::new();
        let mut squares: Vec<f64> = Vec::new();
        for (name, left) in self.errors.iter().filter(|(_, left)| left.lossy == lossy) {
            if name != a {
                continue;
            }
            let key = |l: &LeftOut| (l.cell.link, l.cell.files, l.cell.bytes);
            let other = self.errors.iter().find(|(name, o)| name == b && key(o) == key(left));
            let Some((_, other)) = other else { continue };
            squares.push((left.log_error() - other.log_error()).powi(2));
            if !links.contains(&left.cell.link) {
                links.push(left.cell.link);
            }
        }
        if links.len() < 2 {
            let factor = self.factors[usize::from(lossy)]?;
            return Some(2.0_f64.sqrt() * factor * MIN_SPREAD);
        }
        let rms = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
        Some(stats::t_975((links.len() - 1) as f64) * rms)
    }
}

/// The value that 95 % of new ones do not exceed: of n, the ⌈0.95 (n + 1)⌉th.
fn quantile_95(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (0.95 * (values.len() + 1) as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).or(values.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::super::tests::basis;
    use super::*;

    #[test]
    fn the_quantile_is_that_of_new_values() {
        let hundred = (1..=100).map(f64::from).collect();
        assert_eq!(quantile_95(hundred), Some(96.0));
        assert_eq!(quantile_95(vec![3.0, 1.0]), Some(3.0));
        assert_eq!(quantile_95(Vec::new()), None);
    }

    #[test]
    fn a_left_out_link_does_not_predict_itself() {
        let mut basis = basis();
        for cell in basis.cells.iter_mut().filter(|cell| cell.link == 3) {
            cell.session_s = vec![1000.0];
        }
        let left = leave_out(&basis, 3);
        assert_eq!(left.len(), 6, "two stacks, three tasks");
        assert!(left.iter().all(|left| left.predicted.arithmetic.total_s < 10.0));
    }

    #[test]
    fn no_interval_begins_before_the_bytes_can_have_passed() {
        let basis = basis();
        let model = basis.fit(0).expect("a model");
        let link = &basis.links[4];
        let task = Task { files: 1, bytes: 1e10 };
        let predicted = basis.predict(&model, &basis.stacks[0], link, task, 1);
        let interval = Calibration::of(&basis).interval_s(&basis, 0, &predicted, false, 1);
        let [lo, hi] = interval.expect("calibrated");
        let on_link_s = 8.0 * predicted.arithmetic.line_bytes / link.rate_bps.expect("a rate");
        let time = predicted.arithmetic.total_s;
        assert!(lo >= on_link_s && lo <= time && hi > time, "{lo} {hi} {time}");
    }

    #[test]
    fn intervals_hold_what_varies_by_a_hundredth() {
        let basis = basis();
        let calibration = Calibration::of(&basis);
        assert!(calibration.knows(false) && calibration.knows(true), "five links and two");
        let fewer = Calibration::of(&basis.without_link(6));
        assert!(fewer.knows(false) && !fewer.knows(true), "one with loss is too few");
        let left = &leave_out(&basis, 2)[0];
        let interval = calibration.interval_s(&basis, 0, &left.predicted, false, 1);
        let [lo, hi] = interval.expect("calibrated");
        let time = left.predicted.arithmetic.total_s;
        assert!(lo < 0.99 * time && hi > 1.01 * time && lo > 0.9 * time, "{lo} {hi} {time}");
        let narrow = calibration.half_width_of_ratio(["quick", "slow"], false);
        assert!(narrow.expect("a pair") < 0.05, "{narrow:?}");
        let factor = calibration.factors[0].expect("calibrated");
        let unrelated = calibration.half_width_of_ratio(["quick", "absent"], false);
        assert_eq!(unrelated, Some(2.0_f64.sqrt() * factor * MIN_SPREAD));
        let nothing = fewer.half_width_of_ratio(["quick", "absent"], true);
        assert_eq!(nothing, None, "one link with loss makes no factor");
    }
}
