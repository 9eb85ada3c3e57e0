//! The control groups of a run on one machine, and the agents in them.

use std::path::Path;
use std::sync::Arc;

use super::Settings;
use crate::agent::Agent;
use crate::command::{Command, Executor};
use crate::error::Result;
use crate::programs::NSENTER;
use crate::resources::cgroup::{self, Cgroup};
use crate::role::Role;

/// The control groups of the run; what is in them is killed when they are dropped.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) client: Cgroup,
    pub(super) server: Cgroup,
    _run: Cgroup,
}

impl Groups {
    /// Makes them; none in a dry run.
    pub(super) fn new(executor: &Executor, path: &Path) -> Result<Option<Self>> {
        let make = |path: &Path| make_group(executor, path);
        let (run, client, server) =
            (make(path)?, make(&path.join("client"))?, make(&path.join("server"))?);
        let all = client.zip(server).zip(run);
        Ok(all.map(|((client, server), run)| Self { client, server, _run: run }))
    }
}

/// Makes a control group; none in a dry run.
pub(super) fn make_group(executor: &Executor, path: &Path) -> Result<Option<Cgroup>> {
    executor.act(|| format!("mkdir {}", path.display()), || Cgroup::create(path.to_owned()))
}

/// Starts the agent of a host: it joins its group before it becomes itself, so
/// that nothing it ever does is charged to somebody else.
pub(super) fn start_agent(
    role: Role,
    net: &str,
    group: &Path,
    settings: &Settings,
    executor: &Executor,
) -> Result<Option<Agent>> {
    let headroom = settings.headroom.display().to_string();
    let procs = group.join(role.to_string()).join("cgroup.procs").display().to_string();
    let command =
        Command::new(NSENTER, [net, "sh", "-c", cgroup::JOIN, &procs, &headroom, "lab-agent"]);
    let line =
        || format!("{command}  # starts what follows on the {role}, as `nsenter` would by hand");
    executor.act(line, || {
        let process = executor.process(&command)?;
        Agent::start(&role.to_string(), process, Arc::clone(&settings.interrupted))
    })
}
