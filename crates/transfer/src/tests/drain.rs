//! A server that shuts down gently, and one that counts what it does.

use std::io::{PipeWriter, Write};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::*;
use crate::server::{Outcome, Traffic};

/// Longer than anything here takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(100);

/// Starts a server whose end can be awaited.
fn serve(ground: &Ground) -> (Server, JoinHandle<()>) {
    let server = Server::bind(&ground.server, ground.options()).expect("a port");
    let serving = server.clone();
    (server, tokio::spawn(async move { serving.serve().await }))
}

/// A `put` of a stream that ends when the writer is dropped.
struct Endless {
    input: PipeWriter,
    put: JoinHandle<Result<Summary, Error>>,
}

impl Endless {
    /// Begins it, and waits until the server knows.
    async fn begin(ground: &Ground, server: &Server) -> Self {
        let (output, input) = std::io::pipe().expect("a pipe");
        let mut client = ground.connect(server).await.expect("a connection");
        let put = tokio::spawn(async move {
            client.put_stream(output, b"endless", false, Arc::new(())).await
        });
        wait_until("it runs", || server.status().received.running == 1).await;
        Self { input, put }
    }
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

/// Connects and lists; tells why that fails.
async fn look(ground: &Ground, server: &Server) -> Result<(), Error> {
    ground.connect(server).await?.list(b"", |_| {}).await
}

#[test]
fn a_drain_finishes_running_transfers_and_takes_no_other_sessions() {
    let ground = Ground::new();
    run(async {
        let (server, mut serving) = serve(&ground);
        let mut idle = ground.connect(&server).await.expect("a connection");
        idle.list(b"", |_| {}).await.expect("it may look");
        let Endless { mut input, put } = Endless::begin(&ground, &server).await;
        input.write_all(b"before, ").expect("it is read");

        server.drain(LONG);
        assert!(server.is_draining() && server.status().is_draining);
        // neither a session that waits nor a new one has another request
        for refused in [idle.list(b"", |_| {}).await, look(&ground, &server).await] {
            let told = refused.expect_err("it is refused").to_string();
            assert!(told.contains("the server is shutting down"), "{told}");
        }
        assert_eq!(server.rejections().draining, 1);
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut serving).await.is_err());

        input.write_all(b"and after").expect("it is read");
        drop(input);
        let summary = put.await.expect("no panic").expect("it is stored");
        assert_eq!((summary.stored, summary.failed), (1, 0));
        assert_eq!(std::fs::read(ground.served("endless")).expect("a file"), b"before, and after");
        serving.await.expect("it ends by itself");
        let received = Traffic { bytes: 17, stored: 1, ..Traffic::default() };
        assert_eq!(server.status().received, received);
    });
}

#[test]
fn a_drain_without_running_transfers_ends_at_once() {
    let ground = Ground::new();
    run(async {
        let (server, serving) = serve(&ground);
        let mut idle = ground.connect(&server).await.expect("a connection");
        idle.list(b"", |_| {}).await.expect("it may look");
        server.drain(LONG);
        serving.await.expect("it ends by itself");
        assert_eq!(server.status().sessions, 0);
    });
}

#[test]
fn a_drain_interrupts_transfers_at_its_limit() {
    let ground = Ground::new();
    run(async {
        let (server, serving) = serve(&ground);
        let Endless { input, put } = Endless::begin(&ground, &server).await;
        server.drain(Duration::from_millis(100));
        // the first limit counts
        server.drain(LONG);
        serving.await.expect("it ends by itself");
        drop(input);
        assert!(put.await.expect("no panic").is_err());
        assert!(!ground.served("endless").exists());
    });
}

#[test]
fn what_a_server_does_is_counted_by_operation_outcome_and_direction() {
    let ground = Ground::new();
    write(&ground.here("tree/one"), &content(70_000));
    write(&ground.here("tree/two"), b"two");
    run(async {
        let server = ground.start();
        let count = |operation: &str, outcome: Outcome| {
            let all = server.status().requests;
            let found = all.iter().find(|it| (it.operation, it.outcome) == (operation, outcome));
            found.expect("such a count").count
        };
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("tree")], b"", false, Arc::new(())).await;
        let put = put.expect("it is sent");
        assert!(client.list(b"missing", |_| {}).await.is_err());
        let from = [b"tree/two".to_vec()];
        client.get(&from, &ground.here("back"), false, Arc::new(())).await.expect("it is fetched");
        // the server may not know yet that the client is done
        wait_until("three are counted", || count("get", Outcome::Done) == 1).await;
        assert_eq!(count("put", Outcome::Done), 1);
        assert_eq!(count("ls", Outcome::Failed), 1);
        assert_eq!(count("ls", Outcome::Done), 0);
        let status = server.status();
        let received = Traffic { bytes: 70_003, stored: put.stored, ..Traffic::default() };
        assert_eq!(status.received, received);
        assert_eq!(status.sent, Traffic { bytes: 3, stored: 1, ..Traffic::default() });
        assert_eq!((status.sessions, status.sessions_started), (1, 1));
        client.close().await;
        wait_until("it is gone", || server.status().sessions == 0).await;
        assert_eq!(server.status().sessions_started, 1);
    });
}
