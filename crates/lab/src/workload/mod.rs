//! Workloads: tasks for a stack, one file and one [`Work`] each. To add one, write its file,
//! name it in [`ALL`], and add its [`WorkloadKind`], by which reports know it.

mod commands;
mod definition;
mod download;
mod echo;
mod many;
mod packets;
mod page;
mod parallel;
mod payloads;
mod realtime;
mod sessions;
mod setup;
mod stream;
mod task;
mod upload;

use headroom_lab_results::schema;

use crate::catalogue::{split, titled};

pub(crate) use definition::{Ground, MarkerFile, Transfer};
pub use definition::{Key, Work};
pub(crate) use payloads::Payloads;
pub use task::{Sending, Task};

pub use headroom_lab_host::content::ContentKind;
pub use headroom_lab_results::schema::{
    CLIENTS, CrossTraffic, Pace, STREAM_UNIT, TimeOf, WORKLOAD_KINDS, WorkloadKind,
};

/// All workloads, in the order of [`WORKLOAD_KINDS`].
pub static ALL: [Work; WORKLOAD_KINDS.len()] = [
    download::WORK,
    upload::WORK,
    many::WORK,
    parallel::WORK,
    sessions::WORK,
    commands::WORK,
    page::WORK,
    stream::WORK,
    packets::WORK,
    echo::WORK,
    setup::WORK,
    realtime::WORK,
];

/// Returns the work of a kind.
pub fn work(kind: WorkloadKind) -> &'static Work {
    &ALL[kind as usize]
}

/// One workload of a plan.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The kind.
    pub kind: WorkloadKind,
    /// Bytes of each file, or of each datagram; `[0]` for commands.
    pub sizes: Vec<u64>,
    /// Names of the stacks that do it.
    pub stacks: Vec<String>,
    /// Files in the folder (`many`); 1 elsewhere.
    pub files: u32,
    /// Clients at once (`parallel`, `sessions`); 1 elsewhere.
    pub clients: u32,
    /// Commands to run; none: the application's own list.
    pub commands: Option<Vec<String>>,
    /// Duration (`sessions`, `stream`, `packets`, `echo`, `realtime`).
    pub seconds: u32,
    /// Content of the files.
    pub content: ContentKind,
    /// Transfers one after the other in a sample, whose mean it is (`download`,
    /// `upload`); none: as many as it takes to be measured well.
    pub transfers_per_sample: Option<u32>,
    /// Rate (`packets`, `realtime`); none: as fast as it arrives.
    pub rate: Option<Pace>,
    /// TCP cross traffic (`realtime`).
    pub cross_traffic: Option<CrossTraffic>,
}

impl Workload {
    /// One that does as little as its kind can, with files of chance.
    pub(crate) fn new(kind: WorkloadKind, sizes: Vec<u64>, stacks: Vec<String>) -> Self {
        Self {
            kind,
            sizes,
            stacks,
            files: 1,
            clients: 1,
            commands: None,
            seconds: 1,
            content: ContentKind::default(),
            transfers_per_sample: None,
            rate: None,
            cross_traffic: None,
        }
    }

    /// The name in results: the kind, and in brackets what tells it from others of its
    /// kind in one plan, if that is not default: `parallel(clients=16)`,
    /// `download(text)`, `upload(transfers-per-sample=20)`.
    pub fn name(&self) -> String {
        let content = Some(self.content).filter(|content| *content != ContentKind::default());
        let clients = self.takes(Key::Clients).then_some(self.clients);
        let rate = self.rate.filter(|&rate| Some(rate) != self.kind.default_rate());
        let (rate, cross_traffic) = (
            rate.map(|rate| rate.to_string()),
            self.cross_traffic.map(|traffic| traffic.to_string()),
        );
        schema::workload_name(
            self.kind.name(),
            content.map(ContentKind::name),
            clients,
            self.transfers_per_sample,
            [rate, cross_traffic],
        )
    }

    /// Returns what its kind is to the lab.
    pub(crate) fn work(&self) -> &'static Work {
        work(self.kind)
    }

    /// Whether a plan may say that of it.
    pub(crate) fn takes(&self, key: Key) -> bool {
        self.work().keys.contains(&key)
    }

    /// Returns how many bytes of file one transfer of `size` moves in all.
    pub fn bytes(&self, size: u64) -> u64 {
        size * u64::from(self.files) * u64::from(self.clients)
    }
}

/// The name that results have for a workload whose name says what is default, too.
pub fn canonical(name: &str) -> String {
    let Some((kind, options)) = split(name) else { return name.to_owned() };
    let default = [format!("clients={CLIENTS}"), ContentKind::default().name().to_owned()];
    let other = |option: &&str| !default.iter().any(|default| default == option);
    titled(kind, &options.into_iter().filter(other).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_what_is_not_default_and_tells_its_kind() {
        let one = Workload::new(WorkloadKind::Parallel, vec![1], Vec::new());
        let plain = Workload { clients: CLIENTS, ..one };
        let crowd = Workload { clients: 16, content: ContentKind::Text, ..plain.clone() };
        let row = Workload {
            kind: WorkloadKind::Upload,
            transfers_per_sample: Some(20),
            ..plain.clone()
        };
        let alone = Workload { kind: WorkloadKind::Sessions, clients: 1, ..plain.clone() };
        let names = [&plain, &crowd, &row, &alone].map(Workload::name);
        assert_eq!(
            names,
            [
                "parallel",
                "parallel(text,clients=16)",
                "upload(transfers-per-sample=20)",
                "sessions(clients=1)",
            ]
        );
        let kinds = [
            WorkloadKind::Parallel,
            WorkloadKind::Parallel,
            WorkloadKind::Upload,
            WorkloadKind::Sessions,
        ];
        for (name, kind) in names.iter().zip(kinds) {
            assert_eq!(WorkloadKind::of(name), Some(kind));
        }
        assert_eq!(WorkloadKind::of("sleep"), None);
        for (written, name) in [
            ("parallel(clients=4)", "parallel"),
            ("parallel(text, clients=4)", "parallel(text)"),
            ("download(random)", "download"),
            ("download", "download"),
        ] {
            assert_eq!(canonical(written), name);
        }
    }

    #[test]
    fn each_kind_has_its_work() {
        for (work, kind) in ALL.iter().zip(WORKLOAD_KINDS) {
            assert_eq!((work.kind, super::work(kind).kind), (kind, kind));
        }
    }
}
