//! What a process opens of a job's two ends, and how it connects to their servers.
//!
//! A folder or a store is opened here; a server is at the other end of a connection. Where a job
//! has no server, the process serves the destination to itself ([`own_server`]), so that the same
//! code copies and compares; for ranges of large files also the source. Where it has two, a folder
//! for temporary files is between them ([`spool`]).

mod own_server;
mod spool;

use std::io;
use std::path::PathBuf;

use headroom_transfer::files::{Requests, Root, StoreOptions};
use headroom_transfer::path::RelPath;
use headroom_transfer::{Client, Error as TransferError, Host};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

pub(crate) use self::own_server::OwnServer;
pub(crate) use self::spool::{Scratch, Spool};
use crate::engine::Item;
use crate::job::{Direction, Tree};

/// A tree that this process reads or writes by itself.
#[derive(Debug, Clone)]
pub(crate) enum OpenTree {
    /// A directory, which is opened again for each use: its disk may not be mounted any longer.
    Folder(PathBuf),
    /// What is below a prefix of a store.
    Store(Root),
}

impl OpenTree {
    async fn open(tree: &Tree) -> Result<Self, TransferError> {
        match tree {
            Tree::Folder(path) => Ok(Self::Folder(path.clone())),
            Tree::Store(url) => {
                let (url, runtime) = (url.clone(), Handle::current());
                let open = move || Root::open_store(&url, &StoreOptions::default(), runtime);
                Ok(Self::Store(blocking(open).await??))
            }
        }
    }

    /// Returns the root for a request.
    pub(crate) async fn root(&self) -> Result<Root, TransferError> {
        match self {
            Self::Folder(path) => {
                let path = path.clone();
                Ok(blocking(move || Root::open(&path)).await??)
            }
            Self::Store(root) => Ok(root.for_transfer()),
        }
    }

    /// Whether it has no names at all.
    pub(crate) async fn is_empty(&self) -> Result<bool, TransferError> {
        let root = self.root().await?;
        let look = move || Ok::<_, TransferError>(root.list(None)?.next().transpose()?.is_none());
        blocking(look).await?
    }
}

/// The way of files, as a process knows it.
#[derive(Debug)]
pub(crate) enum Route {
    /// A tree is sent to a server, which may be the process's own: then `here` is what it serves.
    Up { from: OpenTree, to: Vec<u8>, here: Option<OpenTree> },
    /// A tree is received from a server.
    Down { from: Vec<u8>, to: OpenTree },
    /// What was received from one server is sent to another.
    Across { from: Vec<u8>, to: Vec<u8>, spool: Spool },
}

/// The connections of a process.
pub(crate) struct Clients {
    /// To the only server, or to the destination.
    pub(crate) client: Client,
    /// To the source, if that is on another server; if the process serves it to itself, as soon as
    /// it is needed.
    pub(crate) source: Option<Client>,
    /// The number of the file of which ranges were sent to a server of the destination, which keeps
    /// its partial file locked as long as the connection is open.
    pub(crate) ranges_of: Option<u64>,
}

impl Clients {
    /// Whether a connection has ended, so that no request can use it.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.source.as_ref().is_some_and(Client::is_closed)
    }

    /// Whether the next item, if there is one, can use these connections: not if they keep a
    /// partial file locked that the item is not about.
    pub(crate) fn are_for(&self, next: Option<&Item>) -> bool {
        let file = next.and_then(|item| item.entries.first()).map(|file| file.number);
        self.ranges_of.is_none() || self.ranges_of == file
    }

    /// Limits later requests to this many bits of file content per second.
    pub(crate) const fn limit(&mut self, rate_bps: Option<u64>) {
        self.client.limit(rate_bps);
        if let Some(source) = &mut self.source {
            source.limit(rate_bps);
        }
    }

    /// Returns the connection by which the source is read, if it is on a server.
    pub(crate) const fn reading(&mut self) -> &mut Client {
        match &mut self.source {
            Some(source) => source,
            None => &mut self.client,
        }
    }

    /// Closes the connections, and tells the servers.
    pub(crate) async fn close(self) {
        if let Some(source) = self.source {
            source.close().await;
        }
        self.client.close().await;
    }
}

/// Connects to the servers of a job.
pub(crate) struct Dialer<C> {
    connect: C,
    servers: Servers,
    /// The stores of the job.
    stores: Vec<Root>,
}

enum Servers {
    One(Host),
    Own(Box<Own>),
    Two { from: Host, to: Host },
}

/// What a process serves to itself.
struct Own {
    to: OwnServer,
    from: OpenTree,
    /// The server of `from`, once it is needed.
    source: Option<OwnServer>,
}

/// Opens the ends of a job. `connect` connects to a server.
///
/// # Errors
/// A store cannot be opened, the destination of a job without a server is missing, or no port is
/// free.
pub(crate) async fn open<C>(
    direction: &Direction,
    connect: C,
) -> Result<(Route, Dialer<C>), TransferError> {
    let (route, servers, trees) = match direction {
        Direction::Up { from, to } => {
            let from = OpenTree::open(from).await?;
            let trees = vec![from.clone()];
            let route = Route::Up { from, to: to.path.clone(), here: None };
            (route, Servers::One(to.host.clone()), trees)
        }
        Direction::Down { from, to } => {
            let to = OpenTree::open(to).await?;
            let trees = vec![to.clone()];
            (Route::Down { from: from.path.clone(), to }, Servers::One(from.host.clone()), trees)
        }
        Direction::Within { from, to } => {
            let (from, to) = (OpenTree::open(from).await?, OpenTree::open(to).await?);
            let own = OwnServer::start(to.root().await?)?;
            let own = Own { to: own, from: from.clone(), source: None };
            let trees = vec![from.clone(), to.clone()];
            let route = Route::Up { from, to: Vec::new(), here: Some(to) };
            (route, Servers::Own(Box::new(own)), trees)
        }
        Direction::Across { from, to } => {
            let servers = Servers::Two { from: from.host.clone(), to: to.host.clone() };
            let spool = blocking(Spool::new).await?;
            let (from, to) = (from.path.clone(), to.path.clone());
            (Route::Across { from, to, spool }, servers, Vec::new())
        }
    };
    let root = |tree: OpenTree| match tree {
        OpenTree::Folder(_) => None,
        OpenTree::Store(root) => Some(root),
    };
    let stores = trees.into_iter().filter_map(root).collect();
    Ok((route, Dialer { connect, servers, stores }))
}

