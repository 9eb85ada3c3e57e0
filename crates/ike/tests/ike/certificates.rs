//! Identity by certificates: what is accepted, and each reason to refuse.

use std::sync::Arc;
use std::time::Duration;

use headroom_ike::crypto::{HASHES, SigningKey};
use headroom_ike::wire::{
    AuthMethod, Certificate, CertificateEncoding, HashAlgorithmId, NotifyType,
};
use headroom_ike::{
    Auth, Authorities, CertificateError, Config, Connection, Identity, LocalAuth, PostQuantum,
    Reason, RemoteAuth,
};
use headroom_suite::Key;
use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose, SerialNumber, date_time_ymd};

use crate::pki::{Authority, Issued, NOW};
use crate::world::{A, B, World, configs};

const OCTETS: &[u8] = b"what both peers saw";

fn connection(config: &mut Config) -> &mut Connection {
    Arc::get_mut(&mut config.connections[0]).expect("one owner")
}

/// Two hosts with certificates of one authority each, the peer's authority known to the other.
fn world(issued: [&Issued; 2], trusted: [&Authority; 2]) -> World {
    let mut configs = configs(PostQuantum::Required);
    for (at, config) in configs.iter_mut().enumerate() {
        connection(config).auth = Auth {
            local: LocalAuth::Certificate(Arc::new(issued[at].credential())),
            remote: RemoteAuth::Certificate(Arc::new(trusted[at].trusted())),
        };
    }
    let mut world = World::new(configs, 5);
    world.hosts.iter_mut().for_each(|host| host.endpoint.set_time(NOW));
    world
}

fn hosts(authority: &Authority) -> [Issued; 2] {
    ["host-1.example", "host-2.example"].map(|name| authority.issue(name))
}

fn is_up(world: &World) -> bool {
    world.hosts.iter().all(|host| host.ready && host.closed.is_empty())
}

#[test]
fn both_roles_accept_each_kind_of_key() {
    let authority = Authority::new("root");
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
    ] {
        let [a, b] = ["host-1.example", "host-2.example"]
            .map(|name| authority.issue_with(name, algorithm, |_| {}));
        let mut world = world([&a, &b], [&authority, &authority]);
        world.connect(A);
        world.settle();
        assert!(is_up(&world), "{algorithm:?}: {:?}", world.hosts.each_ref().map(|h| &h.closed));
        world.check_agreement(1);
    }
}

#[test]
fn each_side_may_have_another_authority_and_a_chain_of_them() {
    let [one, other] = ["one", "other"].map(Authority::new);
    let between = one.below("between");
    let a = between.issue("host-1.example").with(&[&between]);
    let b = other.issue("host-2.example");
    let mut world = world([&a, &b], [&other, &one]);
    world.connect(A);
    world.settle();
    assert!(is_up(&world));
}

#[test]
fn one_side_may_have_a_shared_key_and_the_other_a_certificate() {
    let authority = Authority::new("root");
    let [_, b] = hosts(&authority);
    let mut configs = configs(PostQuantum::Required);
    let key = || Key::from_bytes(b"of host 1");
    connection(&mut configs[A]).auth = Auth {
        local: LocalAuth::SharedKey(key()),
        remote: RemoteAuth::Certificate(Arc::new(authority.trusted())),
    };
    connection(&mut configs[B]).auth = Auth {
        local: LocalAuth::Certificate(Arc::new(b.credential())),
        remote: RemoteAuth::SharedKey(key()),
    };
    let mut world = World::new(configs, 6);
    world.hosts[A].endpoint.set_time(NOW);
    world.connect(A);
    world.settle();
    assert!(is_up(&world));
}

