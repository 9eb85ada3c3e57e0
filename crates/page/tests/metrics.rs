//! Metrics and health over HTTP, as honest and hostile clients see them.

mod ground;

use std::net::SocketAddr;
use std::time::Duration;

use headroom_page::Metrics;
use headroom_testing::exposition::{self, Sample};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::ground::{Ground, run};

/// Serves the metrics of a server.
fn watch(ground: &Ground, address: &str) -> SocketAddr {
    let address = address.parse().expect("an address");
    let metrics = Metrics::bind(&ground.server, address).expect("a port");
    let address = metrics.address();
    assert_eq!(metrics.url(), format!("http://{address}/metrics"));
    metrics.start();
    address
}

/// Sends bytes, and returns the head of the answer in small letters, and its body.
async fn ask(address: SocketAddr, bytes: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    // a server that has read enough may close before it has read all
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer.as_str(), ""));
    (head.to_lowercase(), body.to_owned())
}

/// Sends the head of a request.
async fn request(address: SocketAddr, head: &str) -> (String, String) {
    ask(address, format!("{}\r\n\r\n", head.replace('\n', "\r\n")).as_bytes()).await
}

async fn metrics(address: SocketAddr) -> Vec<Sample> {
    let (head, body) = request(address, "GET /metrics HTTP/1.1\nhost: localhost").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    exposition::metrics(&body)
}

async fn answers(address: SocketAddr, code: &str) -> f64 {
    let labels = [("code", code)];
    exposition::value(&metrics(address).await, "headroom_serve_metrics_requests_total", &labels)
}

#[test]
fn metrics_and_health_are_served_without_keys_or_paths() {
    run(async {
        let ground = Ground::start();
        let address = watch(&ground, "127.0.0.1:0");
        let asked = format!("GET /metrics HTTP/1.1\nhost: {address}");
        let (head, body) = request(address, &asked).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(!head.contains("access-control"), "{head}");
        let samples = exposition::metrics(&body);
        for gauge in ["headroom_serve_draining", "headroom_serve_sessions"] {
            assert_eq!(exposition::value(&samples, gauge, &[]), 0.0, "{gauge}");
        }
        assert!(!body.contains(&ground.served("").display().to_string()), "{body}");

        // as HAProxy asks, and as a container's probe does
        for asked in ["GET /healthz HTTP/1.0", "GET /healthz?full=1 HTTP/1.1\nhost: 127.0.0.1"] {
            let (head, body) = request(address, asked).await;
            assert!(head.contains(" 200 ") && body == "ok\n", "{head}");
        }
        ground.server.drain(Duration::from_secs(100));
        let (head, body) = request(address, "GET /healthz HTTP/1.0").await;
        assert!(head.contains(" 503 ") && body == "draining\n", "{head}");
        let samples = metrics(address).await;
        assert_eq!(exposition::value(&samples, "headroom_serve_draining", &[]), 1.0);
        assert_eq!(answers(address, "503").await, 1.0);
    });
}

#[test]
fn hostile_requests_for_metrics_get_errors_and_are_counted() {
    run(async {
        let ground = Ground::start();
        let address = watch(&ground, "127.0.0.1:0");
        for (asked, code) in [
            ("GET / HTTP/1.1\nhost: localhost".to_owned(), "404"),
            ("GET /metrics/ HTTP/1.1\nhost: localhost".to_owned(), "404"),
            ("GET /../served HTTP/1.1\nhost: localhost".to_owned(), "404"),
            ("POST /metrics HTTP/1.1\nhost: localhost".to_owned(), "405"),
            ("HEAD /healthz HTTP/1.1\nhost: localhost".to_owned(), "405"),
            ("GET /metrics HTTP/1.1\nhost: localhost\ncontent-length: 5".to_owned(), "413"),
            ("GET /metrics HTTP/1.1\nhost: localhost\nhost: localhost".to_owned(), "400"),
            (format!("GET /metrics HTTP/1.1\nhost: evil.example:{}", address.port()), "421"),
            ("GET /metrics HTTP/1.1\nhost: 127.0.0.1.evil.example".to_owned(), "421"),
            (format!("GET /metrics HTTP/1.1\nhost: localhost\nx: {}", "y".repeat(20 << 10)), "431"),
            ("GET /metrics TTP/1.1\nhost: localhost".to_owned(), "400"),
        ] {
            let before = answers(address, code).await;
            let (head, body) = request(address, &asked).await;
            let shown = &asked[..asked.len().min(80)];
            // whoever has sent more than was read may see the end of the connection alone
            let is_it = head.is_empty() || head.starts_with(&format!("http/1.1 {code}"));
            assert!(is_it && body.is_empty(), "{shown}: {head}");
            let mut counted = answers(address, code).await;
            while counted < before + 1.0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                counted = answers(address, code).await;
            }
            assert_eq!(counted, before + 1.0, "{shown}");
        }
        // no HTTP at all, and a client that goes without a word
        ask(address, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await;
        drop(TcpStream::connect(address).await.expect("it listens"));
        assert!(!metrics(address).await.is_empty());
    });
}

/// Connections that send nothing are closed in seconds, and others are served then.
#[test]
fn silent_connections_do_not_keep_others_from_the_metrics() {
    run(async {
        let ground = Ground::start();
        let address = watch(&ground, "127.0.0.1:0");
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(TcpStream::connect(address).await.expect("it listens"));
        }
        assert!(answers(address, "408").await >= 1.0);
        drop(silent);
    });
}

/// At another address it is known who may ask, or anybody is meant to.
#[test]
fn any_name_is_served_at_an_address_that_others_reach() {
    run(async {
        let ground = Ground::start();
        let address = watch(&ground, "0.0.0.0:0");
        let here = SocketAddr::from(([127, 0, 0, 1], address.port()));
        let (head, _) = request(here, "GET /metrics HTTP/1.1\nhost: files.example.org").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
    });
}
