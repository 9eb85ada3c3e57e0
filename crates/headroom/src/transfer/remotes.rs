//! Paths on hosts, as they are typed.

use std::ffi::{OsStr, OsString};

use anyhow::bail;
use headroom_transfer::client::below_root;
use headroom_transfer::{Host, RemotePath, SpreadPath};

use super::arguments::OverSsh;
use super::exit::Usage;

/// Reads places that are all on one host.
pub(super) fn remotes_on_one_host(
    texts: &[OsString],
    over_ssh: &OverSsh,
) -> anyhow::Result<(Host, Vec<Vec<u8>>)> {
    let remotes = texts.iter().map(|text| remote(text, over_ssh));
    let remotes = remotes.collect::<Result<Vec<_>, _>>()?;
    let Some(host) = remotes.first().map(|remote| remote.host.clone()) else {
        bail!(Usage("no path on a host was given".to_owned()));
    };
    if remotes.iter().any(|remote| remote.host != host) {
        bail!(Usage("all paths of one command must be on the same host".to_owned()));
    }
    Ok((host, remotes.into_iter().map(|remote| remote.path).collect()))
}

/// Reads places that are all on the same server, or on the same servers.
pub(super) fn remotes_on_same_servers(
    texts: &[OsString],
    over_ssh: &OverSsh,
) -> anyhow::Result<(Vec<Host>, Vec<Vec<u8>>)> {
    let remotes = texts.iter().map(|text| spread_remote(text, over_ssh));
    let remotes = remotes.collect::<Result<Vec<_>, _>>()?;
    let Some(hosts) = remotes.first().map(|remote| remote.hosts.clone()) else {
        bail!(Usage("no path on a host was given".to_owned()));
    };
    if remotes.iter().any(|remote| remote.hosts != hosts) {
        let where_else = if hosts.len() == 1 { "host" } else { "servers, in the same order" };
        bail!(Usage(format!("all paths of one command must be on the same {where_else}")));
    }
    Ok((hosts, remotes.into_iter().map(|remote| remote.path).collect()))
}

/// Reads a place that several servers may have, as [`remote`] does.
pub(super) fn spread_remote(text: &OsStr, over_ssh: &OverSsh) -> anyhow::Result<SpreadPath> {
    let remote = SpreadPath::parse(text).map_err(|error| Usage(error.to_string()))?;
    servable(remote, over_ssh)
}

/// Refuses before anything is connected what can be no place there.
pub(super) fn servable(remote: SpreadPath, over_ssh: &OverSsh) -> anyhow::Result<SpreadPath> {
    if over_ssh.ssh && remote.hosts.len() > 1 {
        bail!(Usage(
            "--ssh starts a server on one host: name one, or servers that run `headroom serve`"
                .to_owned()
        ));
    }
    if !over_ssh.ssh {
        below_root(&remote.path)?;
    }
    Ok(remote)
}

/// Reads a place, and refuses before anything is connected what can be no path there.
pub(super) fn remote(text: &OsStr, over_ssh: &OverSsh) -> anyhow::Result<RemotePath> {
    let remote = RemotePath::parse(text).map_err(|error| Usage(error.to_string()))?;
    if !over_ssh.ssh {
        below_root(&remote.path)?;
    }
    Ok(remote)
}
