//! IPsec with static keys or, for ESP and Q-ESP, keys by IKEv2: ESP (RFC 4303), AH (RFC 4302), AH
//! over ESP and Q-ESP, in tunnel and transport mode; by `headroom tunnel`, or with static
//! keys by the kernel's XFRM.

mod gateway;
mod ike;
mod keys;
mod options;
mod suite;
mod xfrm;

use std::sync::Arc;

use super::{Drops, KeyUpdates, Layer, LayerKind, Place};
use crate::catalogue::{Configured, Entry, Fact, Make, Options, titled};
use crate::properties::Properties;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::{NFT, Program};
use headroom_lab_host::testbed::Family;
use keys::Keys;
use options::{Backend, Ike, Instructions, Mode, Parameters};
use suite::Cipher;

/// One of the protocols, as options make it.
#[derive(Debug, Clone, Copy)]
struct Ipsec {
    protocol: Protocol,
    parameters: Parameters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Esp,
    Ah,
    /// AH over ESP: ESP first, then AH around its packet.
    AhEsp,
    QEsp,
}

impl Protocol {
    const fn name(self) -> &'static str {
        match self {
            Self::Esp => "esp",
            Self::Ah => "ah",
            Self::AhEsp => "ah+esp",
            Self::QEsp => "qesp",
        }
    }

    const fn encrypts(self) -> bool {
        !matches!(self, Self::Ah)
    }

    const fn has_ah(self) -> bool {
        matches!(self, Self::Ah | Self::AhEsp)
    }

    /// Whether its keys can be negotiated.
    const fn has_ike(self) -> bool {
        matches!(self, Self::Esp | Self::QEsp)
    }

    /// Whether it may be used with a cipher; Q-ESP must hide what it carries.
    fn takes(self, cipher: &Cipher) -> bool {
        self.encrypts() && (self != Self::QEsp || cipher.encrypts())
    }
}

pub(super) const ESP: Entry<dyn Layer> = Entry {
    name: Protocol::Esp.name(),
    about: "IPsec ESP with static keys, or by IKEv2: headroom tunnel both sides",
    programs: &[NFT],
    make: Make::Configured {
        known: || options::known(Protocol::Esp),
        read: |options| Ipsec::read(Protocol::Esp, options),
    },
};
pub(super) const AH: Entry<dyn Layer> = Entry {
    name: Protocol::Ah.name(),
    about: "IPsec AH, without encryption: headroom tunnel both sides",
    make: Make::Configured {
        known: || options::known(Protocol::Ah),
        read: |options| Ipsec::read(Protocol::Ah, options),
    },
    ..ESP
};
pub(super) const AH_ESP: Entry<dyn Layer> = Entry {
    name: Protocol::AhEsp.name(),
    about: "AH around ESP: headroom tunnel both sides",
    make: Make::Configured {
        known: || options::known(Protocol::AhEsp),
        read: |options| Ipsec::read(Protocol::AhEsp, options),
    },
    ..ESP
};
pub(super) const QESP: Entry<dyn Layer> = Entry {
    name: Protocol::QEsp.name(),
    about: "Q-ESP, ESP with ports in clear, static keys or IKEv2: headroom tunnel both sides",
    make: Make::Configured {
        known: || options::known(Protocol::QEsp),
        read: |options| Ipsec::read(Protocol::QEsp, options),
    },
    ..ESP
};

/// Every packet has its number in 64 bits (RFC 4303 §2.2.1), and may be this much late.
const WINDOW: u32 = 4096;

impl Ipsec {
    fn read(protocol: Protocol, options: &Options<'_>) -> Configured<dyn Layer> {
        let parameters = Parameters::read(protocol, options)?;
        Ok((parameters.written(protocol), Arc::new(Self { protocol, parameters })))
    }

    /// Cipher and integrity algorithm, in words.
    fn suite(&self) -> String {
        let Parameters { cipher, mac, .. } = self.parameters;
        let mac = mac.map(|mac| mac.name);
        match (cipher, mac) {
            (Some(cipher), Some(mac)) if cipher.tag.is_some() => {
                format!("{}, around it {mac}", cipher.name)
            }
            (Some(cipher), Some(mac)) if self.protocol == Protocol::AhEsp => {
                format!("{} with {mac}, around it {mac}", cipher.name)
            }
            (Some(cipher), Some(mac)) => format!("{} with {mac}", cipher.name),
            (Some(cipher), None) => cipher.name.to_owned(),
            (None, mac) => mac.unwrap_or_default().to_owned(),
        }
    }

    fn by_kernel(&self) -> bool {
        self.parameters.backend == Backend::Kernel
    }

    /// Bytes of AH's header (RFC 4302 §2.2); Linux fills it up to 8 over IPv4 too.
    fn ah_bytes(&self, family: Family) -> u32 {
        let Some(mac) = self.parameters.mac.filter(|_| self.protocol.has_ah()) else { return 0 };
        let unit = if family == Family::Ipv6 || self.by_kernel() { 8 } else { 4 };
        (12 + mac.icv).next_multiple_of(unit)
    }

