//! Makes the configuration of a gateway that many clients reach, and what the clients need.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;

use headroom_suite::Key;
use rcgen::ExtendedKeyUsagePurpose;
use zeroize::Zeroizing;

use super::keygen::Error;
use super::keygen_ike::{Authority, IPSEC_IKE, Made, check, write_all};

/// The most clients or users of one request.
const MAX_PEERS: usize = 1000;
/// The letters of passwords: 32 that are not mistaken for each other, so that each has 5 bits.
const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz23456789-";
/// The length of a password: 120 bits.
const PASSWORD_LEN: usize = 24;

/// The settings of a new gateway with a pool of addresses.
#[derive(Debug, Clone)]
pub struct PoolRequest {
    /// The name of the tunnel and its interface, at all ends.
    pub name: String,
    /// The gateway's outer address.
    pub gateway: IpAddr,
    /// A DNS name of the gateway, which clients of other systems are given.
    pub gateway_name: Option<String>,
    /// The network behind the gateway.
    pub network: String,
    /// The network of the clients' addresses.
    pub pool: String,
    /// Who may connect.
    pub peers: Peers,
    /// The folder for the files.
    pub folder: PathBuf,
}

/// Who may connect to a new gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// Hosts with Headroom, each with a certificate of its own.
    Clients(Vec<String>),
    /// Users with passwords (EAP-MSCHAPv2), for the clients of other systems.
    Users(Vec<String>),
}

impl PoolRequest {
    /// Writes `gateway.toml` with its certificate, the authority, and for each client its
    /// configuration and certificate, or for each user a password; readable only by their owner.
    /// Returns the configurations, that of the gateway first. Never overwrites a file.
    ///
    /// # Errors
    /// The settings are invalid, or a file exists or cannot be written.
    pub fn write(&self) -> Result<Vec<PathBuf>, Error> {
        let names = match &self.peers {
            Peers::Clients(names) | Peers::Users(names) => names,
        };
        self.check_names(names)?;
        let (authority, mut files) = Authority::new(&self.name)?;
        let called = match &self.gateway_name {
            Some(name) => name.clone(),
            None => format!("gateway.{}", self.name),
        };
        let ipsec = || ExtendedKeyUsagePurpose::Other(IPSEC_IKE.to_vec());
        let mut purposes = vec![ipsec()];
        // what clients of other systems look for
        purposes.push(ExtendedKeyUsagePurpose::ServerAuth);
        files.extend(authority.issue("gateway", (called.clone(), Some(self.gateway)), purposes)?);
        let gateway = format!("{}local_id = \"{called}\"\n", authority.lines_of("gateway"));
        let mut configurations = Vec::new();
        let mut add = |name: &str, text: String, proof: &str| -> Result<(), Error> {
            check(&text, proof)?;
            let name = format!("{name}.toml");
            configurations.push(Made { name, text: Zeroizing::new(text) });
            Ok(())
        };
        let Self { name: tunnel, network, pool, gateway: address, .. } = self;
        match &self.peers {
            Peers::Clients(names) => {
                let text = format!(
                    "name = \"{tunnel}\"\n[ike]\nlocal = \"{address}\"\nremote = \"any\"\npool = \"{pool}\"\n\
                     {gateway}[[child]]\nlocal = \"{network}\"\n"
                );
                add("gateway", text, &gateway)?;
                for name in names {
                    let called = (format!("{name}.{tunnel}"), None);
                    files.extend(authority.issue(name, called, vec![ipsec()])?);
                    let proof = authority.lines_of(name);
                    let text = format!(
                        "name = \"{tunnel}\"\n[ike]\nremote = \"{address}\"\nremote_id = \"{called}\"\n\
                         address = \"request\"\n{proof}[[child]]\nremote = \"{network}\"\n",
                        called = self.called()
                    );
                    add(name, text, &proof)?;
                }
            }
            Peers::Users(names) => {
                let users: String = names
                    .iter()
                    .map(|name| {
                        format!(
                            "[[ike.user]]\nname = \"{name}\"\npassword_file = \"{name}.password\"\n"
                        )
                    })
                    .collect();
                // users have no certificates: nothing is checked with the authority here
                let own = "cert_file = \"gateway.pem\"\nkey_file = \"gateway.key\"\n";
                let proof = format!(
                    "{own}local_id = \"{called}\"\neap = \"mschapv2\"\npost_quantum = \"preferred\"\n{users}"
                );
                let text = format!(
                    "name = \"{tunnel}\"\n[ike]\nlocal = \"{address}\"\nremote = \"any\"\npool = \"{pool}\"\n\
                     {proof}[[child]]\nlocal = \"{network}\"\n"
                );
                add("gateway", text, &proof)?;
                for name in names {
                    let name = format!("{name}.password");
                    files.push(Made { name, text: password()? });
                }
            }
        }
        write_all(&self.folder, configurations.iter().chain(&files))?;
        Ok(configurations.iter().map(|one| self.folder.join(&one.name)).collect())
    }

    fn called(&self) -> String {
        self.gateway_name.clone().unwrap_or_else(|| format!("gateway.{}", self.name))
    }

