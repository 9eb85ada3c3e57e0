//! Keys, MACs and messages are those of strongSwan: all that its initiator logged is derived again,
//! and every message of the captures opens.

use std::collections::BTreeMap;

use headroom_ike::certificate::is_signed_by;
use headroom_ike::crypto::{
    IkeKeys, Nonces, Prf, Protector, SignedOctets, Spis, intermediate_mac, shared_key_mac,
};
use headroom_ike::wire::{
    AuthMethod, Encrypted, ExchangeType, Header, Message, Nonce, Payload, PayloadType, ProtocolId,
    parse_decrypted,
};
use headroom_suite::{Aead, Key, Suite};

use crate::captured::{self, Captured};

#[test]
fn derives_what_strongswan_logged_with_a_shared_key() {
    let mut replay = Replay::start("psk");
    replay.established_by_shared_key();
    replay.rekeys_and_deletes();
}

#[test]
fn derives_what_strongswan_logged_with_certificates() {
    let mut replay = Replay::start("cert");
    let request = replay.message(ExchangeType::IkeAuth);
    let response = replay.message(ExchangeType::IkeAuth);
    let [nonce_i, nonce_r] = replay.initial_nonces();
    for (sent_by, message, nonce) in [(0, &request, &nonce_r), (1, &response, &nonce_i)] {
        let octets = replay.octets(message, sent_by, nonce);
        let payloads = message.payloads();
        let certificate = payloads.iter().find_map(|payload| match payload {
            Payload::Certificate(certificate) => Some(certificate.data),
            _ => None,
        });
        let auth = payloads.iter().find_map(|payload| match payload {
            Payload::Authentication(auth) => Some((auth.method, auth.data)),
            _ => None,
        });
        let (certificate, auth) = (certificate.expect("a certificate"), auth.expect("a signature"));
        assert_eq!(auth.0, AuthMethod::DigitalSignature);
        assert!(is_signed_by(certificate, auth, &octets));
        assert!(!is_signed_by(certificate, auth, &octets[1..]));
    }
    replay.child(&[nonce_i, nonce_r], &[]);
    replay.rekeys_and_deletes();
}

#[test]
fn derives_what_strongswan_logged_with_ml_kem() {
    let mut replay = Replay::start("psk-mlkem768");
    for sent_by in 0..2 {
        let message = replay.message(ExchangeType::IkeIntermediate);
        let sk_p = [&replay.keys.sk_pi, &replay.keys.sk_pr][sent_by];
        let inner = (message.first, &message.inner[..]);
        let mac = intermediate_mac(replay.keys.prf, sk_p, &[], &message.header, inner);
        assert_eq!(mac.as_bytes(), replay.logged("int-auth"));
        replay.int_auth.extend(mac.as_bytes());
    }
    let secret = Key::from_bytes(&replay.logged("secret"));
    replay.keys = replay.keys.with_secret(&secret, nonces(&replay.initial_nonces()), replay.spis);
    replay.check_keys();
    // its message ID
    replay.int_auth.extend([0, 0, 0, 2]);
    replay.established_by_shared_key();
    replay.rekeys_and_deletes();
}

/// A walk through a capture and its log.
struct Replay {
    messages: std::vec::IntoIter<Captured>,
    logged: Vec<(String, Vec<u8>)>,
    init: [Vec<u8>; 2],
    nonce_i: Vec<u8>,
    nonce_r: Vec<u8>,
    spis: Spis,
    keys: IkeKeys,
    int_auth: Vec<u8>,
}

/// An opened message, of one datagram or several.
struct Opened {
    header: Header,
    first: PayloadType,
    inner: Vec<u8>,
}

impl Opened {
    fn payloads(&self) -> Vec<Payload<'_>> {
        parse_decrypted(self.first, &self.inner).expect("well-formed payloads")
    }

    fn nonce(&self) -> Vec<u8> {
        nonce(&self.payloads())
    }
}

