//! Trees of a store that are sent.

use std::sync::Arc;

use headroom_transfer_proto::message::Links;

use super::*;
use crate::files::found::{Found, SourceKind};
use crate::files::{Excludes, Reader, Requests};

/// What a walk finds, a line for each.
fn walk(source: super::super::Source) -> Vec<String> {
    source
        .map(|found| match found {
            Ok(found) => match found.kind {
                SourceKind::Directory(metadata) => format!("d {} {:o}", found.path, metadata.mode),
                SourceKind::Symlink { target, .. } => {
                    format!("l {} {}", found.path, String::from_utf8_lossy(&target))
                }
                SourceKind::File(file) => format!("f {} {}", found.path, file.metadata().size),
            },
            Err(error) => format!("! {error}"),
        })
        .collect()
}

fn below(root: &Root, place: Option<&str>, contents: bool) -> super::super::Source {
    super::super::Source::below(root, [(place.map(path), contents)], Links::Keep)
}

fn tree(runtime: &Handle) -> Root {
    let root = root(runtime);
    for (key, content) in
        [("t/a/x", "x"), ("t/a-b", "12"), ("t/e/", ""), ("t/z/y/w", "w"), ("u", "outside")]
    {
        put(&root.store, key, content.as_bytes());
    }
    root.make_symlink(&path("t/link"), b"a/x").expect("made");
    root.make_symlink(&path("t/out"), b"../../u").expect("made");
    root.seal_directory(&path("t/a"), 0o750, TIME).expect("sealed");
    root
}

#[test]
fn a_walk_is_that_of_a_directory() {
    run(|runtime| {
        let root = tree(runtime);
        let expected = [
            "d t 755",
            "d t/a 750",
            "f t/a/x 1",
            "f t/a-b 2",
            "d t/e 755",
            "l t/link a/x",
            "l t/out ../../u",
            "d t/z 755",
            "d t/z/y 755",
            "f t/z/y/w 1",
        ];
        assert_eq!(walk(below(&root, Some("t"), false)), expected);
        let contents: Vec<_> =
            expected[1..].iter().map(|line| line.replacen("t/", "", 1)).collect();
        assert_eq!(walk(below(&root, Some("t"), true)), contents);
        let mut all: Vec<_> = expected.map(str::to_owned).to_vec();
        all.push("f u 7".to_owned());
        assert_eq!(walk(below(&root, None, true)), all);
        let inner = root.below(&path("t/z")).expect("a root");
        assert_eq!(walk(below(&inner, None, true)), ["d y 755", "f y/w 1"]);
        assert_eq!(walk(below(&root, Some("t/a/x"), false)), ["f x 1"]);
        for (place, contents, only_files, kind) in [
            ("none", false, false, "there is no such file"),
            ("t/a/x", true, false, "it is not a directory"),
            ("t", false, true, "it is not a file"),
        ] {
            let found = walk(below(&root, Some(place), contents).only_files(only_files));
            assert!(found.len() == 1 && found[0].contains(kind), "{found:?}");
        }
        let excludes = Excludes::new(vec!["/a/".to_owned(), "w".to_owned()]).expect("patterns");
        let left = walk(below(&root, Some("t"), true).without(Arc::new(excludes)));
        let expected =
            ["f a-b 2", "d e 755", "l link a/x", "l out ../../u", "d z 755", "d z/y 755"];
        assert_eq!(left, expected);
        let listed = [path("t/z"), path("t/a/x"), path("none")];
        let found = walk(super::super::Source::listed(&root, listed, Links::Keep));
        assert_eq!(found[..2], ["d t/z 755", "f t/a/x 1"]);
        assert!(found[2].starts_with("! none cannot be sent"), "{found:?}");
    });
}

