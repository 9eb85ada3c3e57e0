//! The controller by what single reports do to it.

use super::*;

/// Competes from `window` bytes on, on a path of 50 ms that carried 100 Mbit/s and now carries
/// `carries` bytes per second, while others have `others` bytes in flight. Returns its window
/// after 200 round trips.
fn caught_up(window: f64, others: f64, carries: f64) -> f64 {
    let mut control = Controller::new(RateConfig::default(), 1200);
    control.model.sample_rtt(Duration::ZERO, Duration::from_millis(50));
    control.cubic = Cubic::new(Duration::ZERO, window, 1200.0, 1.0);
    (control.known_capacity, control.may_catch_up) = (12.5e6, true);
    for round in 0..200 {
        let window = control.cubic.window();
        let rtt = (window + others) / carries;
        let report = Report { rate: Some(window / rtt), ..Report::default() };
        control.model.report(Duration::ZERO, &report);
        // of three rates the lowest counts
        if round >= 2 {
            control.catch_up(window, Duration::from_secs_f64(rtt));
        }
    }
    control.cubic.window()
}

#[test]
fn startup_takes_a_measured_capacity_only_until_congestion_follows() {
    let mut control = Controller::new(RateConfig::default(), 1200);
    control.model.sample_rtt(Duration::ZERO, Duration::from_millis(100));
    let mut reports = |report: Report| {
        control.report(Duration::from_millis(200), &report);
        assert_eq!(control.mode, Mode::Startup);
        control.window()
    };
    // ten million bytes per second at least, of which three quarters for 100 ms
    let capacity = Some(Capacity { bytes: 20_000.0, took: Duration::from_micros(1800) });
    let first = Report { acked: 12_000, delivered: 12_000, capacity, ..Report::default() };
    assert!((749_000..=751_000).contains(&reports(first)));
    let next = Report { delivered_before: 12_000, delivered: 24_000, ..Report::default() };
    let overflow = Report { acked: 12_000, lost: 400_000, congested: true, ..next };
    assert!((349_000..=351_000).contains(&reports(overflow)));
    let grown = reports(Report { acked: 1200, delivered: 25_200, ..next });
    assert!((350_000..=353_000).contains(&grown), "{grown}");
}

#[test]
fn a_competitor_that_becomes_a_scavenger_retreats_at_once() {
    let mut control = Controller::new(RateConfig::default(), 1200);
    control.model.sample_rtt(Duration::ZERO, Duration::from_millis(50));
    control.mode = Mode::Compete;
    control.probe_rtt_at = Duration::from_secs(20);
    control.probe_rtt_alone_at = control.probe_rtt_at;
    let report = Report { acked: 1200, delivered: 1200, ..Report::default() };
    control.report(Duration::from_secs(1), &report);
    assert_eq!(control.mode, Mode::Compete);
    control.set_priority(Priority::Scavenger);
    control.report(Duration::from_secs(2), &report);
    assert!(matches!(control.mode, Mode::Retreat { .. }), "{:?}", control.mode);
}

#[test]
fn congestion_leads_to_a_probe_for_competitors_only_where_that_can_find_some() {
    let ms = Duration::from_millis(1);
    for (overflows_at, probes_for_others) in [(11_u32, false), (14, true)] {
        let mut control = Controller::new(RateConfig::default(), 1200);
        control.model.sample_rtt(Duration::ZERO, 10 * ms);
        let rtt = Some(overflows_at * ms);
        let overflow = Report { acked: 80_000, lost: 20_000, rtt, ..Report::default() };
        control.model.report(10 * ms, &overflow);
        control.model.note_congestion();
        control.model.end_round();
        (control.cycles, control.saw_congestion) = (2, true);
        control.end_cycle(20 * ms, &overflow);
        let probed = matches!(control.mode, Mode::ProbeRtt { competing: true, .. });
        assert_eq!(probed, probes_for_others, "{overflows_at} ms: {:?}", control.mode);
    }
}

#[test]
fn the_window_catches_up_with_others_and_not_with_its_own_queue() {
    let window = caught_up(1e6, 8e6, 12.5e6);
    let share = window / (window + 8e6);
    assert!((0.44..0.46).contains(&share), "{share}");
    let window = caught_up(2e6, 0.0, 1.25e6);
    assert!(window < 2.3 * 2e6, "{window} bytes where the path carries a tenth");
}
