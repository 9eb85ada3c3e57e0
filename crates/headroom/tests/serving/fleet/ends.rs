//! Fleets between any two of folders, object stores and servers. The store is one of other people
//! (`s3s-fs`) on the loopback interface.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use super::{Hosts, all, command, files, make_tree};
use crate::bucket::S3;
use crate::server::Server;

/// What a job between all kinds of ends does.
const SYNC: &str = "mode = \"sync\"\ndelete = true\n[batch]\nfiles = 10\nbytes = \"1MiB\"";

impl Hosts {
    /// A client with a bucket, beside its server.
    pub(super) fn with_bucket(name: &str) -> Self {
        let hosts = Self::new(name);
        let store = hosts.ground.path("store");
        fs::create_dir_all(store.join("bucket")).expect("a folder");
        Self { s3: Some(S3::start(&store)), ..hosts }
    }

    /// Runs a job from its beginning, which must end well.
    pub(super) fn restart(&self, from: &str, to: &str, settings: &str) {
        self.job_between(from, to, settings);
        expect_success(&self.fleet(&["run", "--restart"]));
        let status = self.status().expect("figures");
        assert_eq!((&status["phase"], &status["set_aside"]), (&"done".into(), &0.into()));
    }

    /// A count of the job that has ended.
    fn count(&self, name: &str) -> u64 {
        self.status().expect("figures")[name].as_u64().expect("a number")
    }
}

fn expect_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Makes a tree that a store can hold: 40 small files and two larger ones.
pub(super) fn make_store_tree(tree: &Path) {
    let mut random = blake3::Hasher::new().finalize_xof();
    for folder in ["a/b", "c", "a-b"] {
        fs::create_dir_all(tree.join(folder)).expect("a folder");
    }
    let name = |n: usize| match n % 4 {
        0 => format!("a/{n}"),
        1 => format!("a/b/{n}"),
        2 => format!("a-b/{n}"),
        _ => format!("c/{n}"),
    };
    let large = [("large".to_owned(), 1_100_000), ("a/large".to_owned(), 9 << 20)];
    for (name, bytes) in (0..40).map(|n| (name(n), 3000 + n)).chain(large) {
        let mut content = vec![0; bytes];
        random.fill(&mut content);
        fs::write(tree.join(name), content).expect("a file");
    }
}

/// The files below a folder of the bucket, without what is about large objects.
fn objects(folder: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut objects = files(folder);
    objects.retain(|path, _| !path.starts_with(b".headroom/"));
    objects
}

/// The files below a folder, with their modes and times.
pub(super) fn files_as_they_are(folder: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = all(folder);
    found.retain(|_, what| !what.starts_with("directory"));
    found
}

#[test]
fn a_tree_goes_into_a_store_to_another_prefix_and_back_and_deletions_follow() {
    let hosts = Hosts::with_bucket("fleet-store");
    let bucket = hosts.ground.path("store/bucket");
    let (tree, back) = (hosts.ground.path("here/tree"), hosts.ground.path("here/back"));
    make_store_tree(&tree);
    let ways = [
        ("here/tree", "s3://bucket/one"),
        ("s3://bucket/one", "s3://bucket/two/deep"),
        ("s3://bucket/two/deep", "here/back"),
    ];
    for (from, to) in ways {
        hosts.restart(from, to, SYNC);
        hosts.assert_receipts_of(&tree);
        // what stores may charge for, of all workers and the run
        let store = hosts.status().expect("figures")["store"].clone();
        let count = |kind: &str| store[kind].as_u64().expect("a number");
        let stored = count("put") + count("complete");
        assert!(to.starts_with("here") || stored >= 42, "{to}: {store}");
        assert!(from.starts_with("here") || count("get") >= 42, "{to}: {store}");
        assert!(count("list") > 0, "{to}: {store}");
    }
    assert_eq!(objects(&bucket.join("one")), files(&tree));
    assert_eq!(objects(&bucket.join("two/deep")), files(&tree));
    assert_eq!(files_as_they_are(&back), files_as_they_are(&tree));

    fs::remove_file(tree.join("a/b/1")).expect("it is there");
    fs::write(tree.join("c/3"), "changed").expect("a file");
    for (from, to) in ways {
        hosts.restart(from, to, SYNC);
        assert_eq!(hosts.count("removed"), 1, "{to}");
        // what is the same is not copied again
        assert_eq!(hosts.count("copied_files"), 41, "{to}");
        assert!(hosts.count("unchanged_files") >= 39, "{to}");
    }
    assert_eq!(objects(&bucket.join("one")), files(&tree));
    assert_eq!(objects(&bucket.join("two/deep")), files(&tree));
    assert_eq!(files_as_they_are(&back), files_as_they_are(&tree));
}

