//! Lists test cases: protocols, mode, families, suite, extended sequence numbers
//! and encapsulation, in every valid combination.

use std::fmt;
use std::net::IpAddr;

use headroom_ipsec::spec::Mode;
use headroom_suite::{Aead, Cipher, Key, Mac, Suite};

/// A configuration of IPsec between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Protocols and their algorithms.
    pub protection: Protection,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// The family of the outer addresses.
    pub outer: Family,
    /// The family of the protected packet; in transport mode that of the outer addresses.
    pub inner: Family,
    /// Extended sequence numbers.
    pub extended: bool,
    /// ESP in UDP (RFC 3948).
    pub udp: bool,
    /// Options or extension headers of the protected packet, in transport mode.
    pub extras: Extras,
    /// Alignment of AH, bytes: over IPv6 8; over IPv4 4 (RFC 4302, section
    /// 2.6), or 8, Linux's default.
    pub ah_alignment: usize,
}

/// Protocols and algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// RFC 4303.
    Esp(Suite),
    /// RFC 4302.
    Ah(Mac),
    /// AH over ESP.
    AhOverEsp(Mac, Suite),
}

/// Address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Additions to the fixed part of an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extras {
    /// Nothing.
    None,
    /// IPv4 options or IPv6 extension headers, some of them mutable.
    Some,
}

/// The two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This one.
    Ours,
    /// The peer.
    Theirs,
}

/// An association of a case.
#[derive(Debug, Clone)]
pub struct Association {
    /// The sender; the other side opens.
    pub from: Side,
    /// Security parameters index.
    pub spi: u32,
    /// Its algorithms and keys.
    pub guard: Guard,
    /// The case's mode; AH over ESP uses transport mode.
    pub mode: Mode,
}

/// The algorithms of one association and their keys.
#[derive(Debug, Clone)]
pub enum Guard {
    /// ESP's suite, its key, and the key of a separate integrity algorithm.
    Esp(Suite, Vec<u8>, Vec<u8>),
    /// AH's algorithm and key.
    Ah(Mac, Vec<u8>),
}

/// Ports of ESP in UDP, on both sides.
pub const UDP_PORT: u16 = 4500;

impl Case {
    /// Makes a case without extended sequence numbers and encapsulation.
    fn simple(protection: Protection, (mode, outer, inner): Shape) -> Self {
        let ah_alignment = if outer == Family::V4 { 4 } else { 8 };
        let (extended, udp, extras) = (false, false, Extras::None);
        Self { protection, mode, outer, inner, extended, udp, extras, ah_alignment }
    }

    /// Doubles a case: without and with extended sequence numbers.
    fn both_numbers(self) -> [Self; 2] {
        [false, true].map(|extended| Self { extended, ..self })
    }

    /// Lists every combination for ESP, alone and in UDP.
    pub fn esp() -> Vec<Self> {
        let mut cases = Vec::new();
        for suite in Suite::ALL {
            for udp in [false, true] {
                for shape in SHAPES {
                    let case = Self { udp, ..Self::simple(Protection::Esp(suite), shape) };
                    cases.extend(case.both_numbers());
                }
            }
        }
        cases
    }

    /// Lists ESP after IPv4 options and IPv6 extension headers: its position does not
    /// depend on the suite.
    pub fn esp_behind_extras() -> Vec<Self> {
        let mut cases = Vec::new();
        for suite in SUITES {
            for shape in [SHAPES[0], SHAPES[1]] {
                let case = Self::simple(Protection::Esp(suite), shape);
                cases.extend(Self { extras: Extras::Some, ..case }.both_numbers());
            }
        }
        cases
    }

    /// Lists every combination for AH, also after options and extension headers, and
    /// over IPv4 with both paddings.
    pub fn ah() -> Vec<Self> {
        let mut cases = Vec::new();
        for mac in Mac::ALL {
            for shape in SHAPES {
                let case = Self::simple(Protection::Ah(mac), shape);
                cases.extend(case.both_numbers());
                if case.mode == Mode::Transport {
                    cases.extend(Self { extras: Extras::Some, ..case }.both_numbers());
                }
                if case.outer == Family::V4 {
                    cases.extend(Self { ah_alignment: 8, ..case }.both_numbers());
                }
            }
        }
        cases
    }

    /// Lists AH over ESP: every integrity algorithm over an AEAD and over a suite with
    /// an integrity algorithm of its own.
    pub fn ah_over_esp() -> Vec<Self> {
        let mut cases = Vec::new();
        for mac in Mac::ALL {
            for suite in SUITES {
                for shape in SHAPES {
                    let case = Self::simple(Protection::AhOverEsp(mac, suite), shape);
                    cases.extend(case.both_numbers());
                }
            }
        }
        cases
    }

    /// Lists all cases.
    pub fn all() -> Vec<Self> {
        [Self::esp(), Self::esp_behind_extras(), Self::ah(), Self::ah_over_esp()].concat()
    }

    /// Selects a few dozen in which every suite and every algorithm of AH occurs, and
    /// every other property several times: for quick tests.
    pub fn selection() -> Vec<Self> {
        // One of each block of cases, each time a stride further on in it: with a
        // stride that has no factor in common with the block, all places have their turn.
        let spread = |cases: Vec<Self>, block: usize, stride: usize| {
            let nth = |nth: usize| cases[nth * block + nth * stride % block];
            (0..cases.len() / block).map(nth).collect::<Vec<_>>()
        };
        [
            spread(Self::esp(), 24, 7),
            spread(Self::esp_behind_extras(), 3, 2),
            spread(Self::ah(), 3, 2),
            spread(Self::ah_over_esp(), 6, 5),
        ]
        .concat()
    }

