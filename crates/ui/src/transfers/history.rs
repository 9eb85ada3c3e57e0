//! The plot of a transfer's rate.

/// Points of the plot. When they are full, pairs are merged and each lasts twice as long.
const POINTS: usize = 160;

/// The rate over the whole time of a transfer.
#[derive(Debug)]
pub(super) struct History {
    pub(super) points: Vec<f64>,
    pub(super) seconds: u64,
    sum: f64,
    count: u64,
}

impl History {
    pub(super) const fn new() -> Self {
        Self { points: Vec::new(), seconds: 1, sum: 0.0, count: 0 }
    }

    pub(super) fn add(&mut self, rate: f64) {
        self.sum += rate;
        self.count += 1;
        if self.count < self.seconds {
            return;
        }
        self.points.push(self.sum / self.count as f64);
        (self.sum, self.count) = (0.0, 0);
        if self.points.len() >= POINTS {
            self.points = self
                .points
                .chunks(2)
                .map(|pair| pair.iter().sum::<f64>() / pair.len() as f64)
                .collect();
            self.seconds *= 2;
        }
    }
}
