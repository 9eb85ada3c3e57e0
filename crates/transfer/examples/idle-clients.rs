//! So many clients of one server, from one process, that do nothing:
//! `idle-clients HOST:PORT COUNT IDENTITY KNOWN_HOSTS`. Each connects, looks what is
//! there, and stays. When all are there it says so, and waits for the end of its input.
//! Each has a socket: `ulimit -n` must allow them.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;

use headroom_transfer::client::Trust;
use headroom_transfer::trust::KnownHosts;
use headroom_transfer::{Client, Host, Identity, block_on};
use tokio::task::JoinSet;

/// Handshakes at once: what a server lets one address have, and fewer.
const AT_ONCE: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, count, identity, known_hosts] = arguments.as_slice() else {
        return Err("idle-clients HOST:PORT COUNT IDENTITY KNOWN_HOSTS".into());
    };
    let address: std::net::SocketAddr = address.parse()?;
    let count = count.parse()?;
    let identity = Arc::new(Identity::read(identity.as_ref())?);
    let hosts = Arc::new(KnownHosts::read(known_hosts.as_ref())?);
    block_on(async move {
        let (mut coming, mut clients) = (JoinSet::new(), Vec::new());
        for _ in 0..count {
            if coming.len() >= AT_ONCE
                && let Some(client) = coming.join_next().await
            {
                clients.push(client??);
            }
            let (identity, hosts) = (Arc::clone(&identity), Arc::clone(&hosts));
            let host = Host::new(&address.ip().to_string(), address.port());
            coming.spawn(async move {
                let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
                let mut client = Client::connect(&host, &identity, trust).await?;
                client.list(b"", |_| {}).await?;
                Ok::<_, headroom_transfer::Error>(client)
            });
        }
        while let Some(client) = coming.join_next().await {
            clients.push(client??);
        }
        println!("{} clients are there", clients.len());
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        Ok(())
    })?
}
