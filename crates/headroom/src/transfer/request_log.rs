//! The log of `headroom serve`: one line for each request of a client that has ended.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use headroom_transfer::path::shown;
use headroom_transfer::server::{Log, Record};
use serde_json::{Map, Value, json};

use super::arguments::LogFormat;
use super::names;
use crate::log::utc;

/// Where lines go, and how they are written.
#[derive(Debug)]
pub(super) struct RequestLog {
    file: Option<PathBuf>,
    format: LogFormat,
}

impl RequestLog {
    /// # Errors
    /// The file cannot be written to.
    pub(super) fn open(file: Option<&Path>, format: LogFormat) -> anyhow::Result<Self> {
        if let Some(file) = file {
            append(file).with_context(|| format!("cannot write the log {}", file.display()))?;
        }
        Ok(Self { file: file.map(Path::to_owned), format })
    }
}

impl Log for RequestLog {
    fn ended(&self, record: &Record<'_>) {
        let mut line = match self.format {
            LogFormat::Text => text(record),
            LogFormat::Json => names::line(&object(record)),
        };
        line.push('\n');
        let written = match &self.file {
            // opened for each line: one that was renamed for rotation is let go
            Some(file) => append(file).and_then(|mut file| file.write_all(line.as_bytes())),
            None => std::io::stderr().lock().write_all(line.as_bytes()),
        };
        if let (Err(error), Some(file)) = (written, &self.file) {
            tracing::warn!("the log {} cannot be written: {error}", file.display());
        }
    }
}

/// Others have no right to know who fetched what.
fn append(file: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(file)
}

fn text(record: &Record<'_>) -> String {
    let quoted = |text: &[u8]| format!("\"{}\"", shown(text).to_string().replace('"', "\\\""));
    let mut words = vec![time(record)];
    words.push(format!("{} {}", record.operation, record.outcome.name()));
    words.push(format!("client={}", quoted(record.client.unwrap_or_default().as_bytes())));
    if let Some(key) = record.key {
        words.push(format!("key={key}"));
    }
    if let Some(share) = record.share {
        words.push(format!("share={}", quoted(share.as_bytes())));
    }
    words.push(format!("address={}", record.address));
    words.extend(record.paths.iter().map(|path| format!("path={}", quoted(path))));
    let Record { bytes, stored, failed, .. } = record;
    words.push(format!("bytes={bytes} stored={stored} failed={failed}"));
    if record.by_crc > 0 {
        words.push(format!("by_crc={}", record.by_crc));
    }
    if let Some(store) = record.store {
        // of the kinds that there were
        let counts = store.kinds().into_iter().filter(|(_, count)| *count > 0);
        words.extend(counts.map(|(kind, count)| format!("store_{kind}={count}")));
    }
    words.push(format!("seconds={:.3}", record.took.as_secs_f64()));
    if let Some(reason) = record.reason {
        words.push(format!("reason={}", quoted(reason.as_bytes())));
    }
    words.join(" ")
}

fn object(record: &Record<'_>) -> Value {
    let paths: Vec<_> =
        record.paths.iter().map(|path| names::with(json!({}), "path", path)).collect();
    json!({
        "time": time(record),
        "operation": record.operation,
        "outcome": record.outcome.name(),
        "client": record.client,
        "key": record.key.map(|key| key.to_string()),
        "share": record.share,
        "address": record.address.to_string(),
        "paths": paths,
        "bytes": record.bytes,
        "by_crc": record.by_crc,
        "stored": record.stored,
        "failed": record.failed,
        "store": record.store.map(|store| Map::from_iter(
            store.kinds().map(|(kind, count)| (kind.to_owned(), json!(count))),
        )),
        "seconds": record.took.as_secs_f64(),
        "reason": record.reason,
    })
}

/// When it began.
fn time(record: &Record<'_>) -> String {
    jiff::Timestamp::try_from(record.began)
        .map_or_else(|_| "-".to_owned(), |at| utc(at).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use headroom_transfer::server::{Outcome, Requests};

    use super::*;

    fn record<'a>(paths: &'a [Vec<u8>], reason: Option<&'a str>) -> Record<'a> {
        Record {
            began: SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_000_999),
            took: Duration::from_millis(1234),
            client: Some("alice@laptop"),
            key: None,
            share: None,
            address: "192.0.2.1:51234".parse().expect("an address"),
            operation: "put",
            paths,
            bytes: 1_048_576,
            by_crc: 0,
            stored: 3,
            failed: 1,
            store: None,
            outcome: Outcome::Failed,
            reason,
        }
    }

    #[test]
    fn a_request_is_one_line_of_text() {
        let paths = [b"/photos/2026".to_vec()];
        insta::assert_snapshot!(text(&record(&paths, None)), @r#"2001-09-09T01:46:40Z put failed client="alice@laptop" address=192.0.2.1:51234 path="/photos/2026" bytes=1048576 stored=3 failed=1 seconds=1.234"#);
    }

    #[test]
    fn a_request_says_what_a_crc_verified() {
        let paths = [b"/a".to_vec()];
        let record = Record { by_crc: 1_048_576, ..record(&paths, None) };
        assert!(text(&record).contains(" failed=1 by_crc=1048576 seconds="), "{}", text(&record));
        assert_eq!(object(&record)["by_crc"], 1_048_576);
    }

    #[test]
    fn requests_to_a_store_are_counted_by_kind() {
        let paths = [b"/a".to_vec()];
        let store = Some(Requests { head: 2, put: 3, ..Requests::default() });
        let record = Record { store, ..record(&paths, None) };
        insta::assert_snapshot!(text(&record), @r#"2001-09-09T01:46:40Z put failed client="alice@laptop" address=192.0.2.1:51234 path="/a" bytes=1048576 stored=3 failed=1 store_head=2 store_put=3 seconds=1.234"#);
        let object = object(&record);
        assert_eq!((&object["store"]["put"], &object["store"]["list"]), (&json!(3), &json!(0)));
    }

    #[test]
    fn no_name_adds_a_line_to_the_log_or_ends_its_quotes() {
        let paths = [b"/a\"\n2026 put done \x1b[2J\xff".to_vec()];
        let record = record(&paths, Some("it says \"\u{202e}\r\""));
        insta::assert_snapshot!(text(&record), @r#"2001-09-09T01:46:40Z put failed client="alice@laptop" address=192.0.2.1:51234 path="/a\"\n2026 put done \u{1b}[2J\xff" bytes=1048576 stored=3 failed=1 seconds=1.234 reason="it says \"\u{202e}\r\"""#);
        let object = object(&record);
        assert!(!object.to_string().contains('\n'));
        assert_eq!(object["paths"][0]["path_base64"], "L2EiCjIwMjYgcHV0IGRvbmUgG1sySv8=");
        assert_eq!(object["seconds"], 1.234);
    }
}
