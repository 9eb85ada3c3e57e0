//! Whoever is not trusted is refused, on both sides.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    PKCS_ED25519, date_time_ymd,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;

use headroom_transfer_proto::message::Message;
use headroom_transfer_proto::path::RelPath;

use super::*;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};
use crate::proof;
use crate::quic::quic_client;
use crate::trust::{Authority, HostKeys, ServerVerifier, provider};

#[test]
fn a_known_host_lets_an_authorized_key_in() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("both are known");
        assert_eq!(client.key(), Some(ground.server.public()));
        client.list(b"", |_| {}).await.expect("it may look");
        client.close().await;
    });
}

#[test]
fn an_unknown_host_is_refused_and_its_key_shown() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let (host, hosts) = (host(&server), ground.no_hosts());
        let trust = |fingerprint| Trust { hosts: &hosts, authority: None, fingerprint };
        let refused = Client::connect(&host, &ground.client, trust(None)).await;
        let Err(Error::UnknownHost { key, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(key, ground.server.public());

        let right = Some(ground.server.public().fingerprint());
        Client::connect(&host, &ground.client, trust(right)).await.expect("it was vouched for");
        let wrong = Some(ground.client.public().fingerprint());
        let refused = Client::connect(&host, &ground.client, trust(wrong)).await;
        assert!(matches!(refused, Err(Error::NotTrusted { .. })), "{refused:?}");
    });
}

#[test]
fn a_host_whose_key_changed_is_refused_with_a_warning() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let host = host(&server);
        let mut hosts = ground.no_hosts();
        hosts.add("elsewhere", ground.server.public()).expect("it is written");
        hosts.add(&host.known_as(), ground.client.public()).expect("it is written");
        // not even a fingerprint that fits makes another key of a known host right
        for fingerprint in [None, Some(ground.server.public().fingerprint())] {
            let trust = Trust { hosts: &hosts, authority: None, fingerprint };
            let refused = Client::connect(&host, &ground.client, trust).await;
            let Err(error @ Error::ChangedHost { line: 2, .. }) = refused else {
                panic!("{refused:?}")
            };
            let text = error.to_string();
            let file = hosts.path().display().to_string();
            assert!(text.contains("HAS CHANGED") && text.contains(&file), "{text}");
            assert!(text.contains("line 2"), "{text}");
        }
    });
}

#[test]
fn a_key_that_is_not_authorized_is_refused() {
    let mut ground = Ground::new();
    run(async {
        let server = ground.start();
        ground.client = Identity::ephemeral().expect("a key");
        assert_refused(&ground, &server).await;
    });
}

#[test]
fn a_client_without_a_key_is_refused_unless_anybody_may_read() {
    let ground = Ground::new();
    run(async {
        for anonymous_read in [false, true] {
            let mut options = ground.options();
            options.policy.anonymous_read = anonymous_read;
            let server = start(&ground.server, options);
            let tls = client_tls(&ground).with_no_client_auth();
            let outcome = lists(&server, tls).await;
            assert_eq!(outcome, anonymous_read);
        }
    });
}

#[test]
fn anonymous_clients_may_read_and_not_write_if_allowed() {
    let mut ground = Ground::new();
    ground.client = Identity::ephemeral().expect("a key");
    write(&ground.served("a"), b"content");
    write(&ground.here("b"), b"content");
    run(async {
        let mut options = ground.options();
        options.policy = AccessPolicy { anonymous_read: true, ..AccessPolicy::default() };
        let server = start(&ground.server, options);
        let mut client = ground.connect(&server).await.expect("anybody comes in");
        let got = client.get(&[b"a".to_vec()], &ground.here("a"), false, Arc::new(())).await;
        assert_eq!(got.expect("it may read").stored, 1);
        let put = client.put(&[ground.here("b")], b"", false, Arc::new(())).await;
        assert!(matches!(put, Err(Error::Refused(_))), "{put:?}");
        assert!(!ground.served("b").exists());
    });
}

