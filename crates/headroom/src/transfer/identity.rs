//! `headroom identity` and `headroom trust`.

use std::process::ExitCode;

use headroom_transfer::{Error, Host, block_on};

use super::arguments::{Identity, IdentityCommand, Trust};
use super::connect::TrustedConnector;
use super::exit::Usage;
use super::settings;
use crate::output::print_line as say;

pub(crate) fn identity(arguments: &Identity) -> anyhow::Result<ExitCode> {
    let path = settings::file_or(arguments.identity.as_deref(), "identity")?;
    let identity = match arguments.command {
        Some(IdentityCommand::New) => headroom_transfer::Identity::create(&path),
        Some(IdentityCommand::Show) | None => headroom_transfer::Identity::read_or_create(&path),
    };
    let key = identity.map_err(Error::from)?.public();
    say(&format!("{key}\n{}", key.fingerprint()));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn trust(arguments: &Trust) -> anyhow::Result<ExitCode> {
    let host = Host::parse(&arguments.host).map_err(|error| Usage(error.to_string()))?;
    let mut connector = TrustedConnector::new(&arguments.connect)?.quiet();
    let key = block_on(async {
        let client = connector.connect(&host).await?;
        let key = client.key();
        client.close().await;
        Ok::<_, Error>(key)
    })??;
    let shown = key.map_or_else(|| "a key".to_owned(), |key| key.fingerprint().to_string());
    say(&format!("{host} is trusted, with {shown}"));
    Ok(ExitCode::SUCCESS)
}
