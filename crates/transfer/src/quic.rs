//! Connections: QUIC (RFC 9000) with TLS 1.3, both ends authenticated.

mod attempts;
mod refusal;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use headroom_transfer_proto::path::printable;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig,
    IdleTimeout, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;

use self::attempts::{alternating, first_success};
use self::refusal::refusal;
use self::socket::{client_endpoint, socket};
use crate::access::AccessControl;
use crate::connection::HTTP3_STREAMS;
use crate::error::Error;
use crate::identity::Identity;
use crate::idle_socket::{ActivityFlag, IdleAwareSocket};
use crate::lanes::Port;
use crate::remote_path::Host;
use crate::streams::{Congestion, ping_when_silent};
use crate::trust::{Authority, HostKeys, ServerVerifier, provider};

pub(crate) use self::attempts::with_last;

/// How long nothing must have arrived before the network is asked whether the server is gone. Each
/// end that is silent pings every second.
const SILENCE: Duration = Duration::from_secs(3);

/// The application protocol (ALPN).
pub(crate) const ALPN: &[u8] = b"headroom/1";
/// The idle timeout. A connection survives an outage of half of it: a router that restarts, a
/// laptop between two networks.
const IDLE_MS: u32 = 60_000;
/// The keep-alive interval of a client. A `get` stalls for this long when a router gives the
/// client another port: the server sends to the old one until it receives from the new one.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// The round trip that is assumed until there is a sample: a lost first packet is sent again after
/// three of these. RFC 9002, section 6.2.2, suggests 333 ms, for a second; Chromium assumes 100 ms
/// (`kInitialRttMs` in its `rtt_stats.cc`). Where the answer takes longer, two packets are sent
/// in vain.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// The longest duration of a handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// The receive window of a connection before authentication, in bytes.
const UNAUTHENTICATED_WINDOW: u32 = 128 << 10;
/// The receive window of one stream in bytes: at 1 Gbit/s and 50 ms 6.25 MB are in flight.
const STREAM_WINDOW: u32 = 8 << 20;
/// The receive window of a connection, which bounds the memory that one peer can fill: 1 Gbit/s
/// at 130 ms.
pub(crate) const WINDOW: u32 = 16 << 20;
/// The receive window of an idle client of a server: one message fits.
pub(crate) const QUIET_WINDOW: u32 = 2 << 20;
/// Bytes of datagrams that wait to be read: WebTransport's settings promise to take them, and
/// nothing here uses them.
const DATAGRAMS: usize = 4096;
/// The most data streams at once; a sender uses fewer.
pub(crate) const DATA_STREAMS: u32 = 16;

/// How a client authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientProof {
    /// By a certificate, in the handshake.
    Certificate,
    /// By a message after the handshake.
    Message,
}

/// Resolves a host's name. IPv6 and IPv4 addresses alternate.
pub(crate) async fn addresses(host: &Host) -> Result<Vec<SocketAddr>, Error> {
    let looked_up = tokio::net::lookup_host((host.name(), host.port())).await;
    let unreachable =
        |cause: io::Error| Error::Unreachable { host: host.to_string(), cause: cause.to_string() };
    Ok(alternating(looked_up.map_err(unreachable)?.collect()))
}

/// Connects to a server at the first of these addresses that answers, each within `timeout`, with a
/// certificate of this identity if there is one. Each address has a head start over the next, and
/// one that the network reports as unreachable is given up at once.
///
/// # Errors
/// [`Error::UnknownHost`] with the presented key, if it is not one of `host_keys`; the caller
/// tells an unknown host from a changed one.
pub(crate) async fn connect_to(
    host: &Host,
    addresses: Vec<SocketAddr>,
    identity: Option<&Identity>,
    host_keys: HostKeys,
    authority: Option<Authority>,
    timeout: Duration,
) -> Result<(Endpoint, Connection), Error> {
    let none = unreachable(host, "its name has no address".to_owned());
    let connected = first_success(addresses, none, |address| {
        // each has a verifier: what one server shows is not said of another
        let verifier = Arc::new(ServerVerifier::new(host_keys.clone(), authority.clone()));
        let config = client_config(identity, Arc::clone(&verifier));
        let host = host.clone();
        async move { attempt(&host, address, config?, &verifier, timeout).await }
    });
    let (endpoint, connection) = connected.await?;
    let watched = connection.clone();
    tokio::spawn(async move { ping_when_silent(&watched, || WINDOW).await });
    Ok((endpoint, connection))
}

