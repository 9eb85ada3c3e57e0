//! Axes: from values to places, and their marks.

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
    /// Linear within ±1, logarithmic beyond, on both sides of 0.
    SymLog,
}

/// An axis from its lowest to its highest mark.
pub(super) struct Axis {
    pub(super) lo: f64,
    pub(super) hi: f64,
    scale: Scale,
}

impl Axis {
    /// An axis for these values, without room beyond them.
    pub(super) fn tight(values: &[f64], log: bool) -> Option<Self> {
        let (lo, hi) = ends(values)?;
        let scale = if log { Scale::Log } else { Scale::Linear };
        let (lo, hi) = match (hi > lo, log) {
            (true, _) => (lo, hi),
            (false, true) => (lo / 2.0, hi * 2.0),
            (false, false) => (lo - 1.0, hi + 1.0),
        };
        Some(Self { lo, hi, scale })
    }

    /// An axis for these values with some room; `from_zero`: 0 is on it.
    pub(super) fn roomy(values: &[f64], scale: Scale, from_zero: bool) -> Option<Self> {
        let (mut lo, mut hi) = ends(values)?;
        match scale {
            Scale::Log => Some(Self { lo: lo / 1.3, hi: hi * 1.3, scale }),
            Scale::SymLog => {
                let (lo, hi) = (lo.min(0.0), hi.max(0.0));
                Some(Self { lo: 1.3 * lo, hi: (1.3 * hi).max(1.0), scale })
            }
            Scale::Linear => {
                if from_zero {
                    (lo, hi) = (lo.min(0.0), hi.max(0.0));
                }
                if hi <= lo {
                    (lo, hi) = (lo - 1.0, hi + 1.0);
                }
                let room = (hi - lo) * 0.05;
                let lo = if from_zero && lo >= 0.0 { lo } else { lo - room };
                Some(Self { lo, hi: hi + room, scale })
            }
        }
    }

    /// Returns the position of a value between two points; beyond the axis, its end.
    pub(super) fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        let [value, lo, hi] = [value, self.lo, self.hi].map(|v| self.spread(v));
        from + ((value - lo) / (hi - lo)).clamp(0.0, 1.0) * (to - from)
    }

    /// Whether a value lies on it.
    pub(super) fn has(&self, value: f64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }

    fn spread(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(self.lo).ln(),
            Scale::SymLog => value.signum() * value.abs().ln_1p(),
        }
    }

    /// Round values, about six.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => {
                let fine = (self.hi / self.lo).log10() < 2.5;
                let steps: &[f64] = if fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let decades = self.lo.log10().floor() as i32..=self.hi.log10().ceil() as i32;
                let all =
                    decades.flat_map(|power| steps.iter().map(move |s| s * 10f64.powi(power)));
                all.filter(|tick| self.has(*tick)).collect()
            }
            Scale::SymLog => {
                // the roundest first: where there is little room the others have no label
                let above =
                    [1.0, 3.0].into_iter().flat_map(|s| (0..8).map(move |p| s * 10f64.powi(p)));
                let both = above.flat_map(|tick| [tick, -tick]);
                std::iter::once(0.0).chain(both).filter(|tick| self.has(*tick)).collect()
            }
        }
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let rough = (self.hi - self.lo) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        let (first, last) = ((self.lo / step).ceil() as i64, (self.hi / step).floor() as i64);
        (first..=last.min(first + 20)).map(|nth| nth as f64 * step).collect()
    }

    /// The values themselves where these are few, as sizes are; else [`Axis::ticks`].
    pub(super) fn ticks_at(&self, values: &[f64]) -> Vec<f64> {
        let mut all = values.to_vec();
        all.sort_by(f64::total_cmp);
        all.dedup();
        if all.len() <= 12 { all } else { self.ticks() }
    }
}

fn ends(values: &[f64]) -> Option<(f64, f64)> {
    let lo = values.iter().copied().reduce(f64::min)?;
    Some((lo, values.iter().copied().reduce(f64::max)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_within_the_axis() {
        let axis = Axis::roomy(&[3.0, 97.0], Scale::Linear, true).expect("an axis");
        assert_eq!(axis.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let axis = Axis::tight(&[1e3, 1e9], true).expect("an axis");
        assert_eq!(axis.ticks().len(), 7);
        assert!((axis.place(1e6, 0.0, 10.0) - 5.0).abs() < 1e-9);
        assert!(Axis::tight(&[], false).is_none());
        let flat = Axis::tight(&[5.0], false).expect("an axis");
        assert!((flat.place(5.0, 0.0, 10.0) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn an_axis_of_both_signs_shows_small_values_beside_large_ones() {
        let axis = Axis::roomy(&[-5.0, 3.0, 318.0], Scale::SymLog, true).expect("an axis");
        assert!(axis.place(3.0, 0.0, 100.0) - axis.place(0.0, 0.0, 100.0) > 15.0);
        assert!(axis.ticks().contains(&300.0) && axis.ticks().contains(&-3.0));
        assert!(axis.place(-5.0, 0.0, 100.0) < axis.place(0.0, 0.0, 100.0));
    }

    #[test]
    fn an_axis_may_begin_where_the_values_do() {
        let axis = Axis::roomy(&[96.0, 104.0], Scale::Linear, false).expect("an axis");
        assert!(axis.lo > 90.0 && axis.place(96.0, 0.0, 100.0) < 10.0);
    }
}
