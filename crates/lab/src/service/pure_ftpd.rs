//! Pure-FTPd, the server of `ftp` and `ftps`.

use super::{ServerSpec, Site, site::FTP_USER, tls::Tls};
use crate::command::Command;
use crate::error::Result;
use crate::parts;

pub(super) fn server(site: &Site<'_>, tls: Option<&Tls>) -> Result<ServerSpec> {
    // md5-crypt: pure-pw itself would hash with argon2id, 2.3 s for each login
    let salted = Command::new("openssl", ["passwd", "-1", "-salt", "headroom", FTP_USER.1]);
    let printed = site.host.run(&salted)?;
    let hash = if site.host.is_dry() { "(what this printed)" } else { printed.trim() };
    let entry =
        format!("{}:{}:65534:65534::{}/./:::::::::::::\n", FTP_USER.0, hash, site.files.display());
    let accounts = site.write("accounts", &entry)?;
    let database = site.dir.join("accounts.pdb").display().to_string();
    site.host.run(&Command::new("pure-pw", ["mkdb", &database, "-f", &accounts]))?;

    let mut argv = vec![site.program(parts::PURE_FTPD)?];
    // -H no names, -E no anonymous, -f none no syslog, -u any uid, -C any
    // number of clients from one address
    let port = site.server.port();
    let address = site.server.ip();
    argv.extend([
        "-S".into(),
        format!("{address},{port}"),
        "-l".into(),
        format!("puredb:{database}"),
    ]);
    argv.extend(
        ["-H", "-E", "-u", "1", "-c", "200", "-C", "200", "-f", "none", "-g"].map(String::from),
    );
    argv.push(site.dir.join("pid").display().to_string());
    if let Some(ports) = &site.passive_ports {
        argv.extend(["-p".into(), format!("{}:{}", ports.start(), ports.end())]);
    }
    if let Some(tls) = tls {
        // -Y 2: a session that does not protect itself is refused
        argv.extend(["-Y".into(), "2".into(), "-2".into(), tls.server_pem(site)?]);
    } else {
        argv.extend(["-Y".into(), "0".into()]);
    }
    Ok(ServerSpec {
        argv,
        private_files: vec![
            (site.credential_path("passwd"), "/etc/passwd"),
            (site.credential_path("group"), "/etc/group"),
            (site.credential_path("resolv.conf"), "/etc/resolv.conf"),
        ],
        run_folders: &["/run/pure-ftpd"],
        ready: None,
    })
}
