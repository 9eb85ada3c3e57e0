//! The page on one's own machine: two panes, this machine and a server, with the engine of `put`,
//! `get` and `sync` in this process; runs of the lab; and the jobs of fleets, which other processes
//! run.
//!
//! [`Ui`] serves the page's files and a local API at a loopback address. The API is for the page
//! that has the token of this start, under the names of this machine; docs/security.md has the
//! rules.

mod access;
mod api;
mod error;
mod fleets;
mod http;
mod lab;
mod local;
mod names;
mod servers;
mod socket;
mod state;
mod transfers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;

pub use error::Error;
pub use fleets::FleetOptions;
pub use servers::{ConnectOptions, Resolved};

use self::access::{Refusals, Token};
use self::fleets::Fleets;
use self::servers::Servers;
use self::state::Shared;
use self::transfers::Transfers;

/// What is served, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen on, of this machine alone; port 0 chooses a free one.
    pub address: SocketAddr,
    /// How to connect to servers.
    pub connect: ConnectOptions,
    /// Servers that the page shows from the start: `[USER@]HOST[:PORT]`.
    pub servers: Vec<String>,
    /// The directory that the pane of this machine shows first; also the one with `plans` and
    /// `results` of the lab.
    pub folder: PathBuf,
    /// The program that runs the lab: this one.
    pub program: PathBuf,
    /// Where the jobs of fleets are.
    pub fleets: FleetOptions,
}

/// The local server of the page.
#[derive(Debug)]
pub struct Ui {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Ui {
    /// Starts listening. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The address is not of this machine alone or cannot be used, a server's address is wrong, or
    /// a job file cannot be read.
    pub async fn bind(options: Options) -> Result<Self, Error> {
        let Options { address, connect, servers: named, folder, program, fleets } = options;
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        let servers = Arc::new(Servers::new(connect));
        for name in &named {
            servers.add(name, false).map_err(|error| Error::Server(error.message))?;
        }
        let failed = |cause| Error::Listen { address, cause };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            address,
            token: Token::random()?,
            refusals: Refusals::default(),
            transfers: Transfers::new(Arc::clone(&servers), Handle::current()),
            lab: lab::Lab::new(program, folder.clone()),
            fleets: Fleets::new(fleets)?,
            servers,
            folder,
            quit: tokio::sync::Notify::new(),
        });
        Ok(Self { listener, shared })
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Returns the page's URL. Its fragment, which no browser sends, has the token.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/#token={}", self.shared.address, self.shared.token.secret())
    }

    /// Returns a handle for the command.
    #[must_use]
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.shared))
    }

    /// Serves until the page or [`Control::quit`] ends it. Transfers that run are stopped then, and
    /// keep what is there.
    pub async fn serve(&self) {
        let shared = &self.shared;
        let seconds = async {
            let mut seconds = tokio::time::interval(Duration::from_secs(1));
            loop {
                seconds.tick().await;
                shared.transfers.second();
            }
        };
        tokio::select! {
            () = http::serve(&self.listener, shared) => {}
            () = seconds => {}
            () = shared.quit.notified() => {}
        }
        shared.transfers.close().await;
        shared.lab.close().await;
        shared.fleets.close();
        shared.servers.close().await;
    }
}

/// Ends the server, and tells whether something still runs.
#[derive(Debug, Clone)]
pub struct Control(Arc<Shared>);

impl Control {
    /// Returns how many transfers run or wait, and how many runs of the lab go on.
    #[must_use]
    pub fn active(&self) -> (usize, usize) {
        (self.0.transfers.active(), self.0.lab.active())
    }

    /// Ends [`Ui::serve`].
    pub fn quit(&self) {
        self.0.quit.notify_one();
    }
}
