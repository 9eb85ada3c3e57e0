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
pub(super) const IPSEC_IKE: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 17];
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long certificates are valid. Nothing renews them but a new pair.
const VALID_FOR: Duration = Duration::from_secs(5 * 366 * 24 * 3600);

/// A file to write.
pub(super) struct Made {
    pub(super) name: String,
    pub(super) text: Zeroizing<String>,
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
        for (text, proof) in texts.iter().zip(&lines) {
            check(text, proof)?;
        }
        let names = [End::Left, End::Right].map(|end| format!("{}.toml", end.name()));
        let configurations = names
            .iter()
            .zip(texts)
            .map(|(name, text)| Made { name: name.clone(), text: Zeroizing::new(text) });
        let configurations: Vec<Made> = configurations.collect();
        write_all(&self.folder, configurations.iter().chain(&secrets))?;
        let paths = names.map(|name| self.folder.join(name));
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
        let (authority, mut files) = Authority::new(&self.name)?;
        let called = |end: End| format!("{}.{}", end.name(), self.name);
        let ends = [(End::Left, End::Right, self.left), (End::Right, End::Left, self.right)];
        let mut lines = Vec::new();
        for (end, other, address) in ends {
            let purposes = vec![ExtendedKeyUsagePurpose::Other(IPSEC_IKE.to_vec())];
            let names = (called(end), Some(address));
            files.extend(authority.issue(end.name(), names, purposes)?);
            let remote = format!("remote_id = \"{}\"\n", called(other));
            lines.push(remote + &authority.lines_of(end.name()));
        }
        let lines = lines.try_into().map_err(|_| Error::Refused("there are two ends".into()))?;
        Ok((files, lines))
    }
}

/// An authority that signs the certificates of new files.
pub(super) struct Authority {
    name: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes one, and its files.
    pub(super) fn new(tunnel: &str) -> Result<(Self, Vec<Made>), Error> {
        let mut params = valid_now(&format!("{tunnel} authority"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let name = format!("{tunnel}-ca");
        let key = Zeroizing::new(issuer.key().serialize_pem());
        let files = vec![
            Made { name: format!("{name}.pem"), text: Zeroizing::new(issuer.pem()) },
            Made { name: format!("{name}.key"), text: key },
        ];
        Ok((Self { name, issuer }, files))
    }

    /// Makes a certificate with this name and address, and its key.
    pub(super) fn issue(
        &self,
        file: &str,
        (name, address): (String, Option<IpAddr>),
        purposes: Vec<ExtendedKeyUsagePurpose>,
    ) -> Result<[Made; 2], Error> {
        let mut params = valid_now(&name);
        let dns = name.as_str().try_into()?;
        params.subject_alt_names = vec![SanType::DnsName(dns)];
        params.subject_alt_names.extend(address.map(SanType::IpAddress));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = purposes;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok([
            Made { name: format!("{file}.pem"), text: Zeroizing::new(certificate.pem()) },
            Made { name: format!("{file}.key"), text: Zeroizing::new(key.serialize_pem()) },
        ])
    }

    /// Returns the lines about the certificate in this file.
    pub(super) fn lines_of(&self, file: &str) -> String {
        format!(
            "cert_file = \"{file}.pem\"\nkey_file = \"{file}.key\"\nca_file = \"{}.pem\"\n",
            self.name
        )
    }
}

fn valid_now(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    // the other host's clock may be late
    params.not_before = (now - DAY).into();
    params.not_after = (now + VALID_FOR).into();
    params
}

/// Checks a new file, whose certificates and keys are not there yet.
pub(super) fn check(text: &str, proof: &str) -> Result<(), Error> {
    let here = text.replace(proof, PLACEHOLDER);
    let parsed = Config::parse(&here, Path::new("new"));
    parsed.map(drop).map_err(|error| Error::Refused(error.to_string()))
}

/// Writes new files into a folder; none is overwritten.
pub(super) fn write_all<'m>(
    folder: &Path,
    files: impl IntoIterator<Item = &'m Made>,
) -> Result<(), Error> {
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |cause: io::Error| Error::Write { path, cause }
    };
    std::fs::create_dir_all(folder).map_err(wrong(folder))?;
    for Made { name, text } in files {
        let path = folder.join(name);
        write_new(&path, text).map_err(wrong(&path))?;
    }
    Ok(())
}

/// Stands for the proof of identity while the rest of a new file is checked.
const PLACEHOLDER: &str = "psk = \"not the key, which has its file\"\n";