    /// Checks names that become those of files and of certificates.
    fn check_names(&self, names: &[String]) -> Result<(), Error> {
        let refused = |message: String| Err(Error::Refused(message));
        if names.is_empty() || names.len() > MAX_PEERS {
            return refused(format!("name 1 to {MAX_PEERS} clients or users"));
        }
        let is_dns = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let may = |byte: u8| match self.peers {
            Peers::Clients(_) => is_dns(byte),
            Peers::Users(_) => is_dns(byte) || matches!(byte, b'.' | b'_' | b'@'),
        };
        let mut seen = HashSet::new();
        let taken = ["gateway".to_owned(), format!("{}-ca", self.name)];
        for name in names {
            let fits = (1..=63).contains(&name.len())
                && name.bytes().all(may)
                && name.as_bytes()[0].is_ascii_alphanumeric();
            if !fits {
                return refused(format!("`{name}` is not a name of letters, digits and hyphens"));
            }
            if taken.contains(name) || !seen.insert(name.to_ascii_lowercase()) {
                return refused(format!("`{name}` is there twice"));
            }
        }
        let is_name = |name: &String| {
            name.split('.').all(|part| !part.is_empty() && part.bytes().all(is_dns))
        };
        match self.gateway_name.as_ref().filter(|name| !is_name(name)) {
            Some(name) => refused(format!("`{name}` is not a DNS name")),
            None => Ok(()),
        }
    }
}

/// Draws a password.
fn password() -> Result<Zeroizing<String>, Error> {
    let mut text = Zeroizing::new(String::with_capacity(PASSWORD_LEN + 1));
    for byte in Key::generate(PASSWORD_LEN)?.as_bytes() {
        text.push(char::from(LETTERS[usize::from(byte % 32)]));
    }
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::config::{Config, Purpose};

    /// A request to write to a folder that is not there yet.
    fn request(ground: &TempDir, peers: Peers) -> PoolRequest {
        PoolRequest {
            name: "vpn".to_owned(),
            gateway: [192, 0, 2, 1].into(),
            gateway_name: None,
            network: "10.1.0.0/16".to_owned(),
            pool: "10.9.0.0/24".to_owned(),
            peers,
            folder: ground.path().join("new"),
        }
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    fn read(path: &Path) -> Config {
        Config::read(path, Purpose::Decode).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn writes_a_gateway_and_a_configuration_for_each_client() {
        let ground = tempfile::tempdir().expect("a folder");
        let request = request(&ground, Peers::Clients(names(&["alice", "bob"])));
        let files = request.write().expect("it is written");
        assert_eq!(files.len(), 3);
        let gateway = read(&files[0]);
        for (file, name) in files[1..].iter().zip(["alice", "bob"]) {
            let client = read(file);
            let peer = &client.ike[0];
            assert_eq!(peer.remote_id.as_ref(), Some(&gateway.ike[0].local_id));
            assert_eq!(peer.local_id.to_string(), format!("{name}.vpn"));
        }
        assert!(request.write().is_err(), "it overwrites nothing");
    }

    #[test]
    fn writes_a_gateway_and_a_password_for_each_user() {
        let peers = Peers::Users(names(&["alice", "bob@example.org"]));
        let ground = tempfile::tempdir().expect("a folder");
        let gateway_name = Some("vpn.example.org".into());
        let request = PoolRequest { gateway_name, ..request(&ground, peers) };
        let files = request.write().expect("it is written");
        assert_eq!(files.len(), 1);
        let gateway = read(&files[0]);
        assert_eq!(gateway.ike[0].local_id.to_string(), "vpn.example.org");
        let password = |name: &str| {
            let file = request.folder.join(format!("{name}.password"));
            std::fs::read_to_string(file).expect("a password").trim().to_owned()
        };
        let (alice, bob) = (password("alice"), password("bob@example.org"));
        assert_eq!((alice.len(), bob.len()), (PASSWORD_LEN, PASSWORD_LEN));
        assert_ne!(alice, bob);
    }

    #[test]
    fn refuses_names_that_are_no_files_and_networks_that_are_none() {
        let ground = tempfile::tempdir().expect("a folder");
        let request = |peers| request(&ground, peers);
        let refused = |request: PoolRequest| {
            assert!(matches!(request.write(), Err(Error::Refused(_))), "{request:?}");
            assert!(!request.folder.exists(), "nothing is written");
        };
        for name in ["", "..", "../a", "a/b", "a b", "a\"", ".a", "gateway", "vpn-ca", "ä"] {
            refused(request(Peers::Users(names(&[name]))));
            refused(request(Peers::Clients(names(&[name]))));
        }
        refused(request(Peers::Clients(names(&["a.b"]))));
        refused(request(Peers::Clients(names(&["a", "A"]))));
        refused(request(Peers::Clients(Vec::new())));
        let peers = || Peers::Clients(names(&["a"]));
        refused(PoolRequest { pool: "10.9".into(), ..request(peers()) });
        refused(PoolRequest { network: "x\"".into(), ..request(peers()) });
        refused(PoolRequest { gateway_name: Some("a..b".into()), ..request(peers()) });
    }
}