/// Connects to a server at one address.
async fn attempt(
    host: &Host,
    address: SocketAddr,
    config: ClientConfig,
    verifier: &ServerVerifier,
    timeout: Duration,
) -> Result<(Endpoint, Connection), Error> {
    let endpoint = client_endpoint(address).map_err(|cause| Error::System {
        doing: format!("open a socket towards {address}"),
        cause,
    })?;
    let connecting = endpoint
        .connect_with(config, address, host.name())
        .map_err(|error| unreachable(host, error.to_string()))?;
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(timeout, connecting) => outcome,
        refusal = refusal(address) => {
            return Err(unreachable(host, no_answer(address, &refusal)));
        }
    };
    if let Some(refused) = verifier.refused() {
        let host = host.known_as();
        return Err(match (refused.key, refused.authority) {
            (_, Some(cause)) => Error::NotTrusted {
                host,
                // it quotes names in the certificate
                cause: format!("its certificate is not valid ({})", printable(&cause)),
            },
            (Some(key), None) => Error::UnknownHost { host, key },
            (None, None) => {
                let cause = "its certificate has no Ed25519 key".to_owned();
                Error::NotTrusted { host, cause }
            }
        });
    }
    match outcome {
        Ok(Ok(connection)) => Ok((endpoint, connection)),
        Ok(Err(quinn::ConnectionError::TimedOut)) | Err(_) => {
            let cause = format!(
                "nothing answers at UDP port {} of {}. Does `headroom serve` run there, and does a firewall let UDP through?",
                address.port(),
                address.ip()
            );
            Err(unreachable(host, cause))
        }
        Ok(Err(error)) => Err(match error.into() {
            Error::Lost(cause) => unreachable(host, cause),
            error => error,
        }),
    }
}

/// Waits until nothing arrives any more and the network reports that the server's port is closed:
/// its process has ended. Other reports may be about an outage, which a connection survives.
pub(crate) async fn gone(connection: &Connection) -> Error {
    let mut received = connection.stats().udp_rx.datagrams;
    loop {
        tokio::time::sleep(SILENCE).await;
        let now = connection.stats().udp_rx.datagrams;
        if std::mem::replace(&mut received, now) != now {
            continue;
        }
        let address = connection.remote_address();
        let Ok(error) = tokio::time::timeout(SILENCE, refusal(address)).await else { continue };
        let is_silent = connection.stats().udp_rx.datagrams == now;
        if error.kind() == io::ErrorKind::ConnectionRefused && is_silent {
            return Error::Lost(format!(
                "nothing listens at UDP port {} of {} any more",
                address.port(),
                address.ip()
            ));
        }
    }
}

fn unreachable(host: &Host, cause: String) -> Error {
    Error::Unreachable { host: host.to_string(), cause }
}

