//! EAP-MSCHAPv2 as authenticator (draft-kamath-pppext-eap-mschapv2-02; RFC 2759, RFC 3079).
//!
//! Its hashes and its DES are broken: whoever reads the exchange finds the password. IKEv2 sends it
//! only after the authenticator proved its identity by a certificate, and encrypted.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use des::Des;
use des::cipher::{BlockCipherEncrypt, KeyInit};
use headroom_suite::Key;
use md4::{Digest, Md4};
use zeroize::Zeroizing;

use super::{EapError, Step};
use crate::crypto::Random;
use crate::identity::Identity;

/// The type of the method.
pub(super) const TYPE: u8 = 26;
/// What we call ourselves in a challenge. Nothing depends on it.
const NAME: &[u8] = b"headroom";
/// The longest name of a user.
const MAX_NAME: usize = 256;
/// Bytes of type, code, identifier and length.
const HEADER: usize = 5;

const CHALLENGE: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

/// Looks up passwords.
pub trait Passwords: fmt::Debug + Send + Sync {
    /// Returns the password of a user. A domain before a backslash is not part of the name.
    fn password(&self, user: &str) -> Option<Zeroizing<String>>;
}

/// One exchange.
#[derive(Debug)]
pub(super) struct Server {
    passwords: Arc<dyn Passwords>,
    identifier: u8,
    challenge: [u8; 16],
    state: State,
}

#[derive(Debug)]
enum State {
    Challenged,
    /// The peer's password is right; it may still refuse ours.
    Right {
        user: String,
        msk: Key,
    },
    Wrong {
        user: String,
    },
}

impl Server {
    /// Starts, and returns the challenge.
    pub(super) fn start(passwords: Arc<dyn Passwords>, random: &mut dyn Random) -> (Self, Vec<u8>) {
        let (mut challenge, mut identifier) = ([0; 16], [0]);
        random.fill(&mut challenge);
        random.fill(&mut identifier);
        let server =
            Self { passwords, identifier: identifier[0], challenge, state: State::Challenged };
        let value = [&[16], &server.challenge[..], NAME].concat();
        let packet = server.packet(CHALLENGE, &value);
        (server, packet)
    }

    /// Takes the data of a response, type first.
    pub(super) fn handle(&mut self, data: &[u8], random: &mut dyn Random) -> Step {
        match (&self.state, data) {
            (State::Challenged, [TYPE, RESPONSE, identifier, rest @ ..]) => {
                match Response::parse(rest).filter(|_| *identifier == self.identifier) {
                    Some(response) => Step::Request(self.check(&response, random)),
                    None => Step::Failure(EapError::Malformed),
                }
            }
            (State::Right { user, msk }, [TYPE, SUCCESS]) => {
                let names = vec![Identity::from_text(user)];
                Step::Success { msk: Key::from_bytes(msk.as_bytes()), names }
            }
            (State::Wrong { user }, [TYPE, FAILURE, ..]) => {
                Step::Failure(EapError::Password(user.clone()))
            }
            _ => Step::Failure(EapError::Malformed),
        }
    }

    /// Returns why the user is not accepted, as soon as the peer is told.
    pub(super) fn refusal(&self) -> Option<EapError> {
        match &self.state {
            State::Wrong { user } => Some(EapError::Password(user.clone())),
            State::Challenged | State::Right { .. } => None,
        }
    }

