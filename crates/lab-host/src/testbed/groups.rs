//! The processes of a run on one machine: agents, and the control groups that they are in where
//! this user may make any.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Settings, mounts};
use crate::agent::Agent;
use crate::command::{Arg, Command, Executor};
use crate::error::Result;
use crate::privileges::Privileges;
use crate::programs::{MOUNT, NSENTER, UNSHARE};
use crate::resources::Processes;
use crate::resources::cgroup::{self, Cgroup};
use crate::role::Role;

/// The processes of the run's hosts; they are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) client: Processes,
    pub(super) server: Processes,
    _run: Option<Cgroup>,
}

impl Groups {
    /// Makes their control groups, or gets ready to know them by descent; none in a dry run.
    pub(super) fn new(executor: &Executor, path: Option<&Path>) -> Result<Option<Self>> {
        let Some(path) = path else {
            let (client, server) = (Processes::of_agent(), Processes::of_agent());
            return executor.really(|| Ok(Self { client, server, _run: None }));
        };
        let make = |path: &Path| make_group(executor, path);
        let (run, client, server) =
            (make(path)?, make(&path.join("client"))?, make(&path.join("server"))?);
        let all = client.zip(server).zip(run);
        Ok(all.map(|((client, server), run)| {
            let [client, server] = [client, server].map(Processes::Group);
            Self { client, server, _run: Some(run) }
        }))
    }

    fn of(&self, role: Role) -> &Processes {
        if role == Role::Client { &self.client } else { &self.server }
    }
}

/// Makes a control group; none in a dry run.
pub(super) fn make_group(executor: &Executor, path: &Path) -> Result<Option<Cgroup>> {
    executor.act(|| format!("mkdir {}", path.display()), || Cgroup::create(path.to_owned()))
}

/// Starts the agent of a host: it joins its group before it becomes itself, so
/// that nothing it ever does is charged to somebody else. Without a group it is the first of a
/// process id namespace, so that all it starts ends with it.
pub(super) fn start_agent(
    role: Role,
    net: &str,
    group: Option<&Path>,
    groups: Option<&Groups>,
    settings: &Settings,
    executor: &Executor,
) -> Result<Option<Agent>> {
    let headroom = settings.headroom.display().to_string();
    let mut command = Command::new(NSENTER, [net]);
    match group {
        Some(group) => {
            let procs = group.join(role.to_string()).join("cgroup.procs").display().to_string();
            command.args(["sh", "-c", cgroup::JOIN, &procs]);
        }
        None => {
            command.args([Arg::from(UNSHARE), "--pid".into(), "--fork".into()]);
            command.args(["--kill-child"]);
        }
    }
    command.args([headroom.as_str(), "lab-agent"]);
    let line =
        || format!("{command}  # starts what follows on the {role}, as `nsenter` would by hand");
    executor.act(line, || {
        let process = executor.process(&command)?;
        let agent = Agent::start(&role.to_string(), process, Arc::clone(&settings.interrupted))?;
        if let Some(groups) = groups {
            groups.of(role).descend_from(agent.pid());
        }
        Ok(agent)
    })
}

/// Finds the group in which those of a run are made; none: this user may make none. Mounts the
/// control groups for root where the machine has not.
pub(super) fn parent(executor: &Executor) -> Result<Option<PathBuf>> {
    if cgroup::mounted().is_none() && !matches!(privileges(), Privileges::UserNamespace { .. }) {
        let parent = PathBuf::from("/run/cgroup");
        mounts::make_folder(executor, &parent)?;
        let target = parent.display().to_string();
        executor.run(&Command::new(MOUNT, ["-t", "cgroup2", "none", &target]))?;
        return Ok(Some(parent));
    }
    match privileges() {
        // a dry run of an ordinary user prints what root would do
        Privileges::None => Ok(cgroup::mounted()),
        _ => Ok(cgroup::parent()),
    }
}

fn privileges() -> Privileges {
    Privileges::of_this_process()
}
