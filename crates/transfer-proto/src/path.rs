//! Names of files as peers send them: relative, of any bytes, and unable to leave the directory
//! that they are resolved in.

use std::fmt;

/// The longest path in bytes.
pub const MAX_BYTES: usize = 4096;
/// The longest component of a path in bytes (`NAME_MAX`).
pub const MAX_COMPONENT_BYTES: usize = 255;

/// A path below a root: one or more components, none of them empty, `.` or `..`, and no NUL.
/// The bytes are the file system's and need not be UTF-8. The root itself is not a `RelPath`.
///
/// `Display` is safe for a terminal: see [`shown`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(Box<[u8]>);

/// Why bytes are not a path below a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It begins with `/`.
    #[error("it is absolute; only paths below the root are accepted")]
    Absolute,
    /// Two slashes in a row, or one at the end.
    #[error("a component of it is empty")]
    EmptyComponent,
    /// A component `.` or `..`.
    #[error("it has a component `.` or `..`")]
    Dots,
    /// A NUL byte.
    #[error("it contains a NUL")]
    Nul,
    /// More than [`MAX_BYTES`].
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// A component of more than [`MAX_COMPONENT_BYTES`].
    #[error("a component of it is longer than {MAX_COMPONENT_BYTES} bytes")]
    ComponentTooLong,
}

impl RelPath {
    /// Reads a path as a peer sends it.
    ///
    /// # Errors
    /// The bytes are not a path below a root exactly as they are: nothing is repaired.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        match bytes {
            [] => return Err(PathError::Empty),
            [b'/', ..] => return Err(PathError::Absolute),
            _ if bytes.len() > MAX_BYTES => return Err(PathError::TooLong),
            _ => bytes.split(is_slash).try_for_each(check_component)?,
        }
        Ok(Self(bytes.into()))
    }

    /// Reads a path as a person writes it behind `HOST:`. Leading, trailing and doubled slashes and
    /// components `.` are dropped; if nothing is left, it is the root.
    ///
    /// # Errors
    /// It has a component `..` or a NUL, or is too long.
    pub fn typed(bytes: &[u8]) -> Result<Option<Self>, PathError> {
        let components = bytes.split(is_slash).filter(|component| !matches!(*component, [] | b"."));
        let bytes = components.collect::<Vec<_>>().join(&b'/');
        if bytes.is_empty() { Ok(None) } else { Self::parse(&bytes).map(Some) }
    }

    /// Returns the bytes, with components joined by `/`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the components from the root on; there is at least one.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(is_slash)
    }

    /// Returns the last component.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.split().1
    }

    /// Returns the path without its last component; `None` if that is the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.split().0.map(|parent| Self(parent.into()))
    }

    /// Returns the bytes before the last slash, if there is one, and those after it.
    #[must_use]
    pub fn split(&self) -> (Option<&[u8]>, &[u8]) {
        match self.0.iter().rposition(is_slash) {
            Some(at) => (Some(&self.0[..at]), &self.0[at + 1..]),
            None => (None, &self.0),
        }
    }

    /// Returns the first component, and the path below it if there is more.
    #[must_use]
    pub fn split_first(&self) -> (&[u8], Option<Self>) {
        match self.0.iter().position(is_slash) {
            Some(at) => (&self.0[..at], Some(Self(self.0[at + 1..].into()))),
            None => (&self.0, None),
        }
    }

    /// Appends another path.
    ///
    /// # Errors
    /// Both together are too long.
    pub fn join(&self, below: &Self) -> Result<Self, PathError> {
        self.with(&below.0)
    }

    /// Appends one component.
    ///
    /// # Errors
    /// It is not one component, or the path gets too long.
    pub fn child(&self, name: &[u8]) -> Result<Self, PathError> {
        check_component(name)?;
        self.with(name)
    }

    /// Makes a path of one component.
    ///
    /// # Errors
    /// It is not one component.
    pub fn single(name: &[u8]) -> Result<Self, PathError> {
        check_component(name)?;
        Ok(Self(name.into()))
    }

    /// Whether a symbolic link of this name with this target leads to something below the root.
    /// `..` is accepted only at the beginning of the target, at most as often as this path has
    /// directories: behind another name it would be resolved where that name leads, if that is a
    /// link itself (`a` → `.`, then `a/..`).
    #[must_use]
    pub fn holds_link_to(&self, target: &[u8]) -> bool {
        if target.is_empty() || target.starts_with(b"/") || target.contains(&0) {
            return false;
        }
        let mut components = target.split(is_slash).filter(|c| !matches!(*c, [] | b".")).peekable();
        let mut ups = 0;
        while components.next_if(|component| *component == b"..").is_some() {
            ups += 1;
        }
        ups < self.components().count() && components.all(|component| component != b"..")
    }

    /// Whether a symbolic link of this name leads to something in its tree, whose name is the first
    /// component. For a link that is itself the thing sent, the tree is its directory.
    #[must_use]
    pub fn tree_holds_link_to(&self, target: &[u8]) -> bool {
        let in_tree = self.split_first().1;
        in_tree.as_ref().unwrap_or(self).holds_link_to(target)
    }

    fn with(&self, below: &[u8]) -> Result<Self, PathError> {
        if self.0.len() + 1 + below.len() > MAX_BYTES {
            return Err(PathError::TooLong);
        }
        Ok(Self([&self.0, below].join(&b'/').into()))
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(&self.0).fmt(f)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// Escapes bytes from elsewhere for a terminal: control characters, characters that change the
/// direction of writing, other invisible ones, and backslashes as Rust does; bytes that are not
/// UTF-8 as `\xNN`.
#[must_use]
pub fn shown(bytes: &[u8]) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        for chunk in bytes.utf8_chunks() {
            // Rust escapes quotes as well, which are harmless here
            for piece in chunk.valid().split_inclusive(['\'', '"']) {
                let text = piece.strip_suffix(['\'', '"']).unwrap_or(piece);
                write!(f, "{}{}", text.escape_debug(), &piece[text.len()..])?;
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    })
}

