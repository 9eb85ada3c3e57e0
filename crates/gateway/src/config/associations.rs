//! Converts one `[[sa]]` of the file to an SA that can be loaded.

use std::net::IpAddr;

use headroom_ipsec::SaSpec;
use headroom_ipsec::spec::{Direction, Lifetime, Mode, Protection, Secrets};
use headroom_suite::{Cipher, Key, Mac, Suite};
use toml::Spanned;
use zeroize::Zeroizing;

use super::file::{DirectionFile, ModeFile, ProtocolFile, SaFile};
use super::model::{Association, Purpose};
use super::options::{self, TunnelOptions};
use super::problem::{Problem, excerpt, problem};
use super::reader::{Content, Reader};
use super::scalar::SecretText;

impl Reader<'_> {
    pub(super) fn association(
        &self,
        file: &SaFile,
        tunnel: &TunnelOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Association, Problem> {
        let name = parse_name(&file.name)?;
        let protection = self.protection(file, tunnel, warnings)?;
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
        let (padding, pad_to_path_mtu) = options::padding(file, tunnel)?;
        let spec = SaSpec {
            name,
            direction,
            mode,
            spi: spi(&file.spi)?,
            source,
            destination,
            protection,
            extended_sequence: file.esn.unwrap_or(true),
            window: options::window(file)?,
            lifetime: file
                .lifetime
                .as_ref()
                .map_or(Ok(Lifetime::default()), |l| options::lifetime(l.get_ref()))?,
            udp: options::udp(file, self.purpose)?,
            follow_peer: options::follow_peer(file)?,
            peer_group: 0,
            dscp: options::dscp(file)?,
            ecn: file.ecn.unwrap_or(true),
            dont_fragment: options::dont_fragment(file)?,
            padding,
            classes: options::classes(file)?,
            queue: None,
            ah_alignment: options::ah_alignment(file, protocol, source)?,
        };
        if let (Some(_), Direction::Out, Purpose::Tunnel) = (&file.window, direction, self.purpose)
        {
            warnings.push(format!(
                "`window` of `{}` has no effect: it is for an SA of direction \"in\"",
                spec.name
            ));
        }
        let of_out = [
            ("padding", file.padding.is_some()),
            ("dont_fragment", file.dont_fragment.is_some()),
            ("traffic_class", file.traffic_class.is_some()),
        ];
        if (direction, self.purpose) == (Direction::In, Purpose::Tunnel) {
            let given = of_out.into_iter().filter(|(_, given)| *given);
            warnings.extend(given.map(|(field, _)| {
                format!(
                    "`{field}` of `{}` has no effect: it is for an SA of direction \"out\"",
                    spec.name
                )
            }));
        }
        let dummies_per_second = options::dummies(file, &spec)?;
        let line = self.line(&file.name);
        Ok(Association { spec, dummies_per_second, pad_to_path_mtu, line, negotiated: false })
    }

    fn protection(
        &self,
        file: &SaFile,
        tunnel: &TunnelOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Protection, Problem> {
        let protocol = *file.protocol.get_ref();
        if let Some(number) = &file.protocol_number
            && protocol != ProtocolFile::Qesp
        {
            let message = "`protocol_number` is for Q-ESP only; ESP is 50 and AH is 51";
            return Err(problem(number, message));
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
                    problem(
                        &file.suite,
                        format!("AH needs an integrity algorithm without a cipher: {error}"),
                    )
                })?;
                if let Some((_, place)) = mac {
                    return Err(Problem {
                        offset: place,
                        message: "AH has one key: write it as `key`".into(),
                    });
                }
                let (key, place) =
                    key.ok_or_else(|| problem(&file.name, "AH needs a `key`, or a `key_file`"))?;
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
                    let message = "Q-ESP always encrypts, so it has no null cipher (docs/qesp.md): choose another \
                                   suite, such as aes-128-gcm";
                    return Err(problem(&file.suite, message));
                }
                let secure = secrets.suite.is_secure();
                (Protection::QEsp { number, secrets }, secure)
            }
        };
        if !secure {
            let (name, suite) = (excerpt(file.name.get_ref()), file.suite.get_ref());
            if !tunnel.insecure && self.purpose == Purpose::Tunnel {
                let message = format!(
                    "the suite `{suite}` is not secure (RFC 8221): choose another, such as aes-128-gcm. For a \
                     measurement, write `allow_insecure = true` at the top of the file"
                );
                return Err(problem(&file.suite, message));
            }
            warnings.push(format!("`{name}` uses `{suite}`, which is not secure (RFC 8221)"));
        }
        Ok(protection)
    }

    /// Returns the key from the file or from its key file, and its position.
    fn key(
        &self,
        written: Option<&Spanned<SecretText>>,
        file: Option<&Spanned<std::path::PathBuf>>,
        what: &str,
    ) -> Result<Option<(Key, usize)>, Problem> {
        let (text, place) = match (written, file) {
            (None, None) => return Ok(None),
            (Some(_), Some(file)) => {
                let message = format!("`{what}` and `{what}_file` are both present: remove one");
                return Err(problem(file, message));
            }
            (Some(key), None) => (key.get_ref().0.clone(), key.span().start),
            (None, Some(file)) => {
                let text = (self.read_file)(file.get_ref(), Content::Secret)
                    .map_err(|error| problem(file, error))?;
                (Zeroizing::new(text.trim().to_owned()), file.span().start)
            }
        };
        let key = Key::from_hex(&text);
        let key =
            key.map_err(|error| Problem { offset: place, message: format!("`{what}`: {error}") })?;
        Ok(Some((key, place)))
    }

    fn addresses(&self, file: &SaFile) -> Result<(IpAddr, IpAddr), Problem> {
        let (source, destination) = (address(&file.source)?, address(&file.destination)?);
        if source.is_ipv4() != destination.is_ipv4() {
            let message = format!(
                "the destination `{destination}` and the source `{source}` have different IP versions: the outer addresses of an \
                 SA must both be IPv4 or both IPv6 (the inner packets may be either)"
            );
            return Err(problem(&file.destination, message));
        }
        if source == destination {
            let message = format!("`{destination}` is also the source: an SA connects two hosts");
            return Err(problem(&file.destination, message));
        }
        Ok((source, destination))
    }
}

