//! A folder of many small files from server to client, in one session.

use headroom_lab_host::content::tree_name;
use headroom_lab_host::error::Result;
use headroom_lab_host::role::Role;

use super::definition::{Ground, Key, Transfer, Work};
use super::task::Task;
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "a folder of 10 000 × 1 KiB in one session (files = N)",
    keys: &[Key::Sizes, Key::Files],
    default_sizes: &[1 << 10],
    extra_s,
    ..Work::new(WorkloadKind::Many, prepare)
};

/// Time per file, apart from its bytes.
const FILE_S: f64 = 0.0005;

fn prepare(workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
    let count = workload.files;
    let local = ground.downloads().join(format!("t{}", ground.serial));
    let (remote, contents) = ground.payloads.tree(ground.server, size, count)?;
    ground.client.make_folders(std::slice::from_ref(&local))?;
    let names: Vec<String> = (0..count).map(tree_name).collect();
    Ok(Transfer {
        on: Some(Role::Client),
        expected: names.iter().map(|name| local.join(name)).zip(contents).collect(),
        folders: vec![local.clone()],
        tasks: vec![Task::DownloadTree { remote, names, local }],
        ..Transfer::default()
    })
}

fn extra_s(workload: &Workload, _rtt_s: f64) -> f64 {
    f64::from(workload.files) * FILE_S
}
