//! The programs of strongSwan: the daemon and its command, of the system or the cache, or, for
//! ML-KEM, strongSwan 6 of another release.

use headroom_lab_host::command::{Command, quote};
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::Host;
use headroom_lab_host::package_tree::PackageTree;
use headroom_lab_host::programs::{Origin, Program, SearchPath};

use super::options::Parameters;
use crate::layer::{Place, kernel};

pub(super) const CHARON: Program = Program::new("charon-systemd", "charon-systemd", &[]);
pub(super) const SWANCTL: Program = Program::new("swanctl", "strongswan-swanctl", &["--version"]);

/// Plugins and libraries have this path compiled in.
const LIBRARIES: &str = "/usr/lib/ipsec";

/// The part of strongSwan 6 that Debian does not build; `scripts/fetch-parts` does, if it
/// finds a compiler.
const ML_KEM: &str = "usr/lib/ipsec/plugins/libstrongswan-ml.so";

/// Refuses a machine without strongSwan 6.
///
/// # Errors
/// [`Error::Missing`]: what it lacks.
pub(super) fn require_post_quantum() -> Result<()> {
    let tree = tree_of_this_machine();
    tree.require()?;
    if tree.path().join(ML_KEM).is_file() {
        return Ok(());
    }
    Err(Error::Missing(format!(
        "strongSwan in {} has no ML-KEM: install gcc, remove that folder, and run scripts/fetch-parts \
         --with-ike-peers",
        tree.path().display()
    )))
}

/// Refuses a host without strongSwan 6, which may be another machine.
///
/// # Errors
/// [`Error::Missing`]: which host lacks it.
pub(super) fn require_post_quantum_on(place: &Place<'_>, host: &Host) -> Result<()> {
    let plugin = PackageTree::of_ike_peers(host.program_cache()).path().join(ML_KEM);
    let found = host.really(|| place.run(host, "test", ["-f", &plugin.display().to_string()]));
    found.map(drop).map_err(|_| {
        Error::Missing(format!(
            "the {} has no strongSwan 6 with ML-KEM: run scripts/fetch-parts --with-ike-peers there",
            host.role
        ))
    })
}

/// Returns the version of strongSwan 6.
pub(super) fn post_quantum_version() -> String {
    let version = tree_of_this_machine().version("charon-systemd");
    version.unwrap_or_else(|_| "6".to_owned())
}

fn tree_of_this_machine() -> PackageTree {
    let search_path = SearchPath::from_environment();
    PackageTree::of_ike_peers(search_path.cache().parent().unwrap_or(search_path.cache()))
}

/// The daemon, with its variables and, from the cache, its plugins where it
/// looks for them: behind a copy of `/usr/lib` made of links.
pub(super) fn start(parameters: &Parameters, host: &Host, settings: &str) -> Result<Command> {
    let mut script = format!("export STRONGSWAN_CONF={}", quote(settings));
    if parameters.post_quantum {
        let tree = PackageTree::of_ike_peers(host.program_cache());
        script += &libraries_from(&tree.path().display().to_string());
        script += r#" && exec "$@""#;
        let words = tree.loading("usr/sbin/charon-systemd");
        return Ok(Command::new(
            "sh",
            ["-c", &script, "sh"].into_iter().map(str::to_owned).chain(words),
        ));
    }
    let located = host.located(CHARON)?;
    let program = located.path.display().to_string();
    if located.origin == Origin::Cache
        && let Some(root) = located.path.ancestors().nth(3)
    {
        script += &libraries_from(&root.display().to_string());
    }
    for (name, value) in located.environment.iter().filter(|(name, _)| *name != "STRONGSWAN_CONF") {
        script += &format!(" && export {name}={}", quote(value));
    }
    script += r#" && exec "$0""#;
    Ok(Command::new("sh", ["-c", &script, &program]))
}

/// Puts the libraries of a tree of packages where the daemon looks for them.
fn libraries_from(root: &str) -> String {
    let libraries = quote(&format!("{root}{LIBRARIES}"));
    format!(
        " && mkdir /run/real /run/links && mount --bind /usr/lib /run/real \
         && ln -s /run/real/* /run/links && ln -sfn {libraries} /run/links/ipsec \
         && mount --bind /run/links /usr/lib"
    )
}

/// Runs `swanctl` against this instance's daemon.
pub(super) fn swanctl(
    parameters: &Parameters,
    place: &Place<'_>,
    host: &Host,
    words: &[&str],
) -> Result<String> {
    let settings = format!("STRONGSWAN_CONF={}", place.path(host, "strongswan.conf"));
    // where it looks for keys and certificates
    let folder = format!("SWANCTL_DIR={}", place.dir(host).display());
    let socket = socket(place, host);
    let mut swanctl = if parameters.post_quantum {
        let tree = PackageTree::of_ike_peers(host.program_cache());
        Command::from(Vec::from(tree.loading("usr/sbin/swanctl")))
    } else {
        Command::new(SWANCTL, [""; 0])
    };
    swanctl.args(words.iter().copied()).args(["--uri", &socket]);
    host.run(&Command::new("env", [&settings, &folder]).running(swanctl))
}

fn socket(place: &Place<'_>, host: &Host) -> String {
    format!("unix://{}", place.path(host, "vici"))
}

/// Returns the daemon's `strongswan.conf`.
pub(super) fn settings(parameters: &Parameters, place: &Place<'_>, host: &Host) -> String {
    format!(
        "swanctl {{\n  load = {swanctl}\n}}
charon-systemd {{
  load = random nonce openssl pem pkcs1 pkcs8 x509 pubkey constraints kdf {ml}{counters}{libipsec}kernel-netlink socket-default vici
  port = 0
  port_nat_t = {port}
  routing_table = {table}
  install_routes = {routes}
  keep_alive = 0
  install_virtual_ip = no
  plugins {{
    vici {{ socket = {socket} }}
    kernel-libipsec {{ allow_peer_ts = yes }}
  }}
  journal {{ default = -1 }}
  filelog {{ stderr {{ default = 1 }} }}
}}
",
        // strongSwan 6 takes no name for all
        swanctl = if parameters.post_quantum { "pem" } else { "" },
        ml = if parameters.post_quantum { "ml " } else { "" },
        counters = if parameters.rekey.is_some() { "counters " } else { "" },
        libipsec = if kernel::has_esp() { "" } else { "kernel-libipsec " },
        routes = if kernel::has_esp() { "no" } else { "yes" },
        port = place.at.port(),
        table = 10_000 + u32::from(place.at.number),
        socket = socket(place, host),
    )
}
