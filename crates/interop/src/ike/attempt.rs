//! Trying one thing with a peer.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::ours::{NAMES, OURS, Ours, Settings, THEIRS, is_up, spis};
use super::{Daemon, Link, Peer, Trial};
use crate::folder::Folder;
use crate::pki::Authority;
use crate::trial::Outcome;

/// Tries one thing against a peer.
pub fn attempt(peer: &mut dyn Peer, headroom: &Path, trial: Trial) -> Outcome {
    if let Some(why) = peer.lacks(trial) {
        return Outcome::Lacks(why);
    }
    match trial {
        Trial::Eap(method) => match peer.be_client(headroom, method) {
            Ok(Some(why)) => Outcome::Lacks(why),
            proved => Outcome::of(proved.map(drop)),
        },
        _ => Outcome::of(run(peer, headroom, trial)),
    }
}

fn run(peer: &mut dyn Peer, headroom: &Path, trial: Trial) -> Result<()> {
    let is_post_quantum = peer.is_post_quantum() && trial.wants_post_quantum();
    let child_suite = peer.child_suite();
    let folder = Folder::new()?;
    let link = peer.link(trial.nat())?;
    if let Some(kind) = trial.certificates() {
        let authority = Authority::new()?;
        let [ours, theirs] = NAMES;
        authority.issue(ours, kind)?.save(&folder.0, OURS, &authority)?;
        authority.issue(theirs, kind)?.save(&folder.0, THEIRS, &authority)?;
    }
    let mut daemon = peer.start(&folder.0, &link, trial)?;
    let settings = Settings { trial, is_post_quantum, child_suite };
    let ours = Ours::start(headroom, &folder, &link, settings)?;
    let done = steps(&ours, &link, &mut *daemon, trial, is_post_quantum);
    done.with_context(|| {
        let log = daemon.log().unwrap_or_else(|why| format!("{why:#}"));
        format!("our gateway said: {}\nthe peer's log: {log}", ours.said())
    })
}

fn steps(
    ours: &Ours,
    link: &Link,
    daemon: &mut dyn Daemon,
    trial: Trial,
    is_post_quantum: bool,
) -> Result<()> {
    if trial == Trial::Childless {
        daemon.initiate_without_child()?;
        let status = ours.wait("an IKE SA", |status| status["ike"][0]["established"] == true)?;
        ensure!(spis(&status).is_empty(), "it has a CHILD SA: {status}");
    }
    if trial.they_initiate() {
        daemon.initiate().context("initiating")?;
    }
    let status = ours.wait("a CHILD SA", is_up)?;
    daemon.transfer().context("after the set-up")?;
    ensure!(status["ike"][0]["post_quantum"] == is_post_quantum, "{status}");
    let first = spis(&status);
    match trial {
        Trial::WeInitiate
        | Trial::TheyInitiate
        | Trial::PostQuantumByUs
        | Trial::PostQuantumByThem
        | Trial::WeAreBehindNat
        | Trial::TheyAreBehindNat
        | Trial::Childless
        | Trial::Eap(_) => {}
        Trial::Certificates(kind, _) => {
            for proof in daemon.proofs(kind) {
                said(daemon, &proof)?;
            }
        }
        Trial::Fragments => {
            let [sent, received] = daemon.fragments();
            said(daemon, sent)?;
            if is_post_quantum {
                said(daemon, received)?;
            }
        }
        Trial::ChildRekeyByUs => {
            ours.wait("another CHILD SA", |status| replaced(&first, &spis(status)))?;
            daemon.transfer().context("after the CHILD SA was rekeyed")?;
        }
        Trial::ChildRekeyByThem => {
            daemon.rekey_child()?;
            ours.wait("another CHILD SA", |status| replaced(&first, &spis(status)))?;
            daemon.transfer().context("after the CHILD SA was rekeyed")?;
        }
        Trial::IkeRekeyByUs => {
            let status = ours
                .wait("another IKE SA", |status| status["ike"][0]["rekeys"].as_u64() > Some(1))?;
            ensure!(status["ike"][0]["post_quantum"] == is_post_quantum, "{status}");
            daemon.transfer().context("after the IKE SA was rekeyed")?;
        }
        Trial::IkeRekeyByThem => {
            daemon.rekey_ike()?;
            let status = ours
                .wait("another IKE SA", |status| status["ike"][0]["rekeys"].as_u64() > Some(0))?;
            ensure!(status["ike"][0]["post_quantum"] == is_post_quantum, "{status}");
            daemon.rekey_child()?;
            ours.wait("another CHILD SA", |status| replaced(&first, &spis(status)))?;
            daemon.transfer().context("after both SAs were rekeyed")?;
        }
        Trial::DeleteByUs => {
            ours.down()?;
            until("the peer's IKE SA is gone", || daemon.is_idle())?;
        }
        Trial::DeleteByThem => {
            daemon.terminate()?;
            ours.wait("no IKE SA", |status| status["ike"].as_array().is_some_and(Vec::is_empty))?;
        }
        Trial::WeMove => {
            let address = link.move_ours()?.to_string();
            let status = ours.wait("the new address", |status| {
                let local = status["ike"][0]["local"].as_str();
                local.is_some_and(|local| local.starts_with(&address))
            })?;
            daemon.transfer().context("after the move")?;
            // a peer whose kernel cannot change a CHILD SA's addresses replaces it
            let is_same = status["ike"][0]["rekeys"] == 0
                && ours.said().matches("is established").count() == 1;
            ensure!(is_same, "not the same IKE SA: {status}");
        }
        Trial::LivenessByUs => {
            let [answered, _] = daemon.liveness();
            said(daemon, answered)?;
        }
        Trial::LivenessByThem => {
            let [_, received] = daemon.liveness();
            said(daemon, received)?;
        }
    }
    if !matches!(trial, Trial::DeleteByUs | Trial::DeleteByThem) {
        let status = ours.status()?;
        ensure!(is_up(&status), "the tunnel is down: {status}");
    }
    Ok(())
}

/// Returns whether all SPIs are new.
fn replaced(before: &[u64], now: &[u64]) -> bool {
    !now.is_empty() && !now.iter().any(|spi| before.contains(spi))
}

/// Waits until the peer's log has this text.
fn said(daemon: &mut dyn Daemon, text: &str) -> Result<()> {
    until(&format!("`{text}` in the peer's log"), || Ok(daemon.log()?.contains(text)))
}

fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !done()? {
        if Instant::now() > deadline {
            bail!("waiting until {what}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