/// Listens for clients that `access_control` accepts. Lanes share the port if possible, or have
/// ports of their own.
pub(crate) fn listen(
    address: SocketAddr,
    identity: &Identity,
    access_control: Arc<AccessControl>,
    lane_ports: Option<RangeInclusive<u16>>,
    activity: ActivityFlag,
) -> Result<(Endpoint, Option<Port>), Error> {
    let doing = |cause| Error::System { doing: format!("listen at UDP {address}"), cause };
    let config = server_config(identity, access_control)?;
    if address.port() != 0 {
        // another server of this user would share the port, and receive half of the packets
        drop(socket(address, false).map_err(doing)?);
    }
    let socket = socket(address, lane_ports.is_none()).map_err(doing)?;
    let bound = socket.local_addr().map_err(doing)?;
    let lanes = match lane_ports {
        Some(ports) => Some(range(bound, ports)?),
        None => Port::open(&socket, bound)
            .inspect_err(|error| tracing::warn!("no lanes at UDP {bound}, only streams: {error}"))
            .ok(),
    };
    let mut endpoint = endpoint_config(identity);
    // the fixed bit tells QUIC from lanes (RFC 9287)
    endpoint.grease_quic_bit(false);
    let socket = Arc::new(IdleAwareSocket::new(socket, activity).map_err(doing)?);
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, runtime);
    Ok((endpoint.map_err(doing)?, lanes))
}

/// Opens ports for lanes beside the listening port.
fn range(bound: SocketAddr, ports: RangeInclusive<u16>) -> Result<Port, Error> {
    let (first, last) = (*ports.start(), *ports.end());
    if ports.is_empty() || first == 0 || ports.contains(&bound.port()) {
        return Err(Error::Usage(format!(
            "UDP ports {first}-{last} cannot be used for lanes: the range must be ascending, from 1, and without the listening port {}",
            bound.port()
        )));
    }
    Port::range(bound.ip(), ports).map_err(|cause| Error::System {
        doing: format!("receive lanes at any of the UDP ports {first}-{last}"),
        cause,
    })
}

/// Explains why an address is unreachable, by what the network reported.
fn no_answer(address: SocketAddr, refusal: &io::Error) -> String {
    let (ip, port) = (address.ip(), address.port());
    match refusal.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "{ip} says that nothing listens at its UDP port {port}. Does `headroom serve` run there, and at that port?"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("a firewall of this machine blocks UDP port {port} of {ip}")
        }
        io::ErrorKind::HostUnreachable => {
            format!("there is no host {ip}, or a firewall blocks its UDP port {port}")
        }
        _ => format!("this machine has no route to {ip} ({refusal})"),
    }
}

fn client_config(
    identity: Option<&Identity>,
    verifier: Arc<ServerVerifier>,
) -> Result<ClientConfig, Error> {
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .dangerous() // the verifier pins keys; it leaves no signature unverified
        .with_custom_certificate_verifier(verifier);
    let mut tls = match identity.map(Identity::credentials) {
        Some((certificates, key)) => {
            tls.with_client_auth_cert(certificates, key).map_err(tls_error)?
        }
        None => tls.with_no_client_auth(),
    };
    // a resumed session would not be verified again
    tls.resumption = Resumption::disabled();
    tls.enable_early_data = false;
    quic_client(tls)
}

