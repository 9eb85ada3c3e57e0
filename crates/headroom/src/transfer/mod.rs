//! `headroom serve`, `put`, `get`, `sync`, `ls`, `identity` and `trust`: files between hosts.

mod arguments;
mod connect;
mod frame;
mod hosts;
mod ls;
mod names;
mod progress;
mod remote;
mod request_log;
mod settings;

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use headroom_gateway::control::notify;
use headroom_transfer::client::below_root;
use headroom_transfer::files::{Kind, Root, Source, Why};
use headroom_transfer::path::shown;
use headroom_transfer::server::{Limits, Named, Options};
use headroom_transfer::trust::{AuthorizedKeys, Followed, Gate};
use headroom_transfer::{
    Client, DEFAULT_PORT, Error, Event, Excludes, Host, LaneWishes, Observer, Place, Retry, Server,
    Summary, SyncOptions, block_on, with_retries,
};
use nix::errno::Errno;
use serde_json::json;

pub(crate) use arguments::{
    EXIT_CODES, Get, Identity, Ls, Mkdir, Mv, Put, Rm, Serve, ServeOnce, Sync, Trust,
};
use arguments::{IdentityCommand, Moving, OverSsh};
use connect::{Connector, Known};
use progress::Progress;
pub(crate) use remote::{mkdir, mv, rm};
use request_log::RequestLog;

use crate::tunnel::say;

/// A wrong word on the command line.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl Usage {
    /// The exit code of wrong arguments.
    pub(crate) const fn exit_code(&self) -> u8 {
        2
    }
}

/// The exit code of a transfer that failed as a whole.
pub(crate) const fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Trust(_) | Error::Usage(_) => 2,
        Error::Unreachable { .. }
        | Error::Lost(_)
        | Error::Superseded
        | Error::Cut(_)
        | Error::Protocol(_) => 3,
        Error::UnknownHost { .. } | Error::ChangedHost { .. } | Error::NotTrusted { .. } => 4,
        Error::Refused(_) => 5,
        Error::Identity(_) | Error::Files(_) | Error::OnServer(_) | Error::System { .. } => 1,
    }
}

/// The exit code of a program that was interrupted.
const INTERRUPTED: i32 = 130;

pub(crate) fn serve(arguments: &Serve) -> anyhow::Result<ExitCode> {
    let identity = settings::identity(arguments.identity.as_deref())?;
    let (gate, followed) = gate(arguments)?;
    let log = Arc::new(RequestLog::open(arguments.log.as_deref(), arguments.log_format)?);
    block_on(async {
        let options = |listen| Options {
            root: arguments.root.clone(),
            listen,
            gate: gate.clone(),
            limits: Limits::default(),
            named: Named::Below,
            rate_bps: arguments.rate,
            lanes: !arguments.streams,
            lane_ports: arguments.lane_ports.clone(),
            allow: arguments.allowed(),
            insecure_measurement: arguments.insecure_measurement,
            log: Some(log.clone()),
        };
        let any = |address| SocketAddr::new(address, DEFAULT_PORT);
        let server = match arguments.listen {
            Some(listen) => Server::bind(&identity, options(listen))?,
            // where there is no IPv6
            None => Server::bind(&identity, options(any(Ipv6Addr::UNSPECIFIED.into())))
                .or_else(|_| Server::bind(&identity, options(any(Ipv4Addr::UNSPECIFIED.into()))))?,
        };
        let stopping = server.clone();
        ctrlc::set_handler(move || stopping.stop()).context("cannot wait for Ctrl-C")?;
        let (address, fingerprint) = (server.address()?, identity.public().fingerprint());
        if arguments.insecure_measurement {
            eprintln!(
                "headroom: INSECURE: with --insecure-measurement, clients that ask for it send and fetch files WITHOUT \
                 ENCRYPTION. This is for measurement: stop this server when you are done"
            );
        }
        if arguments.json {
            let key = identity.public().to_string();
            say(&json!({"event": "listening", "address": address.to_string(), "fingerprint": fingerprint.to_string(), "key": key, "insecure_measurement": arguments.insecure_measurement}).to_string());
        } else {
            say(&format!(
                "serving {} at UDP {address}, as {fingerprint}",
                arguments.root.display()
            ));
        }
        if let Some(age) = arguments.keep_partial.0 {
            server.remove_unfinished(age);
        }
        notify::tell(notify::News::Ready);
        match followed {
            Some(file) => server.serve_following(file, gate.clone()).await,
            None => server.serve().await,
        }
        notify::tell(notify::News::Stopping);
        server.close().await;
        Ok(ExitCode::SUCCESS)
    })?
}

