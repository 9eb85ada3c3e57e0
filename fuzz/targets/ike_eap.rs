//! Any bytes as EAP responses of a user, to both methods: questions end, and nobody without a
//! password or a certificate is accepted.
#![no_main]

use std::slice;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use headroom_ike::Authorities;
use headroom_ike::crypto::Random;
use headroom_ike::eap::{Authenticator, EapMethod, EapTls, Passwords, Step};
use headroom_ike::wire::{Eap, EapCode};
use libfuzzer_sys::fuzz_target;
use zeroize::Zeroizing;

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

static METHODS: LazyLock<[EapMethod; 2]> = LazyLock::new(|| {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["gate.example".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate").der().to_vec();
    let users = Authorities::new(slice::from_ref(&certificate), &[]).expect("an authority");
    let tls = EapTls::new(vec![certificate], &key.serialize_der(), &users).expect("settings");
    [EapMethod::MsChapV2(Arc::new(Nobody)), EapMethod::Tls(Arc::new(tls))]
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    let methods = &METHODS[usize::from(first & 1)..];
    let Some((mut asked, request)) = Authenticator::start(methods, &mut Ones) else { return };
    assert!(!request.is_empty());
    // each response has its length before it; a response without bytes is one of 255
    for _ in 0..65 {
        let Some((&length, after)) = rest.split_first() else { return };
        let (data, next) = after.split_at(usize::from(length).min(after.len()));
        rest = next;
        if data.is_empty() {
            return;
        }
        let response = Eap { code: EapCode::Response, identifier: asked.identifier(), data };
        match asked.handle(&response, &mut Ones, Some(Duration::from_secs(1 << 31))) {
            Step::Request(data) => assert!(!data.is_empty() && data.len() <= 1100),
            Step::Success { .. } => panic!("nobody has a password or a certificate"),
            Step::Failure(_) => return,
        }
    }
    panic!("no end");
});