impl Replay {
    fn start(name: &str) -> Self {
        let mut messages = captured::messages(name).into_iter();
        let init = [(); 2].map(|()| messages.next().expect("IKE_SA_INIT").message);
        let [request, response] =
            init.each_ref().map(|one| Message::parse(one).expect("a message"));
        let spis = Spis {
            initiator: response.header.spi_initiator,
            responder: response.header.spi_responder,
        };
        let Payload::SecurityAssociation(sa) = &response.payloads[0] else { panic!("no SA") };
        let chosen = &sa.proposals[0];
        assert_eq!(chosen.protocol, ProtocolId::Ike);
        let (suite, prf) = match chosen.transforms[0].key_length {
            Some(128) => (Suite::Aead(Aead::Aes128Gcm), Prf::HmacSha256),
            _ => (Suite::Aead(Aead::Aes256Gcm), Prf::HmacSha384),
        };
        let (nonce_i, nonce_r) = (nonce(&request.payloads), nonce(&response.payloads));
        let logged = captured::logged(name);
        let secret = logged.iter().find(|(name, _)| name == "secret").expect("a secret");
        let secret = Key::from_bytes(&secret.1);
        let both = Nonces { initiator: &nonce_i, responder: &nonce_r };
        let keys = IkeKeys::initial(suite, prf, &secret, both, spis);
        let int_auth = Vec::new();
        let mut replay = Self { messages, logged, init, nonce_i, nonce_r, spis, keys, int_auth };
        replay.check_keys();
        replay
    }

    fn initial_nonces(&self) -> [Vec<u8>; 2] {
        [self.nonce_i.clone(), self.nonce_r.clone()]
    }

    /// Returns the next logged value of that name, and forgets those before it.
    fn logged(&mut self, name: &str) -> Vec<u8> {
        let at = self.logged.iter().position(|(one, _)| one == name);
        self.logged.drain(..=at.unwrap_or_else(|| panic!("no {name}"))).next_back().expect("it").1
    }

    fn check_keys(&mut self) {
        let keys = [
            &self.keys.sk_d,
            &self.keys.sk_ei,
            &self.keys.sk_er,
            &self.keys.sk_pi,
            &self.keys.sk_pr,
        ];
        let keys = keys.map(|key| key.as_bytes().to_vec());
        for (name, key) in ["sk_d", "sk_ei", "sk_er", "sk_pi", "sk_pr"].into_iter().zip(keys) {
            assert_eq!(self.logged(name), key, "{name}");
        }
    }

    /// Opens the next message with its fragments.
    fn message(&mut self, exchange: ExchangeType) -> Opened {
        let mut opened: Option<Opened> = None;
        loop {
            let captured = self.messages.next().expect("another message");
            let parsed = Message::parse(&captured.message).expect("a message");
            assert_eq!(parsed.header.exchange, exchange);
            assert_eq!(parsed.header.from_initiator, captured.from_initiator_host);
            let (key, mac_key) = match parsed.header.from_initiator {
                true => (&self.keys.sk_ei, &self.keys.sk_ai),
                false => (&self.keys.sk_er, &self.keys.sk_ar),
            };
            let protector = Protector::new(self.keys.suite, key, mac_key).expect("its keys");
            let Some(Payload::Encrypted(encrypted)) = parsed.payloads.last() else {
                panic!("clear")
            };
            let inner = protector.open(&captured.message, encrypted).expect("it verifies");
            let so_far = opened.get_or_insert(Opened {
                header: parsed.header,
                first: encrypted.first,
                inner: Vec::new(),
            });
            so_far.inner.extend(inner);
            if matches!(encrypted, Encrypted { fragment: None, .. })
                || encrypted.fragment.is_some_and(|one| one.number == one.total)
            {
                return opened.expect("some message");
            }
        }
    }

    /// Checks what the sender of an IKE_AUTH message signed.
    fn octets(&mut self, message: &Opened, sent_by: usize, nonce: &[u8]) -> Vec<u8> {
        let payloads = message.payloads();
        let id = payloads.iter().find_map(|payload| match payload {
            Payload::IdInitiator(id) if sent_by == 0 => Some(id),
            Payload::IdResponder(id) if sent_by == 1 => Some(id),
            _ => None,
        });
        let octets = SignedOctets {
            message: &self.init[sent_by],
            nonce,
            id_body: &id.expect("an identity").body(),
            int_auth: &self.int_auth,
        };
        let sk_p = [&self.keys.sk_pi, &self.keys.sk_pr][sent_by];
        let octets = octets.concat(self.keys.prf, sk_p);
        assert_eq!(octets, self.logged("octets"));
        octets
    }

