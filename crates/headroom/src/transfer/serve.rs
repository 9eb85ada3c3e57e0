//! `headroom serve`, and the far end of `--ssh`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use headroom_page::{
    AcmeOptions, CertificateSource, DEFAULT_METRICS_PORT, Intervals, Metrics, Page,
};
use headroom_transfer::server::{Limits, Options, PathPolicy, Served, StoreOptions, roots_below};
use headroom_transfer::trust::{
    AccessPolicy, AuthorizedKeys, Followed, Invitation, Invitations, Shares,
};
use headroom_transfer::{DEFAULT_PORT, Error, Identity, Server, block_on};
use sd_notify::NotifyState;
use serde_json::json;

use super::arguments::{Serve, ServeOnce};
use super::exit::Usage;
use super::request_log::RequestLog;
use super::serving::Registered;
use super::settings;
use super::shutdown::Signals;
use crate::output::print_line as say;

/// The port to which ACME authorities connect (RFC 8737).
const ACME_PORT: u16 = 443;

pub(crate) fn serve(arguments: &Serve) -> anyhow::Result<ExitCode> {
    // before any thread is started
    let signals = Signals::block()?;
    let identity = settings::identity(arguments.identity.as_deref())?;
    let log = Arc::new(RequestLog::open(arguments.log.as_deref(), arguments.log_format)?);
    block_on(async {
        let served = served(arguments).await?;
        let (policy, followed) = policy(arguments, &served).await?;
        let options = |listen| Options {
            root: served.clone(),
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
            Some(listen) => Server::bind(&identity, options(listen)),
            // where there is no IPv6
            None => Server::bind(&identity, options(any(Ipv6Addr::UNSPECIFIED.into())))
                .or_else(|_| Server::bind(&identity, options(any(Ipv4Addr::UNSPECIFIED.into())))),
        };
        let server = server.map_err(with_remedy)?;
        signals.end(server.clone(), arguments.drain, arguments.json)?;
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
                arguments.shown_root().display()
            ));
        }
        let page = page(arguments, &server, &identity)?;
        let metrics = metrics(arguments, &server)?;
        let _registered = Registered::new(arguments, &identity, address, page.as_ref());
        if let Some(age) = arguments.keep_partial.0 {
            server.remove_unfinished(age);
        }
        if let Some(metrics) = metrics {
            metrics.start();
        }
        let _ = sd_notify::notify(&[NotifyState::Ready]); // if a service manager asked for it
        if let Some(page) = page {
            let mut intervals = Intervals::default();
            if let Some(milliseconds) = arguments.web_rotate {
                intervals.sessions = Duration::from_millis(milliseconds.max(100));
            }
            page.start_with(intervals);
        }
        match followed {
            Some(file) => server.serve_following(file, policy.clone()).await,
            None => server.serve().await,
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        server.close().await;
        Ok(ExitCode::SUCCESS)
    })?
}

/// Starts to listen for those who want metrics, if anybody may, and prints where they are.
fn metrics(arguments: &Serve, server: &Server) -> anyhow::Result<Option<Metrics>> {
    let Some(address) = arguments.metrics else { return Ok(None) };
    let here = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_METRICS_PORT);
    let metrics = Metrics::bind(server, address.unwrap_or(here)).context("--metrics")?;
    let (address, url) = (metrics.address(), metrics.url());
    if !address.ip().is_loopback() {
        eprintln!(
            "headroom: warning: anyone who can reach {address} can read this server's counts, without a key and without encryption"
        );
    }
    if arguments.json {
        say(&json!({"event": "metrics", "url": url, "address": address.to_string()}).to_string());
    } else {
        say(&format!("metrics are at {url}"));
    }
    Ok(Some(metrics))
}

/// Starts the page, and prints where it is and an invitation, if they are wanted.
fn page(arguments: &Serve, server: &Server, identity: &Identity) -> anyhow::Result<Option<Page>> {
    let Some(address) = arguments.web else { return Ok(None) };
    let own = settings::file("web.pem")?;
    let names = &arguments.web_acme;
    let certificate = match (&arguments.web_cert, &arguments.web_key) {
        (Some(certificate), Some(key)) => {
            CertificateSource::Files { certificate: certificate.clone(), key: key.clone() }
        }
        _ if names.is_empty() => CertificateSource::SelfSigned(own),
        _ => {
            let options = AcmeOptions {
                names: names.clone(),
                email: arguments.web_acme_email.clone(),
                directory: directory(arguments).to_owned(),
                root: arguments.web_acme_root.clone(),
                folder: settings::file("acme")?,
            };
            CertificateSource::Acme { options, meanwhile: own }
        }
    };
    let root = match arguments.store {
        Some(_) => Some(arguments.shown_root()),
        None => arguments.shown_root().canonicalize().ok(),
    };
    let root_name = root.as_deref().and_then(|root| Some(root.file_name()?.to_string_lossy()));
    let options = |address| headroom_page::Options {
        address,
        certificate: certificate.clone(),
        names: names.iter().chain(&arguments.web_name).cloned().collect(),
        root_name: root_name.as_deref().unwrap_or("/").to_owned(),
        anonymous_read: arguments.anonymous.is_some(),
    };
    let bind = |address| Page::bind(server, identity, options(address));
    let port = if names.is_empty() { headroom_page::DEFAULT_PORT } else { ACME_PORT };
    let beside = SocketAddr::new(server.address()?.ip(), port);
    let page = bind(address.unwrap_or(beside))?;
    if let Some(shares) = shares(arguments)? {
        server.set_shares(identity.public(), shares, &page.url());
    }
    let secret = arguments.invite.as_ref().map(|options| {
        let path = settings::file_or(arguments.authorized_keys.as_deref(), "authorized_keys")?;
        let invitation = Invitation::new(&path, options.as_deref().unwrap_or_default())
            .map_err(|wrong| Usage(format!("--invite: {wrong}")))?;
        let invitations = Invitations::default();
        let secret = invitations.open(invitation).context("cannot make an invitation")?;
        server.set_invitations(invitations);
        anyhow::Ok(secret)
    });
    let invitation = secret.transpose()?.map(|secret| page.invitation_url(&secret));
    let (url, hash) = (page.url(), page.certificate_hash());
    if arguments.json {
        say(&json!({"event": "page", "url": url, "address": page.address().to_string(), "certificate": hash, "self_signed": page.is_self_signed(), "invitation": invitation}).to_string());
        return Ok(Some(page));
    }
    say(&format!("the page is at {url}"));
    if page.is_self_signed() && !names.is_empty() {
        say(&format!("{} is asked for its certificate; until that is there", directory(arguments)));
    }
    if page.is_self_signed() {
        say(&format!(
            "browsers warn of its certificate. Its SHA-256 fingerprint, to compare, is {hash}"
        ));
    }
    if let Some(invitation) = invitation {
        say(&format!("one browser is let in, once and within an hour, by {invitation}"));
    }
    Ok(Some(page))
}