#[test]
fn a_key_has_its_own_root_and_may_be_read_only() {
    let ground = Ground::new();
    write(&ground.served("own/a"), b"content");
    run(async {
        let mut options = ground.options();
        let own = RelPath::parse(b"own").ok();
        let access = Access { root: own, read_only: true, rate_bps: None };
        options.policy.keys.insert(ground.client.public(), access);
        let server = start(&ground.server, options);
        let mut client = ground.connect(&server).await.expect("it is let in");
        let mut names = Vec::new();
        client.list(b"", |listed| names.push(listed.path.to_string())).await.expect("it may look");
        assert_eq!(names, ["a"]);
        let put = client.put(&[ground.served("own/a")], b"b", false, Arc::new(())).await;
        assert!(matches!(put, Err(Error::Refused(_))), "{put:?}");
    });
}

#[test]
fn a_certificate_needs_its_private_key() {
    // mallory shows alice's certificate, and signs with a key of its own
    let (ground, mallory) = (Ground::new(), Identity::ephemeral().expect("a key"));
    run(async {
        let server = ground.start();
        let forged = SingleCertAndKey::from(CertifiedKey::new(
            ground.client.credentials().0,
            provider().key_provider.load_private_key(mallory.credentials().1).expect("a key"),
        ));
        let tls = client_tls(&ground).with_client_cert_resolver(Arc::new(forged));
        assert!(!lists(&server, tls).await, "the server must verify the signature");
        let (certificates, key) = ground.client.credentials();
        let honest = client_tls(&ground).with_client_auth_cert(certificates, key);
        assert!(lists(&server, honest.expect("a key of its own")).await);

        let forged = SingleCertAndKey::from(CertifiedKey::new(
            ground.server.credentials().0,
            provider().key_provider.load_private_key(mallory.credentials().1).expect("a key"),
        ));
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(forged));
        tls.alpn_protocols = vec![b"headroom/1".to_vec()];
        let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).expect("QUIC");
        let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        let any = "127.0.0.1:0".parse().expect("an address");
        let endpoint = quinn::Endpoint::server(config, any).expect("a port");
        let address = endpoint.local_addr().expect("an address");
        let accepting = tokio::spawn(async move {
            let incoming = endpoint.accept().await.expect("a client comes");
            incoming.await.is_ok()
        });
        let host = Host::new(&address.ip().to_string(), address.port());
        let hosts = ground.hosts(&host);
        let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
        let refused = Client::connect(&host, &ground.client, trust).await;
        assert!(refused.is_err(), "the client must verify the signature");
        assert!(!accepting.await.expect("it does not panic"), "and tell the server");
    });
}

/// What the certificates of one case are like.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    authority_until: i32,
    until: i32,
    usage: [bool; 2],
}

const RIGHT: Case =
    Case { name: "127.0.0.1", authority_until: 4000, until: 4000, usage: [true, true] };

#[test]
fn certificates_of_an_authority_are_accepted_until_they_expire() {
    for (what, case, server_trusted, client_trusted) in [
        ("all is right", RIGHT, true, true),
        ("the authority has expired", Case { authority_until: 2001, ..RIGHT }, false, false),
        ("the certificate has expired", Case { until: 2001, ..RIGHT }, false, false),
        // a client's name says nothing: any that the authority signed comes in
        ("it is for another name", Case { name: "192.0.2.1", ..RIGHT }, false, true),
        ("it is for clients", Case { usage: [false, true], ..RIGHT }, false, true),
        ("it is for servers", Case { usage: [true, false], ..RIGHT }, true, false),
    ] {
        assert_eq!(vouched(case, false), (server_trusted, client_trusted), "{what}");
    }
    assert_eq!(vouched(RIGHT, true), (false, false), "another authority signed it");
}

