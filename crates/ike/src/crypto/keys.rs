//! Key derivation (RFC 7296 §2.14, §2.17, §2.18; RFC 9370 §2.2.2, §2.2.4; RFC 8784 §3; RFC 9867).

use headroom_suite::{Key, Suite};

use super::Prf;

/// Both nonces, without their payload headers.
#[derive(Clone, Copy, Debug)]
pub struct Nonces<'a> {
    /// Ni: of the exchange's initiator.
    pub initiator: &'a [u8],
    /// Nr.
    pub responder: &'a [u8],
}

/// Both SPIs of an IKE SA.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Spis {
    /// The initiator's.
    pub initiator: u64,
    /// The responder's.
    pub responder: u64,
}

/// The keys of an IKE SA.
#[derive(Debug)]
pub struct IkeKeys {
    /// How its messages are protected. An AEAD's key ends with its salt (RFC 5282 §7.1).
    pub suite: Suite,
    /// Its pseudorandom function.
    pub prf: Prf,
    /// SK_d: keys are derived from it.
    pub sk_d: Key,
    /// SK_ai; empty for an AEAD.
    pub sk_ai: Key,
    /// SK_ar; empty for an AEAD.
    pub sk_ar: Key,
    /// SK_ei.
    pub sk_ei: Key,
    /// SK_er.
    pub sk_er: Key,
    /// SK_pi: the initiator's identity is authenticated with it.
    pub sk_pi: Key,
    /// SK_pr.
    pub sk_pr: Key,
}

impl IkeKeys {
    /// Derives the first keys from the secret of IKE_SA_INIT (RFC 7296 §2.14).
    #[must_use]
    pub fn initial(suite: Suite, prf: Prf, secret: &Key, nonces: Nonces<'_>, spis: Spis) -> Self {
        let key = [nonces.initiator, nonces.responder].concat();
        let skeyseed = prf.compute(&key, &[secret.as_bytes()]);
        Self::expand(suite, prf, &skeyseed, nonces, spis)
    }

    /// Derives the keys after an IKE_INTERMEDIATE with a further secret (RFC 9370 §2.2.2).
    #[must_use]
    pub fn with_secret(&self, secret: &Key, nonces: Nonces<'_>, spis: Spis) -> Self {
        let Nonces { initiator, responder } = nonces;
        let parts = [secret.as_bytes(), initiator, responder];
        let skeyseed = self.prf.compute(self.sk_d.as_bytes(), &parts);
        Self::expand(self.suite, self.prf, &skeyseed, nonces, spis)
    }

    /// Derives the keys of the IKE SA that replaces this one. The first secret is that of
    /// CREATE_CHILD_SA, the others are of IKE_FOLLOWUP_KE (RFC 7296 §2.18, RFC 9370 §2.2.4). The
    /// seed is computed with the old function, the keys with the new one.
    #[must_use]
    pub fn rekeyed(
        &self,
        suite: Suite,
        prf: Prf,
        secrets: &[Key],
        nonces: Nonces<'_>,
        spis: Spis,
    ) -> Self {
        let skeyseed = self.prf.compute(self.sk_d.as_bytes(), &seed(secrets, nonces));
        Self::expand(suite, prf, &skeyseed, nonces, spis)
    }

    /// Mixes a post-quantum pre-shared key into SK_d, SK_pi and SK_pr (RFC 8784 §3).
    #[must_use]
    pub fn with_ppk(mut self, ppk: &Key) -> Self {
        for key in [&mut self.sk_d, &mut self.sk_pi, &mut self.sk_pr] {
            *key = self.prf.plus(ppk.as_bytes(), &[key.as_bytes()], key.len());
        }
        self
    }

    /// Derives all keys again with a post-quantum pre-shared key (RFC 9867): after the last additional
    /// key exchange, and before IKE_AUTH.
    #[must_use]
    pub fn with_intermediate_ppk(&self, ppk: &Key, nonces: Nonces<'_>, spis: Spis) -> Self {
        let seed = [self.sk_d.as_bytes()];
        let skeyseed = self.prf.plus(ppk.as_bytes(), &seed, self.prf.output_len());
        Self::expand(self.suite, self.prf, &skeyseed, nonces, spis)
    }

