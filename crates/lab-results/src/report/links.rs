//! One sentence a link: what made it, and what its self-test found.

use headroom_link_spec::Counters;
use headroom_units as units;

use crate::schema::{DirectionTest, EmulatorReport, LinkReport, Results};

/// A sentence for each link that was used, the main one first.
pub(super) fn sentences(results: &Results) -> Vec<String> {
    std::iter::once(&results.link).chain(&results.validation_links).map(sentence).collect()
}

fn sentence(link: &LinkReport) -> String {
    let test = match (&link.self_test, &link.round_trips) {
        (None, None) => "nothing to test".to_owned(),
        (None, Some(trips)) => format!(
            "not made, so not tested: there and back {} (median of {}; 99 % within {})",
            units::seconds(trips.median_us / 1e6),
            trips.probes,
            units::seconds(trips.p99_us / 1e6)
        ),
        (Some(test), _) => {
            let verdict = if test.passed { "passed" } else { "failed" };
            let attempts = match test.attempts {
                1 => String::new(),
                n => format!(" at attempt {n}"),
            };
            let (down, up) = (found(&test.down), found(&test.up));
            format!("self-test {verdict}{attempts}: to the client {down}; to the server {up}")
        }
    };
    let emulator = link.emulator.as_ref().map(effort).unwrap_or_default();
    format!("Link {} ({}), {test}.{}{emulator}", link.name, link.backend, traces(link))
}

/// What the self-test leaves out.
fn traces(link: &LinkReport) -> String {
    let both = link.directions.iter();
    let ways = both.flat_map(|both| [("client", &both.down), ("server", &both.up)]);
    let told = ways.filter_map(|(end, way)| {
        let trace = way.trace.as_ref()?;
        Some(format!(
            " To the {end} it follows a trace of {}, {} on average, whose longest gap is {}; it is not tested.",
            units::seconds(trace.period_ms as f64 / 1e3),
            units::rate(trace.mean_bps as f64),
            units::seconds(trace.longest_gap_ms as f64 / 1e3)
        ))
    });
    told.collect()
}

fn found(test: &DirectionTest) -> String {
    let rate = test.rate.as_ref().map_or(String::new(), |rate| {
        let error_pct = units::signed(rate.error_pct, 2);
        format!("{} ({error_pct} %), ", units::rate(rate.measured_bps))
    });
    let delay = &test.delay;
    let asked = if delay.asked_us > 0.0 {
        format!("delay {} ", units::seconds(delay.asked_us / 1e6))
    } else {
        "delay ".to_owned()
    };
    format!(
        "{rate}{asked}{} µs (99 %: {} µs), {} of {} probes lost",
        units::signed(delay.median_error_us, 0),
        units::signed(delay.p99_error_us, 0),
        test.loss.lost,
        test.loss.sent
    )
}

/// The emulator takes one of the cores.
fn effort(emulator: &EmulatorReport) -> String {
    let own_drops = |of: &Counters| of.dropped_by_memory + of.dropped_by_kernel + of.malformed;
    let own = own_drops(&emulator.counters.down) + own_drops(&emulator.counters.up);
    let share = emulator
        .cpu_seconds
        .filter(|_| emulator.seconds > 0.0)
        .map_or("one core".to_owned(), |s| format!("{:.2} of a core", s / emulator.seconds));
    let drops = match own {
        0 => String::new(),
        n => format!(" and dropped {n} frames that the link did not ask for"),
    };
    format!(" The emulator took {share} on average{drops}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::RoundTrips;

    fn link() -> LinkReport {
        let way = r#"{"rate": {"asked_bps": 100000000, "measured_bps": 100030000.0, "error_pct": 0.03,
              "allowed_pct": 1.0, "passed": true},
            "delay": {"asked_us": 25000.0, "jitter_us": 0.0, "probes": 400, "median_error_us": 31.0,
              "p99_error_us": 88.0, "allowed_us": 100.0, "passed": true},
            "loss": {"asked_pct": 1.0, "sent": 4400, "lost": 41, "interval": [28, 62], "passed": true}}"#;
        let text = format!(
            r#"{{"name": "100mbit,delay=25ms,loss=1%", "backend": "veth, emulator", "offload": "off",
            "rate_bps": 100000000, "delay_ms": 25.0, "jitter_ms": 0.0, "loss_pct": 1.0, "queue_packets": 406,
            "rtt_us": 50050.0,
            "self_test": {{"passed": true, "attempts": 2, "down": {way}, "up": {way}}},
            "emulator": {{"counters": {{"down": {{"lost": 9, "dropped_by_kernel": 3}}, "up": {{}}}},
              "cpu_seconds": 0.5, "seconds": 10.0, "seed": 1}}}}"#
        );
        serde_json::from_str(&text).expect("a link")
    }

    #[test]
    fn a_link_is_told_in_one_line_with_its_figures() {
        let text = sentence(&link());
        assert_eq!(
            text,
            "Link 100mbit,delay=25ms,loss=1% (veth, emulator), self-test passed at attempt 2: to the client \
             100 Mbit/s (+0.03 %), delay 25 ms +31 µs (99 %: +88 µs), 41 of 4400 probes lost; to the server \
             100 Mbit/s (+0.03 %), delay 25 ms +31 µs (99 %: +88 µs), 41 of 4400 probes lost. \
             The emulator took 0.05 of a core on average and dropped 3 frames that the link did not ask for."
        );
    }

    #[test]
    fn a_real_link_says_how_long_there_and_back_takes() {
        let trips = RoundTrips { probes: 100, least_us: 180.0, median_us: 200.0, p99_us: 900.0 };
        let real = LinkReport {
            name: "unshaped".into(),
            backend: "real, a to b by eth0".into(),
            self_test: None,
            round_trips: Some(trips),
            emulator: None,
            ..link()
        };
        assert_eq!(
            sentence(&real),
            "Link unshaped (real, a to b by eth0), not made, so not tested: there and back 200 µs (median of 100; \
             99 % within 900 µs)."
        );
    }

    #[test]
    fn a_link_that_follows_a_trace_says_what_is_not_tested() {
        let traced = LinkReport {
            backend: "veth, emulator".into(),
            self_test: None,
            emulator: None,
            ..crate::analysis::models::tests::traced()
        };
        let text = sentence(&traced);
        let told = "follows a trace of 10 ms, 1.2 Mbit/s on average, whose longest gap is 10 ms; it is not tested.";
        assert_eq!(
            text,
            format!(
                "Link unshaped (veth, emulator), nothing to test. To the client it {told} To the server it {told}"
            )
        );
    }

    #[test]
    fn a_link_without_a_test_says_so() {
        let unshaped = LinkReport {
            name: "unshaped".into(),
            backend: "veth".into(),
            self_test: None,
            emulator: None,
            ..link()
        };
        assert_eq!(sentence(&unshaped), "Link unshaped (veth), nothing to test.");
    }
}
