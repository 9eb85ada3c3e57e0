//! What an error of `object_store` means, in words that repeat no URL, no body and no credential.

use std::error::Error as StdError;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

use super::exchange::{Reply, root_cause};
use crate::address::Service;
use crate::backend::{Failure, FailureKind};

/// Characters of what is passed on of a cause, at most.
const LONGEST: usize = 200;

/// Explains an error by its variant and by what came back.
pub(super) fn of(service: Service, error: &Error, reply: Option<&Reply>) -> Failure {
    let code = code(&error.to_string());
    let kind = kind(service, error, reply, code.as_deref());
    let mut text = match reply {
        Some(Reply::Status(status, host)) if !(200..300).contains(status) => {
            format!("HTTP {status} from {}", plain(host))
        }
        Some(Reply::Status(_, host)) => {
            format!("{}, from {}", plain(&root_cause(error)), plain(host))
        }
        Some(Reply::Broken(cause, host)) => format!("{}, of {}", plain(cause), plain(host)),
        None => plain(&root_cause(error)),
    };
    if let Some(code) = &code {
        text = format!("{text}: {code}");
    }
    let is_elsewhere = matches!(reply, Some(Reply::Status(301 | 307 | 308, _)))
        || code.as_deref() == Some("AuthorizationHeaderMalformed");
    if is_elsewhere && service == Service::S3 {
        text.push_str("; AWS_REGION has to be the region of the bucket");
    }
    if code.as_deref() == Some("RequestTimeTooSkewed") {
        text.push_str("; the clock of this machine differs from that of the store by many minutes");
    }
    Failure::new(kind, text)
}

fn kind(service: Service, error: &Error, reply: Option<&Reply>, code: Option<&str>) -> FailureKind {
    match code {
        Some("SlowDown" | "TooManyRequests" | "ServerBusy" | "ThrottlingException") => {
            return FailureKind::Slow;
        }
        Some("RequestTimeout" | "InternalError" | "OperationAborted") => {
            return FailureKind::Passing;
        }
        // some of them with 400
        Some(
            "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "AuthorizationHeaderMalformed",
        ) => return FailureKind::Refused,
        // a write in place of a version of which there is none any more: S3 says 404, others 412
        Some("NoSuchKey") if matches!(error, Error::Precondition { .. }) => {
            return FailureKind::Changed;
        }
        // listings and completions have no variant for it
        Some(
            "NoSuchBucket" | "NoSuchKey" | "NoSuchUpload" | "ContainerNotFound" | "BlobNotFound",
        ) => {
            return FailureKind::NotFound;
        }
        _ => {}
    }
    let status = match reply {
        Some(Reply::Status(status, _)) => Some(*status),
        _ => None,
    };
    match error {
        Error::NotFound { .. } => FailureKind::NotFound,
        Error::Precondition { .. } | Error::NotModified { .. } => FailureKind::Changed,
        // S3 says 409 when another conditional write is in flight, Azure when the blob is there
        Error::AlreadyExists { .. } if status == Some(409) && service == Service::S3 => {
            FailureKind::Conflict
        }
        Error::AlreadyExists { .. } => FailureKind::Changed,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => FailureKind::Refused,
        Error::NotSupported { .. } | Error::NotImplemented { .. } => FailureKind::Unsupported,
        Error::InvalidPath { .. } => FailureKind::Invalid,
        _ => match reply {
            Some(Reply::Status(status, _)) => by_status(*status, error),
            Some(Reply::Broken(..)) => FailureKind::Passing,
            // nothing was sent: credentials are missing, or cannot be read
            None => FailureKind::Refused,
        },
    }
}

fn by_status(status: u16, error: &Error) -> FailureKind {
    match status {
        // the answer broke off, or is longer than it may be, or cannot be read
        200..=299 if is_too_long(error) => FailureKind::Invalid,
        200..=299 => FailureKind::Passing,
        401 | 403 => FailureKind::Refused,
        // of what gives credentials: objects have a variant
        404 => FailureKind::Refused,
        408 => FailureKind::Passing,
        409 => FailureKind::Conflict,
        412 | 416 => FailureKind::Changed,
        429 | 503 => FailureKind::Slow,
        501 => FailureKind::Unsupported,
        500..=599 => FailureKind::Passing,
        _ => FailureKind::Invalid,
    }
}

