//! Files that are read while others change them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::{ErrorKind, Links, Reader, Source, SourceFile, SourceKind};
use super::*;

struct Here {
    _folder: TempDir,
    path: PathBuf,
    content: Vec<u8>,
    found: SourceFile,
}

/// A file of three spans that a walk has found.
fn found() -> Here {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, content) = (folder.path().join("file"), bytes(1, 2 * MIB + 99));
    fs::write(&path, &content).expect("a file");
    let mut source = Source::new([path.clone()], Links::Keep);
    let SourceKind::File(found) = source.next().expect("one").expect("found").kind else {
        panic!("no file");
    };
    Here { _folder: folder, path, content, found }
}

fn is_unchanged(reader: &Reader) -> bool {
    reader.is_unchanged().expect("an answer")
}

#[test]
fn a_file_is_read_anywhere_and_hashed_in_spans() {
    let Here { content, found, _folder, .. } = found();
    let reader = found.open().expect("open");
    assert_eq!((reader.size(), reader.path()), (content.len() as u64, &path("file")));
    let mut room = vec![0; MIB];
    for offset in [0, 5, MIB, 2 * MIB, 2 * MIB + 98] {
        let read = reader.read_at(offset as u64, &mut room).expect("read");
        assert_eq!(room[..read], content[offset..content.len().min(offset + MIB)]);
    }
    assert_eq!(reader.read_at(content.len() as u64, &mut room).expect("read"), 0);
    assert_eq!(reader.read_at(u64::MAX, &mut room).expect("read"), 0);
    for span in 0..3 {
        let range = reader.spans().range(span).expect("a span");
        let bytes = &content[range.start as usize..range.end as usize];
        let value = reader.span_value(span).expect("read");
        assert_eq!(value, reader.spans().value(span, bytes));
    }
    assert_eq!(reader.span_value(3).expect("an answer"), None);
    assert!(is_unchanged(&reader));
    fs::metadata(&_folder).expect("reading changed nothing");
    assert!(is_unchanged(&reader));
}

#[test]
fn a_small_file_is_read_to_its_end_which_may_be_elsewhere_than_when_it_was_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    for (size, now) in
        [(0, 0), (0, 7), (5, 5), (5, 6), (5, 9000), (4096, 4096), (4096, 4097), (9000, 5)]
    {
        let content = bytes(1, now);
        fs::write(&path, bytes(1, size)).expect("a file");
        let mut source = Source::new([path.clone()], Links::Keep);
        let SourceKind::File(found) = source.next().expect("one").expect("found").kind else {
            panic!("no file");
        };
        let reader = found.open().expect("open");
        fs::write(&path, &content).expect("another content");
        let read = reader.read_to_end(10_000).expect("read");
        assert!(read == content, "{} bytes of {now}, found with {size}", read.len());
    }
}

/// The content is another, size and time of change are the same.
#[test]
fn a_change_that_keeps_size_and_time_is_detected() {
    let Here { path, found, _folder, .. } = found();
    let reader = found.open().expect("open");
    let before = fs::metadata(&path).expect("a file");
    // a clock of the file system ticks every few milliseconds
    loop {
        let file = File::options().write(true).open(&path).expect("a file");
        file.write_all_at(&[0], 5).expect("written");
        file.set_modified(before.modified().expect("a time")).expect("set");
        let after = fs::metadata(&path).expect("a file");
        assert_eq!((after.len(), after.mtime_nsec()), (before.len(), before.mtime_nsec()));
        if (after.ctime(), after.ctime_nsec()) != (before.ctime(), before.ctime_nsec()) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!is_unchanged(&reader));
    let error = found.open().expect_err("open");
    assert!(matches!(error.kind(), ErrorKind::Changed), "{error}");
}

#[test]
fn a_truncated_file_is_an_error_and_not_padded_with_zeros() {
    let Here { path, found, _folder, .. } = found();
    let reader = found.open().expect("open");
    File::options().write(true).open(&path).expect("a file").set_len(MIB as u64).expect("cut");
    let mut room = vec![0; MIB];
    reader.read_at(0, &mut room).expect("what is left can be read");
    let error = reader.read_at(MIB as u64, &mut room).expect_err("read");
    assert!(matches!(error.kind(), ErrorKind::Shorter), "{error}");
    assert_eq!(reader.next_data(MIB as u64).expect("an answer"), None);
    assert!(!is_unchanged(&reader));
}

#[test]
fn a_file_that_grows_is_read_to_where_it_ended() {
    let Here { path, content, found, _folder } = found();
    let reader = found.open().expect("open");
    let file = File::options().append(true).open(&path).expect("a file");
    file.write_all_at(&[1; 100], content.len() as u64).expect("written");
    let mut room = vec![0; 3 * MIB];
    assert_eq!(reader.read_at(0, &mut room).expect("read"), content.len());
    assert_eq!(reader.next_data(0).expect("an answer"), Some(0..content.len() as u64));
    assert!(!is_unchanged(&reader));
}