/// Opens the file of share links. Without one there are none.
fn shares(arguments: &Serve) -> anyhow::Result<Option<Shares>> {
    let path = match &arguments.shares {
        Some(path) => path.clone(),
        None => match settings::file("shares") {
            Ok(folder) => {
                let root = arguments.shown_root();
                let root = match arguments.store {
                    Some(_) => root,
                    None => root
                        .canonicalize()
                        .with_context(|| format!("cannot find {}", root.display()))?,
                };
                folder.join(headroom_transfer::trust::root_name(&root))
            }
            Err(error) => {
                tracing::warn!("{error:#}: there are no share links without --shares");
                return Ok(None);
            }
        },
    };
    let shares = match Shares::open(&path) {
        // a service may have no place to write to; a file that is damaged is another matter
        Err(error @ headroom_transfer::trust::Error::System { .. })
            if arguments.shares.is_none() =>
        {
            tracing::warn!("{error}: there are no share links without --shares");
            return Ok(None);
        }
        opened => opened.map_err(Error::from)?,
    };
    if shares.is_none() {
        tracing::warn!("another server uses {}: this one has no share links", path.display());
    }
    Ok(shares)
}

fn directory(arguments: &Serve) -> &str {
    arguments.web_acme_directory.as_deref().unwrap_or(headroom_page::LETS_ENCRYPT)
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

/// Adds the remedy to the error of a port that another program has.
fn with_remedy(error: Error) -> Error {
    match error {
        Error::System { doing, cause } if cause.kind() == io::ErrorKind::AddrInUse => {
            let remedy = format!(
                "{cause}. Does another `headroom serve` run? --listen ADDRESS:PORT chooses another port"
            );
            Error::System { doing, cause: io::Error::new(cause.kind(), remedy) }
        }
        other => other,
    }
}

/// What is served: a directory, or an object store, which is opened.
async fn served(arguments: &Serve) -> anyhow::Result<Served> {
    let Some(url) = &arguments.store else { return Ok(arguments.shown_root().into()) };
    let options = StoreOptions { spool: arguments.spool.clone(), read_back: arguments.read_back };
    Ok(Served::store(url, options).await?)
}

/// Who comes in, by what was said and by the user's settings, and the file that may
/// say otherwise later.
async fn policy(
    arguments: &Serve,
    served: &Served,
) -> anyhow::Result<(AccessPolicy, Option<Followed>)> {
    let authority = settings::authority(arguments.ca.as_deref())?;
    let anonymous_read = arguments.anonymous.is_some();
    let path = settings::file_or(arguments.authorized_keys.as_deref(), "authorized_keys");
    let named = arguments.authorized_keys.is_some();
    let followed = path.as_ref().ok().map(|path| Followed::new(path));
    let expected = path
        .as_ref()
        .map_or_else(|_| "authorized_keys".to_owned(), |path| path.display().to_string());
    let keys = match path {
        Ok(path) if named || path.exists() => AuthorizedKeys::read(&path).map_err(Error::from)?,
        _ => AuthorizedKeys::default(),
    };
    let keys = match &followed {
        Some(file) => {
            let (keys, wrong) = roots_below(keys, served, file.path()).await?;
            wrong.into_iter().next().map_or(Ok(keys), |wrong| Err(Error::from(wrong)))?
        }
        None => keys,
    };
    let invites = arguments.invite.is_some();
    if keys.is_empty()
        && authority.is_none()
        && !anonymous_read
        && !invites
        && arguments.web.is_none()
    {
        bail!(Usage(format!(
            "no client could connect: put public keys of clients, as their `headroom identity` prints them, into {expected} (--authorized-keys names another file), or use --anonymous read"
        )));
    }
    Ok((AccessPolicy { keys, authority, anonymous_read }, followed))
}
