//! The trait of an application.

use std::collections::BTreeMap;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
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

    /// Refuses what this machine cannot do, whatever programs it has.
    ///
    /// # Errors
    /// [`crate::Error::Missing`]: what it lacks.
    fn require(&self) -> Result<()> {
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

    /// Reads the client's report: its clock and timestamps.
    fn client_report(&self, _outcome: &Outcome) -> ClientReport {
        ClientReport::default()
    }

    /// The instant of login in the lines that the server has just written.
    fn login_ns(&self, _log: &[(u64, String)]) -> Option<u64> {
        None
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

/// The start of a client.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The client.
    pub(crate) command: Command,
    /// Variables beside the common ones.
    pub environment: BTreeMap<String, String>,
    /// Commands said one by one to its standard input.
    pub dialogue: Option<Vec<String>>,
}

impl Invocation {
    pub(crate) fn new(command: Command) -> Self {
        Self { command, environment: BTreeMap::new(), dialogue: None }
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
