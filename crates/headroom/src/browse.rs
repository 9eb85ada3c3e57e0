//! `headroom browse`, the lab's client in a browser, and `headroom browse-peer`, the other end of
//! its data channels.

use std::process::ExitCode;

use anyhow::{Context, bail};
use headroom_browser::{LocalFile, Peer, Site, Task};

use crate::arguments::{Browse, BrowsePeer, BrowsedSite};

pub(crate) fn run(arguments: Browse) -> anyhow::Result<ExitCode> {
    let local = match (arguments.output, arguments.upload) {
        (Some(path), None) => LocalFile::Download(path),
        (None, Some(path)) => LocalFile::Upload(path),
        _ => bail!("give either --output or --upload"),
    };
    let site = match arguments.site {
        BrowsedSite::Https => Site::Https,
        BrowsedSite::Webrtc => Site::WebRtc,
        BrowsedSite::Headroom => {
            let identity = arguments.identity.context("--site headroom needs --identity")?;
            Site::Headroom { identity }
        }
    };
    let report = headroom_browser::run(&Task {
        chromium: arguments.chromium,
        folder: arguments.folder,
        url: arguments.url,
        site,
        remote: arguments.remote,
        local,
    });
    println!("{}", serde_json::to_string(&report)?);
    Ok(if report.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn serve(arguments: BrowsePeer) -> anyhow::Result<ExitCode> {
    let BrowsePeer { listen, root, chromium, folder } = arguments;
    let never = headroom_browser::serve(&Peer { chromium, folder, root, listen })?;
    match never {}
}
