//! `headroom fleet`: trees between this machine and a server by several workers, some of which
//! are killed.

mod ends;
mod nats;
mod ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, UNIX_EPOCH};

use data_encoding::BASE64;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::bucket::{S3, SECRET};
use crate::common::{Ground, Running};
use crate::server::{Server, command, public_key, serve};

/// A server, and a client that it accepts.
struct Hosts {
    server: Server,
    ground: Ground,
    /// A store that the client may use, if there is one.
    s3: Option<S3>,
}

impl Hosts {
    fn new(name: &str) -> Self {
        let ground = Ground::new(name);
        for folder in ["served", "here"] {
            fs::create_dir(ground.path(folder)).expect("a folder");
        }
        ground.write("authorized_keys", &public_key(&ground, "client"));
        let server = Server::start(serve(&ground, &[]));
        let hosts = Self { server, ground, s3: None };
        hosts.trust(&hosts.server);
        hosts
    }

    /// Lets the client know a server.
    fn trust(&self, server: &Server) {
        let trust = ["trust", &server.address, "--fingerprint", &server.fingerprint];
        let trusted = command(&self.ground, "client", &trust).output().expect("it starts");
        assert_eq!(trusted.status.code(), Some(0), "{trusted:?}");
    }

    /// `headroom fleet` of the job.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.ground, "client", &["fleet"]);
        command.args(arguments).arg("job.toml");
        if let Some(s3) = &self.s3 {
            s3.introduce(&mut command, SECRET);
        }
        command
    }

    /// Writes the job file: an upload of `here/tree`, or a download of `served/tree`.
    fn job(&self, is_upload: bool, settings: &str) {
        let remote = |path: &str| self.server.place(path);
        let (from, to) = match is_upload {
            true => ("here/tree".to_owned(), remote("to")),
            false => (remote("tree"), "here/to".to_owned()),
        };
        self.job_between(&from, &to, settings);
    }

    /// Writes the job file.
    fn job_between(&self, from: &str, to: &str, settings: &str) {
        let text = format!(
            "name = \"job\"\nfrom = \"{from}\"\nto = \"{to}\"\nworkers = 3\nlease = \"2s\"\n{settings}\n"
        );
        self.ground.write("job.toml", &text);
    }

    /// Runs `headroom fleet …` of the job to its end.
    fn fleet(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it starts")
    }

    /// Starts a run.
    fn start(&self) -> Running {
        self.ground.start(self.command(&["run"]))
    }

    /// Starts to watch the job.
    fn watch(&self) -> Running {
        let words = ["fleet", "status", "--watch", "job.toml"];
        self.ground.start(command(&self.ground, "client", &words))
    }

    /// Runs the job, which must end with this code; returns what was said.
    fn run(&self, code: i32) -> String {
        let output = self.fleet(&["run"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs the job, kills one of its workers when so many have items, and expects that the run
    /// ends well.
    fn run_and_kill_a_worker(&self, busy: u64) {
        let mut run = self.start();
        self.until(&mut run, "items of workers", |status| {
            status["leased_items"].as_u64().is_some_and(|leased| leased >= busy)
        });
        let run_pid = run.pid();
        let victim = run.until("a worker", |_| children_of(run_pid).first().copied());
        kill(victim, Signal::SIGKILL).expect("it lives");
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended}");
    }

    /// The figures of the job, once it has begun.
    fn status(&self) -> Option<Value> {
        let output = self.fleet(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Waits until the figures are so, while the run lives.
    fn until(&self, run: &mut Running, what: &str, is_so: impl Fn(&Value) -> bool) {
        run.until(what, |_| self.status().filter(&is_so));
    }

    /// The receipts: size and hash of each path. No path has two.
    fn receipts(&self) -> BTreeMap<Vec<u8>, (u64, Option<String>)> {
        let output = self.fleet(&["receipts"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let mut receipts = BTreeMap::new();
        for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let receipt: Value = serde_json::from_slice(line).expect("JSON");
            let text = |key: &str| receipt[key].as_str().map(ToOwned::to_owned);
            let path = match text("path_base64") {
                Some(path) => BASE64.decode(path.as_bytes()).expect("base64"),
                None => text("path").expect("a path").into_bytes(),
            };
            assert!(receipt["attempts"].as_u64().is_some_and(|attempts| attempts > 0));
            assert!(text("worker").is_some() && text("time").is_some(), "{receipt}");
            let what = (receipt["size"].as_u64().expect("a size"), text("blake3"));
            assert!(receipts.insert(path, what).is_none(), "twice: {receipt}");
        }
        receipts
    }

    /// Fails unless there is one receipt for each file below a folder, and each is right.
    fn assert_receipts_of(&self, folder: &Path) {
        let receipts = self.receipts();
        let files = files(folder);
        let paths: BTreeSet<_> = files.keys().collect();
        assert_eq!(receipts.keys().collect::<BTreeSet<_>>(), paths);
        for (path, (size, hash)) in receipts {
            let content = &files[&path];
            assert_eq!(size, content.len() as u64);
            assert_eq!(hash, Some(blake3::hash(content).to_string()));
        }
    }
}

/// Makes a tree of 120 small files and three large ones, of 4 MiB together, with a name that is
/// not UTF-8, an empty directory, one that its owner may not write, and a link.
pub(crate) fn make_tree(tree: &Path) {
    let mut random = blake3::Hasher::new().finalize_xof();
    for folder in 0..6 {
        let folder = tree.join(format!("{folder}/sub"));
        fs::create_dir_all(&folder).expect("a folder");
        for n in 0..20 {
            let mut content = vec![0; 5000 + n];
            random.fill(&mut content);
            fs::write(folder.join(n.to_string()), content).expect("a file");
        }
    }
    for name in [&b"large"[..], b"0/large", b"\xff\xfe\n"] {
        let mut content = vec![0; 1_100_000];
        random.fill(&mut content);
        fs::write(tree.join(OsStr::from_bytes(name)), content).expect("a file");
    }
    fs::create_dir(tree.join("empty")).expect("a folder");
    symlink("0/large", tree.join("link")).expect("a link");
    for (name, mode) in [("empty", 0o700), ("1/sub", 0o555)] {
        set_mode(&tree.join(name), mode);
    }
    // directories have times of their own, whenever something was put into them
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["0", "0/sub", "empty", "1/sub"] {
        let directory = fs::File::open(tree.join(name)).expect("a folder");
        directory.set_modified(time).expect("a time");
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// The files below a folder, by their paths.
fn files(folder: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    walk(folder, &mut |path, name| {
        if path.symlink_metadata().expect("it is there").is_file() {
            found.insert(name, fs::read(path).expect("a file"));
        }
    });
    found
}

/// Everything below a folder: type, mode, time, and content or target.
pub(crate) fn all(folder: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    walk(folder, &mut |path, name| {
        let meta = path.symlink_metadata().expect("it is there");
        let what = match (meta.is_symlink(), meta.is_dir()) {
            (true, _) => format!("-> {}", fs::read_link(path).expect("a link").display()),
            (_, true) => format!("directory {:o} {}", meta.mode(), meta.mtime()),
            _ => {
                let content = fs::read(path).expect("a file");
                format!("{} {:o} {}", blake3::hash(&content), meta.mode(), meta.mtime())
            }
        };
        found.insert(name, what);
    });
    found
}

fn walk(folder: &Path, each: &mut dyn FnMut(&Path, Vec<u8>)) {
    let mut left = vec![folder.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(folder).expect("below").as_os_str().as_bytes().to_vec();
            each(&path, name);
            if path.symlink_metadata().expect("it is there").is_dir() {
                left.push(path);
            }
        }
    }
}

/// The processes that a process has started and that live.
fn children_of(parent: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("it is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // behind the name, in parentheses: the state, then the parent
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        let state = fields.next();
        let its_parent = fields.next().and_then(|parent| parent.parse().ok());
        its_parent == Some(parent.as_raw()) && state != Some("Z")
    };
    pids.filter(is_child).map(Pid::from_raw).collect()
}

#[test]
fn a_tree_is_copied_by_three_workers_of_which_one_is_killed() {
    let hosts = Hosts::new("fleet-kill");
    let tree = hosts.ground.path("here/tree");
    make_tree(&tree);
    // 4 MiB in at least 4 s
    hosts.job(true, "rate = \"8mbit\"\n[batch]\nfiles = 10\nbytes = \"1MiB\"");
    hosts.run_and_kill_a_worker(1);
    assert_eq!(all(&hosts.ground.path("served/to")), all(&tree));
    hosts.assert_receipts_of(&tree);
    let status = hosts.status().expect("figures");
    assert_eq!((&status["phase"], &status["set_aside"]), (&"done".into(), &0.into()), "{status}");
    // who watches it sees that it is done
    let watched = hosts.fleet(&["status", "--watch"]);
    let told = String::from_utf8_lossy(&watched.stdout);
    assert_eq!(watched.status.code(), Some(0), "{watched:?}");
    assert!(told.contains("100 %") && told.contains("job: done\n"), "{told}");
    // nothing is left to do
    hosts.run(0);
}

#[test]
fn after_all_processes_were_killed_a_run_resumes_without_listing_again() {
    let hosts = Hosts::new("fleet-all-killed");
    let tree = hosts.ground.path("here/tree");
    make_tree(&tree);
    let before = all(&tree);
    // 4 MiB in at least 16 s, of which the first file needs the least part
    hosts.job(true, "rate = \"2mbit\"\n[batch]\nfiles = 10\nbytes = \"1MiB\"");
    let mut run = hosts.start();
    let is_on_its_way = |status: &Value| status["listed"] == true && status["copied_files"] != 0;
    hosts.until(&mut run, "a copied file", is_on_its_way);
    let workers = children_of(run.pid());
    run.signal(Signal::SIGKILL);
    for worker in workers {
        // it may have ended with its run
        let _ = kill(worker, Signal::SIGKILL);
    }
    assert_eq!(run.end().code, None);
    let copied = hosts.receipts().len();
    assert!((1..123).contains(&copied), "{copied}");

    // a listing would find it
    fs::write(tree.join("late"), "late").expect("a file");
    assert_eq!(hosts.fleet(&["rate", "none"]).status.code(), Some(0));
    hosts.run(0);
    assert!(!hosts.ground.path("served/to/late").exists());
    assert_eq!(all(&hosts.ground.path("served/to")), before);
    fs::remove_file(tree.join("late")).expect("it is there");
    hosts.assert_receipts_of(&tree);
}

#[test]
fn a_sync_removes_at_last_and_only_after_everything_succeeded() {
    let hosts = Hosts::new("fleet-sync");
    let (tree, to) = (hosts.ground.path("served/tree"), hosts.ground.path("here/to"));
    make_tree(&tree);
    fs::create_dir_all(to.join("0/sub")).expect("a folder");
    // one file is there already
    fs::copy(tree.join("0/sub/7"), to.join("0/sub/7")).expect("a copy");
    let meta = fs::metadata(tree.join("0/sub/7")).expect("it is there");
    let time = meta.modified().expect("a time");
    let there = fs::File::options().write(true).open(to.join("0/sub/7")).expect("a file");
    there.set_modified(time).expect("a time");
    fs::write(to.join("surplus"), "not at the source").expect("a file");
    // what stands in the way of a file is not removed for it
    fs::create_dir(to.join("large")).expect("a folder");
    fs::write(to.join("large/precious"), "precious").expect("a file");
    hosts.job(false, "mode = \"sync\"\ndelete = true\nattempts = 1");
    let told = hosts.run(1);
    assert!(told.contains("large cannot be stored: a directory is here"), "{told}");
    assert!(to.join("surplus").exists() && to.join("large/precious").exists());
    let status = hosts.status().expect("figures");
    assert_eq!((&status["set_aside"], &status["unchanged_files"]), (&1.into(), &1.into()));
    assert_eq!(status["aside"][0]["path"], "large");

    fs::remove_dir_all(to.join("large")).expect("it is there");
    hosts.run(0);
    assert!(!to.join("surplus").exists());
    assert_eq!(all(&to), all(&tree));
    assert_eq!(hosts.status().expect("figures")["removed"], 1);
    let mut receipts = hosts.receipts();
    assert_eq!(receipts.remove(&b"0/sub/7"[..]).expect("a receipt").1, None, "it was not read");
    assert_eq!(receipts.len(), 122);
    for (path, (_, hash)) in receipts {
        let content = fs::read(to.join(OsStr::from_bytes(&path))).expect("a file");
        assert_eq!(hash, Some(blake3::hash(&content).to_string()));
    }
}

#[test]
fn a_file_that_the_source_has_lost_does_not_hold_the_delete_pass_and_an_empty_source_does() {
    let hosts = Hosts::new("fleet-lost");
    let (tree, to) = (hosts.ground.path("here/tree"), hosts.ground.path("served/to"));
    make_tree(&tree);
    fs::create_dir(&to).expect("a folder");
    fs::write(to.join("surplus"), "not at the source").expect("a file");
    let sync = |more: &str| {
        hosts.job(true, &format!("mode = \"sync\"\ndelete = true\n{more}\n[batch]\nfiles = 10"));
    };
    sync("rate = \"100kbit\"");
    let mut run = hosts.start();
    let is_listed = |status: &Value| status["listed"] == true && status["leased_items"] != 0;
    hosts.until(&mut run, "a listing", is_listed);
    // the last of the walk, which is far from its turn
    fs::remove_file(tree.join("5/sub/9")).expect("it is there");
    assert_eq!(hosts.fleet(&["rate", "none"]).status.code(), Some(0));
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    let status = hosts.status().expect("figures");
    assert_eq!((&status["vanished"], &status["set_aside"]), (&1.into(), &0.into()), "{status}");
    assert_eq!((&status["removed"], &status["phase"]), (&1.into(), &"done".into()), "{status}");
    assert_eq!(files(&to), files(&tree));

    // its disk is not mounted
    fs::rename(&tree, hosts.ground.path("here/elsewhere")).expect("it is there");
    fs::create_dir(&tree).expect("a folder");
    sync("");
    let refused = hosts.fleet(&["run", "--restart"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("the source is empty"), "{told}");
    assert!(to.join("large").exists());
    sync("allow_empty_source = true");
    hosts.run(0);
    assert_eq!(fs::read_dir(&to).expect("a folder").count(), 0);
}

#[test]
fn a_job_is_paused_slowed_cancelled_and_restarted() {
    let hosts = Hosts::new("fleet-control");
    let tree = hosts.ground.path("here/tree");
    make_tree(&tree);
    let expect = |output: Output, code: i32, words: &str| {
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(words), "`{words}` is not in {text}");
    };
    hosts.job(true, "rate = \"100kbit\"\n[batch]\nfiles = 10");
    expect(hosts.fleet(&["status"]), 2, "has no job");
    let mut run = hosts.start();
    hosts.until(&mut run, "an item of a worker", |status| status["leased_items"] != 0);
    expect(hosts.fleet(&["run"]), 2, "another `headroom fleet run` uses");
    expect(hosts.fleet(&["pause"]), 0, "job is paused");
    hosts.until(&mut run, "the return of all items", |status| {
        status["state"] == "paused" && status["leased_items"] == 0
    });
    let mut watching = hosts.watch();
    watching.until("a paused job", |it| it.printed().contains("paused").then_some(()));
    let mut interrupted = hosts.watch();
    interrupted.until("a line", |it| (!it.printed().is_empty()).then_some(()));
    interrupted.signal(Signal::SIGINT);
    assert_eq!(interrupted.end().code, Some(130));
    expect(hosts.fleet(&["rate", "2mbit"]), 0, "job has 2 Mbit/s");
    expect(hosts.fleet(&["resume"]), 0, "job continues");
    hosts.until(&mut run, "a copied file", |status| status["copied_files"] != 0);

    // Ctrl-C: workers return what they have, and nobody has to wait for the end of a lease
    expect(hosts.fleet(&["rate", "100kbit"]), 0, "job has 100 kbit/s");
    run.signal(Signal::SIGINT);
    let ended = run.end();
    ended.assert_says(130, &["paused. Repeat the command to resume"]);
    let status = hosts.status().expect("figures");
    assert_eq!((&status["state"], &status["leased_items"]), (&"paused".into(), &0.into()));

    expect(hosts.fleet(&["cancel"]), 0, "job is cancelled");
    let watched = watching.end();
    assert!(watched.code == Some(0) && watched.stdout.contains("job: cancelled\n"), "{watched}");
    expect(hosts.fleet(&["resume"]), 2, "was cancelled");
    expect(hosts.fleet(&["run"]), 2, "was cancelled");
    hosts.job(true, "mode = \"sync\"");
    expect(hosts.fleet(&["run"]), 2, "its `mode` is copy");
    expect(hosts.fleet(&["run", "--restart", "--json"]), 0, "\"ended\":\"done\"");
    assert_eq!(all(&hosts.ground.path("served/to")), all(&tree));
}
