//! Runs scapy (Python) as a peer: one process that reads requests on standard input.

mod trial;

pub use trial::try_case;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use headroom_ipsec::spec::Mode;
use headroom_suite::{Aead, Cipher, Mac, Suite};
use serde::{Deserialize, Serialize};

use crate::case::{Case, Guard, Side, UDP_PORT};
use crate::hex;
use crate::peer::Peers;

const DRIVER: &str = include_str!("driver.py");

/// The running driver. Dropping it stops it.
#[derive(Debug)]
pub struct Scapy {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Versions of scapy and of its cryptographic library.
    pub versions: Versions,
}

/// The driver's first message.
#[derive(Debug, Clone, Deserialize)]
pub struct Versions {
    /// scapy's version.
    pub scapy: String,
    /// The version of the package `cryptography`.
    pub cryptography: String,
}

#[derive(Serialize)]
struct Request {
    r#do: &'static str,
    packet: String,
    sequence: u64,
    associations: Vec<Association>,
}

#[derive(Serialize)]
struct Association {
    protocol: &'static str,
    spi: u32,
    crypt: Option<&'static str>,
    crypt_key: String,
    auth: Option<&'static str>,
    auth_key: String,
    extended: bool,
    tunnel: Option<[String; 2]>,
    udp: Option<[u16; 2]>,
}

#[derive(Deserialize)]
struct Answer {
    packet: Option<String>,
    error: Option<String>,
}

impl Scapy {
    /// Starts the driver.
    ///
    /// # Errors
    /// scapy is missing; the error says how to install it.
    pub fn start(peers: &Peers) -> Result<Self> {
        let python = python(peers)?;
        let mut child = Command::new(&python)
            .args(["-c", DRIVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", python.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("scapy has no pipes");
        };
        let mut output = BufReader::new(output);
        let versions = read(&mut output).context("scapy did not start")?;
        Ok(Self { child, input, output, versions })
    }

    /// Protects `packet` by the case's associations from `from`.
    ///
    /// # Errors
    /// scapy's error.
    pub fn seal(&mut self, case: &Case, from: Side, number: u64, packet: &[u8]) -> Result<Vec<u8>> {
        self.ask("seal", case, from, number, packet)
    }

    /// Opens a packet protected by the case's associations from `from`.
    ///
    /// # Errors
    /// scapy's error.
    pub fn open(&mut self, case: &Case, from: Side, number: u64, packet: &[u8]) -> Result<Vec<u8>> {
        self.ask("open", case, from, number, packet)
    }

    fn ask(
        &mut self,
        what: &'static str,
        case: &Case,
        from: Side,
        sequence: u64,
        packet: &[u8],
    ) -> Result<Vec<u8>> {
        let request =
            Request { r#do: what, packet: hex(packet), sequence, associations: chain(case, from) };
        let mut line = serde_json::to_string(&request)?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).context("asking scapy")?;
        let answer: Answer = read(&mut self.output).context("asking scapy")?;
        match answer {
            Answer { packet: Some(packet), .. } => unhex(&packet),
            Answer { error, .. } => bail!("scapy says: {}", error.unwrap_or_default()),
        }
    }
}

impl Drop for Scapy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds a Python that has scapy.
///
/// # Errors
/// It is missing; the error says how to install it.
pub(crate) fn python(peers: &Peers) -> Result<PathBuf> {
    let python = peers.cache().join("bin/scapy-python");
    if !python.is_file() {
        bail!("there is no scapy: run scripts/fetch-parts --with-peers");
    }
    Ok(python)
}

fn chain(case: &Case, from: Side) -> Vec<Association> {
    let to = if from == Side::Ours { Side::Theirs } else { Side::Ours };
    let associations = case.associations(from).into_iter();
    associations
        .map(|sa| {
            let (protocol, crypt, crypt_key, auth, auth_key) = match &sa.guard {
                Guard::Esp(suite, key, mac_key) => {
                    let (crypt, auth) = names(*suite);
                    ("ESP", Some(crypt), hex(key), auth, hex(mac_key))
                }
                Guard::Ah(algorithm, key) => {
                    ("AH", None, String::new(), Some(mac(*algorithm)), hex(key))
                }
            };
            let addresses = [case.outer_address(from), case.outer_address(to)];
            Association {
                protocol,
                spi: sa.spi,
                crypt,
                crypt_key,
                auth,
                auth_key,
                extended: case.extended,
                tunnel: (sa.mode == Mode::Tunnel)
                    .then(|| addresses.map(|address| address.to_string())),
                udp: case.udp.then_some([UDP_PORT; 2]),
            }
        })
        .collect()
}

/// Returns scapy's names of cipher and integrity algorithm.
fn names(suite: Suite) -> (&'static str, Option<&'static str>) {
    match suite {
        Suite::Aead(Aead::ChaCha20Poly1305) => ("CHACHA20-POLY1305", None),
        Suite::Aead(_) => ("AES-GCM", None),
        Suite::Separate(cipher, algorithm) => {
            let cipher = match cipher {
                Cipher::Null => "NULL",
                Cipher::DesCbc => "DES",
                Cipher::TripleDesCbc => "3DES",
                Cipher::Aes128Cbc | Cipher::Aes192Cbc | Cipher::Aes256Cbc => "AES-CBC",
            };
            (cipher, Some(mac(algorithm)))
        }
    }
}

fn mac(mac: Mac) -> &'static str {
    match mac {
        Mac::HmacMd5 => "HMAC-MD5-96",
        Mac::HmacSha1 => "HMAC-SHA1-96",
        Mac::HmacSha256 => "SHA2-256-128",
        Mac::HmacSha384 => "SHA2-384-192",
        Mac::HmacSha512 => "SHA2-512-256",
    }
}

fn read<T: serde::de::DeserializeOwned>(output: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("it answered {line:?}"))
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let octet = |at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(octet).collect::<Option<_>>().context("not hexadecimal")
}
