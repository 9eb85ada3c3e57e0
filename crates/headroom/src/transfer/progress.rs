//! What is seen of a transfer: a bar on a terminal, or JSON, or only what fails.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use headroom_lab_trace::CopyEvent;
use headroom_mutex::lock;
use headroom_transfer::path::RelPath;
use headroom_transfer::server::Requests;
use headroom_transfer::spread::Returned;
use headroom_transfer::{Chunk, Cipher, Error, ErrorCode, Event, Observer, Summary};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde_json::{Map, json};

use super::frame::Frame;
use super::names;

use crate::output::print_line as say;

/// How often a rate is measured.
const MEASURE: Duration = Duration::from_millis(500);
/// How often JSON tells how far it is.
const TELL: Duration = Duration::from_secs(1);

/// A transfer, as its user sees it.
pub(crate) struct Progress {
    bar: ProgressBar,
    json: bool,
    operation: Operation,
    counts: Arc<Counts>,
    started: Instant,
    /// How long it took, and the wall clock then.
    done: OnceLock<(Duration, u64)>,
    told: Mutex<Instant>,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Copy,
    Sync,
    DryRun,
}

struct Counts {
    started: Instant,
    files: AtomicU64,
    offered: AtomicU64,
    kept: AtomicU64,
    moved: AtomicU64,
    /// Bytes of all files; [`UNKNOWN`] until that is known.
    total: AtomicU64,
    pace: Mutex<Option<Pace>>,
    latest: Mutex<Latest>,
}

/// What happened last.
struct Latest {
    at: Instant,
    /// The file that was begun or stored last.
    name: Option<String>,
}

/// A total that nobody knows yet.
const UNKNOWN: u64 = u64::MAX;

/// How fast it goes: what was there before does not count.
#[derive(Clone, Copy)]
struct Pace {
    at: Instant,
    moved: u64,
    bytes_per_s: f64,
}

impl Progress {
    pub(crate) fn new(json: bool) -> Arc<Self> {
        Self::of(json, Operation::Copy)
    }

    /// Of a sync.
    pub(crate) fn of_sync(json: bool, dry_run: bool) -> Arc<Self> {
        Self::of(json, if dry_run { Operation::DryRun } else { Operation::Sync })
    }

