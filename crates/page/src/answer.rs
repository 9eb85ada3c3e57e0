//! Answers of the HTTPS server, and which requests it answers at all.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::Shared;

/// The answer to a request.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Returns the name that the client asked for, if it is one of this server and no page of another
/// origin asks.
pub(crate) fn allowed_host<'h>(
    shared: &Shared,
    headers: &'h HeaderMap,
) -> Result<&'h str, StatusCode> {
    let (_, names) = shared.certificate();
    let text = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| StatusCode::BAD_REQUEST),
            _ => Err(StatusCode::BAD_REQUEST),
        }
    };
    let host = text(header::HOST)?.ok_or(StatusCode::BAD_REQUEST)?;
    if !names.admits(host) {
        return Err(StatusCode::MISDIRECTED_REQUEST);
    }
    match text(header::ORIGIN)? {
        Some(origin) if !names.admits_origin(host, origin) => Err(StatusCode::FORBIDDEN),
        _ => Ok(host),
    }
}

/// Answers, and ends the connection.
pub(crate) fn closing(status: StatusCode, host: &str) -> Answer {
    let mut answer = empty(status, host);
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

pub(crate) fn empty(status: StatusCode, host: &str) -> Answer {
    with_body(status, host, Bytes::new())
}

/// Makes an answer with the headers of all of them. `host` was checked, and has no character that
/// means something in a policy.
pub(crate) fn with_body(status: StatusCode, host: &str, body: Bytes) -> Answer {
    let sockets = if host.is_empty() { String::new() } else { format!(" wss://{host}") };
    let policy = format!(
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
         img-src 'self' blob:; connect-src 'self'{sockets}; worker-src 'self'; form-action 'none'; \
         frame-ancestors 'none'; base-uri 'none'"
    );
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    secure(answer.headers_mut(), &policy);
    answer
}

/// Sets a content security policy, and what keeps other origins away from an answer.
pub fn secure(headers: &mut HeaderMap, policy: &str) {
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}
