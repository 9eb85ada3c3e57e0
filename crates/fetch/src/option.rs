//! Two options of libcurl that its Rust binding does not wrap.
#![allow(unsafe_code)]

use std::ffi::{CString, c_long};

use curl::easy::Easy2;

/// `CURLOPT_TLS13_CIPHERS` (curl.h: string option 276).
const TLS13_CIPHERS: curl_sys::CURLoption = curl_sys::CURLOPTTYPE_OBJECTPOINT + 276;

/// FTP must be protected, control and data connection (`CURLUSESSL_ALL`).
pub(crate) fn require_tls<H>(easy: &Easy2<H>) -> Result<(), curl::Error> {
    let all = curl_sys::CURLUSESSL_ALL as c_long;
    // SAFETY: the handle is live while borrowed; this option takes a `long`.
    let code = unsafe { curl_sys::curl_easy_setopt(easy.raw(), curl_sys::CURLOPT_USE_SSL, all) };
    check(code)
}

/// The TLS 1.3 cipher suites to offer, in OpenSSL's notation.
pub(crate) fn tls13_ciphers<H>(easy: &Easy2<H>, list: &str) -> Result<(), curl::Error> {
    let list =
        CString::new(list).map_err(|_| curl::Error::new(curl_sys::CURLE_BAD_FUNCTION_ARGUMENT))?;
    // SAFETY: the handle is live while borrowed; this option takes a
    // NUL-terminated string, which libcurl copies before it returns.
    let code = unsafe { curl_sys::curl_easy_setopt(easy.raw(), TLS13_CIPHERS, list.as_ptr()) };
    check(code)
}

fn check(code: curl_sys::CURLcode) -> Result<(), curl::Error> {
    if code == curl_sys::CURLE_OK { Ok(()) } else { Err(curl::Error::new(code)) }
}
