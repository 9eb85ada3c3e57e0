//! QUIC's streams: congestion control, and recovery from outages.
//!
//! Streams carry what lanes do not, over the same long and lossy paths, and share them with the
//! same others: so they follow the same rate control. quinn's own take each loss for congestion
//! (CUBIC: with 0.3 % of random loss and 70 ms it achieves 3 % of 100 Mbit/s once slow start has
//! ended), or hardly any (BBR: beside it one CUBIC flow got at most 0.3 of 95 Mbit/s in nine of
//! eleven runs, with 50 ms and a queue of one bandwidth-delay product).
//!
//! After an outage QUIC waits for its probe timeout, which doubles without a bound (RFC 9002,
//! section 6.2.1): after 15 seconds it may be silent for as long again. Here each end that has
//! received nothing for a while requests an acknowledgement every second, beyond the congestion
//! window as a probe timeout may (RFC 9002, section 7.5). From a client whose address has
//! changed, this tells the server the new one.

mod congestion;
mod delivery;
#[cfg(test)]
mod tests;

use std::time::Duration;

use headroom_transfer_proto::rate::Priority;
use quinn::{Connection, VarInt};

pub(crate) use self::congestion::Congestion;
use self::congestion::OnPath;

/// How long an end waits without packets before it pings, and the interval of pings.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Pings the peer every second in which nothing arrived, until the connection ends. `window`
/// returns the connection's current receive window.
pub(crate) async fn ping_when_silent(connection: &Connection, window: impl Fn() -> u32) {
    let mut received = connection.stats().udp_rx.datagrams;
    loop {
        tokio::select! {
            _ = connection.closed() => return,
            () = tokio::time::sleep(PING_INTERVAL) => {}
        }
        let now = connection.stats().udp_rx.datagrams;
        if std::mem::replace(&mut received, now) == now {
            ping(connection, window());
        }
    }
}

/// Sets the share that the connection's streams take beside others. On a path to another address
/// it is the normal one, until the next request.
pub(crate) fn prioritize(connection: &Connection, priority: Priority) {
    if let Ok(path) = connection.congestion_state().into_any().downcast::<OnPath>() {
        path.prioritize(priority);
    }
}

/// Sends a packet that the peer acknowledges. quinn has no call for a PING; widening the window
/// by one byte, and back, causes a `MAX_DATA` frame.
fn ping(connection: &Connection, window: u32) {
    if let Ok(path) = connection.congestion_state().into_any().downcast::<OnPath>() {
        path.expect_ping();
    }
    connection.set_receive_window(VarInt::from_u32(window.saturating_add(1)));
    connection.set_receive_window(VarInt::from_u32(window));
}
