//! Hosts, and paths on them, as people write them: `HOST[:PORT]:PATH`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use headroom_transfer_proto::path::shown;

/// The default port; IANA has assigned it to no other service.
pub const DEFAULT_PORT: u16 = 4860;

/// A host, its port, and the user there, which only ssh uses. Written as it is typed:
/// `[USER@]HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    user: Option<String>,
    name: String,
    /// `None` if none was given.
    port: Option<u16>,
}

/// A path on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotePath {
    /// The host.
    pub host: Host,
    /// The path, as it was written.
    pub path: Vec<u8>,
}

/// The most servers that one transfer uses.
pub const MAX_SERVERS: usize = 16;

/// A path that several servers of one store have. Written as it is typed: the hosts separated by
/// commas, each with a port of its own if it needs one, `HOST[:PORT],HOST[:PORT]:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadPath {
    /// The servers, each once: at least one, at most [`MAX_SERVERS`].
    pub hosts: Vec<Host>,
    /// The path, as it was written.
    pub path: Vec<u8>,
}

/// A text that is not a host or a path on one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no path.
    #[error(
        "`{0}` is not a path on a host: write HOST:PATH, HOST:PORT:PATH or [ADDRESS]:PORT:PATH"
    )]
    RemotePath(String),
    /// A word in the place of a port is not one.
    #[error(
        "`{place}` has a colon after `{word}`, which is not a port from 1 to 65535. Write a path with a colon as HOST:./PATH"
    )]
    Port {
        /// The place.
        place: String,
        /// What is no port.
        word: String,
    },
    /// There is no host.
    #[error("`{0}` is not a host: write HOST, HOST:PORT or [ADDRESS]:PORT")]
    Host(String),
    /// Several servers are named where there can be one only.
    #[error(
        "`{0}` names several servers, which only `put`, `get` and `sync` accept: write one of them"
    )]
    Several(String),
    /// A server is named twice.
    #[error("`{place}` names the server {host} twice: write each server once")]
    Twice {
        /// The place.
        place: String,
        /// The server.
        host: String,
    },
    /// Too many servers are named.
    #[error("`{0}` names more than {MAX_SERVERS} servers: write fewer")]
    TooMany(String),
}

impl Host {
    /// A host by name or address.
    pub fn new(name: &str, port: u16) -> Self {
        let port = (port != DEFAULT_PORT).then_some(port);
        Self { user: None, name: name.to_owned(), port }
    }

    /// Reads `[USER@]HOST[:PORT]`, where HOST is in brackets if it contains colons.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::Host(shown(text.as_bytes()).to_string());
        let (user, name, rest) = split_name(text.as_bytes()).ok_or_else(wrong)?;
        let port = match rest.strip_prefix(b":") {
            None if rest.is_empty() => None,
            None => return Err(wrong()),
            Some(port) => Some(parse_port(port).ok_or_else(wrong)?),
        };
        Ok(Self { user, name: name.to_owned(), port })
    }

    /// Returns the user, if one was given.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the name or address as it was typed: ssh's aliases are case-sensitive.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the UDP port.
    pub const fn port(&self) -> u16 {
        match self.port {
            Some(port) => port,
            None => DEFAULT_PORT,
        }
    }

    /// Whether a port was given, even if it is the default.
    pub const fn names_port(&self) -> bool {
        self.port.is_some()
    }

    /// Returns its name in `known_hosts`.
    pub fn known_as(&self) -> String {
        let name = self.name.to_ascii_lowercase();
        match self.port() {
            DEFAULT_PORT => name,
            port => format!("[{name}]:{port}"),
        }
    }
}

