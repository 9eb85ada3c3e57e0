//! DSCP and ECN (the TOS or Traffic Class byte) at the entry and at the exit of a tunnel.

use crate::reason::Reason;
use crate::spec::Dscp;

const ECN: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// How an association changes the byte, as tables.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Outer DSCP by inner DSCP, shifted left by two.
    outer_dscp: [u8; 64],
    /// Whether the inner header takes over the outer DSCP (RFC 2983, uniform model).
    inner_follows: bool,
    ecn: bool,
}

impl Rules {
    /// Makes the tables. `ecn` selects RFC 6040's normal mode, else its compatibility mode.
    pub fn new(dscp: &Dscp, ecn: bool) -> Self {
        let outer_dscp = std::array::from_fn(|inner| {
            let inner = inner as u8;
            let outer = match dscp {
                Dscp::Copy => inner,
                Dscp::Keep => 0,
                Dscp::Set(value) => *value,
                Dscp::Map(map) => map.get(&inner).copied().unwrap_or(inner),
            };
            outer << 2
        });
        Self { outer_dscp, inner_follows: *dscp == Dscp::Copy, ecn }
    }

    /// Returns the outer byte for a packet with this inner one.
    pub fn encapsulate(&self, inner: u8) -> u8 {
        let ecn = if self.ecn { inner & ECN } else { NOT_ECT };
        self.outer_dscp[usize::from(inner >> 2)] | ecn
    }

    /// Returns the new inner byte of a packet that arrived with these two (RFC 6040, figure 4, which
    /// is the same for both modes).
    ///
    /// # Errors
    /// [`Reason::EcnDropped`] if a router marked congestion on a packet without ECN support.
    pub fn decapsulate(&self, inner: u8, outer: u8) -> Result<u8, Reason> {
        let ecn = match (inner & ECN, outer & ECN) {
            (NOT_ECT, CE) => return Err(Reason::EcnDropped),
            (NOT_ECT, _) => NOT_ECT,
            (CE, _) | (_, CE) => CE,
            // ECT(0) under ECT(1) becomes ECT(1); all else stays
            (0b10, 0b01) => 0b01,
            (inner, _) => inner,
        };
        let dscp = if self.inner_follows { outer } else { inner } & !ECN;
        Ok(dscp | ecn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn figure_4_of_rfc_6040() {
        let rules = Rules::new(&Dscp::Keep, true);
        let (ect0, ect1) = (0b10, 0b01);
        let figure: [(u8, [Option<u8>; 4]); 4] = [
            // outer:     Not-ECT         ECT(0)          ECT(1)          CE
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ect0, [Some(ect0), Some(ect0), Some(ect1), Some(CE)]),
            (ect1, [Some(ect1), Some(ect1), Some(ect1), Some(CE)]),
            (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
        ];
        for (inner, row) in figure {
            for (outer, want) in [NOT_ECT, ect0, ect1, CE].into_iter().zip(row) {
                assert_eq!(
                    rules.decapsulate(inner, outer).ok(),
                    want,
                    "{inner:02b} in {outer:02b}"
                );
            }
        }
    }

    #[test]
    fn copies_sets_maps_or_clears_dscp() {
        let map = Dscp::Map(BTreeMap::from([(46, 8)]));
        for (dscp, of_46, of_10) in
            [(Dscp::Copy, 46, 10), (Dscp::Set(5), 5, 5), (map, 8, 10), (Dscp::Keep, 0, 0)]
        {
            let rules = Rules::new(&dscp, true);
            assert_eq!(rules.encapsulate(46 << 2 | 0b10), of_46 << 2 | 0b10);
            assert_eq!(rules.encapsulate(10 << 2), of_10 << 2);
        }
        assert_eq!(Rules::new(&Dscp::Copy, false).encapsulate(46 << 2 | 0b10), 46 << 2);
        assert_eq!(Rules::new(&Dscp::Copy, true).decapsulate(10 << 2, 46 << 2), Ok(46 << 2));
        assert_eq!(Rules::new(&Dscp::Keep, true).decapsulate(10 << 2, 46 << 2), Ok(10 << 2));
    }
}
