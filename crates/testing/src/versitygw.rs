//! An S3 server of other people, versitygw, on loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts;
use crate::server::{Server, own_address};

/// Returns the program that `scripts/fetch-parts versitygw` builds, or nothing where it is
/// missing: the test is skipped then.
///
/// # Panics
/// It is missing, and tests are required (`CI`, `HEADROOM_TESTS=required`).
pub fn versitygw() -> Option<PathBuf> {
    parts::program("versitygw", "root/usr/bin/versitygw")
}

/// A server whose buckets are folders. It ends when this is dropped.
#[derive(Debug)]
pub struct Versitygw(Server);

impl Versitygw {
    /// Starts a server that keeps its buckets in `FOLDER/store`, which must exist, and what it
    /// knows of their objects in `FOLDER/sidecar`.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(program: &Path, folder: &Path, key: &str, secret: &str, region: &str) -> Self {
        let address = own_address(7070);
        let sidecar = folder.join("sidecar");
        std::fs::create_dir_all(&sidecar).expect("a folder");
        let mut command = Command::new(program);
        // variables of the environment would be settings of it
        command.env_clear().env("HOME", folder);
        command.arg("--port").arg(address.to_string()).args(["--access", key, "--secret", secret]);
        command.args(["--region", region, "--quiet", "posix", "--sidecar"]).arg(&sidecar);
        command.arg(folder.join("store"));
        Self(Server::start(&mut command, address, &folder.join("versitygw.log")))
    }

    /// Returns where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }
}
