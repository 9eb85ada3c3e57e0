//! Reads the optional fields of a `[[sa]]`.

use std::net::IpAddr;
use std::time::Duration;

use headroom_ipsec::spec::{Direction, DontFragment, Dscp, Lifetime, Limits, Padding, UdpPorts};
use headroom_ipsec::{Protocol, SaSpec};
use headroom_units as units;
use toml::Spanned;

use super::file::{ChildFile, DirectionFile, LifetimeFile, ModeFile, ProtocolFile, SaFile};
use super::model::Purpose;
use super::problem::{Problem, excerpt, in_range, problem};
use super::scalar::{DscpFile, Scalar};

/// Settings of the file that concern all SAs.
pub(super) struct TunnelOptions {
    pub(super) path_mtu: Option<u64>,
    pub(super) insecure: bool,
}

/// The least that an SA carries until it is rekeyed.
const MIN_REKEY_BYTES: u64 = 100_000;
const MIN_REKEY_PACKETS: u64 = 100;
/// Seconds for which a rekey may fail before an SA ends, at least.
const LONGEST_REKEY: u64 = 60;

/// The length of padded outer packets if no path MTU is configured.
const USUAL_MTU: u16 = 1500;
/// The default window (docs/qesp.md: a classifier reorders packets).
const USUAL_WINDOW: u32 = 4096;

pub(super) fn window(file: &SaFile) -> Result<u32, Problem> {
    let Some(window) = &file.window else { return Ok(USUAL_WINDOW) };
    if !(64..=8192).contains(window.get_ref()) {
        let message = format!(
            "the anti-replay window must have 64 to 8192 packets, not {}; it cannot be disabled",
            window.get_ref()
        );
        return Err(problem(window, message));
    }
    Ok(*window.get_ref() as u32)
}

/// The first port that a process may bind without a capability; the gateway drops its capabilities.
const UNPRIVILEGED: u16 = 1024;

pub(super) fn udp(file: &SaFile, purpose: Purpose) -> Result<Option<UdpPorts>, Problem> {
    let Some(udp) = &file.udp else { return Ok(None) };
    match file.protocol.get_ref() {
        ProtocolFile::Esp => {}
        ProtocolFile::Ah => {
            let message = "AH cannot be in UDP (RFC 3948), because AH covers the addresses that a NAT changes: remove \
                           `udp`, or use ESP";
            return Err(problem(udp, message));
        }
        ProtocolFile::Qesp => {
            let message = "Q-ESP cannot be in UDP, because routers would read the UDP ports in place of the flow's: remove `udp`, or use ESP";
            return Err(problem(udp, message));
        }
    }
    let ports = udp.get_ref();
    let source = in_range(&ports.source, "source", 1..65_536)? as u16;
    let destination = in_range(&ports.destination, "destination", 1..65_536)? as u16;
    let (own, place) = match file.direction.get_ref() {
        DirectionFile::Out => (source, &ports.source),
        DirectionFile::In => (destination, &ports.destination),
    };
    if own < UNPRIVILEGED && purpose == Purpose::Tunnel {
        let message = format!(
            "this host's UDP port is {own}, but ports below {UNPRIVILEGED} need CAP_NET_BIND_SERVICE, which the gateway \
             drops: use 4500, or another port from {UNPRIVILEGED}, at both ends"
        );
        return Err(problem(place, message));
    }
    Ok(Some(UdpPorts { source, destination }))
}

/// Accepts `follow_peer` only where a NAT can change the peer's address, and only inbound.
pub(super) fn follow_peer(file: &SaFile) -> Result<bool, Problem> {
    let Some(follow) = file.follow_peer.as_ref().filter(|follow| *follow.get_ref()) else {
        return Ok(false);
    };
    let message = match (file.protocol.get_ref(), file.mode.get_ref(), file.direction.get_ref()) {
        (ProtocolFile::Ah | ProtocolFile::Qesp, ..) => {
            "`follow_peer` is for ESP only: AH and Q-ESP authenticate the outer addresses. Remove it, or use ESP in UDP"
        }
        (_, ModeFile::Transport, _) => {
            "`follow_peer` is for tunnel mode only: in transport mode the outer addresses are also those of the inner \
             packets and of the policy. Remove it, or use tunnel mode"
        }
        _ if file.udp.is_none() => {
            "`follow_peer` is for ESP in UDP only: a NAT distinguishes hosts by UDP ports. Add `udp`, or remove it"
        }
        (.., DirectionFile::Out) => {
            "`follow_peer` is for the SA of direction \"in\"; the SA of direction \"out\" follows it. Move it there"
        }
        _ => return Ok(true),
    };
    Err(problem(follow, message))
}