    fn established_by_shared_key(&mut self) {
        let request = self.message(ExchangeType::IkeAuth);
        let response = self.message(ExchangeType::IkeAuth);
        let nonces = [self.nonce_r.clone(), self.nonce_i.clone()];
        for ((sent_by, message), nonce) in [request, response].iter().enumerate().zip(nonces) {
            let octets = self.octets(message, sent_by, &nonce);
            let mac = shared_key_mac(self.keys.prf, &Key::from_bytes(b"sesame"), &octets);
            assert_eq!(mac.as_bytes(), self.logged("auth"));
            let sent = message.payloads().into_iter().any(
                |payload| matches!(payload, Payload::Authentication(auth) if auth.data == mac.as_bytes()),
            );
            assert!(sent, "the message has that AUTH");
        }
        self.child(&self.initial_nonces(), &[]);
    }

    fn child(&mut self, both: &[Vec<u8>; 2], secrets: &[Key]) {
        let keys = self.keys.child(self.keys.suite, secrets, nonces(both));
        assert_eq!(keys.initiator.key.as_bytes(), self.logged("child-ei"));
        assert_eq!(keys.responder.key.as_bytes(), self.logged("child-er"));
    }

    /// One rekey of the CHILD SA and one of the IKE SA, by the initiator, then its deletion.
    fn rekeys_and_deletes(&mut self) {
        let (both, secrets) = self.exchange_secrets();
        self.child(&both, &secrets);
        self.delete();
        let (both, secrets) = self.exchange_secrets();
        let spis = self.spis;
        let keys = self.keys.rekeyed(self.keys.suite, self.keys.prf, &secrets, nonces(&both), spis);
        // the last messages under the old keys
        self.delete();
        self.keys = keys;
        self.check_keys();
        self.delete();
        assert!(self.messages.next().is_none());
        let left: BTreeMap<_, _> = self.logged.drain(..).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// CREATE_CHILD_SA and IKE_FOLLOWUP_KE. The new SPIs become the IKE SA's if it has some.
    fn exchange_secrets(&mut self) -> ([Vec<u8>; 2], Vec<Key>) {
        let exchange = ExchangeType::CreateChildSa;
        let [request, response] = [self.message(exchange), self.message(exchange)];
        let spi = |message: &Opened| {
            let payloads = message.payloads();
            let sa = payloads.iter().find_map(|payload| match payload {
                Payload::SecurityAssociation(sa) => Some(sa),
                _ => None,
            });
            let spi = sa.expect("an SA").proposals[0].spi;
            spi.try_into().ok().map(u64::from_be_bytes)
        };
        if let (Some(initiator), Some(responder)) = (spi(&request), spi(&response)) {
            self.spis = Spis { initiator, responder };
        }
        let mut secrets = vec![Key::from_bytes(&self.logged("secret"))];
        let followed = response.payloads().iter().any(
            |payload| matches!(payload, Payload::Notify(notify) if notify.notify_type.to_string() == "ADDITIONAL_KEY_EXCHANGE"),
        );
        if followed {
            self.message(ExchangeType::IkeFollowupKe);
            self.message(ExchangeType::IkeFollowupKe);
            secrets.push(Key::from_bytes(&self.logged("additional-secret")));
        }
        ([request.nonce(), response.nonce()], secrets)
    }

    fn delete(&mut self) {
        let request = self.message(ExchangeType::Informational);
        assert!(matches!(request.payloads()[..], [Payload::Delete(_)]));
        self.message(ExchangeType::Informational);
    }
}

fn nonces(both: &[Vec<u8>; 2]) -> Nonces<'_> {
    Nonces { initiator: &both[0], responder: &both[1] }
}

fn nonce(payloads: &[Payload<'_>]) -> Vec<u8> {
    let nonce = payloads.iter().find_map(|payload| match payload {
        Payload::Nonce(Nonce(nonce)) => Some(nonce.to_vec()),
        _ => None,
    });
    nonce.expect("a nonce")
}
