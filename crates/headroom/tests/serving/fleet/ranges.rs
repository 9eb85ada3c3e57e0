//! Fleets of which several workers copy ranges of one file.

use std::fs;

use serde_json::Value;

use super::ends::{files_as_they_are, make_store_tree};
use super::{Hosts, SECRET, command};
use crate::server::Server;

/// In ranges of 1 MiB, of which the larger file has nine.
const RANGES: &str = "[batch]\nfiles = 10\nrange = \"1MiB\"";

impl Hosts {
    /// How many ranges a file has had, as its receipt says.
    fn ranges_of(&self, path: &str) -> u64 {
        let output = self.fleet(&["receipts"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let receipts = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let mut of_path = receipts.filter(|receipt| receipt["path"] == path);
        of_path.next().expect("a receipt")["ranges"].as_u64().unwrap_or(0)
    }
}

/// Copies a file in nine ranges and one in none, and kills a worker meanwhile.
fn share_a_file(hosts: &Hosts, is_upload: bool) {
    let [tree, to] = match is_upload {
        true => ["here/tree", "served/to"],
        false => ["served/tree", "here/to"],
    };
    let (tree, to) = (hosts.ground.path(tree), hosts.ground.path(to));
    make_store_tree(&tree);
    for n in 0..40 {
        // the large files alone
        for folder in ["a", "a/b", "a-b", "c"] {
            let _ = fs::remove_file(tree.join(folder).join(n.to_string()));
        }
    }
    // 10 MiB in at least 5 s
    hosts.job(is_upload, &format!("rate = \"16mbit\"\n{RANGES}"));
    hosts.run_and_kill_a_worker(3);
    assert_eq!(files_as_they_are(&to), files_as_they_are(&tree));
    hosts.assert_receipts_of(&tree);
    assert_eq!((hosts.ranges_of("a/large"), hosts.ranges_of("large")), (9, 0));
    let status = hosts.status().expect("figures");
    assert_eq!((&status["found_files"], &status["copied_files"]), (&2.into(), &2.into()));
    assert_eq!(status["bytes_in_flight"], 0, "{status}");
    // partial files and their ranges are no names of the tree
    assert_eq!(fs::read_dir(to.join("a")).expect("a folder").count(), 2, "large, and b");
    assert_eq!(status.get("store"), None, "{status}");
}

#[test]
fn workers_of_which_one_is_killed_fetch_ranges_of_one_file_from_a_server() {
    share_a_file(&Hosts::new("fleet-ranges"), false);
}

#[test]
fn workers_of_which_one_is_killed_send_ranges_of_one_file_to_a_server() {
    share_a_file(&Hosts::new("fleet-ranges-up"), true);
}

/// Makes a file of four parts of an upload below a folder, has workers of which one is killed copy
/// that to a place in four ranges, and compares the object in the bucket.
fn share_an_object(hosts: &Hosts, folder: &str, (from, to): (&str, &str)) {
    let tree = hosts.ground.path(folder);
    fs::create_dir_all(tree.join("a")).expect("a folder");
    let content: Vec<_> = (0..30_usize << 20).map(|n| (n / 999 % 251) as u8).collect();
    fs::write(tree.join("a/large"), &content).expect("a file");
    hosts.job_between(from, to, "rate = \"60mbit\"\n[batch]\nrange = \"8MiB\"");
    hosts.run_and_kill_a_worker(3);
    assert_eq!(hosts.ranges_of("a/large"), 4);
    hosts.assert_receipts_of(&tree);
    let object = fs::read(hosts.ground.path("store/bucket/x/a/large")).expect("an object");
    assert!(object == content, "the object differs");
    let status = hosts.status().expect("figures");
    assert_eq!((&status["copied_files"], &status["bytes_in_flight"]), (&1.into(), &0.into()));
}

#[test]
fn workers_of_which_one_is_killed_store_ranges_of_one_object() {
    let hosts = Hosts::with_bucket("fleet-ranges-store");
    let from = hosts.server.place("tree");
    share_an_object(&hosts, "served/tree", (&from, "s3://bucket/x"));
}

#[test]
fn workers_of_which_one_is_killed_send_ranges_of_one_object_to_a_server_of_a_store() {
    let hosts = Hosts::with_bucket("fleet-ranges-up-store");
    let words = ["serve", "--json", "--listen", "127.0.0.1:0", "--store", "s3://bucket"];
    let mut serve = command(&hosts.ground, "store-server", &words);
    serve.arg("--authorized-keys").arg(hosts.ground.path("authorized_keys"));
    hosts.s3.as_ref().expect("a store").introduce(&mut serve, SECRET);
    let there = Server::start(serve);
    hosts.trust(&there);
    share_an_object(&hosts, "here/tree", ("here/tree", &there.place("x")));
}

#[test]
fn ranges_come_from_a_store_and_from_a_directory_and_a_sync_fetches_none_again() {
    let hosts = Hosts::with_bucket("fleet-ranges-within");
    let (tree, back) = (hosts.ground.path("here/tree"), hosts.ground.path("here/back"));
    make_store_tree(&tree);
    let sync = format!("mode = \"sync\"\ndelete = true\n{RANGES}");
    hosts.restart("here/tree", "s3://bucket/x", &sync);
    assert_eq!(hosts.ranges_of("a/large"), 9);
    for from in ["s3://bucket/x", "here/tree"] {
        let _ = fs::remove_dir_all(&back);
        hosts.restart(from, "here/back", &sync);
        assert_eq!(files_as_they_are(&back), files_as_they_are(&tree), "from {from}");
        hosts.assert_receipts_of(&tree);
        assert_eq!(hosts.ranges_of("a/large"), 9, "from {from}");
    }
    hosts.restart("here/tree", "here/back", &sync);
    assert_eq!(hosts.status().expect("figures")["unchanged_files"], 42);
}
