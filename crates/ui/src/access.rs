//! Who may use the API: the page that has the token, under the name of this machine.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use data_encoding::BASE64URL_NOPAD;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName};
use serde_json::{Value, json};

use crate::error::Error;

const TOKEN_BYTES: usize = 32;

/// The secret of one start of the command.
pub(crate) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    pub(crate) fn random() -> Result<Self, Error> {
        let mut bytes = [0; TOKEN_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::Random)?;
        Ok(Self(BASE64URL_NOPAD.encode(&bytes)))
    }

    /// Returns the secret, which only the address for the browser shows.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// Compares in a time that depends on nothing of the token.
    pub(crate) fn is(&self, shown: &str) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), shown.as_bytes()).is_ok()
    }

    /// Whether the header `Authorization: Bearer TOKEN` shows it.
    pub(crate) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        value
            .to_str()
            .ok()
            .and_then(|text| text.strip_prefix("Bearer "))
            .is_some_and(|it| self.is(it))
    }
}

/// What was refused since the start.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) hosts: AtomicU64,
    pub(crate) origins: AtomicU64,
    pub(crate) tokens: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) too_large: AtomicU64,
}

impl Refusals {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn json(&self) -> Value {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "foreign_host": of(&self.hosts), "foreign_origin": of(&self.origins), "wrong_token": of(&self.tokens),
            "too_many_connections": of(&self.connections), "too_large": of(&self.too_large),
        })
    }
}

/// Returns the authority that the client asked for, if it is this machine's and no page of another
/// origin asks. A page whose name suddenly resolves to 127.0.0.1 (DNS rebinding) asks for that
/// name.
pub(crate) fn allowed_host<'h>(
    address: SocketAddr,
    headers: &'h HeaderMap,
    refusals: &Refusals,
) -> Result<&'h str, StatusCode> {
    let text = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| StatusCode::BAD_REQUEST),
            _ => Err(StatusCode::BAD_REQUEST),
        }
    };
    let host = text(header::HOST)?.ok_or(StatusCode::BAD_REQUEST)?;
    let local = format!("localhost:{}", address.port());
    if host != address.to_string() && !host.eq_ignore_ascii_case(&local) {
        Refusals::count(&refusals.hosts);
        return Err(StatusCode::MISDIRECTED_REQUEST);
    }
    let is_own = |origin: &str| {
        origin.strip_prefix("http://").is_some_and(|of| of.eq_ignore_ascii_case(host))
    };
    let site = text(HeaderName::from_static("sec-fetch-site"))?;
    let is_foreign = text(header::ORIGIN)?.is_some_and(|origin| !is_own(origin))
        || site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
    if is_foreign && !is_navigation(headers) {
        Refusals::count(&refusals.origins);
        return Err(StatusCode::FORBIDDEN);
    }
    Ok(host)
}

/// Whether a browser shows the page itself, to which any page or file may lead. Such a request has
/// no token and no origin.
fn is_navigation(headers: &HeaderMap) -> bool {
    let is = |name, value: &str| headers.get(name).is_some_and(|it| it == value);
    is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document")
        && !headers.contains_key(header::ORIGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        of.iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn only_this_machine_and_its_own_page_are_admitted() {
        let address: SocketAddr = "127.0.0.1:4000".parse().expect("an address");
        let refusals = Refusals::default();
        let ask = |of: &[(&'static str, &'static str)]| {
            allowed_host(address, &headers(of), &refusals).map(str::to_owned)
        };
        for host in ["127.0.0.1:4000", "localhost:4000", "LOCALHOST:4000"] {
            assert_eq!(ask(&[("host", host)]), Ok(host.to_owned()));
        }
        for host in [
            "127.0.0.1",
            "127.0.0.1:4001",
            "evil.example:4000",
            "localhost",
            "127.0.0.1:4000.evil.example",
            "[::1]:4000",
            "0.0.0.0:4000",
            "",
        ] {
            assert_eq!(ask(&[("host", host)]), Err(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        assert_eq!(ask(&[]), Err(StatusCode::BAD_REQUEST));
        let own = ("host", "127.0.0.1:4000");
        assert!(
            ask(&[own, ("origin", "http://127.0.0.1:4000"), ("sec-fetch-site", "same-origin")])
                .is_ok()
        );
        for origin in [
            "null",
            "http://localhost:4000",
            "https://127.0.0.1:4000",
            "http://evil.example",
            "http://127.0.0.1:4001",
        ] {
            assert_eq!(ask(&[own, ("origin", origin)]), Err(StatusCode::FORBIDDEN), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(ask(&[own, ("sec-fetch-site", site)]), Err(StatusCode::FORBIDDEN), "{site}");
        }
        let link = [
            own,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(ask(&link).is_ok(), "a link or a file may lead to the page");
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token::random().expect("a token");
        let secret = token.secret().to_owned();
        assert_eq!(secret.len(), 43);
        let shown = |value: String| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().expect("a value"));
            token.is_shown(&headers)
        };
        assert!(shown(format!("Bearer {secret}")));
        for wrong in [
            String::new(),
            "Bearer ".into(),
            secret.clone(),
            format!("Basic {secret}"),
            format!("Bearer {secret}A"),
            format!("Bearer {}", &secret[1..]),
            format!("Bearer {secret} "),
        ] {
            assert!(!shown(wrong.clone()), "{wrong}");
        }
        assert!(!token.is_shown(&HeaderMap::new()));
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
