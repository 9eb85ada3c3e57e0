//! The options of an IPsec layer: read in any order, checked, and written in one.

use super::suite::{CIPHER, CIPHERS, Cipher, IKE_CIPHER, MAC, MACS, Mac};
use super::{Protocol, WINDOW};
use crate::catalogue::Options;
use crate::layer::rekey::RekeyInterval;
use crate::link::Flow;

/// Parsed options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) mode: Mode,
    /// Of ESP and Q-ESP; none where nothing is encrypted (AH).
    pub(super) cipher: Option<&'static Cipher>,
    /// Beside a cipher that does not authenticate, and of AH.
    pub(super) mac: Option<&'static Mac>,
    /// ESP in UDP (RFC 3948).
    pub(super) udp: bool,
    pub(super) backend: Backend,
    pub(super) queues: u16,
    pub(super) instructions: Instructions,
    /// Packets that the anti-replay window holds.
    pub(super) window: u32,
    /// The flow that has security associations of its own.
    pub(super) class: Option<Flow>,
    /// Keys that the two ends negotiate; none where they come with the configuration.
    pub(super) ike: Option<Ike>,
}

/// Which of the processor's instructions ciphers may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    /// All that it has.
    Native,
    /// Those that every processor of its kind has: no AES, SHA or multiplication
    /// without carries, and no vectors beyond the oldest.
    Portable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Tunnel,
    Transport,
}

/// The implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// `headroom tunnel`.
    Headroom,
    /// The kernel's XFRM.
    Kernel,
}

/// Anti-replay windows that `headroom tunnel` takes.
const WINDOWS: std::ops::RangeInclusive<u32> = 64..=8192;
/// The most threads that one gateway may be given.
const MAX_QUEUES: u16 = 64;

impl Mode {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Transport => "transport",
        }
    }
}

/// How both ends prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    SharedKey,
    /// Certificates of ECDSA P-256, by an authority of the run.
    Certificates,
}

/// The negotiation of keys by IKEv2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ike {
    pub(super) proof: Proof,
    /// Whether ML-KEM-768 stands beside X25519 (RFC 9370).
    pub(super) post_quantum: bool,
    /// Bytes after which the keys are updated; none: never in a run.
    pub(super) rekey: Option<RekeyInterval>,
}

impl Ike {
    pub(super) const DEFAULT: Self =
        Self { proof: Proof::SharedKey, post_quantum: true, rekey: None };

    /// Lists options that are not default, in the order of results.
    pub(super) fn written(self) -> impl Iterator<Item = String> {
        let rekey = self.rekey.map(|interval| format!("rekey={interval}"));
        let post_quantum = (!self.post_quantum).then(|| "pq=off".to_owned());
        let proof = (self.proof == Proof::Certificates).then(|| "cert".to_owned());
        ["ike".to_owned()].into_iter().chain(proof).chain(post_quantum).chain(rekey)
    }

    /// Describes the exchange for the record.
    pub(super) fn exchange(self) -> String {
        let groups = if self.post_quantum { "X25519 and ML-KEM-768" } else { "X25519" };
        let proof = match self.proof {
            Proof::SharedKey => "pre-shared key",
            Proof::Certificates => "certificates of ECDSA P-256",
        };
        format!("IKEv2, {groups}, {proof}")
    }

    /// Describes when keys are updated, for the record.
    pub(super) fn updates(self) -> String {
        self.rekey.map_or_else(
            || "never in a run".to_owned(),
            |interval| {
                format!("after {interval} less up to a tenth, by the client, with a key exchange of their own")
            },
        )
    }
}

impl Parameters {
    /// Those of a layer without brackets.
    pub(super) const fn of(protocol: Protocol) -> Self {
        let cipher = if protocol.encrypts() { Some(CIPHER) } else { None };
        let mac = if protocol.has_ah() { Some(MAC) } else { None };
        let (mode, backend) = (Mode::Tunnel, Backend::Headroom);
        Self {
            mode,
            cipher,
            mac,
            udp: false,
            backend,
            queues: 1,
            instructions: Instructions::Native,
            window: WINDOW,
            class: None,
            ike: None,
        }
    }

