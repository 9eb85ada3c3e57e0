//! EAP-TLS as authenticator (RFC 5216; with TLS 1.3, RFC 9190): rustls reads and writes records in
//! memory, and this module cuts them into EAP packets.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_suite::Key;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{
    NoServerSessionStorage, ServerConfig, ServerConnection, WebPkiClientVerifier,
};
use rustls::time_provider::TimeProvider;
use rustls::{ProtocolVersion, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use zeroize::Zeroizing;

use super::{EapError, Step};
use crate::certificate::{Authorities, CertificateError, names_of};

/// The type of the method.
pub(super) const TYPE: u8 = 13;
/// The most bytes of TLS in one of our packets; peers reassemble (RFC 5216 §2.1.5).
const FRAGMENT: usize = 1000;
/// The most bytes of TLS that we take from a peer: a chain of certificates and little else.
const MAX_RECEIVED: usize = 32 * 1024;

/// The first packet of a message has its length.
const LENGTH_INCLUDED: u8 = 0x80;
const MORE_FRAGMENTS: u8 = 0x40;
const START: u8 = 0x20;

/// Settings of EAP-TLS.
pub struct EapTls {
    config: Arc<ServerConfig>,
    time: Arc<Clock>,
}

/// The time of day that the endpoint was told.
#[derive(Debug)]
struct Clock(AtomicU64);

/// A time that was not told.
const UNKNOWN: u64 = u64::MAX;

impl EapTls {
    /// Takes our certificates in DER, ours first, our private key, and the authorities of users.
    ///
    /// # Errors
    /// A certificate or the key cannot be used.
    pub fn new(
        chain: Vec<Vec<u8>>,
        key: &[u8],
        users: &Authorities,
    ) -> Result<Self, CertificateError> {
        let wrong = |problem: String| CertificateError::Chain {
            subject: "this host, for EAP-TLS".to_owned(),
            problem,
        };
        let provider = Arc::new(default_provider());
        let time = Arc::new(Clock(AtomicU64::new(UNKNOWN)));
        let roots = RootCertStore { roots: users.anchors().to_vec() };
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .with_crls(users.revocation_lists())
                .enforce_revocation_expiration()
                .build()
                .map_err(|error| wrong(error.to_string()))?;
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let key = PrivateKeyDer::try_from(key).map_err(|_| CertificateError::Key)?.clone_key();
        let mut config = ServerConfig::builder_with_details(provider, time.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| wrong(error.to_string()))?;
        // each connection proves the user's identity again
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), time })
    }
}

