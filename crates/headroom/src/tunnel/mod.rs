//! `headroom tunnel`: runs a gateway, and controls a running one; `headroom ipsec`.

mod arguments;
mod background;
mod buffered;
mod decode;
mod trace;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use headroom_gateway::config::{Config, Purpose, keygen};
use headroom_gateway::control::check::{self, Severity};
use headroom_gateway::control::{self, Client, Error, Options, RunFolder, metrics};
use headroom_gateway::wireshark;

use crate::output::print_line;
pub(crate) use arguments::Command;
use arguments::{Keygen, Mode, OtherEnd, Proof, Protocol, Tunnel, Up};

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Tunnel(command) => tunnel(command),
        Command::Ipsec(command) => decode::run(command),
    }
}

/// Returns the exit code of an error of these commands.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    let tunnel = error.downcast_ref().map(Error::exit_code);
    tunnel.or_else(|| error.downcast_ref().map(keygen::Error::exit_code))
}

fn tunnel(command: Tunnel) -> anyhow::Result<ExitCode> {
    let folder = RunFolder::default();
    let client = |name: Option<String>| Client::of(&folder, name.as_deref());
    match command {
        Tunnel::Up(arguments) => return up(&arguments),
        Tunnel::Down { name } => {
            let client = client(name)?;
            print_warnings(&client.down()?);
            print_line(&format!("{} is down", client.name()));
        }
        Tunnel::Status { name, json, prometheus } => {
            let status = client(name)?.status()?;
            print_line(&match (json, prometheus) {
                (true, _) => serde_json::to_string_pretty(&status)?,
                (_, true) => metrics::prometheus(&status).trim_end().to_owned(),
                _ => status.to_string(),
            });
        }
        Tunnel::Trace { name, json, count } => {
            print_warnings(&client(name)?.trace(count, |record| trace::show(record, json))?);
        }
        Tunnel::Reload { name, new_keys } => {
            let client = client(name)?;
            print_warnings(&client.reload(new_keys)?);
            print_line(&format!("{} has reloaded its configuration", client.name()));
        }
        Tunnel::Keygen(arguments) => generate(*arguments)?,
        Tunnel::Check { file } => return check(&file, &folder),
        Tunnel::Wireshark { file } => {
            let config = Config::read(&file, Purpose::Decode).map_err(Error::from)?;
            let (lines, notes) = wireshark::esp_keys(&config);
            print_warnings(&notes);
            print_line(lines.trim_end());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn up(arguments: &Up) -> anyhow::Result<ExitCode> {
    let file = std::path::absolute(&arguments.file).context("cannot find the current folder")?;
    // the gateway in the background has another working folder
    let key_log = arguments.keylog.as_deref().map(std::path::absolute).transpose();
    let key_log = key_log.context("cannot find the folder of the log of keys")?;
    let (new_keys, run) = (arguments.new_keys, RunFolder::default());
    let options = Options { file, new_keys, key_log, run };
    if arguments.dry_run {
        let (commands, warnings) = control::dry_run(&options)?;
        print_warnings(&warnings);
        print_line(commands.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.background {
        return background::start(&options);
    }
    if arguments.detached {
        background::detach();
    }
    control::run(
        &options,
        |words| eprintln!("headroom: {words}"),
        || {
            if arguments.detached {
                print_line(background::READY);
            }
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the findings about a configuration. The exit code is 1 if the tunnel cannot work.
fn check(file: &Path, folder: &RunFolder) -> anyhow::Result<ExitCode> {
    let file = std::path::absolute(file).context("cannot find the current folder")?;
    let findings = check::check(&file, folder)?;
    for finding in &findings {
        print_line(&finding.to_string());
    }
    let failed = findings.iter().any(|finding| finding.severity == Severity::Failure);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Makes the files of a gateway for many clients.
fn generate_for_many(arguments: Keygen) -> anyhow::Result<()> {
    let refused = |error: &str| Err(keygen::Error::Refused(error.to_owned()).into());
    let Some((network, pool)) = arguments.local_net.zip(arguments.pool) else {
        return refused("for many clients --local-net and --pool are needed");
    };
    if arguments.remote_net.is_some() || arguments.mode == Some(Mode::Transport) {
        return refused("clients have addresses of the pool: remove --remote-net and --mode");
    }
    let is_for_users = arguments.ike == Some(Proof::Eap);
    let peers = match arguments.ike {
        Some(Proof::Certificates) if arguments.users.is_empty() => {
            keygen::Peers::Clients(arguments.clients)
        }
        Some(Proof::Eap) if arguments.clients.is_empty() => keygen::Peers::Users(arguments.users),
        _ => {
            return refused(
                "many clients need --ike=certificates with --client, or --ike=eap with --user",
            );
        }
    };
    let authority = arguments.out.join(format!("{}-ca.pem", arguments.name));
    let request = keygen::PoolRequest {
        name: arguments.name,
        gateway: arguments.left,
        gateway_name: arguments.gateway_name,
        network,
        pool,
        peers,
        folder: arguments.out,
    };
    let files = request.write()?;
    let (gateway, at) = (files[0].display(), request.gateway);
    let authority = authority.display();
    print_line(&match is_for_users {
        true => format!(
            "Wrote {gateway} for {at}, a password for each user, and {authority}, which users install to \
             recognize the gateway.\nBring the tunnel up with `headroom tunnel up FILE`."
        ),
        false => format!(
            "Wrote {gateway} for {at}, a configuration for each of {} clients, and {authority} for all.\n\
             Bring the tunnel up with `headroom tunnel up FILE` at all ends.",
            files.len() - 1
        ),
    });
    Ok(())
}

fn generate(arguments: Keygen) -> anyhow::Result<()> {
    let refused = |error: String| keygen::Error::Refused(error);
    let right = match (arguments.right, &arguments.pool) {
        (OtherEnd::Any, _) => return generate_for_many(arguments),
        (OtherEnd::At(_), Some(_)) => {
            return Err(
                refused("--pool is for many clients: write any as the other end".into()).into()
            );
        }
        (OtherEnd::At(address), None) => address,
    };
    if arguments.local_net.is_some() != arguments.remote_net.is_some() {
        return Err(refused("--local-net and --remote-net need each other".into()).into());
    }
    let networks = match (arguments.mode, arguments.local_net.zip(arguments.remote_net)) {
        (Some(Mode::Tunnel), None) => {
            return Err(refused("tunnel mode needs --local-net and --remote-net".into()).into());
        }
        (Some(Mode::Transport), Some(_)) => {
            return Err(refused(
                "transport mode protects the traffic between the two hosts: remove the networks"
                    .into(),
            )
            .into());
        }
        (_, networks) => networks,
    };
    let name = &arguments.name;
    let both = match arguments.ike {
        None => None,
        Some(Proof::Psk) => Some((keygen::Proof::SharedKey, format!("{name}.psk"))),
        Some(Proof::Certificates) => Some((keygen::Proof::Certificates, format!("{name}-ca.pem"))),
        Some(Proof::Eap) => {
            return Err(
                refused("--ike=eap is for many users: write any as the other end".into()).into()
            );
        }
    };
    let shared = both.as_ref().map(|(_, file)| arguments.out.join(file));
    let others = arguments.out.join("right.*");
    let request = keygen::Request {
        name: arguments.name,
        left: arguments.left,
        right,
        protocol: match arguments.protocol {
            Protocol::Esp => keygen::Protocol::Esp,
            Protocol::Ah => keygen::Protocol::Ah,
            Protocol::AhEsp => keygen::Protocol::AhEsp,
            Protocol::Qesp => keygen::Protocol::QEsp,
        },
        networks,
        suite: arguments.suite.parse().map_err(|error| refused(format!("{error}")))?,
        mac: arguments.mac.parse().map_err(|error| refused(format!("{error}")))?,
        udp: arguments.udp,
        ike: both.map(|(proof, _)| proof),
        folder: arguments.out,
    };
    let [left, right] = request.write()?;
    let others = others.display();
    if let Some(shared) = shared {
        let shared = shared.display();
        print_line(&format!(
            "Wrote {} for {}, {} for {}, and {shared} for both.\n\
             Copy {others} and {shared} to the other end over a channel that you trust, and delete {others} here.\n\
             Bring the tunnel up with `headroom tunnel up FILE` at both ends.",
            left.display(),
            request.left,
            right.display(),
            request.right
        ));
        return Ok(());
    }
    print_line(&format!(
        "Wrote {} for {} and {} for {}, each with its ledger.\n\
         Copy {others} to the other end over a channel that you trust, and delete them here.\n\
         Bring the tunnel up with `headroom tunnel up FILE` at both ends.",
        left.display(),
        request.left,
        right.display(),
        request.right
    ));
    Ok(())
}

/// Prints warnings to standard error.
pub(crate) fn print_warnings(warnings: &[String]) {
    warnings.iter().for_each(|warning| eprintln!("headroom: warning: {warning}"));
}
