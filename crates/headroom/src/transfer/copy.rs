//! `headroom put`, `get` and `sync`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use headroom_transfer::files::{ErrorKind, Source, SourceKind};
use headroom_transfer::path::shown;
use headroom_transfer::{
    Client, Error, ErrorCode, Event, Excludes, Host, LaneOptions, Observer, RemotePath, Summary,
    SyncOptions, block_on, with_retries,
};
use nix::errno::Errno;

use super::arguments::{Get, Moving, Put, Sync};
use super::connect::{Connector, close_after};
use super::exit::{INTERRUPTED, Usage};
use super::moving::fetch;
use super::progress::Progress;
use super::remotes::{remotes_on_same_servers, servable, spread_remote};
use super::spread;

pub(crate) fn put(arguments: &Put) -> anyhow::Result<ExitCode> {
    let remote = servable(arguments.to.clone(), &arguments.moving.over_ssh)?;
    let Moving { trees, connect, over_ssh, rate, priority, compress, fsync, streams, json, .. } =
        &arguments.moving;
    if let Some(path) = arguments.paths.iter().find(|path| RemotePath::is_meant(path.as_os_str())) {
        bail!(Usage(format!(
            "{} looks like a path on a host: `put` sends files of this machine. Write a file of that name as ./{}",
            path.display(),
            path.display()
        )));
    }
    let is_pipe = arguments.paths.iter().any(|path| is_pipe(path.as_os_str()));
    if is_pipe && arguments.paths.len() > 1 {
        bail!(Usage("`-` must be the only source; write a file of that name as ./-".to_owned()));
    }
    let lane_options = LaneOptions::from(&arguments.on_lanes);
    lane_options.check()?;
    let progress = Progress::new(*json);
    if !is_pipe && none_is_there(&arguments.paths, &progress) {
        return Ok(ExitCode::FAILURE);
    }
    let is_spread = spread::is_meant(&remote.hosts, &arguments.moving, arguments.on_lanes.lanes);
    let verification = arguments.verifying.verification(is_pipe, is_spread, &progress);
    if is_spread {
        interruptible(&progress)?;
        if !is_pipe {
            look_ahead(Source::new(arguments.paths.clone(), trees.options(false).links), &progress);
        }
        let summary = spread::put(arguments, &remote, is_pipe, &progress)?;
        return ended(&progress, summary);
    }
    let mut connector = Connector::new(connect, over_ssh)?;
    interruptible(&progress)?;
    let summary = block_on(arguments.moving.persist(
        &progress,
        &mut connector,
        &remote.hosts[0],
        async |mut client| {
            client.limit(*rate);
            client.prioritize((*priority).into());
            client.compress((*compress).into());
            client.set_tree(trees.options(over_ssh.ssh));
            client.set_verification(verification);
            progress.connected();
            client.set_lanes(!streams);
            client.set_lane_options(lane_options)?;
            if !is_pipe {
                let links = trees.options(over_ssh.ssh).links;
                look_ahead(Source::new(arguments.paths.clone(), links), &progress);
            }
            let observer = progress.clone();
            let summary = match is_pipe {
                true => client.put_stream(std::io::stdin(), &remote.path, *fsync, observer).await,
                false => client.put(&arguments.paths, &remote.path, *fsync, observer).await,
            };
            if summary.is_ok() {
                progress.done();
            }
            close_after(client, summary).await
        },
    ))?;
    ended(&progress, summary)
}

pub(crate) fn get(arguments: &Get) -> anyhow::Result<ExitCode> {
    let (hosts, from) = remotes_on_same_servers(&arguments.from, &arguments.moving.over_ssh)?;
    let Moving { trees, connect, over_ssh, rate, priority, compress, fsync, streams, json, .. } =
        &arguments.moving;
    let is_pipe = is_pipe(arguments.to.as_os_str()) || is_stdout(&arguments.to);
    let is_written_into = is_written_into(&arguments.to);
    if is_pipe && (from.len() > 1 || *json) {
        bail!(Usage("`-` is for one file, and not with --json".to_owned()));
    }
    let lane_options = LaneOptions::from(&arguments.on_lanes);
    lane_options.check()?;
    let into = (is_pipe, is_written_into);
    let progress = Progress::new(*json);
    let is_spread = spread::is_meant(&hosts, &arguments.moving, arguments.on_lanes.lanes);
    let is_stream = is_pipe || is_written_into;
    let verification = arguments.verifying.verification(is_stream, is_spread, &progress);
    if is_spread {
        interruptible(&progress)?;
        let summary = spread::get(arguments, (&hosts, &from), into, &progress)?;
        return ended(&progress, summary);
    }
    let mut connector = Connector::new(connect, over_ssh)?;
    interruptible(&progress)?;
    let summary = block_on(arguments.moving.persist(
        &progress,
        &mut connector,
        &hosts[0],
        async |mut client| {
            client.limit(*rate);
            client.prioritize((*priority).into());
            client.compress((*compress).into());
            client.set_tree(trees.options(false));
            client.set_verification(verification);
            progress.connected();
            client.set_lanes(!streams);
            client.set_lane_options(lane_options)?;
            let to = (&*arguments.to, into);
            let summary = fetch(&mut client, &from, to, *fsync, &progress).await;
            if summary.is_ok() {
                progress.done();
            }
            close_after(client, summary).await
        },
    ))?;
    ended(&progress, summary)
}

