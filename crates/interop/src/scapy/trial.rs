//! Tests a case against scapy: packets of several lengths in each direction, and a flipped bit.

use anyhow::{Context, Result, bail};
use headroom_ipsec::Reason;
use headroom_packet::ip::Ip;

use super::Scapy;
use crate::case::{Case, Family, Protection, Side};
use crate::ours::{self, Ours};
use crate::trial::{Outcome, Trial, flip, request, same};

/// Bytes of data in the echo requests: every padding, and a long one.
const LENGTHS: [usize; 5] = [0, 1, 2, 15, 1200];

/// Bytes of AH before its ICV (RFC 4302, section 2).
const AH_FIXED_LEN: usize = 12;

/// Explains what scapy does not support when it protects.
fn lacks(case: &Case) -> Option<&'static str> {
    let padded = case.outer == Family::V4 && case.ah_alignment == 8;
    padded.then_some(
        "scapy pads AH over IPv4 to 4 bytes; it accepts padding to 8, but does not produce it",
    )
}

/// Tests a case in both directions.
pub fn try_case(scapy: &mut Scapy, case: Case) -> Trial {
    Trial {
        case,
        outbound: Outcome::of(outbound(scapy, &case)),
        inbound: lacks(&case).map_or_else(|| Outcome::of(inbound(scapy, &case)), Outcome::Lacks),
    }
}

/// Offsets from the end at which a bit is flipped: the last byte, another one among
/// the last dozen (ESP's ICV, AH's payload), and the last of ESP's ciphertext or
/// the first of AH's ICV.
fn bits(case: &Case, sealed: &[u8]) -> [usize; 3] {
    let third = match case.protection {
        Protection::Esp(suite) => suite.icv_len(),
        Protection::Ah(_) | Protection::AhOverEsp(..) => {
            let ah = Ip::parse(sealed).map_or(0, |ip| ip.upper_offset());
            sealed.len() - 1 - (ah + AH_FIXED_LEN)
        }
    };
    [0, 6, third]
}

/// The first sequence number: with ESN one whose upper half is not zero.
fn first(case: &Case) -> u64 {
    if case.extended { (7 << 32) + 1000 } else { 1000 }
}

fn outbound(scapy: &mut Scapy, case: &Case) -> Result<()> {
    let mut ours = Ours::new(case, first(case))?;
    for (number, length) in (first(case)..).zip(LENGTHS) {
        let packet = request(case, Side::Ours, 7, length as u16, &vec![0x5a; length]);
        let sealed = ours.seal(&packet)?;
        let opened = scapy.open(case, Side::Ours, number, &sealed)?;
        same(&opened, &packet).with_context(|| format!("scapy opened {length} bytes of data"))?;
        for from_end in bits(case, &sealed) {
            if scapy.open(case, Side::Ours, number, &flip(&sealed, from_end)).is_ok() {
                bail!("scapy opened a packet with a bit flipped {from_end} bytes before its end");
            }
        }
    }
    Ok(())
}

fn inbound(scapy: &mut Scapy, case: &Case) -> Result<()> {
    let ours = Ours::new(case, first(case))?;
    for (number, length) in (first(case)..).zip(LENGTHS) {
        let packet = request(case, Side::Theirs, 7, length as u16, &vec![0x5a; length]);
        let sealed = scapy.seal(case, Side::Theirs, number, &packet)?;
        for from_end in bits(case, &sealed) {
            match ours.open(&flip(&sealed, from_end)) {
                Err(Reason::Forged) => {}
                other => bail!("a bit flipped {from_end} bytes before the end gave {other:?}"),
            }
        }
        let opened =
            ours.open(&sealed).with_context(|| format!("opening {length} bytes of data"))?;
        if ours::header_is_made_anew(case) {
            ours::same_apart_from_header(&opened, &packet)?;
        } else {
            same(&opened, &packet)?;
        }
        match ours.open(&sealed) {
            Err(Reason::Replay) => {}
            other => bail!("the packet once more gave {other:?}"),
        }
    }
    Ok(())
}
