//! Congestion control of QUIC's streams: the rate control of lanes, on what QUIC's
//! acknowledgements say.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use headroom_transfer_proto::rate::{self, Priority, RateConfig, Report};
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

use super::delivery::Delivery;

/// Packets that one ping may take: other frames may wait ahead of it.
const PING_PACKETS: u64 = 4;
/// Packets in flight beyond what the rate asks for: acknowledged is every second, and the last
/// ones late.
const SPARE_PACKETS: u64 = 3;

/// Makes a controller for each path of a connection.
#[derive(Debug)]
pub(crate) struct Congestion;

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(OnPath::new(now, mtu))
    }
}

/// The controller of one path.
#[derive(Clone)]
pub(super) struct OnPath {
    started: Instant,
    rate: rate::Controller,
    delivery: Delivery,
    in_flight: u64,
    mtu: u64,
    /// Pings that wait for a packet; shared with the copies that quinn hands out.
    pings: Arc<AtomicU32>,
    /// The number of the priority; shared likewise.
    priority: Arc<AtomicU8>,
}

impl OnPath {
    pub(super) fn new(now: Instant, mtu: u16) -> Self {
        Self {
            started: now,
            rate: rate::Controller::new(RateConfig::default(), mtu.into()),
            delivery: Delivery::new(now),
            in_flight: 0,
            mtu: mtu.into(),
            pings: Arc::default(),
            priority: Arc::new(AtomicU8::new(Priority::default() as u8)),
        }
    }

    /// Lets one ping pass a full window.
    pub(super) fn expect_ping(&self) {
        self.pings.store(1, Ordering::Relaxed);
    }

    /// Sets the share beside others.
    pub(super) fn prioritize(&self, priority: Priority) {
        self.priority.store(priority as u8, Ordering::Relaxed);
    }

    fn report(&mut self, now: Instant, report: &Report) {
        let number = self.priority.load(Ordering::Relaxed);
        self.rate.set_priority(Priority::ALL.get(usize::from(number)).copied().unwrap_or_default());
        self.rate.report(self.at(now), report);
    }

    fn at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }
}

impl Controller for OnPath {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.pings.store(0, Ordering::Relaxed);
        self.delivery.sent(now, self.in_flight == 0);
        self.in_flight = self.in_flight.saturating_add(bytes);
    }

    fn on_ack(
        &mut self,
        _now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        self.delivery.acked(sent, bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.in_flight = in_flight;
        let Some(sample) = self.delivery.end(now, in_flight, app_limited) else { return };
        let rtt = now.saturating_duration_since(sample.sent);
        let report = Report {
            acked: sample.acked,
            rtt: Some(rtt),
            rate: sample.rate,
            limited: sample.limited,
            in_flight,
            delivered: self.delivery.delivered(),
            delivered_before: sample.delivered_before,
            ..Report::default()
        };
        self.report(now, &report);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        if is_persistent_congestion {
            self.rate.fall_silent();
            return;
        }
        let report = Report {
            lost: lost_bytes,
            lost_sent: self.at(sent),
            in_flight: self.in_flight,
            delivered: self.delivery.delivered(),
            // QUIC reports a mark as a loss of nothing
            congested: lost_bytes == 0,
            ..Report::default()
        };
        self.report(now, &report);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu.into();
        self.rate.set_mss(new_mtu.into());
    }

    /// Returns the bytes that may be in flight. quinn paces by a window per round trip and sets no
    /// rate, so that the window is what the rate sends in a round trip, if that is less.
    fn window(&self) -> u64 {
        let window = self.rate.window();
        let paced = self.rate.round_trip().map(|round_trip| {
            let bytes = self.rate.rate() * round_trip.as_secs_f64();
            (bytes as u64).saturating_add(SPARE_PACKETS * self.mtu)
        });
        let window = paced.map_or(window, |paced| window.min(paced));
        match self.pings.load(Ordering::Relaxed) {
            0 => window,
            _ => window.max(self.in_flight + PING_PACKETS * self.mtu),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = Some((self.rate.rate() * 8.0) as u64);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        rate::Controller::new(RateConfig::default(), self.mtu as usize).window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_silence_streams_begin_again_with_the_initial_window() {
        const MS: Duration = Duration::from_millis(1);
        let now = Instant::now();
        let mut path = OnPath::new(now, 1200);
        let initial = path.window();
        path.on_sent(now, 1200, 1);
        path.delivery.acked(now, 1200);
        path.on_end_acks(now + 50 * MS, 0, false, Some(1));
        assert!(path.window() > initial);
        path.on_congestion_event(now + 1000 * MS, now + 100 * MS, true, 1200);
        assert_eq!(path.window(), initial);
    }
}
