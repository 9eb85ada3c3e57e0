//! Checks that concern several SAs together.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use headroom_ipsec::spec::{Action, Addresses, Direction, Protection, Secrets, UdpPorts};
use headroom_ipsec::{Mode, PolicySpec, SaSpec};
use headroom_suite::{Fingerprint, Key, Suite};

use super::file::{ConfigFile, SaFile};
use super::model::{Association, Purpose};
use super::problem::{Problem, problem};
use super::reader::Reader;

/// Bytes of salt at the end of an AEAD's key (RFC 4106, section 8.1).
const SALT_LEN: usize = 4;

pub(super) fn associations(
    files: &[SaFile],
    associations: &[Association],
    reader: &Reader<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), Problem> {
    names(files, reader)?;
    spis(files, associations, reader)?;
    one_qesp_number(files, associations)?;
    let mut found = Vec::new();
    keys(files, associations, reader, &mut found);
    if reader.purpose == Purpose::Decode {
        // An ambiguous SPI is allowed for decoding.
        warnings.extend(found.into_iter().map(|found: Problem| found.message));
        return Ok(());
    }
    if let Some(first) = found.into_iter().next() {
        return Err(first);
    }
    sides(files, associations, reader)?;
    answers_followed_peers(files, associations)
}

fn names(files: &[SaFile], reader: &Reader<'_>) -> Result<(), Problem> {
    let mut seen = HashMap::new();
    for file in files {
        if let Some(earlier) = seen.insert(file.name.get_ref(), file) {
            let line = reader.line(&earlier.name);
            let message =
                format!("an SA named `{}` is already in line {line}", file.name.get_ref());
            return Err(problem(&file.name, message));
        }
    }
    Ok(())
}

/// SPI, destination and protocol identify an SA (RFC 4301, section 4.1).
fn spis(
    files: &[SaFile],
    associations: &[Association],
    reader: &Reader<'_>,
) -> Result<(), Problem> {
    let mut seen = HashMap::new();
    for (file, association) in files.iter().zip(associations) {
        let spec = &association.spec;
        let protocol = spec.protection.protocol();
        let key = (spec.spi, spec.destination, protocol.number());
        if let Some(earlier) = seen.insert(key, file) {
            let message = format!(
                "`{1}` (line {2}) already has the SPI {0:#x} for {protocol} to {3}: choose another SPI at both ends",
                spec.spi,
                earlier.name.get_ref(),
                reader.line(&earlier.name),
                spec.destination
            );
            return Err(problem(&file.spi, message));
        }
    }
    Ok(())
}

/// Q-ESP has one protocol number: the gateway has one raw socket for it.
fn one_qesp_number(files: &[SaFile], associations: &[Association]) -> Result<(), Problem> {
    let mut first = None;
    for (file, association) in files.iter().zip(associations) {
        let Protection::QEsp { number, .. } = association.spec.protection else { continue };
        let first = *first.get_or_insert(number);
        if first != number {
            let message = format!(
                "Q-ESP has the protocol number {first} above and {number} here: use the same"
            );
            return Err(problem(&file.protocol, message));
        }
    }
    Ok(())
}

/// Every key has one use. Two counters under one key of GCM or ChaCha20-Poly1305 repeat nonces, and
/// with any suite an attacker can replay the packets of one SA to the other.
fn keys(
    files: &[SaFile],
    associations: &[Association],
    reader: &Reader<'_>,
    found: &mut Vec<Problem>,
) {
    let mut seen: HashMap<Fingerprint, (&SaFile, Direction)> = HashMap::new();
    for (file, association) in files.iter().zip(associations) {
        let direction = association.spec.direction;
        for (part, what) in parts(&association.spec.protection) {
            let Some((earlier, other)) = seen.insert(part, (file, direction)) else { continue };
            let place = if what == "key" { file.key.as_ref() } else { file.integrity_key.as_ref() };
            let place = place.map_or(file.name.span().start, |key| key.span().start);
            let name = file.name.get_ref();
            let whose = if std::ptr::eq(earlier, file) {
                format!("`{name}` has the same key for encryption and integrity")
            } else {
                let both = if direction == other { "" } else { ", in the other direction," };
                let (earlier, line) = (earlier.name.get_ref(), reader.line(&earlier.name));
                format!("the `{what}` of `{name}` is also{both} that of `{earlier}` (line {line})")
            };
            let message = format!(
                "{whose}: a key must have one use only. `headroom tunnel keygen` makes new keys"
            );
            found.push(Problem { offset: place, message });
        }
    }
}

