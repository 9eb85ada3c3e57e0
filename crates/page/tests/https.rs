//! The HTTPS server of the page, as honest and hostile clients see it.

mod ground;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use self::ground::{Ground, request, run, tls_of};

#[test]
fn the_page_is_served_with_a_strict_policy_and_by_its_tag() {
    run(async {
        let ground = Ground::start();
        let host = ground.host();
        let (head, body) = request(&ground, &format!("GET / HTTP/1.1\nhost: {host}")).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(String::from_utf8_lossy(&body).to_lowercase().contains("<!doctype html>"));
        for expected in [
            "content-security-policy: default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self';",
            &format!("connect-src 'self' wss://{host};"),
            "form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "content-type: text/html; charset=utf-8",
        ] {
            assert!(head.contains(expected), "{expected}: {head}");
        }
        assert!(!head.contains("access-control"), "{head}");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag");
        let again = format!("GET / HTTP/1.1\nhost: {host}\nif-none-match: {tag}");
        let (head, body) = request(&ground, &again).await;
        assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
        let (head, body) = request(&ground, &format!("HEAD / HTTP/1.1\nhost: {host}")).await;
        assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
        for (name, kind) in
            [("session.js", "text/javascript"), ("protocol_bg.wasm", "application/wasm")]
        {
            let (head, _) = request(&ground, &format!("GET /{name} HTTP/1.1\nhost: {host}")).await;
            assert!(head.contains(&format!("content-type: {kind}")), "{head}");
        }
    });
}

#[test]
fn files_are_compressed_for_clients_that_take_it_each_with_a_tag_of_its_own() {
    run(async {
        let ground = Ground::start();
        let host = ground.host();
        let asked = |headers: &str| format!("GET /app.js HTTP/1.1\nhost: {host}{headers}");
        let line = |head: &str, name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
        };
        let (plain, whole) = request(&ground, &asked("")).await;
        assert_eq!(line(&plain, "content-encoding: "), None);
        for taken in ["gzip", "br, gzip;q=0.5, zstd", "deflate, GZIP"] {
            let (head, body) =
                request(&ground, &asked(&format!("\naccept-encoding: {taken}"))).await;
            assert_eq!(line(&head, "content-encoding: ").as_deref(), Some("gzip"), "{head}");
            assert_eq!(line(&head, "vary: ").as_deref(), Some("accept-encoding"), "{head}");
            assert_eq!(body[..2], [0x1f, 0x8b]);
            assert!(body.len() * 2 < whole.len(), "{} of {}", body.len(), whole.len());
            let tag = line(&head, "etag: ").expect("a tag");
            assert_ne!(line(&plain, "etag: "), Some(tag.clone()));
            let again = format!("\naccept-encoding: {taken}\nif-none-match: {tag}");
            let (head, body) = request(&ground, &asked(&again)).await;
            assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
            let (head, _) = request(&ground, &asked(&format!("\nif-none-match: {tag}"))).await;
            assert!(head.starts_with("http/1.1 200"), "{head}");
        }
        for refused in ["gzip;q=0", "identity", "br", "gzip; q=0.0"] {
            let (head, body) =
                request(&ground, &asked(&format!("\naccept-encoding: {refused}"))).await;
            assert_eq!(line(&head, "content-encoding: "), None, "{refused}");
            assert_eq!(line(&head, "vary: ").as_deref(), Some("accept-encoding"), "{head}");
            assert_eq!(body, whole);
        }
    });
}

