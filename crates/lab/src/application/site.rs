//! The files, addresses and credentials of an application on a host.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::{OPENSSL, Program};
use headroom_lab_host::role::Role;

/// Makes SSH keys.
pub(crate) const SSH_KEYGEN: Program =
    Program::new("ssh-keygen", "openssh-client", &[]).only_on(Role::Server);

/// Name and password of the FTP user; alone in the run's own namespaces.
pub(crate) const FTP_USER: (&str, &str) = ("lab", "lab");

/// The place of one application on one host.
#[derive(Debug)]
pub struct Site<'a> {
    /// The server's host for a server, the client's for a client.
    pub(crate) host: &'a Host,
    /// The other end.
    pub(crate) peer: &'a Host,
    /// This application's own folder on that host: configuration, keys, sockets.
    pub(crate) dir: PathBuf,
    /// The folder that the server serves; uploads go to `incoming` in it.
    pub(crate) files: PathBuf,
    /// The address on which the server listens.
    pub(crate) server: SocketAddr,
    /// The name server of this host, if programs are to ask one.
    pub(crate) resolver: Option<IpAddr>,
    /// Ports for FTP's data connections where a firewall may have to know them.
    pub(crate) passive_ports: Option<RangeInclusive<u16>>,
}

impl Site<'_> {
    /// Absolute path of a program.
    pub(crate) fn program(&self, program: Program) -> Result<String> {
        Ok(self.host.located(program)?.path.display().to_string())
    }

    /// Writes a file into this application's folder and returns its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<String> {
        let path = self.dir.join(name);
        self.host.write(&path, content)?;
        Ok(path.display().to_string())
    }

    /// A file of this application's own folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The same on the other host.
    pub(crate) fn peer_path(&self, name: &str) -> PathBuf {
        let inside = self.dir.strip_prefix(&self.host.root).unwrap_or(&self.dir);
        self.peer.root.join(inside).join(name)
    }

    /// Whether both hosts are this machine.
    pub(crate) fn shares_folders(&self) -> bool {
        self.host.root == self.peer.root
    }

    /// Path of one of the run's certificates, keys and account files.
    pub(crate) fn credential(&self, name: &str) -> String {
        self.credential_path(name).display().to_string()
    }

    pub(crate) fn credential_path(&self, name: &str) -> PathBuf {
        self.host.root.join("credentials").join(name)
    }

    /// The server's address as it stands in a URL: IPv6 in brackets.
    pub(crate) fn server_host(&self) -> String {
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

/// Makes the run's own certificate, SSH keys and account files on the server, and
/// copies to the client what it needs, unless they share their folders.
///
/// The accounts are the system's least: root without password, `nobody`, and
/// the user that sshd drops its privileges to.
///
/// The certificate holds for the `names` under which clients know the server; SSH keys are
/// made where a stack uses `keys`.
pub(crate) fn write_credentials(
    client: &Host,
    server: &Host,
    shared: bool,
    names: &[IpAddr],
    keys: bool,
) -> Result<()> {
    let dir = server.root.join("credentials");
    make_certificate(server, &dir, &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], names)?;
    let path = |name: &str| dir.join(name).display().to_string();
    for name in ["host_key", "user_key"].into_iter().filter(|_| keys) {
        let arguments = ["-q", "-t", "ed25519", "-N", "", "-C", "headroom-lab", "-f", &path(name)];
        server.run(&Command::new(SSH_KEYGEN, arguments))?;
    }
    // the user of sshd's unprivileged processes; with one user id they are separate processes
    let sshd = if server.has_one_user_id() { "0:0" } else { "110:65534" };
    let passwd = format!(
        "root:x:0:0:root:/run:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\nsshd:x:{sshd}::/run/sshd:/bin/false\n"
    );
    let files = [
        ("passwd", passwd.as_str()),
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
        server.write(&dir.join(name), content)?;
    }
    if !shared {
        // the last for the layers' daemons there
        let key = keys.then_some("user_key");
        for name in ["server.crt", "resolv.conf"].into_iter().chain(key) {
            let text = server.read(&dir.join(name))?;
            client.write(&client.root.join("credentials").join(name), &text)?;
        }
        // ssh refuses a key that others may read
        if keys {
            let key = client.root.join("credentials/user_key").display().to_string();
            client.run(&Command::new("chmod", ["600", &key]))?;
        }
    }
    Ok(())
}

/// Makes `server.key` and `server.crt` in a folder of that host: a key as `openssl req
/// -newkey` wants it named, and a certificate of it for these addresses.
pub(super) fn make_certificate(
    host: &Host,
    folder: &Path,
    key: &[&str],
    names: &[IpAddr],
) -> Result<()> {
    let names: Vec<String> = names.iter().map(|name| format!("IP:{name}")).collect();
    let names = format!("subjectAltName={}", names.join(","));
    let path = |name: &str| folder.join(name).display().to_string();
    let (private, certificate) = (path("server.key"), path("server.crt"));
    let mut words = vec!["req", "-x509", "-newkey"];
    words.extend(key);
    words.extend(["-nodes", "-days", "2", "-subj", "/CN=headroom-lab", "-addext", &names]);
    words.extend(["-keyout", &private, "-out", &certificate]);
    host.run(&Command::new(OPENSSL, words)).map(drop)
}