#[test]
fn a_file_that_is_replaced_or_removed_is_seen() {
    let Here { path, content, found, _folder } = found();
    let reader = found.open().expect("open");
    fs::write(path.with_extension("new"), &content).expect("another");
    fs::rename(path.with_extension("new"), &path).expect("renamed");
    let mut room = vec![0; content.len()];
    reader.read_at(0, &mut room).expect("the old one can be read");
    assert_eq!(room, content);
    assert!(!is_unchanged(&reader), "but it is not the one that has the name");
    assert!(matches!(found.open().expect_err("open").kind(), ErrorKind::Changed));
    fs::remove_file(&path).expect("removed");
    assert!(!is_unchanged(&reader));
    assert!(matches!(found.open().expect_err("open").kind(), ErrorKind::Missing));
}

/// A pipe that is put where a file was found would block who opens it.
#[test]
fn a_file_replaced_by_something_else_is_not_opened() {
    for links in [Links::Keep, Links::Follow] {
        let Here { path, _folder, .. } = found();
        let mut source = Source::new([path.clone()], links);
        let SourceKind::File(found) = source.next().expect("one").expect("found").kind else {
            panic!("no file");
        };
        fs::remove_file(&path).expect("removed");
        mkfifo(&path, Mode::from_bits_truncate(0o600)).expect("a pipe");
        assert!(matches!(found.open().expect_err("open").kind(), ErrorKind::Replaced));
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        assert!(matches!(found.open().expect_err("open").kind(), ErrorKind::Replaced));
    }
}

#[test]
fn rejects_whatever_took_the_name_of_a_file_since_the_walk() {
    let others: [fn(&Path); 4] = [
        |path| mkfifo(path, Mode::from_bits_truncate(0o600)).expect("a pipe"),
        |path| symlink("/dev/zero", path).expect("a link"),
        |path| drop(UnixListener::bind(path).expect("a socket")),
        |path| fs::create_dir(path).expect("a directory"),
    ];
    let Here { path, found, _folder, .. } = found();
    fs::remove_file(&path).expect("removed");
    for other in others {
        other(&path);
        for changing in [false, true] {
            let error = found.open_found(changing).expect_err("open");
            assert!(matches!(error.kind(), ErrorKind::Replaced), "{error}");
        }
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).expect("removed");
    }
}

#[test]
fn notices_changes_of_a_small_file_without_its_name() {
    let changes: [fn(&Path); 4] = [
        |path| File::options().append(true).open(path).expect("a file").set_len(1).expect("cut"),
        |path| fs::write(path, "more than it was found with").expect("written"),
        |path| fs::remove_file(path).expect("removed"),
        |path| {
            fs::write(path.with_extension("new"), "small").expect("another");
            fs::rename(path.with_extension("new"), path).expect("renamed");
        },
    ];
    for change in changes {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "small").expect("a file");
        let mut source = Source::new([path.clone()], Links::Keep);
        let SourceKind::File(found) = source.next().expect("one").expect("found").kind else {
            panic!("no file");
        };
        let reader = found.open_found(false).expect("open");
        assert!(reader.is_as_found().expect("an answer"));
        change(&path);
        assert!(!reader.is_as_found().expect("an answer"));
        assert!(!is_unchanged(&reader));
    }
}

/// A file system that lists a file with one link may count others when the file is open.
#[test]
fn fewer_links_are_a_change_and_more_are_not() {
    let Here { found, _folder, .. } = found();
    let fewer = *found.metadata();
    let mut more = fewer;
    more.links += 1;
    assert!(fewer.is_unchanged(&more));
    assert!(!more.is_unchanged(&fewer));
}

/// Another program puts a link to elsewhere where the walk is.
#[test]
fn small_files_are_read_from_the_directory_that_the_walk_has_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let (top, moved) = (folder.path().join("top"), folder.path().join("moved"));
    let (sub, outside) = (top.join("sub"), folder.path().join("outside"));
    fs::create_dir_all(&sub).expect("folders");
    fs::create_dir(&outside).expect("a folder");
    fs::write(sub.join("a"), "found").expect("a file");
    fs::write(outside.join("a"), "secret").expect("a file");
    for root in both_ways(&top) {
        let mut source = Source::below(&root, [(None, false)], Links::Keep);
        let file = source.find_map(|found| match found.expect("found").kind {
            SourceKind::File(file) => Some(file),
            _ => None,
        });
        let found = file.expect("a file");
        fs::rename(&sub, &moved).expect("renamed");
        symlink(&outside, &sub).expect("a link");
        let reader = found.open_found(false).expect("open");
        assert_eq!(reader.read_to_end(100).expect("read"), b"found");
        assert!(reader.is_as_found().expect("an answer"));
        assert!(!is_unchanged(&reader), "its path leads elsewhere");
        let later = [found.open(), found.open_changed()];
        drop(source);
        for opened in later.into_iter().chain([found.open_found(false)]) {
            let error = opened.expect_err("its path leads elsewhere");
            assert!(matches!(error.kind(), ErrorKind::NotBeneath), "{error}");
        }
        fs::remove_file(&sub).expect("removed");
        fs::rename(&moved, &sub).expect("renamed");
    }
}
