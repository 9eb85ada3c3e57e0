//! The options of the application `headroom`: how bulk data is to travel.

use std::ops::RangeInclusive;

use super::NAME;
use crate::catalogue::{Options, titled};

/// Transport of bulk data; by default the program's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransferOptions {
    /// On QUIC streams alone.
    pub(super) streams: bool,
    pub(super) cipher: Option<&'static Cipher>,
    /// Bytes of files in each packet.
    pub(super) chunk: Option<u32>,
    /// UDP ports for lanes.
    pub(super) lane_ports: Option<u16>,
    /// Which files are compressed on their way, by zstd; they go on streams.
    pub(super) compress: Option<&'static str>,
    /// Whether CRC-64/NVME verifies big files in place of BLAKE3.
    pub(super) verify_fast: bool,
}

/// A cipher that the program has for lanes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cipher {
    pub(super) name: &'static str,
    encrypts: bool,
    pub(super) about: &'static str,
}

const CIPHERS: [Cipher; 5] = [
    Cipher { name: "aes-128-gcm", encrypts: true, about: "AES-128-GCM" },
    Cipher { name: "aes-256-gcm", encrypts: true, about: "AES-256-GCM" },
    Cipher { name: "chacha20-poly1305", encrypts: true, about: "ChaCha20-Poly1305" },
    Cipher { name: "none", encrypts: false, about: "NONE: CRC32C, large files in clear" },
    Cipher {
        name: "simplecrypt",
        encrypts: false,
        about: "NONE: SimpleCrypt, the XOR scheme of the study, and CRC32C",
    },
];
/// Bytes of files in a packet, from and to.
const CHUNKS: RangeInclusive<u32> = 200..=4000;
/// Ports for lanes: as many as the study had.
const MAX_LANE_PORTS: u16 = 256;
/// Compression: of data that becomes shorter, or of all.
const COMPRESS: [&str; 2] = ["auto", "always"];
/// The options, for messages.
pub(super) const KNOWN: &str = "browser (its page in Chromium); streams; compress=auto or always; or cipher=NAME (aes-128-gcm, aes-256-gcm, chacha20-poly1305; none and \
                                simplecrypt, which do not encrypt), chunk=BYTES (200 to 4000), lane-ports=COUNT (1 to \
                                256); verify=fast (by CRC-64/NVME; not with browser, none or simplecrypt)";

impl TransferOptions {
    const DEFAULT: Self = Self {
        streams: false,
        cipher: None,
        chunk: None,
        lane_ports: None,
        compress: None,
        verify_fast: false,
    };

    pub(super) fn read(options: &Options<'_>) -> Result<Self, String> {
        let mut read = Self::DEFAULT;
        for option in options.iter() {
            let unknown = || options.unknown(option);
            match option.split_once('=') {
                Some(("cipher", name)) => {
                    let cipher = CIPHERS.iter().find(|cipher| cipher.name == name);
                    read.cipher = Some(cipher.ok_or_else(unknown)?);
                }
                Some(("chunk", bytes)) => {
                    let chunk = bytes.parse().ok().filter(|bytes| CHUNKS.contains(bytes));
                    read.chunk = Some(chunk.ok_or_else(unknown)?);
                }
                Some(("lane-ports", count)) => {
                    let count =
                        count.parse().ok().filter(|count| (1..=MAX_LANE_PORTS).contains(count));
                    read.lane_ports = Some(count.ok_or_else(unknown)?);
                }
                Some(("compress", what)) => {
                    let known = COMPRESS.iter().find(|known| **known == what);
                    read.compress = Some(known.ok_or_else(unknown)?);
                }
                Some(("verify", "fast")) => read.verify_fast = true,
                None if option == "streams" => read.streams = true,
                _ => return Err(unknown()),
            }
        }
        let of_streams = Self { cipher: None, chunk: None, lane_ports: None, ..read };
        if (read.streams || read.compress.is_some()) && read != of_streams {
            return Err(format!(
                "`{}`: cipher, chunk and lane-ports are of lanes, and what is compressed goes on streams",
                titled(NAME, &read.written())
            ));
        }
        if read.verify_fast && !read.encrypts() {
            return Err(format!(
                "`{}`: verify=fast needs a cipher that encrypts",
                titled(NAME, &read.written())
            ));
        }
        Ok(read)
    }

    /// Those that are not default, in the order of results.
    pub(super) fn written(&self) -> Vec<String> {
        let streams = self.streams.then(|| "streams".to_owned());
        let cipher = self.cipher.map(|cipher| format!("cipher={}", cipher.name));
        let chunk = self.chunk.map(|bytes| format!("chunk={bytes}"));
        let ports = self.lane_ports.map(|count| format!("lane-ports={count}"));
        let compress = self.compress.map(|what| format!("compress={what}"));
        let verify = self.verify_fast.then(|| "verify=fast".to_owned());
        [streams, compress, cipher, chunk, ports, verify].into_iter().flatten().collect()
    }

    /// Returns the baseline of a cipher: the same without one.
    fn bare(&self) -> Option<Self> {
        let bare = CIPHERS.iter().find(|cipher| cipher.name == "none");
        self.cipher.filter(|_| self.cipher != bare).map(|_| Self { cipher: bare, ..*self })
    }

    pub(super) fn encrypts(&self) -> bool {
        self.cipher.is_none_or(|cipher| cipher.encrypts)
    }

    /// Whether both sides must be started with `--insecure-measurement`.
    pub(super) fn needs_permission(&self) -> bool {
        !self.encrypts() || self.chunk.is_some()
    }

    /// Whether what was chosen is of lanes alone: without them nothing is moved.
    pub(super) fn needs_lanes(&self) -> bool {
        self.cipher.is_some() || self.chunk.is_some()
    }

    pub(super) fn obfuscates(&self) -> bool {
        self.cipher.is_some_and(|cipher| cipher.name == "simplecrypt")
    }

    /// Returns the baselines, best first.
    pub(super) fn baselines(&self) -> Vec<String> {
        let by_hash = Self { verify_fast: false, ..*self };
        let nearest = match self.verify_fast {
            true => Some(by_hash).filter(|by_hash| *by_hash != Self::DEFAULT),
            false => self.bare(),
        };
        let nearest = nearest.map(|nearest| titled(NAME, &nearest.written()));
        let base = if *self == Self::DEFAULT { "http" } else { NAME };
        nearest.into_iter().chain([base.to_owned()]).collect()
    }

    /// Describes the transport of bulk data.
    pub(super) fn carrier(&self) -> String {
        let carrier = match (self.compress, self.streams, self.needs_lanes()) {
            (Some("auto"), ..) => "QUIC streams; zstd of what becomes shorter",
            (Some(_), ..) => "QUIC streams; zstd of all",
            (None, true, _) => "QUIC streams",
            (None, false, true) => "lanes",
            (None, false, false) => "lanes where they pass, else QUIC streams",
        };
        let ports = self.lane_ports.map(|count| format!("; lanes at {count} UDP ports in turn"));
        format!("{carrier}{}", ports.unwrap_or_default())
    }

    /// And in what packets.
    pub(super) fn packets(&self) -> Option<String> {
        let fragments = "in IP fragments where the path takes less";
        let of = |bytes| format!("{bytes} bytes of a file and 47 of the protocol, {fragments}");
        self.chunk.map(of)
    }
}
