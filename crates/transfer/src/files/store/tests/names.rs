//! Lists, compares, renames and removes what is in a store.

use std::sync::Arc;

use super::*;
use crate::files::{self, Error, ErrorKind, Excludes, Extraneous, FileType, Removal, Sent, Status};

#[test]
fn a_listing_is_sorted_and_shows_links() {
    run(|runtime| {
        let root = root(runtime);
        for key in ["b/x", "a", "a-b", "c/", ".p.1.headroom-part"] {
            put(&root.store, key, b"");
        }
        root.make_symlink(&path("link"), b"b/x").expect("made");
        root.seal_symlink(&path("link"), Some(TIME)).expect("sealed");
        let mut listing = root.list(None).expect("a listing");
        let mut listed = Vec::new();
        while let Some(found) = listing.next() {
            let (name, metadata) = found.expect("a name");
            let target = listing.target(&name);
            if let Some(target) = &target {
                assert_eq!((&target[..], metadata.mtime), (&b"b/x"[..], TIME));
            }
            listed.push((name.to_string(), metadata.file_type, target.is_some()));
        }
        let expected = [
            ("a", FileType::File, false),
            ("a-b", FileType::File, false),
            ("b", FileType::Directory, false),
            ("c", FileType::Directory, false),
            ("link", FileType::Symlink, true),
        ];
        assert_eq!(listed, expected.map(|(name, kind, link)| (name.to_owned(), kind, link)));
        assert_eq!(root.list(Some(&path("b"))).expect("a listing").count(), 1);
        assert_eq!(root.list(Some(&path("c"))).expect("a listing").count(), 0);
        let kind = |name: &str| root.list(Some(&path(name))).expect_err("a listing").to_string();
        assert_eq!(kind("none"), "none cannot be listed: there is no such file or directory");
        assert!(kind("a").contains("not a directory"));
        assert_eq!(root.target(&path("link")).expect("a target"), b"b/x");
    });
}

#[test]
fn a_page_of_names_after_the_other_is_listed() {
    run(|runtime| {
        let root = root(runtime);
        for n in 0..2500 {
            put(&root.store, &format!("d/{n:04}"), b"x");
        }
        let before = root.requests();
        let names: Vec<_> = root
            .list(Some(&path("d")))
            .expect("a listing")
            .map(|found| found.expect("a name").0.to_string())
            .collect();
        assert!(names.is_sorted() && names.len() == 2500);
        let requests = root.requests().since(&before);
        assert!(requests.total() < 10, "{requests:?}");
    });
}

#[test]
fn files_are_compared_by_size_and_time_or_by_hash() {
    run(|runtime| {
        let root = root(runtime);
        let content = b"content";
        root.store(&path("f"), content, &seal(content)).expect("stored");
        put(&root.store, "other", content);
        put(&root.store, "d/x", b"");
        let file =
            |size, mode, mtime, hash| Sent::File { size, mode, mtime, hash, attributes: None };
        let later = Time { seconds: TIME.seconds + 1, ..TIME };
        let hash = Some(blake3::hash(content));
        let compare =
            |name: &str, sent: Sent<'_>| root.compare(&path(name), &sent).expect("status");
        for (sent, expected) in [
            (file(7, 0o640, TIME, None), Status::Same),
            (file(8, 0o640, TIME, None), Status::ContentDiffers),
            (file(7, 0o640, later, None), Status::ContentDiffers),
            (file(7, 0o600, TIME, None), Status::MetadataDiffers),
            (file(7, 0o640, later, hash), Status::MetadataDiffers),
            (file(7, 0o640, TIME, hash), Status::Same),
            (file(7, 0o640, TIME, Some(blake3::hash(b"x"))), Status::ContentDiffers),
            (Sent::Directory { mode: 0o755 }, Status::TypeDiffers(FileType::File)),
            (Sent::Symlink { target: b"x" }, Status::TypeDiffers(FileType::File)),
        ] {
            assert_eq!(compare("f", sent), expected, "{sent:?}");
        }
        assert_eq!(compare("other", file(7, 0o644, TIME, hash)), Status::MetadataDiffers);
        assert_eq!(compare("none", file(7, 0o644, TIME, hash)), Status::Missing);
        let directory = Status::TypeDiffers(FileType::Directory);
        assert_eq!(compare("d", file(7, 0o644, TIME, hash)), directory);
        assert_eq!(compare("d", Sent::Directory { mode: 0o755 }), Status::Same);
        assert_eq!(compare("d", Sent::Directory { mode: 0o700 }), Status::MetadataDiffers);
    });
}

