//! Exit codes, and mistakes in what was typed.

use headroom_transfer::Error;

/// A wrong word on the command line.
#[derive(Debug)]
pub(crate) struct Usage(pub(super) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Returns the exit code of an error of these commands.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    let usage = error.downcast_ref::<Usage>().map(|_| 2);
    #[cfg(feature = "fleet")]
    let usage = usage.or_else(|| error.downcast_ref().map(of_fleet));
    usage.or_else(|| error.downcast_ref().map(of_transfer))
}

/// Returns the exit code of a transfer that failed as a whole.
const fn of_transfer(error: &Error) -> u8 {
    match error {
        Error::Trust(_) | Error::Usage(_) => 2,
        Error::Unreachable { .. }
        | Error::Lost(_)
        | Error::Superseded
        | Error::Interrupted(_)
        | Error::Protocol(_) => 3,
        Error::UnknownHost { .. } | Error::ChangedHost { .. } | Error::NotTrusted { .. } => 4,
        Error::Refused(_) | Error::Denied { .. } => 5,
        Error::Identity(_) | Error::Files(_) | Error::OnServer { .. } | Error::System { .. } => 1,
    }
}

/// Returns the exit code of a fleet that failed as a whole.
#[cfg(feature = "fleet")]
const fn of_fleet(error: &headroom_fleet::Error) -> u8 {
    use headroom_fleet::Error;
    match error {
        Error::Transfer(error) => of_transfer(error),
        Error::Nats { .. } => 3,
        Error::Job { .. }
        | Error::NoJob(_)
        | Error::State { .. }
        | Error::OtherJob { .. }
        | Error::Busy(_)
        | Error::Cancelled => 2,
        Error::System { .. }
        | Error::Full(_)
        | Error::DestinationFull(_)
        | Error::Database { .. } => 1,
    }
}

/// The exit code of a program that was interrupted.
pub(super) const INTERRUPTED: i32 = 130;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use headroom_transfer::PublicKey;

    use super::*;

    #[test]
    fn errors_and_their_exit_codes() {
        let (host, key) = ("backup".to_owned(), PublicKey::from([7; 32]));
        let cause = || "nothing arrived for too long".to_owned();
        let errors = [
            Error::UnknownHost { host: host.clone(), key },
            Error::ChangedHost {
                host: host.clone(),
                shown: Some(key),
                path: "known_hosts".into(),
                line: 3,
            },
            Error::NotTrusted { host: host.clone(), cause: "its certificate expired".to_owned() },
            Error::Unreachable { host, cause: cause() },
            Error::Lost(cause()),
            Error::Superseded,
            Error::Interrupted(cause()),
            Error::Protocol("it sends Stored, which is not allowed here".to_owned()),
            Error::Refused("this identity may only read".to_owned()),
            Error::OnServer {
                reason: "a cannot be read: there is no such file or directory".to_owned(),
                code: None,
            },
        ];
        let mut text = String::new();
        for error in errors {
            let _ = writeln!(text, "{}: {error}", of_transfer(&error));
        }
        insta::assert_snapshot!(text);
    }
}
