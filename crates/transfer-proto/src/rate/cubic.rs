//! The window while others fill the queue: CUBIC (RFC 9438), so that both get a share; or the
//! sum of several such windows, as in MulTCP (Crowcroft and Oechslin, 1998): a loss reduces one of
//! them.

use std::time::Duration;

/// RFC 9438, section 5.
const C: f64 = 0.4;
/// RFC 9438, section 4.6.
const BETA: f64 = 0.7;

/// A congestion window in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Cubic {
    mss: f64,
    /// How many windows it is the sum of.
    flows: f64,
    /// What a loss leaves of the sum.
    beta: f64,
    window: f64,
    /// The window before its last reduction.
    top: f64,
    /// The window of Reno (RFC 9438, section 4.3).
    reno: f64,
    epoch: Option<Duration>,
    k: f64,
    reduced_at: Option<Duration>,
}

impl Cubic {
    /// Starts from `window` bytes at `now`, the plateau of the cubic.
    pub(crate) fn new(now: Duration, window: f64, mss: f64, flows: f64) -> Self {
        let window = window.max(4.0 * mss);
        Self {
            mss,
            flows,
            beta: beta(flows),
            window,
            top: window,
            reno: window,
            epoch: Some(now),
            k: 0.0,
            reduced_at: None,
        }
    }

    pub(crate) fn window(&self) -> f64 {
        self.window
    }

    /// Changes how many windows it is the sum of.
    pub(crate) fn set_flows(&mut self, flows: f64) {
        (self.flows, self.beta) = (flows, beta(flows));
    }

    /// Raises the window, and with it the curve that it follows.
    pub(crate) fn raise(&mut self, window: f64) {
        let by = (window - self.window).max(0.0);
        self.window += by;
        self.top += by;
        self.reno += by;
    }

    /// Excludes time in which the window was not in use.
    pub(crate) fn pause(&mut self, paused: Duration) {
        self.epoch = self.epoch.map(|epoch| epoch + paused);
    }

    /// Handles `acked` bytes, while the window was the limit.
    pub(crate) fn acked(&mut self, now: Duration, acked: f64, rtt: Duration) {
        let epoch = *self.epoch.get_or_insert(now);
        let t = now.saturating_sub(epoch).as_secs_f64() + rtt.as_secs_f64();
        let target = self.top + C * (t - self.k).powi(3) * self.mss;
        let target = target.clamp(self.window, 1.5 * self.window);
        self.window += (target - self.window) * (acked / self.window).min(1.0);
        let (flows, beta) = (self.flows, self.beta);
        let alpha = if self.reno < self.top {
            // the rate of Reno goes with the root of its increase
            flows * flows * 3.0 * (1.0 - beta) / (1.0 + beta)
        } else {
            flows
        };
        self.reno += alpha * self.mss * acked / self.window;
        self.window = self.window.max(self.reno);
    }

    /// Handles congestion of packets sent at `sent`, once per round trip: packets sent before the
    /// last reduction say nothing new.
    pub(crate) fn congested(&mut self, now: Duration, sent: Duration) {
        if self.reduced_at.is_some_and(|reduced_at| sent <= reduced_at) {
            return;
        }
        self.reduced_at = Some(now);
        // fast convergence (RFC 9438, section 4.7)
        let below = self.window < self.top;
        self.top = if below { self.window * (1.0 + self.beta) / 2.0 } else { self.window };
        let before = self.window;
        self.window = (self.window * self.beta).max(4.0 * self.mss);
        self.reno = self.window;
        self.k = ((before.max(self.top) - self.window).max(0.0) / self.mss / C).cbrt();
        if below {
            self.k = ((self.top - self.window).max(0.0) / self.mss / C).cbrt();
        }
        self.epoch = Some(now);
    }
}

/// Returns what a loss in one of so many windows leaves of their sum.
fn beta(flows: f64) -> f64 {
    1.0 - (1.0 - BETA) / flows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_window_grows_as_it_would_have() {
        let (mss, rtt, s) = (1000.0, Duration::from_millis(100), Duration::from_secs(1));
        let mut raised = Cubic::new(Duration::ZERO, 100_000.0, mss, 1.0);
        let mut high = Cubic::new(Duration::ZERO, 150_000.0, mss, 1.0);
        raised.raise(150_000.0);
        raised.raise(90_000.0);
        assert_eq!(raised.window(), 150_000.0, "it is never lowered");
        for cubic in [&mut raised, &mut high] {
            (1_u32..10).for_each(|at| cubic.acked(at * s, cubic.window(), rtt));
        }
        assert_eq!(raised.window(), high.window());
    }
}
