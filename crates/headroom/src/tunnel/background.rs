//! Starts a gateway in the background: the command starts itself again and waits for a line on its
//! output.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use headroom_gateway::config::{Config, Purpose};
use headroom_gateway::control::{Error, Options};

/// The line that the gateway prints when packets pass.
pub(crate) const READY: &str = "ready";

/// Starts the gateway and returns when it is up.
pub(crate) fn start(options: &Options) -> anyhow::Result<ExitCode> {
    let name = Config::read(&options.file, Purpose::Tunnel).map_err(Error::from)?.name;
    options.run.make()?;
    let log = options.run.log(&name);
    let mut open = OpenOptions::new();
    let file = open.write(true).create(true).truncate(true).mode(0o600).open(&log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    let own = std::env::current_exe().context("cannot find this program")?;
    let mut gateway = Command::new(own);
    gateway.args(["tunnel", "up", "--detached"]).arg(&options.file);
    if options.new_keys {
        gateway.arg("--new-keys");
    }
    if let Some(folder) = &options.key_log {
        gateway.arg("--keylog").arg(folder);
    }
    gateway.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    let mut gateway = gateway.spawn().context("cannot start the gateway")?;
    let mut line = String::new();
    if let Some(output) = gateway.stdout.take() {
        BufReader::new(output).read_line(&mut line).context("cannot read from the gateway")?;
    }
    let messages = std::fs::read_to_string(&log).unwrap_or_default();
    eprint!("{messages}");
    if line.trim() == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = gateway.wait().context("cannot wait for the gateway")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code.max(1)))
}

/// Leaves the terminal's session.
pub(crate) fn detach() {
    // fails only for a process that already leads a session
    let _ = nix::unistd::setsid();
    let _ = std::env::set_current_dir("/");
}
