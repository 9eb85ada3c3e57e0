//! Makes a pair of configurations that negotiate their keys, with what both ends prove themselves by.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use headroom_suite::Key;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use zeroize::Zeroizing;

use super::keygen::{End, Error, Proof, Request, write_new};
use super::model::Config;

/// id-kp-ipsecIKE (RFC 4945, section 5.1.3.12).
const IPSEC_IKE: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 17];
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long certificates are valid. Nothing renews them but a new pair.
const VALID_FOR: Duration = Duration::from_secs(5 * 366 * 24 * 3600);

/// A file to write.
struct Made {
    name: String,
    text: Zeroizing<String>,
}

impl Request {
    /// Writes `left.toml`, `right.toml` and the pre-shared key of both, or the certificates and keys of
    /// both and of their authority, readable only by their owner.
    pub(super) fn write_ike(&self, proof: Proof) -> Result<[PathBuf; 2], Error> {
        let (secrets, lines) = match proof {
            Proof::SharedKey => self.shared_key()?,
            Proof::Certificates => self.certificates()?,
        };
        let texts = [
            self.ike_file((self.left, self.right), false, &lines[0]),
            self.ike_file((self.right, self.left), true, &lines[1]),
        ];
        for text in &texts {
            // the files are not there yet
            let here = text.replace(&lines[0], PLACEHOLDER).replace(&lines[1], PLACEHOLDER);
            Config::parse(&here, Path::new("new"))
                .map_err(|error| Error::Refused(error.to_string()))?;
        }
        let wrong = |path: &Path| {
            let path = path.to_owned();
            move |cause: io::Error| Error::Write { path, cause }
        };
        std::fs::create_dir_all(&self.folder).map_err(wrong(&self.folder))?;
        let paths =
            [End::Left, End::Right].map(|end| self.folder.join(format!("{}.toml", end.name())));
        for (path, text) in paths.iter().zip(&texts) {
            write_new(path, text).map_err(wrong(path))?;
        }
        for Made { name, text } in &secrets {
            let path = self.folder.join(name);
            write_new(&path, text).map_err(wrong(&path))?;
        }
        Ok(paths)
    }

    fn ike_file(&self, (here, there): (IpAddr, IpAddr), is_right: bool, proof: &str) -> String {
        let child = match &self.networks {
            Some((left, right)) => {
                let (local, remote) = if is_right { (right, left) } else { (left, right) };
                format!("local = \"{local}\"\nremote = \"{remote}\"\n")
            }
            None => format!("mode = \"transport\"\nremote = \"{there}\"\n"),
        };
        format!(
            "name = \"{}\"\n[ike]\nlocal = \"{here}\"\nremote = \"{there}\"\n{proof}[[child]]\n{child}",
            self.name
        )
    }

    /// Makes a key, and the lines of both ends about it.
    fn shared_key(&self) -> Result<(Vec<Made>, [String; 2]), Error> {
        let name = format!("{}.psk", self.name);
        let mut text = Zeroizing::new(String::with_capacity(80));
        for byte in Key::generate(32)?.as_bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        let line = format!("psk_file = \"{name}\"\n");
        Ok((vec![Made { name, text }], [line.clone(), line]))
    }

    /// Makes an authority and a certificate for each end, and the lines of both ends about them.
    fn certificates(&self) -> Result<(Vec<Made>, [String; 2]), Error> {
        let mut params = self.valid_now(&format!("{} authority", self.name));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let root = format!("{}-ca.pem", self.name);
        let mut files = vec![
            Made { name: root.clone(), text: Zeroizing::new(authority.pem()) },
            Made {
                name: format!("{}-ca.key", self.name),
                text: Zeroizing::new(authority.key().serialize_pem()),
            },
        ];
        let called = |end: End| format!("{}.{}", end.name(), self.name);
        let ends = [(End::Left, End::Right, self.left), (End::Right, End::Left, self.right)];
        let mut lines = Vec::new();
        for (end, other, address) in ends {
            let name = called(end);
            let mut params = self.valid_now(&name);
            let dns = name.as_str().try_into()?;
            params.subject_alt_names = vec![SanType::DnsName(dns), SanType::IpAddress(address)];
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(IPSEC_IKE.to_vec())];
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &authority)?;
            let own = |suffix: &str| format!("{}.{suffix}", end.name());
            files.push(Made { name: own("pem"), text: Zeroizing::new(certificate.pem()) });
            files.push(Made { name: own("key"), text: Zeroizing::new(key.serialize_pem()) });
            lines.push(format!(
                "remote_id = \"{}\"\ncert_file = \"{}\"\nkey_file = \"{}\"\nca_file = \"{root}\"\n",
                called(other),
                own("pem"),
                own("key"),
            ));
        }
        let lines = lines.try_into().map_err(|_| Error::Refused("there are two ends".into()))?;
        Ok((files, lines))
    }

    fn valid_now(&self, name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let now = SystemTime::now();
        // the other host's clock may be late
        params.not_before = (now - DAY).into();
        params.not_after = (now + VALID_FOR).into();
        params
    }
}

/// Stands for the proof of identity while the rest of a new file is checked.
const PLACEHOLDER: &str = "psk = \"not the key, which has its file\"\n";
