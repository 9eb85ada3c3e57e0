//! `headroom ui`: the page on one's own machine.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use headroom_transfer::client::TIMEOUT;
use headroom_transfer::ssh::Ssh;
use headroom_transfer::trust::KnownHosts;
use headroom_transfer::{Host, block_on};
use headroom_ui::{ConnectOptions, Error, FleetOptions, Options, Resolved, Ui};
use serde_json::json;

use super::arguments::Ui as Arguments;
use super::exit::Usage;
use super::hosts::Hosts;
use super::settings;
use crate::output::print_line as say;

pub(crate) fn ui(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = std::env::var("HEADROOM_SSH").ok().filter(|command| !command.is_empty());
    let command = arguments.ssh_command.clone().or(environment);
    let connect = ConnectOptions {
        identity: settings::file_or(arguments.identity.as_deref(), "identity")?,
        known_hosts: settings::file("known_hosts")?,
        resolve,
        suggest,
        ssh: command.map_or_else(|| Ok(Ssh::default()), |command| Ssh::new(&command))?,
        timeout: TIMEOUT,
    };
    let options = Options {
        address: arguments.listen,
        connect,
        servers: arguments.servers.clone(),
        folder: std::env::current_dir().context("cannot find the current directory")?,
        program: std::env::current_exe().context("cannot find this program's own file")?,
        fleets: FleetOptions { states: settings::fleets(), jobs: arguments.fleets.clone() },
    };
    block_on(async {
        let ui = Ui::bind(options).await.map_err(|error| match error {
            Error::NotLoopback(_) | Error::Server(_) | Error::Fleet(_) => {
                Usage(error.to_string()).into()
            }
            error => anyhow::Error::from(error),
        })?;
        let url = ui.url();
        let address = ui.address();
        say(&match arguments.json {
            true => {
                json!({"event": "page", "url": url, "address": address.to_string()}).to_string()
            }
            false => format!(
                "The page is at {url}\nThe address has a secret: who has it can read and write your files. Ctrl-C ends the page."
            ),
        });
        let launcher = if arguments.no_open { None } else { open(&url, address.port()) };
        let control = ui.control();
        let is_asked = AtomicBool::new(false);
        let interrupted = move || {
            let (transfers, runs) = control.active();
            if transfers + runs > 0 && !is_asked.swap(true, Ordering::Relaxed) {
                eprintln!(
                    "headroom: {transfers} transfers and {runs} runs of the lab go on. Ctrl-C again stops them; what has arrived is kept"
                );
                return;
            }
            control.quit();
        };
        ctrlc::set_handler(interrupted).context("cannot wait for Ctrl-C")?;
        ui.serve().await;
        drop(launcher);
        Ok(ExitCode::SUCCESS)
    })?
}

fn resolve(host: &Host) -> Resolved {
    let file = settings::file("hosts.toml").map_err(|error| error.to_string())?;
    Ok(Hosts::read(&file)?.resolve(host))
}

/// Returns names of hosts.toml and of known hosts.
fn suggest() -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(hosts) = settings::file("hosts.toml").map(|file| Hosts::read(&file)) {
        names.extend(hosts.unwrap_or_default().names().map(str::to_owned));
    }
    if let Ok(Ok(known)) = settings::file("known_hosts").map(|file| KnownHosts::read(&file)) {
        names.extend(known.names().map(typed));
    }
    names.dedup();
    names
}

/// Writes a name of known_hosts as it is typed: `[host]:77` is `host:77`.
fn typed(name: &str) -> String {
    match name.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((host, port)) if !host.contains(':') => format!("{host}:{port}"),
        _ => name.to_owned(),
    }
}

/// A file that leads a browser to the page. The arguments of a program are visible to everybody on
/// this machine, and the page's address has a secret: the browser is given the name of this file,
/// which only its owner can read.
struct Launcher(PathBuf);

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Starts the browser; without one the printed address is what there is.
fn open(url: &str, port: u16) -> Option<Launcher> {
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = runtime.or_else(|| settings::file("").ok())?;
    let path = folder.join(format!("headroom-ui-{port}.html"));
    let launcher = write_launcher(&path, url).ok()?;
    let started = Command::new("xdg-open")
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => {
            std::thread::spawn(move || child.wait());
            Some(launcher)
        }
        Err(_) => {
            eprintln!(
                "headroom: no browser was started: there is no xdg-open. Open the address above"
            );
            None
        }
    }
}

fn write_launcher(path: &Path, url: &str) -> std::io::Result<Launcher> {
    let _ = std::fs::remove_file(path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let launcher = Launcher(path.to_owned());
    // a URL of our own: an address, and letters, digits, `-` and `_`
    writeln!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>Headroom</title>"
    )?;
    Ok(launcher)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn known_hosts_are_suggested_as_they_are_typed() {
        for (known, as_typed) in [("nas", "nas"), ("[nas]:77", "nas:77"), ("[::1]:77", "[::1]:77")]
        {
            assert_eq!(typed(known), as_typed);
        }
    }

    #[test]
    fn only_the_owner_can_read_the_file_that_leads_to_the_page() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ui.html");
        let launcher = write_launcher(&path, "http://127.0.0.1:1/#token=x").expect("it is written");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(launcher);
        assert!(!path.exists());
    }
}