#[test]
fn the_hash_of_a_file_is_the_recorded_one_or_read() {
    run(|runtime| {
        let root = root(runtime);
        root.store(&path("stored"), b"content", &seal(b"content")).expect("stored");
        put(&root.store, "of-others", b"content");
        for (name, is_read) in [("stored", false), ("of-others", true)] {
            let before = root.requests();
            let hash = root.hash(&path(name)).expect("a hash");
            assert_eq!(hash, blake3::hash(b"content"), "{name}");
            assert_eq!(root.requests().since(&before).get > 0, is_read, "{name}");
        }
        root.make_symlink(&path("link"), b"stored").expect("made");
        put(&root.store, "d/x", b"");
        for name in ["link", "d", "none"] {
            assert!(root.hash(&path(name)).is_err(), "{name}");
        }
    });
}

#[test]
fn permissions_and_times_are_set_without_the_sender() {
    run(|runtime| {
        let root = root(runtime);
        let large = bytes(1, 17 * MIB);
        put(&root.store, "small", b"small");
        put(&root.store, "large", &large);
        for (name, content) in [("small", &b"small"[..]), ("large", &large[..])] {
            root.update_metadata(&path(name), 0o600, TIME).expect("set");
            let metadata = root.look(&path(name)).expect("an answer").expect("a file");
            assert_eq!((metadata.mode, metadata.mtime), (0o600, TIME));
            assert!(read(&root.store, name) == content, "{name}");
        }
        assert!(root.update_metadata(&path("none"), 0o600, TIME).is_err());
    });
}

#[test]
fn content_without_its_recorded_hash_is_not_stored_again() {
    run(|runtime| {
        let root = root(runtime);
        let right = blake3::hash(b"right");
        let tags = super::super::tags::of_file(0o644, TIME, Some(&right)).expect("tags");
        let wrong = Bytes::from_static(b"wrong");
        root.store.put("f", wrong, &tags, Condition::Any).expect("stored");
        let error = root.update_metadata(&path("f"), 0o600, TIME).expect_err("set");
        assert!(error.to_string().contains("does not have the recorded hash"), "{error}");
        let metadata = root.look(&path("f")).expect("an answer").expect("a file");
        assert_eq!(metadata.mode, 0o644);
    });
}

#[test]
fn names_are_removed_and_directories_with_content_are_not() {
    run(|runtime| {
        let root = root(runtime);
        for key in ["f", "d/x", "e/"] {
            put(&root.store, key, b"");
        }
        let remove = |name: &str| root.remove(&path(name));
        remove("f").expect("removed");
        remove("e").expect("removed");
        let kind = |error: Error| matches!(error.kind(), ErrorKind::NotEmpty);
        assert!(kind(remove("d").expect_err("removed")));
        remove("d/x").expect("removed");
        let error = remove("d").expect_err("it was nothing but its content");
        assert!(matches!(error.kind(), ErrorKind::Missing), "{error}");
    });
}

#[test]
fn files_are_renamed_and_directories_are_not() {
    run(|runtime| {
        let root = root(runtime);
        root.store(&path("f"), b"f", &seal(b"f")).expect("stored");
        put(&root.store, "d/x", b"x");
        put(&root.store, "g", b"g");
        root.make_symlink(&path("d/l"), b"../g").expect("made");
        let rename =
            |from: &str, to: &str, replace| root.rename(&path(from), &path(to), replace, true);
        rename("f", "d/f", false).expect("renamed");
        let metadata = root.look(&path("d/f")).expect("an answer").expect("a file");
        assert_eq!((metadata.mode, metadata.mtime), (0o640, TIME));
        assert!(root.look(&path("f")).expect("an answer").is_none());
        let error = rename("g", "d/f", false).expect_err("renamed");
        assert!(matches!(error.kind(), ErrorKind::Clash { here: FileType::File }), "{error}");
        rename("g", "d/f", true).expect("renamed");
        assert_eq!(read(&root.store, "d/f"), b"g");
        let error = rename("d", "e", true).expect_err("renamed");
        assert!(matches!(error.kind(), ErrorKind::NoDirectoryRename), "{error}");
        let error = rename("d/l", "l", true).expect_err("it would lead out");
        assert!(matches!(error.kind(), ErrorKind::LeavesRoot), "{error}");
        assert!(rename("none", "some", true).is_err());
    });
}