fn is_too_long(error: &Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<HttpError>()
            .is_some_and(|error| error.kind() == HttpErrorKind::Decode)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The code of an answer that says what is wrong: `<Code>AccessDenied</Code>`.
fn code(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = (1..=64).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric());
    is_code.then(|| code.to_owned())
}

/// A cause without control characters, in one line, unless it could have a secret in it.
pub(super) fn plain(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    // the key of an access is a name, but who sees it need not be whom it is for
    let is_secret = ["://", "signature", "token", "secret", "password", "credential=", "sig="]
        .iter()
        .any(|word| lower.contains(word));
    if is_secret {
        return "an answer or a setting that is not repeated here, for it may have a credential in it"
            .to_owned();
    }
    let short: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    short.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    fn status(status: u16) -> Reply {
        Reply::Status(status, "s3.example".to_owned())
    }

    #[test]
    fn statuses_say_what_to_do() {
        for (number, kind) in [
            (400, FailureKind::Invalid),
            (403, FailureKind::Refused),
            (408, FailureKind::Passing),
            (409, FailureKind::Conflict),
            (416, FailureKind::Changed),
            (429, FailureKind::Slow),
            (500, FailureKind::Passing),
            (501, FailureKind::Unsupported),
            (503, FailureKind::Slow),
        ] {
            let failure = of(Service::S3, &generic("x"), Some(&status(number)));
            assert_eq!(failure.kind, kind, "{number}");
            assert_eq!(failure.text, format!("HTTP {number} from s3.example"));
        }
    }

    #[test]
    fn codes_are_passed_on_and_nothing_else_of_the_body() {
        let body = "PUT https://b/k?sig=SECRET - <Error><Code>SignatureDoesNotMatch</Code><StringToSign>SECRET</StringToSign></Error>";
        let failure = of(Service::S3, &generic(body), Some(&status(403)));
        assert_eq!(failure.text, "HTTP 403 from s3.example: SignatureDoesNotMatch");
        let gone = generic("<Code>NoSuchUpload</Code>");
        assert_eq!(of(Service::Gcs, &gone, Some(&status(404))).kind, FailureKind::NotFound);
        let slow = generic("<Code>SlowDown</Code>");
        assert_eq!(of(Service::S3, &slow, Some(&status(200))).kind, FailureKind::Slow);
        let expired = generic("<Code>ExpiredToken</Code>");
        assert_eq!(of(Service::S3, &expired, Some(&status(400))).kind, FailureKind::Refused);
        let long = format!("<Code>{}</Code>", "x".repeat(65));
        assert_eq!(code(&long), None);
        assert_eq!(code("<Code>a b</Code>"), None);
    }

    #[test]
    fn a_version_that_is_gone_has_changed() {
        let of_code = |code: &str| {
            let source = format!("<Error><Code>{code}</Code></Error>").into();
            let error = Error::Precondition { path: "k".to_owned(), source };
            of(Service::S3, &error, Some(&status(404))).kind
        };
        assert_eq!(of_code("NoSuchKey"), FailureKind::Changed);
        assert_eq!(of_code("NoSuchBucket"), FailureKind::NotFound);
    }

    #[test]
    fn a_wrong_clock_is_named() {
        let skewed = generic("<Code>RequestTimeTooSkewed</Code>");
        let failure = of(Service::S3, &skewed, Some(&status(403)));
        assert_eq!(failure.kind, FailureKind::Refused);
        assert!(failure.text.contains("the clock of this machine"), "{}", failure.text);
    }

    #[test]
    fn causes_with_secrets_are_not_repeated() {
        for secret in ["https://u:hush@b", "Token hush", "sig=hush", "SECRET hush"] {
            for reply in
                [None, Some(status(200)), Some(Reply::Broken(secret.to_owned(), "h".to_owned()))]
            {
                let failure = of(Service::Azure, &generic(secret), reply.as_ref());
                assert!(!failure.text.contains("hush"), "{}", failure.text);
            }
        }
        assert_eq!(plain("a\r\nb"), "a  b");
        assert_eq!(plain(&"ü".repeat(300)).chars().count(), LONGEST);
    }

    #[test]
    fn a_conflict_of_azure_is_a_blob_that_is_there() {
        let there = || Error::AlreadyExists { path: "k".to_owned(), source: "x".into() };
        let failure = of(Service::Azure, &there(), Some(&status(409)));
        assert_eq!(failure.kind, FailureKind::Changed);
        let failure = of(Service::S3, &there(), Some(&status(409)));
        assert_eq!(failure.kind, FailureKind::Conflict);
    }
}
