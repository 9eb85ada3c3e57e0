//! Any text as `authorized_keys` and as `known_hosts`: read, or refused with the line.
#![no_main]

use std::path::Path;

use headroom_transfer::trust::{AuthorizedKeys, HostStatus, KnownHosts};
use headroom_transfer::{Fingerprint, PublicKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let lines = text.lines().count();
    match AuthorizedKeys::parse(text) {
        Ok(keys) => assert!(keys.len() <= lines),
        Err((line, cause)) => assert!((1..=lines).contains(&line) && !cause.is_empty()),
    }
    if let Ok(hosts) = KnownHosts::parse(Path::new("known_hosts"), text.to_owned()) {
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let words: Vec<_> = line.split_whitespace().collect();
            let [host, algorithm, key, ..] = words[..] else { continue };
            let key: PublicKey = format!("{algorithm} {key}").parse().expect("it was read");
            let HostStatus::Known { keys, line } = hosts.status(host) else { panic!("{host}") };
            assert!(keys.contains(&key) && line <= lines);
        }
    }
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(key.fingerprint().to_string().parse(), Ok(key.fingerprint()));
    }
    if let Ok(fingerprint) = text.parse::<Fingerprint>() {
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    }
});
