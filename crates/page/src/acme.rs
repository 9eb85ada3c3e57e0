//! Asks an ACME authority (RFC 8555) for the page's certificate, and again in time. The authority
//! convinces itself by TLS-ALPN-01 (RFC 8737, for addresses RFC 8738): it connects to port 443,
//! which is the page's own, and gets a certificate that contains what it asked for.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use headroom_mutex::lock;
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde_json::json;

use crate::authority::Authority;
use crate::certificate::PageCertificate;
use crate::clock;
use crate::issued::{AcmeOptions, Issued};
use crate::private_file;

/// The protocol by which a validation is told from a browser.
pub(crate) const ACME_TLS_ALPN: &[u8] = b"acme-tls/1";
/// The profile of certificates for addresses, where the authority has it (Let's Encrypt does).
const SHORT_LIVED: &str = "shortlived";
/// How long an order may take, and a step of it.
const ORDER: Duration = Duration::from_secs(300);
const STEP: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(90));
/// How long to wait after a failure, doubled for each further one: authorities allow few in an
/// hour (Let's Encrypt five).
const FIRST_WAIT: Duration = Duration::from_secs(300);
const LONGEST_WAIT: Duration = Duration::from_secs(12 * 3600);

/// What validations are shown while an order is under way.
#[derive(Debug, Default)]
pub(crate) struct Challenges(Mutex<Vec<(String, Arc<ServerConfig>)>>);

impl Challenges {
    /// Returns what to show to a validation of this server name.
    pub(crate) fn config(&self, server_name: &str) -> Option<Arc<ServerConfig>> {
        let shown = lock(&self.0);
        let found = shown.iter().find(|(name, _)| name.eq_ignore_ascii_case(server_name));
        found.map(|(_, config)| Arc::clone(config))
    }

    fn show(&self, identifier: &str, digest: &[u8]) -> Result<(), String> {
        let config = validation(identifier, digest).map_err(|error| error.to_string())?;
        let name = server_name(identifier);
        lock(&self.0).push((name, Arc::new(config)));
        Ok(())
    }

    fn clear(&self) {
        lock(&self.0).clear();
    }
}

/// Asks for certificates for as long as the page is served; passes each new one to `use_it`. At
/// least `interval` passes between two.
pub(crate) async fn keep(
    options: &AcmeOptions,
    challenges: &Challenges,
    interval: Duration,
    use_it: impl Fn(PageCertificate),
) {
    let mut due = options.read().map_or(SystemTime::UNIX_EPOCH, |kept| kept.renewed_at());
    let mut wait = FIRST_WAIT;
    loop {
        clock::until(due).await;
        let asked = tokio::time::timeout(ORDER, obtain(options, challenges)).await;
        challenges.clear();
        let obtained = asked.unwrap_or_else(|_| Err("the authority is too slow".to_owned()));
        let used = obtained.and_then(|pem| {
            if let Err(error) = options.keep(&pem) {
                tracing::warn!(
                    "cannot keep the certificate in {}: {error}",
                    options.folder.display()
                );
            }
            let issued = Issued::parse(&pem)?;
            let renewed_at = issued.renewed_at();
            let certificate = PageCertificate::issued(issued).map_err(|error| error.to_string())?;
            use_it(certificate);
            Ok(renewed_at)
        });
        match used {
            Ok(renewed_at) => {
                tracing::info!("{} issued a certificate", options.directory);
                wait = FIRST_WAIT;
                due = renewed_at.max(SystemTime::now() + interval);
            }
            Err(error) => {
                tracing::warn!(
                    "cannot get a certificate for {} of {}: {error}. Trying again in {} minutes",
                    options.names.join(", "),
                    options.directory,
                    wait.as_secs() / 60
                );
                due = SystemTime::now() + wait;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

/// Asks for a certificate; returns it with its key, in PEM.
async fn obtain(options: &AcmeOptions, challenges: &Challenges) -> Result<String, String> {
    let mut order = order(options).await?;
    {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| explain(&error))?;
            let identifier = authorization.identifier().to_string();
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                _ => return Err(format!("{identifier} is not authorized")),
            }
            let challenge = authorization.challenge(ChallengeType::TlsAlpn01);
            let mut challenge =
                challenge.ok_or_else(|| format!("no tls-alpn-01 is offered for {identifier}"))?;
            challenges.show(&identifier, challenge.key_authorization().digest().as_ref())?;
            challenge.set_ready().await.map_err(|error| explain(&error))?;
        }
    }
    match order.poll_ready(&STEP).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) => return Err(refusal(&mut order).await.unwrap_or("it refuses".to_owned())),
        Err(error) => return Err(refusal(&mut order).await.unwrap_or_else(|| explain(&error))),
    }
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let mut params =
        CertificateParams::new(options.names.clone()).map_err(|error| error.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(|error| error.to_string())?;
    order.finalize_csr(request.der()).await.map_err(|error| explain(&error))?;
    let chain = order.poll_certificate(&STEP).await.map_err(|error| explain(&error))?;
    Ok(format!("{}\n{}", chain.trim_end(), key.serialize_pem()))
}

