//! A server without a gateway, asked over a real socket.

use std::io::BufRead;

use tempfile::TempDir;

use super::super::protocol::MAX_REQUEST;
use super::*;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Ground {
    folder: TempDir,
    server: Server,
    submit: Receiver<PendingRequest>,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (to, submit) = channel();
        let server = Server::start(&folder.path().join("s"), move |one| to.send(one).is_ok())
            .expect("a server");
        Self { folder, server, submit }
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.folder.path().join("s")).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        BufReader::new(stream)
    }

    /// Answers the next request with a sentence.
    fn answer(&self, words: &str) -> Request {
        let PendingRequest { request, reply } =
            self.submit.recv_timeout(PATIENCE).expect("a request");
        reply
            .send(Reply::Answer(Response::Done { done: vec![words.into()] }))
            .expect("somebody waits");
        request
    }
}

fn line(reader: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    line
}

fn write(reader: &mut BufReader<UnixStream>, text: &[u8]) {
    // who is refused may have been closed already
    let _ = reader.get_mut().write_all(text);
}

#[test]
fn answers_requests_in_order() {
    let ground = Ground::new();
    let mut client = ground.connect();
    write(&mut client, b"{\"request\":\"reload\",\"new_keys\":true}\n{\"request\":\"down\"}\n");
    assert_eq!(ground.answer("one"), Request::Reload { new_keys: true });
    assert_eq!(ground.answer("two"), Request::Down);
    assert_eq!(
        line(&mut client) + &line(&mut client),
        "{\"done\":[\"one\"]}\n{\"done\":[\"two\"]}\n"
    );
    drop(client);
    ground.server.wait();
    assert_eq!(ground.server.clients.load(Ordering::Acquire), 0);
}

#[test]
fn a_request_behind_the_last_one_does_not_hold_up_the_end() {
    let mut ground = Ground::new();
    let [mut first, mut second] = [ground.connect(), ground.connect()];
    write(&mut first, b"{\"request\":\"down\"}\n");
    ground.answer("down");
    write(&mut second, b"{\"request\":\"status\"}\n");
    assert!(line(&mut first).contains("down"));
    drop(first);
    let requests = std::mem::replace(&mut ground.submit, channel().1);
    ground.server.finish(requests);
    assert_eq!(line(&mut second), "", "it is closed without a response");
    assert_eq!(ground.server.clients.load(Ordering::Acquire), 0);
}

#[test]
fn rejects_unknown_requests_without_forwarding_them() {
    let ground = Ground::new();
    let long = [b"{\"request\":\"", &[b'a'; MAX_REQUEST][..]].concat();
    let unknown = &b"{\"request\":\"format\"}\n"[..];
    let surplus = &b"{\"request\":\"reload\",\"keys\":1}\n"[..];
    for text in [&b"nonsense\n"[..], unknown, surplus, &long] {
        let mut client = ground.connect();
        write(&mut client, text);
        let answer = line(&mut client);
        assert!(answer.starts_with("{\"error\":\""), "{answer}");
        // Closed, with or without a reset for the unread bytes.
        let mut rest = String::new();
        assert!(client.read_line(&mut rest).map_or(true, |len| len == 0), "{rest}");
    }
    assert!(ground.submit.try_recv().is_err());
}

#[test]
fn limits_simultaneous_clients() {
    let ground = Ground::new();
    let held: Vec<_> = (0..MAX_CLIENTS).map(|_| ground.connect()).collect();
    let mut refused = ground.connect();
    assert!(line(&mut refused).contains("too many clients"));
    drop(held);
    ground.server.wait();
    let mut client = ground.connect();
    write(&mut client, b"{\"request\":\"status\"}\n");
    ground.answer("hello");
    assert!(line(&mut client).contains("hello"));
}

#[test]
fn only_the_owner_can_open_the_socket() {
    let ground = Ground::new();
    let mode =
        std::fs::metadata(ground.folder.path().join("s")).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
