//! Two ends of every kind of association, made once.
#![allow(dead_code)]

use std::net::IpAddr;
use std::time::Duration;

use headroom_ipsec::spec::{Action, Direction, Mode, Protection, Secrets, Selector, UdpPorts};
use headroom_ipsec::{Engine, PolicySpec, SaSpec};
use headroom_suite::{Key, Mac, Suite};

/// What is used of the first octet of an input: protocol, mode, family, suite.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape(pub u8);

const SUITES: [&str; 4] =
    ["aes-128-gcm", "chacha20-poly1305", "aes-256-cbc+hmac-sha256", "3des-cbc+hmac-md5"];

impl Shape {
    pub(crate) fn kind(self) -> u8 {
        self.0 & 3
    }

    pub(crate) fn mode(self) -> Mode {
        if self.0 & 4 == 0 { Mode::Tunnel } else { Mode::Transport }
    }

    pub(crate) fn v6(self) -> bool {
        self.0 & 8 != 0
    }

    pub(crate) fn in_udp(self) -> bool {
        self.kind() == 0 && self.0 & 0x40 != 0
    }

    /// The protocol in the outer header.
    pub(crate) fn protocol(self) -> u8 {
        match self.kind() {
            0 => 50,
            1 => 253,
            _ => 51,
        }
    }

    pub(crate) fn ends(self) -> (IpAddr, IpAddr) {
        let end = |n| match self.v6() {
            true => IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]),
            false => IpAddr::from([192, 0, 2, n]),
        };
        (end(1), end(2))
    }

    fn associations(self, direction: Direction) -> Vec<SaSpec> {
        let key = |len, seed| {
            Key::from_bytes(
                &(0..len).map(|n| seed ^ (n as u8).wrapping_mul(41)).collect::<Vec<_>>(),
            )
        };
        let suite: Suite = SUITES[usize::from(self.0 >> 4 & 3)].parse().expect("a suite");
        let mac_key = (suite.mac_key_len() > 0).then(|| key(suite.mac_key_len(), 3));
        let secrets = Secrets { suite, key: key(suite.key_len(), 1), mac_key };
        let ah = |mode| {
            let protection = Protection::Ah { mac: Mac::HmacSha256, key: key(32, 5) };
            SaSpec::new("ah", direction, mode, 0x2000, self.ends(), protection)
        };
        let cipher = |protection| {
            SaSpec::new("esp", direction, self.mode(), 0x1000, self.ends(), protection)
        };
        match self.kind() {
            0 => {
                let mut esp = cipher(Protection::Esp(secrets));
                esp.udp = self.in_udp().then_some(UdpPorts { source: 4500, destination: 4500 });
                esp.extended_sequence = self.0 & 0x80 == 0;
                vec![esp]
            }
            1 => vec![cipher(Protection::QEsp { number: 253, secrets })],
            2 => vec![ah(self.mode())],
            _ => vec![cipher(Protection::Esp(secrets)), ah(Mode::Transport)],
        }
    }

    pub(crate) fn engine(self, direction: Direction) -> Engine {
        let associations = self.associations(direction);
        let names: Vec<String> = associations.iter().map(|sa| sa.name.clone()).collect();
        let (out, inbound) = match direction {
            Direction::Out => (names, Vec::new()),
            Direction::In => (Vec::new(), names),
        };
        let action = Action::Protect { out, inbound };
        let policies = vec![PolicySpec { name: "all".into(), selector: Selector::ANY, action }];
        let engine = Engine::new(associations, policies, None, Duration::ZERO).expect("an engine");
        engine.associations().for_each(|sa| sa.sequence().grant(u64::MAX));
        engine
    }
}