/// Escapes a peer's sentence for a terminal as [`shown`] does, but not backslashes: the peer
/// escaped the names in it. Escaping twice changes nothing.
#[must_use]
pub fn printable(sentence: &str) -> String {
    let mut printable = String::with_capacity(sentence.len());
    for piece in sentence.split_inclusive(['\'', '"', '\\']) {
        let text = piece.strip_suffix(['\'', '"', '\\']).unwrap_or(piece);
        printable.extend(text.escape_debug());
        printable.push_str(&piece[text.len()..]);
    }
    printable
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

fn check_component(component: &[u8]) -> Result<(), PathError> {
    match component {
        [] => Err(PathError::EmptyComponent),
        b"." | b".." => Err(PathError::Dots),
        _ if component.len() > MAX_COMPONENT_BYTES => Err(PathError::ComponentTooLong),
        _ if component.contains(&0) => Err(PathError::Nul),
        _ if component.contains(&b'/') => Err(PathError::EmptyComponent),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(bytes: &[u8]) -> RelPath {
        RelPath::parse(bytes).expect("a path")
    }

    #[test]
    fn names_that_leave_the_root_or_are_no_names_are_refused() {
        for (bytes, error) in [
            (&b""[..], PathError::Empty),
            (b"/", PathError::Absolute),
            (b"/etc/passwd", PathError::Absolute),
            (b"//a", PathError::Absolute),
            (b"..", PathError::Dots),
            (b"../a", PathError::Dots),
            (b"a/..", PathError::Dots),
            (b"a/../b", PathError::Dots),
            (b"a/../../b", PathError::Dots),
            (b".", PathError::Dots),
            (b"./a", PathError::Dots),
            (b"a/./b", PathError::Dots),
            (b"a//b", PathError::EmptyComponent),
            (b"a/", PathError::EmptyComponent),
            (b"a\0b", PathError::Nul),
            (b"\0", PathError::Nul),
            (b"..\0", PathError::Nul),
            (&[b'a'; 256], PathError::ComponentTooLong),
            (&[b'a'; 4097], PathError::TooLong),
        ] {
            assert_eq!(RelPath::parse(bytes), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn unusual_names_are_accepted() {
        for bytes in [
            &b"..."[..],
            b"..a",
            b"a..",
            b".hidden",
            b"-rf",
            b"a\\..\\b",
            b"C:",
            b" ",
            b"a\nb",
            b"\xff\xfe/\x80",
            &[b'a'; 255],
            &[&[b'a'; 255][..]; 16].join(&b'/'),
        ] {
            assert_eq!(path(bytes).as_bytes(), bytes);
        }
    }

    #[test]
    fn a_path_and_its_parts() {
        let long = path(b"a/b/c");
        assert_eq!((long.name(), long.parent()), (&b"c"[..], Some(path(b"a/b"))));
        assert_eq!(long.components().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(path(b"a").parent(), None);
        assert_eq!(path(b"a").join(&path(b"b/c")), Ok(long.clone()));
        assert_eq!(path(b"a/b").child(b"c"), Ok(long));
        assert_eq!(path(b"a").child(b".."), Err(PathError::Dots));
        assert!(path(b"a").child(b"b/c").is_err());
        assert!(RelPath::single(b"b/c").is_err());
        let half = path(&[&[b'a'; 127][..]; 16].join(&b'/'));
        assert_eq!(half.join(&half).map(|both| both.as_bytes().len()), Ok(4095));
        let more = half.join(&half).expect("it fits").child(b"");
        assert_eq!(more, Err(PathError::EmptyComponent));
        assert_eq!(half.join(&half).expect("it fits").child(b"a"), Err(PathError::TooLong));
    }

    #[test]
    fn what_people_type() {
        for root in [&b""[..], b".", b"/", b"./", b"//", b"/./."] {
            assert_eq!(RelPath::typed(root), Ok(None), "{root:?}");
        }
        for bytes in [&b"/a/b"[..], b"a/b/", b"./a//b", b"a/./b/."] {
            assert_eq!(RelPath::typed(bytes), Ok(Some(path(b"a/b"))), "{bytes:?}");
        }
        for bytes in [&b".."[..], b"a/..", b"/../etc"] {
            assert_eq!(RelPath::typed(bytes), Err(PathError::Dots), "{bytes:?}");
        }
        assert_eq!(RelPath::typed(b"/a\0"), Err(PathError::Nul));
    }

    #[test]
    fn links_that_leave_the_root_are_known() {
        let link = path(b"a/b/link");
        for target in
            [&b"x"[..], b"../x", b"../../x", b"./x//y/", b".././../a/b/x", b"..", b"../.."]
        {
            assert!(link.holds_link_to(target), "{target:?}");
        }
        // with `a` → `.` beside it, `a/b/../..` would be the root's parent
        for target in
            [&b""[..], b"/x", b"../../../x", b"x/../../../..", b"x/..", b"a/b/../..", b"x\0"]
        {
            assert!(!link.holds_link_to(target), "{target:?}");
        }
        assert!(!path(b"link").holds_link_to(b".."));
    }

    #[test]
    fn links_that_leave_a_tree_are_known_by_what_is_below_its_name() {
        for (link, target) in [
            (&b"tree/link"[..], &b"x"[..]),
            (b"tree/a/link", b"../x"),
            (b"tree/a/link", b".."),
            (b"link", b"beside/it"),
        ] {
            assert!(path(link).tree_holds_link_to(target), "{target:?}");
        }
        for (link, target) in [
            (&b"tree/cache"[..], &b"../.ssh"[..]),
            (b"tree/up", b".."),
            (b"tree/up", b"./../x"),
            (b"tree/up", b".//.."),
            (b"tree/a/link", b"../../x"),
            (b"link", b"../x"),
        ] {
            assert!(!path(link).tree_holds_link_to(target), "{target:?}");
        }
    }

    #[test]
    fn no_control_character_reaches_a_terminal() {
        for (bytes, text) in [
            (&b"plain name's \"quote\""[..], "plain name's \"quote\""),
            (b"\x1b[31mred\x07", "\\u{1b}[31mred\\u{7}"),
            (b"two\nlines\r\t", "two\\nlines\\r\\t"),
            (b"\xff\xc3", "\\xff\\xc3"),
            ("größe/日本".as_bytes(), "größe/日本"),
            // U+009B is CSI in eight bits; U+202E turns the writing round
            ("\u{9b}31m\u{202e}gpj.exe".as_bytes(), "\\u{9b}31m\\u{202e}gpj.exe"),
            (b"back\\slash", "back\\\\slash"),
            ("decomposed u\u{308}".as_bytes(), "decomposed u\u{308}"),
        ] {
            assert_eq!(shown(bytes).to_string(), text);
        }
        assert_eq!(path(b"a\n/b").to_string(), "a\\n/b");
    }

    #[test]
    fn a_message_keeps_escapes_of_its_writer_and_loses_control_characters() {
        for (text, printed) in [
            ("a\\nb cannot be stored: it's \"full\"", "a\\nb cannot be stored: it's \"full\""),
            ("\u{202e}gpj.exe\u{200b}\u{feff}", "\\u{202e}gpj.exe\\u{200b}\\u{feff}"),
            ("\x1b[31m\u{9b}2J\r\n", "\\u{1b}[31m\\u{9b}2J\\r\\n"),
            ("größe, 日本, u\u{308}", "größe, 日本, u\u{308}"),
        ] {
            assert_eq!(printable(text), printed);
        }
    }

    /// Whether a character joins the one before it, and may stand behind one.
    fn is_grapheme_extender(c: char) -> bool {
        format!("x{c}").escape_debug().to_string() == format!("x{c}")
    }

    proptest! {
        #[test]
        fn any_accepted_name_stays_below_the_root(bytes in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), Just(0), any::<u8>()], 0..40,
        )) {
            if let Ok(path) = RelPath::parse(&bytes) {
                prop_assert_eq!(path.as_bytes(), &bytes);
                for component in path.components() {
                    prop_assert!(!matches!(component, b"" | b"." | b".."));
                    prop_assert!(component.iter().all(|byte| !matches!(byte, 0 | b'/')));
                }
            }
            prop_assert!(shown(&bytes).to_string().chars().all(|c| !c.is_control()));
            if let Ok(Some(path)) = RelPath::typed(&bytes) {
                prop_assert_eq!(RelPath::parse(path.as_bytes()), Ok(path.clone()));
            }
        }

        #[test]
        fn a_printable_sentence_has_no_control_or_format_character(text in any::<String>()) {
            let printed = printable(&text);
            prop_assert!(printed.chars().all(|c| c == '\'' || c == '"' || c == '\\'
                || c.escape_debug().count() == 1 || is_grapheme_extender(c)));
            prop_assert_eq!(printable(&printed), printed);
        }

        #[test]
        fn different_names_are_shown_differently(
            one in prop::collection::vec(any::<u8>(), 0..6),
            other in prop::collection::vec(any::<u8>(), 0..6),
        ) {
            prop_assert_eq!(one == other, shown(&one).to_string() == shown(&other).to_string());
        }
    }
}