#[test]
fn links_obey_the_policy() {
    run(|runtime| {
        let root = tree(runtime);
        let links = |links| {
            let source = super::super::Source::below(&root, [(Some(path("t")), true)], links);
            let is_link = |line: &String| line.contains("link") || line.contains("out");
            walk(source).into_iter().filter(is_link).collect::<Vec<_>>()
        };
        assert_eq!(links(Links::Inside)[0], "l link a/x");
        assert!(links(Links::Inside)[1].contains("leads out of the tree"));
        assert!(links(Links::Refuse)[1].contains("--links=refuse"));
        assert!(links(Links::Skip).iter().all(|line| line.contains("--links=skip")));
    });
}

#[test]
fn a_name_that_is_file_and_directory_is_a_failure_and_its_directory_is_sent() {
    run(|runtime| {
        let root = root(runtime);
        put(&root.store, "both", b"file");
        put(&root.store, "both/inner", b"inner");
        put(&root.store, ".x.0123.headroom-part", b"");
        let found = walk(below(&root, None, true));
        assert!(found[0].contains("partial file"), "{found:?}");
        assert!(found[1].contains("a file and a directory at once"), "{found:?}");
        assert_eq!(found[2..], ["d both 755", "f both/inner 5"]);
        assert_eq!(walk(below(&root, Some("both"), false)), ["f both 4"], "it can be named");
    });
}

/// Opens a file by its walk.
fn open(root: &Root, name: &str) -> Reader {
    let found = below(root, Some(name), false).next().expect("one").expect("found");
    let SourceKind::File(file) = found.kind else { panic!("no file") };
    file.open().expect("it is opened")
}

#[test]
fn files_are_read_at_any_offset() {
    run(|runtime| {
        let root = root(runtime);
        let content = bytes(1, 27 * MIB + 5);
        put(&root.store, "other", &content);
        let partial = root.begin(&path("ours"), &offer(content.len()), 0o644).expect("begun");
        partial.write_at(0, &content).expect("written");
        partial.finish(&seal(&content)).expect("finished");
        for name in ["other", "ours"] {
            let reader = open(&root, name);
            assert_eq!(reader.size(), content.len() as u64);
            assert_eq!(reader.hash().expect("a hash"), blake3::hash(&content), "{name}");
            assert_eq!(reader.next_data(5).expect("an answer"), Some(5..content.len() as u64));
            for (offset, len) in [(0, 1), (8 * MIB - 1, 2), (20 * MIB, 7 * MIB + 100), (3, 9 * MIB)]
            {
                let mut buffer = vec![0; len];
                let read = reader.read_at(offset as u64, &mut buffer).expect("read");
                let expected = &content[offset..content.len().min(offset + len)];
                assert!(buffer[..read] == *expected, "{name} from {offset}");
            }
            let spans = reader.spans();
            let value = reader.span_value(26).expect("an answer");
            assert_eq!(value, spans.value(26, &content[26 * MIB..27 * MIB]));
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (reader, content) = (&reader, &content);
                    scope.spawn(move || {
                        let mut buffer = vec![0; 256 << 10];
                        for n in (thread..content.len() / buffer.len()).step_by(4) {
                            let at = n * buffer.len();
                            reader.read_at(at as u64, &mut buffer).expect("read");
                            assert!(buffer == content[at..at + buffer.len()], "from {at}");
                        }
                    });
                }
            });
            assert!(reader.is_unchanged().expect("an answer"));
        }
    });
}