    fn of(json: bool, operation: Operation) -> Arc<Self> {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let started = Instant::now();
        let counts = Arc::new(Counts::new(started));
        let shown = Arc::clone(&counts);
        let frame = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let width = usize::from(console::Term::stderr().size().1);
            let _ = out.write_str(&shown.render(width.saturating_sub(1)));
        };
        let style = ProgressStyle::with_template("{frame}");
        bar.set_style(
            style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("frame", frame),
        );
        Arc::new(Self {
            bar,
            json,
            operation,
            counts,
            started,
            done: OnceLock::new(),
            told: Mutex::new(started),
        })
    }

    /// The host is connected and trusted; what is wanted is said next. The bar is drawn
    /// from now on, where that is wished: before, somebody may be asked something.
    pub(crate) fn connected(&self) {
        if self.json {
            say(&json!(CopyEvent::Connected { time_ns: now_ns() }).to_string());
        } else if self.operation != Operation::DryRun {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(Duration::from_millis(200));
        }
    }

    /// Whether somebody sees the bar.
    pub(crate) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// So many bytes belong to it, as whoever looked ahead has found.
    pub(crate) fn expect(&self, total: u64) {
        let total_of = &self.counts.total;
        let _ = total_of.compare_exchange(UNKNOWN, total, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The connection was lost, and is made again: all is offered anew then.
    pub(crate) fn reconnecting(&self, error: &Error) {
        let cause = match error {
            Error::Lost(cause) => cause.clone(),
            error => error.to_string(),
        };
        self.counts.begin_anew();
        let text = format!("the connection was lost: {cause}. Reconnecting (Ctrl-C to stop)");
        self.tell(&json!({"event": "reconnecting", "cause": cause}), Some(&text));
    }

    /// One of several servers was lost, or takes no further part.
    pub(crate) fn server_lost(&self, server: &str, error: &Error, is_final: bool) {
        let cause = match error {
            Error::Lost(cause) => format!("the connection was lost: {cause}"),
            error => error.to_string(),
        };
        let text = match is_final {
            true => format!("going on without {server}: {cause}"),
            false => format!("going on without {server} until it is back: {cause}"),
        };
        let mut event = json!({"event": "server_lost", "server": server, "cause": cause});
        event["final"] = is_final.into();
        self.tell(&event, Some(&text));
    }

    /// So much of it is offered again, to another server.
    pub(crate) fn returned(&self, returned: &Returned) {
        self.counts.take_back(returned);
    }

    /// All is offered again, to another server.
    pub(crate) fn restarted(&self) {
        self.counts.begin_anew();
    }

    /// All is stored, and known to be; what is left is to say goodbye.
    pub(crate) fn done(&self) {
        let _ = self.done.set((self.started.elapsed(), now_ns()));
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// The end of it.
    pub(crate) fn end(&self, summary: Summary) {
        let visible = !self.bar.is_hidden();
        self.clear();
        let (elapsed, time_ns) = *self.done.get_or_init(|| (self.started.elapsed(), now_ns()));
        let Summary {
            stored,
            failed,
            left_out,
            moved,
            kept,
            reused,
            holes,
            saved,
            unchanged,
            removed,
            on_lanes,
            lost,
            cipher,
            by_crc,
            range_servers,
            requests,
            ..
        } = summary;
        // of what went on streams, it is TLS's
        let cipher = cipher.filter(|_| on_lanes > 0);
        let carried = carried(moved, on_lanes);
        if self.json {
            let mut end = json!(CopyEvent::End { time_ns, seconds: elapsed.as_secs_f64() });
            end["stored"] = stored.into();
            end["failed"] = failed.into();
            end["left_out"] = left_out.into();
            end["moved"] = moved.into();
            end["kept"] = kept.into();
            end["holes"] = holes.into();
            end["saved"] = saved.into();
            end["carried"] = carried.into();
            end["on_lanes"] = on_lanes.into();
            end["lost"] = lost.into();
            end["cipher"] = cipher.map(Cipher::name).into();
            end["by_crc"] = by_crc.into();
            end["range_servers"] = range_servers.into();
            if self.operation != Operation::Copy {
                end["unchanged"] = unchanged.into();
                end["removed"] = removed.into();
                end["dry_run"] = (self.operation == Operation::DryRun).into();
                end["reused"] = reused.into();
                end["compared"] =
                    "spans of 1 MiB at the same offset, chunks of those that differ".into();
            }
            if let Some(requests) = requests {
                end["store"] = requests_json(&requests);
            }
            say(&end.to_string());
        } else if self.operation == Operation::DryRun {
            say(&dry_run_text(&summary));
        } else if visible {
            eprintln!("{}", summary_text(self.operation, &summary, elapsed));
        }
    }

    fn tell(&self, event: &serde_json::Value, else_say: Option<&str>) {
        if self.json {
            say(&names::line(event));
        } else if let Some(text) = else_say {
            self.bar.suspend(|| eprintln!("headroom: {text}"));
        }
    }

    fn tell_progress(&self) {
        if !self.json {
            return;
        }
        let mut told = lock(&self.told);
        if told.elapsed() >= TELL {
            *told = Instant::now();
            let Counts { offered, kept, moved, .. } = &*self.counts;
            let [offered, kept, moved] =
                [offered, kept, moved].map(|of| of.load(Ordering::Relaxed));
            self.tell(
                &json!({"event": "progress", "offered": offered, "moved": moved, "kept": kept}),
                None,
            );
        }
    }
}

impl Observer for Progress {
    fn event(&self, event: Event<'_>) {
        let add = |to: &AtomicU64, bytes| {
            to.fetch_add(bytes, Ordering::Relaxed);
            self.tell_progress();
        };
        self.counts.touch();
        match event {
            Event::Offered { bytes } => {
                self.counts.files.fetch_add(1, Ordering::Relaxed);
                add(&self.counts.offered, bytes);
            }
            Event::AllOffered { bytes, .. } => self.counts.total.store(bytes, Ordering::Relaxed),
            Event::Begun { path } => self.counts.begin(path),
            Event::Kept { bytes } => add(&self.counts.kept, bytes),
            // it is done with, and nothing of it is moved
            Event::Hole { bytes } => add(&self.counts.kept, bytes),
            Event::Saved { .. } | Event::Hashed { .. } | Event::Summed { .. } => {}
            Event::Moved { bytes } => add(&self.counts.moved, bytes),
            Event::Stored { path } => {
                self.counts.begin(path);
                if self.json {
                    self.tell(&about(json!({"event": "stored"}), path), None);
                }
            }
            Event::Planned { path, bytes, new } => {
                let word = if new { "new" } else { "change" };
                if self.json {
                    let event = json!({"event": "planned", "bytes": bytes, "new": new});
                    self.tell(&about(event, path), None);
                } else {
                    say(&format!("{word:<7} {bytes:>14} {path}"));
                }
            }
            Event::Removed { path } => {
                if self.json {
                    self.tell(&about(json!({"event": "removed"}), path), None);
                } else if self.operation == Operation::DryRun {
                    say(&format!("{:<7} {:>14} {path}", "remove", ""));
                }
            }
            Event::Failed { reason, code } => {
                let mut event = json!({"event": "failed", "reason": reason});
                if let Some(name) = code.and_then(ErrorCode::name) {
                    event["code"] = name.into();
                }
                self.tell(&event, Some(reason));
            }
            Event::Lanes { cipher, chunk, port } => {
                let bytes = chunk.map(Chunk::bytes);
                if !cipher.is_secure() {
                    let text = format!(
                        "INSECURE: big files are sent WITHOUT ENCRYPTION (cipher {cipher}), as --insecure-measurement allows"
                    );
                    self.bar.suspend(|| eprintln!("headroom: {text}"));
                }
                if let Some(bytes) = bytes {
                    self.bar.suspend(|| {
                        eprintln!(
                            "headroom: MEASUREMENT: each packet carries {bytes} bytes, in IP fragments if that is too long for the path"
                        );
                    });
                }
                if self.json {
                    let secure = cipher.is_secure();
                    say(&json!({"event": "lanes", "cipher": cipher.name(), "encrypted": secure, "chunk": bytes, "port": port}).to_string());
                }
            }
            Event::LanesSilent => {
                let text = "lanes do not answer: using streams, which are slower, until they do";
                self.tell(&json!(CopyEvent::LanesSilent), Some(text));
            }
            Event::LanesBack => {
                self.tell(&json!({"event": "lanes_back"}), Some("lanes answer again"));
            }
            Event::Warning { reason } => {
                let text = format!("warning: {reason}");
                self.tell(&json!({"event": "warning", "reason": reason}), Some(&text));
            }
            Event::LeftOut { reason } => {
                let text = format!("left out: {reason}");
                self.tell(&json!({"event": "left_out", "reason": reason}), Some(&text));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Counts {
    fn done(&self) -> u64 {
        self.kept.load(Ordering::Relaxed) + self.moved.load(Ordering::Relaxed)
    }

    fn new(started: Instant) -> Self {
        Self {
            started,
            files: AtomicU64::new(0),
            offered: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            total: AtomicU64::new(UNKNOWN),
            pace: Mutex::new(None),
            latest: Mutex::new(Latest { at: started, name: None }),
        }
    }

    /// Counts from nothing again; how much it will be is known as before.
    fn begin_anew(&self) {
        for count in [&self.files, &self.offered, &self.kept, &self.moved] {
            count.store(0, Ordering::Relaxed);
        }
        *lock(&self.pace) = None;
    }

    /// Counts less: so much will be counted again. Of what was moved, some may have been there.
    fn take_back(&self, returned: &Returned) {
        let take = |from: &AtomicU64, most: u64| {
            let less = |count: u64| Some(count.saturating_sub(most));
            let before = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            most.saturating_sub(before.unwrap_or_else(|count| count))
        };
        take(&self.files, returned.files);
        take(&self.offered, returned.offered);
        let left = take(&self.moved, returned.done);
        take(&self.kept, left);
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        lock(&self.latest)
    }

    /// Something happens.
    fn touch(&self) {
        self.latest().at = Instant::now();
    }

    /// A file is begun, or was just stored.
    fn begin(&self, path: &RelPath) {
        self.latest().name = Some(path.to_string());
    }

    fn render(&self, width: usize) -> String {
        let latest = self.latest();
        let total = self.total.load(Ordering::Relaxed);
        let frame = Frame {
            elapsed: self.started.elapsed(),
            files: self.files.load(Ordering::Relaxed),
            offered: self.offered.load(Ordering::Relaxed),
            done: self.done(),
            total: Some(total).filter(|total| *total != UNKNOWN),
            bytes_per_s: self.bytes_per_s(),
            quiet: latest.at.elapsed(),
            name: latest.name.as_deref(),
        };
        frame.render(width)
    }

    fn bytes_per_s(&self) -> f64 {
        let moved = self.moved.load(Ordering::Relaxed);
        let now = Instant::now();
        let mut pace = lock(&self.pace);
        let last = *pace.get_or_insert(Pace { at: now, moved, bytes_per_s: 0.0 });
        let elapsed = now - last.at;
        if elapsed < MEASURE {
            return last.bytes_per_s;
        }
        let measured = moved.saturating_sub(last.moved) as f64 / elapsed.as_secs_f64();
        let bytes_per_s = match last.bytes_per_s {
            0.0 => measured,
            before => 0.7 * before + 0.3 * measured,
        };
        *pace = Some(Pace { at: now, moved, bytes_per_s });
        bytes_per_s
    }
}

/// Summarizes a dry run.
fn dry_run_text(summary: &Summary) -> String {
    let Summary { stored, failed, moved, unchanged, removed, .. } = summary;
    let requests = summary.requests.map(|requests| requests_text(&requests)).unwrap_or_default();
    format!(
        "Nothing was changed. To store: {stored} (at most {} to send); to remove: {removed}; unchanged: {unchanged}; \
         failed: {failed}{requests}",
        HumanBytes(*moved)
    )
}

/// Counts for programs what an object store may charge for.
pub(super) fn requests_json(requests: &Requests) -> serde_json::Value {
    let kinds = requests.kinds().map(|(kind, count)| (kind.to_owned(), json!(count)));
    let mut counts = Map::from_iter(kinds);
    counts.insert("retried".to_owned(), requests.retried.into());
    counts.insert("slowed".to_owned(), requests.slowed.into());
    counts.into()
}

/// Summarizes what an object store may charge for, in a line of its own.
fn requests_text(requests: &Requests) -> String {
    format!("\n{}", requests_to(requests, "the server's store"))
}

/// Summarizes what object stores may charge for.
pub(super) fn requests_to(requests: &Requests, whom: &str) -> String {
    let mut text = format!("{} requests to {whom}", requests.total());
    let kinds = requests.kinds().into_iter().filter(|(_, count)| *count > 0);
    for (n, (kind, count)) in kinds.enumerate() {
        let _ = write!(text, "{} {count} {kind}", if n == 0 { ":" } else { "," });
    }
    for (count, what) in [(requests.retried, "repeated"), (requests.slowed, "slowed down")] {
        if count > 0 {
            let _ = write!(text, "; {count} {what}");
        }
    }
    text
}

/// Summarizes a transfer for a terminal.
fn summary_text(operation: Operation, summary: &Summary, elapsed: Duration) -> String {
    let Summary { stored, failed, left_out, moved, kept, holes, saved, unchanged, removed, .. } =
        *summary;
    let Summary { reused, on_lanes, lost, cipher, by_crc, range_servers, .. } = *summary;
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let rate = per_second(moved as f64 / seconds);
    let mut text =
        format!("{stored} stored, {} moved in {seconds:.1} s ({rate})", HumanBytes(moved));
    for (bytes, what) in [
        (kept, "already there"),
        (reused, "of it within changed spans"),
        (saved, "saved by compression"),
        (holes, "in holes"),
    ] {
        if bytes > 0 {
            let _ = write!(text, ", {} {what}", HumanBytes(bytes));
        }
    }
    if operation == Operation::Sync {
        let _ = write!(text, ", {unchanged} unchanged, {removed} removed");
    }
    if let Some(carried) = carried(moved, on_lanes) {
        let carried = if carried == "both" { "lanes and streams" } else { carried };
        let _ = write!(text, ", on {carried}");
    }
    match cipher.filter(|_| on_lanes > 0) {
        Some(cipher) if cipher.is_secure() => {
            let _ = write!(text, " ({cipher})");
        }
        Some(cipher) => {
            let _ = write!(text, ", NOT ENCRYPTED (cipher {cipher})");
        }
        None => {}
    }
    if lost > 0 {
        let _ = write!(text, ", {} resent", HumanBytes(lost));
    }
    match range_servers {
        0 => {}
        // over several lanes
        1 => text.push_str(", large files in ranges"),
        _ => {
            let _ = write!(text, ", large files through {range_servers} servers");
        }
    }
    if by_crc > 0 {
        let _ = write!(text, ", {} verified by CRC-64/NVME", HumanBytes(by_crc));
    }
    if left_out > 0 {
        let _ = write!(text, ", {left_out} left out");
    }
    if failed > 0 {
        let _ = write!(text, ", {failed} FAILED");
    }
    if let Some(requests) = &summary.requests {
        text.push_str(&requests_text(requests));
    }
    text
}

/// An event that is about a name.
fn about(event: serde_json::Value, path: &RelPath) -> serde_json::Value {
    names::with(event, "path", path.as_bytes())
}

/// Wall clock, nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.ok().and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

/// What carried the bytes that went over the network, if there were any.
fn carried(moved: u64, on_lanes: u64) -> Option<&'static str> {
    match (moved - on_lanes.min(moved), on_lanes) {
        (0, 0) => None,
        (0, _) => Some("lanes"),
        (_, 0) => Some("streams"),
        (_, _) => Some("both"),
    }
}

fn per_second(bytes_per_s: f64) -> String {
    // bytes per second as whole ones: a rate has no fraction of an byte
    format!("{}/s", HumanBytes(bytes_per_s.max(0.0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_again_counts_once() {
        let counts = Counts::new(Instant::now());
        for (count, value) in
            [(&counts.files, 5), (&counts.offered, 500), (&counts.moved, 100), (&counts.kept, 50)]
        {
            count.store(value, Ordering::Relaxed);
        }
        counts.take_back(&Returned { files: 2, offered: 300, done: 120 });
        let counted = [&counts.files, &counts.offered, &counts.moved, &counts.kept];
        assert_eq!(counted.map(|count| count.load(Ordering::Relaxed)), [3, 200, 0, 30]);
    }

    #[test]
    fn requests_to_a_store_are_listed_by_kind() {
        let requests = Requests { list: 2, put: 20_000, retried: 3, ..Requests::default() };
        let text = "\n20002 requests to the server's store: 2 list, 20000 put; 3 repeated";
        assert_eq!(requests_text(&requests), text);
        let summary = Summary { requests: Some(requests), ..Summary::default() };
        assert!(dry_run_text(&summary).ends_with(text));
        let second = Duration::from_secs(1);
        assert!(summary_text(Operation::Copy, &summary, second).ends_with(text));
    }

    #[test]
    fn summaries() {
        let copy = Summary {
            stored: 3,
            moved: 100 << 20,
            on_lanes: 100 << 20,
            cipher: Some(Cipher::Aes128Gcm),
            ..Summary::default()
        };
        let all = Summary {
            failed: 2,
            left_out: 1,
            kept: 5 << 20,
            reused: 2 << 20,
            holes: 1 << 30,
            saved: 3 << 20,
            unchanged: 40,
            removed: 7,
            on_lanes: 90 << 20,
            lost: 64 << 10,
            cipher: Some(Cipher::Null),
            by_crc: 80 << 20,
            range_servers: 3,
            ..copy
        };
        let second = Duration::from_secs(1);
        let texts = [
            summary_text(Operation::Copy, &copy, second),
            summary_text(Operation::Copy, &Summary::default(), second),
            summary_text(Operation::Sync, &all, 100 * second),
            dry_run_text(&all),
        ];
        insta::assert_snapshot!(texts.join("\n\n"));
    }
}
