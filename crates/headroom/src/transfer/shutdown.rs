//! How `headroom serve` ends: SIGTERM lets running transfers finish, other signals end it at once.

use std::time::Duration;

use anyhow::Context;
use headroom_transfer::Server;
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;
use serde_json::json;

use crate::output::print_line as say;

/// What a service manager is asked to allow beyond the time that transfers have.
const LEEWAY: Duration = Duration::from_secs(10);

/// The signals that end a server.
pub(super) struct Signals(SigSet);

impl Signals {
    /// Blocks them in this thread, and in those that it starts from now on: so one thread alone
    /// receives them, and knows which one came.
    pub(super) fn block() -> anyhow::Result<Self> {
        let signals: SigSet =
            [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        signals.thread_block().context("cannot wait for Ctrl-C")?;
        Ok(Self(signals))
    }

    /// Ends a server when one of them comes. The first SIGTERM gives running transfers this time to
    /// finish.
    pub(super) fn end(self, server: Server, limit: Duration, json: bool) -> anyhow::Result<()> {
        let waiting = move || {
            while let Ok(signal) = self.0.wait() {
                if signal == Signal::SIGTERM && !server.is_draining() {
                    drain(&server, limit, json);
                } else {
                    server.stop();
                }
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(waiting);
        thread.context("cannot wait for Ctrl-C")?;
        Ok(())
    }
}

fn drain(server: &Server, limit: Duration, json: bool) {
    let longest = u32::try_from((limit + LEEWAY).as_micros()).unwrap_or(u32::MAX);
    let states = [NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(longest)];
    let _ = sd_notify::notify(&states); // if a service manager asked for it
    let status = server.status();
    let transfers = status.received.running + status.sent.running;
    server.drain(limit);
    if json {
        let seconds = limit.as_secs_f64();
        say(&json!({"event": "draining", "transfers": transfers, "seconds": seconds}).to_string());
    } else if transfers > 0 {
        say(&format!(
            "shutting down: {transfers} running transfers may finish within {limit:?}. A second SIGTERM ends them"
        ));
    }
}