/// The far end of `--ssh`, which has a pipe for a client.
pub(crate) fn serve_once(arguments: &ServeOnce) -> anyhow::Result<ExitCode> {
    let ServeOnce { offer, client, ports, sent } = arguments;
    if *offer {
        say(&headroom_transfer::ssh::offer());
        return Ok(ExitCode::SUCCESS);
    }
    let client = format!("headroom-ed25519 {}", client.as_deref().unwrap_or_default());
    let client = client.parse().map_err(|error| Usage(format!("{error}")))?;
    let ports = ports.as_deref().and_then(|ports| {
        let (first, last) = ports.split_once('-')?;
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    let ports = ports.ok_or_else(|| Usage("--ports is written 4860-4879".to_owned()))?;
    let once = headroom_transfer::ssh::Once { client, ports, sent: *sent };
    block_on(headroom_transfer::ssh::serve_once(&once))??;
    Ok(ExitCode::SUCCESS)
}

/// Who comes in, by what was said and by the user's settings, and the file that may
/// say otherwise later.
fn gate(arguments: &Serve) -> anyhow::Result<(Gate, Option<Followed>)> {
    let authority = settings::authority(arguments.ca.as_deref())?;
    let anonymous_read = arguments.anonymous.is_some();
    let path = settings::file_or(arguments.authorized_keys.as_deref(), "authorized_keys");
    let named = arguments.authorized_keys.is_some();
    let followed = path.as_ref().ok().map(|path| Followed::new(path));
    let keys = match path {
        Ok(path) if named || path.exists() => AuthorizedKeys::read(&path).map_err(Error::from)?,
        _ => AuthorizedKeys::default(),
    };
    let keys = match &followed {
        Some(file) => {
            let root = Root::open(&arguments.root).map_err(Error::from)?;
            let (keys, wrong) = keys.with_roots_below(&root, file.path());
            wrong.into_iter().next().map_or(Ok(keys), |wrong| Err(Error::from(wrong)))?
        }
        None => keys,
    };
    if keys.is_empty() && authority.is_none() && !anonymous_read {
        bail!(Usage(
            "nobody could come in: put the keys of those who may, as their `headroom identity show` prints them, into \
             ~/.config/headroom/authorized_keys or a file for --authorized-keys, or say --anonymous read"
                .to_owned()
        ));
    }
    Ok((Gate { keys, authority, anonymous_read }, followed))
}

pub(crate) fn put(arguments: &Put) -> anyhow::Result<ExitCode> {
    let place = place(&arguments.to, &arguments.moving.over_ssh)?;
    let Moving { trees, connect, over_ssh, rate, compress, fsync, streams, json, .. } =
        &arguments.moving;
    if let Some(path) = arguments.paths.iter().find(|path| Place::is_meant(path.as_os_str())) {
        bail!(Usage(format!(
            "{} looks like a place on a host: `put` sends files of this machine. One that is called so is written ./{}",
            path.display(),
            path.display()
        )));
    }
    let is_pipe = arguments.paths.iter().any(|path| is_pipe(path.as_os_str()));
    if is_pipe && arguments.paths.len() > 1 {
        bail!(Usage("`-` is sent alone; a file that is called so is written ./-".to_owned()));
    }
    let wishes = LaneWishes::from(&arguments.on_lanes);
    wishes.check()?;
    let progress = Progress::new(*json);
    if !is_pipe && none_is_there(&arguments.paths, &progress) {
        return Ok(ExitCode::FAILURE);
    }
    let mut connector = Connector::new(connect, over_ssh)?;
    interruptible(&progress)?;
    let summary = block_on(arguments.moving.persist(
        &progress,
        &mut connector,
        &place.host,
        async |mut client| {
            client.limit(*rate);
            client.compress((*compress).into());
            client.set_tree(trees.options(over_ssh.ssh));
            progress.connected();
            client.set_lanes(!streams);
            client.wish(wishes)?;
            if !is_pipe {
                let links = trees.options(over_ssh.ssh).links;
                look_ahead(Source::new(arguments.paths.clone(), links), &progress);
            }
            let observer = progress.clone();
            let summary = match is_pipe {
                true => client.put_stream(std::io::stdin(), &place.path, *fsync, observer).await?,
                false => client.put(&arguments.paths, &place.path, *fsync, observer).await?,
            };
            progress.done();
            client.close().await;
            Ok::<_, Error>(summary)
        },
    ))?;
    ended(&progress, summary)
}

pub(crate) fn get(arguments: &Get) -> anyhow::Result<ExitCode> {
    if Place::is_meant(arguments.to.as_os_str()) {
        bail!(Usage(format!(
            "{} looks like a place on a host: `get` fetches to this machine, `put` sends from it",
            arguments.to.display()
        )));
    }
    let (host, from) = places_on_one_host(&arguments.from, &arguments.moving.over_ssh)?;
    let Moving { trees, connect, over_ssh, rate, compress, fsync, streams, json, .. } =
        &arguments.moving;
    let is_pipe = is_pipe(arguments.to.as_os_str()) || is_stdout(&arguments.to);
    let is_written_into = is_written_into(&arguments.to);
    if is_pipe && (from.len() > 1 || *json) {
        bail!(Usage("one file is written to `-`, and no JSON beside it".to_owned()));
    }
    let wishes = LaneWishes::from(&arguments.on_lanes);
    wishes.check()?;
    let mut connector = Connector::new(connect, over_ssh)?;
    let progress = Progress::new(*json);
    interruptible(&progress)?;
    let summary = block_on(arguments.moving.persist(
        &progress,
        &mut connector,
        &host,
        async |mut client| {
            client.limit(*rate);
            client.compress((*compress).into());
            client.set_tree(trees.options(false));
            progress.connected();
            client.set_lanes(!streams);
            client.wish(wishes)?;
            let observer = progress.clone();
            let mut matching = Vec::new();
            for path in &from {
                matching.extend(client.matching(path).await?);
            }
            let from = matching;
            let summary = match from.as_slice() {
                [from] if is_pipe => client.get_stream(from, std::io::stdout(), observer).await?,
                [from] if is_written_into => {
                    let to = open_for_writing(&arguments.to)?;
                    client.get_stream(from, to, observer).await?
                }
                _ => client.get(&from, &arguments.to, *fsync, observer).await?,
            };
            progress.done();
            client.close().await;
            Ok::<_, Error>(summary)
        },
    ))?;
    ended(&progress, summary)
}

pub(crate) fn sync(arguments: &Sync) -> anyhow::Result<ExitCode> {
    let Sync { from, to, delete, exclude, dry_run, checksum, moving } = arguments;
    let (upload, remote) = match (Place::is_meant(from), Place::is_meant(to)) {
        (false, true) => (true, place(to, &moving.over_ssh)?),
        (true, false) => (false, place(from, &moving.over_ssh)?),
        _ => bail!(Usage(
            "of the two directories, one is here and one is HOST[:PORT]:PATH. One of this machine whose name has a \
             colon is written ./NAME"
                .to_owned()
        )),
    };
    let excludes = Excludes::new(exclude.clone()).map_err(|bad| Usage(bad.to_string()))?;
    let Moving { trees, connect, over_ssh, rate, compress, fsync, streams, json, .. } = moving;
    let options = SyncOptions {
        delete: *delete,
        dry_run: *dry_run,
        checksum: *checksum,
        fsync: *fsync,
        excludes,
    };
    if upload && !Path::new(from).is_dir() {
        bail!(Usage(format!(
            "{} is no directory: `sync` makes one directory like another, `put` sends files",
            Path::new(from).display()
        )));
    }
    let mut connector = Connector::new(connect, over_ssh)?;
    let progress = Progress::of_sync(*json, *dry_run);
    interruptible(&progress)?;
    let summary =
        block_on(moving.persist(&progress, &mut connector, &remote.host, async |mut client| {
            client.limit(*rate);
            client.compress((*compress).into());
            client.set_tree(trees.options(upload && over_ssh.ssh));
            client.set_lanes(!streams);
            progress.connected();
            let observer = progress.clone();
            let summary = match upload {
                true => client.sync_to(from.as_ref(), &remote.path, &options, observer).await?,
                false => client.sync_from(&remote.path, to.as_ref(), &options, observer).await?,
            };
            progress.done();
            client.close().await;
            Ok::<_, Error>(summary)
        }))?;
    ended(&progress, summary)
}

pub(crate) fn ls(arguments: &Ls) -> anyhow::Result<ExitCode> {
    let place = place(&arguments.place, &arguments.over_ssh)?;
    let mut connector = Connector::new(&arguments.connect, &arguments.over_ssh)?;
    block_on(async {
        let mut client = connector.connect(&place.host).await?;
        let show = |listed| {
            say(&match arguments.json {
                true => ls::json(&listed),
                false => ls::line(&listed, arguments.long),
            });
        };
        client.list(&place.path, show).await?;
        client.close().await;
        Ok::<_, Error>(())
    })??;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn identity(arguments: &Identity) -> anyhow::Result<ExitCode> {
    let path = settings::file_or(arguments.identity.as_deref(), "identity")?;
    let identity = match arguments.what {
        Some(IdentityCommand::New) => headroom_transfer::Identity::create(&path),
        Some(IdentityCommand::Show) | None => headroom_transfer::Identity::read_or_create(&path),
    };
    let key = identity.map_err(Error::from)?.public();
    say(&format!("{key}\n{}", key.fingerprint()));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn trust(arguments: &Trust) -> anyhow::Result<ExitCode> {
    let host = Host::parse(&arguments.host).map_err(|error| Usage(error.to_string()))?;
    let mut connector = Known::new(&arguments.connect)?.quiet();
    let key = block_on(async {
        let client = connector.connect(&host).await?;
        let key = client.key();
        client.close().await;
        Ok::<_, Error>(key)
    })??;
    let shown = key.map_or_else(|| "a key".to_owned(), |key| key.fingerprint().to_string());
    say(&format!("{host} is trusted, with {shown}"));
    Ok(ExitCode::SUCCESS)
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
        let at_terminal = std::io::stderr().is_terminal() && !self.json;
        let default = if at_terminal { Retry::Forever } else { Retry::Never };
        let retry = self.retry.unwrap_or(default);
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

fn open_for_writing(path: &Path) -> Result<std::fs::File, Error> {
    std::fs::File::options()
        .write(true)
        .open(path)
        .map_err(|cause| Error::System { doing: format!("write to {}", path.display()), cause })
}

/// Reads places that are all on one host.
fn places_on_one_host(
    texts: &[std::ffi::OsString],
    over_ssh: &OverSsh,
) -> anyhow::Result<(Host, Vec<Vec<u8>>)> {
    let places = texts.iter().map(|text| place(text, over_ssh));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    let Some(host) = places.first().map(|place| place.host.clone()) else {
        bail!(Usage("no place on a host is named".to_owned()));
    };
    if places.iter().any(|place| place.host != host) {
        bail!(Usage("one command is about one host".to_owned()));
    }
    Ok((host, places.into_iter().map(|place| place.path).collect()))
}

/// Reads a place, and refuses before anything is connected what can be no path there.
fn place(text: &OsStr, over_ssh: &OverSsh) -> anyhow::Result<Place> {
    let place = Place::parse(text).map_err(|error| Usage(error.to_string()))?;
    if !over_ssh.ssh {
        below_root(&place.path)?;
    }
    Ok(place)
}

/// Whether nothing of what is to be sent is here, which is told: nobody need be reached to
/// know that. Where only some of it is missing, the rest is sent.
fn none_is_there(paths: &[PathBuf], progress: &Progress) -> bool {
    let looked = paths.iter().map(|path| path.symlink_metadata().err().map(|error| (path, error)));
    let Some(missing) = looked.collect::<Option<Vec<_>>>() else { return false };
    for (path, error) in missing {
        let path = shown(path.as_os_str().as_bytes());
        let why = error
            .raw_os_error()
            .map_or_else(|| error.to_string(), |code| Why::from(Errno::from_raw(code)).to_string());
        progress.event(Event::Failed { reason: &format!("{path} cannot be sent: {why}") });
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
            Kind::File(file) => file.seen().size,
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
        eprintln!(
            "headroom: interrupted. What has arrived stays: the same command goes on from there"
        );
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
