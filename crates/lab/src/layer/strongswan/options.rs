//! The options of the layer: read in any order and written in one.

use crate::catalogue::Options;
use crate::layer::rekey::RekeyInterval;

/// Parsed options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) proof: Proof,
    /// Whether ML-KEM-768 stands beside X25519 (RFC 9370), which strongSwan 6 has.
    pub(super) post_quantum: bool,
    /// What the keys carry until the client updates them; none: as much as there is.
    pub(super) rekey: Option<RekeyInterval>,
}

/// Authentication of both ends (RFC 7296 §2.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    Psk,
    /// Certificates of this kind of key, as `openssl req -newkey` wants it named.
    Certificate(&'static KeyKind),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeyKind {
    word: &'static str,
    pub(super) openssl: &'static str,
    about: &'static str,
}

const KEY_KINDS: [KeyKind; 2] = [
    KeyKind {
        word: "cert",
        openssl: "ec -pkeyopt ec_paramgen_curve:P-256",
        about: "certificates of ECDSA P-256, sent each time",
    },
    KeyKind {
        word: "cert-rsa",
        openssl: "rsa:2048",
        about: "certificates of RSA with 2048 bits, sent each time",
    },
];

/// The options, for messages.
pub(super) fn known() -> String {
    "psk (the default), or cert (certificates of ECDSA), or cert-rsa; pq (ML-KEM-768 too, by \
     strongSwan 6), rekey=SIZE"
        .to_owned()
}

impl Parameters {
    /// Reads options.
    ///
    /// # Errors
    /// A sentence: which option is unknown, or contradicts another.
    pub(super) fn read(options: &Options<'_>) -> Result<Self, String> {
        let (mut proof, mut post_quantum, mut rekey) = (None, false, None);
        for option in options.iter() {
            let kind = KEY_KINDS.iter().find(|kind| kind.word == option);
            let said = match (option, kind) {
                ("psk", _) => Proof::Psk,
                (_, Some(kind)) => Proof::Certificate(kind),
                ("pq", _) => {
                    post_quantum = true;
                    continue;
                }
                _ => match option.strip_prefix("rekey=") {
                    Some(size) => {
                        rekey = Some(RekeyInterval::parse(option, size)?);
                        continue;
                    }
                    None => return Err(options.unknown(option)),
                },
            };
            if proof.replace(said).is_some() {
                return Err(format!(
                    "`strongswan` has its authentication said twice: leave out `{option}`"
                ));
            }
        }
        Ok(Self { proof: proof.unwrap_or(Proof::Psk), post_quantum, rekey })
    }

    /// Lists options that are not default, in the order of results.
    pub(super) fn written(&self) -> Vec<String> {
        let proof = match self.proof {
            Proof::Psk => None,
            Proof::Certificate(kind) => Some(kind.word.to_owned()),
        };
        let post_quantum = self.post_quantum.then(|| "pq".to_owned());
        let rekey = self.rekey.map(|interval| format!("rekey={interval}"));
        proof.into_iter().chain(post_quantum).chain(rekey).collect()
    }

    /// Describes the exchange for the record.
    pub(super) fn exchange(&self) -> String {
        let groups = if self.post_quantum { "X25519 and ML-KEM-768" } else { "X25519" };
        let proof = match self.proof {
            Proof::Psk => "pre-shared key",
            Proof::Certificate(kind) => kind.about,
        };
        format!("IKEv2, {groups}, {proof}")
    }

    /// Describes when keys are updated, for the record.
    pub(super) fn updates(&self) -> String {
        match self.rekey {
            None => "off, no dead peer detection".to_owned(),
            Some(interval) => format!(
                "after {interval} less up to a tenth, by the client, with a key exchange of their \
                 own; no dead peer detection"
            ),
        }
    }

    /// Returns key exchanges as a proposal names them.
    pub(super) fn groups(&self) -> &'static str {
        if self.post_quantum { "x25519-ke1_mlkem768" } else { "x25519" }
    }
}

#[cfg(test)]
mod tests {
    fn title(written: &str) -> Result<String, String> {
        Ok(crate::layer::ALL.parse(written)?.title())
    }

    #[test]
    fn options_come_out_in_one_order_without_defaults() {
        for (written, canonical) in [
            ("strongswan(psk)", "strongswan"),
            ("strongswan(cert-rsa)", "strongswan(cert-rsa)"),
            ("strongswan(rekey=50000kB,pq,cert)", "strongswan(cert,pq,rekey=50MB)"),
        ] {
            assert_eq!(title(written).as_deref(), Ok(canonical));
        }
    }

    #[test]
    fn what_is_unknown_or_contradicts_is_named() {
        for (written, why) in [
            (
                "strongswan(pq=off)",
                "no option `pq=off`; the options are psk (the default), or cert",
            ),
            ("strongswan(psk,cert)", "its authentication said twice: leave out `cert`"),
            ("strongswan(pq,pq)", "given `pq` twice"),
            ("strongswan(rekey=1kB)", "after 1 MB at least"),
            ("strongswan(rekey)", "no option `rekey`"),
        ] {
            let error = title(written).expect_err(written);
            assert!(error.contains(why), "{written}: {error}");
        }
    }
}
