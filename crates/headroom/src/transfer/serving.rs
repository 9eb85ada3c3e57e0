//! The servers that run on this machine for this user, each in a file of
//! `~/.config/headroom/serving`: `headroom share PATH` finds the one that serves PATH.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use headroom_page::Page;
use headroom_transfer::{Host, Identity};
use serde::{Deserialize, Serialize};

use super::arguments::Serve;
use super::settings;

/// A server that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Serving {
    /// The directory that it serves, without links.
    pub(super) root: PathBuf,
    address: SocketAddr,
    /// Its public key, and the file of the private one.
    pub(super) key: String,
    pub(super) identity: PathBuf,
    /// The URL of its page.
    pub(super) page: Option<String>,
}

/// The file of a server, until it is dropped.
#[derive(Debug)]
pub(super) struct Registered(Option<PathBuf>);

impl Registered {
    /// Writes the file. Without it the server runs as well.
    pub(super) fn new(
        arguments: &Serve,
        identity: &Identity,
        address: SocketAddr,
        page: Option<&Page>,
    ) -> Self {
        let serving = || {
            let file = settings::file_or(arguments.identity.as_deref(), "identity")?;
            let root = arguments.root.as_deref().context("it serves no directory")?;
            let serving = Serving {
                root: root.canonicalize()?,
                address,
                key: identity.public().to_string(),
                identity: std::path::absolute(file)?,
                page: page.map(Page::url),
            };
            let folder = settings::file("serving")?;
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let path = folder.join(std::process::id().to_string());
            let _ = fs::remove_file(&path);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(&serde_json::to_vec(&serving)?)?;
            anyhow::Ok(path)
        };
        let written = serving().inspect_err(|error| {
            tracing::debug!("`headroom share` will not find this server: {error:#}");
        });
        Self(written.ok())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl Serving {
    /// Returns the servers of this user that run, and removes the files of others.
    pub(super) fn all() -> anyhow::Result<Vec<Self>> {
        let folder = settings::file("serving")?;
        let mut all = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if !Path::new("/proc").join(entry.file_name()).exists() {
                // it was killed
                let _ = fs::remove_file(path);
                continue;
            }
            let text = fs::read(&path).ok();
            all.extend(text.and_then(|text| serde_json::from_slice(&text).ok()));
        }
        Ok(all)
    }

    /// Returns where a client of this machine connects to it.
    pub(super) fn host(&self) -> Host {
        let ip = match self.address.ip() {
            ip if !ip.is_unspecified() => ip,
            ip if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
            _ => Ipv6Addr::LOCALHOST.into(),
        };
        Host::new(&ip.to_string(), self.address.port())
    }
}