/// Whether a server and a client with such a certificate are trusted.
fn vouched(case: Case, by_another: bool) -> (bool, bool) {
    let mut ground = Ground::new();
    let new_pair = || KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(case.authority_until, 1, 1);
        CertifiedIssuer::self_signed(params, new_pair()).expect("a certificate")
    };
    let (trusted, other) = (authority(), authority());
    let mut params = CertificateParams::new([case.name.to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(case.until, 1, 1);
    let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.extended_key_usages = usages
        .into_iter()
        .zip(case.usage)
        .filter(|(_, has)| *has)
        .map(|(usage, _)| usage)
        .collect();

    let file = ground.folder.path().join("certified");
    Identity::create(&file).expect("it is made");
    let pair = std::fs::read_to_string(&file).expect("a key");
    let pair = KeyPair::from_pem(&pair).expect("a key");
    let issuer = if by_another { &other } else { &trusted };
    let certificate = params.signed_by(&pair, issuer).expect("a certificate");
    std::fs::write(file.with_extension("crt"), certificate.pem()).expect("a file");
    let certified = Identity::read(&file).expect("key and certificate");
    let plain = Identity::ephemeral().expect("a key");
    let file = ground.folder.path().join("authority");
    std::fs::write(&file, trusted.pem()).expect("a file");
    let authority = Authority::read(&file).expect("a certificate");

    run(async {
        // its key is not pinned: only the authority speaks for the server
        let server = start(&certified, ground.options());
        let (host, hosts) = (host(&server), ground.no_hosts());
        let trust = Trust { hosts: &hosts, authority: Some(&authority), fingerprint: None };
        let of_server = Client::connect(&host, &ground.client, trust).await;
        if let Err(error) = &of_server {
            assert!(matches!(error, Error::NotTrusted { .. }), "{error}");
        }

        let mut options = ground.options();
        options.policy =
            AccessPolicy { authority: Some(authority.clone()), ..AccessPolicy::default() };
        let server = start(&plain, options);
        ground.server = plain;
        ground.client = certified;
        let of_client = match ground.connect(&server).await {
            Ok(mut client) => client.list(b"", |_| {}).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &of_client {
            assert!(matches!(error, Error::Refused(_)), "{error}");
        }
        (of_server.is_ok(), of_client.is_ok())
    })
}

async fn assert_refused(ground: &Ground, server: &Server) {
    let refused = match ground.connect(server).await {
        Ok(mut client) => client.list(b"", |_| {}).await,
        Err(error) => Err(error),
    };
    let Err(Error::Refused(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("headroom identity"), "{reason}");
}

fn client_tls(
    ground: &Ground,
) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    let host_keys = HostKeys::Keys(vec![ground.server.public()]);
    rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerVerifier::new(host_keys, None)))
}

/// Whether a server lets such a client look.
async fn lists(server: &Server, tls: rustls::ClientConfig) -> bool {
    let ask = async {
        let (_endpoint, connection) = reach(server, tls).await?;
        ask(&connection, &[Message::List { path: None }]).await
    };
    matches!(ask.await, Ok(Message::Accepted { .. }))
}

/// A connection by such a client.
async fn reach(
    server: &Server,
    tls: rustls::ClientConfig,
) -> Result<(quinn::Endpoint, quinn::Connection), Error> {
    let any = "127.0.0.1:0".parse().expect("an address");
    let endpoint = quinn::Endpoint::client(any).expect("a port");
    let config = quic_client(tls).expect("QUIC");
    let address = server.address().expect("an address");
    let connecting = endpoint.connect_with(config, address, "127.0.0.1").expect("a way");
    Ok((endpoint, connecting.await?))
}

/// Says these on a stream of their own, and hears the answer.
async fn ask(connection: &quinn::Connection, messages: &[Message]) -> Result<Message, Error> {
    let (send, receive) = connection.open_bi().await?;
    let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
    writer.queue(&hello(Greeting::default())).await?;
    for message in messages {
        writer.queue(message).await?;
    }
    writer.flush().await?;
    reader.recv_hello().await?;
    let answer = reader.expect().await?;
    // who goes before the listing's end ends the connection
    let mut is_end = !matches!(answer, Message::Accepted { .. });
    while !is_end {
        is_end = matches!(reader.expect().await?, Message::Listing { last: true, .. });
    }
    Ok(answer)
}

