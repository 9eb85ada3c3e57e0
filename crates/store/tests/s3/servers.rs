//! The servers that tests run over, each with an empty bucket.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use headroom_testing::{Moto, Versitygw, moto, versitygw};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::runtime;

pub(crate) const SECRET: &str = "hush-hush";
const REGION: &str = "eu-west-1";

/// The credentials that the server knows, in the environment.
pub(crate) const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", SECRET)];

/// Runs an ignored test of this program over `s3s-fs`.
pub(crate) fn run(test: &str, environment: &[(&str, &str)]) {
    over_s3s_fs(|server, home| run_at(server, home, test, environment));
}

/// Runs an ignored test of this program over versitygw, where that is.
pub(crate) fn run_over_versitygw(test: &str) {
    over_versitygw(|server, home| run_at(server, home, test, &KEYS));
}

/// Runs an ignored test of this program over moto, where that is.
pub(crate) fn run_over_moto(test: &str) {
    over_moto(|moto, home| run_at(moto.address(), home, test, &KEYS));
}

/// Does something with `s3s-fs` and a folder.
pub(crate) fn over_s3s_fs(work: impl FnOnce(SocketAddr, &Path)) {
    let runtime = runtime();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("bucket")).expect("a folder");
    work(serve(&runtime, folder.path()), folder.path());
}

/// Does something with versitygw and a folder, where that is.
pub(crate) fn over_versitygw(work: impl FnOnce(SocketAddr, &Path)) {
    let Some(program) = versitygw() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("store/bucket")).expect("a folder");
    let server = Versitygw::start(&program, folder.path(), "key", SECRET, REGION);
    work(server.address(), folder.path());
}

/// Does something with moto and a folder, where that is.
pub(crate) fn over_moto(work: impl FnOnce(&Moto, &Path)) {
    let Some(python) = moto() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    work(&Moto::start(&python, folder.path()), folder.path());
}

/// Runs an ignored test of this program in a process that knows the server.
pub(crate) fn run_at(server: SocketAddr, home: &Path, test: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env_clear()
        .env("HOME", home)
        .env("AWS_ENDPOINT_URL", format!("http://{server}"))
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", REGION)
        .envs(environment.iter().copied());
    if let Some(folder) = std::env::var_os("TMPDIR") {
        command.env("TMPDIR", folder);
    }
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
    assert!(!text.contains(SECRET) && !errors.contains(SECRET), "{text}\n{errors}");
}

/// Serves the folders in `folder` as buckets.
fn serve(runtime: &Runtime, folder: &Path) -> SocketAddr {
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
    address
}
