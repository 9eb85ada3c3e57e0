//! The 2048-bit MODP group (RFC 3526 §3), for peers that have no elliptic curves.
//!
//! The modulus is a safe prime: 1 and p - 1 alone generate small subgroups, so it suffices that a
//! public value is neither (RFC 6989 §2.1). Powers are computed in constant time.

use crypto_bigint::modular::{ConstMontyForm, ConstMontyParams};
use crypto_bigint::{U512, U2048, const_monty_params};
use headroom_suite::Key;
use zeroize::Zeroizing;

use super::Random;

const_monty_params!(
    Modp2048,
    U2048,
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74\
     020bbea63b139b22514a08798e3404ddef9519b3cd3a431b302b0a6df25f1437\
     4fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed\
     ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf05\
     98da48361c55d39a69163fa8fd24cf5f83655d23dca3ad961c62f356208552bb\
     9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b\
     e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf695581718\
     3995497cea956ae515d2261898fa051015728e5a8aacaa68ffffffffffffffff",
    "The modulus of the 2048-bit MODP group"
);

type Element = ConstMontyForm<Modp2048, { U2048::LIMBS }>;

/// The length of a public value and of a secret, in bytes.
const LEN: usize = 256;
/// The length of an exponent, in bytes: twice what the group is worth (RFC 3526 §8), and more.
const EXPONENT_LEN: usize = 64;

/// A private key.
pub(super) struct Exponent(Zeroizing<U512>);

impl Exponent {
    pub(super) fn generate(random: &mut dyn Random) -> Self {
        let mut bytes = Zeroizing::new([0; EXPONENT_LEN]);
        random.fill(&mut *bytes);
        Self(Zeroizing::new(U512::from_be_slice(&*bytes)))
    }

    /// Returns the public value.
    pub(super) fn public(&self) -> Vec<u8> {
        let public = self.power(&U2048::from_u8(2));
        public.to_be_bytes().as_ref().to_vec()
    }

    /// Computes the secret with a peer's public value; none if the value is not one.
    pub(super) fn agree(&self, peer: &[u8]) -> Option<Key> {
        let peer = Some(peer).filter(|peer| peer.len() == LEN).map(U2048::from_be_slice)?;
        let last = Modp2048::PARAMS.modulus().wrapping_sub(&U2048::ONE);
        if peer <= U2048::ONE || peer >= last {
            return None;
        }
        let secret = Zeroizing::new(self.power(&peer));
        let secret = Zeroizing::new(secret.to_be_bytes());
        Some(Key::from_bytes((*secret).as_ref()))
    }

    fn power(&self, base: &U2048) -> U2048 {
        let power = Zeroizing::new(Element::new(base).pow(&*self.0));
        power.retrieve()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting;

    impl Random for Counting {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The powers are those of Python's `pow(base, exponent, p)`.
    #[test]
    fn powers_are_those_of_another_implementation() {
        let ours = Exponent::generate(&mut Counting);
        let public = ours.public();
        assert_eq!(public.len(), LEN);
        assert_eq!(hex(&public[..16]), "ca737546c70b3a25a43d745a3e31526b");
        assert_eq!(hex(&public[LEN - 16..]), "2ac6584a7ce9fd4846140888a7b411f8");
        let mut three = [0; LEN];
        three[LEN - 1] = 3;
        let secret = ours.agree(&three).expect("3 is inside");
        assert_eq!(hex(&secret.as_bytes()[..16]), "78c27d1d237fd84361c41d32de780027");
        assert_eq!(hex(&secret.as_bytes()[LEN - 16..]), "823636f2f082702398a054b7648e3d0c");
    }

    #[test]
    fn values_outside_of_2_to_p_minus_2_are_refused() {
        let ours = Exponent::generate(&mut Counting);
        let modulus = *Modp2048::PARAMS.modulus().as_ref();
        let minus = |less: u8| modulus.wrapping_sub(&U2048::from_u8(less));
        let refused = [
            U2048::ZERO,
            U2048::ONE,
            minus(1),
            modulus,
            modulus.wrapping_add(&U2048::ONE),
            U2048::MAX,
        ];
        for value in refused {
            assert!(ours.agree(value.to_be_bytes().as_ref()).is_none(), "{value}");
        }
        for value in [U2048::from_u8(2), minus(2)] {
            assert!(ours.agree(value.to_be_bytes().as_ref()).is_some(), "{value}");
        }
        assert!(ours.agree(&[2; LEN - 1]).is_none() && ours.agree(&[2; LEN + 1]).is_none());
    }
}