    /// Copies the keys, for a log that decrypts captures.
    pub(crate) fn copy(&self) -> Self {
        let copy = |key: &Key| Key::from_bytes(key.as_bytes());
        Self {
            suite: self.suite,
            prf: self.prf,
            sk_d: copy(&self.sk_d),
            sk_ai: copy(&self.sk_ai),
            sk_ar: copy(&self.sk_ar),
            sk_ei: copy(&self.sk_ei),
            sk_er: copy(&self.sk_er),
            sk_pi: copy(&self.sk_pi),
            sk_pr: copy(&self.sk_pr),
        }
    }

    fn expand(suite: Suite, prf: Prf, skeyseed: &Key, nonces: Nonces<'_>, spis: Spis) -> Self {
        let (own, mac, key) = (prf.output_len(), suite.mac_key_len(), suite.key_len());
        let seed = [
            nonces.initiator,
            nonces.responder,
            &spis.initiator.to_be_bytes(),
            &spis.responder.to_be_bytes(),
        ];
        let stream = prf.plus(skeyseed.as_bytes(), &seed, 3 * own + 2 * mac + 2 * key);
        let mut parts = Parts(stream.as_bytes());
        Self {
            suite,
            prf,
            sk_d: parts.take(own),
            sk_ai: parts.take(mac),
            sk_ar: parts.take(mac),
            sk_ei: parts.take(key),
            sk_er: parts.take(key),
            sk_pi: parts.take(own),
            sk_pr: parts.take(own),
        }
    }

    /// Derives the keys of a CHILD SA. There is no secret without a key exchange of its own; the
    /// first is that of CREATE_CHILD_SA, the others are of IKE_FOLLOWUP_KE (RFC 7296 §2.17, RFC
    /// 9370 §2.2.4).
    #[must_use]
    pub fn child(&self, suite: Suite, secrets: &[Key], nonces: Nonces<'_>) -> ChildKeys {
        let (key, mac) = (suite.key_len(), suite.mac_key_len());
        let sk_d = self.sk_d.as_bytes();
        let stream = self.prf.plus(sk_d, &seed(secrets, nonces), 2 * (key + mac));
        let mut parts = Parts(stream.as_bytes());
        let mut secrets = || ChildSecrets { key: parts.take(key), mac_key: parts.take(mac) };
        ChildKeys { suite, initiator: secrets(), responder: secrets() }
    }
}

/// The keys of a CHILD SA.
#[derive(Debug)]
pub struct ChildKeys {
    /// How packets are protected.
    pub suite: Suite,
    /// For packets from the exchange's initiator.
    pub initiator: ChildSecrets,
    /// For packets from its responder.
    pub responder: ChildSecrets,
}

/// The keys of one direction of a CHILD SA.
#[derive(Debug)]
pub struct ChildSecrets {
    /// The cipher's key; an AEAD's ends with its salt.
    pub key: Key,
    /// The integrity algorithm's key; empty for an AEAD.
    pub mac_key: Key,
}

/// SK(0) | Ni | Nr | SK(1) | … SK(n).
fn seed<'a>(secrets: &'a [Key], nonces: Nonces<'a>) -> Vec<&'a [u8]> {
    let mut seed: Vec<&[u8]> = secrets.first().map(Key::as_bytes).into_iter().collect();
    seed.extend([nonces.initiator, nonces.responder]);
    seed.extend(secrets.iter().skip(1).map(Key::as_bytes));
    seed
}

struct Parts<'a>(&'a [u8]);

impl Parts<'_> {
    fn take(&mut self, len: usize) -> Key {
        let (head, tail) = self.0.split_at(len);
        self.0 = tail;
        Key::from_bytes(head)
    }
}
