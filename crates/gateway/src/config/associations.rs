//! One `[[sa]]`: from what is written to an association that can be loaded.

use std::net::IpAddr;

use headroom_ipsec::spec::{
    Direction, DontFragment, Dscp, Lifetime, Limits, Mode, Padding, Protection, Secrets, UdpPorts,
};
use headroom_ipsec::{Protocol, SaSpec};
use headroom_suite::{Cipher, Key, Mac, Suite};
use headroom_units as units;
use toml::Spanned;
use zeroize::Zeroizing;

use super::file::{DirectionFile, LifetimeFile, ModeFile, ProtocolFile, SaFile};
use super::scalar::{DscpFile, Scalar, SecretText};
use super::{Association, At, Purpose, Reader, at, bounded, shortened};

/// What the rest of the file says about all associations.
pub(super) struct Known {
    pub(super) path_mtu: Option<u64>,
    pub(super) insecure: bool,
}

/// What the outer packet is padded to where nobody says how long it may be.
const USUAL_MTU: u16 = 1500;
/// What a window is where nobody says (docs/qesp.md: a classifier reorders).
const USUAL_WINDOW: u32 = 4096;

impl Reader<'_> {
    pub(super) fn association(
        &self,
        file: &SaFile,
        known: &Known,
        warnings: &mut Vec<String>,
    ) -> Result<Association, At> {
        let name = label(&file.name)?;
        let protection = self.protection(file, known, warnings)?;
        let protocol = protection.protocol();
        let direction = match file.direction.get_ref() {
            DirectionFile::Out => Direction::Out,
            DirectionFile::In => Direction::In,
        };
        let mode = match file.mode.get_ref() {
            ModeFile::Transport => Mode::Transport,
            ModeFile::Tunnel => Mode::Tunnel,
        };
        let (source, destination) = self.addresses(file)?;
        let (padding, pad_to_path_mtu) = padding(file, known)?;
        let spec = SaSpec {
            name,
            direction,
            mode,
            spi: spi(&file.spi)?,
            source,
            destination,
            protection,
            extended_sequence: file.esn.unwrap_or(true),
            window: window(file)?,
            lifetime: file
                .lifetime
                .as_ref()
                .map_or(Ok(Lifetime::default()), |l| lifetime(l.get_ref()))?,
            udp: udp(file)?,
            dscp: dscp(file)?,
            ecn: file.ecn.unwrap_or(true),
            dont_fragment: dont_fragment(file)?,
            padding,
            classes: classes(file)?,
            ah_alignment: ah_alignment(file, protocol, source)?,
        };
        let dummies_per_second = dummies(file, &spec)?;
        let line = self.line(&file.name);
        Ok(Association { spec, dummies_per_second, pad_to_path_mtu, line })
    }

    fn protection(
        &self,
        file: &SaFile,
        known: &Known,
        warnings: &mut Vec<String>,
    ) -> Result<Protection, At> {
        let protocol = *file.protocol.get_ref();
        if let Some(number) = &file.protocol_number
            && protocol != ProtocolFile::Qesp
        {
            let message = "`protocol_number` is Q-ESP's; ESP and AH have theirs (50 and 51)";
            return Err(at(number, message));
        }
        let mac = self.key(
            file.integrity_key.as_ref(),
            file.integrity_key_file.as_ref(),
            "integrity_key",
        )?;
        let key = self.key(file.key.as_ref(), file.key_file.as_ref(), "key")?;
        let (protection, secure) = match protocol {
            ProtocolFile::Ah => {
                let algorithm: Mac = file.suite.get_ref().parse().map_err(|error| {
                    at(&file.suite, format!("AH takes an integrity algorithm alone: {error}"))
                })?;
                if let Some((_, place)) = mac {
                    return Err(At {
                        at: place,
                        message: "AH has one key: write it as `key`".into(),
                    });
                }
                let (key, place) =
                    key.ok_or_else(|| at(&file.name, "AH needs a `key`, or a `key_file`"))?;
                bindable(place, algorithm.bind(&key))?;
                (Protection::Ah { mac: algorithm, key }, algorithm.is_secure())
            }
            ProtocolFile::Esp => {
                let secrets = secrets(file, key, mac)?;
                let secure = secrets.suite.is_secure();
                (Protection::Esp(secrets), secure)
            }
            ProtocolFile::Qesp => {
                let number = qesp_number(file.protocol_number.as_ref())?;
                let secrets = secrets(file, key, mac)?;
                if !secrets.suite.encrypts() {
                    let message = "Q-ESP always encrypts: the null cipher is not for it (docs/qesp.md); choose another \
                                   suite, such as aes-128-gcm";
                    return Err(at(&file.suite, message));
                }
                let secure = secrets.suite.is_secure();
                (Protection::QEsp { number, secrets }, secure)
            }
        };
        if !secure {
            let (name, suite) = (shortened(file.name.get_ref()), file.suite.get_ref());
            if !known.insecure && self.purpose == Purpose::Tunnel {
                let message = format!(
                    "the suite `{suite}` is not secure (RFC 8221): choose another, such as aes-128-gcm, or, for a \
                     measurement, write `allow_insecure = true` at the top of the file"
                );
                return Err(at(&file.suite, message));
            }
            warnings
                .push(format!("`{name}` uses `{suite}`, which protects nothing today (RFC 8221)"));
        }
        Ok(protection)
    }

    /// The key that is written or is in a file, and its place.
    fn key(
        &self,
        written: Option<&Spanned<SecretText>>,
        file: Option<&Spanned<std::path::PathBuf>>,
        what: &str,
    ) -> Result<Option<(Key, usize)>, At> {
        let (text, place) = match (written, file) {
            (None, None) => return Ok(None),
            (Some(_), Some(file)) => {
                let message = format!("there are both `{what}` and `{what}_file`: remove one");
                return Err(at(file, message));
            }
            (Some(key), None) => (key.get_ref().0.clone(), key.span().start),
            (None, Some(file)) => {
                let text = (self.read_key)(file.get_ref()).map_err(|error| at(file, error))?;
                (Zeroizing::new(text.trim().to_owned()), file.span().start)
            }
        };
        let key = Key::from_hex(&text);
        let key = key.map_err(|error| At { at: place, message: format!("`{what}`: {error}") })?;
        Ok(Some((key, place)))
    }

    fn addresses(&self, file: &SaFile) -> Result<(IpAddr, IpAddr), At> {
        let (source, destination) = (address(&file.source)?, address(&file.destination)?);
        if source.is_ipv4() != destination.is_ipv4() {
            let message = format!(
                "`{destination}` is of another family than the source `{source}`: the outer addresses of an SA are \
                 both IPv4 or both IPv6 (what it protects may be either)"
            );
            return Err(at(&file.destination, message));
        }
        if source == destination {
            let message =
                format!("`{destination}` is the source as well: an SA is between two hosts");
            return Err(at(&file.destination, message));
        }
        Ok((source, destination))
    }
}