/// Connects, and returns why the responder refused the initiator's certificate.
fn refused(mut world: World) -> CertificateError {
    world.connect(A);
    world.settle();
    // the peer learns nothing
    assert_eq!(world.hosts[A].closed, [Reason::Refused(NotifyType::AuthenticationFailed)]);
    assert!(world.hosts.iter().all(|host| !host.ready && host.endpoint.sessions() == 0));
    match &world.hosts[B].closed[..] {
        [Reason::Certificate { peer, why }] => {
            assert_eq!(peer, "host-1.example");
            *why.clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_responder_says_why_to_its_log_and_nothing_to_the_peer() {
    let [authority, stranger] = ["root", "stranger"].map(Authority::new);
    let [_, b] = hosts(&authority);
    let by_stranger = stranger.issue("host-1.example");
    let error = refused(world([&by_stranger, &b], [&authority, &authority]));
    assert_eq!(error, CertificateError::UnknownIssuer("CN=host-1.example".to_owned()));
    let other_name = authority.issue("host-3.example");
    let error = refused(world([&other_name, &b], [&authority, &authority]));
    assert_eq!(
        error.to_string(),
        "the certificate of CN=host-3.example does not have the name host-1.example"
    );
}

#[test]
fn an_initiator_refuses_a_responder_with_another_authority() {
    let [authority, stranger] = ["root", "stranger"].map(Authority::new);
    let [a, _] = hosts(&authority);
    let b = stranger.issue("host-2.example");
    let mut world = world([&a, &b], [&authority, &authority]);
    world.connect(A);
    world.settle();
    let error = CertificateError::UnknownIssuer("CN=host-2.example".to_owned());
    let peer = "host-2.example".to_owned();
    assert_eq!(world.hosts[A].closed, [Reason::Certificate { peer, why: error.into() }]);
    assert!(world.hosts[A].children.is_empty());
}

#[test]
fn a_clock_that_jumps_decides_only_what_is_authenticated_next() {
    let authority = Authority::new("root");
    let [a, b] = hosts(&authority);
    let world = || world([&a, &b], [&authority, &authority]);
    // 1970, as a host without battery has it
    let mut early = world();
    early.hosts[B].endpoint.set_time(Duration::from_secs(5));
    let error = refused(early);
    assert_eq!(
        error.to_string(),
        "the certificate of CN=host-1.example is not valid before Jan  1 00:00:00 2025 +00:00"
    );
    let mut late = world();
    late.hosts[B].endpoint.set_time(NOW * 2);
    assert!(matches!(refused(late), CertificateError::Expired { .. }));
    // what stands goes on, also through rekeying
    let mut jumping = world();
    jumping.connect(A);
    jumping.settle();
    for time in [Duration::ZERO, NOW * 2, Duration::MAX] {
        jumping.hosts.iter_mut().for_each(|host| host.endpoint.set_time(time));
        jumping.rekey_ike(A);
        jumping.settle();
    }
    assert!(is_up(&jumping));
    assert_eq!(jumping.hosts[B].rekeyed, 3);
}

#[test]
fn without_a_time_of_day_no_certificate_is_accepted() {
    let authority = Authority::new("root");
    let [a, b] = hosts(&authority);
    let auth = |issued: &Issued| Auth {
        local: LocalAuth::Certificate(Arc::new(issued.credential())),
        remote: RemoteAuth::Certificate(Arc::new(authority.trusted())),
    };
    let mut configs = configs(PostQuantum::Required);
    connection(&mut configs[A]).auth = auth(&a);
    connection(&mut configs[B]).auth = auth(&b);
    assert_eq!(refused(World::new(configs, 5)), CertificateError::NoClock);
}

/// Signs with a key, and checks it against its certificate as that of `name`.
fn check(
    authorities: &Authorities,
    issued: &Issued,
    name: &str,
    octets: &[u8],
) -> Result<(), CertificateError> {
    let key = SigningKey::from_der(&issued.key).expect("a key");
    let (method, data) = key.sign(Some(&HASHES), OCTETS).expect("a signature");
    let name = Identity::from_text(name);
    authorities.check(&issued.payloads(), &name, (method, &data), octets, Some(NOW))
}

#[test]
fn names_are_those_of_the_certificate_alone() {
    let authority = Authority::new("root");
    let issued = authority.issue("host.example");
    let trusted = authority.trusted();
    for name in ["host.example", "HOST.Example", "Root@host.EXAMPLE", "192.0.2.1"] {
        assert_eq!(check(&trusted, &issued, name, OCTETS), Ok(()), "{name}");
    }
    for name in ["example", "a.host.example", "root@host.example", "192.0.2.2", "2001:db8::1"] {
        let error = check(&trusted, &issued, name, OCTETS);
        assert!(matches!(error, Err(CertificateError::Name { .. })), "{name}: {error:?}");
    }
    // the subject, byte for byte; nothing else has a name in a certificate
    let names = issued.credential().names();
    let key = SigningKey::from_der(&issued.key).expect("a key");
    let (method, data) = key.sign(Some(&HASHES), OCTETS).expect("a signature");
    let check = |name: &Identity| {
        trusted.check(&issued.payloads(), name, (method, &data), OCTETS, Some(NOW))
    };
    let Some(Identity::Dn(dn)) = names.last() else { panic!("{names:?}") };
    assert!(check(&names[3]).is_ok());
    assert!(check(&Identity::Dn([&dn[..], &[0]].concat())).is_err());
    assert!(check(&Identity::KeyId(b"host.example".to_vec())).is_err());
}

#[test]
fn each_defect_of_a_chain_has_its_reason() {
    let root = Authority::new("root");
    let name = "host.example";
    let algorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
    let trusted = root.trusted();
    let problem =
        |issued: &Issued| check(&trusted, issued, name, OCTETS).map_err(|e| e.to_string());
    let expired = root.issue_with(name, algorithm, |params| {
        params.not_after = date_time_ymd(2025, 6, 1);
    });
    assert_eq!(
        problem(&expired),
        Err("the certificate of CN=host.example expired on Jun  1 00:00:00 2025 +00:00".to_owned())
    );
    // seven authorities below the root; webpki goes no deeper than six
    let mut chain = vec![root.below("1")];
    for number in 2..=7 {
        let next = chain.last().map(|last| last.below(&number.to_string()));
        chain.extend(next);
    }
    let deep = |depth: usize| {
        chain[depth - 1].issue(name).with(&chain[..depth].iter().rev().collect::<Vec<_>>())
    };
    assert_eq!(problem(&deep(3)), Ok(()));
    assert_eq!(
        problem(&deep(7)),
        Err("the chain of the certificate of CN=host.example: MaximumPathDepthExceeded".to_owned())
    );
    let mut many = deep(7);
    many.chain.push(root.der());
    assert_eq!(check(&trusted, &many, name, OCTETS), Err(CertificateError::TooMany));
    let mut missing = deep(2);
    missing.chain.truncate(1);
    assert!(matches!(
        check(&trusted, &missing, name, OCTETS),
        Err(CertificateError::UnknownIssuer(_))
    ));
    let mut none = deep(2);
    none.chain.clear();
    assert_eq!(check(&trusted, &none, name, OCTETS), Err(CertificateError::Missing));
    let mut broken = deep(2);
    broken.chain[0].push(0);
    assert_eq!(check(&trusted, &broken, name, OCTETS), Err(CertificateError::Malformed(0)));
    // an authority's certificate is not one of a host
    let pretender = root.issue(name);
    let below = pretender.chain[0].clone();
    assert!(Authorities::new(&[below], &[]).is_ok());
    let constrained = root.issue_with(name, algorithm, |params| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    assert!(matches!(
        check(&trusted, &constrained, name, OCTETS),
        Err(CertificateError::Chain { .. })
    ));
}

#[test]
fn no_byte_of_a_chain_can_be_altered_or_cut_off() {
    let root = Authority::new("root");
    let between = root.below("between");
    let issued = between.issue("host.example").with(&[&between]);
    let trusted = root.trusted();
    assert_eq!(check(&trusted, &issued, "host.example", OCTETS), Ok(()));
    for certificate in 0..2 {
        for at in 0..issued.chain[certificate].len() {
            for bit in [1, 0x80] {
                let mut altered = issued.clone();
                altered.chain[certificate][at] ^= bit;
                let error = check(&trusted, &altered, "host.example", OCTETS);
                assert!(error.is_err(), "byte {at} of certificate {certificate}");
            }
            let mut short = issued.clone();
            short.chain[certificate].truncate(at);
            assert!(check(&trusted, &short, "host.example", OCTETS).is_err());
        }
    }
}

#[test]
fn a_certificate_of_another_purpose_is_refused() {
    let root = Authority::new("root");
    let trusted = root.trusted();
    let ike = || ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 17]);
    let tls = || vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    for (purposes, fits) in [
        (vec![], true),
        (vec![ike()], true),
        ([tls(), vec![ike()]].concat(), true),
        (vec![ExtendedKeyUsagePurpose::Any], true),
        (tls(), false),
    ] {
        let issued = root.issue_with("host.example", &rcgen::PKCS_ED25519, |params| {
            params.extended_key_usages = purposes.clone();
        });
        let usage = Err(CertificateError::Usage("CN=host.example".to_owned()));
        let expected = if fits { Ok(()) } else { usage };
        assert_eq!(check(&trusted, &issued, "host.example", OCTETS), expected, "{purposes:?}");
    }
    for (usage, fits) in [
        (KeyUsagePurpose::DigitalSignature, true),
        (KeyUsagePurpose::ContentCommitment, true),
        (KeyUsagePurpose::KeyEncipherment, false),
    ] {
        let issued = root.issue_with("host.example", &rcgen::PKCS_ED25519, |params| {
            params.key_usages = vec![usage];
        });
        let checked = check(&trusted, &issued, "host.example", OCTETS);
        assert_eq!(checked.is_ok(), fits, "{usage:?}: {checked:?}");
    }
}

#[test]
fn revocation_lists_decide_if_they_are_given() {
    let root = Authority::new("root");
    let issue = |serial: u64| {
        root.issue_with("host.example", &rcgen::PKCS_ED25519, |params| {
            params.serial_number = Some(SerialNumber::from(serial));
        })
    };
    let with = |list: Vec<u8>| Authorities::new(&[root.der()], &[list]).expect("a list");
    let valid = with(root.revoke(&[7], 2030));
    let name = "host.example";
    assert_eq!(check(&valid, &issue(8), name, OCTETS), Ok(()));
    assert!(matches!(check(&valid, &issue(7), name, OCTETS), Err(CertificateError::Revoked(_))));
    // out of date, or of another authority: it is not known whether it is revoked
    for list in [root.revoke(&[], 2025), Authority::new("other").revoke(&[], 2030)] {
        let error = check(&with(list), &issue(8), name, OCTETS);
        assert!(matches!(error, Err(CertificateError::RevocationUnknown(_))), "{error:?}");
    }
    assert!(Authorities::new(&[root.der()], &[vec![1]]).is_err());
}

#[test]
fn a_signature_is_of_these_octets_and_this_key() {
    let root = Authority::new("root");
    let trusted = root.trusted();
    let name = Identity::from_text("host.example");
    let wrong = Err(CertificateError::Signature("CN=host.example".to_owned()));
    let [one, other] = [(); 2].map(|()| root.issue("host.example"));
    assert_eq!(check(&trusted, &one, "host.example", b"other octets"), wrong);
    let mixed = Issued { chain: one.chain.clone(), key: other.key.clone() };
    assert_eq!(check(&trusted, &mixed, "host.example", OCTETS), wrong);
    assert!(headroom_ike::Credential::new(mixed.chain.clone(), &mixed.key).is_err());
    // a peer without RFC 7427 signs two numbers; nobody signs with SHA-1 (method 1)
    let key = SigningKey::from_der(&one.key).expect("a key");
    let (method, data) = key.sign(None, OCTETS).expect("a signature");
    assert_eq!((method, data.len()), (AuthMethod::EcdsaP256, 64));
    let check = |method, data: &[u8]| {
        trusted.check(&one.payloads(), &name, (method, data), OCTETS, Some(NOW))
    };
    assert_eq!(check(method, &data), Ok(()));
    for method in [
        AuthMethod::EcdsaP384,
        AuthMethod::DigitalSignature,
        AuthMethod::RsaSignature,
        AuthMethod::SharedKey,
        AuthMethod::Null,
    ] {
        assert_eq!(check(method, &data), wrong, "{method}");
    }
    for at in 0..data.len() {
        let mut altered = data.clone();
        altered[at] ^= 1;
        assert_eq!(check(AuthMethod::EcdsaP256, &altered), wrong);
    }
}

#[test]
fn a_key_signs_only_with_a_hash_that_the_peer_accepts() {
    let root = Authority::new("root");
    for (algorithm, hash) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, HashAlgorithmId::Sha256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, HashAlgorithmId::Sha384),
        (&rcgen::PKCS_ED25519, HashAlgorithmId::Identity),
    ] {
        let issued = root.issue_with("host.example", algorithm, |_| {});
        let key = SigningKey::from_der(&issued.key).expect("a key");
        assert!(key.sign(Some(&[HashAlgorithmId::Sha1, hash]), OCTETS).is_ok());
        let others: Vec<_> = HASHES.into_iter().filter(|one| *one != hash).collect();
        assert!(key.sign(Some(&others), OCTETS).is_err(), "{algorithm:?}");
        assert!(key.sign(Some(&[]), OCTETS).is_err());
    }
}

#[test]
fn certificates_by_url_are_not_fetched() {
    let root = Authority::new("root");
    let url = b"01234567890123456789http://192.0.2.9/certificate";
    for encoding in [CertificateEncoding::HashAndUrl, CertificateEncoding::HashAndUrlBundle] {
        let payload = Certificate { encoding, data: url };
        let name = Identity::from_text("host.example");
        let auth = (AuthMethod::DigitalSignature, &[1][..]);
        let error = root.trusted().check(&[payload], &name, auth, OCTETS, Some(NOW));
        assert_eq!(error, Err(CertificateError::Url));
    }
}
