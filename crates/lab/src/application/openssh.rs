//! OpenSSH, the server of `sftp`, `scp`, `rsync` and `ssh`, and the options of
//! its clients.

use std::path::PathBuf;

use headroom_lab_host::command::{Command, quote};
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;
use headroom_lab_host::role::Role;
use headroom_lab_results::schema::WAITS;
use headroom_lab_trace::Login;

use super::Site;
use crate::catalogue::{Fact, Options, stated};
use crate::properties::Properties;
use crate::units;

pub(super) const SSHD: Program =
    Program::new("sshd", "openssh-server", &["-V"]).only_on(Role::Server);

/// Pinned on both sides: the cipher that hardware is best at.
pub(super) const CIPHER: &str = "aes128-gcm@openssh.com";
const CONFIGURATION: &str = "sshd_config";

/// How both sides agree on keys; nothing else is offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum KeyExchange {
    /// X25519 (RFC 8731).
    #[default]
    Curve25519,
    /// X25519 with Streamlined NTRU Prime, which resists quantum computers
    /// (draft-josefsson-ntruprime-ssh).
    Sntrup761,
    /// X25519 with ML-KEM-768, which resists quantum computers, too
    /// (draft-ietf-sshm-mlkem-hybrid-kex).
    Mlkem768,
}

impl KeyExchange {
    /// Its name in OpenSSH: of sntrup761 from 9.0 on, of ML-KEM from 9.9 on.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Curve25519 => "curve25519-sha256",
            Self::Sntrup761 => "sntrup761x25519-sha512@openssh.com",
            Self::Mlkem768 => "mlkem768x25519-sha256",
        }
    }
}

/// What stacks choose of both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) key_exchange: KeyExchange,
    /// Bytes after which either side asks for new keys; none: OpenSSH's own limit, which for this
    /// cipher is 64 GiB (RFC 4344, section 3.2).
    pub(super) rekey_bytes: Option<u64>,
}

/// The options that choose a key exchange other than X25519.
const HYBRIDS: [(&str, KeyExchange); 2] =
    [("mlkem768", KeyExchange::Mlkem768), ("sntrup761", KeyExchange::Sntrup761)];
const REKEY: &str = "rekey=";
/// OpenSSH's smallest limit (readconf.c: "RekeyLimit too small").
const MIN_REKEY: u64 = 16;

impl Choice {
    /// Lists the options that choose, for `headroom lab list` and messages.
    pub(super) fn known() -> String {
        "mlkem768, sntrup761 (keys that resist quantum computers, with X25519; OpenSSH 9.9, 8.5), \
         rekey=64MB (new keys after so many bytes)"
            .to_owned()
    }

    /// Reads it from options, and returns these in the order of results.
    ///
    /// # Errors
    /// A sentence that names the wrong option.
    pub(super) fn read(options: &Options<'_>) -> std::result::Result<(Vec<String>, Self), String> {
        let mut choice = Self::default();
        let (mut key_exchange, mut rekeying) = (None, None);
        for option in options.iter() {
            let hybrid = HYBRIDS.iter().find(|(known, _)| *known == option);
            let rekey = option.strip_prefix(REKEY);
            match (hybrid, rekey) {
                (Some(&(_, one)), _) if choice.key_exchange == KeyExchange::default() => {
                    choice.key_exchange = one;
                    key_exchange = Some(option.to_owned());
                }
                (None, Some(bytes)) if choice.rekey_bytes.is_none() => {
                    choice.rekey_bytes = Some(rekey_bytes(bytes)?);
                    rekeying = Some(option.to_owned());
                }
                _ => return Err(options.unknown(option)),
            }
        }
        Ok((key_exchange.into_iter().chain(rekeying).collect(), choice))
    }

    /// Returns the properties of SSH with this choice.
    pub(super) fn properties(self) -> Properties {
        let post_quantum = self.key_exchange != KeyExchange::default();
        Properties { post_quantum, ..Properties::SSH }
    }

    /// The line of the server's configuration, or the client's option, that sets it.
    fn rekey_limit(self, separator: char) -> Option<String> {
        self.rekey_bytes.map(|bytes| format!("RekeyLimit{separator}{bytes}"))
    }
}

fn rekey_bytes(text: &str) -> std::result::Result<u64, String> {
    let bytes = units::parse_size(text)?;
    let too_small = || format!("`rekey={text}`: OpenSSH takes {MIN_REKEY} bytes at least");
    (bytes >= MIN_REKEY).then_some(bytes).ok_or_else(too_small)
}