/// A name of an SA or a policy.
pub(super) fn label(name: &Spanned<String>) -> Result<String, At> {
    let text = name.get_ref();
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
    if !(1..=64).contains(&text.len()) || !text.bytes().all(plain) {
        let message = format!(
            "a name has 1 to 64 letters, digits, `_`, `-` and `.`, which `{}` does not",
            shortened(text)
        );
        return Err(at(name, message));
    }
    Ok(text.clone())
}

/// RFC 4303, section 2.1: 1 to 255 are reserved, 0 is never sent.
fn spi(spi: &Spanned<u64>) -> Result<u32, At> {
    let number = *spi.get_ref();
    if number < 256 {
        let message =
            format!("the SPI {number} is reserved (RFC 4303, section 2.1): choose one from 256");
        return Err(at(spi, message));
    }
    u32::try_from(number).map_err(|_| at(spi, format!("the SPI {number:#x} has more than 32 bits")))
}

fn address(text: &Spanned<String>) -> Result<IpAddr, At> {
    let address: IpAddr = text.get_ref().parse().map_err(|_| {
        at(text, format!("`{}` is not an IPv4 or IPv6 address", shortened(text.get_ref())))
    })?;
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        let message =
            format!("`{address}` is not the address of one host; an SA is between two hosts");
        return Err(at(text, message));
    }
    Ok(address)
}

