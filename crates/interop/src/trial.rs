//! Holds the outcomes of cases.

use anyhow::{Result, bail};

use crate::case::{Case, Extras, Family, Side};
use crate::ping;

/// A case and its outcomes.
#[derive(Debug)]
pub struct Trial {
    /// The case.
    pub case: Case,
    /// We protect, the peer opens and rejects altered packets.
    pub outbound: Outcome,
    /// The peer protects, we open and reject altered packets.
    pub inbound: Outcome,
}

/// The outcome of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// The peer does not support it, and why.
    Lacks(&'static str),
    /// It failed, and how.
    Failed(String),
}

impl Outcome {
    /// Makes the outcome of a check.
    pub fn of(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => Self::Failed(format!("{error:#}")),
        }
    }
}

impl Trial {
    /// Returns a sentence for each direction that failed.
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

/// Makes an echo request from `side`'s inner address, with the case's options or
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

/// Flips one bit `from_end` bytes before the last one, and corrects a UDP checksum
/// over it, so that IPsec is what rejects the packet.
pub fn flip(packet: &[u8], from_end: usize) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let at = packet.len() - 1 - from_end;
    packet[at] ^= 0x10;
    ping::sum_udp(&mut packet);
    packet
}

/// Compares two packets.
///
/// # Errors
/// Describes the difference.
pub fn same(packet: &[u8], original: &[u8]) -> Result<()> {
    if packet.len() != original.len() {
        bail!("{} bytes came out, of a packet of {}", packet.len(), original.len());
    }
    let differs = packet.iter().zip(original).position(|(one, other)| one != other);
    match differs {
        Some(at) => bail!("byte {at} is {:#04x}, not {:#04x}", packet[at], original[at]),
        None => Ok(()),
    }
}
