//! Reads how this host and a peer of `[ike]` prove who they are.

use std::path::PathBuf;
use std::sync::Arc;

use headroom_ike::{
    Auth, Authorities, CertificateError, Credential, Identity, LocalAuth, Ppk, PpkExchange,
    RemoteAuth,
};
use headroom_suite::Key;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use toml::Spanned;

use super::file::{IkeFile, PpkExchangeFile};
use super::problem::{Problem, problem};
use super::reader::{Content, Reader};

/// The fewest bytes of a pre-shared key. An observer of one exchange with an active attacker can try
/// keys at leisure (RFC 7296, section 2.15), so a password is too short.
const MIN_SECRET: usize = 20;

/// The fewest bytes of a post-quantum pre-shared key (RFC 8784 §6: 256 bits).
const MIN_PPK: usize = 32;

impl Reader<'_> {
    /// Reads how both sides prove who they are, and the name in this host's certificate.
    pub(super) fn auth(&self, file: &IkeFile) -> Result<(Auth, Option<Identity>), Problem> {
        let files = [&file.cert_file, &file.key_file, &file.ca_file, &file.crl_file];
        if let Some(user) = file.user.first().filter(|_| file.eap.is_none()) {
            return Err(problem(&user.name, "a user needs `eap = \"mschapv2\"` in `[ike]`"));
        }
        if files.iter().all(|one| one.is_none()) && file.eap.is_none() {
            return Ok((Auth::shared_key(&self.secret(file)?), None));
        }
        let psk = file.psk_file.as_ref().map(|one| one.span().start);
        if let Some(offset) = psk.or(file.psk.as_ref().map(|one| one.span().start)) {
            let message = "a pre-shared key and certificates are both present: remove one".into();
            return Err(Problem { offset, message });
        }
        let needed = |name: &str, written: &Option<Spanned<PathBuf>>| {
            let message = match file.eap {
                Some(_) => {
                    format!("with EAP this host proves who it is by a certificate: write `{name}`")
                }
                None => format!(
                    "certificates need `cert_file`, `key_file` and `ca_file`: write `{name}`"
                ),
            };
            written.clone().ok_or_else(|| problem(&file.remote, message))
        };
        let certificate = needed("cert_file", &file.cert_file)?;
        let key = needed("key_file", &file.key_file)?;
        let chain = self.sections::<CertificateDer<'_>>(&certificate, "certificate")?;
        let text = self.text_of(&key, Content::Secret)?;
        let private = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| problem(&key, "there is no private key in PEM in this file"))?;
        let refused = |place: &Spanned<PathBuf>| {
            let place = place.clone();
            move |error: CertificateError| problem(&place, error.to_string())
        };
        let credential =
            Credential::new(chain.clone(), private.secret_der()).map_err(refused(&certificate))?;
        let name = credential.names().into_iter().next();
        let authorities = |authority: &Spanned<PathBuf>| {
            let roots = self.sections::<CertificateDer<'_>>(authority, "certificate")?;
            let lists = match &file.crl_file {
                Some(path) => {
                    self.sections::<CertificateRevocationListDer<'_>>(path, "revocation list")?
                }
                None => Vec::new(),
            };
            let place = file.crl_file.as_ref().unwrap_or(authority);
            Authorities::new(&roots, &lists).map_err(refused(place))
        };
        let remote = match &file.eap {
            Some(eap) => {
                let authorities = file.ca_file.as_ref().map(authorities).transpose()?;
                let own = (chain, private.secret_der());
                RemoteAuth::Eap(self.eap(eap, file, own, authorities.as_ref())?)
            }
            None => {
                let authority = needed("ca_file", &file.ca_file)?;
                RemoteAuth::Certificate(Arc::new(authorities(&authority)?))
            }
        };
        let local = LocalAuth::Certificate(Arc::new(credential));
        Ok((Auth { local, remote }, name))
    }

    fn sections<T: PemObject + AsRef<[u8]>>(
        &self,
        path: &Spanned<PathBuf>,
        what: &str,
    ) -> Result<Vec<Vec<u8>>, Problem> {
        let text = self.text_of(path, Content::Public)?;
        let all: Result<Vec<T>, _> = T::pem_slice_iter(text.as_bytes()).collect();
        let all = all.unwrap_or_default();
        match all.is_empty() {
            true => Err(problem(
                path,
                format!("there is no {what} in PEM in this file, or a broken one"),
            )),
            false => Ok(all.iter().map(|one| one.as_ref().to_vec()).collect()),
        }
    }

    fn text_of(
        &self,
        path: &Spanned<PathBuf>,
        content: Content,
    ) -> Result<zeroize::Zeroizing<String>, Problem> {
        (self.read_file)(path.get_ref(), content).map_err(|error| problem(path, error))
    }

    fn secret(&self, file: &IkeFile) -> Result<Key, Problem> {
        let (text, place) = match (&file.psk, &file.psk_file) {
            (Some(psk), None) => (psk.get_ref().0.clone(), psk.span().start),
            (None, Some(path)) => {
                let text = (self.read_file)(path.get_ref(), Content::Secret)
                    .map_err(|error| problem(path, error))?;
                (text, path.span().start)
            }
            (None, None) => {
                return Err(problem(
                    &file.remote,
                    "the peer needs a pre-shared key (`psk_file` or `psk`) or certificates (`cert_file`, `key_file`, `ca_file`)",
                ));
            }
            (Some(_), Some(path)) => {
                return Err(problem(path, "`psk` and `psk_file` are both present: remove one"));
            }
        };
        let bytes = text.trim().as_bytes();
        if bytes.len() < MIN_SECRET {
            let message = format!(
                "the pre-shared key has {} bytes and needs {MIN_SECRET} at least: draw one with `openssl rand -base64 32`",
                bytes.len()
            );
            return Err(Problem { offset: place, message });
        }
        Ok(Key::from_bytes(bytes))
    }

    /// Reads a key that the key exchange is mixed with (RFC 8784, RFC 9867). It is required: a peer without it
    /// would make it useless.
    pub(super) fn ppk(&self, file: &IkeFile) -> Result<Option<Ppk>, Problem> {
        let exchange = match file.ppk_exchange.as_ref().map(Spanned::get_ref) {
            None | Some(PpkExchangeFile::Either) => PpkExchange::Either,
            Some(PpkExchangeFile::Intermediate) => PpkExchange::Intermediate,
            Some(PpkExchangeFile::Auth) => PpkExchange::Auth,
        };
        let (path, id) = match (&file.ppk_file, &file.ppk_id) {
            (None, None) => match &file.ppk_exchange {
                Some(place) => {
                    return Err(problem(place, "`ppk_exchange` needs `ppk_file` and `ppk_id`"));
                }
                None => return Ok(None),
            },
            (Some(path), _) if file.eap.is_some() => {
                return Err(problem(path, "a `ppk_file` is not for users of EAP: remove it"));
            }
            (Some(path), Some(id)) => (path, id),
            (Some(path), None) => {
                let message = "`ppk_file` needs `ppk_id`, the name that both ends give to this key";
                return Err(problem(path, message));
            }
            (None, Some(id)) => {
                return Err(problem(id, "`ppk_id` needs `ppk_file`, which has the key"));
            }
        };
        let text = self.text_of(path, Content::Secret)?;
        let bytes = text.trim().as_bytes();
        if bytes.len() < MIN_PPK {
            let message = format!(
                "the key has {} bytes and needs {MIN_PPK} at least: draw one with `openssl rand -base64 32`",
                bytes.len()
            );
            return Err(problem(path, message));
        }
        let (id, key) = (id.get_ref().clone().into_bytes(), Key::from_bytes(bytes));
        Ok(Some(Ppk { id, key, is_required: true, exchange }))
    }
}