fn secrets(
    file: &SaFile,
    key: Option<(Key, usize)>,
    mac: Option<(Key, usize)>,
) -> Result<Secrets, At> {
    let text = file.suite.get_ref();
    if text.parse::<Mac>().is_ok() {
        let message = format!(
            "`{}` does not encrypt: write `null+{text}` (insecure), or a suite with a cipher, such as \
             aes-128-cbc+{text}; AH takes it alone",
            shortened(text)
        );
        return Err(at(&file.suite, message));
    }
    let suite: Suite = text.parse().map_err(|error| at(&file.suite, format!("{error}")))?;
    let null = matches!(suite, Suite::Separate(Cipher::Null, _));
    let (key, key_place) = match key {
        None if null => (Key::empty(), file.name.span().start),
        None => return Err(at(&file.name, format!("`{suite}` needs a `key`, or a `key_file`"))),
        Some(key) => key,
    };
    let (mac_key, mac_place) = mac.map_or((None, None), |(key, place)| (Some(key), Some(place)));
    // the error is of one of the two; whose is told by trying the integrity key alone
    if let (Suite::Separate(_, algorithm), Some(mac_key), Some(place)) =
        (suite, &mac_key, mac_place)
    {
        bindable(place, algorithm.bind(mac_key))?;
    }
    let place = match suite {
        Suite::Aead(_) => mac_place.unwrap_or(key_place),
        Suite::Separate(..) => key_place,
    };
    bindable(place, suite.bind(&key, mac_key.as_ref()))?;
    Ok(Secrets { suite, key, mac_key })
}

fn bindable<T>(place: usize, bound: Result<T, headroom_suite::KeyError>) -> Result<(), At> {
    bound.map(|_| ()).map_err(|error| At { at: place, message: error.to_string() })
}

/// Never one that the kernel takes for something else.
fn qesp_number(number: Option<&Spanned<u64>>) -> Result<u8, At> {
    /// The first that IANA has not assigned, with room for what it assigns next.
    const FIRST: u64 = 160;
    let Some(number) = number else { return Ok(headroom_ipsec::spec::QESP) };
    match u8::try_from(*number.get_ref()) {
        Ok(value) if (FIRST..255).contains(&u64::from(value)) => Ok(value),
        _ => {
            let message = format!(
                "the protocol number {} may mean something else to hosts on the way: 253 and 254 are for experiments \
                 (RFC 3692), {FIRST} to 252 are not assigned",
                number.get_ref()
            );
            Err(at(number, message))
        }
    }
}

fn window(file: &SaFile) -> Result<u32, At> {
    let Some(window) = &file.window else { return Ok(USUAL_WINDOW) };
    if !(64..=8192).contains(window.get_ref()) {
        let message = format!(
            "the anti-replay window is from 64 to 8192 packets, not {}, and is never off",
            window.get_ref()
        );
        return Err(at(window, message));
    }
    Ok(*window.get_ref() as u32)
}

fn udp(file: &SaFile) -> Result<Option<UdpPorts>, At> {
    let Some(udp) = &file.udp else { return Ok(None) };
    match file.protocol.get_ref() {
        ProtocolFile::Esp => {}
        ProtocolFile::Ah => {
            let message = "AH in UDP does not exist (RFC 3948): AH covers the addresses that a NAT changes. Remove \
                           `udp`, or use ESP";
            return Err(at(udp, message));
        }
        ProtocolFile::Qesp => {
            let message = "Q-ESP in UDP does not exist: routers would read the UDP ports in place of the flow's, which \
                           is what Q-ESP is for. Remove `udp`, or use ESP";
            return Err(at(udp, message));
        }
    }
    let ports = udp.get_ref();
    let source = bounded(&ports.source, "source", 1..65_536)? as u16;
    let destination = bounded(&ports.destination, "destination", 1..65_536)? as u16;
    Ok(Some(UdpPorts { source, destination }))
}