/// Reads what an SA carries until it is rekeyed.
pub(super) fn rekey_limits(file: &ChildFile) -> Result<Limits, Problem> {
    let bytes = amount(file.rekey_bytes.as_ref(), units::parse_size)?;
    let packets = amount(file.rekey_packets.as_ref(), |word| {
        word.parse().map_err(|_| format!("`{word}` is not a whole number"))
    })?;
    for (amount, least, place, what) in [
        (bytes, MIN_REKEY_BYTES, &file.rekey_bytes, "bytes"),
        (packets, MIN_REKEY_PACKETS, &file.rekey_packets, "packets"),
    ] {
        if let (Some(amount), Some(place)) = (amount, place)
            && amount < least
        {
            let message = format!(
                "`rekey_{what}` is {amount} and must be {least} at least: a rekey needs a round trip"
            );
            return Err(problem(place, message));
        }
    }
    Ok(Limits { bytes, packets, seconds: None })
}

/// Reads where an SA of a child ends even if it could not be rekeyed: later than it is rekeyed.
pub(super) fn life(file: &ChildFile, rekey: Duration) -> Result<Limits, Problem> {
    let rekeyed = rekey_limits(file)?;
    let plain = |word: &str| word.parse().map_err(|_| format!("`{word}` is not a whole number"));
    let bytes = amount(file.life_bytes.as_ref(), units::parse_size)?;
    let packets = amount(file.life_packets.as_ref(), plain)?;
    for (life, rekeyed, place, what) in [
        (bytes, rekeyed.bytes, &file.life_bytes, "bytes"),
        (packets, rekeyed.packets, &file.life_packets, "packets"),
    ] {
        if let (Some(life), Some(place)) = (life, place)
            && rekeyed.is_none_or(|rekeyed| life <= rekeyed)
        {
            let message = format!(
                "`life_{what}` needs a `rekey_{what}` that is less: else nothing replaces the SA before it ends"
            );
            return Err(problem(place, message));
        }
    }
    let rekey = rekey.as_secs();
    let seconds = match &file.life_seconds {
        Some(written) if *written.get_ref() <= rekey => {
            let message = format!(
                "`life_seconds` must be more than `rekey_seconds`, which is {rekey}: else nothing replaces the SA before it ends"
            );
            return Err(problem(written, message));
        }
        Some(written) => in_range(written, "life_seconds", 1..100_000_000)?,
        None => rekey + LONGEST_REKEY.max(rekey / 10),
    };
    Ok(Limits { bytes, packets, seconds: Some(seconds) })
}

pub(super) fn lifetime(file: &LifetimeFile) -> Result<Lifetime, Problem> {
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
                "`soft_{what}` ({soft}) must be below `hard_{what}` ({hard}), to leave time for new keys"
            );
            return Err(problem(place, message));
        }
    }
    Ok(limits)
}

fn amount(
    value: Option<&Spanned<Scalar>>,
    parse: impl Fn(&str) -> Result<u64, String>,
) -> Result<Option<u64>, Problem> {
    let Some(value) = value else { return Ok(None) };
    let amount = match value.get_ref() {
        Scalar::Number(number) => *number,
        Scalar::Word(word) => parse(word).map_err(|error| problem(value, excerpt(&error)))?,
    };
    if amount == 0 {
        return Err(problem(
            value,
            "a lifetime of 0 allows no packet; omit the field for no limit",
        ));
    }
    Ok(Some(amount))
}

pub(super) fn dscp(file: &SaFile) -> Result<Dscp, Problem> {
    let outbound = *file.direction.get_ref() == DirectionFile::Out;
    let Some(dscp) = &file.dscp else {
        // Outbound, the default is to copy the DSCP; inbound, to keep that of the inner header (RFC
        // 4301, section 5.1.2.1).
        return Ok(if outbound { Dscp::Copy } else { Dscp::Keep });
    };
    if *file.mode.get_ref() == ModeFile::Transport {
        return Err(problem(dscp, "in transport mode a packet keeps its DSCP: remove `dscp`"));
    }
    let value = |number: u64| {
        u8::try_from(number)
            .ok()
            .filter(|value| *value < 64)
            .ok_or_else(|| problem(dscp, format!("a DSCP is 0 to 63, not {number}")))
    };
    match dscp.get_ref() {
        DscpFile::Word(word) if word == "copy" => Ok(Dscp::Copy),
        DscpFile::Word(word) if word == "keep" && !outbound => Ok(Dscp::Keep),
        DscpFile::Word(word) => {
            let known = if outbound { "" } else { "\"keep\", " };
            let message = format!(
                "`{}` is not \"copy\", {known}a number from 0 to 63 or {{ map = {{ \"46\" = 46 }} }}",
                excerpt(word)
            );
            Err(problem(dscp, message))
        }
        DscpFile::Number(_) | DscpFile::Map(_) if !outbound => {
            let message = "inbound, `dscp` is \"keep\" (that of the inner packet) or \"copy\" (that of the outer packet)";
            Err(problem(dscp, message))
        }
        DscpFile::Number(number) => value(*number).map(Dscp::Set),
        DscpFile::Map(map) => {
            let pairs = map.iter().map(|(from, to)| {
                let from = from.parse().map_err(|_| {
                    problem(dscp, format!("`{}` is not a DSCP from 0 to 63", excerpt(from)))
                })?;
                Ok((value(from)?, value(*to)?))
            });
            pairs.collect::<Result<_, Problem>>().map(Dscp::Map)
        }
    }
}

