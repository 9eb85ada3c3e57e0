//! The trait of a workload, and its parameters.

use std::path::PathBuf;
use std::time::Duration;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::content::Content;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::role::Role;

use super::payloads::Payloads;
use super::task::{Sending, Task};
use super::{Workload, WorkloadKind};

/// One kind of workload: what a plan may say of it, and what one sample of it does. What
/// reports know of it too (its name, what its time is of) stands at its [`WorkloadKind`].
pub struct Work {
    /// The kind that it is the work of.
    pub kind: WorkloadKind,
    /// One line for `headroom lab list`.
    pub about: &'static str,
    /// The keys that it takes in a plan, beside `kind` and `stacks`.
    pub(crate) keys: &'static [Key],
    /// Bytes of each file or datagram, where a plan does not say.
    pub(crate) default_sizes: &'static [u64],
    /// Default duration.
    pub(crate) default_seconds: u32,
    /// Makes the files of one transfer, and returns what its clients do with them.
    pub(crate) prepare: fn(&Workload, u64, &mut Ground<'_>) -> Result<Transfer>,
    /// Returns what carries the marker of the clear-text check over the wire; none where
    /// another workload does for the same stacks.
    pub(crate) carry_marker: fn(&MarkerFile<'_>) -> Option<Transfer>,
    /// Says what is wrong with a client that has ended well.
    pub(crate) objection: fn(&Outcome) -> Option<&'static str>,
    /// Guesses what a transfer takes in seconds beside its session and its bytes, at a
    /// round-trip time in seconds.
    pub(crate) extra_s: fn(&Workload, f64) -> f64,
}

impl Work {
    /// Returns one that only prepares transfers; its file says the rest.
    pub(super) const fn new(
        kind: WorkloadKind,
        prepare: fn(&Workload, u64, &mut Ground<'_>) -> Result<Transfer>,
    ) -> Self {
        Self {
            kind,
            about: "",
            keys: &[],
            default_sizes: &[],
            default_seconds: 3,
            prepare,
            carry_marker: |_| None,
            objection: |_| None,
            extra_s: |_, _| 0.0,
        }
    }
}

/// A key of a workload in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `clients`
    Clients,
    /// `commands`
    Commands,
    /// `content`
    Content,
    /// `cross-traffic`
    CrossTraffic,
    /// `files`
    Files,
    /// `rate`
    Rate,
    /// `seconds`
    Seconds,
    /// `sizes`
    Sizes,
    /// `transfers-per-sample`
    TransfersPerSample,
}

impl Key {
    /// Returns the key as a plan has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Commands => "commands",
            Self::Content => "content",
            Self::CrossTraffic => "cross-traffic",
            Self::Files => "files",
            Self::Rate => "rate",
            Self::Seconds => "seconds",
            Self::Sizes => "sizes",
            Self::TransfersPerSample => "transfers-per-sample",
        }
    }
}

/// The hosts and files to prepare a transfer with.
pub(crate) struct Ground<'a> {
    pub(crate) client: &'a Host,
    pub(crate) server: &'a Host,
    pub(crate) payloads: &'a mut Payloads,
    /// Unlike that of every other transfer of the run.
    pub(crate) serial: u32,
    /// The commands that the stack's application has for want of others.
    pub(crate) default_commands: &'static [&'static str],
}

impl Ground<'_> {
    /// The folder that downloads go to.
    pub(crate) fn downloads(&self) -> PathBuf {
        self.client.root.join("downloads")
    }
}

/// One transfer: what its clients do, and what must be there afterwards.
#[derive(Debug, Default)]
pub(crate) struct Transfer {
    /// One for each client; all at once.
    pub(crate) tasks: Vec<Task>,
    /// The host that receives the files; none: there are no files.
    pub(crate) on: Option<Role>,
    /// Files that must then be there; removed after verification.
    pub(crate) expected: Vec<(PathBuf, Content)>,
    /// Folders that are removed with them.
    pub(crate) folders: Vec<PathBuf>,
    /// For how long each client does its task again and again, in a session each: the agent
    /// verifies and removes its file after each. None: once.
    pub(crate) repeated_for: Option<Duration>,
}

/// The file of the clear-text check, full of the marker, in the folder of served files of
/// both hosts.
pub(crate) struct MarkerFile<'a> {
    pub(crate) client: &'a Host,
    pub(crate) server: &'a Host,
    pub(crate) name: &'static str,
    /// The marker, once.
    pub(crate) marker: &'a str,
    pub(crate) content: Content,
}

impl MarkerFile<'_> {
    /// The file at the client.
    pub(crate) fn at_client(&self) -> PathBuf {
        self.client.root.join("files").join(self.name)
    }

    /// Datagrams with its content.
    pub(super) fn datagrams(&self, sending: Sending) -> Transfer {
        let content = Some(self.at_client());
        Transfer::of(Task::Datagrams { sending, size: 512, seconds: 1, content })
    }
}

impl Transfer {
    /// One that moves no files.
    pub(crate) fn of(task: Task) -> Self {
        Self { tasks: vec![task], ..Self::default() }
    }

    /// One whose only client fetches one file.
    pub(crate) fn download(remote: String, local: PathBuf, content: Content) -> Self {
        Self {
            tasks: vec![Task::Download { remote, local: local.clone() }],
            on: Some(Role::Client),
            expected: vec![(local, content)],
            ..Self::default()
        }
    }

    /// One whose only client sends one file to a folder of the server's.
    pub(crate) fn upload(local: PathBuf, remote: String, server: &Host, content: Content) -> Self {
        Self {
            expected: vec![(server.root.join("files").join(&remote), content)],
            tasks: vec![Task::Upload { local, remote }],
            on: Some(Role::Server),
            ..Self::default()
        }
    }
}