    /// Checks a response, and returns what the peer is told. It takes as long for a user who does not
    /// exist.
    fn check(&mut self, response: &Response<'_>, random: &mut dyn Random) -> Vec<u8> {
        let user = response.user();
        let known = self.passwords.password(&user);
        let mut nobody = [0; 16];
        random.fill(&mut nobody);
        let hash = password_hash(known.as_ref().map_or("", |password| password.as_str()));
        let hash = if known.is_some() { hash } else { Zeroizing::new(nobody) };
        let challenge = challenge_hash(response.challenge, &self.challenge, user.as_bytes());
        let expected = challenge_response(challenge, &hash);
        if verify_slices_are_equal(&expected, response.nt_response).is_ok() && known.is_some() {
            let double = Zeroizing::new(<[u8; 16]>::from(Md4::digest(*hash)));
            let proof = authenticator_response(&double, response.nt_response, &challenge);
            self.state = State::Right { user, msk: msk(&double, response.nt_response) };
            return self.packet(SUCCESS, format!("S={proof} M=welcome").as_bytes());
        }
        self.state = State::Wrong { user };
        let mut next = [0; 16];
        random.fill(&mut next);
        // no other try: the peer connects again, at the rate of IKE_SA_INIT
        let text = format!("E=691 R=0 C={} V=3 M=wrong", hex(&next));
        self.packet(FAILURE, text.as_bytes())
    }

    fn packet(&self, code: u8, value: &[u8]) -> Vec<u8> {
        let length = (HEADER - 1 + value.len()) as u16;
        let [high, low] = length.to_be_bytes();
        [&[TYPE, code, self.identifier, high, low], value].concat()
    }
}

/// What a peer sends to a challenge.
struct Response<'a> {
    challenge: &'a [u8; 16],
    nt_response: &'a [u8; 24],
    name: &'a str,
}

impl<'a> Response<'a> {
    /// Reads what follows the identifier: length, 49, challenge, 8 zeros, response, flags, name.
    fn parse(rest: &'a [u8]) -> Option<Self> {
        let (length, rest) = rest.split_first_chunk::<2>()?;
        // it counts from the code on
        if usize::from(u16::from_be_bytes(*length)) != rest.len() + 4 {
            return None;
        }
        let ([49], rest) = rest.split_first_chunk::<1>()? else { return None };
        let (challenge, rest) = rest.split_first_chunk::<16>()?;
        let (_, rest) = rest.split_first_chunk::<8>()?;
        let (nt_response, rest) = rest.split_first_chunk::<24>()?;
        let (_, name) = rest.split_first_chunk::<1>()?;
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= MAX_NAME)?;
        Some(Self { challenge, nt_response, name })
    }

    /// The name without the domain of Windows (RFC 2759 §4).
    fn user(&self) -> String {
        self.name.rsplit_once('\\').map_or(self.name, |(_, user)| user).to_owned()
    }
}

/// NtPasswordHash (RFC 2759 §8.3).
fn password_hash(password: &str) -> Zeroizing<[u8; 16]> {
    let mut hash = Md4::new();
    for unit in password.encode_utf16() {
        hash.update(unit.to_le_bytes());
    }
    Zeroizing::new(hash.finalize().into())
}

/// ChallengeHash (RFC 2759 §8.2).
fn challenge_hash(peer: &[u8; 16], ours: &[u8; 16], user: &[u8]) -> [u8; 8] {
    let hash = sha1(&[peer, ours, user]);
    std::array::from_fn(|at| hash[at])
}

/// ChallengeResponse (RFC 2759 §8.5).
fn challenge_response(challenge: [u8; 8], hash: &[u8; 16]) -> [u8; 24] {
    let mut padded = Zeroizing::new([0; 21]);
    padded[..16].copy_from_slice(hash);
    let mut response = [0; 24];
    let (keys, _) = padded.as_chunks::<7>();
    let (blocks, _) = response.as_chunks_mut::<8>();
    for (key, block) in keys.iter().zip(blocks) {
        let key = Zeroizing::new(des_key(key));
        let mut encrypted = challenge.into();
        Des::new(&(*key).into()).encrypt_block(&mut encrypted);
        block.copy_from_slice(&encrypted);
    }
    response
}

/// Spreads 56 bits over 8 bytes, whose last bits are parity, which nobody checks.
fn des_key(bits: &[u8; 7]) -> [u8; 8] {
    let mut all = [0; 8];
    all[1..].copy_from_slice(bits);
    let all = u64::from_be_bytes(all);
    std::array::from_fn(|at| ((all >> (49 - 7 * at) << 1) & 0xfe) as u8)
}

