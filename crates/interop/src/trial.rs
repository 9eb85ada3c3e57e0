//! What came of trying a case against a peer.

use anyhow::{Result, bail};

use crate::case::{Case, Extras, Family, Side};
use crate::ping;

/// A case and what came of it.
#[derive(Debug)]
pub struct Trial {
    /// What was tried.
    pub case: Case,
    /// We protect, the peer opens; and it refuses what was altered.
    pub outbound: Outcome,
    /// The peer protects, we open; and we refuse what was altered.
    pub inbound: Outcome,
}

/// What came of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All went as it should.
    Passed,
    /// The peer does not do this, and how so.
    Lacks(&'static str),
    /// What went wrong.
    Failed(String),
}

impl Outcome {
    /// What a check gave.
    pub fn of(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => Self::Failed(format!("{error:#}")),
        }
    }
}

impl Trial {
    /// A sentence for each direction that failed.
    pub fn failures(&self) -> Vec<String> {
        let ways = [("outbound", &self.outbound), ("inbound", &self.inbound)];
        ways.into_iter()
            .filter_map(|(way, outcome)| match outcome {
                Outcome::Failed(why) => Some(format!("{}, {way}: {why}", self.case)),
                _ => None,
            })
            .collect()
    }
}

/// An echo request from `side`'s inner address, with the case's options or
/// extension headers.
pub fn request(case: &Case, from: Side, id: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    let to = if from == Side::Ours { Side::Theirs } else { Side::Ours };
    let packet =
        ping::request(case.inner_address(from), case.inner_address(to), id, sequence, data);
    match (case.extras, case.inner) {
        (Extras::None, _) => packet,
        (Extras::Some, Family::V4) => ping::with_options(&packet, OPTIONS),
        (Extras::Some, Family::V6) => ping::with_extensions(&packet),
    }
}

/// No operation; router alert, which AH covers (RFC 4302, appendix A1); record
/// route, which it does not.
const OPTIONS: &[u8] = &[1, 148, 4, 0, 0, 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0];

/// Inverts one bit `from_end` octets before the last one. A UDP checksum over it
/// is made right again, so that IPsec is what refuses the packet.
pub fn flip(packet: &[u8], from_end: usize) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let at = packet.len() - 1 - from_end;
    packet[at] ^= 0x10;
    ping::sum_udp(&mut packet);
    packet
}

/// That two packets are one.
///
/// # Errors
/// Says what differs.
pub fn same(packet: &[u8], original: &[u8]) -> Result<()> {
    if packet.len() != original.len() {
        bail!("{} octets came out, of a packet of {}", packet.len(), original.len());
    }
    let differs = packet.iter().zip(original).position(|(one, other)| one != other);
    match differs {
        Some(at) => bail!("octet {at} is {:#04x}, not {:#04x}", packet[at], original[at]),
        None => Ok(()),
    }
}