/// The largest window that OpenSSH opens for a channel (channels.h,
/// `CHAN_SES_WINDOW_DEFAULT`: 64 packets of 32 KiB).
pub(super) const CHANNEL_WINDOW: u64 = 64 * 32 * 1024;

pub(super) fn server(site: &Site<'_>) -> Result<ServerSpec> {
    server_with(site, Choice::default())
}

/// The same with what a stack chooses.
pub(super) fn server_with(site: &Site<'_>, choice: Choice) -> Result<ServerSpec> {
    let public = site.host.read(&site.credential_path("user_key.pub"))?;
    site.write("authorized_keys", &public)?;
    let configuration = site.write(CONFIGURATION, &configuration(site, choice, 0))?;
    let mut private_files = vec![
        (site.credential_path("passwd"), "/etc/passwd"),
        (site.credential_path("shadow"), "/etc/shadow"),
        (site.credential_path("group"), "/etc/group"),
    ];
    private_files.extend(names(site)?);
    let command = Command::new(SSHD, ["-D", "-e", "-f", &configuration]);
    let spec = ServerSpec::new(site.host.with_groups(command));
    Ok(ServerSpec { private_files, run_folders: &["/run/sshd"], ..spec })
}

/// Seconds that a login may take: more than any does.
const HOUR: u32 = 3600;

/// The server's configuration, the `nth` that means the same: no login takes an hour.
fn configuration(site: &Site<'_>, choice: Choice, nth: u32) -> String {
    format!(
        "Port {port}
ListenAddress {address}
HostKey {host_key}
AuthorizedKeysFile {keys}
StrictModes no
UsePAM no
UseDNS {use_dns}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
PrintMotd no
PrintLastLog no
MaxStartups 100
LoginGraceTime {grace}
LogLevel INFO
Ciphers {CIPHER}
KexAlgorithms {key_exchange}
{rekey_limit}Subsystem sftp internal-sftp
",
        grace = HOUR + nth,
        key_exchange = choice.key_exchange.name(),
        rekey_limit = choice.rekey_limit(' ').map_or_else(String::new, |line| line + "\n"),
        use_dns = if site.resolver.is_some() { "yes" } else { "no" },
        port = site.server.port(),
        address = site.server.ip(),
        host_key = site.credential("host_key"),
        keys = site.path("authorized_keys").display(),
    )
}

/// The files that say how names are found: nowhere, so that it takes no time; or by
/// the host's name server alone. An empty `hosts` has it asked for the address of a
/// tunnel's end on this host too.
fn names(site: &Site<'_>) -> Result<Vec<(PathBuf, &'static str)>> {
    let Some(resolver) = site.resolver else {
        return Ok(vec![
            (site.credential_path("resolv.conf"), "/etc/resolv.conf"),
            (site.credential_path("nsswitch.conf"), "/etc/nsswitch.conf"),
        ]);
    };
    let accounts = site.host.read(&site.credential_path("nsswitch.conf"))?;
    let files = [
        ("resolv.conf", format!("nameserver {resolver}\n"), "/etc/resolv.conf"),
        (
            "nsswitch.conf",
            accounts.replace("hosts: files", "hosts: files dns"),
            "/etc/nsswitch.conf",
        ),
        ("hosts", String::new(), "/etc/hosts"),
    ];
    let written = files.into_iter().map(|(name, content, to)| {
        site.write(name, &content)?;
        Ok((site.path(name), to))
    });
    written.collect()
}

/// The options of `ssh`, `sftp` and `scp`: nothing of the user's own
/// configuration, this run's key, the pinned algorithms.
pub(super) fn options(site: &Site<'_>) -> Vec<String> {
    options_with(site, Choice::default())
}

/// The same with what a stack chooses.
pub(super) fn options_with(site: &Site<'_>, choice: Choice) -> Vec<String> {
    let mut options: Vec<String> = ["-F", "none", "-q", "-i"].map(String::from).to_vec();
    options.push(site.credential("user_key"));
    for option in [
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "GlobalKnownHostsFile=/dev/null",
        "UpdateHostKeys=no",
        "PreferredAuthentications=publickey",
        "Compression=no",
    ] {
        options.extend(["-o".to_owned(), option.to_owned()]);
    }
    options.extend(["-o".to_owned(), format!("Ciphers={CIPHER}")]);
    options.extend(["-o".to_owned(), format!("KexAlgorithms={}", choice.key_exchange.name())]);
    options.extend(choice.rekey_limit('=').into_iter().flat_map(|limit| ["-o".to_owned(), limit]));
    options
}

