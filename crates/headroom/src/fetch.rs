//! `headroom fetch`: the lab's FTP and HTTP client as a process.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use headroom_fetch::{LocalFile, Options, Request, Resumption};
use headroom_lab_trace::READY;

use crate::arguments::{Fetch, TlsResumption};

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
        resumption: match arguments.tls_resumption {
            None => Resumption::Off,
            Some(TlsResumption::DataConnections) => Resumption::DataConnections,
            Some(TlsResumption::Session) => Resumption::Session,
        },
    };
    let report = headroom_fetch::run(&requests, &options, wait_for_start);
    println!("{}", serde_json::to_string(&report)?);
    Ok(if report.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reports that all is ready, and returns when a line on standard input asks for the transfer.
fn wait_for_start() -> io::Result<()> {
    println!("{READY}");
    match io::stdin().read_line(&mut String::new())? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
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
