//! Fetches packages from an archive of Debian over HTTP; their SHA-256 says whether they are the
//! pinned ones.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use curl::easy::Easy;
use data_encoding::HEXLOWER;
use headroom_mutex::lock;

use crate::error::{Error, Result};
use crate::lock::Package;

/// At the same time, each for many packages.
const CONNECTIONS: usize = 8;
/// Ahead of each further attempt.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// For one attempt: an archive that sends nothing for so long is out of reach.
const SILENCE: Duration = Duration::from_secs(30);

/// Hears of bytes that have arrived.
pub type Progress<'a> = dyn Fn(u64) + Sync + 'a;

/// Fetches packages and gives each to `take`, on several threads, in any order.
///
/// # Errors
/// The first of a package that cannot be had, or of `take`; the others are left then.
pub(crate) fn fetch(
    archive: &str,
    packages: &[Package<'_>],
    progress: &Progress<'_>,
    take: &(dyn Fn(&Package<'_>, &[u8]) -> Result<()> + Sync),
) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (arrived, failure) = (Mutex::new(0), Mutex::new(None));
    let fetch_some = || {
        let mut client = Easy::new();
        while !failed.load(Ordering::Relaxed)
            && let Some(package) = packages.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let got = fetch_patiently(&mut client, archive, package);
            if let Err(error) = got.and_then(|content| take(package, &content)) {
                failed.store(true, Ordering::Relaxed);
                lock(&failure).get_or_insert(error);
                return;
            }
            let mut arrived = lock(&arrived);
            *arrived += package.bytes;
            progress(*arrived);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS.min(packages.len()) {
            scope.spawn(fetch_some);
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Asks again where the archive was out of reach for a moment.
fn fetch_patiently(client: &mut Easy, archive: &str, package: &Package<'_>) -> Result<Vec<u8>> {
    for pause in PAUSES {
        match fetch_one(client, archive, package) {
            Err(Error::Unreachable { .. }) => std::thread::sleep(pause),
            got => return got,
        }
    }
    fetch_one(client, archive, package)
}

fn fetch_one(client: &mut Easy, archive: &str, package: &Package<'_>) -> Result<Vec<u8>> {
    let url = format!("{}/{}", archive.trim_end_matches('/'), package.place.replace('+', "%2B"));
    let mut content = Vec::new();
    let got = get(client, &url, package.bytes, &mut content);
    if let Err(cause) =
        got.or_else(|error| if error.is_write_error() { Ok(()) } else { Err(error) })
    {
        return Err(Error::Unreachable { url, why: cause.to_string() });
    }
    match client.response_code() {
        Ok(200) => {}
        Ok(404 | 410) => return Err(Error::Gone { url }),
        code => {
            let why = code.map_or_else(|error| error.to_string(), |code| format!("status {code}"));
            return Err(Error::Unreachable { url, why });
        }
    }
    let found = HEXLOWER.encode(digest(&SHA256, &content).as_ref());
    if found != package.sha256 {
        return Err(Error::Foreign { url, found });
    }
    Ok(content)
}

/// Reads what a URL has. It ends with a write error when there is more than expected: enough to
/// see that it is something else.
fn get(
    client: &mut Easy,
    url: &str,
    expected: u64,
    content: &mut Vec<u8>,
) -> std::result::Result<(), curl::Error> {
    client.url(url)?;
    client.follow_location(true)?;
    client.low_speed_limit(1)?;
    client.low_speed_time(SILENCE)?;
    client.connect_timeout(SILENCE)?;
    let most = usize::try_from(expected).unwrap_or(usize::MAX);
    let mut transfer = client.transfer();
    transfer.write_function(|bytes| {
        content.extend_from_slice(bytes);
        Ok(if content.len() > most { 0 } else { bytes.len() })
    })?;
    transfer.perform()
}
