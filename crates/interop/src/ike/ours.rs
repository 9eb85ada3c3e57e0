//! Our gateway with IKE.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::{Link, Trial};
use crate::folder::Folder;
use crate::gateway::Gateway;

/// The pre-shared key of all trials.
pub(super) const SECRET: &str = "known to two namespaces only";
/// Our name and the peer's.
pub(super) const NAMES: [&str; 2] = ["ours.test", "theirs.test"];
/// The names of both sides' files.
pub(super) const OURS: &str = "ours";
pub(super) const THEIRS: &str = "theirs";
/// Longer than any step takes, even on a busy machine.
const STEP: Duration = Duration::from_secs(40);

/// What it is configured for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) trial: Trial,
    pub(super) is_post_quantum: bool,
    /// The suite of the CHILD SA; none: the defaults.
    pub(super) child_suite: Option<&'static str>,
}

/// A running gateway.
pub(super) struct Ours {
    gateway: Gateway,
    headroom: PathBuf,
}

impl Ours {
    pub(super) fn start(
        headroom: &Path,
        folder: &Folder,
        link: &Link,
        settings: Settings,
    ) -> Result<Self> {
        let configuration = configuration(&folder.0, link, settings);
        let gateway = Gateway::start(headroom, &configuration, &folder.0, &link.ours)?;
        Ok(Self::of(gateway, headroom))
    }

    /// Takes over a running gateway.
    pub(super) fn of(gateway: Gateway, headroom: &Path) -> Self {
        Self { gateway, headroom: headroom.to_owned() }
    }

    pub(super) fn said(&self) -> String {
        self.gateway.said()
    }

    pub(super) fn status(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.gateway.control(&self.headroom, &["status", "--json"])?)?)
    }

    pub(super) fn down(&self) -> Result<()> {
        self.gateway.control(&self.headroom, &["down"]).map(drop)
    }

    /// Waits until the status is as wanted, and returns it.
    pub(super) fn wait(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = Instant::now() + STEP;
        loop {
            let status = self.status()?;
            if wanted(&status) {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("waiting for {what}: {status}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns the SPIs of the CHILD SAs on which packets arrive.
pub(super) fn spis(status: &Value) -> Vec<u64> {
    let all = status["associations"].as_array().into_iter().flatten();
    all.filter(|one| one["direction"] == "in").filter_map(|one| one["spi"].as_u64()).collect()
}

/// Returns whether the IKE SA stands and has a CHILD SA.
pub(super) fn is_up(status: &Value) -> bool {
    status["ike"][0]["established"] == true && !spis(status).is_empty()
}

fn configuration(folder: &Path, link: &Link, settings: Settings) -> String {
    let Settings { trial, is_post_quantum, child_suite } = settings;
    let suites = child_suite.map_or_else(String::new, |suite| format!("suites = \"{suite}\"\n"));
    let policy = if is_post_quantum && trial.wants_post_quantum() { "required" } else { "off" };
    let rekey = |wanted: bool| if wanted { "rekey_seconds = 3\n" } else { "" };
    let liveness = if trial == Trial::LivenessByUs { "liveness_seconds = 1\n" } else { "" };
    let proof = match trial.certificates() {
        Some(_) => format!(
            "cert_file = {:?}\nkey_file = {:?}\nca_file = {:?}\n",
            folder.join(format!("{OURS}.pem")),
            folder.join(format!("{OURS}.key")),
            folder.join("authority.pem")
        ),
        None => format!("psk = \"{SECRET}\"\n"),
    };
    let local = match trial {
        // it follows the route
        Trial::WeMove => String::new(),
        _ => format!("local = \"{}\"\n", link.outer[0]),
    };
    format!(
        "name = \"hr0\"\n\
         [ike]\n\
         {local}remote = \"{}\"\n\
         local_id = \"{}\"\n\
         remote_id = \"{}\"\n\
         {proof}\
         post_quantum = \"{policy}\"\n\
         initiate = {}\n\
         {liveness}{}\
         [[child]]\n\
         local = \"{}\"\n\
         remote = \"{}\"\n\
         {suites}{}",
        link.seen[1],
        NAMES[0],
        NAMES[1],
        !trial.they_initiate(),
        rekey(trial == Trial::IkeRekeyByUs),
        link.inner[0],
        link.inner[1],
        rekey(trial == Trial::ChildRekeyByUs),
    )
}
