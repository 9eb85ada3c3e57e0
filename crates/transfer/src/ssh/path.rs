//! Paths as users of ssh write them.

use headroom_transfer_proto::path::{PathError, RelPath};

/// Resolves what is written behind `HOST:` to a path below `/`: relative paths begin at the
/// home, and `~` is the home. `..` removes a component, without a look at the file system.
pub(crate) fn from_home(home: &[u8], typed: &[u8]) -> Result<Option<RelPath>, PathError> {
    let whole = match typed {
        [b'/', ..] => typed.to_vec(),
        b"~" => home.to_vec(),
        [b'~', b'/', rest @ ..] | rest => [home, rest].join(&b'/'),
    };
    let mut components: Vec<&[u8]> = Vec::new();
    for component in whole.split(|byte| *byte == b'/') {
        match component {
            b".." => drop(components.pop()),
            component => components.push(component),
        }
    }
    RelPath::typed(&components.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_home_or_at_the_root() {
        for (typed, path) in [
            ("", "home/u"),
            (".", "home/u"),
            ("~", "home/u"),
            ("~/a", "home/u/a"),
            ("a/b/", "home/u/a/b"),
            ("~a", "home/u/~a"),
            ("../v/a", "home/v/a"),
            ("/srv//./a", "srv/a"),
            ("/srv/x/../a/..", "srv"),
            ("a/~", "home/u/a/~"),
        ] {
            let found = from_home(b"/home/u", typed.as_bytes()).expect(typed).expect(typed);
            assert_eq!(found.as_bytes(), path.as_bytes(), "{typed}");
        }
        for root in ["/", "../..", "../../../../..", "/.."] {
            assert_eq!(from_home(b"/home/u", root.as_bytes()), Ok(None), "{root}");
        }
        assert_eq!(
            from_home(b"/", b"a").map(|path| path.map(|path| path.to_string())),
            Ok(Some("a".into()))
        );
        assert!(from_home(b"/home/u", b"a\0").is_err());
    }
}