/// GenerateAuthenticatorResponse (RFC 2759 §8.7), without `S=`.
fn authenticator_response(
    double: &[u8; 16],
    nt_response: &[u8; 24],
    challenge: &[u8; 8],
) -> String {
    let digest = sha1(&[double, nt_response, b"Magic server to client signing constant"]);
    let pad = b"Pad to make it do more than one iteration";
    hex(&*sha1(&[&digest[..], challenge, pad]))
}

/// The MSK: what the authenticator receives with, what it sends with (RFC 3079 §3.4), and zeros.
fn msk(double: &[u8; 16], nt_response: &[u8; 24]) -> Key {
    let master = sha1(&[double, nt_response, b"This is the MPPE Master Key"]);
    let start = |magic: &[u8]| sha1(&[&master[..16], &[0; 40], magic, &[0xf2; 40]]);
    let receive = start(
        b"On the client side, this is the send key; on the server side, it is the receive key.",
    );
    let send = start(
        b"On the client side, this is the receive key; on the server side, it is the send key.",
    );
    let mut msk = Zeroizing::new([0; 64]);
    msk[..16].copy_from_slice(&receive[..16]);
    msk[16..32].copy_from_slice(&send[..16]);
    Key::from_bytes(&*msk)
}

fn sha1(parts: &[&[u8]]) -> Zeroizing<[u8; 20]> {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    let digest = context.finish();
    let mut bytes = Zeroizing::new([0; 20]);
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(digits: &str) -> [u8; N] {
        std::array::from_fn(|at| {
            u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hexadecimal digits")
        })
    }

    #[test]
    fn agrees_with_the_example_of_rfc_2759() {
        // §9.2
        let peer = bytes("21402324255E262A28295F2B3A337C7E");
        let ours = bytes("5B5D7C7D7B3F2F3E3C2C602132262628");
        let challenge = challenge_hash(&peer, &ours, b"User");
        assert_eq!(challenge, bytes("D02E4386BCE91226"));
        let hash = password_hash("clientPass");
        assert_eq!(*hash, bytes("44EBBA8D5312B8D611474411F56989AE"));
        let response = challenge_response(challenge, &hash);
        assert_eq!(response, bytes("82309ECD8D708B5EA08FAA3981CD83544233114A3D85D6DF"));
        let double: [u8; 16] = Md4::digest(*hash).into();
        assert_eq!(double, bytes("41C00C584BD2D91C4017A2A12FA59F3F"));
        assert_eq!(
            authenticator_response(&double, &response, &challenge),
            "407A5589115FD0D6209F510FE9C04566932CDA56"
        );
        // RFC 3079 §3.5.3: what the server sends with
        let msk = msk(&double, &response);
        assert_eq!(msk.as_bytes()[16..32], bytes::<16>("8B7CDC149B993A1BA118CB153F56DCCB"));
        assert_eq!(msk.as_bytes()[32..], [0; 32]);
    }

    #[derive(Debug)]
    struct OneUser;

    impl Passwords for OneUser {
        fn password(&self, user: &str) -> Option<Zeroizing<String>> {
            (user == "anna").then(|| Zeroizing::new("päss".to_owned()))
        }
    }

    struct Ones;

    impl Random for Ones {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(1);
        }
    }

    /// Answers a challenge as a client does. Returns the answer and its NT-Response.
    fn answer(challenge: &[u8], name: &str, password: &str) -> (Vec<u8>, [u8; 24]) {
        let [TYPE, CHALLENGE, identifier, _, _, 16, rest @ ..] = challenge else { panic!() };
        let (ours, _) = rest.split_first_chunk::<16>().expect("a challenge");
        let user = name.rsplit('\\').next().expect("a name");
        let hash = challenge_hash(&[2; 16], ours, user.as_bytes());
        let response = challenge_response(hash, &password_hash(password));
        let value = [&[49], &[2; 16][..], &[0; 8], &response, &[0], name.as_bytes()].concat();
        let length = (4 + value.len() as u16).to_be_bytes();
        ([&[TYPE, RESPONSE, *identifier], &length[..], &value].concat(), response)
    }

    #[test]
    fn a_user_with_the_right_password_gets_the_key_of_the_server() {
        for name in ["anna", "DOMAIN\\anna"] {
            let (mut server, challenge) = Server::start(Arc::new(OneUser), &mut Ones);
            let (response, nt_response) = answer(&challenge, name, "päss");
            let Step::Request(success) = server.handle(&response, &mut Ones) else { panic!() };
            assert_eq!(success[1], SUCCESS);
            let double: [u8; 16] = Md4::digest(*password_hash("päss")).into();
            let challenge = challenge_hash(&[2; 16], &[1; 16], b"anna");
            let proof = authenticator_response(&double, &nt_response, &challenge);
            assert!(success[5..].starts_with(format!("S={proof}").as_bytes()));
            let step = server.handle(&[TYPE, SUCCESS], &mut Ones);
            let Step::Success { msk: key, names } = step else { panic!("{step:?}") };
            assert_eq!(names, [Identity::from_text("anna")]);
            assert_eq!(key.as_bytes(), msk(&double, &nt_response).as_bytes());
        }
    }

    #[test]
    fn an_unknown_user_is_answered_as_one_with_a_wrong_password() {
        let mut answers = Vec::new();
        for (name, password) in [("anna", "other"), ("bert", "päss"), ("anna", ""), ("bert", "")] {
            let (mut server, challenge) = Server::start(Arc::new(OneUser), &mut Ones);
            let (response, _) = answer(&challenge, name, password);
            let Step::Request(failure) = server.handle(&response, &mut Ones) else { panic!() };
            assert_eq!(failure[1], FAILURE);
            answers.push(failure);
            // a client that says all is well does not make it so
            let step = server.handle(&[TYPE, SUCCESS], &mut Ones);
            assert!(matches!(step, Step::Failure(EapError::Malformed)));
            let step = server.handle(&[TYPE, FAILURE], &mut Ones);
            let Step::Failure(EapError::Password(user)) = step else { panic!("{step:?}") };
            assert_eq!(user, name);
        }
        assert!(answers.iter().all(|one| *one == answers[0]));
    }

    #[test]
    fn nothing_but_a_response_follows_a_challenge() {
        let (_, challenge) = Server::start(Arc::new(OneUser), &mut Ones);
        let (right, _) = answer(&challenge, "anna", "päss");
        let mut other_identifier = right.clone();
        other_identifier[2] ^= 1;
        for wrong in [&[TYPE, SUCCESS][..], &[TYPE, FAILURE], &[TYPE], &[], &other_identifier] {
            let (mut server, _) = Server::start(Arc::new(OneUser), &mut Ones);
            let step = server.handle(wrong, &mut Ones);
            assert!(matches!(step, Step::Failure(EapError::Malformed)), "{wrong:?}");
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let mut rest = vec![0, 58, 49];
        rest.extend([0; 49]);
        rest.extend(b"user");
        rest[1] = 4 + 1 + 49 + 4;
        assert_eq!(Response::parse(&rest).map(|one| one.user()).as_deref(), Some("user"));
        for (at, value) in [(1, 57), (1, 60), (0, 1), (2, 48), (2, 0)] {
            let mut broken = rest.clone();
            broken[at] = value;
            assert!(Response::parse(&broken).is_none(), "byte {at} = {value}");
        }
        for len in 0..rest.len() {
            assert!(Response::parse(&rest[..len]).is_none());
        }
        let mut long = rest.clone();
        long.extend([b'a'; 300]);
        [long[0], long[1]] = (4 + 1 + 49 + 4 + 300_u16).to_be_bytes();
        assert!(Response::parse(&long).is_none());
    }
}
