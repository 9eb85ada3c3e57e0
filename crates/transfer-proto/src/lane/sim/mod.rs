//! A network in virtual time: flows through one bottleneck, seeded, the same
//! every time.

mod bbr;
mod inelastic;
mod link;
mod outages;
mod points;
mod priority;
mod reference;
mod shallow;
mod sharing;
mod tail;
mod transport;
mod world;

use link::{Link, Losses};
use world::{Opener, Ours, World};

/// SplitMix64: enough for chance, and the same on every machine.
#[derive(Debug, Clone)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.share() < share
    }
}
