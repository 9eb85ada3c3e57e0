//! Recorded deliveries of a link, in the format of mahimahi's mm-link(1): a line for each
//! opportunity to deliver 1500 bytes, with its time in whole milliseconds. The last line is
//! also the period after which the trace begins again.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The most lines of a trace.
const MAX_LINES: usize = 2_000_000;
/// The most bytes of its file: as many of the longest lines.
const MAX_BYTES: u64 = 11 * MAX_LINES as u64;
/// Digits of the digest in a link's text.
const SHOWN_DIGITS: usize = 12;

/// A recorded trace. Copies share its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    name: String,
    folder: PathBuf,
    digest: blake3::Hash,
    times_ms: Arc<[u32]>,
    period_ms: u32,
    longest_gap_ms: u32,
}

impl Trace {
    /// Bytes that one opportunity delivers, of packets without their Ethernet headers.
    pub const OPPORTUNITY_BYTES: u32 = 1500;

    /// Reads the trace that a link names: a file of `folder`, or one with an absolute path.
    /// `FILE@DIGEST`, as [`Trace`] is displayed, must have that content.
    ///
    /// # Errors
    /// A sentence that names the file, and the line where one is wrong.
    pub fn read(folder: &Path, written: &str) -> Result<Self, String> {
        let (name, digest) = split(written);
        if name.is_empty() {
            return Err("`trace` names no file".to_owned());
        }
        let told = |why: String| format!("the trace `{name}`: {why}");
        // the folder of a plan that lies in the working folder is empty
        let folder = std::path::absolute(folder.join("."))
            .map_err(|error| told(format!("cannot find its folder: {error}")))?;
        let path = folder.join(name);
        if path.to_str().is_none() {
            return Err(told("its path is not UTF-8, so results could not name it".to_owned()));
        }
        let bytes = content(&path)
            .map_err(|error| told(format!("cannot read {}: {error}", path.display())))?;
        let trace = Self::parse(&folder, name, &bytes).map_err(told)?;
        match digest {
            Some(digest) if digest != trace.shown_digest() => Err(told(format!(
                "the BLAKE3 digest of {} begins with {}, not with {digest}: the file has changed",
                path.display(),
                trace.shown_digest()
            ))),
            _ => Ok(trace),
        }
    }

    /// Reads a trace from the bytes of the file `name` of `folder`.
    ///
    /// # Errors
    /// A sentence that names the line.
    pub fn parse(folder: &Path, name: &str, bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| "it is no text with a whole number of milliseconds in each line")?;
        let (mut times_ms, mut last_ms, mut longest_gap_ms) = (Vec::new(), 0, 0);
        for (index, line) in text.lines().enumerate() {
            if index == MAX_LINES {
                return Err(format!("it has more than {MAX_LINES} lines"));
            }
            let number = index + 1;
            let time_ms: u32 = line.trim().parse().map_err(|_| {
                let shown: String = line.chars().take(20).collect();
                format!(
                    "line {number}: {shown:?} is no whole number of milliseconds from 0 to {}",
                    u32::MAX
                )
            })?;
            if time_ms < last_ms {
                return Err(format!(
                    "line {number}: {time_ms} ms is earlier than the line before it, {last_ms} ms; times never decrease"
                ));
            }
            // that of the first line is also the gap from one repetition to the next
            longest_gap_ms = longest_gap_ms.max(time_ms - last_ms);
            last_ms = time_ms;
            times_ms.push(time_ms);
        }
        if times_ms.is_empty() {
            return Err("it is empty: each line is a time in whole milliseconds".to_owned());
        }
        if last_ms == 0 {
            return Err(
                "it ends at 0 ms: its last line is the period after which it begins again, so it must be later"
                    .to_owned(),
            );
        }
        Ok(Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            digest: blake3::hash(bytes),
            times_ms: times_ms.into(),
            period_ms: last_ms,
            longest_gap_ms,
        })
    }

    /// Returns the file as the link names it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder from which the link names it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the absolute path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Returns the BLAKE3 digest of the file, 64 hexadecimal digits.
    pub fn digest(&self) -> String {
        self.digest.to_hex().to_string()
    }

    /// Returns the times of its opportunities, milliseconds: never empty, never decreasing,
    /// the last above 0.
    pub fn times_ms(&self) -> &[u32] {
        &self.times_ms
    }

    /// Returns the time after which it begins again.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms.into())
    }

    /// Returns the longest time without an opportunity.
    pub fn longest_gap(&self) -> Duration {
        Duration::from_millis(self.longest_gap_ms.into())
    }

    /// Returns the bits per second that it delivers on average, at least 1.
    pub fn mean_bps(&self) -> u64 {
        let bits = self.times_ms.len() as u64 * u64::from(Self::OPPORTUNITY_BYTES) * 8;
        (bits * 1000 / u64::from(self.period_ms)).max(1)
    }

    fn shown_digest(&self) -> String {
        self.digest().chars().take(SHOWN_DIGITS).collect()
    }
}

