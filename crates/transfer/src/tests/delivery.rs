//! Trees there and back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::*;

/// Names in any bytes, empty and great files, modes and times.
fn make_tree(root: &Path) {
    let odd = OsStr::from_bytes(b"\xff\xfe odd\nname\x1b[31m");
    write(&root.join("empty"), b"");
    write(&root.join("small"), b"content");
    write(&root.join(odd), b"odd");
    write(&root.join("a/b/c/at the bound"), &content(64 << 10));
    write(&root.join("a/b/c/behind the bound"), &content((64 << 10) + 1));
    write(&root.join("a/one span"), &content(1 << 20));
    write(&root.join("a/and an byte"), &content((1 << 20) + 1));
    write(&root.join("a/several pieces"), &content((19 << 20) + 12_345));
    std::fs::create_dir(root.join("nothing in it")).expect("a folder");
    symlink("a/b", root.join("link")).expect("a link");
    symlink("nowhere", root.join("a/dangling")).expect("a link");
    let mode = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(root.join(name), permissions).expect("chmod");
    };
    mode("small", 0o751);
    mode("a/several pieces", 0o600);
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for name in ["small", "a/several pieces", "nothing in it", "a/b", "a"] {
        let file = std::fs::File::open(root.join(name)).expect("it is there");
        file.set_modified(old).expect("a time");
    }
    mode("nothing in it", 0o500);
}

#[test]
fn a_tree_is_unchanged_after_put_and_get() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let notes = Notes::new();
        let put = client.put(&[ground.here("tree")], b"", false, notes.clone()).await;
        let put = put.expect("it is sent");
        assert_eq!(put.failed, 0, "{:?}", notes.0.lock());
        assert_eq!(tree(&ground.here("tree")), tree(&ground.served("tree")));
        let bytes: u64 = (64 << 10) * 2 + 1 + (1 << 20) * 2 + 1 + (19 << 20) + 12_345 + 7 + 3;
        assert_eq!(put.moved, bytes);
        assert_eq!(put.kept, 0);

        let back = ground.here("back/");
        let got = client.get(&[b"tree".to_vec()], &back, true, Arc::new(())).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.stored, got.failed, got.moved), (put.stored, 0, bytes));
        assert_eq!(tree(&ground.here("tree")), tree(&back.join("tree")));

        // what is there is not sent again, but for what travels within messages
        let again = client.put(&[ground.here("tree")], b"", true, Arc::new(())).await;
        let again = again.expect("it is sent");
        assert_eq!(again.failed, 0);
        assert_eq!(again.moved, (64 << 10) + 7 + 3);
        assert_eq!(again.kept + again.moved, bytes);
        client.close().await;
    });
}

#[test]
fn many_small_files_arrive() {
    let ground = Ground::new();
    for n in 0..1500 {
        write(&ground.here(&format!("many/{}/{n}", n % 7)), format!("content of {n}").as_bytes());
    }
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("many")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").stored, 1500 + 8);
        assert_eq!(tree(&ground.here("many")), tree(&ground.served("many")));
        let back = ground.here("back");
        let got = client.get(&[b"many/.".to_vec()], &back, false, Arc::new(())).await;
        assert_eq!(got.expect("it is fetched").stored, 1500 + 7);
        assert_eq!(tree(&ground.here("many")), tree(&ground.here("back")));
    });
}

#[test]
fn more_large_files_arrive_than_may_be_open_at_once() {
    let ground = Ground::new();
    for n in 0..150 {
        write(&ground.here(&format!("many/{n}")), &content(70_000 + n));
    }
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("many")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").failed, 0);
        assert_eq!(tree(&ground.here("many")), tree(&ground.served("many")));
    });
}

#[test]
fn one_file_gets_the_name_it_is_given() {
    let ground = Ground::new();
    write(&ground.here("a"), b"content");
    std::fs::create_dir(ground.served("directory")).expect("a folder");
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        for (to, place) in [
            ("b", "b"),
            ("", "a"),
            ("directory", "directory/a"),
            ("/new/deep/c", "new/deep/c"),
            ("other/", "other/a"),
        ] {
            let put = client.put(&[ground.here("a")], to.as_bytes(), false, Arc::new(())).await;
            assert_eq!(put.expect(to).stored, 1, "{to}");
            assert_eq!(std::fs::read(ground.served(place)).expect(place), b"content");
        }
        std::fs::create_dir(ground.here("there")).expect("a folder");
        for (to, place) in [("x", "x"), ("there", "there/b"), ("made/", "made/b")] {
            let to = ground.here(to);
            let got = client.get(&[b"b".to_vec()], &to, false, Arc::new(())).await;
            assert_eq!(got.expect(place).stored, 1);
            assert_eq!(std::fs::read(ground.here(place)).expect(place), b"content");
        }
    });
}