#[test]
fn a_tree_goes_between_a_store_and_a_server_by_workers_of_which_one_is_killed() {
    let hosts = Hosts::with_bucket("fleet-store-server");
    let tree = hosts.ground.path("served/tree");
    make_store_tree(&tree);
    // 10 MiB in at least 5 s
    let slow = SYNC.replace("[batch]", "rate = \"16mbit\"\n[batch]");
    hosts.job_between(&hosts.server.place("tree"), "s3://bucket/x", &slow);
    hosts.run_and_kill_a_worker(1);
    hosts.assert_receipts_of(&tree);
    assert_eq!(objects(&hosts.ground.path("store/bucket/x")), files(&tree));

    hosts.restart("s3://bucket/x", &hosts.server.place("back"), SYNC);
    hosts.assert_receipts_of(&tree);
    let back = hosts.ground.path("served/back");
    assert_eq!(files_as_they_are(&back), files_as_they_are(&tree));
    fs::write(back.join("c/surplus"), "not at the source").expect("a file");
    hosts.restart("s3://bucket/x", &hosts.server.place("back"), SYNC);
    assert_eq!((hosts.count("removed"), hosts.count("unchanged_files")), (1, 42));
    assert!(!back.join("c/surplus").exists());
}

#[test]
fn a_tree_goes_from_server_to_server_by_workers_of_which_one_is_killed_and_deletions_follow() {
    let hosts = Hosts::new("fleet-servers");
    let (tree, other) = (hosts.ground.path("served/tree"), hosts.ground.path("other"));
    make_tree(&tree);
    fs::create_dir(&other).expect("a folder");
    let mut serve = command(&hosts.ground, "other-server", &["serve", "--json"]);
    serve.args(["--listen", "127.0.0.1:0", "--root"]).arg(&other);
    serve.arg("--authorized-keys").arg(hosts.ground.path("authorized_keys"));
    let there = Server::start(serve);
    hosts.trust(&there);
    let (from, to) = (hosts.server.place("tree"), there.place("to"));
    // 4 MiB in at least 4 s
    let settings = "rate = \"8mbit\"\n[batch]\nfiles = 10\nbytes = \"1MiB\"";
    hosts.job_between(&from, &to, settings);
    hosts.run_and_kill_a_worker(1);
    let copied = other.join("to");
    assert_eq!(all(&copied), all(&tree));
    hosts.assert_receipts_of(&tree);

    fs::create_dir(copied.join("0/surplus")).expect("a folder");
    fs::write(copied.join("0/surplus/file"), "not at the source").expect("a file");
    fs::write(copied.join("0/sub/7"), "changed").expect("a file");
    fs::remove_file(copied.join("0/sub/8")).expect("it is there");
    hosts.restart(&from, &to, SYNC);
    assert_eq!(all(&copied), all(&tree));
    assert_eq!((hosts.count("copied_files"), hosts.count("unchanged_files")), (123, 121));
    assert!(hosts.count("removed") >= 1);
    // what the killed worker has left is gone, too
    let left = fs::read_dir(hosts.ground.scratch()).expect("a folder").flatten();
    let mut names = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.find(|name| name.starts_with("headroom-fleet-")), None);
}

#[test]
fn a_store_that_refuses_ends_the_run_and_no_credential_is_shown() {
    let mut hosts = Hosts::with_bucket("fleet-store-refused");
    let tree = hosts.ground.path("here/tree");
    make_store_tree(&tree);
    hosts.job_between("here/tree", "s3://nowhere/x", "");
    let refused = hosts.fleet(&["run"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("NoSuchBucket"), "{told}");
    // without credentials, too
    hosts.s3 = None;
    hosts.job_between("here/tree", "s3://key:hush@bucket/x", "");
    let refused = hosts.fleet(&["run"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("job.toml:3:") && !told.contains("hush"), "{told}");
}