const LOOK: Message = Message::List { path: None };

#[test]
fn a_client_without_a_certificate_proves_its_key_by_a_message() {
    let ground = Ground::new();
    write(&ground.here("file"), b"content");
    run(async {
        let server = ground.start();
        let (host, stranger) = (host(&server), Identity::ephemeral().expect("a key"));
        let hosts = ground.hosts(&host);
        let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
        let client = Client::connect_by_message(&host, &ground.client, trust).await;
        let mut client = client.expect("the server is known");
        client.list(b"", |_| {}).await.expect("it may look");
        let put = client.put(&[ground.here("file")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it may write").stored, 1);

        let client = Client::connect_by_message(&host, &stranger, trust).await;
        let refused = client.expect("nobody was asked yet").list(b"", |_| {}).await;
        let Err(Error::Refused(reason)) = refused else { panic!("{refused:?}") };
        assert!(reason.contains("headroom identity"), "{reason}");
    });
}

#[test]
fn a_wrong_proof_and_one_of_another_session_are_refused() {
    let ground = Ground::new();
    let mallory = Identity::ephemeral().expect("a key");
    run(async {
        for anonymous_read in [false, true] {
            let mut options = ground.options();
            options.policy.anonymous_read = anonymous_read;
            let server = start(&ground.server, options);
            let reach = async || {
                let tls = client_tls(&ground).with_no_client_auth();
                reach(&server, tls).await.expect("the handshake asks for nobody")
            };
            let (_one, there) = reach().await;
            let of_there = proof::make(&ground.client, &there).expect("a proof");
            assert!(matches!(
                ask(&there, &[of_there.clone(), LOOK]).await,
                Ok(Message::Accepted { .. })
            ));

            // what a server to which it was said, too, could pass on; its own key with the
            // signature of another; and bytes that were changed
            let (_two, here) = reach().await;
            let Message::Proof { signature, .. } = proof::make(&mallory, &here).expect("a proof")
            else {
                panic!("it is a proof")
            };
            let key = ground.client.public().bytes();
            let by_mallory = Message::Proof { key, signature, binding: None, nonce: None };
            let Message::Proof { mut signature, .. } =
                proof::make(&ground.client, &here).expect("a proof")
            else {
                panic!("it is a proof")
            };
            signature[40] ^= 1;
            let damaged = Message::Proof { key, signature, binding: None, nonce: None };
            for wrong in [of_there, by_mallory, damaged] {
                let (_endpoint, connection) = reach().await;
                let answer = ask(&connection, &[wrong, LOOK]).await.expect("an answer");
                let Message::Refused { reason, .. } = answer else { panic!("{answer:?}") };
                assert!(reason.contains("proof of its key"), "{reason}");
                // not even as anybody: the connection is over
                assert!(ask(&connection, &[LOOK]).await.is_err());
            }
        }
    });
}

#[test]
fn a_client_states_its_identity_once() {
    let ground = Ground::new();
    run(async {
        let mut options = ground.options();
        options.policy.anonymous_read = true;
        let server = start(&ground.server, options);
        // with a certificate, and after having been anybody
        let (certificates, key) = ground.client.credentials();
        let certified =
            client_tls(&ground).with_client_auth_cert(certificates, key).expect("a key");
        let anybody = client_tls(&ground).with_no_client_auth();
        for (tls, first) in [(certified, None), (anybody, Some(LOOK))] {
            let (_endpoint, connection) = reach(&server, tls).await.expect("a connection");
            if let Some(first) = first {
                assert!(matches!(ask(&connection, &[first]).await, Ok(Message::Accepted { .. })));
            }
            let proof = proof::make(&ground.client, &connection).expect("a proof");
            let answer = ask(&connection, &[proof, LOOK]).await;
            assert!(matches!(answer, Err(Error::Protocol(_))), "{answer:?}");
        }
    });
}

#[test]
fn an_unauthenticated_client_can_use_little_memory() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let tls = client_tls(&ground).with_no_client_auth();
        let (_endpoint, connection) = reach(&server, tls).await.expect("a connection");
        let patience = std::time::Duration::from_millis(300);
        let opened = tokio::time::timeout(patience, connection.open_uni()).await;
        assert!(opened.is_err(), "a stranger has no streams for data");
    });
}

