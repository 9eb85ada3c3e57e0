//! What `put`, `get` and `sync` do in the same way with one server and with several.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use headroom_transfer::{Client, Error, Event, Observer, Retry, Summary, Verification};

use super::arguments::{Moving, Verify, Verifying};
use super::progress::Progress;

/// Fetches what matches these paths. `into`: whether a single file is written to standard output,
/// or into what is there.
pub(super) async fn fetch(
    client: &mut Client,
    from: &[Vec<u8>],
    (to, into): (&Path, (bool, bool)),
    fsync: bool,
    progress: &Arc<Progress>,
) -> Result<Summary, Error> {
    let mut matching = Vec::new();
    for path in from {
        matching.extend(client.matching(path).await?);
    }
    let observer = progress.clone();
    match (matching.as_slice(), into) {
        ([from], (true, _)) => client.get_stream(from, std::io::stdout(), observer).await,
        ([from], (_, true)) => client.get_stream(from, open_for_writing(to)?, observer).await,
        (from, _) => client.get(from, to, fsync, observer).await,
    }
}

impl Verifying {
    /// Returns how files are verified, with a warning where BLAKE3 verifies them all the same:
    /// `is_stream`, one of unknown length; `is_spread`, over several servers or lanes.
    pub(super) fn verification(
        &self,
        is_stream: bool,
        is_spread: bool,
        progress: &Progress,
    ) -> Verification {
        let not_for = match (self.verify, is_stream, is_spread) {
            (Verify::Full, ..) => return Verification::Blake3,
            (Verify::Fast, false, false) => return Verification::Crc64,
            (Verify::Fast, true, _) => "a stream (`-`)",
            (Verify::Fast, false, true) => "files over several servers or lanes",
        };
        let reason = format!("--verify fast is not for {not_for}: BLAKE3 verifies everything");
        progress.event(Event::Warning { reason: &reason });
        Verification::Blake3
    }
}

fn open_for_writing(path: &Path) -> Result<std::fs::File, Error> {
    std::fs::File::options()
        .write(true)
        .open(path)
        .map_err(|cause| Error::System { doing: format!("write to {}", path.display()), cause })
}

impl Moving {
    /// Returns how long to reconnect.
    pub(super) fn retry_or_default(&self) -> Retry {
        self.retry.unwrap_or_else(|| retry(std::io::stderr().is_terminal(), self.json))
    }
}

/// How long a transfer is retried without `--retry`: forever where somebody watches, who can
/// end it; not in scripts, which have rules of their own.
fn retry(at_terminal: bool, json: bool) -> Retry {
    if at_terminal && !json { Retry::Forever } else { Retry::Never }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_by_itself_at_a_terminal_only() {
        assert_eq!(retry(true, false), Retry::Forever);
        for (at_terminal, json) in [(true, true), (false, false), (false, true)] {
            assert_eq!(retry(at_terminal, json), Retry::Never);
        }
    }
}
