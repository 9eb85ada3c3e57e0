//! `put`, `get` and `sync` over several servers of one folder or bucket, one of which is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bucket::{Bucket, SECRET, introduce};
use crate::common::{Ended, Ground, Running};
use crate::fleet::{all, make_tree};
use crate::server::{Server, command, public_key, serve};
use crate::store::content;

/// Files of the tree that `make_tree` makes: 120 small ones and three large ones.
const FILES: usize = 123;
/// Its entries: these, twelve directories and an empty one, a link, and the top.
const ENTRIES: u64 = FILES as u64 + 13 + 1 + 1;

/// Several servers of one folder or bucket, each with a key of its own, and a client that they
/// accept.
struct Servers {
    addresses: Vec<String>,
    /// Those that were not killed.
    running: Vec<Option<Server>>,
    // it ends before its folder is removed
    bucket: Option<Bucket>,
    ground: Ground,
}

impl Servers {
    /// Starts as many servers as these say whether the client trusts them.
    fn new(name: &str, trusted: &[bool]) -> Self {
        let mut servers = Self::none(name);
        for is_trusted in trusted {
            let serve = serve(&servers.ground, &[]);
            servers.start(serve, *is_trusted);
        }
        servers
    }

    /// Starts three servers over a bucket, which `make` makes in a folder, if it can.
    fn over_bucket(name: &str, make: impl FnOnce(&Path) -> Option<Bucket>) -> Option<Self> {
        let mut servers = Self::none(name);
        for folder in ["store/bucket", "spool"] {
            fs::create_dir_all(servers.path(folder)).expect("a folder");
        }
        let bucket = make(&servers.path(""))?;
        let address = bucket.address();
        servers.bucket = Some(bucket);
        for _ in 0..3 {
            let words = ["serve", "--json", "--listen", "127.0.0.1:0", "--store", "s3://bucket/at"];
            let mut serve = command(&servers.ground, "server", &words);
            serve.arg("--authorized-keys").arg(servers.path("authorized_keys"));
            serve.arg("--spool").arg(servers.path("spool"));
            introduce(&mut serve, address, SECRET);
            servers.start(serve, true);
        }
        Some(servers)
    }

    fn none(name: &str) -> Self {
        let ground = Ground::new(name);
        for folder in ["served", "here"] {
            fs::create_dir(ground.path(folder)).expect("a folder");
        }
        ground.write("authorized_keys", &public_key(&ground, "client"));
        Self { addresses: Vec::new(), running: Vec::new(), bucket: None, ground }
    }

    fn start(&mut self, mut serve: Command, is_trusted: bool) {
        serve.env("HOME", self.path(&format!("server-{}", self.running.len())));
        let server = Server::start(serve);
        if is_trusted {
            let trust = ["trust", &server.address, "--fingerprint", &server.fingerprint];
            let trusted = self.client(&trust);
            assert_eq!(trusted.status.code(), Some(0), "{trusted:?}");
        }
        self.addresses.push(server.address.clone());
        self.running.push(Some(server));
    }

    /// Runs a command of the client to its end.
    fn client(&self, arguments: &[&str]) -> Output {
        command(&self.ground, "client", arguments).output().expect("it starts")
    }

    fn kill(&mut self, server: usize) {
        drop(self.running[server].take().expect("it runs"));
    }

    /// A path on all servers.
    fn place(&self, path: &str) -> String {
        format!("{}:{path}", self.addresses.join(","))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.ground.path(name)
    }

    /// The file of an object in the bucket, or the folder of a directory.
    fn object(&self, key: &str) -> PathBuf {
        self.bucket.as_ref().expect("there is one").file(&format!("at/{key}"))
    }

    /// Runs a transfer, and kills a server when some files are stored in `to`, and most are not;
    /// returns its last event.
    fn kill_during(&mut self, server: usize, arguments: &[&str], to: &str) -> Value {
        // 4 MiB in at least 4 s
        let arguments = [arguments, &["--rate", "8mbit"]].concat();
        let to = self.path(to);
        let has_some = |_: &Running| count_files(&to) >= 8;
        let has_most = || count_files(&to) >= FILES * 3 / 4;
        self.kill_when(server, &arguments, has_some, has_most)
    }

