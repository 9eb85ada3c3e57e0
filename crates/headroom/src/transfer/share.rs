//! `headroom share`: links by which somebody without a key fetches or sends files.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use data_encoding::BASE64URL_NOPAD;
use headroom_transfer::client::{Client, ShareOptions, Trust};
use headroom_transfer::path::{RelPath, shown};
use headroom_transfer::trust::KnownHosts;
use headroom_transfer::{Error, Host, Identity, PublicKey, RemotePath, ShareTerms, block_on};
use serde_json::{Value, json};

use super::arguments::{Connect, Share};
use super::connect::TrustedConnector;
use super::exit::Usage;
use super::names;
use super::serving::Serving;
use crate::output::print_line as say;

/// Where the server is.
enum Target {
    Host(Host),
    Here(Serving),
}

pub(crate) fn share(arguments: &Share) -> anyhow::Result<ExitCode> {
    if arguments.list || arguments.revoke.is_some() {
        return manage(arguments);
    }
    let named = arguments.target.as_deref().unwrap_or_default();
    let (target, path) = match RemotePath::is_meant(named) {
        true => {
            let remote = RemotePath::parse(named).map_err(|error| Usage(error.to_string()))?;
            headroom_transfer::client::below_root(&remote.path)?;
            (Target::Host(remote.host), remote.path)
        }
        false => here(Path::new(named))?,
    };
    let options = ShareOptions {
        write: arguments.put,
        seconds: arguments.expires.as_secs(),
        uses: arguments.once.then_some(1).or(arguments.count),
        name: arguments.name.clone().unwrap_or_default(),
    };
    let link = block_on(async {
        let mut client = connect(&target, &arguments.connect).await?;
        let link = client.share(&path, options).await?;
        client.close().await;
        anyhow::Ok(link)
    })??;
    let url = format!("{}#share={}", link.page, BASE64URL_NOPAD.encode(&link.secret));
    match arguments.json {
        true => {
            let mut event = object(&link.terms);
            if let Some(event) = event.as_object_mut() {
                event.insert("url".to_owned(), url.into());
            }
            say(&names::line(&event));
        }
        false => {
            say(&shown(url.as_bytes()).to_string());
            eprintln!("headroom: {}", line(&link.terms));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists or revokes.
fn manage(arguments: &Share) -> anyhow::Result<ExitCode> {
    let targets = match &arguments.target {
        Some(host) => {
            let host = host.to_str().unwrap_or_default();
            vec![Target::Host(Host::parse(host).map_err(|error| Usage(error.to_string()))?)]
        }
        None => {
            let with_page = Serving::all()?.into_iter().filter(|it| it.page.is_some());
            with_page.map(Target::Here).collect()
        }
    };
    if targets.is_empty() {
        bail!(Usage(
            "no `headroom serve --web` of yours runs on this machine: name the host".to_owned()
        ));
    }
    block_on(async {
        let mut refused = None;
        for target in &targets {
            let mut client = match connect(target, &arguments.connect).await {
                Ok(client) => client,
                // the others may have what is meant
                Err(error) if targets.len() > 1 => {
                    refused = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match &arguments.revoke {
                Some(id) => match client.revoke(id).await {
                    Ok(()) => {
                        client.close().await;
                        return Ok(ExitCode::SUCCESS);
                    }
                    // it may be one of another server
                    Err(error @ Error::Refused(_)) => refused = Some(error.into()),
                    Err(error) => return Err(error.into()),
                },
                None => {
                    for terms in client.shares().await? {
                        say(&match arguments.json {
                            true => names::line(&object(&terms)),
                            false => line(&terms),
                        });
                    }
                }
            }
            client.close().await;
        }
        refused.map_or(Ok(ExitCode::SUCCESS), Err)
    })?
}

async fn connect(target: &Target, connect: &Connect) -> anyhow::Result<Client> {
    match target {
        Target::Host(host) => Ok(TrustedConnector::new(connect)?.connect(host).await?),
        Target::Here(server) => {
            let identity = Identity::read(&server.identity).map_err(Error::from)?;
            let key: PublicKey = server.key.parse().context("the server's key is damaged")?;
            // its key was written by this user's own server, not shown by the network
            let hosts = KnownHosts::parse(Path::new(""), String::new()).map_err(Error::from)?;
            let fingerprint = Some(key.fingerprint());
            let trust = Trust { hosts: &hosts, authority: None, fingerprint };
            let host = server.host();
            Ok(Client::connect_within(connect.timeout, &host, &identity, trust).await?)
        }
    }
}

/// Finds the server of this machine that serves a path, and the path below its root.
fn here(path: &Path) -> anyhow::Result<(Target, Vec<u8>)> {
    let whole = resolved(path).with_context(|| format!("cannot find {}", path.display()))?;
    let mut servers: Vec<_> =
        Serving::all()?.into_iter().filter(|server| whole.starts_with(&server.root)).collect();
    // the nearest root, with a page
    servers.sort_by_key(|server| (server.page.is_some(), server.root.components().count()));
    match servers.pop() {
        Some(server) if server.page.is_some() => {
            let below = whole.strip_prefix(&server.root)?.as_os_str().as_bytes().to_vec();
            Ok((Target::Here(server), below))
        }
        Some(server) => bail!(Usage(format!(
            "the server of {} has no page, to which share links lead: start it with --web",
            server.root.display()
        ))),
        None => bail!(Usage(format!(
            "no `headroom serve` of yours on this machine serves {}: start one with --web, or name the host: HOST:PATH",
            path.display()
        ))),
    }
}

/// Returns the path without links, but for its last name: the server decides about that.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let Some(name) = path.file_name() else { return path.canonicalize() };
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let whole = parent.unwrap_or(Path::new(".")).canonicalize()?.join(name);
    whole.symlink_metadata().map(|_| whole)
}

fn path_of(terms: &ShareTerms) -> Vec<u8> {
    [&b"/"[..], terms.path.as_ref().map_or(&b""[..], RelPath::as_bytes)].concat()
}

/// Describes a share for people.
fn line(terms: &ShareTerms) -> String {
    let direction = if terms.write { "put" } else { "get" };
    let uses = match terms.uses {
        Some(uses) => format!("used {} of {uses}", terms.used),
        None => format!("used {}", terms.used),
    };
    let name = match terms.name.as_str() {
        "" => String::new(),
        name => format!(" ({})", shown(name.as_bytes())),
    };
    format!(
        "{} {direction} {} until {}, {uses}{name}",
        shown(terms.id.as_bytes()),
        shown(&path_of(terms)),
        utc(terms.expires)
    )
}

fn object(terms: &ShareTerms) -> Value {
    let event = json!({
        "id": terms.id,
        "kind": if terms.is_file { "file" } else { "directory" },
        "direction": if terms.write { "put" } else { "get" },
        "created": utc(terms.created),
        "expires": utc(terms.expires),
        "uses": terms.uses,
        "used": terms.used,
        "name": terms.name,
        "by": terms.by,
    });
    names::with(event, "path", &path_of(terms))
}

fn utc(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|it| jiff::Timestamp::from_second(it).ok());
    time.map_or_else(|| format!("{seconds} s"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_described_safely_for_people_and_for_programs() {
        let terms = ShareTerms {
            id: "k3j5q2ab".to_owned(),
            path: RelPath::parse(b"docs/a\n\xff").ok(),
            is_file: true,
            write: false,
            created: 1_000_000_000,
            expires: 1_000_003_600,
            uses: Some(2),
            used: 1,
            name: "for \u{202e}Alice".to_owned(),
            by: "bob@laptop".to_owned(),
        };
        insta::assert_snapshot!(line(&terms), @r"k3j5q2ab get /docs/a\n\xff until 2001-09-09T02:46:40Z, used 1 of 2 (for \u{202e}Alice)");
        insta::assert_snapshot!(names::line(&object(&terms)), @r#"{"by":"bob@laptop","created":"2001-09-09T01:46:40Z","direction":"get","expires":"2001-09-09T02:46:40Z","id":"k3j5q2ab","kind":"file","name":"for \u202eAlice","path":"/docs/a\n�","path_base64":"L2RvY3MvYQr/","used":1,"uses":2}"#);
    }
}