    /// Bytes of the longest text with its trailer that fits in `room` with header,
    /// IV and ICV; without a cipher, all of it.
    fn text_bytes(&self, room: u32) -> u32 {
        let Parameters { cipher, mac, udp, .. } = self.parameters;
        let Some(cipher) = cipher else { return room };
        let header = if self.protocol == Protocol::QEsp { 16 } else { 8 };
        let icv = cipher.tag.or(mac.map(|mac| mac.icv)).unwrap_or(0);
        let beside = header + cipher.iv + icv + if udp { 8 } else { 0 };
        let text = room.saturating_sub(beside);
        // padding length and next header (RFC 4303 §2.4, §2.6)
        (text - text % cipher.block).saturating_sub(2)
    }
}

impl Layer for Ipsec {
    fn properties(&self) -> Option<Properties> {
        Some(Properties {
            mutual_auth: true,
            forward_secrecy: self.parameters.ike.is_some(),
            post_quantum: self.parameters.ike.is_some_and(|ike| ike.post_quantum),
            shows_ports: self.protocol == Protocol::QEsp,
            over_udp: self.parameters.udp || self.parameters.ike.is_some(),
            verified: false,
        })
    }

    fn kind(&self) -> LayerKind {
        match self.parameters.mode {
            Mode::Tunnel => LayerKind::Network,
            Mode::Transport => LayerKind::InPlace,
        }
    }

    fn encrypts(&self) -> bool {
        self.parameters.cipher.is_some_and(Cipher::encrypts)
    }

    /// Other keys come with the configuration.
    fn negotiates(&self) -> bool {
        self.parameters.ike.is_some()
    }

    /// A gateway's firewall rules, and sockets that hear all packets of a protocol,
    /// would be a part of what every other stack of the run costs.
    fn ends_when_quiesced(&self) -> bool {
        !self.by_kernel()
    }

    fn own_command(&self) -> Option<&'static str> {
        (!self.by_kernel()).then_some("tunnel")
    }

    fn require_kernel(&self) -> Result<()> {
        if self.by_kernel() && !xfrm::works(self) {
            return Err(Error::Missing(format!(
                "this machine's kernel cannot do `{}`: it lacks {} in its XFRM, or interfaces of the type \
                 `xfrm`; leave out `backend=kernel`, and `headroom tunnel` does the work",
                titled(self.protocol.name(), &self.parameters.written(self.protocol)),
                self.suite(),
            )));
        }
        Ok(())
    }

    fn in_kernel(&self) -> bool {
        self.by_kernel()
    }

    fn has_daemon(&self) -> bool {
        !self.by_kernel()
    }

    fn needs(&self, all: &'static [Program]) -> &'static [Program] {
        if self.by_kernel() { &[] } else { all }
    }

    /// In transport mode the packet's own header is the outer one.
    fn inner_mtu(&self, outer: u32, family: Family) -> u32 {
        let ip = if family == Family::Ipv6 { 40 } else { 20 };
        let text = self.text_bytes(outer.saturating_sub(ip + self.ah_bytes(family)));
        match self.parameters.mode {
            Mode::Tunnel => text,
            Mode::Transport => text + ip,
        }
    }

    fn interface(&self, number: u16, _nth: u16) -> String {
        format!("hr{number}")
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        if let Some(ike) = self.parameters.ike {
            let proof = ike::make_proof(ike, place)?;
            for host in in_order(place) {
                let text = ike::configuration(self, ike, place, host, &proof);
                gateway::start_with(self, place, host, &text)?;
            }
            return ike::until_established(place);
        }
        let (number, dry) = (place.at.number, place.client.is_dry());
        let keys = Keys::fresh(self, number, dry);
        let of_class = self.parameters.class.map(|_| Keys::of_class(self, number, 1, dry));
        let keys: Vec<Keys> = std::iter::once(keys).chain(of_class).collect();
        for host in place.hosts() {
            if self.by_kernel() {
                xfrm::start(self, place, host, &keys[0])?;
            } else {
                gateway::start(self, place, host, &keys)?;
            }
        }
        Ok(())
    }

    fn resume(&self, place: &Place<'_>) -> Result<()> {
        if self.by_kernel() {
            return Ok(());
        }
        in_order(place).into_iter().try_for_each(|host| gateway::go_on(self, place, host))?;
        if self.negotiates() { ike::until_established(place) } else { Ok(()) }
    }

    fn quiesce(&self, place: &Place<'_>) -> Result<()> {
        if self.by_kernel() {
            return Ok(());
        }
        place.hosts().into_iter().try_for_each(|host| gateway::stop(place, host))
    }

    fn drops(&self, place: &Place<'_>) -> Result<Option<Drops>> {
        if self.by_kernel() {
            return Ok(None);
        }
        let mut drops = Drops::new();
        for host in place.hosts() {
            for (reason, packets) in gateway::drops(place, host)? {
                *drops.entry(reason).or_default() += packets;
            }
        }
        Ok(Some(drops))
    }

    /// The client's gateway ends, and tells the server's to forget what they agreed on.
    fn tear_down(&self, place: &Place<'_>) -> Result<()> {
        if self.negotiates() { gateway::stop(place, place.client) } else { Ok(()) }
    }

    /// The client's gateway begins when it starts. With static keys there is nothing to
    /// agree on.
    fn establish(&self, place: &Place<'_>) -> Result<()> {
        if !self.negotiates() {
            return Ok(());
        }
        gateway::go_on(self, place, place.client)?;
        ike::until_established(place)
    }

    fn key_updates(&self, place: &Place<'_>) -> Result<Option<KeyUpdates>> {
        let Some(interval) = self.parameters.ike.and_then(|ike| ike.rekey) else {
            return Ok(None);
        };
        Ok(Some(KeyUpdates { count: ike::key_updates(place)?, interval: interval.bytes() }))
    }

    fn facts(&self) -> Vec<Fact> {
        let Parameters { mode, udp, queues, instructions, window, class, ike, .. } =
            self.parameters;
        let name = self.protocol.name();
        let associations = class.map_or_else(
            || "one each way".to_owned(),
            |flow| format!("one each way for {flow}, one for all else"),
        );
        let by = if self.by_kernel() { "the kernel's XFRM" } else { "headroom tunnel" };
        let fact = |name, value: &str| (name, value.to_owned());
        vec![
            fact("protocol", &format!("{name}, {} mode", mode.name())),
            fact("suite", &self.suite()),
            fact("backend", by),
            fact("encapsulation", if udp { "UDP (RFC 3948)" } else { "none" }),
            fact(
                "key exchange",
                &ike.map_or_else(
                    || {
                        "none: static keys, new ones each run, so that setting up sends nothing"
                            .into()
                    },
                    Ike::exchange,
                ),
            ),
            fact("key updates", &ike.map_or_else(|| "never".into(), Ike::updates)),
            fact("sequence numbers", &format!("64 bits, anti-replay window {window}")),
            fact("associations", &associations),
            fact("queues", &queues.to_string()),
            fact(
                "instructions",
                match instructions {
                    Instructions::Native => "all that the processor has",
                    Instructions::Portable => {
                        "portable: no AES, SHA, carry-less multiplication or wider vectors than the oldest"
                    }
                },
            ),
        ]
    }
}

