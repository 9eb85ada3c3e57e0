//! A list of commands, each waiting for the answer to the one before.

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::content::ContentKind;
use headroom_lab_host::error::Result;
use headroom_lab_host::role::Role;

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::task::Task;
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "a list of commands, each sent after the answer to the one before (commands = [...]; {local}, \
        {remote} and {new} are paths of small files)",
    keys: &[Key::Commands],
    default_sizes: &[0],
    carry_marker,
    objection,
    extra_s,
    ..Work::new(WorkloadKind::Commands, prepare)
};

/// Placeholders for the paths of small files: one of the client, one of the server, and the
/// name of the client's copy of the server's.
const LOCAL: &str = "{local}";
const REMOTE: &str = "{remote}";
const NEW: &str = "{new}";
/// Bytes of such a file: a line that somebody typed.
const SMALL_FILE: u64 = 100;

fn prepare(workload: &Workload, _size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
    let own = || ground.default_commands.iter().map(|c| (*c).to_owned()).collect();
    let mut commands = workload.commands.clone().unwrap_or_else(own);
    let mut expected = Vec::new();
    for word in [LOCAL, REMOTE, NEW] {
        if !commands.iter().any(|command| command.contains(word)) {
            continue;
        }
        let host = if word == LOCAL { ground.client } else { ground.server };
        let (name, content) = ground.payloads.file(host, SMALL_FILE, ContentKind::default())?;
        let mut path = host.root.join("files").join(name);
        if word == NEW {
            path = ground.downloads().join(format!("d{}", ground.serial));
            expected.push((path.clone(), content));
        }
        let path = path.display().to_string();
        commands.iter_mut().for_each(|command| *command = command.replace(word, &path));
    }
    let task = Task::Commands(commands);
    Ok(Transfer { on: Some(Role::Client), expected, ..Transfer::of(task) })
}

fn carry_marker(marker: &MarkerFile<'_>) -> Option<Transfer> {
    Some(Transfer::of(Task::Commands(vec![format!("echo {}", marker.marker)])))
}

fn objection(outcome: &Outcome) -> Option<&'static str> {
    outcome.stdout.trim().is_empty().then_some("answered nothing")
}

fn extra_s(workload: &Workload, rtt_s: f64) -> f64 {
    workload.commands.as_ref().map_or(5, Vec::len) as f64 * (0.02 + rtt_s)
}