#[test]
fn files_are_read_while_others_have_all_memory() {
    run(|runtime| {
        let root = root(runtime);
        let content = bytes(4, 20 * MIB + 5);
        put(&root.store, "other", &content);
        let partial = root.begin(&path("ours"), &offer(content.len()), 0o644).expect("begun");
        partial.write_at(0, &content).expect("written");
        partial.finish(&seal(&content)).expect("finished");
        let all = root.shared.ahead.take(u64::MAX);
        for name in ["other", "ours"] {
            let reader = open(&root, name);
            let before = root.requests();
            for (offset, len) in [(0, 1), (MIB - 1, 2), (8 * MIB - 5, 10 * MIB), (20 * MIB, 5)] {
                let mut buffer = vec![0; len];
                assert_eq!(reader.read_at(offset as u64, &mut buffer).expect("read"), len);
                assert!(buffer == content[offset..offset + len], "{name} from {offset}");
            }
            let gets = root.requests().since(&before).get;
            assert!(gets <= 6, "nothing is read ahead: {gets}");
        }
        drop(all);
        let reader = open(&root, "other");
        assert_eq!(reader.hash().expect("a hash"), blake3::hash(&content));
    });
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_is_an_error() {
    run(|runtime| {
        let root = root(runtime);
        put(&root.store, "f", &bytes(2, 9 * MIB));
        let reader = open(&root, "f");
        put(&root.store, "f", &bytes(3, 9 * MIB));
        let error = reader.read_at(0, &mut [0; 10]).expect_err("read");
        assert!(error.to_string().contains("changed while it was read"), "{error}");
        // what is missing, too
        root.store.remove("f").expect("removed");
        assert!(reader.read_at(0, &mut [0; 10]).is_err());
    });
}

#[test]
fn directories_that_come_next_are_listed_ahead_and_once() {
    run(|runtime| {
        let root = root(runtime);
        for n in 0..100 {
            put(&root.store, &format!("d/{n:02}/inner/file"), b"x");
        }
        let before = root.requests();
        let excludes = Excludes::new(vec!["/07/".to_owned()]).expect("patterns");
        let lines = walk(below(&root, Some("d"), true).without(Arc::new(excludes)));
        assert_eq!(lines.len(), 3 * 99);
        assert_eq!(lines[0], "d 00 755");
        assert_eq!(lines[2], "f 00/inner/file 1");
        let requests = root.requests().since(&before);
        // `d` for the place and for its names, and each directory in it
        assert_eq!(requests.list, 2 + 2 * 99, "{requests:?}");
    });
}

#[test]
fn small_files_are_read_ahead_once() {
    run(|runtime| {
        let root = root(runtime);
        for n in 0..200 {
            put(&root.store, &format!("d/{n:03}"), format!("content {n}").as_bytes());
        }
        let before = root.requests();
        let mut count = 0;
        for found in below(&root, Some("d"), true).reading_ahead(1000) {
            let SourceKind::File(file) = found.expect("found").kind else { panic!("no file") };
            let content = file.open().expect("opened").read_to_end(1000).expect("read");
            assert_eq!(content, format!("content {count}").as_bytes());
            count += 1;
        }
        assert_eq!(count, 200);
        let requests = root.requests().since(&before);
        let Requests { head, get, list, .. } = requests;
        // their metadata comes with them; the directory is looked up, and has a marker or not
        assert_eq!((get, head, list, requests.total()), (200, 2, 2, 204), "{requests:?}");
    });
}

#[test]
fn small_files_that_change_after_they_were_listed_are_sent_as_they_are_now() {
    run(|runtime| {
        let root = root(runtime);
        for n in 0..200 {
            put(&root.store, &format!("d/{n:03}"), b"old");
        }
        let mut source = below(&root, Some("d"), true).reading_ahead(1000);
        source.next().expect("one").expect("found");
        // behind those that are read already
        put(&root.store, "d/150", b"new");
        put(&root.store, "d/151", b"longer than before");
        root.store.remove("d/152").expect("removed");
        let mut sent = Vec::new();
        for found in source {
            match found {
                Ok(Found { kind: SourceKind::File(file), .. }) => {
                    let content = file.open().expect("opened").read_to_end(1000).expect("read");
                    sent.push(String::from_utf8(content).expect("text"));
                }
                Ok(_) => panic!("no file"),
                Err(error) => sent.push(error.to_string()),
            }
        }
        assert_eq!(sent.len(), 199);
        assert_eq!(sent[149..151], ["new", "longer than before"]);
        assert!(sent[151].contains("there is no such file"), "{}", sent[151]);
        assert!(sent.iter().filter(|content| *content == "old").count() == 196);
    });
}