/// Checks the name of an SA or a policy.
pub(super) fn parse_name(name: &Spanned<String>) -> Result<String, Problem> {
    let text = name.get_ref();
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
    if !(1..=64).contains(&text.len()) || !text.bytes().all(plain) {
        let message = format!(
            "`{}` is not a name of 1 to 64 letters, digits, `_`, `-` and `.`",
            excerpt(text)
        );
        return Err(problem(name, message));
    }
    Ok(text.clone())
}

/// The SPIs 1 to 255 are reserved, and 0 is never sent (RFC 4303, section 2.1).
fn spi(spi: &Spanned<u64>) -> Result<u32, Problem> {
    let number = *spi.get_ref();
    if number < 256 {
        let message =
            format!("the SPI {number} is reserved (RFC 4303, section 2.1): choose one from 256");
        return Err(problem(spi, message));
    }
    u32::try_from(number)
        .map_err(|_| problem(spi, format!("the SPI {number:#x} has more than 32 bits")))
}

pub(super) fn address(text: &Spanned<String>) -> Result<IpAddr, Problem> {
    let address: IpAddr = text.get_ref().parse().map_err(|_| {
        problem(text, format!("`{}` is not an IPv4 or IPv6 address", excerpt(text.get_ref())))
    })?;
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        let message =
            format!("`{address}` is not the address of one host: an SA connects two hosts");
        return Err(problem(text, message));
    }
    Ok(address)
}

fn secrets(
    file: &SaFile,
    key: Option<(Key, usize)>,
    mac: Option<(Key, usize)>,
) -> Result<Secrets, Problem> {
    let text = file.suite.get_ref();
    if text.parse::<Mac>().is_ok() {
        let message = format!(
            "`{}` does not encrypt: write `null+{text}` (insecure), or a suite with a cipher, such as \
             aes-128-cbc+{text}. Only AH uses it without a cipher",
            excerpt(text)
        );
        return Err(problem(&file.suite, message));
    }
    let suite: Suite = text.parse().map_err(|error| problem(&file.suite, format!("{error}")))?;
    let null = matches!(suite, Suite::Separate(Cipher::Null, _));
    let (key, key_place) = match key {
        None if null => (Key::empty(), file.name.span().start),
        None => {
            return Err(problem(&file.name, format!("`{suite}` needs a `key`, or a `key_file`")));
        }
        Some(key) => key,
    };
    let (mac_key, mac_place) = mac.map_or((None, None), |(key, place)| (Some(key), Some(place)));
    // The error concerns one of two keys; binding the integrity key alone shows which.
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

fn bindable<T>(place: usize, bound: Result<T, headroom_suite::KeyError>) -> Result<(), Problem> {
    bound.map(|_| ()).map_err(|error| Problem { offset: place, message: error.to_string() })
}

/// Rejects numbers that the kernel uses for other protocols.
fn qesp_number(number: Option<&Spanned<u64>>) -> Result<u8, Problem> {
    /// The first number that IANA has not assigned, with a margin for future assignments.
    const FIRST: u64 = 160;
    let Some(number) = number else { return Ok(headroom_ipsec::spec::QESP) };
    match u8::try_from(*number.get_ref()) {
        Ok(value) if (FIRST..255).contains(&u64::from(value)) => Ok(value),
        _ => {
            let message = format!(
                "the protocol number {} may have another meaning for hosts in the path: use 253 or 254, which are for \
                 experiments (RFC 3692), or {FIRST} to 252, which are not assigned",
                number.get_ref()
            );
            Err(problem(number, message))
        }
    }
}
