//! A certificate of a real ACME authority, Let's Encrypt's pebble.
//!
//! `scripts/fetch-parts pebble` fetches it. Where it is missing the test is skipped, unless
//! `HEADROOM_TESTS=required`.

mod ground;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use headroom_page::{AcmeOptions, CertificateSource, Intervals};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use self::ground::{Ground, request, run_for, tls_of, until};

/// The program, if there is one.
fn pebble() -> Option<PathBuf> {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let parts = path("HEADROOM_PARTS").or_else(|| {
        let cache = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
        Some(cache?.join("headroom/parts"))
    });
    let folders = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .chain(parts.map(|parts| parts.join("root/usr/bin")))
        .collect::<Vec<_>>();
    let found = folders.iter().map(|folder| folder.join("pebble")).find(|path| path.is_file());
    if found.is_none() {
        let required = std::env::var_os("CI").is_some()
            || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
        let how = "no pebble: run scripts/fetch-parts pebble";
        assert!(!required, "{how}");
        eprintln!("skipped: {how}");
    }
    found
}

/// An authority with a root of its own for its HTTPS.
struct Authority {
    process: Child,
    directory: String,
}

impl Authority {
    /// Starts one at these addresses, which validates at a port; its certificates are valid for
    /// so many seconds.
    fn start(
        pebble: &Path,
        folder: &Path,
        [listen, management]: [SocketAddr; 2],
        port: u16,
        valid: u32,
    ) -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address");
        let certificate = params.self_signed(&key).expect("a certificate");
        let at = |name: &str| folder.join(name);
        std::fs::write(at("root.pem"), certificate.pem()).expect("a file");
        std::fs::write(at("pebble-key.pem"), key.serialize_pem()).expect("a file");
        let config = json!({"pebble": {
            "listenAddress": listen.to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": at("root.pem"),
            "privateKey": at("pebble-key.pem"),
            "httpPort": 1,
            "tlsPort": port,
            "certificateValidityPeriod": valid,
        }});
        std::fs::write(at("pebble.json"), config.to_string()).expect("a file");
        let process = Command::new(pebble)
            .arg("-config")
            .arg(at("pebble.json"))
            .arg("-strict")
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Self { process, directory: format!("https://{listen}/dir") }
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_authority_issues_the_certificate_by_the_pages_own_port_and_again_in_time() {
    let Some(pebble) = pebble() else { return };
    run_for(Duration::from_secs(120), async {
        // three at once are three ports
        let free = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
        let [page, listen, management] =
            free.each_ref().map(|free| free.local_addr().expect("an address"));
        drop(free);
        let port = page.port();
        let folder = tempfile::tempdir().expect("a folder");
        // Half of the time passes before the next is asked for. It is valid for the other half
        // when a server starts with it, below.
        let at = [listen, management];
        let authority = Authority::start(&pebble, folder.path(), at, port, 20);
        let options = AcmeOptions {
            names: vec!["127.0.0.1".to_owned()],
            email: Some("someone@mail.test".to_owned()),
            directory: authority.directory.clone(),
            root: Some(folder.path().join("root.pem")),
            folder: folder.path().join("acme"),
        };
        // it listens before it is asked: there is no second attempt within minutes
        let address = authority.directory.split('/').nth(2).expect("an address").to_owned();
        while tokio::net::TcpStream::connect(&address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let interval = Duration::from_millis(100);
        let intervals = Intervals { renewal: interval, ..Intervals::default() };
        let ground = Ground::start_at(port, intervals, |folder| CertificateSource::Acme {
            options: options.clone(),
            meanwhile: folder.join("web.pem"),
        });
        assert!(ground.page.is_self_signed());
        assert_eq!(ground.page.url(), format!("https://127.0.0.1:{port}/"));
        until(|| !ground.page.is_self_signed()).await;
        let first = ground.page.certificate_hash();
        let (head, _) = request(&ground, &format!("GET / HTTP/1.1\nhost: {}", ground.host())).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let kept = options.folder.join("127.0.0.1.pem");
        for file in std::fs::read_dir(&options.folder).expect("a folder") {
            let file = file.expect("a file");
            let mode = file.metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.path().display());
        }
        assert!(std::fs::read_to_string(&kept).expect("a file").contains("PRIVATE KEY"));
        until(|| ground.page.certificate_hash() != first).await;
        // what a validation is shown is gone with the order
        let asked = tls_of(&ground, "1.0.0.127.in-addr.arpa", &[b"acme-tls/1"]).await;
        assert!(asked.is_err());
        // a server that starts later has the certificate at once
        let again = Ground::start_with(Intervals::default(), |folder| CertificateSource::Acme {
            options: options.clone(),
            meanwhile: folder.join("web.pem"),
        });
        assert!(!again.page.is_self_signed());
    });
}
