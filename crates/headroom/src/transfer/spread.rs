//! `headroom put`, `get` and `sync` over several servers of one store, or several lanes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use headroom_mutex::lock;
use headroom_transfer::spread::{Connecting, RANGE_BYTES, Returned, Servers, SpreadObserver};
use headroom_transfer::{
    Client, Error, Event, Host, LaneOptions, MAX_SERVERS, Observer, SpreadPath, Summary,
    SyncOptions, TreeOptions, block_on,
};

use super::arguments::{Get, Moving, OnLanes, Put};
use super::connect::{TrustedConnector, close_after};
use super::moving::fetch;
use super::progress::Progress;

/// Whether a command uses several servers, or several lanes to one.
pub(super) fn is_meant(hosts: &[Host], moving: &Moving, lanes: u8) -> bool {
    hosts.len() > 1 || moving.spread || lanes > 1
}

/// Sends files and directories, or with `is_pipe` standard input.
pub(super) fn put(
    arguments: &Put,
    place: &SpreadPath,
    is_pipe: bool,
    progress: &Arc<Progress>,
) -> anyhow::Result<Result<Summary, Error>> {
    let Put { paths, moving, on_lanes, .. } = arguments;
    let of_requests = OfRequests::new(moving, on_lanes);
    let tree = of_requests.tree;
    of_requests.check()?;
    let (path, fsync) = (&place.path, moving.fsync);
    let done = block_on(async {
        let team = Team::new(of_requests, &place.hosts).await?;
        let servers = team.servers(progress);
        if !is_pipe {
            return servers.put(paths, path, tree, fsync).await;
        }
        // what is lost of it cannot be read again: no other server resumes it
        let mut client = servers.connect_any().await?;
        let done = client.put_stream(std::io::stdin(), path, fsync, progress.clone()).await;
        close_after(client, done).await
    })?;
    Ok(done)
}

/// Fetches files and directories. `into`: whether a single file is written to standard output, or
/// into what is there.
pub(super) fn get(
    arguments: &Get,
    (hosts, from): (&[Host], &[Vec<u8>]),
    into: (bool, bool),
    progress: &Arc<Progress>,
) -> anyhow::Result<Result<Summary, Error>> {
    let Get { to, moving, on_lanes, .. } = arguments;
    let of_requests = OfRequests::new(moving, on_lanes);
    of_requests.check()?;
    let fsync = moving.fsync;
    let done = block_on(async {
        let team = Team::new(of_requests, hosts).await?;
        let servers = team.servers(progress);
        if into == (false, false) {
            return servers.get(from, to, fsync).await;
        }
        // what was written is not written again: no other server resumes it
        let mut client = servers.connect_any().await?;
        let done = fetch(&mut client, from, (to.as_path(), into), fsync, progress).await;
        close_after(client, done).await
    })?;
    Ok(done)
}

/// Makes the content of one directory that of another; `here` is the local one.
pub(super) fn sync(
    moving: &Moving,
    (here, place, upload): (&Path, &SpreadPath, bool),
    options: &SyncOptions,
    progress: &Arc<Progress>,
) -> anyhow::Result<Result<Summary, Error>> {
    let tree = moving.trees.options(false);
    let of_requests = OfRequests { moving, tree, lanes: 1, on_lanes: None };
    let done = block_on(async {
        let team = Team::new(of_requests, &place.hosts).await?;
        let servers = team.servers(progress);
        match upload {
            true => servers.sync_to(here, &place.path, tree, options).await,
            false => servers.sync_from(&place.path, here, options).await,
        }
    })?;
    Ok(done)
}

/// Options of all requests.
#[derive(Clone, Copy)]
struct OfRequests<'a> {
    moving: &'a Moving,
    tree: TreeOptions,
    /// How many lanes lead to each server.
    lanes: u8,
    on_lanes: Option<LaneOptions>,
}

impl<'a> OfRequests<'a> {
    /// Makes those of `put` and `get`.
    fn new(moving: &'a Moving, on_lanes: &OnLanes) -> Self {
        let tree = moving.trees.options(false);
        Self { moving, tree, lanes: on_lanes.lanes, on_lanes: Some(on_lanes.into()) }
    }

    fn check(&self) -> Result<(), Error> {
        self.on_lanes.as_ref().map_or(Ok(()), LaneOptions::check)
    }