fn lifetime(file: &LifetimeFile) -> Result<Lifetime, At> {
    let octets = |value: &Option<Spanned<Scalar>>| amount(value.as_ref(), units::parse_size);
    let plain = |value: &Option<Spanned<Scalar>>| {
        amount(value.as_ref(), |word| {
            word.parse().map_err(|_| format!("`{word}` is not a whole number"))
        })
    };
    let limits = Lifetime {
        soft: Limits {
            bytes: octets(&file.soft_bytes)?,
            packets: plain(&file.soft_packets)?,
            seconds: plain(&file.soft_seconds)?,
        },
        hard: Limits {
            bytes: octets(&file.hard_bytes)?,
            packets: plain(&file.hard_packets)?,
            seconds: plain(&file.hard_seconds)?,
        },
    };
    let (soft, hard) = (limits.soft, limits.hard);
    for (soft, hard, place, what) in [
        (soft.bytes, hard.bytes, &file.soft_bytes, "bytes"),
        (soft.packets, hard.packets, &file.soft_packets, "packets"),
        (soft.seconds, hard.seconds, &file.soft_seconds, "seconds"),
    ] {
        if let (Some(soft), Some(hard), Some(place)) = (soft, hard, place)
            && soft >= hard
        {
            let message = format!(
                "`soft_{what}` ({soft}) is not below `hard_{what}` ({hard}): there would be no time for new keys"
            );
            return Err(at(place, message));
        }
    }
    Ok(limits)
}

fn amount(
    value: Option<&Spanned<Scalar>>,
    parse: impl Fn(&str) -> Result<u64, String>,
) -> Result<Option<u64>, At> {
    let Some(value) = value else { return Ok(None) };
    let amount = match value.get_ref() {
        Scalar::Number(number) => *number,
        Scalar::Word(word) => parse(word).map_err(|error| at(value, shortened(&error)))?,
    };
    if amount == 0 {
        return Err(at(
            value,
            "a lifetime of 0 protects nothing; leave the field out for no limit",
        ));
    }
    Ok(Some(amount))
}

fn dscp(file: &SaFile) -> Result<Dscp, At> {
    let outbound = *file.direction.get_ref() == DirectionFile::Out;
    let Some(dscp) = &file.dscp else {
        // RFC 4301, section 5.1.2.1: out it is copied; in the inner header stays
        return Ok(if outbound { Dscp::Copy } else { Dscp::Keep });
    };
    if *file.mode.get_ref() == ModeFile::Transport {
        return Err(at(dscp, "in transport mode a packet keeps its DSCP: remove `dscp`"));
    }
    let value = |number: u64| {
        u8::try_from(number)
            .ok()
            .filter(|value| *value < 64)
            .ok_or_else(|| at(dscp, format!("a DSCP is from 0 to 63, not {number}")))
    };
    match dscp.get_ref() {
        DscpFile::Word(word) if word == "copy" => Ok(Dscp::Copy),
        DscpFile::Word(word) if word == "keep" && !outbound => Ok(Dscp::Keep),
        DscpFile::Word(word) => {
            let known = if outbound { "" } else { "\"keep\", " };
            let message = format!(
                "`{}` is not \"copy\", {known}a number from 0 to 63 or {{ map = {{ \"46\" = 46 }} }}",
                shortened(word)
            );
            Err(at(dscp, message))
        }
        DscpFile::Number(_) | DscpFile::Map(_) if !outbound => {
            let message = "for what arrives `dscp` is \"keep\" (the inner packet's own) or \"copy\" (the outer one's)";
            Err(at(dscp, message))
        }
        DscpFile::Number(number) => value(*number).map(Dscp::Set),
        DscpFile::Map(map) => {
            let pairs = map.iter().map(|(from, to)| {
                let from = from.parse().map_err(|_| {
                    at(dscp, format!("`{}` is not a DSCP from 0 to 63", shortened(from)))
                })?;
                Ok((value(from)?, value(*to)?))
            });
            pairs.collect::<Result<_, At>>().map(Dscp::Map)
        }
    }
}

