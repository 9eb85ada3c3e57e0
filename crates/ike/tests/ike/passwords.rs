//! Who guesses the passwords of users of EAP.

use std::sync::Arc;
use std::time::Duration;

use headroom_ike::crypto::SystemRandom;
use headroom_ike::eap::{EapError, EapMethod, Passwords};
use headroom_ike::wire::{
    Eap, EapCode, EncryptionId, ExchangeType, IdType, Identification, NotifyType, Payload,
    Proposal, ProtocolId, SecurityAssociation, SequenceNumbersId, TrafficSelector,
    TrafficSelectors, Transform, TransformType, emit_chain,
};
use headroom_ike::{Auth, Endpoint, LocalAuth, PostQuantum, Reason, RemoteAuth};
use zeroize::Zeroizing;

use crate::impostor::{Answer, Impostor};
use crate::pki::{Authority, NOW};
use crate::world::{A, B, World, configs};

#[derive(Debug)]
struct OneUser;

impl Passwords for OneUser {
    fn password(&self, user: &str) -> Option<Zeroizing<String>> {
        (user == "anna").then(|| Zeroizing::new("right".to_owned()))
    }
}

/// The data of a response to a challenge, with a wrong password.
fn guess(challenge: &[u8]) -> Vec<u8> {
    let value = [&[49], &[2; 16][..], &[0; 8], &[3; 24], &[0], b"anna"].concat();
    let length = (4 + value.len() as u16).to_be_bytes();
    [&[26, 2, challenge[2]], &length[..], &value].concat()
}

/// A host, and one whose users have passwords.
fn world() -> World {
    let [config_a, mut config_b] = configs(PostQuantum::Off);
    let host = Authority::new("root").issue("host-2.example");
    let connection = Arc::get_mut(&mut config_b.connections[0]).expect("not shared yet");
    connection.remote = None;
    connection.auth = Auth {
        local: LocalAuth::Certificate(Arc::new(host.credential())),
        remote: RemoteAuth::Eap(vec![EapMethod::MsChapV2(Arc::new(OneUser))]),
    };
    let mut world = World::new([config_a, config_b], 70);
    world.hosts[B].endpoint.set_time(NOW);
    world
}

/// The initiator of an IKE SA that is asked for a password.
struct Guesser {
    impostor: Impostor,
    /// The challenge, and its number.
    challenge: Vec<u8>,
    identifier: u8,
}

impl Guesser {
    /// Sends IKE_SA_INIT; none if there is no answer.
    fn begin(world: &mut World) -> Option<Self> {
        let [config, _] = configs(PostQuantum::Off);
        let endpoint = Endpoint::new(config, Box::new(SystemRandom), world.now);
        world.hosts[A].restart(endpoint);
        world.in_flight.clear();
        world.connect(A);
        world.deliver(0, false);
        if world.in_flight.is_empty() {
            return None;
        }
        world.deliver(0, false);
        // what it sends now has AUTH
        world.in_flight.clear();
        let mut impostor = Impostor::of(world, A);
        impostor.next_id(|_| 1);
        let answer = impostor.ask(world, ExchangeType::IkeAuth, &first_request())?;
        let (identifier, challenge) = request(&answer).expect("a challenge");
        Some(Self { impostor, challenge, identifier })
    }

    /// Sends a response, and returns what EAP answers.
    fn respond(&mut self, world: &mut World, data: &[u8]) -> Answer {
        let response = Eap { code: EapCode::Response, identifier: self.identifier, data };
        let payloads = [Payload::Eap(response)];
        let answer = self.impostor.ask(world, ExchangeType::IkeAuth, &payloads).expect("an answer");
        if let Some((identifier, _)) = request(&answer) {
            self.identifier = identifier;
        }
        answer
    }

    /// Guesses, and is told that it was wrong.
    fn guess(&mut self, world: &mut World) {
        let answer = self.respond(world, &guess(&self.challenge.clone()));
        let (_, data) = request(&answer).expect("another request");
        assert!(data.windows(5).any(|bytes| bytes == b"E=691"), "a wrong password");
    }
}

/// The request in an answer: its number and data.
fn request(answer: &Answer) -> Option<(u8, Vec<u8>)> {
    answer.payloads().iter().find_map(|payload| match payload {
        Payload::Eap(eap) if eap.code == EapCode::Request => {
            Some((eap.identifier, eap.data.to_vec()))
        }
        _ => None,
    })
}

