//! What is tried: protocols, mode, families, suite, extended sequence numbers
//! and encapsulation, in every combination that makes sense.

use std::fmt;
use std::net::IpAddr;

use headroom_ipsec::spec::Mode;
use headroom_suite::{Aead, Cipher, Key, Mac, Suite};

/// One way for two hosts to protect packets between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Which protocols, with which algorithms.
    pub protection: Protection,
    /// Transport or tunnel.
    pub mode: Mode,
    /// The family of the outer addresses.
    pub outer: Family,
    /// The family of the protected packet; in transport mode the same.
    pub inner: Family,
    /// Extended sequence numbers.
    pub extended: bool,
    /// ESP in UDP (RFC 3948).
    pub udp: bool,
    /// What the protected packet's IP header carries in transport mode.
    pub extras: Extras,
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

/// What stands in an IP header beside its fixed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extras {
    /// Nothing.
    None,
    /// IPv4 options, or IPv6 extension headers; some change on the way.
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
    /// Who protects; the other opens.
    pub from: Side,
    /// Security parameters index.
    pub spi: u32,
    /// How it protects.
    pub guard: Guard,
    /// ESP and lone AH have the case's mode; AH over ESP is in transport mode.
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
    /// Every combination for ESP.
    pub fn esp() -> Vec<Self> {
        let mut cases = Vec::new();
        for suite in Suite::ALL {
            for extended in [false, true] {
                for udp in [false, true] {
                    for (mode, outer, inner) in shapes() {
                        let protection = Protection::Esp(suite);
                        let extras = Extras::None;
                        cases.push(Self { protection, mode, outer, inner, extended, udp, extras });
                    }
                }
            }
        }
        cases
    }

    /// Every combination for AH.
    pub fn ah() -> Vec<Self> {
        let mut cases = Vec::new();
        for mac in Mac::ALL {
            for extended in [false, true] {
                for (mode, outer, inner) in shapes() {
                    for extras in [Extras::None, Extras::Some] {
                        if mode == Mode::Transport || extras == Extras::None {
                            let protection = Protection::Ah(mac);
                            let udp = false;
                            cases.push(Self {
                                protection,
                                mode,
                                outer,
                                inner,
                                extended,
                                udp,
                                extras,
                            });
                        }
                    }
                }
            }
        }
        cases
    }

    /// AH over ESP: every integrity algorithm over an AEAD and over a suite with
    /// an integrity algorithm of its own.
    pub fn ah_over_esp() -> Vec<Self> {
        let suites =
            [Suite::Aead(Aead::Aes128Gcm), Suite::Separate(Cipher::Aes128Cbc, Mac::HmacSha1)];
        let mut cases = Vec::new();
        for mac in Mac::ALL {
            for suite in suites {
                for extended in [false, true] {
                    for (mode, outer, inner) in shapes() {
                        let protection = Protection::AhOverEsp(mac, suite);
                        let (udp, extras) = (false, Extras::None);
                        cases.push(Self { protection, mode, outer, inner, extended, udp, extras });
                    }
                }
            }
        }
        cases
    }

    /// All of them.
    pub fn all() -> Vec<Self> {
        [Self::esp(), Self::ah(), Self::ah_over_esp()].concat()
    }

    /// A few dozen in which every suite and every algorithm of AH occurs, and
    /// each of the rest in many places: for tests that have not much time.
    pub fn selection() -> Vec<Self> {
        // A stride that shares no factor with a block's length visits all its
        // places in turn.
        let spread = |cases: Vec<Self>, block: usize, stride: usize| {
            let blocks = cases.len() / block;
            (0..blocks)
                .map(move |nth| cases[nth * block + nth * stride % block])
                .collect::<Vec<_>>()
        };
        let esp = Self::esp();
        let ah = Self::ah();
        let both = Self::ah_over_esp();
        [spread(esp, 24, 7), spread(ah, 3, 2), spread(both, 6, 5)].concat()
    }

    /// Whether `side`'s associations towards the other use IPv4 outside.
    pub fn outer_address(&self, side: Side) -> IpAddr {
        match (side, self.outer) {
            (Side::Ours, Family::V4) => IpAddr::from([10, 77, 0, 1]),
            (Side::Theirs, Family::V4) => IpAddr::from([10, 77, 0, 2]),
            (Side::Ours, Family::V6) => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, 1]),
            (Side::Theirs, Family::V6) => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, 2]),
        }
    }

    /// The address in the protected packet.
    pub fn inner_address(&self, side: Side) -> IpAddr {
        match (self.mode, side, self.inner) {
            (Mode::Transport, ..) => self.outer_address(side),
            (_, Side::Ours, Family::V4) => IpAddr::from([10, 77, 1, 1]),
            (_, Side::Theirs, Family::V4) => IpAddr::from([10, 77, 2, 2]),
            (_, Side::Ours, Family::V6) => IpAddr::from([0xfd77, 1, 0, 0, 0, 0, 0, 1]),
            (_, Side::Theirs, Family::V6) => IpAddr::from([0xfd77, 2, 0, 0, 0, 0, 0, 2]),
        }
    }

    /// The associations of one direction, from the inside to the outside.
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

    /// `ESP`, `AH` or `AH+ESP`.
    pub fn protocols(&self) -> &'static str {
        match self.protection {
            Protection::Esp(_) => "ESP",
            Protection::Ah(_) => "AH",
            Protection::AhOverEsp(..) => "AH+ESP",
        }
    }

    /// Mode, families and encapsulation.
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
        format!("{mode}, {families}{extras}{udp}")
    }

    /// The algorithms.
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
    /// The key of ESP as our suites take it.
    pub fn key(&self) -> Key {
        match self {
            Self::Esp(_, key, _) | Self::Ah(_, key) => Key::from_bytes(key),
        }
    }
}

/// Both transport shapes and all four tunnels: mode, outer and inner family.
fn shapes() -> [(Mode, Family, Family); 6] {
    use Family::{V4, V6};
    [
        (Mode::Transport, V4, V4),
        (Mode::Transport, V6, V6),
        (Mode::Tunnel, V4, V4),
        (Mode::Tunnel, V6, V6),
        (Mode::Tunnel, V4, V6),
        (Mode::Tunnel, V6, V4),
    ]
}

/// A key for tests: fixed, without repetition in it, different for every `label`.
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
