//! Hashes spans of a file as the receiver reports them, while it hashes those that follow.

use std::collections::HashMap;
use std::ops::Range;

use headroom_transfer_proto::span::ChainingValue;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use crate::error::Error;
use crate::files::{Reader, SourceFile};

/// Values of spans.
type Values = HashMap<u64, ChainingValue>;

/// Hashes spans of one file in the background, until this is finished or dropped.
pub(super) struct HashAhead {
    spans: mpsc::UnboundedSender<Range<u64>>,
    hashing: JoinHandle<Result<Values, JoinError>>,
}

impl HashAhead {
    /// Begins without spans. A file that cannot be read has no values.
    pub(super) fn begin(file: SourceFile) -> Self {
        let (spans, added) = mpsc::unbounded_channel();
        Self { spans, hashing: tokio::spawn(hash(file, added)) }
    }

    /// Adds spans behind those before.
    pub(super) fn add(&self, spans: Range<u64>) {
        // hashing has ended if the file cannot be read: opening it to send it reports why
        let _ = self.spans.send(spans);
    }

    /// Stops behind the span that is being hashed, and returns the values of those that are.
    pub(super) async fn finish(self) -> Result<Values, Error> {
        drop(self.spans);
        self.hashing.await.flatten().map_err(|error| Error::task(&error))
    }
}

async fn hash(
    file: SourceFile,
    added: mpsc::UnboundedReceiver<Range<u64>>,
) -> Result<Values, JoinError> {
    let Ok(reader) = spawn_blocking(move || file.open()).await? else { return Ok(Values::new()) };
    let mut hashing = Hashing { reader, added, values: Values::new() };
    // a thread is taken only while there is something to hash: many files may wait for their peers
    while let Some(spans) = hashing.added.recv().await {
        // a peer may have reported many spans one by one
        if hashing.added.is_closed() {
            break;
        }
        hashing = spawn_blocking(move || hashing.hash(spans)).await?;
    }
    Ok(hashing.values)
}

/// A file whose spans are hashed.
struct Hashing {
    reader: Reader,
    added: mpsc::UnboundedReceiver<Range<u64>>,
    values: Values,
}

impl Hashing {
    /// Hashes spans, unless no values are wanted any more.
    fn hash(mut self, spans: Range<u64>) -> Self {
        for span in spans {
            if self.added.is_closed() {
                break;
            }
            match self.reader.span_value(span) {
                Ok(Some(value)) => {
                    self.values.insert(span, value);
                }
                Ok(None) | Err(_) => self.added.close(),
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::files::{Links, Source, SourceKind};

    const SIZE: usize = (2 << 20) + 5;

    fn found(path: &Path) -> SourceFile {
        let mut walk = Source::new([path.to_owned()], Links::default());
        let found = walk.next().expect("a name").expect("it can be sent");
        let SourceKind::File(file) = found.kind else { panic!("it is a file") };
        file
    }

    fn hashing(file: &SourceFile) -> (mpsc::UnboundedSender<Range<u64>>, Hashing) {
        let (spans, added) = mpsc::unbounded_channel();
        let reader = file.open().expect("it can be read");
        (spans, Hashing { reader, added, values: Values::new() })
    }

    #[test]
    fn spans_are_hashed_until_no_more_are_wanted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, vec![7; SIZE]).expect("a file");
        let file = found(&path);
        let (spans, hashing) = hashing(&file);
        let hashing = hashing.hash(0..1).hash(2..3);
        let reader = file.open().expect("it can be read");
        let expected =
            [0, 2].map(|span| (span, reader.span_value(span).expect("read").expect("a span")));
        assert_eq!(hashing.values, HashMap::from(expected));
        drop(spans);
        assert_eq!(hashing.hash(1..2).values.len(), 2);
    }

    #[test]
    fn hashing_ends_at_a_span_that_cannot_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, vec![7; SIZE]).expect("a file");
        let (spans, hashing) = hashing(&found(&path));
        fs::write(&path, vec![7; (1 << 20) + 9]).expect("it becomes shorter");
        let hashing = hashing.hash(0..3);
        assert_eq!(hashing.values.len(), 1);
        assert!(spans.is_closed());
    }

    #[tokio::test]
    async fn a_file_that_changed_before_it_is_opened_has_no_values() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, vec![7; SIZE]).expect("a file");
        let file = found(&path);
        fs::write(&path, b"changed").expect("it is written");
        let ahead = HashAhead::begin(file);
        ahead.add(0..3);
        assert_eq!(ahead.finish().await.expect("it ends"), HashMap::new());
    }
}
