//! Exchanges packets with the machine, in Ethernet frames through a socketpair.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Our MAC address on the link.
pub(super) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The machine's MAC address.
pub(super) const ITS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Bytes of the longest frame.
const LONGEST: usize = 4096;

/// Our end of the machine's network card.
#[derive(Debug)]
pub struct Frames(pub(super) UnixDatagram);

impl Frames {
    /// Sends an IP packet to the machine.
    ///
    /// # Errors
    /// The machine has stopped.
    pub fn send(&self, packet: &[u8]) -> Result<()> {
        let ethertype = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        let frame = [&ITS_MAC[..], &OUR_MAC, &ethertype, packet].concat();
        self.0.send(&frame).context("sending a frame to the machine")?;
        Ok(())
    }

    /// Returns the next IP packet from the machine; `None`: none
    /// arrives within `limit`. It keeps the padding of short frames.
    ///
    /// # Errors
    /// The machine has stopped.
    pub fn receive(&self, limit: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + limit;
        let mut frame = vec![0; LONGEST];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.0.set_read_timeout(Some(left)).context("waiting for a frame")?;
            let length = match self.0.recv(&mut frame) {
                Ok(length) => length,
                Err(error) => match error.kind() {
                    std::io::ErrorKind::WouldBlock => return Ok(None),
                    std::io::ErrorKind::Interrupted => continue,
                    _ => return Err(error).context("reading a frame of the machine"),
                },
            };
            let is_ip = matches!(frame[12..14], [0x08, 0x00] | [0x86, 0xdd]);
            if length > 14 && frame[..6] == OUR_MAC && is_ip {
                return Ok(Some(frame[14..length].to_vec()));
            }
        }
    }
}
