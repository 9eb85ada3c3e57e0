//! `known_hosts`: the keys of known hosts.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::Error;
use crate::identity::make_directory;
use crate::key::PublicKey;

/// A file of lines `HOST ssh-ed25519 BASE64`, where HOST is a name or address,
/// or `[HOST]:PORT`. Empty lines and those that begin with `#` say nothing.
#[derive(Debug)]
pub struct KnownHosts {
    path: PathBuf,
    text: String,
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    line: usize,
    host: String,
    key: PublicKey,
}

/// Whether a host is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostStatus {
    /// It is unknown.
    Unknown,
    /// It has one of these keys.
    Known {
        /// The keys.
        keys: Vec<PublicKey>,
        /// The line of the first, from 1.
        line: usize,
    },
}

impl KnownHosts {
    /// Reads the file; a missing one is empty.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(cause) => {
                return Err(Error::System { doing: "read", path: path.to_owned(), cause });
            }
            Ok(text) => text,
        };
        Self::parse(path, text)
    }

    /// Reads the text of the file at `path`.
    pub fn parse(path: &Path, text: String) -> Result<Self, Error> {
        let mut known = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let wrong = |cause: String| Error::Line { path: path.to_owned(), line, cause };
            let mut words = content.split_whitespace();
            let (Some(host), Some(algorithm), Some(key)) =
                (words.next(), words.next(), words.next())
            else {
                return Err(wrong("a line is `HOST ssh-ed25519 KEY [COMMENT]`".to_owned()));
            };
            if !is_plain_host(host) {
                return Err(wrong(format!(
                    "`{host}` is not the name or address of one host: markers (@), hashed names, lists and patterns of \
                     ssh's known_hosts are not read here"
                )));
            }
            let key = format!("{algorithm} {key}").parse();
            let key = key.map_err(|error| wrong(format!("{error}")))?;
            known.push(Known { line, host: host.to_owned(), key });
        }
        Ok(Self { path: path.to_owned(), text, known })
    }

    /// Looks up a host, written as [`crate::Host::known_as`] returns it.
    pub fn status(&self, host: &str) -> HostStatus {
        let mut of_host = self.known.iter().filter(|known| known.host == host).peekable();
        match of_host.peek() {
            None => HostStatus::Unknown,
            Some(first) => HostStatus::Known {
                line: first.line,
                keys: of_host.map(|known| known.key).collect(),
            },
        }
    }

    /// Adds a host, also to the file.
    pub fn add(&mut self, host: &str, key: PublicKey) -> Result<(), Error> {
        let mut line = format!("{host} {key}\n");
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            line.insert(0, '\n');
        }
        let written = self.path.parent().map_or(Ok(()), make_directory).and_then(|()| {
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create(true).mode(0o600).open(&self.path)?;
            file.write_all(line.as_bytes())
        });
        written.map_err(|cause| Error::System {
            doing: "write to",
            path: self.path.clone(),
            cause,
        })?;
        self.text += &line;
        let line = self.text.lines().count();
        self.known.push(Known { line, host: host.to_owned(), key });
        Ok(())
    }

    /// Returns the names of all hosts, as [`crate::Host::known_as`] returns them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|known| known.host.as_str())
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether ssh would take this for one host, and not for a marker, a list, a pattern or a hash:
/// what revokes a key there must not make it known here.
fn is_plain_host(host: &str) -> bool {
    !host.starts_with(['@', '|', '!']) && !host.contains([',', '*', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    fn key() -> PublicKey {
        Identity::ephemeral().expect("a key").public()
    }

    #[test]
    fn a_host_that_was_added_is_known_by_its_key() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("config/known_hosts");
        let mut hosts = KnownHosts::read(&path).expect("a missing file knows nobody");
        assert_eq!(hosts.status("a"), HostStatus::Unknown);
        let (one, two) = (key(), key());
        hosts.add("a", one).expect("it is written");
        hosts.add("[a]:77", two).expect("it is written");
        for hosts in [&hosts, &KnownHosts::read(&path).expect("the file")] {
            assert_eq!(hosts.status("a"), HostStatus::Known { keys: vec![one], line: 1 });
            assert_eq!(hosts.status("[a]:77"), HostStatus::Known { keys: vec![two], line: 2 });
            assert_eq!(hosts.status("b"), HostStatus::Unknown);
        }
    }

    #[test]
    fn a_comment_may_follow_the_key() {
        let one = key();
        let text = format!("a {one} added by hand\n");
        let hosts = KnownHosts::parse(Path::new("known_hosts"), text).expect("the text");
        assert_eq!(hosts.status("a"), HostStatus::Known { keys: vec![one], line: 1 });
    }

    #[test]
    fn a_last_line_without_an_end_stays_a_line() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("known_hosts");
        let one = key();
        fs::write(&path, format!("# mine\n\na {one}")).expect("a file");
        let mut hosts = KnownHosts::read(&path).expect("the file");
        hosts.add("b", one).expect("it is written");
        let hosts = KnownHosts::read(&path).expect("the file");
        assert_eq!(hosts.status("a"), HostStatus::Known { keys: vec![one], line: 3 });
        assert_eq!(hosts.status("b"), HostStatus::Known { keys: vec![one], line: 4 });
    }

    #[test]
    fn a_wrong_line_is_named() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("known_hosts");
        let key = key();
        let lines = ["@revoked a", "a,b", "*.example.com", "!a", "|1|c2FsdA==|aGFzaA=="];
        let lines = lines.map(|host| format!("{host} {key}"));
        let short = ["a", "a ssh-ed25519 AAAA", "a ssh-rsa AAAA"].map(str::to_owned);
        for wrong in lines.iter().chain(&short) {
            fs::write(&path, format!("# mine\n{wrong}\n")).expect("a file");
            let error = KnownHosts::read(&path).expect_err(wrong.as_str()).to_string();
            assert!(error.contains("known_hosts:2: "), "{error}");
        }
    }
}
