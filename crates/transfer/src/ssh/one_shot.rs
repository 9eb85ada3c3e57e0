//! The server that ssh starts: for one client, with standard input and output as the
//! connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use data_encoding::BASE64;
use headroom_transfer_proto::message::VERSION;

use super::script::WORD;
use crate::error::Error;
use crate::identity::Identity;
use crate::key::PublicKey;
use crate::server::{Allow, Limits, Options, PathPolicy, Server};
use crate::trust::{Access, AccessPolicy, AuthorizedKeys};

/// How long a server without connections stays.
const ALONE: Duration = Duration::from_secs(60);
/// How often to check that.
const LOOK: Duration = Duration::from_secs(1);
/// One client needs one connection, and another while its first one is dying.
const CONNECTIONS: usize = 4;

/// The parameters of such a server.
#[derive(Debug, Clone)]
pub struct OneShot {
    /// The client's key.
    pub client: PublicKey,
    /// UDP ports to try; the first free one is used.
    pub ports: RangeInclusive<u16>,
    /// Whether this program was sent for this transfer, and must delete itself before anything
    /// else.
    pub sent: bool,
}

/// Returns version and protocol of this program. An installed program is used only if they are
/// the client's.
#[must_use]
pub fn offer() -> String {
    format!("{}/{VERSION}", env!("CARGO_PKG_VERSION"))
}

/// Serves everything that this user may read and write to one client, until standard input
/// ends, or without a connection for a minute. Prints where it listens, and its key, on
/// standard output.
///
/// # Errors
/// No port is free, or there is no home.
pub async fn serve_once(once: &OneShot) -> Result<(), Error> {
    if once.sent {
        remove_this_program();
    }
    let ended = end_of_input();
    let identity = Identity::ephemeral()?;
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let (server, port) = bind(&identity, once)?;
    let line = ready(port, identity.public(), home.as_os_str());
    let mut stdout = io::stdout();
    stdout
        .write_all(line.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|cause| Error::System { doing: "report the listening port".to_owned(), cause })?;
    tokio::select! {
        () = server.serve() => {}
        _ = ended => {}
        () = alone(&server) => {}
    }
    server.close().await;
    Ok(())
}

/// Makes the line that tells the client where to connect, and which key to trust.
fn ready(port: u16, key: PublicKey, home: &std::ffi::OsStr) -> String {
    use std::os::unix::ffi::OsStrExt;
    let home = BASE64.encode(home.as_bytes());
    // set by sshd (ssh(1), ENVIRONMENT): the third word is this host
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let address = connection.split(' ').nth(2).unwrap_or_default();
    format!("{WORD} ready {} {port} {home} {key} {address}\n", offer())
}

fn bind(identity: &Identity, once: &OneShot) -> Result<(Server, u16), Error> {
    let mut last = None;
    for port in once.ports.clone() {
        for any in [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()] {
            let mut keys = AuthorizedKeys::default();
            keys.insert(once.client, Access::default());
            let options = Options {
                root: PathBuf::from("/").into(),
                listen: SocketAddr::new(any, port),
                policy: AccessPolicy { keys, ..AccessPolicy::default() },
                limits: Limits { connections: CONNECTIONS, ..Limits::default() },
                paths: PathPolicy::FollowLinks,
                allow: Allow::ALL,
                rate_bps: None,
                lanes: true,
                lane_ports: None,
                insecure_measurement: false,
                log: None,
            };
            match Server::bind(identity, options) {
                Ok(server) => {
                    let port = server.address()?.port();
                    return Ok((server, port));
                }
                Err(error) => last = Some(error),
            }
        }
    }
    Err(last.unwrap_or_else(|| Error::Usage("no UDP port was given".to_owned())))
}

/// Returns when there was no connection for a while.
async fn alone(server: &Server) {
    let mut since = tokio::time::Instant::now();
    while since.elapsed() < ALONE {
        tokio::time::sleep(LOOK).await;
        if server.connections() > 0 {
            since = tokio::time::Instant::now();
        }
    }
}

/// Signals the end of standard input: the client or ssh has ended.
fn end_of_input() -> tokio::sync::oneshot::Receiver<()> {
    let (end, ended) = tokio::sync::oneshot::channel();
    // this thread is not waited for, and may never return
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut nothing = [0; 256];
        loop {
            match stdin.read(&mut nothing) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                _ => {}
            }
        }
        let _ = end.send(());
    });
    ended
}

/// Deletes this program and its directory at once, so that they are gone however this ends: the
/// kernel keeps the running program. Other files in the directory stay.
fn remove_this_program() {
    if let Ok(program) = std::env::current_exe() {
        let _ = std::fs::remove_file(&program);
        if let Some(directory) = program.parent() {
            let _ = std::fs::remove_dir(directory);
        }
    }
}
