//! What a sender finds in trees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::{ErrorKind, Found, Links, Source, SourceKind, disk, temporary};
use super::*;

/// What a walk gives, as lines: `d` directory, `f` file, `l` link, `!` error,
/// `-` remark.
fn lines(source: Source) -> Vec<String> {
    source
        .map(|found| match found {
            Ok(Found { path, kind: SourceKind::Directory(_), .. }) => format!("d {path}"),
            Ok(Found { path, kind: SourceKind::File(file), .. }) => {
                assert_eq!(*file.path(), path);
                format!("f {path} {}", file.metadata().size)
            }
            Ok(Found { path, kind: SourceKind::Symlink { target, .. }, .. }) => {
                format!("l {path} {}", target.escape_ascii())
            }
            Err(error) if error.is_remark() => format!("- {:?}", error.kind()),
            Err(error) => format!("! {:?}", error.kind()),
        })
        .collect()
}

fn walk(folder: &TempDir, name: &str, links: Links) -> Vec<String> {
    lines(Source::new([folder.path().join(name)], links))
}

fn tree() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().join("top");
    fs::create_dir_all(top.join("sub/empty")).expect("folders");
    fs::write(top.join(".hidden"), "h").expect("a file");
    fs::write(top.join("empty"), "").expect("a file");
    fs::write(top.join("sub/a"), "aa").expect("a file");
    fs::write(top.join(OsStr::from_bytes(b"\xff\xfe")), "odd").expect("a file");
    fs::hard_link(top.join("sub/a"), top.join("sub/b")).expect("a hard link");
    symlink("sub", top.join("link")).expect("a link");
    symlink("/nowhere", top.join("dangling")).expect("a link");
    folder
}

#[test]
fn everything_is_found_in_order() {
    let folder = tree();
    let expected = [
        "d top",
        "f top/.hidden 1",
        "l top/dangling /nowhere",
        "f top/empty 0",
        "l top/link sub",
        "d top/sub",
        "f top/sub/a 2",
        "f top/sub/b 2",
        "d top/sub/empty",
        "f top/\\xff\\xfe 3",
    ];
    assert_eq!(walk(&folder, "top", Links::Keep), expected);
    assert_eq!(walk(&folder, "top/", Links::Keep), expected);
    let root = Root::open(folder.path()).expect("a root");
    let below = |place: Option<&str>, contents| {
        lines(Source::below(&root, [(place.map(path), contents)], Links::Keep))
    };
    assert_eq!(below(Some("top"), false), expected);
    let contents: Vec<_> = expected[1..].iter().map(|line| line.replacen("top/", "", 1)).collect();
    assert_eq!(walk(&folder, "top/.", Links::Keep), contents);
    assert_eq!(walk(&folder, "top/./", Links::Keep), contents);
    assert_eq!(below(Some("top"), true), contents);
    assert_eq!(below(None, false), expected);
    assert_eq!(below(None, true), expected);
    assert_eq!(walk(&folder, "top/sub/..", Links::Keep), expected);
    assert_eq!(walk(&folder, "top/sub/a", Links::Keep), ["f a 2"]);
    assert_eq!(below(Some("top/sub/a"), false), ["f a 2"]);
    assert_eq!(below(Some("top/sub/a"), true), ["! NoDirectory"]);
    assert_eq!(below(Some("none"), false), ["! Missing"]);
}

#[test]
fn mode_and_time_are_the_files_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = File::create(folder.path().join("file")).expect("a file");
    file.set_permissions(fs::Permissions::from_mode(0o4751)).expect("a mode");
    super::super::metadata::set_mtime(&file, TIME).expect("a time");
    let mut source = Source::new([folder.path().join("file")], Links::Keep);
    let SourceKind::File(found) = source.next().expect("one").expect("found").kind else {
        panic!("no file");
    };
    assert_eq!((found.metadata().mode, found.metadata().mtime), (0o751, TIME));
}

#[test]
fn links_by_policy() {
    let folder = tree();
    let left_out = walk(&folder, "top", Links::Skip);
    assert_eq!(left_out.iter().filter(|line| *line == "- LinkLeftOut").count(), 2);
    assert_eq!(left_out.len(), 10);
    let inside = walk(&folder, "top", Links::Inside);
    assert_eq!((&*inside[2], &*inside[4]), ("- LinkLeavesTree", "l top/link sub"));
    let refused = walk(&folder, "top", Links::Refuse);
    assert_eq!((&*refused[2], &*refused[4]), ("! LinkRefused", "l top/link sub"));
    let followed = walk(&folder, "top", Links::Follow);
    assert_eq!(followed[2], "! Missing", "a link that leads nowhere");
    assert_eq!(
        followed[4..8],
        ["d top/link", "f top/link/a 2", "f top/link/b 2", "d top/link/empty"]
    );
    assert!(followed.iter().all(|line| !line.starts_with('l')));
    assert_eq!(walk(&folder, "top/link", Links::Keep), ["l link sub"]);
    let through = ["d link", "f link/a 2", "f link/b 2", "d link/empty"];
    assert_eq!(walk(&folder, "top/link", Links::Follow), through);
    assert_eq!(walk(&folder, "top/link/", Links::Keep), through, "a slash behind it");
}