/// What the table in docs/files.md says, for both directions.
#[test]
fn a_source_becomes_the_destination_or_goes_into_it_as_with_cp() {
    // source, destination, what of `file` and `d/x` lies where
    let cases = [
        ("file", "new", "new"),
        ("file", "deep/er/new", "deep/er/new"),
        ("file", "new/", "new/file"),
        ("file", "there", "there/file"),
        ("file", "old", "old"),
        ("d", "new", "new/x"),
        ("d", "deep/er/new", "deep/er/new/x"),
        ("d/", "new", "new/x"),
        ("d", "new/", "new/d/x"),
        ("d", "there", "there/d/x"),
        ("d/.", "new", "new/x"),
        ("d/.", "deep/er/new", "deep/er/new/x"),
        ("d/.", "new/", "new/x"),
        ("d/.", "there", "there/x"),
    ];
    let ground = Ground::new();
    for folder in [ground.here("from"), ground.served("from")] {
        write(&folder.join("file"), b"content");
        write(&folder.join("d/x"), b"content");
    }
    let prepare = |folder: &Path| {
        std::fs::create_dir_all(folder.join("there")).expect("a folder");
        write(&folder.join("old"), b"before");
    };
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        for (n, (from, to, place)) in cases.into_iter().enumerate() {
            let (put_to, get_to) = (ground.served(&format!("{n}")), ground.here(&format!("{n}")));
            prepare(&put_to);
            prepare(&get_to);
            let (source, there) = ([ground.here("from").join(from)], format!("{n}/{to}"));
            let put = client.put(&source, there.as_bytes(), false, Arc::new(())).await;
            let put = put.unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
            let source = format!("from/{from}").into_bytes();
            let got = client.get(&[source], &get_to.join(to), false, Arc::new(())).await;
            let got = got.unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
            assert_eq!((put.failed, got.failed), (0, 0), "{from} to {to}");
            for (way, folder) in [("put", put_to), ("get", get_to)] {
                let found = std::fs::read(folder.join(place)).unwrap_or_default();
                assert_eq!(found, b"content", "{way} {from} to {to}: {:?}", tree(&folder));
                let others = tree(&folder).into_iter().filter(|(_, what)| !what.contains("dir"));
                let most = if place == "old" { 1 } else { 2 };
                assert_eq!(others.count(), most, "{way} {from} to {to}: {:?}", tree(&folder));
            }
        }
        // several, and all of the root
        let both = [ground.here("from/file"), ground.here("from/d")];
        let put = client.put(&both, b"both", false, Arc::new(())).await.expect("it is sent");
        let both = [b"both/file".to_vec(), b"both/d/.".to_vec()];
        let got = client.get(&both, &ground.here("both"), false, Arc::new(())).await;
        assert_eq!((put.failed, got.expect("it is fetched").failed), (0, 0));
        assert!(ground.here("both/file").is_file() && ground.here("both/x").is_file());
        let got = client.get(&[Vec::new()], &ground.here("all"), false, Arc::new(())).await;
        assert_eq!(got.expect("it is fetched").failed, 0);
        assert!(ground.here("all/from/d/x").is_file() && ground.here("all/both/file").is_file());
    });
}

#[test]
fn a_pipe_is_a_failure_if_named_and_left_out_if_found() {
    let ground = Ground::new();
    for folder in [ground.here("d"), ground.served("d")] {
        write(&folder.join("file"), b"content");
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&folder.join("pipe"), mode).expect("a pipe");
    }
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let notes = Notes::new();
        let put = client.put(&[ground.here("d")], b"", false, notes.clone()).await;
        assert_eq!(put.expect("it is sent").failed, 0);
        assert!(notes.has(&["left out", "d/pipe", "a named pipe"]));
        let put = client.put(&[ground.here("d/pipe")], b"", false, notes.clone()).await;
        assert_eq!(put.expect("nothing is sent").failed, 1);
        assert!(notes.has(&["failed", "d/pipe", "a named pipe"]), "{:?}", notes.0.lock());
        let notes = Notes::new();
        let got = client.get(&[b"d/pipe".to_vec()], &ground.here(""), false, notes.clone()).await;
        assert_eq!(got.expect("nothing comes").failed, 1);
        assert!(notes.has(&["failed", "d/pipe", "a named pipe"]), "{:?}", notes.0.lock());
    });
}

/// Files of `/proc` say that they are empty.
#[test]
fn a_file_is_what_can_be_read_from_it_not_what_its_size_says() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let version = std::fs::read("/proc/version").expect("it is there");
        let put = client.put(&["/proc/version".into()], b"", false, Arc::new(())).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.moved), (1, version.len() as u64));
        assert_eq!(std::fs::read(ground.served("version")).expect("a file"), version);
        // more of it than travels within a message: it has no size to go by
        let notes = Notes::new();
        let put = client.put(&["/proc/kallsyms".into()], b"", false, notes.clone()).await;
        assert_eq!(put.expect("nothing is sent").failed, 1);
        assert!(notes.has(&["failed", "kallsyms", "put -"]), "{:?}", notes.0.lock());
        assert!(!ground.served("kallsyms").exists());
    });
}