pub(super) fn dont_fragment(file: &SaFile) -> Result<DontFragment, Problem> {
    let Some(word) = &file.dont_fragment else { return Ok(DontFragment::Copy) };
    if *file.mode.get_ref() == ModeFile::Transport {
        return Err(problem(
            word,
            "in transport mode a packet keeps its DF bit: remove `dont_fragment`",
        ));
    }
    match word.get_ref().as_str() {
        "copy" => Ok(DontFragment::Copy),
        "set" => Ok(DontFragment::Set),
        "clear" => Ok(DontFragment::Clear),
        other => {
            let message = format!("`{}` is not \"copy\", \"set\" or \"clear\"", excerpt(other));
            Err(problem(word, message))
        }
    }
}

/// Returns the padding, and whether to pad to the path's current MTU.
pub(super) fn padding(file: &SaFile, tunnel: &TunnelOptions) -> Result<(Padding, bool), Problem> {
    let Some(padding) = &file.padding else { return Ok((Padding::None, false)) };
    if *padding.get_ref() == Scalar::Word("none".into()) {
        return Ok((Padding::None, false));
    }
    require_tunnel_encryption(file, padding, "padding")?;
    match padding.get_ref() {
        Scalar::Word(word) if word == "mtu" => {
            let mtu = tunnel.path_mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(USUAL_MTU);
            Ok((Padding::Outer(mtu), tunnel.path_mtu.is_none()))
        }
        Scalar::Number(multiple @ 2..=9000) => Ok((Padding::Multiple(*multiple as u16), false)),
        _ => {
            let message = "`padding` is \"none\", \"mtu\", or the multiple, from 2 to 9000 bytes, to which packets are padded";
            Err(problem(padding, message))
        }
    }
}

/// Only an inner IP header shows where the padding begins (RFC 4303, section 2.7).
fn require_tunnel_encryption<T>(
    file: &SaFile,
    place: &Spanned<T>,
    what: &str,
) -> Result<(), Problem> {
    if *file.mode.get_ref() == ModeFile::Transport {
        let message = format!(
            "`{what}` is for tunnel mode only, where the inner header has the packet's length (RFC 4303, section 2.7)"
        );
        return Err(problem(place, message));
    }
    if *file.protocol.get_ref() == ProtocolFile::Ah {
        return Err(problem(
            place,
            format!("`{what}` has no use with AH, which does not encrypt: remove it"),
        ));
    }
    Ok(())
}

pub(super) fn dummies(file: &SaFile, spec: &SaSpec) -> Result<u32, Problem> {
    let Some(dummy) = &file.dummy else { return Ok(0) };
    if spec.direction == Direction::In {
        return Err(problem(
            dummy,
            "`dummy` is for an SA of direction \"out\"; the receiver discards dummy packets without it",
        ));
    }
    require_tunnel_encryption(file, dummy, "dummy")?;
    let rate = dummy.get_ref().strip_suffix("/s").and_then(|number| number.trim().parse().ok());
    rate.filter(|rate| (1..=10_000).contains(rate)).ok_or_else(|| {
        let message = format!(
            "`{}` is not a rate of packets from \"1/s\" to \"10000/s\"",
            excerpt(dummy.get_ref())
        );
        problem(dummy, message)
    })
}

/// Returns a bit for each DSCP that the SA serves.
pub(super) fn classes(file: &SaFile) -> Result<u64, Problem> {
    let Some(classes) = &file.traffic_class else { return Ok(u64::MAX) };
    let mut bits = 0;
    for class in classes.get_ref() {
        if *class > 63 {
            return Err(problem(classes, format!("a DSCP is 0 to 63, not {class}")));
        }
        bits |= 1 << class;
    }
    if bits == 0 {
        return Err(problem(classes, "`traffic_class` is empty; omit it for all DSCPs"));
    }
    Ok(bits)
}

/// The header is a multiple of 8 bytes in IPv6 (RFC 4302, section 2.6); Linux also pads IPv4's to 8
/// without `align4`.
pub(super) fn ah_alignment(
    file: &SaFile,
    protocol: Protocol,
    source: IpAddr,
) -> Result<usize, Problem> {
    let usual = if source.is_ipv4() { 4 } else { 8 };
    let Some(align) = &file.ah_align else { return Ok(usual) };
    if protocol != Protocol::Ah {
        return Err(problem(align, "`ah_align` is for AH only: remove it"));
    }
    match (align.get_ref(), source.is_ipv4()) {
        (8, _) => Ok(8),
        (4, true) => Ok(4),
        _ => Err(problem(
            align,
            "`ah_align` is 4, or 8 for a Linux peer without `align4`; with IPv6 it is always 8",
        )),
    }
}
