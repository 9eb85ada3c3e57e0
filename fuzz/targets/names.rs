//! Any bytes as a name that a peer gives or somebody types, as a link's target, as
//! `HOST:PATH`: nothing leads out, and nothing that is shown moves a terminal.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use headroom_transfer::path::{RelPath, shown};
use headroom_transfer::{Host, RemotePath};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert_plain(&shown(bytes).to_string());
    let (target, name) = bytes.split_at(bytes.iter().position(|&byte| byte == 0).unwrap_or(0));
    for name in [bytes, name] {
        if let Ok(path) = RelPath::parse(name) {
            assert_eq!(path.as_bytes(), name);
            assert_inside(&path);
            if path.holds_link_to(target) {
                assert_link_stays(&path, target);
            }
        }
        if let Ok(Some(path)) = RelPath::typed(name) {
            assert_inside(&path);
        }
        if let Ok(path) = RelPath::single(name) {
            assert_eq!((path.as_bytes(), path.parent()), (name, None));
            assert_inside(&path);
        }
    }
    let text = OsStr::from_bytes(bytes);
    match RemotePath::parse(text) {
        Ok(RemotePath { host, path }) => {
            assert!(RemotePath::is_meant(text));
            assert!(bytes.ends_with(&path) && host.port() != 0);
            let again = [host.to_string().as_bytes(), b":", &path].concat();
            let again = RemotePath::parse(OsStr::from_bytes(&again)).expect("as it is typed");
            // a path that begins like a port is one where the port is left out
            assert!(again.host == host && again.path == path || path.contains(&b':'));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(host) = str::from_utf8(bytes).map_err(drop).and_then(|t| Host::parse(t).map_err(drop))
    {
        assert_eq!(Host::parse(&host.to_string()), Ok(host.clone()));
        assert_plain(&host.known_as());
    }
});

fn assert_inside(path: &RelPath) {
    assert_plain(&path.to_string());
    assert!(!path.as_bytes().starts_with(b"/") && !path.as_bytes().contains(&0));
    for component in path.components() {
        assert!(!matches!(component, b"" | b"." | b"..") && component.len() <= 255);
    }
    assert_eq!(path.components().last(), Some(path.name()));
}

/// Follows the link by its letters: it is never above the root.
fn assert_link_stays(path: &RelPath, target: &[u8]) {
    assert!(!target.starts_with(b"/"));
    let mut depth = path.components().count() as i64 - 1;
    for component in target.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        assert!(depth >= 0, "it leads out");
    }
}

fn assert_plain(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