/// Returns the command by which a shell on the server starts a program; one in the cache
/// needs its libraries named.
pub(super) fn remote_program(site: &Site<'_>, program: Program) -> Result<String> {
    let located = site.peer.located(program)?;
    let variables =
        located.environment.iter().map(|(name, value)| format!("{name}={}", quote(value)));
    let words: Vec<String> = variables.chain([located.path.display().to_string()]).collect();
    Ok(if words.len() > 1 { format!("env {}", words.join(" ")) } else { words.concat() })
}

/// Returns the time at which the server logged an accepted login (auth.c, `auth_log`).
pub(super) fn login_ns(log: &[(u64, String)]) -> Option<u64> {
    log.iter().find(|(_, line)| line.contains("Accepted publickey for")).map(|(at, _)| *at)
}

/// A login by what its answers measure under the pinned cipher: the length (4),
/// padding of at least four to a multiple of sixteen, the tag (16) (RFC 4253 §6,
/// RFC 5647 §7). `SSH_MSG_SERVICE_ACCEPT` of "ssh-userauth" has 17 bytes,
/// `SSH_MSG_USERAUTH_SUCCESS` has one (RFC 4252 §5.1).
pub(super) const LOGIN: Login = Login { opened: 4 + 32 + 16, granted: 4 + 16 + 16 };

/// A server answers the first, always refused attempt to log in no sooner than after
/// 5 to 9.3 ms, doubled until it is longer than the attempt took (auth2.c,
/// `ensure_minimum_time_since`). Which, it derives from its keys and from the text of its
/// configuration (sshd.c, `accumulate_host_timing_secret`).
pub(super) fn reseed_login_delay(site: &Site<'_>, nth: u32) -> Result<Option<&'static str>> {
    reseed_with(site, Choice::default(), nth)
}

/// The same with what a stack chooses.
pub(super) fn reseed_with(
    site: &Site<'_>,
    choice: Choice,
    nth: u32,
) -> Result<Option<&'static str>> {
    site.write(CONFIGURATION, &configuration(site, choice, nth))?;
    Ok(Some("Server listening"))
}
const WHY_IT_WAITS: &str = "sshd delays the answer to the first login attempt by 5 to 9.3 ms, or a multiple of that; \
                            without a terminal OpenSSH uses Nagle's algorithm, so the message after NEWKEYS waits for \
                            a delayed acknowledgement, 40 ms on a short path (docs/studies/layering). The rest is key \
                            exchange and process start";

pub(super) fn facts() -> Vec<Fact> {
    facts_with(Choice::default())
}

/// The same with what a stack chooses.
pub(super) fn facts_with(choice: Choice) -> Vec<Fact> {
    let mut facts = stated([
        ("encryption", "SSH 2"),
        ("cipher", CIPHER),
        ("key exchange", choice.key_exchange.name()),
        ("key", "Ed25519, host and user"),
        ("compression", "off"),
        ("verification", "each packet by SSH, none of the whole file"),
        (WAITS, WHY_IT_WAITS),
    ]);
    facts.extend(
        choice
            .rekey_bytes
            .map(|bytes| ("new keys", format!("after {}", units::chosen_size(bytes)))),
    );
    facts
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use super::*;
    use headroom_lab_host::command::Executor;
    use headroom_lab_host::host::Host;
    use headroom_lab_host::programs::SearchPath;
    use headroom_lab_host::role::Role;

    #[test]
    fn each_draw_is_another_text_that_means_the_same() {
        let executor = Arc::new(Executor::dry(SearchPath::from_environment()));
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (root, headroom) = ("/tmp/root".into(), "/bin/headroom".into());
        let host = Host::new(Role::Server, address, root, headroom, String::new(), executor, None);
        let site = Site {
            host: &host,
            peer: &host,
            dir: "/tmp/root/applications/ssh".into(),
            files: "/tmp/root/files".into(),
            server: (address, 22).into(),
            resolver: None,
            passive_ports: None,
        };
        let [one, other] = [1, 2].map(|nth| configuration(&site, Choice::default(), nth));
        assert_ne!(one, other);
        let said = |text: &str| -> Vec<String> {
            text.lines()
                .filter(|line| !line.starts_with("LoginGraceTime "))
                .map(String::from)
                .collect()
        };
        assert_eq!(said(&one), said(&other));
    }
}
