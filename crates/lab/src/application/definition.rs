//! The trait of an application.

use std::collections::BTreeMap;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::{Host, ServerSpec};
use headroom_lab_host::programs::Program;
use headroom_lab_results::schema::{Load, StreamStats};
use headroom_lab_trace::{Login, TimeHints};

use super::site::Site;
use crate::catalogue::Fact;
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

/// An application: its server, its client, and the reader of their output.
pub trait Application: Send + Sync {
    /// Whether it encrypts what it moves; verified on the wire in every run.
    fn secured(&self) -> bool;

    /// Whether it changes the bytes it moves, though it does not encrypt them.
    fn obfuscates(&self) -> bool {
        false
    }

    /// Properties that a user may need; none: nobody stated them.
    fn properties(&self) -> Option<Properties> {
        None
    }

    /// Those of `all` its programs that it needs.
    fn needs(&self, all: &'static [Program]) -> &'static [Program] {
        all
    }

    /// Refuses programs of this machine that are too old.
    ///
    /// # Errors
    /// [`crate::Error::Missing`]: what it lacks.
    fn require(&self) -> Result<()> {
        Ok(())
    }

    /// Names the command of this program that it runs, where a build may lack it.
    fn own_command(&self) -> Option<&'static str> {
        None
    }

    /// Refuses what this machine's kernel cannot do.
    ///
    /// # Errors
    /// [`crate::Error::Missing`]: what it lacks.
    fn require_kernel(&self) -> Result<()> {
        Ok(())
    }

    /// Lists baselines for plans that name none, best first: the first one in the plan counts.
    /// Empty: it is a baseline itself.
    fn baselines(&self) -> Vec<String> {
        Vec::new()
    }

    /// The port of its server, alone in a namespace of its own.
    fn port(&self) -> u16;

    /// Whether its servers may all have this port, where each has an address of its own.
    fn shares_its_port(&self) -> bool {
        false
    }

    /// The layers that it may stand under, where those are not all that fit.
    fn layers(&self) -> Option<&[String]> {
        None
    }

    /// Whether the workload has a meaning for it.
    fn accepts(&self, kind: WorkloadKind) -> bool;

    /// Writes configuration and returns how the server starts.
    ///
    /// # Errors
    /// A program is missing or a file cannot be written.
    fn server(&self, site: &Site<'_>) -> Result<ServerSpec>;

    /// The client process that does a task.
    ///
    /// # Errors
    /// A program is missing or a file cannot be written.
    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation>;

    /// Whether file data travels on connections of its own.
    fn data_connections(&self) -> bool {
        false
    }

    /// Whether files travel over UDP, perhaps beside a TCP connection to the same
    /// port: the trace says when it began and the client when it was done.
    fn over_datagrams(&self) -> bool {
        false
    }

    /// Whether random loss leaves its rate as it is.
    fn keeps_rate(&self) -> bool {
        false
    }

    /// Reads the client's report: its clock and timestamps.
    fn client_report(&self, _outcome: &Outcome) -> ClientReport {
        ClientReport::default()
    }

    /// The instant of login in the lines that the server has just written.
    fn login_ns(&self, _log: &[(u64, String)]) -> Option<u64> {
        None
    }

    /// Reads what the server's kernel has counted of sessions that are as this application
    /// promises; none: it counts none.
    ///
    /// # Errors
    /// The host's agent.
    fn session_count(&self, _server: &Host) -> Result<Option<SessionCount>> {
        Ok(None)
    }

    /// Recognises a login on the wire, if packet sizes must date it.
    fn login(&self) -> Option<Login> {
        None
    }

    /// Whether a session ends with an exchange of its own behind the last reply.
    fn has_close_exchange(&self) -> bool {
        false
    }

    /// The commands of the workload `commands`, where a plan gives none.
    fn default_commands(&self) -> &'static [&'static str] {
        &[]
    }

    /// Writes the `nth` variant of a configuration if the server derives a constant delay from
    /// its bytes; all variants mean the same. Returns a word of the line that the server
    /// prints after it has read the configuration on SIGHUP.
    ///
    /// # Errors
    /// The configuration cannot be written.
    fn reseed_login_delay(&self, _site: &Site<'_>, _nth: u32) -> Result<Option<&'static str>> {
        Ok(None)
    }

    /// Lists pinned settings for the record: TLS version, cipher, key type.
    fn facts(&self) -> Vec<Fact>;

    /// Returns a bound on the bytes in flight, and a sentence about it, if the application has
    /// one besides TCP's.
    fn window(&self) -> Option<(u64, &'static str)> {
        None
    }
}

/// What a server's kernel has counted of sessions that are as an application promises.
#[derive(Debug, Clone, Copy)]
pub struct SessionCount {
    /// How many there were so far.
    pub(crate) sessions: u64,
    /// The sentence about too few of them.
    pub(crate) broken: &'static str,
}

impl SessionCount {
    /// Says that fewer of them than transfers were counted after `before`: each transfer is a
    /// session at least.
    pub(crate) fn objection(self, before: Self, transfers: usize) -> Option<String> {
        let counted = self.sessions.saturating_sub(before.sessions);
        (counted < transfers as u64)
            .then(|| format!("{} ({counted} of {transfers} sessions)", self.broken))
    }
}

/// The start of a client.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The client.
    pub(crate) command: Command,
    /// Variables beside the common ones.
    pub environment: BTreeMap<String, String>,
    /// Commands said one by one to its standard input.
    pub dialogue: Option<Vec<String>>,
    /// Whether the client begins with a prelude, which is over before the clocks begin.
    pub(crate) has_prelude: bool,
}

impl Invocation {
    pub(crate) fn new(command: Command) -> Self {
        Self { command, environment: BTreeMap::new(), dialogue: None, has_prelude: false }
    }
}

/// A client's own report.
#[derive(Debug, Clone, Default)]
pub struct ClientReport {
    /// Its own clock, in seconds.
    pub(crate) seconds: Option<f64>,
    /// Its timestamps.
    pub(crate) hints: TimeHints,
    /// Its error, even if its exit code is 0.
    pub(crate) error: Option<String>,
    /// Amount of a timed load.
    pub(crate) load: Option<Load>,
    /// Statistics of a real-time stream.
    pub(crate) realtime: Option<StreamStats>,
}