#[test]
fn connections_of_removed_keys_are_closed() {
    let ground = Ground::new();
    let other = Identity::ephemeral().expect("a key");
    let file = ground.folder.path().join("authorized_keys");
    let write_keys = |text: String| std::fs::write(&file, text).expect("a file");
    let (client_key, other_key) = (ground.client.public(), other.public());
    write_keys(format!("{client_key}\n{other_key}\n"));
    run(async {
        let policy = AccessPolicy {
            keys: AuthorizedKeys::read(&file).expect("keys"),
            ..AccessPolicy::default()
        };
        let mut options = ground.options();
        options.policy = policy.clone();
        let server = Server::bind(&ground.server, options).expect("a port");
        let (serving, followed) = (server.clone(), crate::trust::Followed::new(&file));
        tokio::spawn(async move { serving.serve_following(followed, policy).await });
        let (host, address) = (host(&server), server.address().expect("an address"));
        let hosts = ground.hosts(&host);
        let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
        let connect = async |identity| Client::connect(&host, identity, trust).await;
        let mut stays = connect(&ground.client).await.expect("it is let in");
        let mut goes = connect(&other).await.expect("it is let in");
        let by_message = Client::connect_by_message(&host, &other, trust).await;
        let mut goes_too = by_message.expect("it is let in");
        for client in [&mut stays, &mut goes, &mut goes_too] {
            client.list(b"", |_| {}).await.expect("it may look");
        }
        // its line is gone; that another is wrong does not keep it in
        write_keys(format!("{client_key}\nread-olny {other_key}\n"));
        for client in [goes, goes_too] {
            let ended = client.connection().closed().await;
            let error = Error::from(ended);
            assert!(matches!(error, Error::Refused(_)), "{error}");
        }
        stays.list(b"", |_| {}).await.expect("it still may");
        let again = connect(&other).await;
        let again = match again {
            Ok(mut client) => client.list(b"", |_| {}).await,
            Err(error) => Err(error),
        };
        assert!(matches!(again, Err(Error::Refused(_))), "{again:?}");

        // what somebody may do is changed: the next connection has it
        write_keys(format!("read-only {client_key}\n{other_key}\n"));
        let ended = Error::from(stays.connection().closed().await);
        assert!(matches!(ended, Error::Refused(_)), "{ended}");
        connect(&other).await.expect("it is let in again");
        assert_eq!(server.address().expect("an address"), address);
    });
}

#[test]
fn a_client_refused_after_the_handshake_gets_the_reason() {
    let ground = Ground::new();
    let own = ground.served("own");
    std::fs::create_dir(&own).expect("a folder");
    run(async {
        let mut options = ground.options();
        let access = Access { root: RelPath::parse(b"own").ok(), ..Access::default() };
        options.policy.keys.insert(ground.client.public(), access);
        let server = start(&ground.server, options);
        std::fs::remove_dir(&own).expect("it was there");
        let host = host(&server);
        let hosts = ground.hosts(&host);
        let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
        let by_message = Client::connect_by_message(&host, &ground.client, trust).await;
        for connected in [ground.connect(&server).await, by_message] {
            let listed = match connected {
                Ok(mut client) => client.list(b"", |_| {}).await.map(drop),
                Err(error) => Err(error),
            };
            let told = matches!(&listed, Err(Error::Refused(why)) if why.contains("own"));
            assert!(told, "{listed:?}");
        }
    });
}
