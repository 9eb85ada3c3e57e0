//! What the program logs about itself on standard error: warnings, and with `--verbose`
//! everything.

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt as lines, registry};

/// The part of QUIC that sends and receives datagrams.
const SOCKETS: &str = "quinn_udp";

/// Starts logging; with the time in each line where `timed`, for what runs for long.
pub(crate) fn start(verbose: bool, timed: bool) {
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::WARN };
    let of_sockets = if verbose { level } else { LevelFilter::OFF };
    let filter = Targets::new()
        .with_default(level)
        .with_target(SOCKETS, of_sockets)
        // it names every frame
        .with_target("h2", LevelFilter::WARN);
    let stderr = std::io::stderr();
    let colours = stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = lines::layer().with_writer(std::io::stderr).with_ansi(colours);
    let lines = if timed { lines.with_timer(Utc).boxed() } else { lines.without_time().boxed() };
    let failures =
        SendFailures::default().with_filter(Targets::new().with_target(SOCKETS, LevelFilter::WARN));
    registry().with(lines.with_filter(filter)).with(failures).init();
}

/// The time as RFC 3339 has it, in UTC and whole seconds.
pub(crate) fn utc(time: jiff::Timestamp) -> impl fmt::Display {
    time.strftime("%Y-%m-%dT%H:%M:%SZ")
}

struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        write!(to, "{}", utc(jiff::Timestamp::now()))
    }
}

/// Says once, in words for people, that packets cannot be sent: QUIC's own line is written
/// for its authors, and comes again every minute.
#[derive(Default)]
struct SendFailures {
    said: AtomicBool,
}

impl<S: Subscriber> Layer<S> for SendFailures {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        if let Some(text) = failure(&message.0)
            && !self.said.swap(true, Ordering::Relaxed)
        {
            crate::output::print_error_line(&format!("headroom: {text}"));
        }
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "message" | "log.message") {
            self.0 = format!("{value:?}");
        }
    }
}

/// Reads why datagrams could not be sent, out of what QUIC logs about it.
fn failure(message: &str) -> Option<String> {
    let error = message.strip_prefix("sendmsg error: ")?;
    let cause = error.split_once("message: \"").and_then(|(_, rest)| rest.split_once('"'));
    let cause = cause.map_or(String::new(), |(cause, _)| format!(" ({cause})"));
    Some(format!(
        "this machine cannot send packets at the moment{cause}; they are sent again until the connection is given up"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_to_send_is_told_in_words() {
        let logged = "sendmsg error: Os { code: 101, kind: NetworkUnreachable, message: \"Network is unreachable\" }, \
                      Transmit: { destination: 192.0.2.1:4860, src_ip: None, ecn: Some(Ect0), len: 1200, segment_size: None }";
        let said = failure(logged).expect("it is one");
        assert!(
            said.contains("cannot send packets at the moment (Network is unreachable);"),
            "{said}"
        );
        assert!(failure("sendmsg error: something else").is_some());
        assert_eq!(failure("received a datagram"), None);
    }

    #[test]
    fn times_are_whole_seconds_of_utc() {
        let time = jiff::Timestamp::new(1_000_000_000, 999_999_999).expect("a time");
        assert_eq!(utc(time).to_string(), "2001-09-09T01:46:40Z");
    }
}
