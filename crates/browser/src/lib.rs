//! The browser that the lab measures with: starts Chromium without a window, moves one file in
//! it by the page of `headroom serve --web`, by `fetch` or by a data channel of WebRTC, and
//! reports when.
//!
//! Chromium is driven over its DevTools protocol, by a pipe. What a page downloads is in the
//! browser's own storage (OPFS); the file is taken from there when the browser has ended.

mod devtools;
mod storage;
mod webrtc;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headroom_lab_trace::BrowserReport;
use serde_json::{Value, json};

use devtools::Browser;
pub use webrtc::{Peer, serve};

/// The site that moves the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Site {
    /// The page of `headroom serve --web`, with the Ed25519 key (PKCS#8 PEM) in this file.
    Headroom {
        /// The file with the key.
        identity: PathBuf,
    },
    /// Any HTTPS server: GET and PUT by `fetch`.
    Https,
    /// A [`Peer`]: a data channel of WebRTC.
    WebRtc,
}

/// The local end of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalFile {
    /// Where the file goes when the browser has ended.
    Download(PathBuf),
    /// The file that the page gets, as if it was picked.
    Upload(PathBuf),
}

/// One transfer.
#[derive(Debug, Clone)]
pub struct Task {
    /// The executable of Chromium.
    pub chromium: PathBuf,
    /// The folder in which the browser's profile is made, and removed at the end.
    pub folder: PathBuf,
    /// The address of the site, with a slash at the end: `https://192.0.2.1:4861/`; of a peer
    /// without a scheme: `192.0.2.1:4871`.
    pub url: String,
    /// How it moves files.
    pub site: Site,
    /// The file's path below the site.
    pub remote: String,
    /// The other end.
    pub local: LocalFile,
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("cannot {doing}: {cause}")]
    System {
        /// What was being done.
        doing: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The browser ended, or does not speak its protocol.
    #[error("the browser {0}")]
    Browser(String),
    /// The page failed.
    #[error("the page: {0}")]
    Page(String),
    /// The other end of a data channel failed.
    #[error("the peer: {0}")]
    Peer(String),
    /// The file is not in the browser's storage.
    #[error("the browser's storage has no file of {0} bytes")]
    NoFile(u64),
    /// The file with the key has something else in it.
    #[error("{} is not an Ed25519 key in PKCS#8 PEM", .0.display())]
    NoKey(PathBuf),
}

/// How long the profile may resist its removal.
const REMOVAL: Duration = Duration::from_secs(10);

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Turns an I/O error into this crate's, which says what was being done: `read FILE`.
trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::System { doing: what(), cause })
    }
}

/// Moves a file, and reports how that went.
#[must_use]
pub fn run(task: &Task) -> BrowserReport {
    let profile = task.folder.join(format!("profile-{}", std::process::id()));
    let report = transfer(task, &profile);
    let removed = remove(&profile).doing(|| format!("remove {}", profile.display()));
    match (report, removed) {
        (Ok(report), Ok(())) => report,
        (Ok(report), Err(left)) => BrowserReport { error: Some(left.to_string()), ..report },
        (Err(error), removed) => {
            let also = removed.err().map(|left| format!("; {left}"));
            let error = Some(format!("{error}{}", also.unwrap_or_default()));
            BrowserReport { error, ..BrowserReport::default() }
        }
    }
}

/// Removes the profile of a browser that was killed: a process of it that is ending may still
/// make a file.
fn remove(profile: &Path) -> io::Result<()> {
    let until = Instant::now() + REMOVAL;
    loop {
        match fs::remove_dir_all(profile) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if Instant::now() < until => std::thread::sleep(REMOVAL / 200),
            removed => return removed,
        }
    }
}

/// What both pages do: the clocks, and what to do with the file.
const COMMON: &str = include_str!("../web/common.js");

fn transfer(task: &Task, profile: &Path) -> Result<BrowserReport> {
    let script = match task.site {
        Site::Headroom { .. } => include_str!("../web/headroom.js"),
        Site::Https => include_str!("../web/https.js"),
        Site::WebRtc => return webrtc::transfer(task, profile),
    };
    fs::create_dir_all(profile).doing(|| format!("make {}", profile.display()))?;
    let mut browser = Browser::start(&task.chromium, profile)?;
    let client = browser.version()?;
    let mut page = browser.page()?;
    if let Site::Headroom { identity } = &task.site {
        // the key is there before the page looks for it
        page.open(&format!("{}icon.svg", task.url))?;
        page.call(include_str!("../web/key.js"), &json!({"seed": seed_of(identity)?}))?;
    }
    page.open(&task.url)?;
    if let LocalFile::Upload(path) = &task.local {
        page.pick(path)?;
    }
    let uploads = matches!(task.local, LocalFile::Upload(_));
    let wanted = json!({"remote": task.remote, "upload": uploads});
    let script = format!("async task => {{ {COMMON}\n return ({script})(task) }}");
    let moved = page.call(&script, &wanted)?;
    let number = |name: &str| moved.get(name).and_then(Value::as_f64);
    let (start, done) = number("start_ms")
        .zip(number("done_ms"))
        .ok_or_else(|| Error::Page(format!("it reports no times: {moved}")))?;
    let bytes = number("bytes").unwrap_or_default() as u64;
    browser.close()?;
    if let LocalFile::Download(path) = &task.local {
        storage::take(profile, bytes, path)?;
    }
    let text = |name: &str| moved.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(BrowserReport {
        client,
        transport: text("transport"),
        start_ns: Some(ns(start)),
        done_ns: Some(ns(done)),
        total_s: (done - start) / 1000.0,
        bytes,
        hash: text("hash"),
        error: None,
    })
}

/// Converts milliseconds since the epoch.
fn ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// Reads the 32 bytes of a private key, in hexadecimal digits.
fn seed_of(identity: &Path) -> Result<String> {
    let text = fs::read_to_string(identity).doing(|| format!("read {}", identity.display()))?;
    seed(&text).ok_or_else(|| Error::NoKey(identity.to_owned()))
}

/// Finds the CurvePrivateKey of RFC 8410, section 7: an OCTET STRING of 32 bytes in another.
fn seed(pem: &str) -> Option<String> {
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = decode(base64.trim())?;
    let head = [0x04, 0x22, 0x04, 0x20];
    let at = der.windows(head.len()).position(|window| window == head)? + head.len();
    let seed = der.get(at..at + 32)?;
    Some(seed.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Decodes base64 (RFC 4648, section 4).
fn decode(base64: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut decoded = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for byte in base64.trim_end_matches('=').bytes() {
        bits = bits << 6 | u32::from(digit(byte)?);
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held) as u8);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_seed_of_a_key() {
        // the example of RFC 8410, section 10.3
        let pem = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                   -----END PRIVATE KEY-----\n";
        let seed = seed(pem).expect("a key");
        assert_eq!(seed, "d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842");
    }

    #[test]
    fn rejects_what_is_no_key() {
        for wrong in ["", "-----BEGIN PRIVATE KEY-----\n", "MC4CAQAwBQYDK2VwBCIEINTuctv5", "§"] {
            assert_eq!(seed(wrong), None, "{wrong}");
        }
    }
}