impl fmt::Display for Host {
    /// Writes it as it can be typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.name.contains(':') {
            true => write!(f, "[{}]", self.name)?,
            false => f.write_str(&self.name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl RemotePath {
    /// Reads `[USER@]HOST[:PORT]:PATH`. A colon before any slash after the host ends a port, so
    /// that a mistyped port does not become the name of a file.
    ///
    /// # Errors
    /// It is no such text, or names several servers.
    pub fn parse(text: &OsStr) -> Result<Self, ParseError> {
        let SpreadPath { mut hosts, path } = SpreadPath::parse(text)?;
        match (hosts.pop(), hosts.is_empty()) {
            (Some(host), true) => Ok(Self { host, path }),
            _ => Err(ParseError::Several(shown(text.as_bytes()).to_string())),
        }
    }

    /// Whether a text is meant as a path on a host: it has a colon before any slash, as with scp.
    /// `./a:b` is a file.
    pub fn is_meant(text: &OsStr) -> bool {
        let bytes = text.as_bytes();
        let first = bytes.iter().position(|byte| matches!(byte, b':' | b'/'));
        bytes.starts_with(b"[") || first.is_some_and(|at| bytes[at] == b':')
    }
}

impl SpreadPath {
    /// Reads `[USER@]HOST[:PORT]:PATH`, where several hosts may stand, separated by commas. A colon
    /// before any slash after the last host ends a port, as in [`RemotePath::parse`]. A comma
    /// behind that colon belongs to the path, unless a port is before it and a colon follows it.
    ///
    /// # Errors
    /// It is no such text, names a server twice, or more than [`MAX_SERVERS`].
    pub fn parse(text: &OsStr) -> Result<Self, ParseError> {
        let whole = text.as_bytes();
        let place = || shown(whole).to_string();
        let (mut hosts, mut left): (Vec<Host>, &[u8]) = (Vec::new(), whole);
        let path = loop {
            let wrong = || ParseError::RemotePath(place());
            let (user, name, rest) = split_name(left).ok_or_else(wrong)?;
            let mut host = Host { user, name: name.to_owned(), port: None };
            if let Some(next) = rest.strip_prefix(b",") {
                hosts.push(host);
                left = next;
                continue;
            }
            let rest = rest.strip_prefix(b":").ok_or_else(wrong)?;
            let end = rest.iter().position(|byte| matches!(byte, b':' | b'/'));
            let Some(colon) = end.filter(|end| rest[*end] == b':') else {
                hosts.push(host);
                break rest;
            };
            let word = &rest[..colon];
            let comma = word.iter().position(|byte| *byte == b',');
            let port_of_list = comma.and_then(|comma| Some((comma, parse_port(&word[..comma])?)));
            if let Some((comma, port)) = port_of_list {
                host.port = Some(port);
                hosts.push(host);
                left = &rest[comma + 1..];
                continue;
            }
            let wrong = || ParseError::Port { place: place(), word: shown(word).to_string() };
            host.port = Some(parse_port(word).ok_or_else(wrong)?);
            hosts.push(host);
            break &rest[colon + 1..];
        };
        if hosts.len() > MAX_SERVERS {
            return Err(ParseError::TooMany(place()));
        }
        let known_before =
            |n: usize| hosts[..n].iter().any(|other| other.known_as() == hosts[n].known_as());
        if let Some(n) = (1..hosts.len()).find(|n| known_before(*n)) {
            return Err(ParseError::Twice { place: place(), host: hosts[n].known_as() });
        }
        let path = path.to_vec();
        Ok(Self { hosts, path })
    }
}

/// Splits off the user, if one is given, and the host's name without brackets. What follows begins
/// with a colon, or with a comma if another host follows.
fn split_name(text: &[u8]) -> Option<(Option<String>, &str, &[u8])> {
    let is_end = |byte: &u8| matches!(byte, b'@' | b':' | b'[' | b'/' | b',');
    let before_name = text.iter().position(is_end);
    let (user, text) = match before_name.filter(|at| text[*at] == b'@') {
        Some(at) => (Some(plain(&text[..at])?.to_owned()), &text[at + 1..]),
        None => (None, text),
    };
    let (name, rest) = match text.strip_prefix(b"[") {
        Some(inner) => {
            let end = inner.iter().position(|byte| *byte == b']')?;
            (&inner[..end], &inner[end + 1..])
        }
        None => {
            let end = text.iter().position(|byte| matches!(byte, b':' | b','));
            text.split_at(end.unwrap_or(text.len()))
        }
    };
    Some((user, plain(name)?, rest))
}

/// Reads the name of a user or host. One that could be an option of ssh is refused.
fn plain(name: &[u8]) -> Option<&str> {
    let name = str::from_utf8(name).ok()?;
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '[' | ']' | '@' | '#');
    let is_name = !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain);
    is_name.then_some(name)
}

