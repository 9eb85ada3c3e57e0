//! Loss processes.

/// Describes which frames are lost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same probability.
    Random {
        /// Per cent of frames.
        pct: f64,
    },
    /// Two states, a good one and a bad one, with a loss probability each
    /// (Gilbert 1960, Elliott 1963; in netem's order: p, r, 1-h, 1-k).
    GilbertElliott {
        /// Per cent of frames after which the good state ends.
        to_bad_pct: f64,
        /// Per cent of frames after which the bad state ends.
        to_good_pct: f64,
        /// Per cent of frames lost in the bad state.
        loss_in_bad_pct: f64,
        /// Per cent of frames lost in the good state.
        loss_in_good_pct: f64,
    },
}

impl Loss {
    /// Makes a process that loses `pct` per cent in bursts of `frames` on average: the
    /// simple Gilbert model, which loses every frame in its bad state.
    ///
    /// # Errors
    /// No such process exists: a burst below one frame, or so much loss that
    /// the gaps between the bursts would be shorter than one frame.
    pub fn in_bursts(pct: f64, frames: f64) -> Result<Self, String> {
        if !(frames >= 1.0 && frames.is_finite()) {
            return Err(format!("a loss burst is one frame or more, not {frames}"));
        }
        if pct <= 0.0 {
            return Ok(Self::None);
        }
        let to_bad_pct = 100.0 * pct / (100.0 - pct) / frames;
        if !(0.0..=100.0).contains(&to_bad_pct) {
            return Err(format!(
                "{pct} % of loss in bursts of {frames} leaves less than a frame between the bursts"
            ));
        }
        Ok(Self::GilbertElliott {
            to_bad_pct,
            to_good_pct: 100.0 / frames,
            loss_in_bad_pct: 100.0,
            loss_in_good_pct: 0.0,
        })
    }

    /// Returns the long-run loss, per cent of frames.
    pub fn average_pct(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random { pct } => pct,
            Self::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct } => {
                if to_bad_pct == 0.0 {
                    return loss_in_good_pct; // it begins in the good state
                }
                (to_bad_pct * loss_in_bad_pct + to_good_pct * loss_in_good_pct)
                    / (to_bad_pct + to_good_pct)
            }
        }
    }

    /// Returns the mean length of a burst, in frames; none where no frame is ever lost, or
    /// every frame from some point on.
    pub fn mean_burst(&self) -> Option<f64> {
        let lost = self.average_pct() / 100.0;
        // the mean run of losses is P(lost) / P(lost, the one before not)
        let ends = lost - self.two_in_a_row();
        (lost > 0.0 && ends > 0.0).then(|| lost / ends)
    }

    /// Returns the probability that a frame and the next are both lost.
    fn two_in_a_row(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random { pct } => (pct / 100.0).powi(2),
            Self::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct } => {
                let [p, r, bad, good] =
                    [to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct].map(|v| v / 100.0);
                let in_bad = if p == 0.0 { 0.0 } else { p / (p + r) };
                in_bad * bad * ((1.0 - r) * bad + r * good)
                    + (1.0 - in_bad) * good * ((1.0 - p) * good + p * bad)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_the_requested_loss_and_length() {
        let loss = Loss::in_bursts(1.0, 8.0).expect("possible");
        assert!((loss.average_pct() - 1.0).abs() < 1e-12);
        assert!((loss.mean_burst().expect("some") - 8.0).abs() < 1e-9);
        let random = Loss::Random { pct: 20.0 };
        assert!((random.mean_burst().expect("some") - 1.25).abs() < 1e-12);
    }

    #[test]
    fn rejects_impossible_bursts() {
        assert!(Loss::in_bursts(1.0, 0.5).is_err());
        assert!(Loss::in_bursts(90.0, 2.0).is_err());
        assert!(Loss::in_bursts(100.0, 2.0).is_err());
    }

    #[test]
    fn a_good_state_that_never_ends_keeps_its_own_loss() {
        let loss = Loss::GilbertElliott {
            to_bad_pct: 0.0,
            to_good_pct: 0.0,
            loss_in_bad_pct: 100.0,
            loss_in_good_pct: 3.0,
        };
        assert!((loss.average_pct() - 3.0).abs() < 1e-12);
        assert!((loss.mean_burst().expect("some") - 1.0 / 0.97).abs() < 1e-9);
    }
}