#[test]
fn a_tree_whose_name_is_taken_by_a_file_is_refused_once() {
    let ground = Ground::new();
    for n in 0..300 {
        write(&ground.here(&format!("d/{n}")), b"content");
        write(&ground.served(&format!("d/{n}")), b"content");
    }
    write(&ground.here("taken"), b"before");
    write(&ground.served("taken"), b"before");
    run(async {
        let server = ground.start();
        for put in [true, false] {
            let mut client = ground.connect(&server).await.expect("a connection");
            let notes = Notes::new();
            let outcome = match put {
                true => client.put(&[ground.here("d")], b"taken", false, notes.clone()).await,
                false => {
                    let to = ground.here("taken");
                    client.get(&[b"d".to_vec()], &to, false, notes.clone()).await
                }
            };
            let error = outcome.expect_err("a file has the name").to_string();
            assert!(error.contains("a file is here under that name"), "put {put}: {error}");
            assert!(!notes.has(&["failed"]), "{:?}", notes.0.lock());
        }
        for path in [ground.here("taken"), ground.served("taken")] {
            assert_eq!(std::fs::read(path).expect("a file"), b"before");
        }
    });
}

#[test]
fn failures_are_named_and_the_rest_is_stored() {
    let ground = Ground::new();
    write(&ground.here("tree/clash"), &content(100_000));
    write(&ground.here("tree/fine"), &content(100_000));
    symlink("/etc/passwd", ground.here("tree/out")).expect("a link");
    std::fs::create_dir_all(ground.served("tree/clash")).expect("a folder");
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let notes = Notes::new();
        let paths = [ground.here("tree"), ground.here("missing")];
        let put = client.put(&paths, b"", false, notes.clone()).await.expect("it is sent");
        assert_eq!((put.stored, put.failed), (2, 2), "{:?}", notes.0.lock());
        assert_eq!(put.left_out, 1, "{:?}", notes.0.lock());
        assert!(notes.has(&["failed", "tree/clash", "a directory is here"]));
        assert!(notes.has(&["left out", "tree/out", "leads out"]));
        assert!(notes.has(&["failed", "missing"]));
        assert!(notes.has(&["stored: tree/fine"]));
        assert!(ground.served("tree/out").symlink_metadata().is_err());
    });
}

#[test]
fn nothing_outside_the_root_is_read_or_written() {
    let ground = Ground::new();
    write(&ground.folder.path().join("secret"), b"secret");
    symlink("..", ground.served("up")).expect("a link");
    write(&ground.here("a"), b"content");
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        for path in ["../secret", "up/secret", "x/../../secret"] {
            let got = client.get(&[path.into()], &ground.here("got"), false, Arc::new(())).await;
            let refused = got.map_or(true, |summary| summary.stored == 0 && summary.failed == 1);
            assert!(refused && !ground.here("got").exists(), "{path}");
        }
        for path in ["../a", "up/a", "up/new/a"] {
            let put = client.put(&[ground.here("a")], path.as_bytes(), false, Arc::new(())).await;
            assert!(put.is_err(), "{path}: {put:?}");
        }
        let listed = client.list(b"up", |_| {}).await;
        assert!(listed.is_ok(), "the link itself: {listed:?}");
        assert!(client.list(b"up/here", |_| {}).await.is_err());
        assert!(client.list(b"missing", |_| {}).await.is_err());
        assert!(!ground.folder.path().join("a").exists());
        assert!(!ground.folder.path().join("new").exists());
    });
}

#[test]
fn a_listing_shows_what_exists() {
    let ground = Ground::new();
    make_tree(&ground.served("tree"));
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let mut found = Vec::new();
        client.list(b"tree", |listed| found.push(listed)).await.expect("it may look");
        let small = found.iter().find(|listed| listed.path.as_bytes() == b"small");
        let small = small.expect("it is there");
        assert_eq!((small.size, small.mode), (7, 0o751));
        assert_eq!(small.mtime.seconds, 1_000_000_000);
        assert_eq!(found.len(), 6);
        assert!(found.iter().all(|listed| !listed.path.to_string().contains(['\n', '\x1b'])));
        let mut one = Vec::new();
        client.list(b"tree/small", |listed| one.push(listed)).await.expect("it may look");
        assert_eq!(one.iter().collect::<Vec<_>>(), [small]);
    });
}

#[test]
fn a_peer_of_another_version_gets_an_error_that_says_so() {
    use crate::control::{MessageReader, MessageWriter};
    use headroom_transfer_proto::message::Message;
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let host = host(&server);
        let host_keys = crate::trust::HostKeys::Keys(vec![ground.server.public()]);
        let (_endpoint, connection) = crate::quic::connect_to(
            &host,
            vec![server.address().expect("an address")],
            Some(&ground.client),
            host_keys,
            None,
            crate::client::TIMEOUT,
        )
        .await
        .expect("a connection");
        let (send, receive) = connection.open_bi().await.expect("a stream");
        let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
        let program = "headroom 9".to_owned();
        let hello =
            Message::Hello { version: 7, program, rate_bps: None, priority: None, counts: None };
        writer.send(&hello).await.expect("it is sent");
        let closed = async {
            reader.recv_hello().await?;
            reader.expect().await
        };
        let error = closed.await.expect_err("it is refused").to_string();
        assert!(error.contains("headroom 9") && error.contains("version 7"), "{error}");
    });
}
