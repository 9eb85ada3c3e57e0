//! EAP as authenticator (RFC 3748): a responder asks an initiator, which has no key or certificate
//! for IKE, by a method of its own (RFC 7296 §2.16).
//!
//! No identity is asked for: the methods tell the name that they authenticate (RFC 7296 §3.16). The
//! name in IDi is the initiator's word only, and Windows puts an address there.

mod mschapv2;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use headroom_suite::Key;
use thiserror::Error;

use crate::crypto::Random;
use crate::identity::Identity;
use crate::wire::{Eap, EapCode};

pub use mschapv2::Passwords;
pub use tls::EapTls;

/// The type of a response that refuses a method (RFC 3748 §5.3.1).
const NAK: u8 = 3;
/// The most requests to one peer. EAP-TLS with long chains has about 20.
const MAX_ROUNDS: u32 = 64;

/// How users prove who they are.
#[derive(Clone, Debug)]
pub enum EapMethod {
    /// By a password (EAP-MSCHAPv2).
    MsChapV2(Arc<dyn Passwords>),
    /// By a certificate (EAP-TLS).
    Tls(Arc<EapTls>),
}

/// Why a user is not accepted.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum EapError {
    /// The user does not exist, or the password is another.
    #[error("user {} has another password or does not exist", .0.escape_debug())]
    Password(String),
    /// TLS ended with an error.
    #[error("EAP-TLS: {0}")]
    Tls(String),
    /// The name is not the one of the connection.
    #[error("the name of the user is {0}, which the connection does not expect")]
    Name(String),
    /// The peer refuses all methods.
    #[error("the peer has none of our EAP methods")]
    NoMethod,
    /// A response that does not fit.
    #[error("a malformed or unexpected EAP response")]
    Malformed,
    /// There is no end.
    #[error("more than {MAX_ROUNDS} EAP requests")]
    Rounds,
}

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// The data of another request, type first.
    Request(Vec<u8>),
    /// The user is who it says.
    Success {
        /// The key that both have now.
        msk: Key,
        /// The user's names: one, or all of its certificate.
        names: Vec<Identity>,
    },
    /// It is not.
    Failure(EapError),
}

/// The questions to one peer.
#[derive(Debug)]
pub struct Authenticator {
    /// What was not tried, in order.
    methods: Vec<EapMethod>,
    running: Running,
    identifier: u8,
    rounds: u32,
    /// Whether the peer may still refuse the method.
    fresh: bool,
}

#[derive(Debug)]
enum Running {
    MsChapV2(mschapv2::Server),
    Tls(tls::Server),
}

impl Authenticator {
    /// Starts with the first method, and returns the data of the first request. None without a
    /// method.
    #[must_use]
    pub fn start(methods: &[EapMethod], random: &mut dyn Random) -> Option<(Self, Vec<u8>)> {
        let mut identifier = [0];
        random.fill(&mut identifier);
        let mut methods = methods.to_vec();
        let method = (!methods.is_empty()).then(|| methods.remove(0))?;
        let (running, data) = Running::start(&method, random)?;
        let [identifier] = identifier;
        Some((Self { methods, running, identifier, rounds: 1, fresh: true }, data))
    }

    /// Returns what the request or the result is numbered with.
    #[must_use]
    pub fn identifier(&self) -> u8 {
        self.identifier
    }

    /// Returns why the peer is not accepted, where the method has told it before its last response:
    /// it may keep that back.
    #[must_use]
    pub fn refusal(&self) -> Option<EapError> {
        match &self.running {
            Running::MsChapV2(server) => server.refusal(),
            Running::Tls(_) => None,
        }
    }

