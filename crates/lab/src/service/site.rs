//! Where a service finds its files, its address and its credentials.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::command::{Command, Executor};
use crate::error::{Doing, Result};
use crate::parts::Program;

/// Name and password of the FTP user; alone in the run's own namespaces.
pub(crate) const FTP_USER: (&str, &str) = ("lab", "lab");

/// The place of one service in a run.
#[derive(Debug)]
pub struct Site<'a> {
    /// Finds and runs programs.
    pub executor: &'a Executor,
    /// This service's own folder: configuration, keys, sockets.
    pub dir: PathBuf,
    /// The folder that the server serves; uploads go to `incoming` in it.
    pub files: PathBuf,
    /// The run's certificate, keys, `passwd` and so on.
    pub credentials: PathBuf,
    /// Where the server listens.
    pub server: SocketAddr,
    /// The executable of this program, which is also the FTP and HTTP client.
    pub headroom: PathBuf,
}

impl Site<'_> {
    /// Absolute path of a program.
    pub(crate) fn program(&self, program: Program) -> Result<String> {
        if self.executor.is_dry() {
            return Ok(program.name.to_owned());
        }
        Ok(self.executor.parts().locate(program)?.path.display().to_string())
    }

    /// Writes a file into this service's folder and returns its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<String> {
        let path = self.dir.join(name);
        self.executor.note(|| format!("cat > {} <<'EOF'\n{content}EOF", path.display()));
        if !self.executor.is_dry() {
            std::fs::write(&path, content).doing(|| format!("write {}", path.display()))?;
        }
        Ok(path.display().to_string())
    }

    pub(crate) fn credential(&self, name: &str) -> String {
        self.credentials.join(name).display().to_string()
    }

    /// The server's address as it stands in a URL: IPv6 in brackets.
    pub(crate) fn host(&self) -> String {
        bracketed(self.server.ip())
    }

    /// Absolute path on the server of a name relative to the served folder.
    pub(crate) fn remote(&self, name: &str) -> String {
        self.files.join(name).display().to_string()
    }
}

pub(crate) fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

/// Makes the run's own certificate, SSH keys and account files in `dir`.
///
/// The accounts are the system's least: root without password, `nobody`, and
/// the user that sshd drops its privileges to.
pub(crate) fn write_credentials(executor: &Executor, dir: &Path, server: IpAddr) -> Result<()> {
    let path = |name: &str| dir.join(name).display().to_string();
    let (key, certificate) = (path("server.key"), path("server.crt"));
    executor.run(&Command::new(
        "openssl",
        [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=headroom-lab",
            "-addext",
            &format!("subjectAltName=IP:{server}"),
            "-keyout",
            &key,
            "-out",
            &certificate,
        ],
    ))?;
    for name in ["host_key", "user_key"] {
        let arguments = ["-q", "-t", "ed25519", "-N", "", "-C", "headroom-lab", "-f", &path(name)];
        executor.run(&Command::new("ssh-keygen", arguments))?;
    }
    let files = [
        (
            "passwd",
            "root:x:0:0:root:/run:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\nsshd:x:110:65534::/run/sshd:/bin/false\n",
        ),
        (
            "shadow",
            "root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n",
        ),
        ("group", "root:x:0:\nnogroup:x:65534:\nnobody:x:65533:\n"),
        // no name server: a look-up fails at once instead of after ten seconds
        ("resolv.conf", ""),
        ("nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"),
    ];
    for (name, content) in files {
        executor.note(|| format!("printf %s {} > {}", crate::command::quote(content), path(name)));
        if !executor.is_dry() {
            std::fs::write(dir.join(name), content).doing(|| format!("write {}", path(name)))?;
        }
    }
    Ok(())
}