    /// Those of a layer whose keys are negotiated: what `headroom tunnel` agrees on with
    /// another one; ESP is always in UDP then, and Q-ESP never.
    const fn negotiated(protocol: Protocol, ike: Ike) -> Self {
        let udp = matches!(protocol, Protocol::Esp);
        Self { cipher: Some(IKE_CIPHER), udp, ike: Some(ike), ..Self::of(protocol) }
    }

    /// Reads options.
    ///
    /// # Errors
    /// A sentence: which option is unknown, twice there, or contradicts another.
    pub(super) fn read(protocol: Protocol, options: &Options<'_>) -> Result<Self, String> {
        let others = Self::of(protocol);
        let mut said = Said {
            mode: None,
            cipher: None,
            mac: None,
            queues: None,
            negotiates: false,
            proof: None,
            post_quantum: None,
            rekey: None,
            others,
        };
        for option in options.iter() {
            said.add(protocol, option, options)?;
        }
        said.checked(protocol)
    }

    /// Lists options that are not default, in the order of results.
    pub(super) fn written(&self, protocol: Protocol) -> Vec<String> {
        let default = match self.ike {
            Some(ike) => Self::negotiated(protocol, ike),
            None => Self::of(protocol),
        };
        // a cipher that does not authenticate has no default to go with it
        let separate = self.cipher.is_some_and(|cipher| cipher.tag.is_none());
        let ike = self.ike.into_iter().flat_map(Ike::written);
        let words = [
            (self.mode != default.mode).then(|| self.mode.name().to_owned()),
            self.cipher.filter(|_| self.cipher != default.cipher).map(|c| c.name.to_owned()),
            self.mac.filter(|_| separate || self.mac != default.mac).map(|m| m.name.to_owned()),
            (self.udp != default.udp).then(|| "udp".to_owned()),
            (self.backend == Backend::Kernel).then(|| "backend=kernel".to_owned()),
            (self.queues != default.queues).then(|| format!("queues={}", self.queues)),
            (self.instructions != default.instructions).then(|| "instructions=portable".to_owned()),
            (self.window != default.window).then(|| format!("window={}", self.window)),
            self.class.map(|flow| format!("sa-per-class={flow}")),
        ];
        ike.chain(words.into_iter().flatten()).collect()
    }
}

/// The options of a layer, for messages.
pub(super) fn known(protocol: Protocol) -> String {
    let mut words = vec!["tunnel", "transport"];
    words.extend(CIPHERS.iter().filter(|cipher| protocol.takes(cipher)).map(|c| c.name));
    words.extend(MACS.iter().map(|mac| mac.name));
    if protocol == Protocol::Esp {
        words.push("udp");
    }
    if protocol.has_ike() {
        words.extend(["ike", "cert", "pq=off", "rekey=SIZE"]);
    }
    words.push("backend=headroom");
    if protocol != Protocol::QEsp {
        words.push("backend=kernel");
    }
    words.extend(["queues=N", "instructions=portable", "window=N", "sa-per-class=udp:PORT"]);
    words.join(", ")
}

/// Options read so far.
struct Said {
    mode: Option<Mode>,
    cipher: Option<&'static Cipher>,
    mac: Option<&'static Mac>,
    queues: Option<u16>,
    negotiates: bool,
    proof: Option<Proof>,
    post_quantum: Option<bool>,
    rekey: Option<RekeyInterval>,
    /// The rest, which have defaults whatever is said beside them.
    others: Parameters,
}

