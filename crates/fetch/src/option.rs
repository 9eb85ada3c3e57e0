//! Options of libcurl that its Rust binding does not wrap.
#![allow(unsafe_code)]

use std::ffi::{CString, c_long};

use curl::easy::Easy2;

/// `CURLOPT_TLS13_CIPHERS` (curl.h: string option 276).
const TLS13_CIPHERS: curl_sys::CURLoption = curl_sys::CURLOPTTYPE_OBJECTPOINT + 276;
/// `CURLOPT_SSL_EC_CURVES` (curl.h: string option 298).
const SSL_EC_CURVES: curl_sys::CURLoption = curl_sys::CURLOPTTYPE_OBJECTPOINT + 298;
/// `CURLFTPAUTH_TLS` (curl.h).
const FTPAUTH_TLS: c_long = 2;

/// FTP must be protected, control and data connection (`CURLUSESSL_ALL`).
pub(crate) fn require_tls<H>(easy: &Easy2<H>) -> Result<(), curl::Error> {
    let all = curl_sys::CURLUSESSL_ALL as c_long;
    // SAFETY: the handle is live while borrowed; this option takes a `long`.
    let code = unsafe { curl_sys::curl_easy_setopt(easy.raw(), curl_sys::CURLOPT_USE_SSL, all) };
    check(code)
}

/// Asks an FTP server for TLS by `AUTH TLS` (RFC 4217 §4) at once; by default libcurl
/// tries `AUTH SSL` first, which servers refuse: a round trip for nothing.
pub(crate) fn auth_tls<H>(easy: &Easy2<H>) -> Result<(), curl::Error> {
    let option = curl_sys::CURLOPT_FTPSSLAUTH;
    // SAFETY: the handle is live while borrowed; this option takes a `long`.
    let code = unsafe { curl_sys::curl_easy_setopt(easy.raw(), option, FTPAUTH_TLS) };
    check(code)
}

/// Offers these TLS 1.3 cipher suites, in OpenSSL's notation.
pub(crate) fn tls13_ciphers<H>(easy: &Easy2<H>, list: &str) -> Result<(), curl::Error> {
    set_text(easy, TLS13_CIPHERS, list)
}

/// Offers these key exchange groups, in OpenSSL's notation; a ClientHello brings a key
/// share of the first.
pub(crate) fn groups<H>(easy: &Easy2<H>, list: &str) -> Result<(), curl::Error> {
    set_text(easy, SSL_EC_CURVES, list)
}

/// Sets an option that is one of the two above: a text that libcurl copies.
fn set_text<H>(
    easy: &Easy2<H>,
    option: curl_sys::CURLoption,
    text: &str,
) -> Result<(), curl::Error> {
    let text =
        CString::new(text).map_err(|_| curl::Error::new(curl_sys::CURLE_BAD_FUNCTION_ARGUMENT))?;
    // SAFETY: the handle is live while borrowed; the callers' options take a
    // NUL-terminated string, which libcurl copies before it returns.
    let code = unsafe { curl_sys::curl_easy_setopt(easy.raw(), option, text.as_ptr()) };
    check(code)
}

fn check(code: curl_sys::CURLcode) -> Result<(), curl::Error> {
    if code == curl_sys::CURLE_OK { Ok(()) } else { Err(curl::Error::new(code)) }
}
