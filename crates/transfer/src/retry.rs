//! Reconnects and resumes when a connection is lost.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::Error;

/// The first pause before reconnecting; each is twice as long as the one before, up to
/// [`MAX_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(30);
/// After a connection that lasted this long, pauses start from the first again.
pub(crate) const GOOD: Duration = Duration::from_secs(30);

/// How long to try to reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Not at all.
    Never,
    /// For this long after it was lost.
    For(Duration),
    /// Until the program is stopped.
    Forever,
}

impl Retry {
    /// Whether to try again after so long.
    pub(crate) const fn goes_on(self, elapsed: Duration) -> bool {
        match self {
            Self::Never => false,
            Self::For(limit) => elapsed.as_nanos() < limit.as_nanos(),
            Self::Forever => true,
        }
    }
}

/// Connects and transfers. When the connection is lost, calls `lost`, and does both again after
/// a pause, as long as `retry` allows it: what has arrived is not sent again. Neither the first
/// connection attempt nor a refusal is retried, but for that of a server that is full or stops.
///
/// # Errors
/// Those of `connect` and `transfer`; the last one if `retry` gives up.
pub async fn with_retries<T>(
    retry: Retry,
    mut lost: impl FnMut(&Error),
    mut connect: impl AsyncFnMut() -> Result<Client, Error>,
    mut transfer: impl AsyncFnMut(Client) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut client = connect().await?;
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        let error = match transfer(client).await {
            Err(error @ Error::Lost(_)) if retry != Retry::Never => error,
            ended => return ended,
        };
        if begun.elapsed() >= GOOD {
            pause = FIRST_PAUSE;
        }
        lost(&error);
        let since = Instant::now();
        client = loop {
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(MAX_PAUSE);
            match connect().await {
                Ok(client) => break client,
                Err(error) if error.is_temporary() && retry.goes_on(since.elapsed()) => {}
                Err(error) => return Err(error),
            }
        };
    }
}

/// Returns three quarters of a pause to all of it, so that clients that lost a server together
/// do not return together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let mut random = [0];
    // without randomness the whole pause
    let _ = aws_lc_rs::rand::fill(&mut random);
    pause - pause * u32::from(random[0]) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_within_their_bounds() {
        for _ in 0..1000 {
            let pause = jittered(MAX_PAUSE);
            assert!((MAX_PAUSE * 3 / 4..=MAX_PAUSE).contains(&pause), "{pause:?}");
        }
    }

    #[test]
    fn a_server_that_is_full_or_stops_is_asked_again_and_one_that_refuses_is_not() {
        let closed = |code: crate::error::Closing| {
            let (error_code, reason) = (code.into(), bytes::Bytes::new());
            let close = quinn::ApplicationClose { error_code, reason };
            Error::from(quinn::ConnectionError::ApplicationClosed(close))
        };
        use crate::error::Closing::{Changed, Full, Leaving, Refused, Rules, Superseded};
        assert!([Full, Leaving].map(closed).iter().all(Error::is_temporary));
        assert!(![Changed, Refused, Rules, Superseded].map(closed).iter().any(Error::is_temporary));
    }

    #[test]
    fn retries_end_at_their_limit() {
        let second = Duration::from_secs(1);
        assert!(!Retry::Never.goes_on(Duration::ZERO));
        assert!(Retry::For(2 * second).goes_on(second));
        assert!(!Retry::For(second).goes_on(second));
        assert!(Retry::Forever.goes_on(1_000_000 * second));
    }
}