/// Returns the keys of an SA without salts: keys that differ only in the salt are the same key.
fn parts(protection: &Protection) -> Vec<(Fingerprint, &'static str)> {
    match protection {
        Protection::Ah { key, .. } => vec![(key.fingerprint(), "key")],
        Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => {
            let Secrets { suite, key, mac_key } = secrets;
            let octets = key.as_bytes();
            let salt = if matches!(suite, Suite::Aead(_)) { SALT_LEN } else { 0 };
            let cipher = &octets[..octets.len().saturating_sub(salt)];
            let cipher =
                (!cipher.is_empty()).then(|| (Key::from_bytes(cipher).fingerprint(), "key"));
            let mac = mac_key.as_ref().map(|key| (key.fingerprint(), "integrity_key"));
            cipher.into_iter().chain(mac).collect()
        }
    }
}

/// The source of an outbound SA and the destination of an inbound one are addresses of this host.
fn sides(
    files: &[SaFile],
    associations: &[Association],
    reader: &Reader<'_>,
) -> Result<(), Problem> {
    let mut sides: HashMap<IpAddr, (bool, &SaFile)> = HashMap::new();
    for (file, association) in files.iter().zip(associations) {
        let spec = &association.spec;
        let outbound = spec.direction == Direction::Out;
        for (address, here, place) in [
            (spec.source, outbound, &file.source),
            (spec.destination, !outbound, &file.destination),
        ] {
            let (there, earlier) = *sides.entry(address).or_insert((here, file));
            if there != here {
                let words = |here| if here { "this host's" } else { "the peer's" };
                let message = format!(
                    "`{address}` is {} address here and {} in `{}` (line {}): an SA of direction \"out\" has this \
                     host's address as its source, an SA of direction \"in\" as its destination",
                    words(here),
                    words(there),
                    earlier.name.get_ref(),
                    reader.line(&earlier.name)
                );
                return Err(problem(place, message));
            }
        }
    }
    Ok(())
}

/// The gateway answers a followed peer from the port to which the peer sends: a NAT lets nothing
/// else in.
fn answers_followed_peers(files: &[SaFile], associations: &[Association]) -> Result<(), Problem> {
    let specs = associations.iter().map(|association| &association.spec);
    let answers = specs.filter(|out| (out.direction, out.mode) == (Direction::Out, Mode::Tunnel));
    let ends = |out: &SaSpec| {
        let UdpPorts { source, destination } = out.udp?;
        Some(((out.source, source), (out.destination, destination)))
    };
    let answers: HashSet<_> = answers.filter_map(ends).collect();
    for (file, association) in files.iter().zip(associations) {
        let spec = &association.spec;
        let (Some(ports), Some(place)) = (spec.udp, &file.follow_peer) else { continue };
        let back = ((spec.destination, ports.destination), (spec.source, ports.source));
        if spec.follow_peer && !answers.contains(&back) {
            let message = format!(
                "`follow_peer` needs an SA of direction \"out\" in tunnel mode \
                 from {} to {}, `udp = {{ source = {}, destination = {} }}`",
                spec.destination, spec.source, ports.destination, ports.source
            );
            return Err(problem(place, message));
        }
    }
    Ok(())
}

/// Linux disables IPv6 on an interface with an MTU below 1280 (RFC 8200, section 5).
pub(super) fn ipv6_mtu(
    file: &ConfigFile,
    mtu: Option<u64>,
    addresses: &[(IpAddr, u8)],
    associations: &[Association],
    policies: &[PolicySpec],
) -> Result<(), Problem> {
    let (Some(place), Some(0..1280)) = (&file.mtu, mtu) else { return Ok(()) };
    let range =
        |addresses: &Addresses| matches!(addresses, Addresses::Range(first, _) if first.is_ipv6());
    let of_transport = |association: &Association| {
        association.spec.mode == headroom_ipsec::Mode::Transport
            && association.spec.source.is_ipv6()
    };
    let v6 = addresses.iter().any(|(address, _)| address.is_ipv6())
        || policies.iter().any(|p| range(&p.selector.local) || range(&p.selector.remote))
        || associations.iter().any(of_transport);
    if v6 {
        return Err(problem(
            place,
            "IPv6 needs an MTU of at least 1280 bytes (RFC 8200, section 5)",
        ));
    }
    Ok(())
}

/// Warns of a configuration that protects nothing.
pub(super) fn warn_if_idle(
    associations: &[Association],
    policies: &[PolicySpec],
    warnings: &mut Vec<String>,
) {
    let protects = |policy: &PolicySpec| matches!(policy.action, Action::Protect { .. });
    let missing = if associations.is_empty() {
        "there is no [[sa]]"
    } else if policies.is_empty() {
        "there is no [[policy]]"
    } else if !policies.iter().any(protects) {
        "no [[policy]] has the action \"protect\""
    } else {
        return;
    };
    warnings.push(format!(
        "{missing}: no packet is protected, and packets leave in clear unless a policy discards them"
    ));
}
