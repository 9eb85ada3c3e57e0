//! Pure-FTPd, the server of `ftp` and `ftps`.

use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::{OPENSSL, Program};
use headroom_lab_host::role::Role;

use super::{Site, site::FTP_USER, tls::Tls};

pub(super) const PURE_FTPD: Program =
    Program::new("pure-ftpd", "pure-ftpd", &["--help"]).only_on(Role::Server);
pub(super) const PURE_PW: Program = Program::new("pure-pw", "pure-ftpd", &[]).only_on(Role::Server);

pub(super) fn server(site: &Site<'_>, tls: Option<&Tls>) -> Result<ServerSpec> {
    // md5-crypt: pure-pw itself would hash with argon2id, 2.3 s for each login
    let salted = Command::new(OPENSSL, ["passwd", "-1", "-salt", "headroom", FTP_USER.1]);
    let hash = site.host.ask(&salted, "(what this printed)")?;
    let mut private_files = vec![
        (site.credential_path("passwd"), "/etc/passwd"),
        (site.credential_path("group"), "/etc/group"),
        (site.credential_path("resolv.conf"), "/etc/resolv.conf"),
    ];
    let (user, hash, home) = (FTP_USER.0, hash.trim(), site.files.display());
    let accounts = if site.host.has_one_user_id() {
        // Its own accounts must not be root's, and there is nobody else: an account of the
        // system's, in a folder that it cannot leave (-A). A system without a file of shadow
        // passwords has nothing to hide, so the account's own line has the password.
        let account = format!("{user}:{hash}:0:0::{home}/./:/bin/sh\n");
        private_files[0].0 = site.write("passwd", &account)?.into();
        let shadow = site.write("shadow", &format!("{user}:{hash}:19000:0:99999:7:::\n"))?;
        private_files.push((shadow.into(), "/etc/shadow"));
        private_files.push((site.write("shells", "/bin/sh\n")?.into(), "/etc/shells"));
        ["-l", "unix", "-A", "-u", "0"].map(String::from).to_vec()
    } else {
        let entry = format!("{user}:{hash}:65534:65534::{home}/./:::::::::::::\n");
        let accounts = site.write("accounts", &entry)?;
        let database = site.dir.join("accounts.pdb").display().to_string();
        site.host.run(&Command::new(PURE_PW, ["mkdb", &database, "-f", &accounts]))?;
        ["-l", &format!("puredb:{database}"), "-u", "1"].map(String::from).to_vec()
    };

    // -H no names, -E no anonymous, -f none no syslog, -u least uid, -C any
    // number of clients from one address
    let listen = format!("{},{}", site.server.ip(), site.server.port());
    let mut command = Command::new(PURE_FTPD, ["-S", &listen]);
    command.args(accounts);
    command.args(["-H", "-E", "-c", "200", "-C", "200", "-f", "none", "-g"]);
    command.args([site.dir.join("pid").display().to_string()]);
    if let Some(ports) = &site.passive_ports {
        command.args(["-p".to_owned(), format!("{}:{}", ports.start(), ports.end())]);
    }
    if let Some(tls) = tls {
        // -Y 2: a session that does not protect itself is refused
        command.args(["-Y", "2", "-2", &tls.server_pem(site)?]);
    } else {
        command.args(["-Y", "0"]);
    }
    let spec = ServerSpec::new(site.host.with_groups(command));
    Ok(ServerSpec { private_files, run_folders: &["/run/pure-ftpd"], ..spec })
}