fn first_request() -> Vec<Payload<'static>> {
    let transforms = vec![
        Transform::with_key_length(TransformType::Encryption, EncryptionId::AesGcm16, 256),
        Transform::new(TransformType::SequenceNumbers, SequenceNumbersId::from(1)),
    ];
    let spi = &[1, 2, 3, 4];
    let proposals = vec![Proposal { number: 1, protocol: ProtocolId::Esp, spi, transforms }];
    let selectors = |last: u8| {
        let selectors = vec![TrafficSelector::network([10, 0, last, 0].into(), 24)];
        TrafficSelectors { selectors }
    };
    vec![
        Payload::IdInitiator(Identification { id_type: IdType::Fqdn, data: b"anybody" }),
        Payload::SecurityAssociation(SecurityAssociation { proposals }),
        Payload::TsInitiator(selectors(1)),
        Payload::TsResponder(selectors(2)),
    ]
}

fn wrong() -> Reason {
    Reason::Eap(EapError::Password("anna".to_owned()))
}

#[test]
fn wrong_passwords_are_counted_whether_or_not_the_guesser_goes_on() {
    let mut world = world();
    let mut silent = 0;
    for number in 0..10 {
        let mut guesser = Guesser::begin(&mut world).expect("an answer");
        guesser.guess(&mut world);
        match number % 3 {
            0 => drop(guesser.respond(&mut world, &[26, 4])),
            1 => drop(guesser.respond(&mut world, &[26, 3])),
            _ => silent += 1,
        }
        assert_eq!(world.hosts[B].endpoint.half_open(), silent);
        assert_eq!(world.hosts[B].endpoint.counters().authentication_failures, number + 1);
    }
    assert!(Guesser::begin(&mut world).is_none(), "the next first message is ignored");
    let counters = world.hosts[B].endpoint.counters();
    assert_eq!((counters.refused_after_failures, counters.authentication_failures), (1, 10));

    // the caller is told of each once, also of those that went silent
    world.in_flight.clear();
    world.now += Duration::from_secs(30);
    world.poll(B);
    assert_eq!(world.hosts[B].closed, vec![wrong(); 10]);
    assert!(world.hosts[B].closed.iter().all(Reason::is_failed_authentication));
    let counters = world.hosts[B].endpoint.counters();
    assert_eq!((counters.authentication_failures, world.hosts[B].endpoint.half_open()), (10, 0));
}

#[test]
fn a_guesser_that_has_begun_often_guesses_no_more_often() {
    let mut world = world();
    let mut guessers: Vec<_> =
        (0..12).map(|_| Guesser::begin(&mut world).expect("an answer")).collect();
    for guesser in &mut guessers[..10] {
        guesser.guess(&mut world);
    }
    for guesser in &mut guessers[10..] {
        let answer = guesser.respond(&mut world, &guess(&guesser.challenge.clone()));
        assert_eq!(answer.notifies(), [NotifyType::AuthenticationFailed]);
    }
    assert_eq!(world.hosts[B].endpoint.counters().authentication_failures, 10);
}

#[test]
fn nobody_makes_another_source_fail() {
    let mut world = world();
    for _ in 0..10 {
        let mut guesser = Guesser::begin(&mut world).expect("an answer");
        let response = guess(&guesser.challenge);
        let response =
            Eap { code: EapCode::Response, identifier: guesser.identifier, data: &response };
        let mut inner = Vec::new();
        let first = emit_chain(&[Payload::Eap(response)], &mut inner);
        let sealed = guesser.impostor.seal(ExchangeType::IkeAuth, (first, &inner), None);
        for mut datagram in sealed {
            datagram.from.set_ip([198, 51, 100, 1].into());
            world.hand_over(&datagram);
        }
    }
    assert_eq!(world.hosts[B].endpoint.counters().authentication_failures, 10);
    assert!(Guesser::begin(&mut world).is_none(), "where IKE_SA_INIT was answered");
    world.hosts[A].address.set_ip([198, 51, 100, 1].into());
    assert!(Guesser::begin(&mut world).is_some(), "the address that it pretended to have");
}
