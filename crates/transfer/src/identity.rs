//! Identities: an Ed25519 key in a private file, and a certificate for it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::key::PublicKey;

/// The name in self-signed certificates, which is not checked.
const NAME: &str = "headroom";

/// A private key, and the certificates that carry its public half.
#[derive(Debug)]
pub struct Identity {
    key: PrivateKeyDer<'static>,
    public: PublicKey,
    certificates: Vec<CertificateDer<'static>>,
}

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("cannot {doing} {}: {cause}", path.display())]
    System {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Others could have read the key.
    #[error(
        "{} can be read by others (mode {mode:o}). If nobody can have read it, `chmod 600` it; else make another key with `headroom identity new`",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file is something else.
    #[error("{} is not an Ed25519 key in PKCS#8 PEM: {cause}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
    /// The file exists already.
    #[error("{} exists: those who trust that key would not know a new one. Move it away first", .0.display())]
    Exists(PathBuf),
    /// The certificate beside the key is for another key.
    #[error("the certificate in {} is not for the key beside it: {cause}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
    /// The cryptographic library refused.
    #[error("cannot make a key: {0}")]
    Generate(rcgen::Error),
}

impl Identity {
    /// Makes a new identity without a file.
    pub fn ephemeral() -> Result<Self, Error> {
        let pair = KeyPair::generate_for(&PKCS_ED25519).map_err(Error::Generate)?;
        Self::of_pair(&pair).map_err(Error::Generate)
    }

    /// Reads an identity: a key in PKCS#8 PEM in a file that only its owner can read. A file of the
    /// same name with `.crt` appended holds the key's certificate by an authority, and intermediate
    /// ones, in PEM.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let system = |doing| move |cause| Error::System { doing, path: path.to_owned(), cause };
        let text = fs::read_to_string(path).map_err(system("read the identity"))?;
        let mode = fs::metadata(path).map_err(system("look at"))?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(Error::Open { path: path.to_owned(), mode });
        }
        let no_key = |cause: String| Error::NoKey { path: path.to_owned(), cause };
        let pair = KeyPair::from_pem(&text).map_err(|error| no_key(error.to_string()))?;
        if !pair.is_compatible(&PKCS_ED25519) {
            return Err(no_key("it is a key of another algorithm".to_owned()));
        }
        let mut identity = Self::of_pair(&pair).map_err(|error| no_key(error.to_string()))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".crt");
        let beside = PathBuf::from(beside);
        if beside.exists() {
            identity.certificates = certified(&beside, identity.public)?;
        }
        Ok(identity)
    }

    /// Makes an identity and stores it in this file, which must not exist. Its directory is made,
    /// for its owner alone.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let pair = KeyPair::generate_for(&PKCS_ED25519).map_err(Error::Generate)?;
        let system = |doing| move |cause| Error::System { doing, path: path.to_owned(), cause };
        if let Some(parent) = path.parent() {
            make_directory(parent).map_err(system("make the directory of"))?;
        }
        // written elsewhere and linked: no reader ever finds half a key
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", std::process::id()));
        let draft = PathBuf::from(draft);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .map_err(system("write the identity"))?;
        let written = file
            .write_all(pair.serialize_pem().as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::hard_link(&draft, path));
        let _ = fs::remove_file(&draft);
        match written {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::Exists(path.to_owned()))
            }
            Err(error) => Err(system("write the identity")(error)),
            Ok(()) => Self::of_pair(&pair).map_err(Error::Generate),
        }
    }

    /// Reads an identity, and makes it if the file is missing.
    pub fn read_or_create(path: &Path) -> Result<Self, Error> {
        match Self::read(path) {
            Err(Error::System { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                match Self::create(path) {
                    // another process was faster
                    Err(Error::Exists(_)) => Self::read(path),
                    made => made,
                }
            }
            read => read,
        }
    }

    /// Returns the public key.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns certificates and key for rustls.
    pub(crate) fn credentials(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.certificates.clone(), self.key.clone_key())
    }

    fn of_pair(pair: &KeyPair) -> Result<Self, rcgen::Error> {
        let certificate =
            CertificateParams::new([NAME.to_owned()])?.self_signed(pair)?.der().clone();
        let public = PublicKey::of_certificate(&certificate)
            .ok_or(rcgen::Error::UnsupportedSignatureAlgorithm)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        Ok(Self { key, public, certificates: vec![certificate] })
    }
}

/// Makes a directory that only its owner can access, and its missing parents.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn certified(path: &Path, key: PublicKey) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |cause: String| Error::Certificate { path: path.to_owned(), cause };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(error.to_string()))?;
    match certificates.first().map(PublicKey::of_certificate) {
        Some(Some(found)) if found == key => Ok(certificates),
        Some(Some(found)) => Err(wrong(format!("it is for {}", found.fingerprint()))),
        Some(None) => Err(wrong("it is for a key of another algorithm".to_owned())),
        None => Err(wrong("the file holds no certificate".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_read_again() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("a/b/identity");
        let made = Identity::read_or_create(&path).expect("it is made");
        let read = Identity::read_or_create(&path).expect("it is read");
        assert_eq!(made.public(), read.public());
        assert!(matches!(Identity::create(&path), Err(Error::Exists(_))));
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode(&path) & 0o777, 0o600);
        assert_eq!(mode(&ground.path().join("a")) & 0o777, 0o700);
        let names = fs::read_dir(ground.path().join("a/b")).expect("a folder").count();
        assert_eq!(names, 1, "no draft is left");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("identity");
        Identity::create(&path).expect("it is made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
        let error = Identity::read(&path).expect_err("others can read it").to_string();
        assert!(error.contains("mode 640") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn other_keys_and_other_texts_are_refused() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("identity");
        let ecdsa = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
        for text in [ecdsa.serialize_pem().as_str(), "", "-----BEGIN PRIVATE KEY-----\n"] {
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("chmod");
            assert!(matches!(Identity::read(&path), Err(Error::NoKey { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_certificate_beside_the_key_must_be_its_own() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("identity");
        Identity::create(&path).expect("it is made");
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let other = CertificateParams::new([NAME.to_owned()]).expect("a name");
        let other = other.self_signed(&pair).expect("a certificate");
        fs::write(ground.path().join("identity.crt"), other.pem()).expect("a file");
        assert!(matches!(Identity::read(&path), Err(Error::Certificate { .. })));

        let own = KeyPair::from_pem(&fs::read_to_string(&path).expect("a key")).expect("a key");
        let own = CertificateParams::new(["host.example".to_owned()])
            .and_then(|own_name| own_name.self_signed(&own))
            .expect("a certificate");
        fs::write(ground.path().join("identity.crt"), own.pem()).expect("a file");
        let (shown, _) = Identity::read(&path).expect("its own").credentials();
        assert_eq!(shown, [own.der().clone()]);
    }
}
