//! The trait of a workload, and its parameters.

use std::path::PathBuf;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::content::Content;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::role::Role;

use super::payloads::Payloads;
use super::task::{Sending, Task};
use super::{Kind, Workload};

/// One kind of workload: what a plan may say of it, and what one sample of it does. What
/// reports know of it too (its name, what its time is of) stands at its [`Kind`].
pub trait Work: Sync {
    /// The kind that it is the work of.
    fn kind(&self) -> Kind;

    /// One line for `headroom lab list`.
    fn about(&self) -> &'static str;

    /// The keys that it takes in a plan, beside `kind` and `stacks`.
    fn keys(&self) -> &'static [Key];

    /// Bytes of each file or datagram, where a plan does not say.
    fn default_sizes(&self) -> Vec<u64>;

    /// Default duration.
    fn default_seconds(&self) -> u32 {
        3
    }

    /// Makes the files of one transfer, and returns what its clients do with them.
    ///
    /// # Errors
    /// A file cannot be made, or the plan lacks something.
    fn prepare(&self, workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer>;

    /// Returns what carries the marker of the clear-text check over the wire; none where
    /// another workload does for the same stacks.
    fn carry_marker(&self, _marker: &MarkerFile<'_>) -> Option<Transfer> {
        None
    }

    /// Says what is wrong with a client that has ended well.
    fn objection(&self, _outcome: &Outcome) -> Option<&'static str> {
        None
    }

    /// Guesses what a transfer takes in seconds beside its session and its bytes.
    fn extra_s(&self, _workload: &Workload, _rtt_s: f64) -> f64 {
        0.0
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
pub struct Ground<'a> {
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
pub struct Transfer {
    /// One for each client; all at once.
    pub(crate) tasks: Vec<Task>,
    /// Where the files end up; none where there are none.
    pub(crate) on: Option<Role>,
    /// Files that must then be there; removed after verification.
    pub(crate) expected: Vec<(PathBuf, Content)>,
    /// Folders that are removed with them.
    pub(crate) folders: Vec<PathBuf>,
}

/// The file of the clear-text check, full of the marker, in the folder of served files of
/// both hosts.
pub struct MarkerFile<'a> {
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
            folders: Vec::new(),
        }
    }

    /// One whose only client sends one file to a folder of the server's.
    pub(crate) fn upload(local: PathBuf, remote: String, server: &Host, content: Content) -> Self {
        Self {
            expected: vec![(server.root.join("files").join(&remote), content)],
            tasks: vec![Task::Upload { local, remote }],
            on: Some(Role::Server),
            folders: Vec::new(),
        }
    }
}