    /// Runs a transfer, and kills a server when it is time, which is before it is late; returns its
    /// last event.
    fn kill_when(
        &mut self,
        server: usize,
        arguments: &[&str],
        is_time: impl Fn(&Running) -> bool,
        is_late: impl Fn() -> bool,
    ) -> Value {
        let arguments = [arguments, &["--json"]].concat();
        let mut transfer = self.ground.start(command(&self.ground, "client", &arguments));
        transfer.until("the time", |transfer| is_time(transfer).then_some(()));
        // it does not go on while its server is killed
        transfer.signal(Signal::SIGSTOP);
        assert!(!is_late(), "this test stood still for seconds");
        self.kill(server);
        transfer.signal(Signal::SIGCONT);
        let ended = transfer.end();
        assert_eq!(ended.code, Some(0), "{ended}");
        let lost = events(&ended, "server_lost");
        assert_eq!(lost.len(), 1, "{ended}");
        assert_eq!(lost[0]["server"], self.addresses[server].as_str(), "{ended}");
        assert_eq!(lost[0]["final"], true, "{ended}");
        let mut end = events(&ended, "end");
        assert_eq!(end.len(), 1, "{ended}");
        end.remove(0)
    }
}

/// Counts the files below a folder, which may change meanwhile.
fn count_files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let count = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => count_files(&entry.path()),
        Ok(kind) => usize::from(kind.is_file()),
        Err(_) => 0,
    };
    entries.map(count).sum()
}

/// The journals of servers that take part in uploads, in the folder of uploads.
fn count_parts_journals(uploads: &Path) -> usize {
    let entries = fs::read_dir(uploads).into_iter().flatten().flatten();
    let of_parts =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(b".parts"));
    of_parts.map(|entry| count_files(&entry.path())).sum()
}

/// Bytes that a transfer has reported as moved.
fn moved(transfer: &Running) -> u64 {
    let printed = transfer.printed();
    // the last line may not be whole
    let events = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter_map(|event| event["moved"].as_u64()).max().unwrap_or(0)
}

/// The events of this name.
fn events(ended: &Ended, name: &str) -> Vec<Value> {
    let lines = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    lines.filter(|event: &Value| event["event"] == name).collect()
}

#[test]
fn a_tree_is_put_over_three_servers_of_which_one_is_killed() {
    let mut servers = Servers::new("spread-put", &[true; 3]);
    let tree = servers.path("here/tree");
    make_tree(&tree);
    let place = servers.place("backup/");
    let end = servers.kill_during(0, &["put", "here/tree", &place], "served/backup");
    assert_eq!(all(&servers.path("served/backup/tree")), all(&tree));
    assert_eq!((&end["stored"], &end["failed"]), (&ENTRIES.into(), &0.into()), "{end}");
}

#[test]
fn a_tree_is_fetched_from_three_servers_of_which_one_is_killed() {
    let mut servers = Servers::new("spread-get", &[true; 3]);
    let tree = servers.path("served/tree");
    make_tree(&tree);
    let place = servers.place("tree");
    let end = servers.kill_during(1, &["get", &place, "here/"], "here/tree");
    assert_eq!(all(&servers.path("here/tree")), all(&tree));
    assert_eq!((&end["stored"], &end["failed"]), (&ENTRIES.into(), &0.into()), "{end}");
}