pub(crate) fn sync(arguments: &Sync) -> anyhow::Result<ExitCode> {
    let Sync { from, to, delete, exclude, dry_run, checksum, delta, moving } = arguments;
    let (upload, remote) = match (RemotePath::is_meant(from), RemotePath::is_meant(to)) {
        (false, true) => (true, spread_remote(to, &moving.over_ssh)?),
        (true, false) => (false, spread_remote(from, &moving.over_ssh)?),
        _ => bail!(Usage(
            "one of the two directories must be on a host, HOST[:PORT]:PATH, and one here. Write a local name with a colon as ./NAME"
                .to_owned()
        )),
    };
    let excludes = Excludes::new(exclude.clone()).map_err(|bad| Usage(bad.to_string()))?;
    let Moving { trees, connect, over_ssh, rate, priority, compress, fsync, streams, json, .. } =
        moving;
    let options = SyncOptions {
        delete: *delete,
        dry_run: *dry_run,
        checksum: *checksum,
        delta: (*delta).into(),
        fsync: *fsync,
        excludes,
    };
    if upload && !Path::new(from).is_dir() {
        bail!(Usage(format!(
            "{} is not a directory: `sync` is for directories, `put` sends files",
            Path::new(from).display()
        )));
    }
    if spread::is_meant(&remote.hosts, moving, 1) {
        let progress = Progress::of_sync(*json, *dry_run);
        interruptible(&progress)?;
        let here = Path::new(if upload { from } else { to });
        let summary = spread::sync(moving, (here, &remote, upload), &options, &progress)?;
        return ended(&progress, summary);
    }
    let mut connector = Connector::new(connect, over_ssh)?;
    let progress = Progress::of_sync(*json, *dry_run);
    interruptible(&progress)?;
    let host = &remote.hosts[0];
    let summary = block_on(moving.persist(&progress, &mut connector, host, async |mut client| {
        client.limit(*rate);
        client.prioritize((*priority).into());
        client.compress((*compress).into());
        client.set_tree(trees.options(upload && over_ssh.ssh));
        client.set_lanes(!streams);
        progress.connected();
        let observer = progress.clone();
        let summary = match upload {
            true => client.sync_to(from.as_ref(), &remote.path, &options, observer).await,
            false => client.sync_from(&remote.path, to.as_ref(), &options, observer).await,
        };
        if summary.is_ok() {
            progress.done();
        }
        close_after(client, summary).await
    }))?;
    ended(&progress, summary)
}

impl Moving {
    /// Connects and transfers, again when the connection is lost and `--retry` allows it.
    async fn persist(
        &self,
        progress: &Progress,
        connector: &mut Connector,
        host: &Host,
        transfer: impl AsyncFnMut(Client) -> Result<Summary, Error>,
    ) -> Result<Summary, Error> {
        let retry = self.retry_or_default();
        let lost = |error: &Error| progress.reconnecting(error);
        with_retries(retry, lost, async || connector.connect(host).await, transfer).await
    }
}

/// Whether standard input or output is meant.
fn is_pipe(text: &OsStr) -> bool {
    text == "-"
}

/// Whether a path is that of this program's own standard output, which may be a file.
fn is_stdout(path: &Path) -> bool {
    ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Whether a file that comes is written into what has the name, and does not replace it: a
/// character device, a named pipe, or an open file of this program.
fn is_written_into(path: &Path) -> bool {
    let is_open = path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd");
    let is_special =
        |meta: std::fs::Metadata| meta.file_type().is_char_device() || meta.file_type().is_fifo();
    path == Path::new("/dev/stderr")
        || is_open && !path.is_dir()
        || std::fs::metadata(path).is_ok_and(is_special)
}

/// Whether nothing of what is to be sent is here, which is told: nobody need be reached to
/// know that. Where only some of it is missing, the rest is sent.
fn none_is_there(paths: &[PathBuf], progress: &Progress) -> bool {
    let looked = paths.iter().map(|path| path.symlink_metadata().err().map(|error| (path, error)));
    let Some(missing) = looked.collect::<Option<Vec<_>>>() else { return false };
    for (path, error) in missing {
        let path = shown(path.as_os_str().as_bytes());
        let why = error.raw_os_error().map_or_else(
            || error.to_string(),
            |code| ErrorKind::from(Errno::from_raw(code)).to_string(),
        );
        let code = (error.kind() == std::io::ErrorKind::NotFound).then_some(ErrorCode::NOT_FOUND);
        progress.event(Event::Failed { reason: &format!("{path} cannot be sent: {why}"), code });
    }
    true
}

/// Counts what is to be sent while it is being sent, where somebody sees how far that is.
fn look_ahead(source: Source, progress: &Arc<Progress>) {
    if !progress.is_shown() {
        return;
    }
    let progress = Arc::clone(progress);
    std::thread::spawn(move || {
        let sizes = source.flatten().map(|found| match found.kind {
            SourceKind::File(file) => file.metadata().size,
            _ => 0,
        });
        progress.expect(sizes.sum());
    });
}

/// Ctrl-C ends the program; what has arrived stays where it is.
fn interruptible(progress: &std::sync::Arc<Progress>) -> anyhow::Result<()> {
    let progress = std::sync::Arc::clone(progress);
    let interrupted = move || {
        progress.clear();
        eprintln!("headroom: interrupted. Repeat the command to resume");
        std::process::exit(INTERRUPTED);
    };
    ctrlc::set_handler(interrupted).context("cannot wait for Ctrl-C")
}

fn ended(progress: &Progress, summary: Result<Summary, Error>) -> anyhow::Result<ExitCode> {
    match summary {
        Ok(summary) => {
            progress.end(summary);
            Ok(if summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            progress.clear();
            Err(error.into())
        }
    }
}
