//! Any bytes as what a stranger sends to an endpoint that accepts one peer: answers are bounded,
//! and little is kept.
#![no_main]

use std::net::SocketAddr;
use std::time::Instant;

use headroom_ike::crypto::Random;
use headroom_ike::{
    Auth, Config, Connection, Endpoint, Identity, IkeProposal, PostQuantum, VirtualAddresses,
};
use headroom_suite::Key;
use libfuzzer_sys::fuzz_target;

struct Zeros;

impl Random for Zeros {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(1);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let connection = Connection {
        name: "peer".to_owned(),
        local: Identity::from_text("here"),
        remote: None,
        remote_address: None,
        auth: Auth::shared_key(&Key::from_bytes(b"secret")),
        ike: IkeProposal::default_offer(PostQuantum::Preferred),
        ppk: None,
        mobike: true,
        virtual_addresses: VirtualAddresses::None,
        children: Vec::new(),
        rekey: None,
        reauthenticate: None,
        liveness: None,
    };
    let now = Instant::now();
    let mut endpoint = Endpoint::new(Config::new(vec![connection]), Box::new(Zeros), now);
    let [from, to] = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 500)));
    for _ in 0..2 {
        endpoint.handle(bytes, from, to, now);
        let answer = endpoint.transmit();
        assert!(answer.is_none_or(|answer| answer.datagram.len() < 3 * bytes.len().max(100)));
        assert!(endpoint.transmit().is_none() && endpoint.event().is_none());
        assert!(endpoint.half_open() <= 1 && endpoint.sessions() == endpoint.half_open());
    }
});
