//! Whether a store honours the conditions of writes, which keep two writers of one upload apart.
//! Some programs with the interface of S3 ignore the headers, and store.

use bytes::Bytes;

use crate::backend::FailureKind;
use crate::client::Client;
use crate::error::Error;
use crate::key::Key;
use crate::metadata::Metadata;
use crate::version::Condition;

/// Tries it with a small object, unless the store is known to honour them. All clients of a store
/// try it together until one has seen that it does.
///
/// # Errors
///
/// [`Error::Refused`]: it does not. Otherwise the store's.
pub(super) async fn check_conditions(client: &Client) -> Result<(), Error> {
    if client.honours_conditions() {
        return Ok(());
    }
    client.conditions().get_or_try_init(|| try_it(client)).await.copied()
}

async fn try_it(client: &Client) -> Result<(), Error> {
    // among the journals, so that `abort_older` removes it if it stays behind
    let name = Key::reserved(&format!("uploads/try-{:032x}", rand::random::<u128>()));
    let tried = try_with(client, &name).await;
    if let Err(error) = client.delete(&name).await {
        tracing::debug!(%error, "an object that was stored to try the store stays behind");
    }
    tried
}

async fn try_with(client: &Client, name: &Key) -> Result<(), Error> {
    let put = |content: &'static [u8], condition: Condition| async move {
        let content = Bytes::from_static(content);
        client.try_put(name, content, &Metadata::new(), &condition).await
    };
    let first = put(b"first", Condition::Any).await?;
    let second = put(b"second", Condition::Any).await?;
    if !first.is_known() || first == second {
        return Err(refused(client, "has no ETags that change with the content"));
    }
    let conditions = [("If-None-Match", Condition::New), ("If-Match", Condition::Is(first))];
    for (header, condition) in conditions {
        match put(b"third", condition).await {
            Err(trouble) if trouble.kind == FailureKind::Changed => {}
            Err(trouble) => return Err(trouble.into()),
            Ok(_) => return Err(refused(client, &format!("ignores {header}"))),
        }
    }
    Ok(())
}

fn refused(client: &Client, found: &str) -> Error {
    Error::Refused(format!(
        "cannot upload in parts to {}: the store {found}, so two servers could write one file at a time. Use a store that has conditional writes",
        client.url()
    ))
}
