//! What a stack is asked to do, and how one knows that it did it.

use std::path::PathBuf;

use headroom_lab_results::schema;

pub use headroom_lab_host::content::ContentKind;
pub use headroom_lab_results::schema::{CLIENTS, CrossTraffic, KINDS, Kind, Pace, STREAM_UNIT};

/// One workload of a plan.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What is done.
    pub kind: Kind,
    /// Octets of each file, or of each datagram; `[0]` for commands.
    pub sizes: Vec<u64>,
    /// Names of the stacks that do it.
    pub stacks: Vec<String>,
    /// Files in the folder (`many`).
    pub files: u32,
    /// Clients at once (`parallel`).
    pub clients: u32,
    /// Commands to run; none: the service's own list.
    pub commands: Option<Vec<String>>,
    /// How long it goes on (`stream`, `packets`, `echo`, `realtime`).
    pub seconds: u32,
    /// What is in the files.
    pub content: ContentKind,
    /// Transfers one after the other in a sample, whose mean it is (`download`,
    /// `upload`); none: as many as it takes to be measured well.
    pub transfers_per_sample: Option<u32>,
    /// How fast it is sent (`packets`, `realtime`); none: as fast as it arrives.
    pub rate: Option<Pace>,
    /// TCP cross traffic (`realtime`).
    pub cross_traffic: Option<CrossTraffic>,
}

impl Workload {
    /// One that does as little as its kind can, with files of chance.
    pub(crate) fn new(kind: Kind, sizes: Vec<u64>, stacks: Vec<String>) -> Self {
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
        let clients = (self.kind == Kind::Parallel).then_some(self.clients);
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

    /// How its datagrams of `size` octets are sent, where it is of datagrams.
    pub(crate) fn sending(&self, size: u64) -> Option<Sending> {
        let per_second = self.rate.map(|rate| rate.per_second(size));
        match (self.kind, per_second) {
            (Kind::Packets, None) => Some(Sending::AsArrives),
            (Kind::Packets, Some(per_second)) => Some(Sending::Paced(per_second)),
            (Kind::Echo, _) => Some(Sending::Echo),
            (Kind::Realtime, Some(per_second)) => {
                let cross_traffic = self.cross_traffic.map(|traffic| traffic.time(self.seconds));
                Some(Sending::Realtime { per_second, cross_traffic })
            }
            _ => None,
        }
    }

    /// Octets of file that one transfer of `size` moves in all.
    pub fn octets(&self, size: u64) -> u64 {
        match self.kind {
            Kind::Many => size * u64::from(self.files),
            Kind::Parallel => size * u64::from(self.clients),
            _ => size,
        }
    }
}

/// The name that results have for a workload whose name says what is default, too.
pub fn canonical(name: &str) -> String {
    let Some((kind, words)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) else {
        return name.to_owned();
    };
    let default = [format!("clients={CLIENTS}"), ContentKind::default().name().to_owned()];
    let words: Vec<&str> = words.split(',').map(str::trim).collect();
    let told: Vec<&str> =
        words.into_iter().filter(|word| !default.iter().any(|d| d == word)).collect();
    if told.is_empty() { kind.to_owned() } else { format!("{kind}({})", told.join(",")) }
}

/// When datagrams are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sending {
    /// As many as arrive.
    AsArrives,
    /// So many a second.
    Paced(f64),
    /// Each when the one before has returned.
    Echo,
    /// So many a second, as a stream that is followed packet by packet.
    Realtime {
        /// Datagrams a second.
        per_second: f64,
        /// Start and end of TCP cross traffic, in seconds.
        cross_traffic: Option<(u32, u32)>,
    },
}

/// One thing for one client process to do, in the terms of files: `remote` is
/// relative to the folder that the server serves.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Fetch one file.
    Download {
        /// Name on the server.
        remote: String,
        /// Where it goes.
        local: PathBuf,
    },
    /// Send one file.
    Upload {
        /// What is sent.
        local: PathBuf,
        /// Name on the server, not there yet.
        remote: String,
    },
    /// Fetch a folder of files, in one session.
    DownloadTree {
        /// Name of the folder on the server.
        remote: String,
        /// Names of the files in it.
        names: Vec<String>,
        /// The folder they go to; exists and is empty.
        local: PathBuf,
    },
    /// Run commands one after the other.
    Commands(Vec<String>),
    /// Send as much as goes over one connection.
    Stream {
        /// For how long; of no meaning for a file.
        seconds: u32,
        /// A file to send in place of octets without a meaning.
        content: Option<PathBuf>,
    },
    /// Send datagrams.
    Datagrams {
        /// When each is sent.
        sending: Sending,
        /// Octets of each.
        size: u64,
        /// For how long.
        seconds: u32,
        /// A file whose content they have, in place of octets without a meaning.
        content: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_what_is_not_default_and_tells_its_kind() {
        let one = Workload::new(Kind::Parallel, vec![1], Vec::new());
        let plain = Workload { clients: CLIENTS, ..one };
        let crowd = Workload { clients: 16, content: ContentKind::Text, ..plain.clone() };
        let row = Workload { kind: Kind::Upload, transfers_per_sample: Some(20), ..plain.clone() };
        let names = [&plain, &crowd, &row].map(Workload::name);
        assert_eq!(
            names,
            ["parallel", "parallel(text,clients=16)", "upload(transfers-per-sample=20)"]
        );
        for (name, kind) in names.iter().zip([Kind::Parallel, Kind::Parallel, Kind::Upload]) {
            assert_eq!(Kind::of(name), Some(kind));
        }
        assert_eq!(Kind::of("sleep"), None);
        for (written, name) in [
            ("parallel(clients=4)", "parallel"),
            ("parallel(text, clients=4)", "parallel(text)"),
            ("download(random)", "download"),
            ("download", "download"),
        ] {
            assert_eq!(canonical(written), name);
        }
    }
}
