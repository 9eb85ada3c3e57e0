//! The names by which browsers may reach the page.
//!
//! A page of somebody else whose name suddenly resolves to this server's address (DNS rebinding)
//! has the same origin as the server in the eyes of its browser. It gives itself away by the name
//! that it asks for. Addresses cannot be rebound.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The names of this server, without port and in lower case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// Takes names as people write them. `*.` at the beginning stands for one label.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<_> = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        names.sort();
        names.dedup();
        Self(names)
    }

    /// Whether this is an authority (a host and perhaps a port) of this server: an address,
    /// `localhost`, or one of the names.
    pub(crate) fn admits(&self, authority: &str) -> bool {
        let Some(host) = host(authority) else { return false };
        if host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok() {
            return true;
        }
        let host = host.to_ascii_lowercase();
        host == "localhost" || self.0.iter().any(|name| matches(name, &host))
    }

    /// Whether a page of this origin is one of this server, under the same name.
    pub(crate) fn admits_origin(&self, authority: &str, origin: &str) -> bool {
        let same = origin
            .strip_prefix("https://")
            .is_some_and(|of| without_default(of).eq_ignore_ascii_case(without_default(authority)));
        same && self.admits(authority)
    }
}

fn without_default(authority: &str) -> &str {
    authority.strip_suffix(":443").unwrap_or(authority)
}

fn matches(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(rest) => {
            host.split_once('.').is_some_and(|(label, of)| !label.is_empty() && of == rest)
        }
        None => name == host,
    }
}

/// Returns the host of an authority, if that is well-formed: nothing but letters, digits, dots,
/// hyphens and underscores, or an IPv6 address in brackets; then perhaps a port.
fn host(authority: &str) -> Option<&str> {
    let (host, port) = match authority.rfind(']') {
        Some(end) => {
            let (host, rest) = authority.split_at(end + 1);
            let address = host.strip_prefix('[')?.strip_suffix(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            match rest {
                "" => (host, None),
                rest => (host, Some(rest.strip_prefix(':')?)),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_name = |host: &str| {
        !host.is_empty()
            && host.len() <= 253
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    let is_port = port.is_none_or(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
    });
    (is_port && (host.starts_with('[') || is_name(host))).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_own_names_are_admitted() {
        let names = Names::new(["Files.example.org".to_owned(), "*.lan".to_owned()]);
        for own in [
            "127.0.0.1:4861",
            "192.0.2.7",
            "[::1]:4861",
            "[2001:db8::1]",
            "localhost:4861",
            "files.EXAMPLE.org",
            "nas.lan:1",
        ] {
            assert!(names.admits(own), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:4861",
            "files.example.org.evil.example",
            "a.b.lan",
            ".lan",
            "127.0.0.1.evil.example",
            "127.0.0.1:4861:1",
            "127.0.0.1:",
            "127.0.0.1:99999",
            "[::1",
            "[evil]",
            "::1",
            "user@127.0.0.1",
            "localhost/",
            "",
        ] {
            assert!(!names.admits(foreign), "{foreign}");
        }
    }

    #[test]
    fn an_origin_must_be_the_name_that_was_asked_for() {
        let names = Names::new(["files.example.org".to_owned()]);
        let own = "files.example.org:4861";
        assert!(names.admits_origin(own, "https://files.example.org:4861"));
        assert!(names.admits_origin("files.example.org:443", "https://files.example.org"));
        for foreign in [
            "http://files.example.org:4861",
            "https://files.example.org",
            "https://files.example.org:4862",
            "https://evil.example",
            "https://127.0.0.1:4861",
            "null",
            "",
        ] {
            assert!(!names.admits_origin(own, foreign), "{foreign}");
        }
        assert!(!names.admits_origin("evil.example", "https://evil.example"), "rebound");
    }
}
