//! The same download by several clients at once.

use headroom_lab_host::error::Result;
use headroom_lab_host::role::Role;

use super::definition::{Ground, Key, Transfer, Work};
use super::task::Task;
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "the same download by 4 clients at once (clients = N)",
    keys: &[Key::Sizes, Key::Content, Key::Clients],
    default_sizes: &[64 << 20],
    ..Work::new(WorkloadKind::Parallel, prepare)
};

fn prepare(workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
    let (remote, content) = ground.payloads.file(ground.server, size, workload.content)?;
    let (folder, serial) = (ground.downloads(), ground.serial);
    let locals = (0..workload.clients).map(|client| folder.join(format!("d{serial}-{client}")));
    let locals: Vec<_> = locals.collect();
    let task = |local| Task::Download { remote: remote.clone(), local };
    Ok(Transfer {
        tasks: locals.iter().cloned().map(task).collect(),
        on: Some(Role::Client),
        expected: locals.into_iter().map(|local| (local, content)).collect(),
        ..Transfer::default()
    })
}
