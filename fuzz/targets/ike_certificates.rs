//! Any bytes as the certificates of an IKE peer and as its signature: nothing panics, and nobody
//! whom the authority did not sign is accepted.
#![no_main]

use std::time::Duration;

use headroom_ike::wire::{Certificate, DigitalSignature, Payload, parse_decrypted};
use headroom_ike::{Authorities, Credential, Identity};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let _ = Credential::new(vec![rest.to_vec()], rest);
    let _ = Authorities::new(&[], &[rest.to_vec()]);
    // whoever is trusted is what the bytes say; the signature is not one of its key
    let Ok(authorities) = Authorities::new(&[rest.to_vec()], &[]) else {
        let Ok(payloads) = parse_decrypted(first.into(), rest) else { return };
        let Ok(nobody) = Authorities::new(&[], &[]) else { return };
        let certificates: Vec<Certificate<'_>> = payloads
            .iter()
            .filter_map(|payload| match payload {
                Payload::Certificate(certificate) => Some(*certificate),
                _ => None,
            })
            .collect();
        for payload in &payloads {
            let Payload::Authentication(auth) = payload else { continue };
            let (name, time) = (Identity::from_text("host"), Some(Duration::from_secs(1 << 31)));
            let auth = (auth.method, auth.data);
            assert!(nobody.check(&certificates, &name, auth, bytes, time).is_err());
            for certificate in &certificates {
                let _ = headroom_ike::certificate::is_signed_by(certificate.data, auth, bytes);
            }
            let _ = DigitalSignature::parse(auth.1);
        }
        return;
    };
    let _ = format!("{authorities:?}");
});
