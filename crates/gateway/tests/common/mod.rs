//! Gateways on hosts of a test's own.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use headroom_gateway::config::Config;
use headroom_gateway::datapath::{DEFAULT_MARK, Datapath, Settings};
use headroom_gateway::host::{self, Setup};
use headroom_ipsec::Engine;
use headroom_netio::Tun;
use headroom_testing::address;

/// A gateway that runs, and what it has changed on its host.
pub(crate) struct Gateway {
    pub(crate) datapath: Datapath,
    setup: Setup,
}

impl Gateway {
    /// Starts a gateway of this configuration in the calling thread's namespace.
    pub(crate) fn start(text: &str) -> Self {
        let (config, engine) = read(text, None);
        let look = host::Host::probe(DEFAULT_MARK);
        let path_mtu = |to: IpAddr| host::path_mtu(to, DEFAULT_MARK);
        let setup = Setup::plan(&config, &engine, look, path_mtu);
        host::apply(&setup.before).expect("rules, routes and a firewall");
        let tuns = Tun::create(&config.name, config.queues).expect("a TUN");
        host::apply(&setup.after).expect("the interface");
        let settings = Settings { keepalive: Duration::from_millis(200), ..Settings::default() };
        let datapath = Datapath::start(tuns, engine, settings, |_| {}).expect("threads");
        Self { datapath, setup }
    }

    /// Ends it as an unexpected death would: what it has changed stays.
    pub(crate) fn die(self) -> Setup {
        drop(self.datapath);
        self.setup
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let engine = self.datapath.engine();
        let found = engine.counters().nonzero().find(|(reason, _)| reason.name() == name);
        found.map_or(0, |(_, times)| times)
    }

    /// Packets of an association.
    pub(crate) fn packets(&self, sa: &str) -> u64 {
        self.datapath.engine().association(sa).expect("the association").packets()
    }
}

/// A configuration and its engine, all sequence numbers granted.
pub(crate) fn read(text: &str, previous: Option<(&Engine, Duration)>) -> (Config, Engine) {
    let parse = || Config::parse(text, Path::new("test.toml")).expect("a configuration");
    let (config, other) = (parse(), parse());
    let specs = other.associations.into_iter().map(|association| association.spec).collect();
    let (before, now) =
        previous.map_or((None, Duration::ZERO), |(before, now)| (Some(before), now));
    let engine = Engine::new(specs, other.policies, before, now).expect("an engine");
    for sa in engine.associations() {
        sa.sequence().grant(1 << 40);
    }
    (config, engine)
}

/// How the two protect what is between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// `esp`, `ah`, `qesp`.
    pub(crate) protocol: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) udp: bool,
    pub(crate) outer_v6: bool,
    /// In tunnel mode, of what is inside.
    pub(crate) inner_v6: bool,
    /// Bytes that lengths are padded to a multiple of; 0 for none.
    pub(crate) padding: u16,
}

impl Kind {
    /// The address of a host that the other side talks to.
    pub(crate) fn address(&self, host: usize) -> String {
        match (self.mode, self.outer_v6, self.inner_v6) {
            ("transport", v6, _) => address(host, v6),
            (_, _, true) => format!("fd00:{}::1", host + 1),
            _ => format!("10.{}.0.1", host + 1),
        }
    }

    /// The configuration of one side; `generation` chooses keys and SPIs.
    pub(crate) fn config(&self, me: usize, generation: u8) -> String {
        let outer = |host: usize| address(host, self.outer_v6);
        let suite = if self.protocol == "ah" { "hmac-sha256" } else { "aes-128-gcm" };
        let key_len = if self.protocol == "ah" { 32 } else { 20 };
        let udp = if self.udp { "udp = { source = 4500, destination = 4500 }\n" } else { "" };
        let sa = |name: &str, direction: &str, from: usize| {
            let spi = 0x1000 + u32::from(generation) * 2 + from as u32;
            let key = format!("{:02x}", generation * 2 + from as u8 + 1).repeat(key_len);
            let padding = match (direction, self.padding) {
                ("in", _) | (_, 0) => String::new(),
                (_, multiple) => format!("padding = {multiple}\n"),
            };
            format!(
                "[[sa]]\nname = \"{name}\"\ndirection = \"{direction}\"\nprotocol = \"{}\"\n\
                 mode = \"{}\"\nspi = {spi}\nsource = \"{}\"\ndestination = \"{}\"\n\
                 suite = \"{suite}\"\nkey = \"{key}\"\n{udp}{padding}",
                self.protocol,
                self.mode,
                outer(from),
                outer(1 - from),
            )
        };
        let (out, inbound) = (sa("out", "out", me), sa("in", "in", 1 - me));
        let (local, remote) = (self.address(me), self.address(1 - me));
        let len = if self.inner_v6 { 64 } else { 24 };
        let address = match self.mode {
            "tunnel" => format!("address = [\"{local}/{len}\"]\n"),
            _ => String::new(),
        };
        format!(
            "name = \"hr0\"\n{address}{out}{inbound}[[policy]]\nname = \"both\"\n\
             action = \"protect\"\nlocal = \"{local}\"\nremote = \"{remote}\"\nout = [\"out\"]\n\
             in = [\"in\"]\n"
        )
    }
}
