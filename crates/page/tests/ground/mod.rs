//! A server with a page on loopback, and browsers as programs.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use data_encoding::HEXLOWER;
use futures_util::{SinkExt, StreamExt};
use headroom_page::{CertificateSource, Intervals, Options, Page};
use headroom_transfer::server::{Log, Options as ServerOptions, Record};
use headroom_transfer::trust::{Access, AccessPolicy, Invitation, Invitations};
use headroom_transfer::{Identity, PublicKey, Server};
use headroom_transfer_proto::message::{self, Message, VERSION};
use headroom_transfer_proto::mux::{Frame, StreamId};
use headroom_transfer_proto::proof::Binding;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use wtransport::config::{DnsLookupFuture, DnsResolver};
use wtransport::endpoint::ConnectOptions;
use wtransport::error::StreamWriteError;
use wtransport::tls::Sha256Digest;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub const LOOK: Message = Message::List { path: None };

/// Runs a test.
pub fn run(test: impl Future<Output = ()>) {
    run_for(PATIENCE, test);
}

/// Runs a test that may take this long.
pub fn run_for(patience: Duration, test: impl Future<Output = ()>) {
    headroom_transfer::block_on(async {
        tokio::time::timeout(patience, test).await.expect("it takes too long");
    })
    .expect("a runtime");
}

pub struct Ground {
    folder: tempfile::TempDir,
    pub server: Server,
    pub page: Page,
    pub requests: Arc<Requests>,
}

/// The server's log: operations and paths of requests that have ended.
#[derive(Debug, Default)]
pub struct Requests(Mutex<Vec<Logged>>);

/// An operation and its paths.
type Logged = (&'static str, Vec<Vec<u8>>);

impl Log for Requests {
    fn ended(&self, record: &Record<'_>) {
        let mut ended = self.0.lock().expect("no panic");
        ended.push((record.operation, record.paths.to_vec()));
    }
}

impl Requests {
    /// Returns the paths of the requests of one kind.
    pub fn paths(&self, operation: &str) -> Vec<String> {
        let ended = self.0.lock().expect("no panic");
        let of_kind = ended.iter().filter(|(kind, _)| *kind == operation);
        of_kind
            .flat_map(|(_, paths)| paths)
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }
}

impl Ground {
    /// Serves an empty directory to nobody.
    pub fn start() -> Self {
        Self::start_with(Intervals::default(), |folder| {
            CertificateSource::SelfSigned(folder.join("web.pem"))
        })
    }

    /// Serves an empty directory to nobody, with a certificate from elsewhere.
    pub fn start_with(
        intervals: Intervals,
        certificate: impl FnOnce(&Path) -> CertificateSource,
    ) -> Self {
        Self::start_at(0, intervals, certificate)
    }

    /// Does so at a port, for a page that others must know before.
    pub fn start_at(
        port: u16,
        intervals: Intervals,
        certificate: impl FnOnce(&Path) -> CertificateSource,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("served");
        std::fs::create_dir(&root).expect("a folder");
        let identity = Identity::ephemeral().expect("a key");
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let requests = Arc::new(Requests::default());
        let log = Some(Arc::clone(&requests) as Arc<dyn Log>);
        let options = ServerOptions::new(root, address, AccessPolicy::default());
        let options = ServerOptions { log, ..options };
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let server = Server::bind(&identity, options).expect("a port");
        let options = Options {
            address,
            certificate: certificate(folder.path()),
            names: vec!["files.example.org".to_owned()],
            root_name: "served".to_owned(),
            anonymous_read: false,
        };
        let page = Page::bind(&server, &identity, options).expect("a port");
        page.clone().start_with(intervals);
        Self { folder, server, page, requests }
    }

    /// Returns a path beside the directory that is served.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn served(&self, name: &str) -> PathBuf {
        self.folder.path().join("served").join(name)
    }

    pub fn authorized_keys(&self) -> PathBuf {
        self.folder.path().join("authorized_keys")
    }

    pub fn port(&self) -> u16 {
        self.page.address().port()
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    pub fn origin(&self) -> String {
        format!("https://{}", self.host())
    }

    pub fn pinned(&self) -> Proof {
        Proof { kind: Some(Binding::Certificate), bound_to: self.page.session_hash() }
    }

    pub fn by_origin(&self) -> Proof {
        Proof { kind: Some(Binding::Origin), bound_to: sha256(self.origin().as_bytes()) }
    }

    pub fn invite(&self, options: &str) -> [u8; 32] {
        let invitation = Invitation::new(&self.authorized_keys(), options).expect("options");
        let invitations = Invitations::default();
        let secret = invitations.open(invitation).expect("a secret");
        self.server.set_invitations(invitations);
        secret
    }

    /// Connects as this server's own page does.
    pub async fn connect(&self) -> Result<wtransport::Connection, String> {
        self.connect_from("127.0.0.1", "/transfer", Some(&self.origin())).await
    }

    /// Connects to this server by a name, from a page of an origin.
    pub async fn connect_from(
        &self,
        host: &str,
        path: &str,
        origin: Option<&str>,
    ) -> Result<wtransport::Connection, String> {
        let hash = Sha256Digest::new(self.page.session_hash());
        let mut config = wtransport::ClientConfig::builder()
            .with_bind_address(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))
            .with_server_certificate_hashes([hash])
            .build();
        config.set_dns_resolver(ToHere(self.page.address()));
        let endpoint = wtransport::Endpoint::client(config).expect("a socket");
        let url = format!("https://{host}:{}{path}", self.port());
        let mut options = ConnectOptions::builder(url);
        if let Some(origin) = origin {
            options = options.add_header("origin", origin);
        }
        endpoint.connect(options.build()).await.map_err(|error| error.to_string())
    }
}