impl Said {
    fn add(
        &mut self,
        protocol: Protocol,
        option: &str,
        options: &Options<'_>,
    ) -> Result<(), String> {
        let name = protocol.name();
        let cipher = CIPHERS.iter().find(|cipher| cipher.name == option);
        let mac = MACS.iter().find(|mac| mac.name == option);
        let once = |what: &str, again: bool| match again {
            true => Err(format!("`{name}` has its {what} said twice: leave one out")),
            false => Ok(()),
        };
        match (option.split_once('='), cipher, mac) {
            (_, Some(cipher), _) if protocol.takes(cipher) => {
                return once("cipher", self.cipher.replace(cipher).is_some());
            }
            (_, Some(_), _) if protocol == Protocol::Ah => {
                return Err(format!(
                    "`ah` encrypts nothing: leave out `{option}`, or use `ah+esp`"
                ));
            }
            (_, Some(_), _) => {
                return Err(format!("`{name}` must encrypt: leave out `{option}`"));
            }
            (_, _, Some(mac)) => {
                return once("integrity algorithm", self.mac.replace(mac).is_some());
            }
            (None, ..) if option == "tunnel" => {
                return once("mode", self.mode.replace(Mode::Tunnel).is_some());
            }
            (None, ..) if option == "transport" => {
                return once("mode", self.mode.replace(Mode::Transport).is_some());
            }
            (None, ..) if option == "udp" && protocol == Protocol::Esp => self.others.udp = true,
            (None, ..) if option == "udp" => {
                return Err(format!("`{name}` has no form in UDP: RFC 3948 is about ESP alone"));
            }
            (None, ..) if option == "ike" && protocol.has_ike() => self.negotiates = true,
            (None, ..) if option == "ike" => {
                return Err(format!(
                    "`{name}` has static keys: IKE negotiates those of `esp` and `qesp`"
                ));
            }
            (None, ..) if option == "cert" && protocol.has_ike() => {
                self.proof = Some(Proof::Certificates);
            }
            (Some(("pq", "on")), ..) => self.post_quantum = Some(true),
            (Some(("pq", "off")), ..) => self.post_quantum = Some(false),
            (Some(("rekey", size)), ..) => {
                self.rekey = Some(RekeyInterval::parse(option, size)?);
            }
            (Some(("instructions", "native")), ..) => {
                self.others.instructions = Instructions::Native;
            }
            (Some(("instructions", "portable")), ..) => {
                self.others.instructions = Instructions::Portable;
            }
            (Some(("backend", "headroom")), ..) => self.others.backend = Backend::Headroom,
            (Some(("backend", "kernel")), ..) if protocol == Protocol::QEsp => {
                return Err("no kernel has Q-ESP: leave out `backend=kernel`".to_owned());
            }
            (Some(("backend", "kernel")), ..) => self.others.backend = Backend::Kernel,
            (Some(("window", window)), ..) => {
                let window = window.parse().ok().filter(|window| WINDOWS.contains(window));
                self.others.window = window.ok_or_else(|| {
                    let (least, most) = (WINDOWS.start(), WINDOWS.end());
                    format!("`{option}`: an anti-replay window has from {least} to {most} packets")
                })?;
            }
            (Some(("sa-per-class", flow)), ..) => self.others.class = Some(flow.parse()?),
            (Some(("queues", queues)), ..) => {
                let queues = queues.parse().ok().filter(|n| (1..=MAX_QUEUES).contains(n));
                self.queues = Some(queues.ok_or_else(|| {
                    format!("`{option}`: a number of queues goes from 1 to {MAX_QUEUES}")
                })?);
            }
            _ => return Err(options.unknown(option)),
        }
        Ok(())
    }

    /// Fills in what was not said; refuses what contradicts.
    fn checked(self, protocol: Protocol) -> Result<Parameters, String> {
        let name = protocol.name();
        let default = self.others;
        if self.negotiates {
            return self.negotiated(protocol);
        }
        let about_ike = [
            ("cert", "cert", self.proof.is_some()),
            ("pq", "pq=…", self.post_quantum.is_some()),
            ("rekey", "rekey=…", self.rekey.is_some()),
        ];
        if let Some((option, form, _)) = about_ike.into_iter().find(|(.., written)| *written) {
            return Err(format!(
                "`{option}` is about keys that are negotiated: write `{name}(ike,{form})`"
            ));
        }
        let cipher = self.cipher.or(default.cipher);
        let mac = match (cipher, self.mac) {
            (Some(Cipher { name: cipher, tag: None, .. }), None) => {
                return Err(format!(
                    "`{name}` with `{cipher}` needs an integrity algorithm beside it, as in \
                     `{name}({cipher},{})`",
                    MAC.name
                ));
            }
            (Some(Cipher { name: cipher, tag: Some(_), .. }), Some(mac)) if !protocol.has_ah() => {
                return Err(format!(
                    "`{cipher}` authenticates by itself: leave out `{}`, or name a cipher that does \
                     not, as `aes-128-cbc`",
                    mac.name
                ));
            }
            (_, mac) => mac.or(default.mac),
        };
        let said = Parameters {
            mode: self.mode.unwrap_or(default.mode),
            cipher,
            mac,
            queues: self.queues.unwrap_or(default.queues),
            ..default
        };
        if said.backend == Backend::Kernel {
            let why = if said.mode == Mode::Transport {
                "`transport`: no interface shows the kernel's packets in clear, and the lab reads \
                 its clock there"
            } else if said.udp {
                "`udp`: a key exchange would have to open its socket; the layer `strongswan` has one"
            } else if said.class.is_some() {
                "`sa-per-class`: `headroom tunnel` has policies for ports here"
            } else if self.queues.is_some() {
                "`queues`: it uses the cores that it likes"
            } else if said.instructions == Instructions::Portable {
                "`instructions`: it uses those that it likes"
            } else {
                return Ok(said);
            };
            return Err(format!("`{name}`: `backend=kernel` does not go with {why}"));
        }
        Ok(said)
    }

