//! Randomness, passed in by the caller.

/// Where random bytes come from. AWS-LC draws those of ML-KEM itself.
pub trait Random {
    /// Fills `bytes` with random bytes, from a generator that is fit for keys.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// The generator of AWS-LC, seeded by the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// The system has no random bytes: no key may be made then.
    fn fill(&mut self, bytes: &mut [u8]) {
        aws_lc_rs::rand::fill(bytes).expect("the system has random bytes");
    }
}
