//! Where the queue of a job is, if several machines share it.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{Wrong, local, number, wrong};

/// How many addresses a job names.
const SERVERS: RangeInclusive<usize> = 1..=16;
const REPLICAS: RangeInclusive<u32> = 1..=5;

/// The NATS servers that keep a job's queue and state, and how to connect to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatsServers {
    /// Their addresses: `nats://HOST[:PORT]`, or `tls://HOST[:PORT]` with TLS.
    pub servers: Vec<String>,
    /// How many servers keep each message.
    pub replicas: u32,
    /// A file with a JWT and the seed of its key, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// Authorities that are trusted instead of the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its private key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl NatsServers {
    /// Whether the connection must be encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.ca.is_some() || self.servers.iter().any(|server| server.starts_with("tls://"))
    }
}

/// The table `[nats]` of a job file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NatsFile {
    servers: Spanned<Vec<String>>,
    replicas: Option<Spanned<u32>>,
    credentials: Option<Spanned<String>>,
    ca: Option<Spanned<String>>,
    certificate: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
}

impl NatsFile {
    pub(super) fn checked(self, folder: &Path) -> Result<NatsServers, Wrong> {
        let servers = self.servers.get_ref();
        if !SERVERS.contains(&servers.len()) {
            let reason = format!("`servers` has {} to {}", SERVERS.start(), SERVERS.end());
            return Err(wrong(&self.servers, reason));
        }
        for server in servers {
            check_server(server).map_err(|reason| wrong(&self.servers, reason))?;
        }
        let default = if servers.len() < 3 { 1 } else { 3 };
        let replicas = number("replicas", self.replicas.as_ref(), &REPLICAS, default)?;
        if let Some(written) = self.replicas.as_ref().filter(|_| replicas.is_multiple_of(2)) {
            let reason = "`replicas` is 1, 3 or 5: an even number survives no more failures";
            return Err(wrong(written, reason.to_owned()));
        }
        let path = |text: &Option<Spanned<String>>| {
            let text = text.as_ref();
            text.map(|text| local(text.get_ref(), folder).map_err(|reason| wrong(text, reason)))
                .transpose()
                .map(|path| path.map(PathBuf::from))
        };
        let certificate = match (path(&self.certificate)?, path(&self.key)?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let reason = "`certificate` and `key` belong together";
                return Err(wrong(&self.servers, reason.to_owned()));
            }
        };
        let (credentials, ca) = (path(&self.credentials)?, path(&self.ca)?);
        let servers = self.servers.into_inner();
        Ok(NatsServers { servers, replicas, credentials, ca, certificate })
    }
}

/// Checks an address. One with a password would be kept with the job, and shown.
fn check_server(server: &str) -> Result<(), String> {
    let rest = server.strip_prefix("nats://").or_else(|| server.strip_prefix("tls://"));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
    match rest {
        Some(rest) if rest.contains('@') => Err(
            "a password in a server's address would be kept with the job: name a file with `credentials`, or set NATS_USER and NATS_PASSWORD or NATS_TOKEN"
                .to_owned(),
        ),
        Some(rest) if !rest.is_empty() && rest.chars().all(is_plain) => Ok(()),
        _ => Err(format!("`{server}` is not an address: nats://HOST[:PORT], or tls:// for TLS")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;

    const MIN: &str = "name = \"a\"\nfrom = \"x\"\nto = \"host:\"\n[nats]\n";

    fn parse(text: &str) -> Result<Job, (usize, String)> {
        Job::parse(&format!("{MIN}{text}\n"), Path::new("/jobs"))
    }

    #[test]
    fn servers_are_read_with_defaults_and_kept() {
        let job = parse("servers = [\"nats://one\"]").expect("a job");
        let nats = job.nats.clone().expect("NATS");
        assert_eq!((nats.replicas, nats.is_encrypted()), (1, false));
        assert_eq!(Job::from_json(&job.to_json()), Ok(job));
        let job = parse(
            "servers = [\"tls://one:4222\", \"tls://two:4222\", \"tls://[::1]:4222\"]\n\
             credentials = \"fleet.creds\"\nca = \"/ca.pem\"\ncertificate = \"c\"\nkey = \"k\"",
        );
        let nats = job.expect("a job").nats.expect("NATS");
        assert_eq!((nats.replicas, nats.is_encrypted()), (3, true));
        assert_eq!(nats.credentials.as_deref(), Some(Path::new("/jobs/fleet.creds")));
        assert_eq!(nats.certificate, Some(("/jobs/c".into(), "/jobs/k".into())));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("servers = []", "`servers` has 1 to 16"),
            ("servers = [\"one:4222\"]", "is not an address"),
            ("servers = [\"nats://\"]", "is not an address"),
            ("servers = [\"nats://me:secret@one\"]", "a password"),
            ("servers = [\"nats://one\"]\nreplicas = 2", "1, 3 or 5"),
            ("servers = [\"nats://one\"]\nkey = \"k\"", "belong together"),
            ("replicas = 3", "servers"),
        ] {
            let (_, reason) = parse(text).expect_err(text);
            assert!(reason.contains(words), "{text}: {reason}");
            assert!(!reason.contains("secret"), "{reason}");
        }
    }

    #[test]
    fn another_machine_may_have_the_local_folder_elsewhere() {
        let job = parse("servers = [\"nats://one\"]").expect("a job");
        let mut elsewhere = job.clone();
        elsewhere.from = "/mnt/x".to_owned();
        assert_eq!(job.difference_elsewhere(&elsewhere), None);
        elsewhere = job.clone();
        elsewhere.to = "other:".to_owned();
        assert!(job.difference_elsewhere(&elsewhere).is_some());
    }
}
