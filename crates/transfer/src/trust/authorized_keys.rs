//! `authorized_keys`: which clients are accepted, and what they may do.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use headroom_transfer_proto::path::RelPath;

use super::error::Error;
use crate::files::Root;
use crate::key::PublicKey;

/// A file of lines `[OPTIONS] ssh-ed25519 BASE64 [COMMENT]`, whose options are
/// `read-only`, `root="DIR"` and `rate=RATE`, separated by commas. Empty lines and those that
/// begin with `#` say nothing.
#[derive(Debug, Clone, Default)]
pub struct AuthorizedKeys(HashMap<PublicKey, Line>);

/// The entry of a key.
#[derive(Debug, Clone, Default)]
struct Line {
    access: Access,
    /// The line, from 1; 0 without a file.
    number: usize,
    /// The comment.
    comment: Option<String>,
}

/// What a client may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The directory below the server's root that the client sees instead.
    pub root: Option<RelPath>,
    /// Whether the client may only read.
    pub read_only: bool,
    /// The limit for all connections of the client, each way, in bits per second.
    pub rate_bps: Option<u64>,
}

impl AuthorizedKeys {
    /// Reads the file, which must belong to this user or root, and only they may write to it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&text(path)?).map_err(|(line, cause)| Error::Line {
            path: path.to_owned(),
            line,
            cause,
        })
    }

    /// Reads the file, and skips lines that are wrong or repeat a key.
    pub(super) fn read_what_is_right(path: &Path) -> Result<(Self, Vec<Error>), Error> {
        let mut wrong = Vec::new();
        let mut note =
            |(line, cause)| wrong.push(Error::Line { path: path.to_owned(), line, cause });
        let keys = Self::parse_each(&text(path)?, |error| {
            note(error);
            Ok::<_, Error>(())
        })?;
        Ok((keys, wrong))
    }

    /// Reads the text of such a file; an error comes with its line, from 1.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        Self::parse_each(text, Err)
    }

    /// Reads it; `wrong` decides about wrong lines.
    fn parse_each<E>(
        text: &str,
        mut wrong: impl FnMut((usize, String)) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut keys: HashMap<PublicKey, Line> = HashMap::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            match parse_line(content) {
                Err(cause) => wrong((line, cause))?,
                Ok((key, access)) => match keys.get(&key) {
                    Some(Line { number, .. }) => {
                        wrong((line, format!("this key is already in line {number}: remove one")))?;
                    }
                    None => {
                        let comment = comment(content, &key);
                        keys.insert(key, Line { access, number: line, comment });
                    }
                },
            }
        }
        Ok(Self(keys))
    }

    /// Parses the options of a line, as they are written ahead of a key.
    pub fn parse_options(options: &str) -> Result<Access, String> {
        match options {
            "" => Ok(Access::default()),
            options => {
                let mut access = Access::default();
                let rest = parse_options(options, &mut access)?;
                match rest.trim().is_empty() {
                    true => Ok(access),
                    false => Err(format!("`{}` is not an option", rest.trim())),
                }
            }
        }
    }

    /// Adds a key.
    pub fn insert(&mut self, key: PublicKey, access: Access) {
        self.0.insert(key, Line { access, number: 0, comment: None });
    }

    /// Returns the keys whose `root` is a directory below the server's root, and an
    /// error for each line of `path` that names another.
    pub fn with_roots_below(mut self, root: &Root, path: &Path) -> (Self, Vec<Error>) {
        let mut wrong = Vec::new();
        self.0.retain(|_, line| {
            let Some(inner) = &line.access.root else { return true };
            let Err(error) = root.below(inner) else { return true };
            let cause = format!(
                "`root` is `/{inner}`, a directory below {}: {}",
                root.path().display(),
                error.kind()
            );
            wrong.push(Error::Line { path: path.to_owned(), line: line.number, cause });
            false
        });
        wrong.sort_by_key(|error| match error {
            Error::Line { line, .. } => *line,
            _ => 0,
        });
        (self, wrong)
    }

    /// Returns what the holder of this key may do, if it is listed.
    pub fn access(&self, key: &PublicKey) -> Option<&Access> {
        self.0.get(key).map(|line| &line.access)
    }

    /// Returns the comment of this key.
    pub fn comment(&self, key: &PublicKey) -> Option<&str> {
        self.0.get(key)?.comment.as_deref()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a file that nobody else can have written.
pub(super) fn text(path: &Path) -> Result<String, Error> {
    let system = |cause| Error::System { doing: "read", path: path.to_owned(), cause };
    let mut file = File::open(path).map_err(system)?;
    let meta = file.metadata().map_err(system)?;
    let (mode, owner) = (meta.mode() & 0o7777, meta.uid());
    if mode & 0o022 != 0 || (owner != 0 && owner != nix::unistd::geteuid().as_raw()) {
        return Err(Error::Writable { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(system)?;
    Ok(text)
}

fn parse_line(line: &str) -> Result<(PublicKey, Access), String> {
    let mut access = Access::default();
    let mut rest = line;
    if !line.starts_with("ssh-ed25519 ") {
        rest = parse_options(line, &mut access)?.trim_start();
    }
    let mut words = rest.split_whitespace();
    let (word, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let key = format!("{word} {key}").parse().map_err(|error| format!("{error}"))?;
    Ok((key, access))
}

/// Parses the options at the beginning of a text, and returns the rest of it.
fn parse_options<'t>(text: &'t str, access: &mut Access) -> Result<&'t str, String> {
    let (mut rest, mut given) = (text, Vec::new());
    loop {
        let name = &rest[..rest.find([',', ' ', '\t', '=']).unwrap_or(rest.len())];
        if given.contains(&name) {
            return Err(format!("`{name}` is given twice: remove one"));
        }
        given.push(name);
        rest = option(name, &rest[name.len()..], access)?;
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(rest),
        }
    }
}

/// Returns what follows the key in its line.
fn comment(line: &str, key: &PublicKey) -> Option<String> {
    let (_, comment) = line.split_once(&key.to_string())?;
    Some(comment.trim().to_owned()).filter(|comment| !comment.is_empty())
}

/// Parses what follows an option's name, and returns the rest of the text.
fn option<'t>(name: &str, rest: &'t str, access: &mut Access) -> Result<&'t str, String> {
    match name {
        "read-only" if !rest.starts_with('=') => {
            access.read_only = true;
            Ok(rest)
        }
        "root" => {
            let (value, rest) = rest
                .strip_prefix("=\"")
                .and_then(|value| value.split_once('"'))
                .ok_or_else(|| "`root` is written root=\"/a/directory\"".to_owned())?;
            if !value.starts_with('/') {
                return Err(format!(
                    "`root` is `{value}`, but must begin with `/`, which is the server's root"
                ));
            }
            access.root = RelPath::typed(value.as_bytes())
                .map_err(|error| format!("`root` is `{value}`: {error}"))?;
            Ok(rest)
        }
        "rate" => {
            let value = rest.strip_prefix('=').unwrap_or_default();
            let end = value.find([',', ' ', '\t']).unwrap_or(value.len());
            let (value, rest) = value.split_at(end);
            access.rate_bps = Some(headroom_units::parse_rate(value)?);
            Ok(rest)
        }
        _ => Err(format!(
            "`{name}` is neither an option (read-only, root=\"DIR\", rate=RATE) nor `ssh-ed25519`: a line is `[OPTIONS] \
             ssh-ed25519 KEY [COMMENT]`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    fn key() -> PublicKey {
        Identity::ephemeral().expect("a key").public()
    }

    #[test]
    fn options_and_comments_are_read() {
        let [plain, reader, placed, both, slow] = [key(), key(), key(), key(), key()];
        let text = format!(
            "# who may come\n\n{plain} alice@laptop, of course\nread-only {reader}\nroot=\"/a b/c,d\" {placed} x\n\
             read-only,root=\"/e\"  {both}\nrate=2.5mbit,read-only {slow}\n"
        );
        let keys = AuthorizedKeys::parse(&text).expect("the text is right");
        assert_eq!(keys.len(), 5);
        assert_eq!(keys.comment(&plain), Some("alice@laptop, of course"));
        assert_eq!((keys.comment(&placed), keys.comment(&reader)), (Some("x"), None));
        let access = |root: Option<&str>, read_only| Access {
            root: root.map(|root| RelPath::parse(root.as_bytes()).expect("a path")),
            read_only,
            rate_bps: None,
        };
        assert_eq!(keys.access(&plain), Some(&access(None, false)));
        assert_eq!(keys.access(&reader), Some(&access(None, true)));
        assert_eq!(keys.access(&placed), Some(&access(Some("a b/c,d"), false)));
        assert_eq!(keys.access(&both), Some(&access(Some("e"), true)));
        let limited = Access { rate_bps: Some(2_500_000), ..access(None, true) };
        assert_eq!(keys.access(&slow), Some(&limited));
        assert_eq!(keys.access(&key()), None);
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        let key = key();
        for (text, line, word) in [
            (format!("{key}\n{key}"), 2, "line 1"),
            (format!("\nread-olny {key}"), 2, "read-olny"),
            (format!("read-only=yes {key}"), 1, "read-only"),
            (format!("root=/srv {key}"), 1, "root="),
            (format!("root=\"srv\" {key}"), 1, "begin with"),
            (format!("root=\"/srv {key}"), 1, "root="),
            (format!("\nroot=\"/a/../b\" {key}"), 2, "`..`"),
            (format!("root=\"/a\",root=\"/b\" {key}"), 1, "`root` is given twice"),
            (format!("read-only,read-only {key}"), 1, "given twice"),
            (format!("rate {key}"), 1, "a rate such as"),
            (format!("rate=fast,read-only {key}"), 1, "fast"),
            ("ssh-ed25519".to_owned(), 1, "ssh-ed25519"),
            ("ssh-ed25519 AAAA".to_owned(), 1, "not an Ed25519 public key"),
            ("read-only".to_owned(), 1, "not an Ed25519 public key"),
            (format!("read-only,{key}"), 1, "ssh-ed25519"),
        ] {
            let (found, cause) = AuthorizedKeys::parse(&text).expect_err(&text);
            assert_eq!(found, line, "{text}");
            assert!(cause.contains(word), "{text}: {cause}");
        }
    }

    #[test]
    fn a_key_root_that_is_no_directory_below_the_servers_is_reported_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let served = folder.path().join("served");
        std::fs::create_dir_all(served.join("inner")).expect("folders");
        std::fs::create_dir(folder.path().join("outside")).expect("a folder");
        std::fs::write(served.join("file"), "a file").expect("a file");
        std::os::unix::fs::symlink("../outside", served.join("link")).expect("a link");
        let [inner, whole, missing, file, link, outside] = [(); 6].map(|()| key());
        let outside_path = folder.path().join("outside");
        let text = format!(
            "root=\"/inner/\" {inner}\nroot=\"/\" {whole}\nroot=\"/missing\" {missing}\nroot=\"/file\" {file}\n\
             root=\"/link\" {link}\nroot=\"{}\" {outside}\n",
            outside_path.display()
        );
        let root = Root::open(&served).expect("a root");
        let keys = AuthorizedKeys::parse(&text).expect("the text is right");
        let (keys, wrong) = keys.with_roots_below(&root, Path::new("keys"));
        let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
        for (line, wrong) in (3..).zip(&wrong) {
            assert!(wrong.starts_with(&format!("keys:{line}: `root`")), "{wrong}");
            assert!(wrong.contains(&format!("below {}", served.display())), "{wrong}");
        }
        assert_eq!((wrong.len(), keys.len()), (4, 2), "{wrong:?}");
        assert!(keys.access(&inner).is_some() && keys.access(&whole).is_some());
    }
}
