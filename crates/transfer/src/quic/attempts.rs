//! Attempts at the addresses of a host, each with a head start over the next (RFC 8305).

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::error::Error;

/// How long an address is tried alone before the next one is tried, too: the Connection Attempt
/// Delay of RFC 8305, section 5.
const HEAD_START: Duration = Duration::from_millis(250);

/// Alternates between IPv6 and IPv4, in the order of each, beginning with the first address (RFC
/// 8305, section 4): a host whose IPv6 does not work costs one head start, however many addresses
/// it has.
pub(super) fn alternating(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(is_ipv6) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let mut all = Vec::with_capacity(addresses.len());
    let of_first = |address: &SocketAddr| address.is_ipv6() == is_ipv6;
    let (first, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(of_first);
    let mut other = other.into_iter();
    for address in first {
        all.push(address);
        all.extend(other.next());
    }
    all.extend(other);
    all
}

/// Moves the address at which a connection was lost behind all others: where a name has several
/// servers, another one may be there.
pub(crate) fn with_last(
    mut addresses: Vec<SocketAddr>,
    lost: Option<SocketAddr>,
) -> Vec<SocketAddr> {
    if let Some(lost) = lost
        && let Some(at) = addresses.iter().position(|address| *address == lost)
    {
        addresses[at..].rotate_left(1);
    }
    addresses
}

/// Attempts all addresses in order until one succeeds. The next attempt begins when one has failed,
/// or after a head start. Attempts that are still under way when one succeeds are dropped.
///
/// # Errors
/// If all fail, the error of the one that failed last. No attempt begins after an error that says
/// something about the host, such as a key that is not trusted, and that error takes precedence;
/// attempts under way may still succeed. `none` is the error without addresses.
pub(super) async fn first_success<T, F>(
    addresses: Vec<SocketAddr>,
    none: Error,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let mut waiting = addresses.into_iter();
    let mut running: JoinSet<Result<T, Error>> = JoinSet::new();
    let (mut due, mut failure, mut is_final) = (Instant::now(), none, false);
    loop {
        let is_more = !is_final && !waiting.as_slice().is_empty();
        tokio::select! {
            Some(ended) = running.join_next() => {
                match ended.map_err(|error| Error::task(&error)).flatten() {
                    Ok(found) => return Ok(found),
                    Err(_) if is_final => {}
                    Err(error) => {
                        is_final = is_about_host(&error);
                        failure = error;
                    }
                }
                due = Instant::now();
            }
            () = sleep_until(due), if is_more => {
                if let Some(address) = waiting.next() {
                    running.spawn(attempt(address));
                }
                due = Instant::now() + HEAD_START;
            }
            else => return Err(failure),
        }
    }
}

/// Whether an error is about the host and not about one of its addresses.
fn is_about_host(error: &Error) -> bool {
    !error.is_temporary() && !matches!(error, Error::System { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn none() -> Error {
        Error::Lost("no address".to_owned())
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
        })
    }

    #[test]
    fn families_alternate_beginning_with_that_of_the_first_address() {
        let mixed = ["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "192.0.2.1:1"];
        let expected = ["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "[2001:db8::3]:1"];
        assert_eq!(alternating(addresses(&mixed)), addresses(&expected));
        let mixed = ["192.0.2.1:1", "[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.2:1"];
        let expected = ["192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1", "[2001:db8::2]:1"];
        assert_eq!(alternating(addresses(&mixed)), addresses(&expected));
        assert!(alternating(Vec::new()).is_empty());
    }

    #[test]
    fn the_address_of_a_lost_connection_comes_last() {
        let all = addresses(&["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"]);
        let expected = addresses(&["192.0.2.1:1", "192.0.2.3:1", "192.0.2.2:1"]);
        assert_eq!(with_last(all.clone(), Some(all[1])), expected);
        assert_eq!(with_last(all.clone(), None), all);
        // one that the name no longer has
        assert_eq!(with_last(all.clone(), addresses(&["192.0.2.9:1"]).pop()), all);
    }

    /// The first address never answers, which costs a head start.
    #[test]
    fn a_silent_address_delays_the_next_one_and_does_not_keep_it_out() {
        let all = addresses(&["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"]);
        let (first, second) = (all[0], all[1]);
        let found = run(first_success(all, none(), |address| async move {
            match address {
                silent if silent == first => std::future::pending().await,
                address => Ok(address),
            }
        }));
        assert_eq!(found.expect("the second answers"), second);
    }

    #[test]
    fn all_addresses_are_tried_in_order_before_it_fails() {
        let all = addresses(&["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"]);
        let tried = Mutex::new(Vec::new());
        let failed = run(first_success(all.clone(), none(), |address| {
            tried.lock().expect("nobody panicked").push(address);
            async move { Err::<(), _>(Error::Lost(address.to_string())) }
        }));
        assert_eq!(tried.into_inner().expect("nobody panicked"), all);
        let error = failed.expect_err("none answers").to_string();
        assert!(error.contains("192.0.2.3:1"), "{error}");
        let failed = run(first_success(Vec::new(), none(), |_| async { Ok(()) }));
        assert!(failed.expect_err("there is none").to_string().contains("no address"));
    }

    #[test]
    fn a_host_that_is_not_trusted_at_one_address_is_not_tried_at_the_next() {
        let all = addresses(&["192.0.2.1:1", "192.0.2.2:1"]);
        let tried = Mutex::new(0);
        let failed = run(first_success(all, none(), |_| {
            *tried.lock().expect("nobody panicked") += 1;
            async { Err::<(), _>(Error::Usage("not trusted".to_owned())) }
        }));
        assert!(matches!(failed, Err(Error::Usage(_))));
        assert_eq!(tried.into_inner().expect("nobody panicked"), 1);
    }
}
