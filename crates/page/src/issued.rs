//! What an ACME authority issued, and where it is kept.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::private_file;

/// Certificates that are valid for less time than this are replaced earlier.
const SHORT_LIVED: Duration = Duration::from_secs(10 * 24 * 3600);

/// A certificate of an ACME authority, for which it is asked and asked again.
#[derive(Debug, Clone)]
pub struct AcmeOptions {
    /// The names and IP addresses in the certificate, one at least. The authority connects to
    /// port 443 of each.
    pub names: Vec<String>,
    /// The address to which the authority writes, if it does.
    pub email: Option<String>,
    /// The URL of the authority's directory.
    pub directory: String,
    /// The root certificates (PEM) by which the authority's own HTTPS is verified, in the place of
    /// those of the system.
    pub root: Option<PathBuf>,
    /// Where the account and the certificate are kept.
    pub folder: PathBuf,
}

/// A certificate with its key.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    not_before: SystemTime,
    not_after: SystemTime,
    names: Vec<String>,
}

impl AcmeOptions {
    /// Says what is wrong with the options, if something is.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.names.is_empty() {
            return Err("no name is given".to_owned());
        }
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        for name in &self.names {
            let is_name = name.len() <= 253 && name.split('.').all(is_label);
            if name.parse::<IpAddr>().is_err() && !is_name {
                return Err(format!("{name:?} is no name and no IP address"));
            }
        }
        match self.directory.starts_with("https://") {
            true => Ok(()),
            false => Err(format!("{:?} does not begin with https://", self.directory)),
        }
    }

    fn certificate_file(&self) -> PathBuf {
        let first = self.names.first().map(|name| name.to_ascii_lowercase().replace(':', "_"));
        self.folder.join(format!("{}.pem", first.unwrap_or_default()))
    }

    /// Returns where the account at this authority is kept.
    pub(crate) fn account_file(&self) -> PathBuf {
        let host = self.directory.split('/').nth(2).unwrap_or_default();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
        let host: String =
            host.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
        self.folder.join(format!("account-{host}.json"))
    }

    /// Returns the first line of the file, by which a certificate of another authority is not
    /// taken for one of this.
    fn first_line(&self) -> String {
        format!("Issued by {}", self.directory)
    }

    /// Reads the certificate that is kept, if it is one of this authority for these names, and valid.
    pub(crate) fn read(&self) -> Option<Issued> {
        let text = fs::read_to_string(self.certificate_file()).ok()?;
        let issued = Issued::parse(&text).ok()?;
        let mut names: Vec<_> = self.names.iter().map(|name| canonical(name)).collect();
        names.sort();
        names.dedup();
        let is_this = text.lines().next() == Some(&self.first_line()) && issued.names == names;
        (is_this && SystemTime::now() < issued.not_after).then_some(issued)
    }

    /// Keeps a certificate and its key.
    pub(crate) fn keep(&self, pem: &str) -> io::Result<()> {
        let text = format!("{}\n{pem}", self.first_line());
        private_file::write(&self.certificate_file(), &text)
    }
}

impl Issued {
    /// Takes a certificate, intermediate ones, and the key, in PEM.
    pub(crate) fn parse(pem: &str) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let chain = chain.map_err(|error| error.to_string())?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|it| it.to_string())?;
        let own = chain.first().ok_or("there is no certificate")?;
        let (_, parsed) = X509Certificate::from_der(own).map_err(|error| error.to_string())?;
        let time = |seconds: i64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        };
        let not_before = time(parsed.validity().not_before.timestamp());
        let not_after = time(parsed.validity().not_after.timestamp());
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let alternatives = alternatives.map(|found| found.value.general_names.as_slice());
        let mut names: Vec<_> = alternatives
            .unwrap_or_default()
            .iter()
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(canonical(name)),
                GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ip.to_string()),
                _ => None,
            })
            .collect();
        names.sort();
        names.dedup();
        Ok(Self { key, not_before, not_after, names, chain })
    }

    /// Returns when to ask for the next one: after two thirds of the time, or half of a short one.
    pub(crate) fn renewed_at(&self) -> SystemTime {
        let valid = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + if valid < SHORT_LIVED { valid / 2 } else { valid / 3 * 2 }
    }
}

fn canonical(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_ascii_lowercase(), |address| address.to_string())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use time::OffsetDateTime;

    use super::*;

    fn options(folder: &std::path::Path, names: &[&str]) -> AcmeOptions {
        AcmeOptions {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            email: None,
            directory: "https://acme.example/directory".to_owned(),
            root: None,
            folder: folder.to_owned(),
        }
    }

    /// Makes a certificate that became valid and becomes invalid so many hours from now.
    fn pem(names: &[&str], from: i64, to: i64) -> String {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = OffsetDateTime::now_utc() + time::Duration::hours(from);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::hours(to);
        let certificate = params.self_signed(&key).expect("a certificate");
        format!("{}{}", certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_kept_certificate_counts_for_its_names_its_authority_and_its_time() {
        let ground = tempfile::tempdir().expect("a folder");
        let names = ["Files.example.org", "2001:db8:0::1", "192.0.2.1"];
        let asked = options(&ground.path().join("acme"), &names);
        assert!(asked.read().is_none());
        asked.keep(&pem(&names, -1, 1)).expect("it is written");
        assert!(asked.read().is_some());
        assert!(options(&asked.folder, &["Files.example.org"]).read().is_none());
        let elsewhere = AcmeOptions { directory: "https://other.example/".into(), ..asked.clone() };
        assert!(elsewhere.read().is_none());
        asked.keep(&pem(&names, -2, -1)).expect("it is written");
        assert!(asked.read().is_none(), "it has expired");
        asked.keep("nothing").expect("it is written");
        assert!(asked.read().is_none());
    }

    #[test]
    fn a_certificate_is_renewed_well_before_it_expires() {
        let hours_from_now = |from, to| {
            let issued = Issued::parse(&pem(&["a.example"], from, to)).expect("a certificate");
            let left = issued.renewed_at().duration_since(SystemTime::now());
            left.map_or(0, |left| (left.as_secs() + 60) / 3600)
        };
        assert_eq!(hours_from_now(0, 90 * 24), 60 * 24);
        assert_eq!(hours_from_now(0, 160), 80);
        assert_eq!(hours_from_now(-100, 60), 0);
    }

    #[test]
    fn names_that_no_certificate_can_have_are_refused() {
        let folder = std::path::Path::new("/nowhere");
        for wrong in ["", "*.example.org", "a b", "../x", "a..b", "[::1]", "a_b.example", "a/b"] {
            assert!(options(folder, &[wrong]).check().is_err(), "{wrong}");
        }
        assert!(options(folder, &[]).check().is_err());
        assert_eq!(options(folder, &["a.example", "192.0.2.1", "2001:db8::1"]).check(), Ok(()));
        let clear = AcmeOptions { directory: "http://a".into(), ..options(folder, &["a.example"]) };
        assert!(clear.check().is_err());
        let asked = options(folder, &["2001:db8::1"]);
        assert_eq!(asked.certificate_file(), folder.join("2001_db8__1.pem"));
        assert_eq!(asked.account_file(), folder.join("account-acme.example.json"));
    }
}
