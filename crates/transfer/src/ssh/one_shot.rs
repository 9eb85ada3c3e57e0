//! The far end: a server for one client, started through ssh, whose standard input
//! and output are the connection.

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

/// A server to which nobody is connected ends after so long.
const ALONE: Duration = Duration::from_secs(60);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// One client needs one connection, and another one where its first is dying.
const CONNECTIONS: usize = 4;

/// What is served once, and to whom.
#[derive(Debug, Clone)]
pub struct OneShot {
    /// The client's key.
    pub client: PublicKey,
    /// UDP ports, of which the first that is free is taken.
    pub ports: RangeInclusive<u16>,
    /// Whether this program was sent for this transfer, and removes itself from the
    /// disk before it does anything.
    pub sent: bool,
}

/// What an installed program says that it can do: it is used only where that is
/// what the client says, too.
#[must_use]
pub fn offer() -> String {
    format!("{}/{VERSION}", env!("CARGO_PKG_VERSION"))
}

/// Serves everything that this user may read and write to one client, until
/// standard input ends, or nobody is connected for a minute. Where and as whom is
/// said on standard output.
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
    stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).map_err(|cause| {
        Error::System { doing: "tell the other side where this one listens".to_owned(), cause }
    })?;
    tokio::select! {
        () = server.serve() => {}
        _ = ended => {}
        () = alone(&server) => {}
    }
    server.close().await;
    Ok(())
}

/// The line by which the client learns where to come, and whom to trust there.
fn ready(port: u16, key: PublicKey, home: &std::ffi::OsStr) -> String {
    use std::os::unix::ffi::OsStrExt;
    let home = BASE64.encode(home.as_bytes());
    // what sshd says of the connection (ssh(1), ENVIRONMENT): the third is this host
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
                root: PathBuf::from("/"),
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
    Err(last.unwrap_or_else(|| Error::Usage("no UDP port was named".to_owned())))
}

/// Ends when nobody was connected for a while.
async fn alone(server: &Server) {
    let mut since = tokio::time::Instant::now();
    while since.elapsed() < ALONE {
        tokio::time::sleep(LOOK).await;
        if server.connections() > 0 {
            since = tokio::time::Instant::now();
        }
    }
}

/// Something that happens when standard input has ended: the client has, or ssh.
fn end_of_input() -> tokio::sync::oneshot::Receiver<()> {
    let (end, ended) = tokio::sync::oneshot::channel();
    // nobody waits for this thread, which may never return
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

/// The kernel keeps what runs; its name and the directory made for it go at once, so
/// that they are gone however this ends. Of anything else that lies there, nothing.
fn remove_this_program() {
    if let Ok(program) = std::env::current_exe() {
        let _ = std::fs::remove_file(&program);
        if let Some(directory) = program.parent() {
            let _ = std::fs::remove_dir(directory);
        }
    }
}
