//! Cookies: a responder under load keeps nothing until an initiator has shown that it receives at
//! its address (RFC 7296 §2.6).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use headroom_suite::Key;

use crate::crypto::Random;

/// The time after which a new secret is made; the one before is still accepted.
const SECRET_LIFETIME: Duration = Duration::from_secs(30);

/// Makes and checks cookies.
#[derive(Debug)]
pub(crate) struct Cookies {
    current: Key,
    previous: Option<Key>,
    made_at: Instant,
}

impl Cookies {
    pub(crate) fn new(now: Instant, random: &mut dyn Random) -> Self {
        Self { current: secret(random), previous: None, made_at: now }
    }

    /// Makes the cookie of an initiator.
    pub(crate) fn make(
        &mut self,
        nonce: &[u8],
        from: SocketAddr,
        spi: u64,
        (now, random): (Instant, &mut dyn Random),
    ) -> Vec<u8> {
        let age = now.saturating_duration_since(self.made_at);
        if age >= SECRET_LIFETIME {
            let old = std::mem::replace(&mut self.current, secret(random));
            // both would be too old
            self.previous = (age < 2 * SECRET_LIFETIME).then_some(old);
            self.made_at = now;
        }
        compute(&self.current, nonce, from, spi)
    }

    /// Checks an initiator's cookie.
    pub(crate) fn check(&self, cookie: &[u8], nonce: &[u8], from: SocketAddr, spi: u64) -> bool {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten().any(|secret| {
            verify_slices_are_equal(&compute(secret, nonce, from, spi), cookie).is_ok()
        })
    }
}

fn secret(random: &mut dyn Random) -> Key {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    Key::from_bytes(&bytes)
}

fn compute(secret: &Key, nonce: &[u8], from: SocketAddr, spi: u64) -> Vec<u8> {
    let mut context =
        hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
    context.update(&[nonce.len() as u8]);
    context.update(nonce);
    match from {
        SocketAddr::V4(from) => context.update(&from.ip().octets()),
        SocketAddr::V6(from) => context.update(&from.ip().octets()),
    }
    context.update(&from.port().to_be_bytes());
    context.update(&spi.to_be_bytes());
    context.sign().as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SystemRandom;

    #[test]
    fn a_cookie_is_good_for_its_initiator_and_a_while() {
        let start = Instant::now();
        let from = |last, port| SocketAddr::from(([192, 0, 2, last], port));
        let mut cookies = Cookies::new(start, &mut SystemRandom);
        let cookie = cookies.make(b"nonce", from(1, 500), 7, (start, &mut SystemRandom));
        assert!(cookies.check(&cookie, b"nonce", from(1, 500), 7));
        assert!(!cookies.check(&cookie, b"nonce", from(2, 500), 7), "another address");
        assert!(!cookies.check(&cookie, b"nonce", from(1, 501), 7), "another port");
        assert!(!cookies.check(&cookie, b"nonce", from(1, 500), 8), "another SPI");
        assert!(!cookies.check(&cookie, b"other", from(1, 500), 7), "another nonce");
        assert!(!cookies.check(&[], b"nonce", from(1, 500), 7), "no cookie");
        for (seconds, good) in [(31, true), (62, false)] {
            let now = start + Duration::from_secs(seconds);
            cookies.make(b"x", from(3, 500), 1, (now, &mut SystemRandom));
            assert_eq!(cookies.check(&cookie, b"nonce", from(1, 500), 7), good, "{seconds} s");
        }
    }
}