impl<C> Dialer<C>
where
    C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
{
    /// Connects to all servers.
    ///
    /// # Errors
    /// One cannot be reached, or refuses.
    pub(crate) async fn connect(&mut self) -> Result<Clients, TransferError> {
        let (source, client) = match &self.servers {
            Servers::One(host) => (None, (self.connect)(host).await?),
            Servers::Own(own) => (None, own.to.connect().await?),
            Servers::Two { from, to } => {
                let source = (self.connect)(from).await?;
                match (self.connect)(to).await {
                    Ok(client) => (Some(source), client),
                    Err(error) => {
                        source.close().await;
                        return Err(error);
                    }
                }
            }
        };
        Ok(Clients { client, source, ranges_of: None })
    }

    /// Connects to the server of the source.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub(crate) async fn connect_to_source(&mut self) -> Result<Client, TransferError> {
        match &mut self.servers {
            Servers::One(host) | Servers::Two { from: host, .. } => (self.connect)(&*host).await,
            Servers::Own(own) => {
                let Own { from, source, .. } = &mut **own;
                let server = match source {
                    Some(server) => server,
                    None => source.insert(OwnServer::start(from.root().await?)?),
                };
                server.connect().await
            }
        }
    }

    /// Returns the requests that this process has made to the stores of the job.
    pub(crate) fn requests(&self) -> Requests {
        let requests = self.stores.iter().filter_map(Root::requests);
        requests.fold(Requests::default(), |sum, requests| sum.and(&requests))
    }

    /// Logs how many requests this process has made of each store: stores charge for them.
    pub(crate) fn log_requests(&self) {
        for root in &self.stores {
            let Some(requests) = root.requests() else { continue };
            let kinds = requests.kinds().into_iter().filter(|(_, count)| *count > 0);
            let kinds: Vec<_> = kinds.map(|(kind, count)| format!("{kind} {count}")).collect();
            tracing::info!(
                "{}: {} requests ({}), of which {} repeated others",
                root.path().display(),
                requests.total(),
                kinds.join(", "),
                requests.retried
            );
        }
    }
}

/// Runs what waits for a disk or a store on a thread for that.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TransferError> {
    joined(spawn_blocking(work)).await
}

/// Waits for what runs on another thread.
pub(crate) async fn joined<T>(running: JoinHandle<T>) -> Result<T, TransferError> {
    running.await.map_err(|error| TransferError::System {
        doing: "wait for a disk or a store".to_owned(),
        cause: io::Error::other(error),
    })
}

/// Returns the path of a name below a directory of a server.
pub(crate) fn on_server(directory: &[u8], path: &RelPath) -> Vec<u8> {
    [directory, b"/", path.as_bytes()].concat()
}

/// Returns the path of a directory of a server for a listing.
pub(crate) fn listed_on_server(directory: &[u8], path: Option<&RelPath>) -> Vec<u8> {
    match path {
        Some(path) => on_server(directory, path),
        None if directory.is_empty() => b".".to_vec(),
        None => directory.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job without a server asks nobody to connect.
    async fn no_server(_: &Host) -> Result<Client, TransferError> {
        Err(TransferError::Usage("no server".to_owned()))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_job_without_a_server_has_one_of_its_own_that_only_it_can_use() {
        let ground = tempfile::tempdir().expect("a folder");
        let [from, to] = ["from", "to"].map(|name| ground.path().join(name));
        for folder in [&from, &to] {
            std::fs::create_dir(folder).expect("a folder");
        }
        std::fs::write(to.join("file"), "content").expect("a file");
        let direction = Direction::Within { from: Tree::Folder(from), to: Tree::Folder(to) };
        let (route, mut dialer) = open(&direction, no_server).await.expect("it opens");
        let Route::Up { from, to, here: Some(_) } = &route else { panic!("{route:?}") };
        assert!(from.is_empty().await.expect("a listing") && to.is_empty());
        let mut clients = dialer.connect().await.expect("a connection");
        let mut names = Vec::new();
        let listed = clients.client.list(b".", |listed| names.push(listed.path.to_string()));
        listed.await.expect("a listing");
        assert_eq!(names, ["file"]);
        assert!(clients.source.is_none() && !clients.is_closed());
        // the source is served when it is needed
        let mut source = dialer.connect_to_source().await.expect("a connection");
        let mut is_empty = true;
        source.list(b".", |_| is_empty = false).await.expect("a listing");
        assert!(is_empty);
        source.close().await;
        clients.close().await;
    }

    #[test]
    fn names_below_a_server_s_directory_never_begin_with_a_home() {
        let path = RelPath::parse(b"~/x").expect("a path");
        assert_eq!(on_server(b"", &path), b"/~/x");
        assert_eq!(listed_on_server(b"a", Some(&path)), b"a/~/x");
        assert_eq!(listed_on_server(b"", None), b".");
        assert_eq!(listed_on_server(b"a", None), b"a");
    }
}