/// Resolves every name to one address.
#[derive(Debug)]
struct ToHere(SocketAddr);

impl DnsResolver for ToHere {
    fn resolve(&self, _host: &str) -> std::pin::Pin<Box<dyn DnsLookupFuture>> {
        let address = self.0;
        Box::pin(async move { Ok(Some(address)) })
    }
}

/// What a proof is bound to; without a kind, as those of clients of our own.
pub struct Proof {
    pub kind: Option<Binding>,
    pub bound_to: [u8; 32],
}

/// A browser with a key.
pub struct Browser(Ed25519KeyPair);

impl Browser {
    pub fn new() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key"))
    }

    /// Makes one whose key the server knows.
    pub fn known(ground: &Ground) -> Self {
        let browser = Self::new();
        let mut policy = AccessPolicy::default();
        policy.keys.insert(PublicKey::from(browser.key()), Access::default());
        ground.server.set_policy(policy);
        browser
    }

    pub fn key(&self) -> [u8; 32] {
        self.0.public_key().as_ref().try_into().expect("32 bytes")
    }

    pub fn proof(&self, proof: &Proof, server_nonce: &[u8; 32]) -> Message {
        let (key, nonce) = (self.key(), [9; 32]);
        let kind = proof.kind.unwrap_or(Binding::Certificate);
        let signed = kind.to_sign(&key, &proof.bound_to, server_nonce, &nonce);
        let signature = self.0.sign(&signed).as_ref().try_into().expect("64 bytes");
        let nonce = proof.kind.map(|_| nonce);
        Message::Proof { key, signature, binding: proof.kind, nonce }
    }

    /// Signs in with a request; returns the answer, and the names of a listing.
    pub async fn look(
        &self,
        session: &wtransport::Connection,
        proof: &Proof,
        request: Message,
    ) -> (Message, Vec<String>) {
        let (mut send, mut receive) = open(session).await;
        let Some(Message::Challenge { nonce }) = recv(&mut receive).await else {
            panic!("a challenge")
        };
        let messages = [hello(), self.proof(proof, &nonce), request.clone()];
        send.write_all(&framed(&messages)).await.expect("it is sent");
        let answer = after_hello(&mut receive).await.expect("an answer");
        if !accepted(&answer) || request != LOOK {
            // such a request goes on
            tokio::spawn(async move {
                let _open = (send, receive);
                tokio::time::sleep(PATIENCE).await;
            });
            return (answer, Vec::new());
        }
        (answer, names(&mut receive).await)
    }

    /// Signs in with an invitation, and asks for its rights.
    pub async fn show(
        &self,
        session: &wtransport::Connection,
        proof: &Proof,
        invited: Message,
    ) -> Message {
        let (mut send, mut receive) = open(session).await;
        let Some(Message::Challenge { nonce }) = recv(&mut receive).await else {
            panic!("a challenge")
        };
        let messages = [hello(), self.proof(proof, &nonce), invited, Message::Rights];
        send.write_all(&framed(&messages)).await.expect("it is sent");
        after_hello(&mut receive).await.expect("an answer")
    }

    /// Signs in and lists; returns the answers.
    pub async fn look_by_socket(&self, socket: &mut Socket, proof: &Proof) -> Vec<Message> {
        let stream = StreamId::new(0, false, false);
        // the first frame opens the stream, on which the server challenges
        let first = framed(&[hello()]);
        socket
            .send(Frame::Data { stream, end: false, bytes: &first }.encode())
            .await
            .expect("it is sent");
        let Some(Message::Challenge { nonce }) = socket.recv(stream).await else {
            panic!("a challenge")
        };
        let rest = framed(&[self.proof(proof, &nonce), LOOK]);
        socket
            .send(Frame::Data { stream, end: true, bytes: &rest }.encode())
            .await
            .expect("it is sent");
        let mut answers = Vec::new();
        while let Some(answer) = socket.recv(stream).await {
            answers.push(answer);
        }
        answers
    }
}

pub fn hello() -> Message {
    Message::Hello {
        version: VERSION,
        program: "a browser".to_owned(),
        rate_bps: None,
        priority: None,
        counts: None,
    }
}

pub fn framed(messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        message.frame(&mut bytes).expect("within bounds");
    }
    bytes
}

pub fn accepted(message: &Message) -> bool {
    matches!(message, Message::Accepted { .. })
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    hash.as_ref().try_into().expect("32 bytes")
}

