//! Lists what the machines of a plan lack of the programs that it needs: this machine, or
//! two real hosts with a role each.

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::programs::{
    ETHTOOL, IP, NSENTER, Program, SYSCTL, SearchPath, TC, names, packages, parts,
};
use crate::role::Role;

/// The machines of a plan.
#[derive(Debug)]
pub enum Machines {
    /// This one, which is both hosts.
    Here(SearchPath),
    /// Two real ones.
    Real(Vec<RealHost>),
}

/// A real host that was looked at.
#[derive(Debug)]
pub struct RealHost {
    pub(crate) role: Role,
    /// As the plan names it.
    pub(crate) host: String,
    pub(crate) machine: Machine,
    /// The programs of the plan that it needs in this role.
    pub(crate) needed: Vec<Program>,
    /// Those of them that it has not.
    pub(crate) missing: Vec<Program>,
}

impl Machines {
    /// Refuses where a machine lacks one of these programs that it needs.
    ///
    /// # Errors
    /// [`Error::Missing`] with one sentence that names all that is missing, host by host.
    pub fn require(&self, programs: &[Program]) -> Result<()> {
        let hosts = match self {
            Self::Here(search_path) => return search_path.require(programs),
            Self::Real(hosts) => hosts,
        };
        let mut sentences = Vec::new();
        for host in hosts {
            let wanted = needed(programs, host.role);
            let lacks: Vec<Program> =
                host.missing.iter().copied().filter(|one| wanted.contains(one)).collect();
            if !lacks.is_empty() {
                sentences.push(host.lacks(&lacks));
            }
        }
        if sentences.is_empty() { Ok(()) } else { Err(Error::Missing(sentences.join("; "))) }
    }
}

impl RealHost {
    /// Whether it lacks nothing, and what was found.
    pub fn says(&self) -> (bool, String) {
        let Machine { kernel, distribution, .. } = &self.machine;
        let found = format!("Linux {kernel}, {distribution}");
        if self.missing.is_empty() {
            (true, format!("{found}; has {}", names(&self.needed).join(", ")))
        } else {
            (false, format!("{found}; {}", self.lacks(&self.missing)))
        }
    }

    /// Names what is missing and what to do about it where there is no checkout.
    fn lacks(&self, programs: &[Program]) -> String {
        let names = names(programs);
        format!(
            "missing on the {} {}: {} (install {} there, or copy scripts/fetch-parts there and run \
             `./fetch-parts {}`, which installs nothing)",
            self.role,
            self.host,
            names.join(", "),
            packages(programs).join(", "),
            parts(programs).join(" ")
        )
    }
}

/// The programs of a plan that a real host of this role needs.
/// The link between real hosts is theirs: nothing makes or shapes it. The server makes
/// certificates and keys, and starts servers in mount namespaces of their own.
pub fn needed(programs: &[Program], role: Role) -> Vec<Program> {
    const OF_THE_LINK: [Program; 4] = [TC, ETHTOOL, NSENTER, SYSCTL];
    let needs_it = |program: &Program| program.only_on.is_none_or(|only| only == role);
    let mut needed: Vec<Program> = programs
        .iter()
        .chain([&IP])
        .filter(|program| needs_it(program) && !OF_THE_LINK.contains(program))
        .copied()
        .collect();
    needed.sort();
    needed.dedup();
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::{OPENSSL, SSH, TESTBED};

    const NGINX: Program = Program::new("nginx", "nginx-light", &[]).only_on(Role::Server);
    const PURE_FTPD: Program = Program::new("pure-ftpd", "pure-ftpd", &[]).only_on(Role::Server);
    const SSHD: Program = Program::new("sshd", "openssh-server", &[]).only_on(Role::Server);
    const RSYNC: Program = Program::new("rsync", "rsync", &[]);

    fn machines(client: &[Program], server: &[Program]) -> Machines {
        let host = |role, host: &str, missing: &[Program]| RealHost {
            role,
            host: host.to_owned(),
            machine: Machine::this(),
            needed: Vec::new(),
            missing: missing.to_vec(),
        };
        Machines::Real(vec![host(Role::Client, "near", client), host(Role::Server, "far", server)])
    }

    #[test]
    fn everything_missing_on_both_hosts_is_named_at_once() {
        let programs = [PURE_FTPD, OPENSSL, NGINX, RSYNC, SSHD, SSH];
        let lacking = machines(&[RSYNC, SSH], &[NGINX, OPENSSL, PURE_FTPD, RSYNC]);
        let said = lacking.require(&programs).expect_err("much is missing").to_string();
        for words in [
            "missing on the client near: rsync, ssh (install openssh-client, rsync there",
            "missing on the server far: nginx, openssl, pure-ftpd, rsync",
            "copy scripts/fetch-parts there and run `./fetch-parts nginx openssl",
        ] {
            assert!(said.contains(words), "`{words}` is not in: {said}");
        }
        lacking.require(&[SSHD]).expect("nobody lacks that");
    }

    #[test]
    fn a_host_needs_what_its_role_needs() {
        let all: Vec<Program> = TESTBED.iter().copied().chain([NGINX, SSH, SSHD, RSYNC]).collect();
        let client = needed(&all, Role::Client);
        let server = needed(&all, Role::Server);
        assert!(!client.contains(&NGINX) && server.contains(&NGINX));
        assert!(client.contains(&SSH) && !server.contains(&SSH));
        for needed in [client, server] {
            assert!(needed.contains(&RSYNC) && needed.contains(&IP) && !needed.contains(&TC));
        }
        // the client lacks what only the server needs
        machines(&[NGINX], &[SSH]).require(&[NGINX, SSH]).expect("each has its own");
    }
}