/// The two hosts, the one first that must be there when the other begins.
fn in_order<'a>(place: &Place<'a>) -> [&'a Host; 2] {
    [place.server, place.client]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Chosen;

    fn layer(written: &str) -> Chosen<dyn Layer> {
        super::super::ALL.parse(written).expect(written)
    }

    #[test]
    fn the_longest_inner_packet_fits_and_one_more_byte_does_not() {
        use Family::{Ipv4, Ipv6};
        for (written, family, inner) in [
            // 1500 − 20 − 8 − 8 − 16 = 1448, less pad length and next header
            ("esp", Ipv4, 1446),
            ("esp", Ipv6, 1426),
            ("esp(udp)", Ipv4, 1438),
            ("esp(ike)", Ipv4, 1438),
            ("esp(ike,transport)", Ipv6, 1458),
            ("qesp", Ipv4, 1438),
            ("qesp", Ipv6, 1418),
            ("qesp(ike)", Ipv4, 1438),
            // 1500 − 20 − 8 − 16 − 12 = 1444 → 1440
            ("esp(aes-128-cbc,hmac-sha1)", Ipv4, 1438),
            ("esp(3des-cbc,hmac-md5)", Ipv4, 1446),
            ("esp(null,hmac-sha1)", Ipv4, 1458),
            ("esp(transport)", Ipv4, 1466),
            ("qesp(transport)", Ipv6, 1458),
            // 12 + 16 bytes, over IPv6 filled up to 32
            ("ah", Ipv4, 1452),
            ("ah", Ipv6, 1428),
            ("ah(backend=kernel)", Ipv4, 1448),
            ("ah(transport,hmac-sha1)", Ipv4, 1476),
            ("ah+esp", Ipv4, 1418),
            ("ah+esp(transport,aes-128-cbc,hmac-sha1)", Ipv6, 1430),
        ] {
            assert_eq!(layer(written).inner_mtu(1500, family), inner, "{written} {family:?}");
        }
    }

    #[test]
    fn what_is_not_encrypted_is_no_secret() {
        for (written, encrypts) in
            [("esp", true), ("ah", false), ("esp(null,hmac-sha1)", false), ("ah+esp", true)]
        {
            assert_eq!(layer(written).encrypts(), encrypts, "{written}");
        }
    }
}
