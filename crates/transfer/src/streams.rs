//! Congestion control of QUIC's streams, and their recovery from outages.
//!
//! Streams carry what lanes do not, over the same long and lossy paths. quinn's default, CUBIC,
//! takes each loss for congestion: with 0.3 % of random loss and 70 ms it achieves 3 % of 100
//! Mbit/s. Its BBR follows the delivery rate.
//!
//! After an outage QUIC waits for its probe timeout, which doubles without a bound (RFC 9002,
//! section 6.2.1): after 15 seconds it may be silent for as long again. Here each end that has
//! received nothing for a while requests an acknowledgement every second, beyond the congestion
//! window as a probe timeout may (RFC 9002, section 7.5). From a client whose address has
//! changed, this tells the server the new one.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use quinn::congestion::{BbrConfig, Controller, ControllerFactory, ControllerMetrics};
use quinn::{Connection, VarInt};
use quinn_proto::RttEstimator;

/// How long an end waits without packets before it pings, and the interval of pings.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// Packets that one ping may take: other frames may wait ahead of it.
const PACKETS: u64 = 4;

/// Makes a controller for each path of a connection.
#[derive(Debug, Default)]
pub(crate) struct Congestion(Arc<BbrConfig>);

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let rate = Arc::clone(&self.0).build(now, mtu);
        Box::new(OnPath { rate, in_flight: 0, mtu: u64::from(mtu), questions: Arc::default() })
    }
}

/// The controller of one path.
struct OnPath {
    rate: Box<dyn Controller>,
    in_flight: u64,
    mtu: u64,
    /// Pings that wait for a packet; shared with the copies that quinn hands out.
    questions: Arc<AtomicU32>,
}

impl Controller for OnPath {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.in_flight = self.in_flight.saturating_add(bytes);
        self.questions.store(0, Ordering::Relaxed);
        self.rate.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.rate.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.in_flight = in_flight;
        self.rate.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        self.rate.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = u64::from(new_mtu);
        self.rate.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        let window = self.rate.window();
        match self.questions.load(Ordering::Relaxed) {
            0 => window,
            _ => window.max(self.in_flight + PACKETS * self.mtu),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.rate.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let questions = Arc::clone(&self.questions);
        let Self { in_flight, mtu, .. } = *self;
        Box::new(Self { rate: self.rate.clone_box(), in_flight, mtu, questions })
    }

    fn initial_window(&self) -> u64 {
        self.rate.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Pings the peer every second in which nothing arrived, until the connection ends. `window`
/// returns the connection's current receive window.
pub(crate) async fn ping_when_silent(connection: &Connection, window: impl Fn() -> u32) {
    let mut received = connection.stats().udp_rx.datagrams;
    loop {
        tokio::select! {
            _ = connection.closed() => return,
            () = tokio::time::sleep(ASK_INTERVAL) => {}
        }
        let now = connection.stats().udp_rx.datagrams;
        if std::mem::replace(&mut received, now) == now {
            ask(connection, window());
        }
    }
}

/// Sends a packet that the peer acknowledges. quinn has no call for a PING; widening the window
/// by one byte, and back, causes a `MAX_DATA` frame.
fn ask(connection: &Connection, window: u32) {
    if let Ok(path) = connection.congestion_state().into_any().downcast::<OnPath>() {
        path.questions.store(1, Ordering::Relaxed);
    }
    connection.set_receive_window(VarInt::from_u32(window.saturating_add(1)));
    connection.set_receive_window(VarInt::from_u32(window));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1200;

    fn controller(now: Instant) -> Box<dyn Controller> {
        Arc::new(Congestion::default()).build(now, MTU)
    }

    #[test]
    fn random_loss_does_not_close_the_window() {
        let now = Instant::now();
        let mut streams = controller(now);
        let mut cubic = Arc::new(quinn::congestion::CubicConfig::default()).build(now, MTU);
        for one in [&mut streams, &mut cubic] {
            for number in 0..8 {
                one.on_sent(now, MTU.into(), number);
            }
        }
        let before = [streams.window(), cubic.window()];
        for nth in 0..5 {
            let sent = now + nth * Duration::from_millis(100);
            for one in [&mut streams, &mut cubic] {
                one.on_congestion_event(sent + Duration::from_millis(70), sent, false, MTU.into());
            }
        }
        assert!(cubic.window() < before[1] / 2, "a loss is congestion to CUBIC");
        assert_eq!(streams.window(), before[0]);
    }

    #[test]
    fn a_ping_passes_a_full_window_once() {
        let now = Instant::now();
        let mut path = OnPath {
            rate: controller(now),
            in_flight: 0,
            mtu: MTU.into(),
            questions: Arc::default(),
        };
        let window = path.window();
        let full = window + 10 * u64::from(MTU);
        path.on_sent(now, full, 1);
        assert_eq!(path.window(), window, "nothing more is sent");
        // the connection hands out copies
        let copy = path.clone_box().into_any().downcast::<OnPath>().expect("a controller of ours");
        copy.questions.store(1, Ordering::Relaxed);
        assert_eq!(path.window(), full + PACKETS * u64::from(MTU));
        path.on_sent(now, MTU.into(), 2);
        assert_eq!(path.window(), window, "it was sent");
    }
}
