//! Single names of a tree, as programs send and fetch them that divide a tree among connections.

use std::os::unix::fs::symlink;

use headroom_transfer_proto::path::RelPath;

use super::*;
use crate::files::Root;

fn paths(names: &[&str]) -> Vec<RelPath> {
    names.iter().map(|name| RelPath::parse(name.as_bytes()).expect("a path")).collect()
}

#[test]
fn names_of_a_listing_arrive_under_their_paths() {
    let ground = Ground::new();
    let big = content(3 << 20);
    write(&ground.here("a/b/small"), b"small");
    write(&ground.here("a/b/not listed"), b"not listed");
    write(&ground.here("a/big"), &big);
    symlink("b/small", ground.here("a/link")).expect("a link");
    std::fs::create_dir(ground.here("back")).expect("a folder");
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let (here, notes) = (ground.here(""), Notes::new());
        let listed = paths(&["a", "a/b", "a/b/small", "a/big", "a/link", "a/missing"]);
        let put = client.put_listed(&here, listed, b"to", false, notes.clone()).await;
        let put = put.expect("an answer");
        assert_eq!((put.stored, put.failed), (5, 1));
        assert!(notes.has(&["failed", "a/missing"]), "{notes:?}");
        assert_eq!(std::fs::read(ground.served("to/a/b/small")).expect("a file"), b"small");
        assert_eq!(std::fs::read(ground.served("to/a/big")).expect("a file"), big);
        assert!(ground.served("to/a/link").is_symlink());
        assert!(!ground.served("to/a/b/not listed").exists());

        // what differs is named without being sent
        let root = Root::open(&here).expect("a folder");
        let listed = paths(&["a/b/small", "a/b/not listed"]);
        let planned = client.plan_names(&root, listed, b"to", notes.clone()).await;
        let planned = planned.expect("an answer");
        assert_eq!((planned.unchanged, planned.stored, planned.failed), (1, 1, 0));
        assert!(!ground.served("to/a/b/not listed").exists());

        // what is there is not sent again
        let listed = paths(&["a/b/small", "a/big"]);
        let sync = client.sync_listed(&here, listed, b"to", false, notes.clone()).await;
        let sync = sync.expect("an answer");
        assert_eq!((sync.unchanged, sync.stored, sync.moved), (2, 0, 0));

        let back = Root::open(&ground.here("back")).expect("a folder");
        let directory = RelPath::parse(b"a/b").expect("a path");
        let names = paths(&["small", "missing"]);
        let got = client.get_listed(b"to", Some(&directory), &names, &back, false, notes).await;
        let got = got.expect("an answer");
        assert_eq!((got.stored, got.failed), (1, 1));
        assert_eq!(std::fs::read(ground.here("back/a/b/small")).expect("a file"), b"small");
    });
}

#[test]
fn fetched_names_follow_no_link_below_the_destination() {
    let ground = Ground::new();
    write(&ground.served("a/file"), b"content");
    for folder in ["back", "elsewhere"] {
        std::fs::create_dir(ground.here(folder)).expect("a folder");
    }
    symlink("../elsewhere", ground.here("back/a")).expect("a link");
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let back = Root::open(&ground.here("back")).expect("a folder");
        let directory = RelPath::parse(b"a").expect("a path");
        let names = paths(&["file"]);
        let got =
            client.get_listed(b"", Some(&directory), &names, &back, false, Notes::new()).await;
        assert!(got.is_err(), "{got:?}");
        assert!(!ground.here("elsewhere/file").exists());
    });
}