#[test]
fn a_loop_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("a/b")).expect("folders");
    symlink("..", folder.path().join("a/b/up")).expect("a link");
    symlink("self", folder.path().join("a/self")).expect("a link");
    assert_eq!(walk(&folder, "a", Links::Follow), ["d a", "d a/b", "! Loop", "! NotBeneath"]);
}

/// A peer that asks for what a link leads to.
#[test]
fn a_server_follows_no_link() {
    let folder = tree();
    let outside = tempfile::tempdir().expect("a folder");
    fs::write(outside.path().join("secret"), "s").expect("a file");
    symlink(outside.path(), folder.path().join("top/out")).expect("a link");
    for root in both_ways(&folder.path().join("top")) {
        for links in [Links::Keep, Links::Follow] {
            let below = |place| lines(Source::below(&root, [(Some(path(place)), false)], links));
            assert_eq!(below("out/secret"), ["! NotBeneath"]);
            assert_eq!(below("link/a"), ["! NotBeneath"]);
            assert!(below("out")[0].starts_with("l out "));
            let all = lines(Source::below(&root, [(None, false)], links));
            assert!(all.iter().all(|line| !line.contains("secret")), "{all:?}");
        }
        // between the walk and the reading
        let mut source = Source::below(&root, [(Some(path("sub/a")), false)], Links::Keep);
        let SourceKind::File(found) = source.next().expect("one").expect("found").kind else {
            panic!("no file");
        };
        let (sub, moved) = (folder.path().join("top/sub"), folder.path().join("top/moved"));
        fs::rename(&sub, &moved).expect("renamed");
        symlink("moved", &sub).expect("a link");
        assert!(matches!(found.open().expect_err("open").kind(), ErrorKind::NotBeneath));
        fs::remove_file(&sub).expect("removed");
        fs::rename(&moved, &sub).expect("renamed");
    }
}

#[test]
fn file_types_that_are_never_sent_give_a_remark() {
    let folder = tempfile::tempdir().expect("a folder");
    mkfifo(&folder.path().join("pipe"), Mode::from_bits_truncate(0o600)).expect("a pipe");
    let _socket = UnixListener::bind(folder.path().join("socket")).expect("a socket");
    let part = temporary::of_file(b"file", 1, TIME);
    fs::write(folder.path().join(OsStr::from_bytes(&part)), "x").expect("a file");
    fs::write(folder.path().join("z"), "x").expect("a file");
    let found = walk(&folder, ".", Links::Keep);
    assert_eq!(found, ["- Unfinished", "- Special(Pipe)", "- Special(Socket)", "f z 1"]);
    let error = Source::new([folder.path().join("pipe")], Links::Keep).next().expect("one");
    assert_eq!(
        error.expect_err("sent").to_string(),
        format!(
            "{} cannot be sent: it is a named pipe; only files, directories and links are sent",
            folder.path().join("pipe").display()
        ),
    );
    // `/dev/null`, which every machine has
    assert_eq!(lines(Source::new(["/dev/null".into()], Links::Keep)), ["! Special(Device)"]);
}

#[test]
fn errors_do_not_end_the_walk() {
    let folder = tree();
    let paths = ["none", "top/sub", "", "top/empty/", "top/empty"]
        .map(|name| if name.is_empty() { PathBuf::new() } else { folder.path().join(name) });
    assert_eq!(
        lines(Source::new(paths, Links::Keep)),
        [
            "! Missing",
            "d sub",
            "f sub/a 2",
            "f sub/b 2",
            "d sub/empty",
            "! Missing",
            "! NotBeneath",
            "f empty 0"
        ],
    );
    // a directory that is removed, or becomes another, before it is entered
    let mut source = Source::new([folder.path().join("top")], Links::Keep);
    let sub = source.find(|found| matches!(found, Ok(found) if found.path == path("top/sub")));
    assert!(sub.is_some());
    fs::rename(folder.path().join("top/sub"), folder.path().join("sub")).expect("renamed");
    assert_eq!(lines(source), ["! Missing", "f top/\\xff\\xfe 3"]);
    let mut source = Source::new([folder.path().join("sub")], Links::Keep);
    source.next().expect("one").expect("found");
    fs::rename(folder.path().join("sub"), folder.path().join("moved")).expect("renamed");
    fs::create_dir(folder.path().join("sub")).expect("a folder");
    assert_eq!(lines(source), ["! Replaced"]);
}

