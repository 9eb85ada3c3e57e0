//! Certificates that are replaced while a page is open.

mod ground;

use std::path::Path;
use std::time::Duration;

use headroom_page::{CertificateSource, Intervals};
use headroom_transfer_proto::message::Message;
use rcgen::{CertificateParams, KeyPair};

use self::ground::{Browser, Ground, LOOK, look_again, request, run, until};

/// Intervals that a test can wait for.
fn short() -> Intervals {
    let short = Duration::from_millis(50);
    Intervals { sessions: Duration::from_secs(3600), files: short, renewal: short }
}

fn write_certificate(folder: &Path, name: &str) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).expect("a file");
    std::fs::write(folder.join("cert.pem"), certificate.pem()).expect("a file");
}

#[test]
fn sessions_go_on_when_their_certificate_is_replaced_and_new_ones_see_the_new_one() {
    run(async {
        let intervals = Intervals { sessions: Duration::from_secs(3), ..short() };
        let ground = Ground::start_with(intervals, |folder| {
            CertificateSource::SelfSigned(folder.join("web.pem"))
        });
        std::fs::write(ground.served("here"), "content").expect("a file");
        let browser = Browser::known(&ground);
        let pinned = ground.pinned();
        let session = ground.connect().await.expect("a session");
        let (_, names) = browser.look(&session, &pinned, LOOK).await;
        assert_eq!(names, ["here"]);
        until(|| ground.page.session_hash() != pinned.bound_to).await;
        let (answer, names) = look_again(&session).await;
        assert!(matches!(answer, Message::Accepted { .. }), "{answer:?}");
        assert_eq!(names, ["here"]);
        // one that read the former hash is refused by its browser, and reads the hash again
        let mut later = Err(String::new());
        while later.is_err() {
            later = ground.connect().await;
        }
        let later = later.expect("a session");
        let (_, names) = browser.look(&later, &ground.pinned(), LOOK).await;
        assert_eq!(names, ["here"]);
    });
}

#[test]
fn certificate_files_that_change_are_read_again_and_broken_ones_are_not_used() {
    run(async {
        let ground = Ground::start_with(short(), |folder| {
            write_certificate(folder, "first.example");
            let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name));
            CertificateSource::Files { certificate, key }
        });
        let first = ground.page.certificate_hash();
        let asked = |name: &str| format!("GET / HTTP/1.1\nhost: {name}");
        let (head, _) = request(&ground, &asked("first.example")).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        std::fs::write(ground.path("cert.pem"), "no certificate").expect("a file");
        let (head, _) = request(&ground, &asked("first.example")).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(ground.page.certificate_hash(), first);
        write_certificate(&ground.path(""), "second.example");
        until(|| ground.page.certificate_hash() != first).await;
        for (name, status) in [("second.example", 200), ("first.example", 421)] {
            let (head, _) = request(&ground, &asked(name)).await;
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{name}: {head}");
        }
        assert!(!ground.page.is_self_signed());
    });
}
