//! TCP cross traffic beside a stream: one connection that sends as fast as the path allows.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::net::is_timeout;
use crate::session::{Request, connect};

/// Sends `fill` over TCP during `time`, in seconds after `begun`, then resets the
/// connection.
pub(crate) fn send_cross_traffic(
    to: SocketAddr,
    begun: Instant,
    time: &Range<f64>,
    fill: &[u8],
) -> io::Result<()> {
    let [start, end] = [time.start, time.end].map(|s| begun + Duration::from_secs_f64(s));
    thread::sleep(start.saturating_duration_since(Instant::now()));
    let mut socket = connect(to, &Request::Bulk)?;
    let block: Vec<u8> = fill.iter().copied().cycle().take(1 << 16).collect();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_write_timeout(Some(left))?;
        match socket.write(&block) {
            Err(error) if !is_timeout(&error) && error.kind() != io::ErrorKind::Interrupted => {
                return Err(error);
            }
            _ => {}
        }
    }
    reset(&socket)
}

/// Makes close(2) reset the connection and discard unsent data.
fn reset(socket: &TcpStream) -> io::Result<()> {
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    Ok(setsockopt(socket, sockopt::Linger, &at_once)?)
}