fn parse_port(text: &[u8]) -> Option<u16> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let port = str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()?;
    (port != 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Option<(String, u16, String)> {
        let place = RemotePath::parse(OsStr::new(text)).ok()?;
        let path = String::from_utf8(place.path).expect("a text");
        Some((place.host.name().to_owned(), place.host.port(), path))
    }

    #[test]
    fn remote_paths_are_parsed_as_by_scp_with_a_port() {
        for (text, name, port, path) in [
            ("host:", "host", DEFAULT_PORT, ""),
            ("Host:/a/b", "Host", DEFAULT_PORT, "/a/b"),
            ("host:77:a", "host", 77, "a"),
            ("host:77:", "host", 77, ""),
            ("host:4860:77:a", "host", 4860, "77:a"),
            ("host:./a:b", "host", DEFAULT_PORT, "./a:b"),
            ("host:/70000:b", "host", DEFAULT_PORT, "/70000:b"),
            ("host:a/b:c", "host", DEFAULT_PORT, "a/b:c"),
            ("192.0.2.1:x", "192.0.2.1", DEFAULT_PORT, "x"),
            ("[2001:db8::1]:x", "2001:db8::1", DEFAULT_PORT, "x"),
            ("[2001:db8::1]:77:x", "2001:db8::1", 77, "x"),
        ] {
            assert_eq!(place(text), Some((name.into(), port, path.into())), "{text}");
        }
        for text in [
            "",
            "host",
            ":a",
            "[::1]a",
            "[::1",
            "a b:c",
            "a/b:c",
            "@host:a",
            "u@:a",
            "-host:a",
            "-u@host:a",
        ] {
            assert_eq!(place(text), None, "{text}");
        }
        for (text, word) in [
            ("host:99999:", "`99999`"),
            ("host:abc:", "`abc`"),
            ("host:abc:x", "`abc`"),
            ("host:0:x", "`0`"),
            ("host::x", "``"),
            ("[::1]:48 60:x", "`48 60`"),
        ] {
            let error = RemotePath::parse(OsStr::new(text)).expect_err(text).to_string();
            assert!(error.contains(word) && error.contains("HOST:./PATH"), "{error}");
        }
        for text in ["10.99.7.e\u{1b}[2Jx:y", "a/\u{1b}[2J"] {
            let place = RemotePath::parse(OsStr::new(text)).expect_err(text).to_string();
            let host = Host::parse(text).expect_err(text).to_string();
            assert!([place, host].iter().all(|told| told.contains("\\u{1b}[2J")), "{text:?}");
        }
        for text in ["user@host:a", "user@[::1]:a", "user@host:77:a"] {
            let host = RemotePath::parse(OsStr::new(text)).expect(text).host;
            assert_eq!(host.user(), Some("user"), "{text}");
            assert_eq!(format!("{host}:a"), text);
        }
        let host = RemotePath::parse(OsStr::new("host:a@b")).expect("a place").host;
        assert_eq!(host.user(), None);
    }

    fn spread(text: &str) -> Result<(Vec<String>, String), ParseError> {
        let SpreadPath { hosts, path } = SpreadPath::parse(OsStr::new(text))?;
        let path = String::from_utf8(path).expect("a text");
        Ok((hosts.iter().map(ToString::to_string).collect(), path))
    }

    #[test]
    fn servers_of_a_store_are_separated_by_commas_and_have_ports_of_their_own() {
        for (text, hosts, path) in [
            ("host:a", &["host"][..], "a"),
            ("a,b,c:photos", &["a", "b", "c"], "photos"),
            ("a:77,b,c:78:/x", &["a:77", "b", "c:78"], "/x"),
            ("a:77,b:", &["a:77", "b"], ""),
            ("a,b:77:", &["a", "b:77"], ""),
            ("[::1]:77,[::2],[::3]:x", &["[::1]:77", "[::2]", "[::3]"], "x"),
            ("[::1],a:x", &["[::1]", "a"], "x"),
            ("u@a,v@b:77:x", &["u@a", "v@b:77"], "x"),
            // commas of a path
            ("a:x,y", &["a"], "x,y"),
            ("a:77:x,y", &["a:77"], "x,y"),
            ("a:77,x", &["a"], "77,x"),
            ("a:77,x/y:z", &["a"], "77,x/y:z"),
            ("a,b:x,y/z:w", &["a", "b"], "x,y/z:w"),
            ("a,b:77:x,y:z", &["a", "b:77"], "x,y:z"),
        ] {
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            assert_eq!(spread(text), Ok((hosts, path.to_owned())), "{text}");
        }
    }

    #[test]
    fn wrong_lists_of_servers_are_refused() {
        for text in ["a,b", "a,", ",a:x", "a,,b:x", "a,:x", "a,b/c:x", "a, b:x", "a,[::1:x"] {
            let error = spread(text).expect_err(text);
            assert!(matches!(error, ParseError::RemotePath(_)), "{text}: {error}");
        }
        for (text, word) in [("a,b:0:x", "`0`"), ("a:x,b:y", "`x,b`"), ("a:77,b:x:y", "`x`")] {
            let error = spread(text).expect_err(text).to_string();
            assert!(error.contains(word) && error.contains("not a port"), "{text}: {error}");
        }
        for text in ["a,b,a:x", "a,A:x", "a:4860,a:x", "[::1],[::1]:4860:x"] {
            let error = spread(text).expect_err(text).to_string();
            assert!(error.contains("twice"), "{text}: {error}");
        }
        assert!(spread("a:77,a:78:x").is_ok(), "two servers of one host");
        let list = |count: usize| {
            let hosts: Vec<_> = (0..count).map(|n| format!("h{n}")).collect();
            format!("{}:x", hosts.join(","))
        };
        assert!(spread(&list(MAX_SERVERS)).is_ok());
        let error = spread(&list(MAX_SERVERS + 1)).expect_err("too many");
        assert!(matches!(error, ParseError::TooMany(_)), "{error}");
        // where there can be one only
        let error = RemotePath::parse(OsStr::new("a,b:x")).expect_err("two servers");
        assert!(matches!(error, ParseError::Several(_)), "{error}");
        assert!(Host::parse("a,b").is_err());
    }

    #[test]
    fn a_colon_before_any_slash_means_a_remote_path() {
        for (text, meant) in
            [("a:b", true), ("[::1]:b", true), ("a", false), ("./a:b", false), ("/a:b", false)]
        {
            assert_eq!(RemotePath::is_meant(OsStr::new(text)), meant, "{text}");
        }
    }

    #[test]
    fn hosts_are_written_as_they_are_read() {
        for text in ["host", "host:77", "host:4860", "[::1]", "[::1]:77", "u@host"] {
            assert_eq!(Host::parse(text).expect(text).to_string(), text);
        }
        for text in ["", "host:", "host:0", "host:77:", "host:x", "[::1]77"] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
        assert_eq!(Host::new("H", DEFAULT_PORT).known_as(), "h");
        assert_eq!(Host::new("::1", 77).known_as(), "[::1]:77");
    }
}