/// Adds QUIC to a client's TLS configuration.
pub(crate) fn quic_client(mut tls: rustls::ClientConfig) -> Result<ClientConfig, Error> {
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::try_from(tls).map_err(quic_error)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    let mut transport = transport();
    transport
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_bidi_streams(VarInt::from_u32(0));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

fn server_config(
    identity: &Identity,
    access_control: Arc<AccessControl>,
) -> Result<ServerConfig, Error> {
    let (certificates, key) = identity.credentials();
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .with_client_cert_verifier(access_control)
        .with_single_cert(certificates, key)
        .map_err(tls_error)?;
    let mut config = quic_server(tls, &[ALPN])?;
    let mut transport = server_transport();
    // one request at a time: data streams belong to it
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Adds QUIC to a server's TLS configuration.
pub(crate) fn quic_server(
    mut tls: rustls::ServerConfig,
    protocols: &[&[u8]],
) -> Result<ServerConfig, Error> {
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // a removed key must not return with a ticket
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    tls.max_early_data_size = 0;
    let crypto = QuicServerConfig::try_from(tls).map_err(quic_error)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    // bounds for connection attempts that are not accepted yet
    config.max_incoming(1024).incoming_buffer_size(64 << 10).incoming_buffer_size_total(4 << 20);
    Ok(config)
}

/// Returns the parameters of a server's connections before a client is authenticated.
fn server_transport() -> TransportConfig {
    let mut transport = transport();
    transport
        .send_window(u64::from(QUIET_WINDOW))
        .receive_window(VarInt::from_u32(UNAUTHENTICATED_WINDOW));
    transport
}

/// Opens the receive window for requests of an accepted client.
pub(crate) fn open_request_window(connection: &crate::connection::Connection) {
    connection.set_receive_window(QUIET_WINDOW);
}

/// Listens for browsers; whoever accepts their connections has the configuration.
pub(crate) fn listen_web(
    address: SocketAddr,
    identity: &Identity,
    activity: ActivityFlag,
    config: ServerConfig,
) -> Result<Endpoint, Error> {
    let doing = |cause| Error::System { doing: format!("listen at UDP {address}"), cause };
    let socket = socket(address, false).map_err(doing)?;
    let socket = Arc::new(IdleAwareSocket::new(socket, activity).map_err(doing)?);
    let (endpoint, runtime) = (endpoint_config(identity), Arc::new(TokioRuntime));
    Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, runtime).map_err(doing)
}

/// Makes the configuration of a server for browsers, with its own certificate. No client presents
/// one.
pub(crate) fn web_config(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(tls_error)?;
    let mut config = quic_server(tls, &[wtransport::tls::WEBTRANSPORT_ALPN])?;
    let mut transport = server_transport();
    // the session's own stream, and a request; the next one may begin before this one is closed
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(3))
        .max_concurrent_uni_streams(VarInt::from_u32(HTTP3_STREAMS))
        .datagram_receive_buffer_size(Some(DATAGRAMS));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Returns the parameters of every connection.
pub(crate) fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_MS))))
        .initial_rtt(INITIAL_RTT)
        .max_concurrent_uni_streams(VarInt::from_u32(DATA_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        // one piece after the other: the receiver writes whole spans
        .send_fairness(false)
        .congestion_controller_factory(Arc::new(Congestion))
        .datagram_receive_buffer_size(None);
    transport
}

/// Derives the stateless reset key from the identity (RFC 9000, section 10.3), so that a
/// restarted server can reset its former connections.
fn endpoint_config(identity: &Identity) -> EndpointConfig {
    let (_, key) = identity.credentials();
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.secret_der());
    let reset = hmac::sign(&key, b"headroom stateless reset");
    let mut config =
        EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, reset.as_ref())));
    config.cid_generator(|| Box::new(RandomIds));
    config
}

/// Random connection IDs. quinn's own are signed with a key that ends with the server: its
/// successor would not reset them.
#[derive(Debug)]
struct RandomIds;

impl RandomIds {
    const BYTES: usize = 8;
}

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; Self::BYTES];
        // without randomness there would be no TLS either; repeated IDs are generated again
        let _ = aws_lc_rs::rand::fill(&mut bytes);
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        Self::BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn tls_error(error: rustls::Error) -> Error {
    Error::System { doing: "set up TLS".to_owned(), cause: io::Error::other(error.to_string()) }
}

#[allow(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn quic_error(error: quinn::crypto::rustls::NoInitialCipherSuite) -> Error {
    Error::System { doing: "set up QUIC".to_owned(), cause: io::Error::other(error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_survive_outages_of_half_a_minute() {
        // quinn has no other view of its settings
        let settings = format!("{:?}", transport());
        assert!(settings.contains("max_idle_timeout: Some(60000)"), "{settings}");
    }

    #[test]
    fn a_lost_first_packet_is_sent_again_soon() {
        let settings = format!("{:?}", transport());
        assert!(settings.contains("initial_rtt: 100ms"), "{settings}");
    }
}
