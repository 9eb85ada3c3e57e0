//! `headroom serve`, and the far end of `--ssh`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use headroom_gateway::control::notify;
use headroom_transfer::files::Root;
use headroom_transfer::server::{Limits, Options, PathPolicy};
use headroom_transfer::trust::{AccessPolicy, AuthorizedKeys, Followed};
use headroom_transfer::{DEFAULT_PORT, Error, Server, block_on};
use serde_json::json;

use super::arguments::{Serve, ServeOnce};
use super::exit::Usage;
use super::request_log::RequestLog;
use super::settings;
use crate::output::print_line as say;

pub(crate) fn serve(arguments: &Serve) -> anyhow::Result<ExitCode> {
    let identity = settings::identity(arguments.identity.as_deref())?;
    let (policy, followed) = policy(arguments)?;
    let log = Arc::new(RequestLog::open(arguments.log.as_deref(), arguments.log_format)?);
    block_on(async {
        let options = |listen| Options {
            root: arguments.root.clone(),
            listen,
            policy: policy.clone(),
            limits: Limits::default(),
            paths: PathPolicy::BeneathRoot,
            rate_bps: arguments.rate,
            lanes: !arguments.streams,
            lane_ports: arguments.lane_ports.clone(),
            allow: arguments.allowed(),
            insecure_measurement: arguments.insecure_measurement,
            log: Some(log.clone()),
        };
        let any = |address| SocketAddr::new(address, DEFAULT_PORT);
        let server = match arguments.listen {
            Some(listen) => Server::bind(&identity, options(listen))?,
            // where there is no IPv6
            None => Server::bind(&identity, options(any(Ipv6Addr::UNSPECIFIED.into())))
                .or_else(|_| Server::bind(&identity, options(any(Ipv4Addr::UNSPECIFIED.into()))))?,
        };
        let stopping = server.clone();
        ctrlc::set_handler(move || stopping.stop()).context("cannot wait for Ctrl-C")?;
        let (address, fingerprint) = (server.address()?, identity.public().fingerprint());
        if arguments.insecure_measurement {
            eprintln!(
                "headroom: INSECURE: with --insecure-measurement, clients that ask for it move files WITHOUT ENCRYPTION. This is for measurement: stop this server when you are done"
            );
        }
        if arguments.json {
            let key = identity.public().to_string();
            say(&json!({"event": "listening", "address": address.to_string(), "fingerprint": fingerprint.to_string(), "key": key, "insecure_measurement": arguments.insecure_measurement}).to_string());
        } else {
            say(&format!(
                "serving {} at UDP {address}, as {fingerprint}",
                arguments.root.display()
            ));
        }
        if let Some(age) = arguments.keep_partial.0 {
            server.remove_unfinished(age);
        }
        notify::notify(notify::ServiceState::Ready);
        match followed {
            Some(file) => server.serve_following(file, policy.clone()).await,
            None => server.serve().await,
        }
        notify::notify(notify::ServiceState::Stopping);
        server.close().await;
        Ok(ExitCode::SUCCESS)
    })?
}

/// The far end of `--ssh`, which has a pipe for a client.
pub(crate) fn serve_once(arguments: &ServeOnce) -> anyhow::Result<ExitCode> {
    let ServeOnce { offer, client, ports, sent } = arguments;
    if *offer {
        say(&headroom_transfer::ssh::offer());
        return Ok(ExitCode::SUCCESS);
    }
    let client = format!("ssh-ed25519 {}", client.as_deref().unwrap_or_default());
    let client = client.parse().map_err(|error| Usage(format!("{error}")))?;
    let ports = ports.as_deref().and_then(|ports| {
        let (first, last) = ports.split_once('-')?;
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    let ports = ports.ok_or_else(|| Usage("--ports is a range such as 4860-4879".to_owned()))?;
    let once = headroom_transfer::ssh::OneShot { client, ports, sent: *sent };
    block_on(headroom_transfer::ssh::serve_once(&once))??;
    Ok(ExitCode::SUCCESS)
}

/// Who comes in, by what was said and by the user's settings, and the file that may
/// say otherwise later.
fn policy(arguments: &Serve) -> anyhow::Result<(AccessPolicy, Option<Followed>)> {
    let authority = settings::authority(arguments.ca.as_deref())?;
    let anonymous_read = arguments.anonymous.is_some();
    let path = settings::file_or(arguments.authorized_keys.as_deref(), "authorized_keys");
    let named = arguments.authorized_keys.is_some();
    let followed = path.as_ref().ok().map(|path| Followed::new(path));
    let keys = match path {
        Ok(path) if named || path.exists() => AuthorizedKeys::read(&path).map_err(Error::from)?,
        _ => AuthorizedKeys::default(),
    };
    let keys = match &followed {
        Some(file) => {
            let root = Root::open(&arguments.root).map_err(Error::from)?;
            let (keys, wrong) = keys.with_roots_below(&root, file.path());
            wrong.into_iter().next().map_or(Ok(keys), |wrong| Err(Error::from(wrong)))?
        }
        None => keys,
    };
    if keys.is_empty() && authority.is_none() && !anonymous_read {
        bail!(Usage(
            "no client could connect: put public keys of clients, as their `headroom identity` prints them, into ~/.config/headroom/authorized_keys or a file for --authorized-keys, or use --anonymous read"
                .to_owned()
        ));
    }
    Ok((AccessPolicy { keys, authority, anonymous_read }, followed))
}
