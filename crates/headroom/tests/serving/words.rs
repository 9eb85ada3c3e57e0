//! What the transfer's commands say, and by which code they end.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};

use crate::common::Ground;
use crate::server::{Server, command, public_key, serve};

/// A server that lets two keys in, one of which may only read, and their clients.
struct Hosts {
    server: Server,
    ground: Ground,
}

impl Hosts {
    fn new(name: &str, options: &[&str]) -> Self {
        let ground = Ground::new(name);
        fs::create_dir(ground.path("served")).expect("a folder");
        let [writer, reader] = ["client", "reader"].map(|home| public_key(&ground, home));
        let keys = format!("{writer} writer@laptop\nread-only {reader} reader\n");
        ground.write("authorized_keys", &keys);
        let server = Server::start(serve(&ground, options));
        let hosts = Self { server, ground };
        for home in ["client", "reader"] {
            let trusted = hosts.run_of(home, &["trust", &hosts.server.address]);
            assert_eq!(trusted.status.code(), Some(0), "{trusted:?}");
        }
        hosts
    }

    fn place(&self, path: &str) -> String {
        self.server.place(path)
    }

    /// Runs a command of the client that may write.
    fn run(&self, arguments: &[&str]) -> Output {
        self.run_of("client", arguments)
    }

    fn run_of(&self, home: &str, arguments: &[&str]) -> Output {
        let mut command = command(&self.ground, home, arguments);
        command.args(["--fingerprint", &self.server.fingerprint]).stdin(Stdio::null());
        command.output().expect("it starts")
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("a text")
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_logged_has_no_colours_without_a_terminal() {
    let hosts = Hosts::new("colours", &[]);
    let log = hosts.ground.path("log");
    let words = ["--verbose", "serve", "--json", "--listen", "127.0.0.1:0"];
    let mut serve = command(&hosts.ground, "server", &words);
    serve.arg("--root").arg(hosts.ground.path("served"));
    serve.arg("--authorized-keys").arg(hosts.ground.path("authorized_keys"));
    serve.stderr(fs::File::create(&log).expect("a file"));
    let server = Server::start(serve);
    let output = hosts.run(&["ls", &server.place("")]);
    drop(server);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let logged = fs::read_to_string(log).expect("the log");
    assert!(logged.contains("DEBUG"), "{logged}");
    assert!(!logged.contains('\u{1b}'), "{logged}");
}

#[test]
fn a_missing_source_leaves_no_directory_made_for_it() {
    let hosts = Hosts::new("nothing", &[]);
    fs::create_dir(hosts.ground.path("served/empty")).expect("a directory");
    let there = hosts.ground.path("there");
    fs::create_dir(&there).expect("a directory");
    let get = |from: &str, to: &str| {
        let to = hosts.ground.path(to).display().to_string();
        hosts.run(&["get", &hosts.place(from), &to]).status.code()
    };
    for to in ["new", "new/er/.", "there/new", "there"] {
        assert_eq!(get("missing/.", to), Some(1), "{to}");
    }
    assert_eq!(get("missing", "new/name"), Some(1));
    assert!(!hosts.ground.path("new").exists());
    assert_eq!(fs::read_dir(&there).expect("it was there before").count(), 0);
    // one that is empty because its source is stays
    assert_eq!(get("empty/.", "new"), Some(0));
    assert_eq!(fs::read_dir(hosts.ground.path("new")).expect("a directory").count(), 0);
}

#[test]
fn exit_codes_are_those_of_the_table() {
    let hosts = Hosts::new("codes", &[]);
    fs::write(hosts.ground.path("served/file"), "content").expect("a file");
    fs::write(hosts.ground.path("own"), "content").expect("a file");
    let (file, missing) = (hosts.place("file"), hosts.place("missing"));
    let here = hosts.ground.path("here").display().to_string();
    let synced = hosts.ground.path("synced").display().to_string();
    let own = hosts.ground.path("own").display().to_string();
    let nowhere = hosts.ground.path("nowhere").display().to_string();
    for (code, arguments) in [
        (0, vec!["ls", &file]),
        (0, vec!["get", &file, &here]),
        (0, vec!["put", &own, &file]),
        // what is missing, there or here, is the same whichever command finds it
        (1, vec!["ls", &missing]),
        (1, vec!["get", &missing, &here]),
        (1, vec!["get", &missing, "-"]),
        (1, vec!["sync", &missing, &synced]),
        (1, vec!["put", &nowhere, &file]),
        (2, vec!["sync", &nowhere, &file]),
        (2, vec!["ls", "host:99999:"]),
        (2, vec!["put", &own, "host:abc:"]),
        (2, vec!["put", &own, "host:~/x"]),
        (2, vec!["ls", "host:a/../b"]),
        (2, vec!["ls", &file, "--timeout", "1h"]),
    ] {
        let output = hosts.run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert_eq!(told(&output).is_empty(), code == 0, "{arguments:?}: {output:?}");
    }
    assert!(!hosts.ground.path("synced").exists(), "a directory for nothing");
    let refused = hosts.run_of("reader", &["put", &own, &file]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    let stranger = hosts.run_of("stranger", &["ls", &file]);
    assert_eq!(stranger.status.code(), Some(5), "{stranger:?}");
    let mut unknown = command(&hosts.ground, "other", &["ls", &file]);
    let unknown = unknown.stdin(Stdio::null()).output().expect("it starts");
    assert_eq!(unknown.status.code(), Some(4), "{unknown:?}");
    // the table that people read is this one
    let mut help = command(&hosts.ground, "client", &["put", "--help"]);
    let help = String::from_utf8(help.output().expect("it starts").stdout).expect("a text");
    let table = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/transfer.md"));
    let table = table.expect("the document");
    for code in ["0", "1", "2", "3", "4", "5", "130"] {
        assert!(help.contains(&format!("\n{code:>5}  ")), "{code}: {help}");
        assert!(table.contains(&format!("\n| {code} | ")), "{code}");
    }
}

#[test]
fn a_closed_port_and_a_missing_file_are_reported_without_waiting() {
    let hosts = Hosts::new("closed", &[]);
    // longer than a machine takes that is busy, shorter than the wait for an answer
    let closed = "127.0.0.1:9"; // a port that nobody gets by chance
    let begun = std::time::Instant::now();
    let output = hosts.run(&["ls", &format!("{closed}:"), "--timeout", "30s"]);
    let took = begun.elapsed();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(told(&output).contains("nothing listens at its UDP port"), "{output:?}");
    assert!(took < std::time::Duration::from_secs(25), "{took:?}");

    // nobody listens, and nobody says so: only the timeout ends it
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let silent_place = format!("{}:", silent.local_addr().expect("a port"));
    let output = hosts.run(&["ls", &silent_place, "--timeout", "500ms"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(told(&output).contains("nothing answers"), "{output:?}");

    // what is to be sent is looked at first: this host is never asked
    silent.set_nonblocking(true).expect("a socket");
    while silent.recv(&mut [0; 2048]).is_ok() {}
    let nowhere = hosts.ground.path("nowhere").display().to_string();
    let output = hosts.run(&["put", &nowhere, &nowhere, &silent_place]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = told(&output);
    assert_eq!(said.matches("cannot be sent: there is no such file").count(), 2, "{said}");
    assert!(silent.recv(&mut [0; 2048]).is_err(), "it was asked");
}

#[test]
fn a_message_names_its_side_and_comes_once_for_a_directory() {
    let hosts = Hosts::new("sides", &[]);
    let tree = hosts.ground.path("tree/sub/deep");
    fs::create_dir_all(&tree).expect("a folder");
    for n in 0..20 {
        fs::write(tree.join(n.to_string()), "content").expect("a file");
    }
    fs::create_dir(hosts.ground.path("served/tree")).expect("a folder");
    // a file is where a directory would be
    fs::write(hosts.ground.path("served/tree/sub"), "a file").expect("a file");
    let tree = hosts.ground.path("tree").display().to_string();
    let output = hosts.run(&["put", &tree, &hosts.place("")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = told(&output);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with("headroom: on the server: tree/sub cannot be made: "), "{said}");
    assert!(lines[1].contains("21 more in directories that could not be made"), "{said}");

    // the other way it is this side's
    let here = hosts.ground.path("here");
    fs::create_dir_all(here.join("other")).expect("a folder");
    fs::write(here.join("other/sub"), "a file").expect("a file");
    fs::create_dir_all(hosts.ground.path("served/other/sub/inner")).expect("a folder");
    let output = hosts.run(&["get", &hosts.place("other"), &here.display().to_string()]);
    let said = told(&output);
    assert!(said.starts_with("headroom: other/sub cannot be made: "), "{said}");
    assert!(said.contains("1 more in a directory"), "{said}");

    // a path that cannot be listed, and a name that would control the terminal
    let output = hosts.run(&["ls", &hosts.place("no\u{202e}where")]);
    let said = told(&output);
    assert!(said.starts_with("headroom: on the server: no\\u{202e}where cannot be"), "{said}");
    let name = std::ffi::OsStr::from_bytes(b"\x1b[31m\xff");
    fs::write(hosts.ground.path("served").join(name), "x").expect("a file");
    assert!(hosts.succeed(&["ls", &hosts.place("")]).contains("\\u{1b}[31m\\xff\n"));
}

#[test]
fn each_request_has_its_line_in_the_log_of_the_server() {
    let ground = Ground::new("log-place");
    let log = ground.path("requests.log");
    let log_text = log.display().to_string();
    let hosts = Hosts::new("log", &["--log", &log_text]);
    let own = hosts.ground.path("own").display().to_string();
    fs::write(&own, vec![7; 70_000]).expect("a file");
    hosts.succeed(&["put", &own, &hosts.place("a\u{202e}\nb")]);
    let missing = hosts.run(&["ls", &hosts.place("missing")]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    let refused = hosts.run_of("reader", &["put", &own, &hosts.place("b")]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    crate::common::wait_for("three lines", || {
        fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= 3)
    });
    let text = fs::read_to_string(&log).expect("the log");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, words) in lines.iter().zip([
        [
            " put done ",
            "client=\"writer@laptop\"",
            "path=\"/a\\u{202e}\\nb\"",
            "bytes=70000 stored=1 failed=0",
        ],
        [" ls failed ", "key=SHA256:", "path=\"/missing\"", "reason=\""],
        [" put refused ", "client=\"reader\"", "path=\"/b\"", "may only read"],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
        let (time, _) = line.split_once(' ').expect("a time");
        assert!(time.len() == 20 && time.ends_with('Z') && time.starts_with("20"), "{line}");
        assert!(line.contains(" address=127.0.0.1:") && line.contains(" seconds="), "{line}");
        assert!(!line.contains('\x1b'), "{line}");
    }
}

/// A client leaves as soon as it has heard that all is stored.
#[test]
fn the_log_reports_done_only_when_the_client_knows() {
    let ground = Ground::new("log-done-place");
    let log = ground.path("requests.log");
    let hosts = Hosts::new("log-done", &["--log", &log.display().to_string()]);
    let tree = hosts.ground.path("here/tree");
    fs::create_dir_all(&tree).expect("a folder");
    for name in 0..20 {
        fs::write(tree.join(name.to_string()), vec![7; 1000 * name]).expect("a file");
    }
    for nth in 0..25 {
        hosts.succeed(&["put", &tree.display().to_string(), &hosts.place(&format!("t{nth}"))]);
    }
    crate::common::wait_for("all lines", || {
        fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= 25)
    });
    let text = fs::read_to_string(&log).expect("the log");
    assert!(text.lines().all(|line| line.contains(" put done ")), "{text}");
}

#[test]
fn names_come_back_from_json_as_they_are() {
    let hosts = Hosts::new("json", &[]);
    let served = hosts.ground.path("served");
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe-latin");
    fs::write(served.join(odd), "1").expect("a file");
    fs::write(served.join("back\\slash"), "2").expect("a file");
    std::os::unix::fs::symlink("back\\slash", served.join("link")).expect("a link");
    let listed = hosts.succeed(&["ls", "--json", &hosts.place("")]);
    let entries: Vec<serde_json::Value> =
        listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let find = |path: &str| entries.iter().find(|entry| entry["path"] == path).expect(path);
    assert_eq!(find("link")["target"], "back\\slash");
    assert!(find("back\\slash")["mtime"].as_str().expect("a time").ends_with('Z'));
    assert_eq!(find("\u{fffd}\u{fffd}-latin")["path_base64"], "//4tbGF0aW4=");
    let long = hosts.succeed(&["ls", "-l", &hosts.place("")]);
    assert!(long.contains(" link -> back\\\\slash\n"), "{long}");
}

#[test]
fn names_are_made_changed_and_removed_where_a_key_may_write() {
    let hosts = Hosts::new("names", &[]);
    let served = hosts.ground.path("served");
    fs::write(served.join("b.log"), "b").expect("a file");
    fs::write(served.join("a.log"), "a").expect("a file");
    fs::write(served.join(".hidden.log"), "h").expect("a file");
    fs::create_dir(served.join("c.log")).expect("a folder");
    fs::write(served.join("c.log/1.txt"), "1").expect("a file");
    fs::write(served.join("c.log/x*y"), "star").expect("a file");
    let place = |path: &str| hosts.place(path);

    // patterns are matched by what is there
    let here = hosts.ground.path("here").display().to_string();
    hosts.succeed(&["get", &place("*.log"), &place("*.log/?.txt"), &here]);
    for name in ["a.log", "b.log", "c.log/1.txt", "1.txt"] {
        assert!(hosts.ground.path("here").join(name).is_file(), "{name}");
    }
    assert!(!hosts.ground.path("here/.hidden.log").exists());
    assert_eq!(hosts.succeed(&["get", &place("c.log/x\\*y"), "-"]), "star");
    for (pattern, code) in [("*.nothing", 1), ("[", 2)] {
        let output = hosts.run(&["get", &place(pattern), &here]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }

    // so are the names behind patterns, and nothing is below what is no directory
    fs::create_dir_all(served.join("gg/p1")).expect("a folder");
    fs::create_dir_all(served.join("gg/p2/in")).expect("a folder");
    fs::write(served.join("gg/p2/file"), "p2").expect("a file");
    fs::write(served.join("gg/p2/in/deep"), "deep").expect("a file");
    std::os::unix::fs::symlink("p2", served.join("gg/lnk")).expect("a link");
    let behind = hosts.ground.path("behind");
    let to = format!("{}/", behind.display());
    hosts.succeed(&["get", &place("gg/*/file"), &place("gg/*/in/d*"), &to]);
    assert_eq!(fs::read(behind.join("file")).expect("it is there"), b"p2");
    assert_eq!(fs::read(behind.join("deep")).expect("it is there"), b"deep");
    for pattern in ["gg/lnk/*", "gg/p2/file/*", "gg/*/missing"] {
        let output = hosts.run(&["get", &place(pattern), &to]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(told(&output).contains("nothing matches"), "{output:?}");
    }
    hosts.succeed(&["rm", "-r", &place("gg/")]);
    assert!(!served.join("gg").exists());

    hosts.succeed(&["mkdir", &place("d")]);
    hosts.succeed(&["mkdir", "-p", &place("d/e/f"), &place("d")]);
    assert!(served.join("d/e/f").is_dir());
    hosts.succeed(&["mv", &place("a.log"), &place("d")]);
    hosts.succeed(&["mv", &place("d/a.log"), &place("d/e/z")]);
    assert_eq!(fs::read(served.join("d/e/z")).expect("it is there"), b"a");
    hosts.succeed(&["mv", "--force", &place("b.log"), &place("d/e/z")]);
    assert_eq!(fs::read(served.join("d/e/z")).expect("it is there"), b"b");

    // two names of one file: the one that is moved is gone
    fs::write(served.join("h1"), "one").expect("a file");
    fs::hard_link(served.join("h1"), served.join("h2")).expect("a link");
    hosts.succeed(&["mv", "-f", &place("h1"), &place("h2")]);
    assert!(!served.join("h1").exists() && served.join("h2").exists());
    hosts.succeed(&["mv", "-f", &place("h2"), &place("./h2")]);
    assert_eq!(fs::read(served.join("h2")).expect("it is there"), b"one");

    // what is refused changes nothing
    fs::write(served.join("other"), "other").expect("a file");
    fs::create_dir(hosts.ground.path("outside")).expect("a folder");
    fs::write(hosts.ground.path("outside/file"), "outside").expect("a file");
    std::os::unix::fs::symlink("../outside", served.join("way-out")).expect("a link");
    std::os::unix::fs::symlink("../../other", served.join("d/e/up")).expect("a link");
    fs::write(served.join(".x.0.headroom-part"), "what came").expect("a file");
    for (arguments, word) in [
        (vec!["rm", "other/"], "is not a directory"),
        (vec!["mv", "other/", "x"], "is not a directory"),
        (vec!["rm", ".x.0.headroom-part"], "reserved for partial files"),
        (vec!["mkdir", "d"], "a directory is here"),
        (vec!["mkdir", "no/where"], "no such file"),
        (vec!["mv", "other", "d/e/z"], "a file is here"),
        (vec!["mv", "missing", "x"], "no such file"),
        (vec!["mv", "-f", "d", "other"], "a file is here"),
        (vec!["mv", "-f", "d", "d"], "cannot be moved into itself"),
        (vec!["mv", "d", "d/e/inside"], "cannot be moved into itself"),
        // it would lead out
        (vec!["mv", "d/e/up", "up"], "leads out"),
        (vec!["mv", "d/e", "e"], "higher level"),
        (vec!["rm", "missing"], "no such file"),
        (vec!["rm", "d"], "it is not empty"),
        (vec!["rm", "-r", "way-out/file"], "links are not followed"),
        (vec!["mv", "way-out/file", "x"], "links are not followed"),
        (vec!["mkdir", "way-out/x"], "links are not followed"),
    ] {
        let arguments: Vec<_> = (0..arguments.len())
            .map(|at| match arguments[at] {
                word if at == 0 || word.starts_with('-') => word.to_owned(),
                path => place(path),
            })
            .collect();
        let output = hosts.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        assert!(told(&output).contains(word), "{arguments:?}: {output:?}");
    }
    assert_eq!(fs::read(hosts.ground.path("outside/file")).expect("it is there"), b"outside");
    for arguments in [vec!["mkdir", "x"], vec!["mv", "other", "x"], vec!["rm", "other"]] {
        let mut arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
        arguments[1..].iter_mut().for_each(|path| *path = place(path));
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let refused = hosts.run_of("reader", &arguments);
        assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    }
    assert!(served.join("other").exists() && !served.join("x").exists());
    for name in ["d/.", "d/e/..", "d/./"] {
        let output = hosts.run(&["rm", "-r", &place(name)]);
        assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
    }
    assert!(served.join("d/e").exists() && served.join(".x.0.headroom-part").exists());

    // a link is removed, not what it leads to
    hosts.succeed(&["rm", &place("way-out"), &place("other")]);
    let events = hosts.succeed(&["rm", "-r", "--json", &place("d")]);
    assert!(events.contains(r#"{"event":"removed","path":"d/e/z"}"#), "{events}");
    assert!(!served.join("d").exists() && !served.join("way-out").is_symlink());
    assert!(hosts.ground.path("outside/file").exists());
    let root = hosts.run(&["rm", "-r", &place("")]);
    assert_eq!(root.status.code(), Some(2), "{root:?}");
}

#[test]
fn a_name_of_the_users_stands_for_host_port_and_key() {
    let hosts = Hosts::new("aliases", &[]);
    fs::write(hosts.ground.path("served/file"), "content").expect("a file");
    let (host, port) = hosts.server.address.rsplit_once(':').expect("a port");
    let key = hosts.ground.path("reader/.config/headroom/identity");
    let file =
        format!("[nas]\nhost = \"{host}\"\nport = {port}\nidentity = \"{}\"\n", key.display());
    fs::write(hosts.ground.path("client/.config/headroom/hosts.toml"), &file).expect("a file");
    assert_eq!(hosts.succeed(&["ls", "nas:"]), "file\n");
    // it is the other key that is shown, unless one is named
    let own = hosts.ground.write("own", "own").display().to_string();
    let refused = hosts.run(&["put", &own, "nas:"]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    let identity = hosts.ground.path("client/.config/headroom/identity").display().to_string();
    hosts.succeed(&["put", "--identity", &identity, &own, "nas:"]);
    fs::write(hosts.ground.path("client/.config/headroom/hosts.toml"), "[nas]\nprot = 1")
        .expect("a file");
    let wrong = hosts.run(&["ls", "nas:"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(told(&wrong).contains("hosts.toml") && told(&wrong).contains("prot"), "{wrong:?}");
}
