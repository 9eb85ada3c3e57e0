//! scapy as an initiator: its layers write and read the messages, the Python package
//! `cryptography` derives the keys, so what our gateway says is checked against neither our code
//! nor another daemon's.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::json;

use super::link::Link;
use super::ours::{NAMES, Ours, SECRET, Settings};
use super::{Outcome, Trial};
use crate::folder::Folder;
use crate::peer::Peers;

const SESSION: &str = include_str!("session.py");
const CHECKS: &str = include_str!("checks.py");

/// What one exchange, or one hostile peer, was tried for.
#[derive(Debug)]
pub struct Check {
    /// What must be seen.
    pub what: String,
    /// Whether the peer breaks the rules.
    pub is_hostile: bool,
    /// Whether it was seen.
    pub outcome: Outcome,
}

#[derive(Deserialize)]
struct Line {
    what: String,
    is_hostile: bool,
    why: Option<String>,
}

/// Tries all exchanges with our gateway. Needs root.
///
/// # Errors
/// scapy or a namespace is missing, or the gateway does not start.
pub fn try_exchanges(peers: &Peers, headroom: &Path) -> Result<Vec<Check>> {
    let python = crate::scapy::python(peers)?;
    let folder = Folder::new()?;
    let link = Link::between_namespaces(peers, None)?;
    let trial = Trial::TheyInitiate;
    let settings = Settings { trial, is_post_quantum: false, child_suite: None };
    let ours = Ours::start(headroom, &folder, &link, settings)?;
    let namespace = link.theirs.as_ref().context("a namespace for the peer")?;
    let settings = json!({
        "local": link.outer[1], "remote": link.outer[0],
        "inner": [link.inner[1], link.inner[0]], "names": NAMES, "secret": SECRET,
    });
    let mut command = namespace.command(&[]);
    command.arg(python).args(["-c", &format!("{SESSION}\n{CHECKS}"), &settings.to_string()]);
    let output = command.stdin(Stdio::null()).output().context("running scapy")?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("scapy: {}", String::from_utf8_lossy(&output.stderr));
    }
    let lines: Vec<Line> =
        said.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
    ensure!(!lines.is_empty(), "scapy tried nothing");
    let outcome = |why: Option<String>| why.map_or(Outcome::Passed, Outcome::Failed);
    let mut checks: Vec<Check> = lines
        .into_iter()
        .map(|Line { what, is_hostile, why }| Check { what, is_hostile, outcome: outcome(why) })
        .collect();
    checks.push(Check {
        what: "after all of it the gateway has no IKE SA and no CHILD SA left".to_owned(),
        is_hostile: true,
        outcome: Outcome::of(is_empty(&ours)),
    });
    Ok(checks)
}

fn is_empty(ours: &Ours) -> Result<()> {
    let status = ours.wait("no IKE SA", |status| {
        let none = |list: &str| status[list].as_array().is_some_and(Vec::is_empty);
        none("ike") && none("associations")
    });
    status.map(drop).with_context(|| ours.said())
}
