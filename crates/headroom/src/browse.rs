//! `headroom browse`: the lab's client in a browser.

use std::process::ExitCode;

use anyhow::{Context, bail};
use headroom_browser::{LocalFile, Site, Task};

use crate::arguments::{Browse, BrowsedSite};

pub(crate) fn run(arguments: Browse) -> anyhow::Result<ExitCode> {
    let local = match (arguments.output, arguments.upload) {
        (Some(path), None) => LocalFile::Download(path),
        (None, Some(path)) => LocalFile::Upload(path),
        _ => bail!("give either --output or --upload"),
    };
    let site = match arguments.site {
        BrowsedSite::Https => Site::Https,
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
