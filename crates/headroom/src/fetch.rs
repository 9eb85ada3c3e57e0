//! `headroom fetch`: the lab's FTP and HTTP client as a process.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use headroom_fetch::{LocalFile, Options, Request};

use crate::arguments::Fetch;

pub(crate) fn run(arguments: Fetch) -> anyhow::Result<ExitCode> {
    let requests = match (&arguments.url, &arguments.output, &arguments.upload, &arguments.list) {
        (Some(url), Some(path), None, None) => {
            vec![Request { url: url.clone(), file: LocalFile::Download(path.clone()) }]
        }
        (Some(url), None, Some(path), None) => {
            vec![Request { url: url.clone(), file: LocalFile::Upload(path.clone()) }]
        }
        (None, Some(folder), None, Some(list)) => listed(list, folder)?,
        _ => bail!("give a URL with --output or --upload, or --list with --output"),
    };
    let options = Options {
        ca: arguments.ca,
        tls13_cipher: arguments.tls13_cipher,
        tls12_cipher: arguments.tls12_cipher,
        tls_groups: arguments.tls_groups,
        user: arguments.user,
        http2: arguments.http2,
    };
    let report = headroom_fetch::run(&requests, &options);
    println!("{}", serde_json::to_string(&report)?);
    Ok(if report.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Each URL of the list goes to the file of its last part's name.
fn listed(list: &Path, folder: &Path) -> anyhow::Result<Vec<Request>> {
    let text =
        std::fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    text.lines()
        .map(|url| {
            let name = url.rsplit('/').next().filter(|name| !name.is_empty());
            let name = name.with_context(|| format!("the URL {url} names no file"))?;
            Ok(Request { url: url.to_owned(), file: LocalFile::Download(folder.join(name)) })
        })
        .collect()
}