    /// The same where keys are negotiated: the gateways agree on the suite, and ESP is in UDP.
    fn negotiated(self, protocol: Protocol) -> Result<Parameters, String> {
        let others = self.others;
        let why = if self.cipher.is_some() || self.mac.is_some() {
            "an algorithm: the two gateways agree on AES-256-GCM"
        } else if protocol == Protocol::QEsp && self.mode == Some(Mode::Transport) {
            "`transport`: Q-ESP is negotiated in tunnel mode alone"
        } else if others.udp {
            "`udp`: what IKE negotiates is always in UDP"
        } else if others.backend == Backend::Kernel {
            "`backend=kernel`: `headroom tunnel` gives its keys to no kernel"
        } else if others.window != WINDOW {
            "`window`: a negotiated association has the default"
        } else if others.class.is_some() {
            "`sa-per-class`: a negotiated association carries all classes"
        } else {
            let ike = Ike {
                proof: self.proof.unwrap_or(Ike::DEFAULT.proof),
                post_quantum: self.post_quantum.unwrap_or(Ike::DEFAULT.post_quantum),
                rekey: self.rekey,
            };
            return Ok(Parameters {
                mode: self.mode.unwrap_or(others.mode),
                queues: self.queues.unwrap_or(others.queues),
                instructions: others.instructions,
                ..Parameters::negotiated(protocol, ike)
            });
        };
        Err(format!("`{}`: `ike` does not go with {why}", protocol.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn title(protocol: Protocol, options: &str) -> Result<String, String> {
        let name = protocol.name();
        let written =
            if options.is_empty() { name.to_owned() } else { format!("{name}({options})") };
        let title = crate::layer::ALL.parse(&written)?.title();
        Ok(title[name.len()..].trim_matches(['(', ')']).to_owned())
    }

    #[test]
    fn any_order_comes_out_as_one_and_defaults_are_left_out() {
        use Protocol::{Ah, AhEsp, Esp, QEsp};
        for (protocol, written, canonical) in [
            (Esp, "", ""),
            (Esp, "tunnel,aes-128-gcm,backend=headroom,queues=1", ""),
            (Esp, "hmac-sha1,transport,aes-128-cbc", "transport,aes-128-cbc,hmac-sha1"),
            (Esp, "aes-256-cbc,hmac-sha256", "aes-256-cbc,hmac-sha256"),
            (Esp, "queues=2,udp,chacha20-poly1305", "chacha20-poly1305,udp,queues=2"),
            (Esp, "backend=kernel", "backend=kernel"),
            (Esp, "null,hmac-md5", "null,hmac-md5"),
            (QEsp, "tunnel,aes-128-gcm", ""),
            (QEsp, "transport,3des-cbc,hmac-sha1", "transport,3des-cbc,hmac-sha1"),
            (Ah, "hmac-sha256", ""),
            (Ah, "hmac-sha512,transport", "transport,hmac-sha512"),
            (Esp, "instructions=native", ""),
            (Esp, "instructions=portable,queues=2", "queues=2,instructions=portable"),
            (QEsp, "sa-per-class=udp:5004,window=64", "window=64,sa-per-class=udp:5004"),
            (Esp, "window=4096", ""),
            (Esp, "backend=kernel,window=128", "backend=kernel,window=128"),
            (Esp, "ike", "ike"),
            (Esp, "pq=on,ike,transport", "ike,transport"),
            (Esp, "rekey=50MB,pq=off,ike,queues=2", "ike,pq=off,rekey=50MB,queues=2"),
            (Esp, "ike,rekey=50000kB", "ike,rekey=50MB"),
            (Esp, "ike,rekey=1MiB", "ike,rekey=1MiB"),
            (Esp, "pq=off,cert,ike", "ike,cert,pq=off"),
            (QEsp, "tunnel,ike", "ike"),
            (QEsp, "rekey=1MB,ike,cert", "ike,cert,rekey=1MB"),
            (AhEsp, "hmac-sha1", "hmac-sha1"),
            (AhEsp, "aes-128-gcm,hmac-sha256", ""),
            (AhEsp, "aes-128-cbc,hmac-sha256", "aes-128-cbc,hmac-sha256"),
        ] {
            assert_eq!(title(protocol, written).as_deref(), Ok(canonical), "{written}");
            assert_eq!(title(protocol, canonical).as_deref(), Ok(canonical), "{written}");
        }
    }

    #[test]
    fn what_is_unknown_or_contradicts_is_told() {
        use Protocol::{Ah, AhEsp, Esp, QEsp};
        for (protocol, written, why) in [
            (
                Esp,
                "fast",
                "`esp` has no option `fast`; the options are tunnel, transport, aes-128-gcm,",
            ),
            (Ah, "aes-128-ctr", "the options are tunnel, transport, hmac-sha256"),
            (Esp, "transport,tunnel", "mode said twice"),
            (Esp, "aes-128-gcm,aes-256-gcm", "cipher said twice"),
            (AhEsp, "hmac-sha1,hmac-sha256", "integrity algorithm said twice"),
            (Esp, "udp,udp", "given `udp` twice"),
            (Esp, "hmac-sha1", "`aes-128-gcm` authenticates by itself"),
            (Esp, "aes-128-cbc", "as in `esp(aes-128-cbc,hmac-sha256)`"),
            (AhEsp, "aes-128-cbc", "needs an integrity algorithm"),
            (QEsp, "null,hmac-sha1", "`qesp` must encrypt"),
            (QEsp, "backend=kernel", "no kernel has Q-ESP"),
            (Ah, "aes-128-gcm", "`ah` encrypts nothing"),
            (AhEsp, "udp", "no form in UDP"),
            (Esp, "queues=0", "from 1 to 64"),
            (QEsp, "window=32", "from 64 to 8192"),
            (QEsp, "window=", "from 64 to 8192"),
            (QEsp, "window=64,window=64", "given `window` twice"),
            (QEsp, "sa-per-class=5004", "such as udp:5004"),
            (Esp, "backend=kernel,sa-per-class=udp:1", "does not go with `sa-per-class`"),
            (Esp, "queues=many", "from 1 to 64"),
            (Esp, "transport,backend=kernel", "reads its clock there"),
            (Esp, "udp,backend=kernel", "`strongswan` has one"),
            (Esp, "backend=kernel,queues=2", "cores that it likes"),
            (Esp, "backend=kernel,instructions=portable", "those that it likes"),
            (Esp, "instructions=portable,instructions=native", "given `instructions` twice"),
            (Esp, "pq=off", "write `esp(ike,pq=…)`"),
            (Esp, "rekey=50MB", "write `esp(ike,rekey=…)`"),
            (Esp, "cert", "write `esp(ike,cert)`"),
            (QEsp, "pq=off", "write `qesp(ike,pq=…)`"),
            (QEsp, "ike,transport", "in tunnel mode alone"),
            (Esp, "ike,cert,cert", "given `cert` twice"),
            (Ah, "cert", "`ah` has no option `cert`"),
            (Esp, "ike,rekey=1kB", "after 1 MB at least"),
            (Esp, "ike,rekey=often", "`rekey=often`"),
            (Esp, "ike,aes-128-gcm", "agree on AES-256-GCM"),
            (Esp, "ike,udp", "always in UDP"),
            (Esp, "ike,backend=kernel", "to no kernel"),
            (Esp, "ike,window=64", "has the default"),
            (Esp, "ike,sa-per-class=udp:1", "carries all classes"),
            (AhEsp, "ike", "`ah+esp` has static keys"),
        ] {
            let error = title(protocol, written).expect_err(written);
            assert!(error.contains(why), "{written}: {error}");
        }
    }
}