    fn set(&self, client: &mut Client) -> Result<(), Error> {
        client.prioritize(self.moving.priority.into());
        client.compress(self.moving.compress.into());
        client.set_tree(self.tree);
        client.set_lanes(!self.moving.streams);
        self.on_lanes.map_or(Ok(()), |options| client.set_lane_options(options))
    }
}

/// Several servers, and how to connect to each.
struct Team<'a> {
    of_requests: OfRequests<'a>,
    members: Vec<Member>,
}

/// One server.
struct Member {
    host: Host,
    /// Its only address, if it is known by that.
    at: Option<SocketAddr>,
    /// Where the last connection led to.
    last: Mutex<Option<SocketAddr>>,
}

impl<'a> Team<'a> {
    /// Makes a team of these hosts, or with `--spread` of all their addresses.
    async fn new(of_requests: OfRequests<'a>, hosts: &[Host]) -> Result<Self, Error> {
        let mut members = Vec::new();
        let mut add = |host: &Host, at: Option<SocketAddr>| {
            members.push(Member { host: host.clone(), at, last: Mutex::new(None) });
        };
        if of_requests.moving.spread {
            let mut known = Vec::new();
            for host in hosts {
                // each anew: hosts may have identities of their own
                let mut connector = connector(of_requests.moving)?;
                connector.introduce(host).await?;
                for address in connector.addresses(host).await? {
                    if !known.contains(&address) {
                        known.push(address);
                        add(host, Some(address));
                    }
                }
            }
        } else {
            hosts.iter().for_each(|host| add(host, None));
        }
        if members.len() > MAX_SERVERS {
            let count = members.len();
            return Err(Error::Usage(format!(
                "there are {count} addresses, and --spread uses at most {MAX_SERVERS}: name some of them, separated by commas"
            )));
        }
        Ok(Self { of_requests, members })
    }

    /// Returns the servers, whose events `progress` shows.
    fn servers(&self, progress: &Arc<Progress>) -> Servers<'_, Watch> {
        let moving = self.of_requests.moving;
        let names = self.members.iter().map(Member::name).collect();
        Servers {
            count: self.members.len(),
            connect: Box::new(move |server: usize, beside: Option<SocketAddr>| {
                Box::pin(self.connect(server, beside)) as Connecting<'_>
            }),
            lanes: usize::from(self.of_requests.lanes),
            retry: moving.retry_or_default(),
            rate_bps: moving.rate,
            range_bytes: RANGE_BYTES,
            observer: Arc::new(Watch { progress: Arc::clone(progress), names }),
        }
    }

    /// Connects to a server; `beside`: where another session with it leads to.
    async fn connect(&self, server: usize, beside: Option<SocketAddr>) -> Result<Client, Error> {
        let Member { host, at, last } = &self.members[server];
        // each time anew: what the user has confirmed for another server is known then
        let connector = connector(self.of_requests.moving)?;
        let mut connector = match at.or(beside) {
            Some(at) => connector.at(at),
            None => connector.lost_at(*lock(last)),
        };
        let mut client = connector.connect(host).await?;
        *lock(last) = Some(client.address());
        self.of_requests.set(&mut client)?;
        Ok(client)
    }
}

impl Member {
    /// Returns how the user knows it.
    fn name(&self) -> String {
        match self.at {
            Some(at) => format!("{} ({})", self.host, at.ip()),
            None => self.host.to_string(),
        }
    }
}

fn connector(moving: &Moving) -> Result<TrustedConnector, Error> {
    TrustedConnector::new(&moving.connect)
        .map_err(|error| error.downcast().unwrap_or_else(|error| Error::Usage(error.to_string())))
}

/// Shows what happens to several servers.
struct Watch {
    progress: Arc<Progress>,
    names: Vec<String>,
}

impl Observer for Watch {
    fn event(&self, event: Event<'_>) {
        self.progress.event(event);
    }
}

impl SpreadObserver for Watch {
    fn connected(&self) {
        self.progress.connected();
    }

    fn lost(&self, server: usize, error: &Error, is_final: bool) {
        self.progress.server_lost(&self.names[server], error, is_final);
    }

    fn returned(&self, returned: Returned) {
        self.progress.returned(&returned);
    }

    fn restarted(&self) {
        self.progress.restarted();
    }
}
