//! Finds the bottleneck of a cell: the link, a window, our own CPU time, background load, or
//! waiting.

/// Evidence on a cell; any of it may be missing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence {
    /// Rate of the link, framing counted.
    pub rate_bps: Option<u64>,
    /// Rate at which the file's packets passed, framing counted.
    pub line_bps: Option<f64>,
    /// Rate at which the file's bytes passed.
    pub goodput_bps: Option<f64>,
    /// Of the whole machine.
    pub idle_pct: Option<f64>,
    /// Background load, percent of it.
    pub background_pct: Option<f64>,
    /// CPU time of client and server over the time the client ran.
    pub cpu_share: Option<f64>,
    /// The application's limit of data in flight.
    pub window_bytes: Option<u64>,
    /// Round-trip time of the link.
    pub rtt_s: Option<f64>,
}

/// With less of the machine idle than this, somebody waits for it.
const MIN_IDLE_PCT: f64 = 10.0;

/// Names the nearest limit: `link`, `window`, `CPU`, `background load` or `waiting`.
///
/// The link comes first: a transfer that fills it is limited by it, however busy the
/// machine. Our own processes are the limit where client and server together compute nine
/// tenths of the time (one after the other in a dialogue, or both in a stream), or where
/// the machine would have been less than 10 % idle without anybody else. Where less than
/// 10 % was left idle and others took more than that, theirs is the load that limits.
pub fn limited_by(evidence: &Evidence) -> &'static str {
    let fills_link = match (evidence.line_bps, evidence.rate_bps) {
        (Some(line), Some(rate)) => line >= 0.9 * rate as f64,
        _ => false,
    };
    let fills_window = match (evidence.goodput_bps, evidence.window_bytes, evidence.rtt_s) {
        (Some(goodput), Some(window), Some(rtt)) if rtt > 0.0 => {
            goodput >= 0.8 * window as f64 * 8.0 / rtt
        }
        _ => false,
    };
    let background = evidence.background_pct.unwrap_or(0.0);
    // a dialogue computes in turns, a stream at both ends at once: the counters do not tell
    // which, and of a stream whose ends take 45 % each, "CPU" says too much
    let computes = evidence.cpu_share.is_some_and(|share| share >= 0.9);
    let starved = evidence.idle_pct.is_some_and(|idle| idle + background < MIN_IDLE_PCT);
    let crowded = evidence.idle_pct.is_some_and(|idle| idle < MIN_IDLE_PCT && background > idle);
    if fills_link {
        "link"
    } else if fills_window {
        "window"
    } else if computes || starved {
        "CPU"
    } else if crowded {
        "background load"
    } else {
        "waiting"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_limit_is_named() {
        let idle = Evidence { idle_pct: Some(60.0), cpu_share: Some(0.2), ..Evidence::default() };
        assert_eq!(limited_by(&idle), "waiting");
        assert_eq!(limited_by(&Evidence { idle_pct: Some(4.0), ..idle }), "CPU");
        assert_eq!(limited_by(&Evidence { cpu_share: Some(1.1), ..idle }), "CPU");
        let shaped = Evidence { rate_bps: Some(100_000_000), line_bps: Some(96e6), ..idle };
        assert_eq!(limited_by(&shaped), "link");
        let windowed = Evidence {
            goodput_bps: Some(300e6),
            window_bytes: Some(2 << 20),
            rtt_s: Some(0.05),
            ..idle
        };
        assert_eq!(limited_by(&windowed), "window");
    }

    #[test]
    fn load_of_others_is_not_blamed_on_our_processes() {
        // 200 Mbit/s, 5 ms each way, beside a compiler: 16 % of two cores were ours
        let disturbed = Evidence {
            idle_pct: Some(4.0),
            background_pct: Some(75.0),
            cpu_share: Some(0.32),
            ..Evidence::default()
        };
        assert_eq!(limited_by(&disturbed), "background load");
        let half = Evidence { idle_pct: Some(40.0), background_pct: Some(41.0), ..disturbed };
        assert_eq!(limited_by(&half), "waiting", "most of a core of two was free");
        let full = Evidence { rate_bps: Some(200_000_000), line_bps: Some(191e6), ..disturbed };
        assert_eq!(limited_by(&full), "link", "a full link is full, whoever else computes");
        let ours = Evidence { background_pct: Some(2.0), ..disturbed };
        assert_eq!(limited_by(&ours), "CPU");
    }
}