impl fmt::Display for Trace {
    /// Writes `FILE@DIGEST`, so that two links with one text deliver alike.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.shown_digest())
    }
}

/// Splits the name of a file from the digest behind it, if there is one.
fn split(written: &str) -> (&str, Option<&str>) {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_digest = |text: &str| text.len() == SHOWN_DIGITS && text.bytes().all(is_digit);
    match written.rsplit_once('@') {
        Some((name, digest)) if is_digest(digest) => (name, Some(digest)),
        _ => (written, None),
    }
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    // a pipe might never end
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(io::Error::other(format!("it is no file of at most {MAX_BYTES} bytes")));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Trace, String> {
        Trace::parse(Path::new("/plans"), "a.trace", text.as_bytes())
    }

    #[test]
    fn reads_times_period_gap_and_mean() {
        let trace = parsed("4\n4\r\n 30 \n50").expect("a trace");
        assert_eq!(trace.times_ms(), [4, 4, 30, 50]);
        assert_eq!(trace.period(), Duration::from_millis(50));
        assert_eq!(trace.longest_gap(), Duration::from_millis(26));
        assert_eq!(trace.mean_bps(), 4 * 12_000 * 20, "six kilobytes in 50 ms");
        // it waits as long from its end to its first opportunity
        assert_eq!(parsed("7\n9\n").expect("a trace").longest_gap(), Duration::from_millis(7));
        assert_eq!(parsed("4294967295").expect("a trace").mean_bps(), 1);
    }

    #[test]
    fn rejects_what_is_no_trace_and_names_the_line() {
        for (text, words) in [
            ("", "it is empty"),
            ("0\n0\n", "it ends at 0 ms"),
            ("1\n\n2\n", "line 2: \"\" is no whole number"),
            ("1\n2.5\n", "line 2: \"2.5\" is no whole number"),
            ("-1\n", "line 1: \"-1\" is no whole number"),
            ("1\n4294967296\n", "line 2: \"4294967296\" is no whole number"),
            ("\u{1b}[2J\n", "line 1: \"\\u{1b}[2J\" is no whole number"),
            ("5\n9\n8\n", "line 3: 8 ms is earlier than the line before it, 9 ms"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
        let long = parsed(&"x".repeat(1000)).expect_err("a long line");
        assert!(long.len() < 120, "{long}");
        let bytes = Trace::parse(Path::new("/"), "b", &[0xff, b'\n']).expect_err("no text");
        assert!(bytes.contains("it is no text"), "{bytes}");
        let many = parsed(&"1\n".repeat(MAX_LINES + 1)).expect_err("too many");
        assert_eq!(many, "it has more than 2000000 lines");
        assert!(parsed(&"1\n".repeat(MAX_LINES)).is_ok());
    }

    #[test]
    fn reads_a_file_beside_its_plan_and_knows_when_it_has_changed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let trace = Trace::read(&folder, "cellular-down.trace").expect("a trace");
        assert_eq!((trace.name(), trace.folder()), ("cellular-down.trace", folder.as_path()));
        assert_eq!(trace.period(), Duration::from_secs(2));
        assert_eq!(Trace::read(&folder, &trace.to_string()), Ok(trace.clone()));
        let absolute = folder.join("cellular-down.trace").display().to_string();
        let elsewhere = Trace::read(Path::new(""), &absolute).expect("the same");
        assert_eq!(elsewhere.digest(), trace.digest());
        let changed = Trace::read(&folder, "cellular-down.trace@0123456789ab");
        let error = changed.expect_err("another digest");
        assert!(error.contains("not with 0123456789ab: the file has changed"), "{error}");
    }

    #[test]
    fn rejects_what_is_no_file() {
        for (name, words) in
            [("", "names no file"), (".", "no file of at most"), ("none", "cannot read")]
        {
            let error = Trace::read(Path::new("/"), name).expect_err("no trace");
            assert!(error.contains(words), "{error}");
        }
    }
}