    /// Takes a response.
    pub fn handle(
        &mut self,
        response: &Eap<'_>,
        random: &mut dyn Random,
        time: Option<Duration>,
    ) -> Step {
        if response.code != EapCode::Response || response.identifier != self.identifier {
            return Step::Failure(EapError::Malformed);
        }
        if self.rounds == MAX_ROUNDS {
            return Step::Failure(EapError::Rounds);
        }
        self.rounds += 1;
        let step = match response.data {
            [NAK, wanted @ ..] if self.fresh => return self.change(wanted, random),
            data => match &mut self.running {
                Running::MsChapV2(server) => server.handle(data, random),
                Running::Tls(server) => server.handle(data, time),
            },
        };
        self.fresh = false;
        if matches!(step, Step::Request(_)) {
            self.identifier = self.identifier.wrapping_add(1);
        }
        step
    }

    /// Goes to the first method that the peer wants and that was not tried.
    fn change(&mut self, wanted: &[u8], random: &mut dyn Random) -> Step {
        let at = self.methods.iter().position(|method| wanted.contains(&method.number()));
        let Some(at) = at else { return Step::Failure(EapError::NoMethod) };
        let method = self.methods.remove(at);
        match Running::start(&method, random) {
            Some((running, data)) => {
                self.running = running;
                self.identifier = self.identifier.wrapping_add(1);
                Step::Request(data)
            }
            None => Step::Failure(EapError::NoMethod),
        }
    }
}

impl Running {
    fn start(method: &EapMethod, random: &mut dyn Random) -> Option<(Self, Vec<u8>)> {
        match method {
            EapMethod::MsChapV2(passwords) => {
                let (server, data) = mschapv2::Server::start(passwords.clone(), random);
                Some((Self::MsChapV2(server), data))
            }
            EapMethod::Tls(settings) => {
                let (server, data) = tls::Server::start(settings.clone())?;
                Some((Self::Tls(server), data))
            }
        }
    }
}

impl EapMethod {
    fn number(&self) -> u8 {
        match self {
            Self::MsChapV2(_) => mschapv2::TYPE,
            Self::Tls(_) => tls::TYPE,
        }
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl Passwords for Nobody {
        fn password(&self, _: &str) -> Option<Zeroizing<String>> {
            None
        }
    }

    struct Ones;

    impl Random for Ones {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(1);
        }
    }

    fn passwords() -> EapMethod {
        EapMethod::MsChapV2(Arc::new(Nobody))
    }

    fn response(identifier: u8, data: &[u8]) -> Eap<'_> {
        Eap { code: EapCode::Response, identifier, data }
    }

    #[test]
    fn a_refused_method_gives_way_to_the_next_that_the_peer_wants() {
        let methods = [passwords(), passwords()];
        let (mut asked, data) = Authenticator::start(&methods, &mut Ones).expect("a method");
        assert_eq!((asked.identifier(), data[0]), (1, 26));
        let step = asked.handle(&response(1, &[NAK, 4, 26]), &mut Ones, None);
        assert!(matches!(step, Step::Request(_)));
        assert_eq!(asked.identifier(), 2);
        for wanted in [&[NAK, 26][..], &[NAK, 4], &[NAK, 0], &[NAK]] {
            let (mut asked, _) = Authenticator::start(&[passwords()], &mut Ones).expect("a method");
            let step = asked.handle(&response(1, wanted), &mut Ones, None);
            assert!(matches!(step, Step::Failure(EapError::NoMethod)), "{wanted:?}: {step:?}");
        }
        assert!(Authenticator::start(&[], &mut Ones).is_none());
    }

    #[test]
    fn a_response_has_the_number_of_its_request() {
        for wrong in [
            response(2, &[26, 2]),
            Eap { code: EapCode::Request, identifier: 1, data: &[26, 2] },
            Eap { code: EapCode::Success, identifier: 1, data: &[] },
        ] {
            let (mut asked, _) = Authenticator::start(&[passwords()], &mut Ones).expect("a method");
            let step = asked.handle(&wrong, &mut Ones, None);
            assert!(matches!(step, Step::Failure(EapError::Malformed)));
        }
    }
}