impl fmt::Debug for EapTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EapTls")
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = Some(self.0.load(Ordering::Relaxed)).filter(|&seconds| seconds != UNKNOWN);
        seconds.map(|seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// One handshake.
pub(super) struct Server {
    settings: Arc<EapTls>,
    tls: Box<ServerConnection>,
    /// What is to be sent, and how much of it was.
    outgoing: Vec<u8>,
    sent: usize,
    received: usize,
    finished: bool,
}

impl Server {
    /// Starts, and returns the first packet.
    pub(super) fn start(settings: Arc<EapTls>) -> Option<(Self, Vec<u8>)> {
        let tls = Box::new(ServerConnection::new(settings.config.clone()).ok()?);
        let (outgoing, sent, received, finished) = (Vec::new(), 0, 0, false);
        Some((Self { settings, tls, outgoing, sent, received, finished }, vec![TYPE, START]))
    }

    /// Takes the data of a response, type first.
    pub(super) fn handle(&mut self, data: &[u8], time: Option<Duration>) -> Step {
        let [TYPE, flags, rest @ ..] = data else { return Step::Failure(EapError::Malformed) };
        let records = match flags & LENGTH_INCLUDED != 0 {
            true => match rest.split_first_chunk::<4>() {
                Some((_, records)) => records,
                None => return Step::Failure(EapError::Malformed),
            },
            false => rest,
        };
        if records.is_empty() {
            return self.acknowledged();
        }
        // a peer speaks when all of ours was sent
        self.received += records.len();
        let in_turn = self.sent == self.outgoing.len() && !self.finished;
        if !in_turn || self.received > MAX_RECEIVED {
            return Step::Failure(EapError::Malformed);
        }
        let seconds = time.map_or(UNKNOWN, |time| time.as_secs());
        self.settings.time.0.store(seconds, Ordering::Relaxed);
        if let Err(error) = self.read(records) {
            return Step::Failure(EapError::Tls(error));
        }
        if flags & MORE_FRAGMENTS != 0 {
            return Step::Request(vec![TYPE, 0]);
        }
        if !self.tls.is_handshaking() {
            self.finished = true;
            if self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
                // says that no more messages of the handshake follow (RFC 9190 §2.5)
                let _ = self.tls.writer().write_all(&[0]);
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        while self.tls.wants_write() {
            // a Vec takes everything
            if self.tls.write_tls(&mut self.outgoing).is_err() {
                break;
            }
        }
        match self.outgoing.is_empty() {
            // a fragment of a record, with no more to follow
            true if !self.finished => Step::Failure(EapError::Malformed),
            _ => Step::Request(self.next_fragment()),
        }
    }

    /// An empty response asks for the next fragment, or says that all arrived.
    fn acknowledged(&mut self) -> Step {
        match self.sent < self.outgoing.len() {
            true => Step::Request(self.next_fragment()),
            false if self.finished => self.succeed(),
            false => Step::Failure(EapError::Malformed),
        }
    }

    fn succeed(&self) -> Step {
        let mut keys = Zeroizing::new([0; 128]);
        let (label, context): (&[u8], Option<&[u8]>) = match self.tls.protocol_version() {
            // RFC 9190 §2.3
            Some(ProtocolVersion::TLSv1_3) => (b"EXPORTER_EAP_TLS_Key_Material", Some(&[TYPE])),
            // RFC 5216 §2.3
            _ => (b"client EAP encryption", None),
        };
        let exported = self.tls.export_keying_material(&mut keys[..], label, context).is_ok();
        let certificate = self.tls.peer_certificates().and_then(<[_]>::first);
        let names = certificate.map(|one| names_of(one)).unwrap_or_default();
        match exported && !names.is_empty() {
            true => Step::Success { msk: Key::from_bytes(&keys[..64]), names },
            false => Step::Failure(EapError::Tls("no keys or no name".to_owned())),
        }
    }

    fn read(&mut self, mut records: &[u8]) -> Result<(), String> {
        while !records.is_empty() {
            self.tls.read_tls(&mut records).map_err(|error| error.to_string())?;
            let state = self.tls.process_new_packets().map_err(|error| error.to_string())?;
            // no application data is expected; it must not pile up
            if state.plaintext_bytes_to_read() > 0 {
                let _ = self.tls.reader().read(&mut [0; 256]);
                return Err("application data".to_owned());
            }
        }
        Ok(())
    }

    fn next_fragment(&mut self) -> Vec<u8> {
        let rest = &self.outgoing[self.sent..];
        let fragment = &rest[..rest.len().min(FRAGMENT)];
        let mut flags = if fragment.len() < rest.len() { MORE_FRAGMENTS } else { 0 };
        let mut packet = vec![TYPE];
        if self.sent == 0 {
            flags |= LENGTH_INCLUDED;
        }
        packet.push(flags);
        if self.sent == 0 {
            packet.extend((self.outgoing.len() as u32).to_be_bytes());
        }
        packet.extend(fragment);
        self.sent += fragment.len();
        packet
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({} bytes received, {} sent)", self.received, self.sent)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
    use rustls::client::{ClientConfig, ClientConnection};
    use rustls::version::{TLS12, TLS13};

    use super::*;
    use crate::identity::Identity;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    const NOW: Option<Duration> = Some(Duration::from_secs(1_767_225_600));

    fn authority() -> Issuer {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Issuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
    }

    /// Makes a certificate, a long one so that both sides fragment, and its key.
    fn issue(issuer: &Issuer, name: &str) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let uri = format!("urn:{}", "x".repeat(2000));
        params.subject_alt_names.push(SanType::URI(uri.as_str().try_into().expect("a URI")));
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        (certificate.der().to_vec(), key.serialize_der())
    }

    fn client(
        server: &Issuer,
        (certificate, key): (Vec<u8>, Vec<u8>),
        version: &'static rustls::SupportedProtocolVersion,
    ) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(server.der().clone()).expect("an authority");
        let key = PrivateKeyDer::try_from(key).expect("a key");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate.into()], key)
            .expect("a key");
        let name = "gate.example".try_into().expect("a name");
        ClientConnection::new(Arc::new(config), name).expect("a client")
    }

    /// Runs both ends until the server decides; the client's packets have at most 700 bytes.
    fn run(
        server: &mut Server,
        client: &mut ClientConnection,
        time: Option<Duration>,
    ) -> (Step, usize) {
        let mut request = vec![TYPE, START];
        let (mut outgoing, mut sent, mut incoming) = (Vec::new(), 0, Vec::new());
        for round in 0..64 {
            let flags = request[1];
            let skipped = if flags & LENGTH_INCLUDED == 0 { 2 } else { 6 };
            incoming.extend(&request[skipped..]);
            if flags & MORE_FRAGMENTS == 0 && sent == outgoing.len() {
                let mut records = &incoming[..];
                while !records.is_empty() {
                    client.read_tls(&mut records).expect("memory");
                    client.process_new_packets().expect("a server's records");
                }
                incoming.clear();
                outgoing.clear();
                sent = 0;
                while client.wants_write() {
                    client.write_tls(&mut outgoing).expect("memory");
                }
            }
            let response = match flags & MORE_FRAGMENTS {
                0 => {
                    let rest = &outgoing[sent..];
                    let fragment = &rest[..rest.len().min(700)];
                    let more = if fragment.len() < rest.len() { MORE_FRAGMENTS } else { 0 };
                    sent += fragment.len();
                    [&[TYPE, more], fragment].concat()
                }
                _ => vec![TYPE, 0],
            };
            match server.handle(&response, time) {
                Step::Request(next) => {
                    assert!(next.len() <= FRAGMENT + 6);
                    request = next;
                }
                end => return (end, round),
            }
        }
        panic!("no end");
    }

    fn start(servers: &Issuer, users: &Issuer) -> Server {
        let (certificate, key) = issue(servers, "gate.example");
        let users = Authorities::new(&[users.der().to_vec()], &[]).expect("an authority");
        let settings = EapTls::new(vec![certificate], &key, &users).expect("settings");
        Server::start(Arc::new(settings)).expect("a server").0
    }

    #[test]
    fn both_versions_of_tls_agree_on_a_key_through_fragments() {
        for (version, label, context) in [
            (&TLS12, &b"client EAP encryption"[..], None),
            (&TLS13, b"EXPORTER_EAP_TLS_Key_Material", Some(&[13][..])),
        ] {
            let [servers, users] = [(); 2].map(|()| authority());
            let mut server = start(&servers, &users);
            let mut client = client(&servers, issue(&users, "anna.example"), version);
            let (step, rounds) = run(&mut server, &mut client, NOW);
            let Step::Success { msk, names } = step else { panic!("{step:?}") };
            assert!(rounds > 6, "{rounds} rounds: nothing was fragmented");
            let expected =
                client.export_keying_material([0; 128], label, context).expect("a handshake");
            assert_eq!(msk.as_bytes(), &expected[..64]);
            assert_eq!(names[0], Identity::from_text("anna.example"));
        }
    }

    #[test]
    fn users_of_another_authority_and_times_out_of_range_are_refused() {
        let [servers, users, others] = [(); 3].map(|()| authority());
        for (issuer, time) in
            [(&others, NOW), (&users, None), (&users, Some(Duration::from_secs(u64::MAX / 4)))]
        {
            let mut server = start(&servers, &users);
            let mut client = client(&servers, issue(issuer, "anna.example"), &TLS13);
            let (step, _) = run(&mut server, &mut client, time);
            assert!(matches!(step, Step::Failure(EapError::Tls(_))), "{step:?}");
        }
    }

    #[test]
    fn a_peer_cannot_fill_memory_or_speak_out_of_turn() {
        let [servers, users] = [(); 2].map(|()| authority());
        let mut server = start(&servers, &users);
        // a record of a handshake message that never ends
        let record = [&[22, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0xff], &[0; 900][..]].concat();
        let mut packet = [&[TYPE, MORE_FRAGMENTS], &record[..]].concat();
        let mut packets = 0;
        while let Step::Request(_) = server.handle(&packet, NOW) {
            packets += 1;
            packet = [&[TYPE, MORE_FRAGMENTS], &[0; 900][..]].concat();
        }
        assert!(packets <= MAX_RECEIVED / 900, "{packets} packets");
        for wrong in [&[TYPE, 0][..], &[TYPE], &[], &[TYPE, 0x80, 0, 0], &[TYPE, 0, 1, 2, 3, 4, 5]]
        {
            let mut server = start(&servers, &users);
            assert!(matches!(server.handle(wrong, NOW), Step::Failure(_)), "{wrong:?}");
        }
    }
}