#[test]
fn a_tree_goes_both_ways_over_several_lanes() {
    let servers = Servers::new("lanes", &[true]);
    let tree = servers.path("here/tree");
    make_tree(&tree);
    let put = servers.client(&["put", "--lanes", "3", "here/tree", &servers.place("to/")]);
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    assert_eq!(all(&servers.path("served/to/tree")), all(&tree));
    let place = servers.place("to/tree");
    let get = servers.client(&["get", "--lanes", "3", &place, "here/back/"]);
    assert_eq!(get.status.code(), Some(0), "{get:?}");
    assert_eq!(all(&servers.path("here/back/tree")), all(&tree));
    for wrong in [&["--lanes", "0"][..], &["--lanes", "9"], &["--lanes", "2", "--streams"]] {
        let arguments = [&["get", &place, "here/"][..], wrong].concat();
        let refused = servers.client(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}

#[test]
fn a_sync_over_three_servers_of_which_one_is_killed_removes_at_last() {
    let mut servers = Servers::new("spread-sync", &[true; 3]);
    let tree = servers.path("here/tree");
    make_tree(&tree);
    fs::create_dir_all(servers.path("served/to")).expect("a folder");
    fs::write(servers.path("served/to/surplus"), "surplus").expect("a file");
    let place = servers.place("to");
    let end = servers.kill_during(2, &["sync", "--delete", "here/tree", &place], "served/to");
    assert_eq!(all(&servers.path("served/to")), all(&tree));
    assert_eq!((&end["removed"], &end["failed"]), (&1.into(), &0.into()), "{end}");
    let all = ["stored", "unchanged"].map(|key| end[key].as_u64().expect("a number"));
    // but for the top
    assert_eq!(all.iter().sum::<u64>(), ENTRIES - 1, "{end}");
}

#[test]
fn a_large_file_is_put_over_three_servers_of_a_bucket_of_which_one_is_killed() {
    let servers = Servers::over_bucket("spread-bucket", |at| Some(Bucket::in_process(at)));
    kills_while_a_large_file_is_put(servers.expect("a bucket"));
}

#[test]
fn a_large_file_is_put_over_three_servers_of_versitygw_of_which_one_is_killed() {
    if let Some(servers) = Servers::over_bucket("spread-versitygw", Bucket::at_versitygw) {
        kills_while_a_large_file_is_put(servers);
    }
}

fn kills_while_a_large_file_is_put(mut servers: Servers) {
    // a range of at least 64 MiB for each server, so that the one that is killed has one
    let large = content((3 << 26) + 8_000_000);
    fs::write(servers.path("here/large"), &large).expect("a file");
    let [object, uploads, records] =
        ["large", ".headroom/uploads", ".headroom/records"].map(|key| servers.object(key));
    let place = servers.place("large");
    // at least 5 s
    let put = ["put", "here/large", &place, "--rate", "320mbit"];
    let is_time = |put: &Running| moved(put) >= 48 << 20 && count_parts_journals(&uploads) >= 3;
    let end = servers.kill_when(1, &put, is_time, || object.exists());
    assert_eq!((&end["stored"], &end["failed"]), (&1.into(), &0.into()), "{end}");
    assert!(end["range_servers"].as_u64() >= Some(2), "{end}");
    assert!(fs::read(&object).expect("an object") == large);
    assert_eq!(count_files(&uploads), 0, "nothing is left of the upload");
    let hash = blake3::hash(&large);
    let has_hash = |record: &Path| {
        let record = fs::read(record).expect("a record");
        record.windows(32).any(|bytes| bytes == hash.as_bytes())
    };
    let mut files = fs::read_dir(records).expect("a folder").flatten();
    assert!(files.any(|file| has_hash(&file.path())), "the record has the hash of the file");

    // another server reads it by that
    let place = format!("{}:large", servers.addresses[2]);
    let got = servers.client(&["get", &place, "here/back"]);
    assert_eq!(got.status.code(), Some(0), "{got:?}");
    assert!(fs::read(servers.path("here/back")).expect("a file") == large);
}

#[test]
fn a_server_whose_key_is_unknown_is_left_out_and_told() {
    let servers = Servers::new("spread-unknown", &[true, false, true]);
    let tree = servers.path("here/tree");
    make_tree(&tree);
    let put = servers.client(&["put", "here/tree/.", &servers.place("to")]);
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    assert_eq!(all(&servers.path("served/to")), all(&tree));
    let told = String::from_utf8_lossy(&put.stderr).into_owned();
    let without = format!("going on without {}", servers.addresses[1]);
    assert!(told.contains(&without) && told.contains("is unknown"), "{told}");
}

#[test]
fn without_any_server_it_ends_with_the_code_of_the_error() {
    let mut servers = Servers::new("spread-none", &[true, true]);
    fs::write(servers.path("here/file"), "content").expect("a file");
    fs::write(servers.path("here/other"), "content").expect("a file");
    let place = servers.place("to/");
    servers.kill(0);
    let put = servers.client(&["put", "here/file", "here/other", &place]);
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    servers.kill(1);
    for arguments in [
        &["put", "here/file", "here/other", place.as_str()][..],
        &["put", "here/file", place.as_str()],
        &["get", place.as_str(), "here/back/"],
        &["sync", "here", place.as_str()],
    ] {
        let ended = servers.client(arguments);
        assert_eq!(ended.status.code(), Some(3), "{arguments:?} {ended:?}");
    }
}

#[test]
fn wrong_lists_of_servers_are_wrong_arguments() {
    let ground = Ground::new("spread-words");
    fs::write(ground.path("file"), "content").expect("a file");
    for (arguments, word) in [
        (&["put", "file", "a,,b:x"][..], "is not a path on a host"),
        (&["put", "file", "a,b"], "is not a path on a host"),
        (&["put", "file", "a:0,b:x"], "not a port"),
        (&["put", "file", "a,b,a:x"], "names the server a twice"),
        (&["put", "--ssh", "file", "a,b:x"], "--ssh"),
        (&["get", "a,b:x", "a:y", "."], "on the same servers"),
        (&["get", "a,b:../x", "."], "is not a path on a server"),
        (&["ls", "a,b:x"], "names several servers"),
        (&["rm", "a,b:x"], "names several servers"),
    ] {
        let ended = command(&ground, "home", arguments).output().expect("it starts");
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?} {told}");
        assert!(told.contains(word), "{arguments:?} {told}");
    }
}

#[test]
fn all_addresses_of_a_host_are_servers_with_spread() {
    let servers = Servers::new("spread-addresses", &[true]);
    let tree = servers.path("here/tree");
    make_tree(&tree);
    let place = servers.place("to/");
    let put = servers.client(&["put", "--spread", "--json", "here/tree", &place]);
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    assert_eq!(all(&servers.path("served/to/tree")), all(&tree));
}