pub async fn open(
    session: &wtransport::Connection,
) -> (wtransport::SendStream, wtransport::RecvStream) {
    session.open_bi().await.expect("a stream").await.expect("a stream")
}

/// Ends what is sent. A server that has read a whole request may stop the stream before it sees
/// the end, so that this counts as an end as well.
pub async fn finish(stream: &mut wtransport::SendStream) {
    match stream.finish().await {
        Ok(()) | Err(StreamWriteError::Stopped(_)) => {}
        Err(error) => panic!("ending a stream: {error}"),
    }
}

/// Receives the next message; `None` at the end.
pub async fn recv(receive: &mut wtransport::RecvStream) -> Option<Message> {
    let mut length = [0; 4];
    receive.read_exact(&mut length).await.ok()?;
    let mut body = vec![0; message::body_len(length).expect("a length")];
    receive.read_exact(&mut body).await.ok()?;
    Some(Message::parse(&body).expect("a message"))
}

pub async fn after_hello(receive: &mut wtransport::RecvStream) -> Option<Message> {
    assert!(matches!(recv(receive).await?, Message::Hello { .. }));
    recv(receive).await
}

async fn names(receive: &mut wtransport::RecvStream) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(Message::Listing { entries, last }) = recv(receive).await {
        names.extend(entries.into_iter().map(|entry| entry.path.to_string()));
        if last {
            break;
        }
    }
    names
}

/// Lists on a session that is signed in.
pub async fn look_again(session: &wtransport::Connection) -> (Message, Vec<String>) {
    let (mut send, mut receive) = open(session).await;
    send.write_all(&framed(&[hello(), LOOK])).await.expect("it is sent");
    let answer = after_hello(&mut receive).await.expect("an answer");
    let names = names(&mut receive).await;
    (answer, names)
}

/// A WebSocket.
pub struct Socket {
    stream: WebSocketStream<TlsStream<TcpStream>>,
    received: Vec<u8>,
}

impl Socket {
    pub async fn connect(
        ground: &Ground,
        host: &str,
        origin: Option<&str>,
    ) -> Result<Self, tungstenite::Error> {
        let mut request = tungstenite::handshake::client::Request::builder()
            .uri(format!("wss://{host}/transfer"))
            .header("host", host)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let request = request.body(()).expect("a request");
        let (stream, _) = tokio_tungstenite::client_async(request, tls(ground).await).await?;
        Ok(Self { stream, received: Vec::new() })
    }

    pub async fn send(&mut self, frame: Vec<u8>) -> Result<(), tungstenite::Error> {
        self.stream.send(tungstenite::Message::Binary(frame.into())).await
    }

    /// Receives the next message of a stream; `None` at its end or that of the connection.
    pub async fn recv(&mut self, of: StreamId) -> Option<Message> {
        loop {
            if let Some((length, rest)) = self.received.split_first_chunk::<4>() {
                let len = message::body_len(*length).expect("a length");
                if let Some(body) = rest.get(..len) {
                    let message = Message::parse(body).expect("a message");
                    self.received.drain(..4 + len);
                    return Some(message);
                }
            }
            let tungstenite::Message::Binary(frame) = self.stream.next().await?.ok()? else {
                continue;
            };
            match Frame::parse(&frame).expect("a frame") {
                Frame::Data { stream, end, bytes } if stream == of => {
                    self.received.extend_from_slice(bytes);
                    if end && self.received.is_empty() {
                        return None;
                    }
                }
                _ => {}
            }
        }
    }

    pub async fn is_closed_by_server(&mut self) -> bool {
        loop {
            match self.stream.next().await {
                None | Some(Err(_) | Ok(tungstenite::Message::Close(_))) => return true,
                Some(Ok(_)) => {}
            }
        }
    }
}

/// Waits until something holds.
pub async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Connects by TLS, whatever the certificate.
pub async fn tls(ground: &Ground) -> TlsStream<TcpStream> {
    tls_of(ground, "files.example.org", &[]).await.expect("TLS")
}

/// Connects by TLS to a name, for one of these protocols.
pub async fn tls_of(
    ground: &Ground,
    name: &str,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ByHash(ground.page.certificate_hash())))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(ground.page.address()).await.expect("it listens");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    connector.connect(name, stream).await
}

/// Sends the head of a request, and returns the answer's head in lower case, and its body.
pub async fn request(ground: &Ground, head: &str) -> (String, Vec<u8>) {
    let mut stream = tls(ground).await;
    let head = format!("{}\r\nconnection: close\r\n\r\n", head.replace('\n', "\r\n"));
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap_or(answer.len());
    let body = answer.get(end + 4..).unwrap_or_default().to_vec();
    (String::from_utf8_lossy(&answer[..end]).to_lowercase(), body)
}

/// Accepts the certificate of this hash, as a person who has compared it.
#[derive(Debug)]
struct ByHash(String);

impl ServerCertVerifier for ByHash {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        assert_eq!(HEXLOWER.encode(&sha256(own)), self.0);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let algorithms = &provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, own, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