    /// Returns a side's address in the outer packet.
    pub fn outer_address(&self, side: Side) -> IpAddr {
        match (side, self.outer) {
            (Side::Ours, Family::V4) => IpAddr::from([10, 77, 0, 1]),
            (Side::Theirs, Family::V4) => IpAddr::from([10, 77, 0, 2]),
            (Side::Ours, Family::V6) => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, 1]),
            (Side::Theirs, Family::V6) => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, 2]),
        }
    }

    /// Returns a side's address in the protected packet.
    pub fn inner_address(&self, side: Side) -> IpAddr {
        match (self.mode, side, self.inner) {
            (Mode::Transport, ..) => self.outer_address(side),
            (_, Side::Ours, Family::V4) => IpAddr::from([10, 77, 1, 1]),
            (_, Side::Theirs, Family::V4) => IpAddr::from([10, 77, 2, 2]),
            (_, Side::Ours, Family::V6) => IpAddr::from([0xfd77, 1, 0, 0, 0, 0, 0, 1]),
            (_, Side::Theirs, Family::V6) => IpAddr::from([0xfd77, 2, 0, 0, 0, 0, 0, 2]),
        }
    }

    /// Returns the associations of one direction, from inner to outer.
    pub fn associations(&self, from: Side) -> Vec<Association> {
        let base = if from == Side::Ours { 0x1000 } else { 0x2000 };
        let esp = |suite: Suite| Association {
            from,
            spi: base + 1,
            guard: Guard::Esp(
                suite,
                key(base + 1, suite.key_len()),
                key(base + 2, suite.mac_key_len()),
            ),
            mode: self.mode,
        };
        let ah = |mac: Mac, mode| Association {
            from,
            spi: base + 3,
            guard: Guard::Ah(mac, key(base + 3, mac.key_len())),
            mode,
        };
        match self.protection {
            Protection::Esp(suite) => vec![esp(suite)],
            Protection::Ah(mac) => vec![ah(mac, self.mode)],
            Protection::AhOverEsp(mac, suite) => vec![esp(suite), ah(mac, Mode::Transport)],
        }
    }

    /// Names the protocols: `ESP`, `AH` or `AH+ESP`.
    pub fn protocols(&self) -> &'static str {
        match self.protection {
            Protection::Esp(_) => "ESP",
            Protection::Ah(_) => "AH",
            Protection::AhOverEsp(..) => "AH+ESP",
        }
    }

    /// Names mode, families and encapsulation.
    pub fn shape(&self) -> String {
        let mode = if self.mode == Mode::Transport { "transport" } else { "tunnel" };
        let families = match self.mode {
            Mode::Transport => self.outer.to_string(),
            Mode::Tunnel => format!("{} in {}", self.inner, self.outer),
        };
        let udp = if self.udp { ", in UDP" } else { "" };
        let extras = match (self.extras, self.outer) {
            (Extras::None, _) => "",
            (Extras::Some, Family::V4) => ", options",
            (Extras::Some, Family::V6) => ", extension headers",
        };
        let padded = match (self.ah_alignment, self.outer) {
            (8, Family::V4) => ", AH padded to 8",
            _ => "",
        };
        format!("{mode}, {families}{extras}{udp}{padded}")
    }

    /// Names the algorithms.
    pub fn algorithms(&self) -> String {
        match self.protection {
            Protection::Esp(suite) => suite.to_string(),
            Protection::Ah(mac) => mac.to_string(),
            Protection::AhOverEsp(mac, suite) => format!("{mac} over {suite}"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let esn = if self.extended { ", ESN" } else { "" };
        write!(f, "{} {}, {}{esn}", self.protocols(), self.algorithms(), self.shape())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::V4 { "IPv4" } else { "IPv6" })
    }
}

impl Guard {
    /// Returns ESP's key in the format of our suites.
    pub fn key(&self) -> Key {
        match self {
            Self::Esp(_, key, _) | Self::Ah(_, key) => Key::from_bytes(key),
        }
    }
}

/// A mode, outer and inner family.
type Shape = (Mode, Family, Family);

/// Both families in transport mode, and all four tunnels.
const SHAPES: [Shape; 6] = [
    (Mode::Transport, Family::V4, Family::V4),
    (Mode::Transport, Family::V6, Family::V6),
    (Mode::Tunnel, Family::V4, Family::V4),
    (Mode::Tunnel, Family::V6, Family::V6),
    (Mode::Tunnel, Family::V4, Family::V6),
    (Mode::Tunnel, Family::V6, Family::V4),
];

/// One AEAD, and one with a separate integrity algorithm.
const SUITES: [Suite; 2] =
    [Suite::Aead(Aead::Aes128Gcm), Suite::Separate(Cipher::Aes128Cbc, Mac::HmacSha1)];

/// Makes a fixed test key without repetitions, different for every `label`.
fn key(label: u32, len: usize) -> Vec<u8> {
    let mut state = label;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_has_every_suite_and_every_shape() {
        let selection = Case::selection();
        for suite in Suite::ALL {
            assert!(
                selection.iter().any(|case| case.protection == Protection::Esp(suite)),
                "{suite}"
            );
        }
        for shape in Case::all().iter().map(Case::shape) {
            assert!(selection.iter().any(|case| case.shape() == shape), "{shape}");
        }
        for protocols in ["ESP", "AH", "AH+ESP"] {
            for extended in [false, true] {
                let with =
                    |case: &&Case| case.protocols() == protocols && case.extended == extended;
                assert!(selection.iter().filter(with).count() >= 5, "{protocols} {extended}");
            }
        }
    }
}
