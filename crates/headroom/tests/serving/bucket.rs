//! Buckets of S3 servers of other people on the loopback interface: `s3s-fs` in this process,
//! versitygw, which `scripts/fetch-parts versitygw` builds, and moto, which `scripts/fetch-parts
//! moto` fetches.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use headroom_testing::{Moto, Versitygw, moto, versitygw};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub(crate) const SECRET: &str = "hush-hush";
const REGION: &str = "eu-west-1";

/// A bucket, which is served until this is dropped.
pub(crate) struct Bucket {
    server: BucketServer,
    /// Where its objects are files, if they are.
    folder: PathBuf,
}

enum BucketServer {
    InProcess(S3),
    Versitygw(Versitygw),
    Moto(Moto),
}

impl Bucket {
    /// Makes one at `s3s-fs`, in a folder that has `store/bucket`.
    pub(crate) fn in_process(folder: &Path) -> Self {
        Self::at(BucketServer::InProcess(S3::start(&folder.join("store"))), folder)
    }

    /// Makes one at versitygw, where that is, in a folder that has `store/bucket`.
    pub(crate) fn at_versitygw(folder: &Path) -> Option<Self> {
        let server = Versitygw::start(&versitygw()?, folder, "key", SECRET, REGION);
        Some(Self::at(BucketServer::Versitygw(server), folder))
    }

    /// Makes one at moto, where that is. It is in memory.
    pub(crate) fn at_moto(folder: &Path) -> Option<Self> {
        Some(Self::at(BucketServer::Moto(Moto::start(&moto()?, folder)), folder))
    }

    fn at(server: BucketServer, folder: &Path) -> Self {
        Self { server, folder: folder.join("store/bucket") }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match &self.server {
            BucketServer::InProcess(s3) => s3.address,
            BucketServer::Versitygw(versitygw) => versitygw.address(),
            BucketServer::Moto(moto) => moto.address(),
        }
    }

    /// The file of an object. There is none at moto.
    pub(crate) fn file(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    /// What an object has, if it is there.
    pub(crate) fn object(&self, key: &str) -> Option<Vec<u8>> {
        match &self.server {
            BucketServer::Moto(moto) => moto.object(key),
            _ => fs::read(self.file(key)).ok(),
        }
    }

    /// The names and the bytes of the objects in a directory.
    pub(crate) fn objects(&self, directory: &str) -> Vec<(String, u64)> {
        if let BucketServer::Moto(moto) = &self.server {
            let objects = moto.objects(&format!("{directory}/")).into_iter();
            return objects
                .map(|(key, bytes)| (key[directory.len() + 1..].to_owned(), bytes))
                .collect();
        }
        let entries = fs::read_dir(self.file(directory)).into_iter().flatten().flatten();
        let objects = entries.filter_map(|entry| {
            Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len()))
        });
        objects.collect()
    }
}

/// An S3 server. The folders of its folder are its buckets.
pub(crate) struct S3 {
    _runtime: Runtime,
    address: SocketAddr,
}

impl S3 {
    pub(crate) fn start(folder: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("threads");
        let mut builder = S3ServiceBuilder::new(FileSystem::new(folder).expect("a folder"));
        builder.set_auth(SimpleAuth::from_single("key", SECRET));
        let service = builder.build();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("an address");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone());
                tokio::spawn(connection);
            }
        });
        Self { _runtime: runtime, address }
    }

    /// Gives a command its address and credentials.
    pub(crate) fn introduce(&self, command: &mut Command, secret: &str) {
        introduce(command, self.address, secret);
    }
}

/// Gives a command the address of a store, and credentials.
pub(crate) fn introduce(command: &mut Command, address: SocketAddr, secret: &str) {
    command.env("AWS_ENDPOINT_URL", format!("http://{address}"));
    command.env("AWS_ALLOW_HTTP", "true").env("AWS_REGION", REGION);
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", secret);
    command.env_remove("AWS_PROFILE").env_remove("AWS_SESSION_TOKEN");
}