#[test]
fn http2_has_the_same_answers_and_the_same_rules() {
    run(async {
        let ground = Ground::start();
        let (host, port) = (ground.host(), ground.port());
        let stream = tls_of(&ground, "localhost", &[b"h2", b"http/1.1"]).await.expect("TLS");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        let ask = async |uri: String, headers: &[(&str, String)]| {
            let mut request = hyper::Request::builder().uri(uri);
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            let request = request.body(Empty::<Bytes>::new()).expect("a request");
            let answer = sender.clone().send_request(request).await.expect("an answer");
            let (head, body) = answer.into_parts();
            (head, body.collect().await.expect("its body").to_bytes())
        };
        let (head, body) = ask(format!("https://{host}/"), &[]).await;
        assert_eq!(head.status, 200);
        assert!(body.to_ascii_lowercase().starts_with(b"<!doctype html>"));
        let policy = head.headers["content-security-policy"].to_str().expect("text");
        assert!(policy.contains(&format!("connect-src 'self' wss://{host};")), "{policy}");
        for (uri, headers, status) in [
            (format!("https://evil.example:{port}/"), vec![], 421),
            (format!("https://{host}/"), vec![("host", format!("localhost:{port}"))], 400),
            (format!("https://{host}/"), vec![("origin", "https://evil.example".to_owned())], 403),
            (format!("https://{host}/connect.json"), vec![("origin", "null".to_owned())], 403),
            (format!("https://{host}/secret"), vec![], 404),
            (format!("https://{host}/transfer"), vec![("origin", ground.origin())], 400),
        ] {
            let (head, body) = ask(uri.clone(), &headers).await;
            assert_eq!(head.status, status, "{uri} {headers:?}");
            assert!(body.is_empty());
        }
    });
}

#[test]
fn the_page_learns_where_its_session_connects_and_nothing_else() {
    run(async {
        let ground = Ground::start();
        std::fs::write(ground.served("secret"), "content").expect("a file");
        let host = ground.host();
        let (head, body) =
            request(&ground, &format!("GET /connect.json HTTP/1.1\nhost: {host}")).await;
        assert!(head.contains("cache-control: no-store"), "{head}");
        let json: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(json["root"], "served");
        assert_eq!(json["webtransport"]["port"], ground.port());
        assert_eq!(json["webtransport"]["hashes"][0].as_str().map(str::len), Some(64));
        for path in ["/secret", "/../secret", "/%2e%2e/secret", "/served/secret", "//secret", "/."]
        {
            let (head, _) = request(&ground, &format!("GET {path} HTTP/1.1\nhost: {host}")).await;
            assert!(head.starts_with("http/1.1 404"), "{path}: {head}");
        }
    });
}

#[test]
fn requests_by_foreign_names_or_from_foreign_pages_are_refused() {
    run(async {
        let ground = Ground::start();
        let (host, port) = (ground.host(), ground.port());
        for path in ["/", "/connect.json", "/transfer"] {
            for (headers, status) in [
                (format!("host: evil.example:{port}"), 421),
                ("host: 127.0.0.1.evil.example".to_owned(), 421),
                (format!("host: {host}\nhost: {host}"), 400),
                ("x: no host".to_owned(), 400),
                (format!("host: {host}\norigin: https://evil.example"), 403),
                (format!("host: {host}\norigin: null"), 403),
                (format!("host: {host}\norigin: http://{host}"), 403),
            ] {
                let (head, body) =
                    request(&ground, &format!("GET {path} HTTP/1.1\n{headers}")).await;
                let expected = format!("http/1.1 {status}");
                assert!(head.starts_with(&expected) && body.is_empty(), "{path} {headers}: {head}");
            }
        }
        for own in [host, format!("localhost:{port}"), format!("files.example.org:{port}")] {
            let asked = format!("GET / HTTP/1.1\nhost: {own}\norigin: https://{own}");
            let (head, _) = request(&ground, &asked).await;
            assert!(head.starts_with("http/1.1 200"), "{own}: {head}");
        }
    });
}

#[test]
fn bodies_other_methods_and_long_heads_are_refused() {
    run(async {
        let ground = Ground::start();
        let host = ground.host();
        for (asked, status) in [
            (format!("POST / HTTP/1.1\nhost: {host}\ncontent-length: 5"), 413),
            (format!("GET / HTTP/1.1\nhost: {host}\ntransfer-encoding: chunked"), 413),
            (format!("PUT / HTTP/1.1\nhost: {host}"), 405),
            (format!("OPTIONS / HTTP/1.1\nhost: {host}\norigin: https://{host}"), 405),
            (format!("GET /transfer HTTP/1.1\nhost: {host}\norigin: https://{host}"), 400),
            (format!("GET / HTTP/1.1\nhost: {host}\nx: {}", "y".repeat(20 << 10)), 431),
        ] {
            let (head, _) = request(&ground, &asked).await;
            let expected = format!("http/1.1 {status}");
            assert!(head.starts_with(&expected), "{}: {head}", &asked[..asked.len().min(80)]);
        }
        let mut stream = ground::tls(&ground).await;
        stream.write_all(&[0xff; 4096]).await.expect("it is sent");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    });
}
