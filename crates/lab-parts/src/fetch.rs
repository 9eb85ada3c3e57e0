//! Fetches packages from an archive of Debian over HTTP; their SHA-256 says whether they are the
//! pinned ones.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use ureq::Agent;

use crate::error::{Error, Result};
use crate::lock::Package;

/// Debian's own archive, by plain HTTP: what it sends is compared with the lock.
pub const ARCHIVE: &str = "http://archive.example";

/// At the same time: an archive answers each request late, not slowly.
const CONNECTIONS: usize = 8;
/// No package of a tree is larger.
const LARGEST: u64 = 64 << 20;
/// Ahead of each further attempt.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// For one attempt.
const PATIENCE: Duration = Duration::from_secs(120);

/// Hears of bytes that have arrived, of all.
pub type Progress<'a> = dyn Fn(u64, u64) + Sync + 'a;

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
    let configured = Agent::config_builder().timeout_global(Some(PATIENCE)).build();
    let agent = Agent::new_with_config(configured);
    let all: u64 = packages.iter().map(|package| package.bytes).sum();
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (arrived, failure) = (Mutex::new(0), Mutex::new(None));
    let lock = |result| *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS.min(packages.len()) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed)
                    && let Some(package) = packages.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let got = fetch_patiently(&agent, archive, package)
                        .and_then(|content| take(package, &content));
                    if let Err(error) = got {
                        failed.store(true, Ordering::Relaxed);
                        lock(error);
                        return;
                    }
                    let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
                    *arrived += package.bytes;
                    progress(*arrived, all);
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Asks again where the archive was out of reach for a moment.
fn fetch_patiently(agent: &Agent, archive: &str, package: &Package<'_>) -> Result<Vec<u8>> {
    for pause in PAUSES {
        match fetch_one(agent, archive, package) {
            Err(Error::Unreachable { .. }) => std::thread::sleep(pause),
            got => return got,
        }
    }
    fetch_one(agent, archive, package)
}

fn fetch_one(agent: &Agent, archive: &str, package: &Package<'_>) -> Result<Vec<u8>> {
    let url = format!("{}/{}", archive.trim_end_matches('/'), package.place.replace('+', "%2b"));
    let mut answer = match agent.get(&url).call() {
        Ok(answer) => answer,
        Err(ureq::Error::StatusCode(404 | 410)) => return Err(Error::Gone { url }),
        Err(cause) => return Err(Error::Unreachable { url, cause: Box::new(cause) }),
    };
    let mut content = Vec::new();
    // a byte more than it should have is enough to see that it is another one
    let most = package.bytes.min(LARGEST) + 1;
    if let Err(cause) = answer.body_mut().as_reader().take(most).read_to_end(&mut content) {
        return Err(Error::Unreachable { url, cause: Box::new(cause.into()) });
    }
    let found = HEXLOWER.encode(digest(&SHA256, &content).as_ref());
    if found != package.sha256 {
        return Err(Error::Foreign { url, found });
    }
    Ok(content)
}