fn dont_fragment(file: &SaFile) -> Result<DontFragment, At> {
    let Some(word) = &file.dont_fragment else { return Ok(DontFragment::Copy) };
    if *file.mode.get_ref() == ModeFile::Transport {
        return Err(at(
            word,
            "in transport mode a packet keeps its DF bit: remove `dont_fragment`",
        ));
    }
    match word.get_ref().as_str() {
        "copy" => Ok(DontFragment::Copy),
        "set" => Ok(DontFragment::Set),
        "clear" => Ok(DontFragment::Clear),
        other => {
            let message = format!("`{}` is not \"copy\", \"set\" or \"clear\"", shortened(other));
            Err(at(word, message))
        }
    }
}

/// The padding, and whether it is to the path's MTU, whatever that is.
fn padding(file: &SaFile, known: &Known) -> Result<(Padding, bool), At> {
    let Some(padding) = &file.padding else { return Ok((Padding::None, false)) };
    if *padding.get_ref() == Scalar::Word("none".into()) {
        return Ok((Padding::None, false));
    }
    require_tunnel_encryption(file, padding, "padding")?;
    match padding.get_ref() {
        Scalar::Word(word) if word == "mtu" => {
            let mtu = known.path_mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(USUAL_MTU);
            Ok((Padding::Outer(mtu), known.path_mtu.is_none()))
        }
        Scalar::Number(multiple @ 2..=9000) => Ok((Padding::Multiple(*multiple as u16), false)),
        _ => {
            let message = "`padding` is \"none\", \"mtu\", or the multiple, from 2 to 9000 octets, that packets are padded to";
            Err(at(padding, message))
        }
    }
}

/// RFC 4303, section 2.7: only an inner IP header says where padding begins.
fn require_tunnel_encryption<T>(file: &SaFile, place: &Spanned<T>, what: &str) -> Result<(), At> {
    if *file.mode.get_ref() == ModeFile::Transport {
        let message = format!(
            "`{what}` is for tunnel mode, where the inner packet says its length (RFC 4303, section 2.7)"
        );
        return Err(at(place, message));
    }
    if *file.protocol.get_ref() == ProtocolFile::Ah {
        return Err(at(
            place,
            format!("AH hides nothing, so `{what}` would hide nothing: remove it"),
        ));
    }
    Ok(())
}

fn dummies(file: &SaFile, spec: &SaSpec) -> Result<u32, At> {
    let Some(dummy) = &file.dummy else { return Ok(0) };
    if spec.direction == Direction::In {
        return Err(at(
            dummy,
            "`dummy` is for an SA of direction \"out\"; what arrives is discarded by itself",
        ));
    }
    require_tunnel_encryption(file, dummy, "dummy")?;
    let rate = dummy.get_ref().strip_suffix("/s").and_then(|number| number.trim().parse().ok());
    rate.filter(|rate| (1..=10_000).contains(rate)).ok_or_else(|| {
        let message = format!(
            "`{}` is not a rate of packets from \"1/s\" to \"10000/s\"",
            shortened(dummy.get_ref())
        );
        at(dummy, message)
    })
}

/// One bit for each DSCP that the SA serves.
fn classes(file: &SaFile) -> Result<u64, At> {
    let Some(classes) = &file.traffic_class else { return Ok(u64::MAX) };
    let mut bits = 0;
    for class in classes.get_ref() {
        if *class > 63 {
            return Err(at(classes, format!("a DSCP is from 0 to 63, not {class}")));
        }
        bits |= 1 << class;
    }
    if bits == 0 {
        return Err(at(classes, "`traffic_class` names no DSCP; leave it out for all"));
    }
    Ok(bits)
}

/// RFC 4302, section 2.6; Linux pads IPv4's AH to 8 unless told `align4`.
fn ah_alignment(file: &SaFile, protocol: Protocol, source: IpAddr) -> Result<usize, At> {
    let usual = if source.is_ipv4() { 4 } else { 8 };
    let Some(align) = &file.ah_align else { return Ok(usual) };
    if protocol != Protocol::Ah {
        return Err(at(align, "`ah_align` is AH's: remove it"));
    }
    match (align.get_ref(), source.is_ipv4()) {
        (8, _) => Ok(8),
        (4, true) => Ok(4),
        _ => Err(at(
            align,
            "`ah_align` is 4, or 8 for a Linux peer without `align4`; over IPv6 always 8",
        )),
    }
}
