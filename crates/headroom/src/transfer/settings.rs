//! Where a user's keys and hosts are, `~/.config/headroom`, and the states of fleets.

use std::path::{Path, PathBuf};

use anyhow::Context;
use headroom_transfer::Identity;
use headroom_transfer::trust::{Authority, KnownHosts};

/// The file of this name among the user's settings.
pub(crate) fn file(name: &str) -> anyhow::Result<PathBuf> {
    let of =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = of("XDG_CONFIG_HOME")
        .or_else(|| of("HOME").map(|home| home.join(".config")))
        .context("cannot tell where your keys are: neither XDG_CONFIG_HOME nor HOME is set")?;
    Ok(folder.join("headroom").join(name))
}

/// The folder with the states of fleets, in one folder for each job.
pub(crate) fn fleets() -> Option<PathBuf> {
    let of =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let states = of("XDG_STATE_HOME").or_else(|| of("HOME").map(|home| home.join(".local/state")));
    Some(states?.join("headroom/fleet"))
}

/// The file that was named, or the one among the user's settings.
pub(crate) fn file_or(named: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    named.map_or_else(|| file(name), |named| Ok(named.to_owned()))
}

/// The key of that file, made where it is missing.
pub(crate) fn identity(named: Option<&Path>) -> anyhow::Result<Identity> {
    let path = file_or(named, "identity")?;
    Ok(Identity::read_or_create(&path).map_err(headroom_transfer::Error::from)?)
}

/// The hosts that are known.
pub(crate) fn known_hosts() -> anyhow::Result<KnownHosts> {
    let path = file("known_hosts")?;
    Ok(KnownHosts::read(&path).map_err(headroom_transfer::Error::from)?)
}

/// The authorities of that file.
pub(crate) fn authority(named: Option<&Path>) -> anyhow::Result<Option<Authority>> {
    let authority = named.map(Authority::read).transpose();
    Ok(authority.map_err(headroom_transfer::Error::from)?)
}