#[test]
fn two_of_one_name_are_not_mixed() {
    let folder = tree();
    fs::create_dir(folder.path().join("other")).expect("a folder");
    fs::write(folder.path().join("other/empty"), "x").expect("a file");
    let paths = ["top/empty", "other/empty"].map(|name| folder.path().join(name));
    assert_eq!(lines(Source::new(paths, Links::Keep)), ["f empty 0", "! Twice"]);
}

#[test]
fn a_directory_of_ten_thousand_files() {
    let (folder, root) = root();
    root.make_directory(&path("many"), 0o755).expect("made");
    let mut expected = vec!["d many".to_owned()];
    for n in 0..10_000_u32 {
        let content = n.to_le_bytes();
        root.store(&path(&format!("many/{n}")), &content, &seal(&content)).expect("stored");
    }
    let mut numbers: Vec<_> = (0..10_000).map(|n| n.to_string()).collect();
    numbers.sort();
    expected.extend(numbers.iter().map(|n| format!("f many/{n} 4")));
    assert_eq!(walk(&folder, "many", Links::Keep), expected);
    assert_eq!(root.list(Some(&path("many"))).expect("a listing").count(), 10_000);
}

#[test]
fn a_tree_deeper_than_names_can_be_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut real, mut at) = (vec![Root::open(folder.path()).expect("a root")], 0);
    let name = path(&"n".repeat(250));
    // 20 levels are 5000 bytes; a path may have 4096
    while at < 20 {
        real[at].make_directory(&name, 0o755).expect("made");
        real.push(real[at].below(&name).expect("a root"));
        at += 1;
    }
    let found = walk(&folder, ".", Links::Keep);
    assert_eq!(found.len(), 17);
    assert!(found[..16].iter().all(|line| line.starts_with("d ")));
    assert_eq!(found[16], "! Path(TooLong)");
    for level in real[..20].iter().rev() {
        level.remove(&name).expect("removed");
    }
}

/// No more files are open than a shell allows, however deep the tree.
#[test]
fn a_deep_tree_takes_few_open_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let deep = "d/".repeat(400);
    fs::create_dir_all(folder.path().join(&deep)).expect("folders");
    fs::write(folder.path().join(&deep).join("f"), "x").expect("a file");
    let mut most = 0;
    let open = || fs::read_dir("/proc/self/fd").expect("this process").count();
    let before = open();
    for found in Source::new([folder.path().join("d")], Links::Keep) {
        found.expect("found");
        most = most.max(open());
    }
    // other tests run beside this one
    assert!(most < before + 200, "{most} files were open, {before} before");
    let links = folder.path().join("d").metadata().expect("a folder").nlink();
    assert_eq!(links, 3);
}

/// A sync holds thousands of files that it has found.
#[test]
fn found_files_keep_no_directory_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().canonicalize().expect("a path").join("d");
    for n in 0..100 {
        let sub = top.join(n.to_string());
        fs::create_dir_all(&sub).expect("folders");
        fs::write(sub.join("f"), "x").expect("a file");
    }
    // other tests open files beside this one, but not in its folder
    let held = || {
        let files = fs::read_dir("/proc/self/fd").expect("this process");
        let paths = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        paths.filter(|path| path.starts_with(&top)).count()
    };
    let (mut found, mut most) = (Vec::new(), 0);
    for each in Source::new([top.clone()], Links::Keep) {
        found.push(each.expect("found"));
        most = most.max(held());
    }
    assert_eq!((found.len(), most, held()), (201, 1, 0));
}

#[test]
fn a_directory_that_leaves_the_tree_is_not_walked_for_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let [here, moved] = ["d", "moved"].map(|name| folder.path().join(name));
    fs::create_dir(&here).expect("a folder");
    for name in ["a", "b", "c"] {
        fs::write(here.join(name), "x").expect("a file");
    }
    let rest = |reopen_after, found_before| {
        let source = disk::Source::new([here.clone()], Links::Keep).reopening_after(reopen_after);
        let mut source = Source::Disk(Box::new(source));
        for _ in 0..found_before {
            source.next().expect("one").expect("found");
        }
        fs::rename(&here, &moved).expect("renamed");
        let rest = lines(source);
        fs::rename(&moved, &here).expect("renamed");
        rest
    };
    assert_eq!(rest(Duration::MAX, 2), ["f d/b 1", "f d/c 1"]);
    assert_eq!(rest(Duration::ZERO, 2), ["! Missing"]);
    assert!(rest(Duration::ZERO, 4).is_empty(), "all of it was found before");
}