#[test]
fn what_another_tree_does_not_have_is_found_and_removed() {
    run(|runtime| {
        let root = root(runtime);
        for key in ["a/x", "a/y", "a-b", "b/c/d", "b/e.o", "z"] {
            put(&root.store, key, b"x");
        }
        let face = files::Root::Store(root.clone());
        let excludes = Arc::new(Excludes::new(vec!["*.o".to_owned()]).expect("a pattern"));
        let mut extraneous = Extraneous::new(face.clone(), Arc::clone(&excludes)).expect("begun");
        for (name, is_directory) in [("a", true), ("a/y", false), ("a-b", false), ("q", true)] {
            extraneous.pass(&path(name), is_directory).expect("in order");
        }
        let found = extraneous.finish().expect("names");
        assert_eq!(found, ["a/x", "b", "z"].map(path));
        let mut removed = Vec::new();
        for name in &found {
            face.remove_tree(name, &excludes, false, &mut |removal| {
                removed.push(match removal {
                    Removal::Removed(path) => format!("- {path}"),
                    Removal::Kept(path) => format!("= {path}"),
                    Removal::Failed(error) => format!("! {error}"),
                });
            });
        }
        assert_eq!(removed, ["- a/x", "- b/c/d", "- b/c", "= b", "- z"]);
        let left = root.list(None).expect("a listing").count();
        assert_eq!(left, 3, "a, a-b and b");
    });
}

#[test]
fn a_name_that_is_file_and_directory_is_removed_with_its_tree() {
    run(|runtime| {
        let root = root(runtime);
        for key in ["t/both", "t/both/inner", "t/z"] {
            put(&root.store, key, b"x");
        }
        let face = files::Root::Store(root.clone());
        let mut removed = Vec::new();
        face.remove_tree(&path("t"), &Excludes::none(), false, &mut |removal| {
            let Removal::Removed(path) = removal else { panic!("{removal:?}") };
            removed.push(path.to_string());
        });
        assert_eq!(removed, ["t/both/inner", "t/both", "t/z", "t"]);
        assert!(root.look(&path("t")).expect("an answer").is_none());
    });
}

#[test]
fn a_file_takes_the_place_of_a_directory_that_was_listed_and_removed() {
    run(|runtime| {
        let root = root(runtime);
        put(&root.store, "d/z/inner", b"x");
        // so many that the directory is listed
        for n in 0..20 {
            root.store(&path(&format!("d/{n}")), b"x", &seal(b"x")).expect("stored");
        }
        let error = root.store(&path("d/z"), b"x", &seal(b"x")).expect_err("stored");
        assert!(matches!(error.kind(), ErrorKind::Clash { .. }), "{error}");
        let face = files::Root::Store(root.clone());
        face.remove_tree(&path("d/z"), &Excludes::none(), false, &mut |removal| {
            assert!(matches!(removal, Removal::Removed(_)), "{removal:?}");
        });
        root.store(&path("d/z"), b"x", &seal(b"x")).expect("the directory is gone");
        assert_eq!(read(&root.store, "d/z"), b"x");
    });
}

#[test]
fn the_mark_of_an_incomplete_tree_is_hidden() {
    run(|runtime| {
        let root = root(runtime);
        root.make_directory(&path("copy")).expect("made");
        assert!(!root.is_unfinished_tree(&path("copy"), b"tree"));
        root.begin_tree(&path("copy"), b"tree").expect("marked");
        assert!(root.is_unfinished_tree(&path("copy"), b"tree"));
        assert_eq!(root.list(Some(&path("copy"))).expect("a listing").count(), 0);
        root.finish_tree(&path("copy"), b"tree").expect("it is complete");
        assert!(!root.is_unfinished_tree(&path("copy"), b"tree"));
        root.finish_tree(&path("copy"), b"tree").expect("it is complete");
    });
}