/// Orders a certificate, by the account that is kept or a new one.
async fn order(options: &AcmeOptions) -> Result<Order, String> {
    let is_address = |name: &String| name.parse::<IpAddr>().is_ok();
    let identifiers: Vec<_> = options
        .names
        .iter()
        .map(|name| match name.parse() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(name.to_ascii_lowercase()),
        })
        .collect();
    let kept = kept_account(options).await?;
    let was_kept = kept.is_some();
    let mut account = match kept {
        Some(account) => account,
        None => new_account(options).await?,
    };
    let has_short_lived = account.profiles().any(|profile| profile.name == SHORT_LIVED);
    let mut wanted = NewOrder::new(&identifiers);
    if has_short_lived && options.names.iter().any(is_address) {
        wanted = wanted.profile(SHORT_LIVED);
    }
    match account.new_order(&wanted).await {
        Err(Error::Api(problem)) if was_kept && is_unknown_account(&problem) => {
            account = new_account(options).await?;
            account.new_order(&wanted).await.map_err(|error| explain(&error))
        }
        ordered => ordered.map_err(|error| explain(&error)),
    }
}

fn is_unknown_account(problem: &instant_acme::Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    ["accountDoesNotExist", "unauthorized"].iter().any(|it| kind.ends_with(it))
}

async fn kept_account(options: &AcmeOptions) -> Result<Option<Account>, String> {
    let text = std::fs::read(options.account_file()).unwrap_or_default();
    let kept: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    if kept["directory"] != options.directory.as_str() {
        return Ok(None);
    }
    let Ok(credentials) = serde_json::from_value(kept["credentials"].clone()) else {
        return Ok(None);
    };
    let authority = Box::new(Authority::new(options.root.as_deref())?);
    let account = Account::builder_with_http(authority).from_credentials(credentials).await;
    account.map(Some).map_err(|error| explain(&error))
}

async fn new_account(options: &AcmeOptions) -> Result<Account, String> {
    let contact = options.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<_> = contact.as_deref().into_iter().collect();
    let wanted = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let authority = Box::new(Authority::new(options.root.as_deref())?);
    let builder = Account::builder_with_http(authority);
    let (account, credentials) = builder
        .create(&wanted, options.directory.clone(), None)
        .await
        .map_err(|error| explain(&error))?;
    let kept = json!({"directory": options.directory, "credentials": credentials}).to_string();
    private_file::write(&options.account_file(), &kept)
        .map_err(|error| format!("{}: {error}", options.account_file().display()))?;
    Ok(account)
}

/// Returns why the authority was not convinced, if it says so.
async fn refusal(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let identifier = authorization.identifier().to_string();
        let state = authorization.refresh().await.ok()?;
        let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problem {
            return Some(printable(&format!("{identifier}: {problem}")));
        }
    }
    None
}

/// Says what failed, in one line: it may be a text of the authority.
fn explain(error: &Error) -> String {
    let mut text = error.to_string();
    if let Error::Other(cause) = error {
        text = cause.to_string();
        let mut cause = cause.source();
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
    }
    printable(&text)
}

fn printable(text: &str) -> String {
    text.chars().take(500).map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// Returns the server name by which a validation asks for an identifier.
fn server_name(identifier: &str) -> String {
    match identifier.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let mut name = String::new();
            for byte in address.octets().iter().rev() {
                name.push_str(&format!("{:x}.{:x}.", byte & 15, byte >> 4));
            }
            name + "ip6.arpa"
        }
        Err(_) => identifier.to_owned(),
    }
}

/// Makes the certificate that shows a validation what it looks for.
fn validation(identifier: &str, digest: &[u8]) -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([identifier.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    // rustls itself would refuse the extension, which is critical
    let shown = CertifiedKey::new(vec![certificate], aws_lc_rs::sign::any_ecdsa_type(&key)?);
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(shown)));
    config.alpn_protocols = vec![ACME_TLS_ALPN.to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_validated_by_their_reverse_names() {
        assert_eq!(server_name("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        assert_eq!(
            server_name("2001:db8::1"),
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
        let challenges = Challenges::default();
        challenges.show("192.0.2.1", &[7; 32]).expect("a certificate");
        assert!(challenges.config("1.2.0.192.IN-ADDR.arpa").is_some());
        assert!(challenges.config("192.0.2.1").is_none());
        challenges.clear();
        assert!(challenges.config("1.2.0.192.in-addr.arpa").is_none());
    }
}
