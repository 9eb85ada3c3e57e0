//! How a bucket is opened.

use std::net::Ipv4Addr;
use std::sync::Arc;

use http::Uri;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum, S3CopyIfNotExists};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientConfigKey, RetryConfig};

use super::Cloud;
use super::exchange::{Connector, root_cause};
use super::failure::plain;
use super::profile;
use crate::address::{Address, Service};
use crate::error::Error;

/// How long `object_store` lets a request take. The client above has limits by size.
const REQUEST: &str = "1h";

/// Opens a bucket with what the environment says. Nothing is sent yet.
///
/// # Errors
///
/// [`Error::Refused`]: the environment lacks something, or contradicts itself.
pub(crate) fn open(address: &Address) -> Result<Cloud, Error> {
    match address.service {
        Service::S3 => open_s3(address),
        Service::Gcs => open_gcs(address),
        Service::Azure => open_azure(address),
    }
}

fn open_s3(address: &Address) -> Result<Cloud, Error> {
    let mut builder = profile::apply(AmazonS3Builder::from_env())?;
    check_texts(&builder)?;
    let endpoint = builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    let allows = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let is_clear = is_clear(endpoint.as_deref(), allows.as_deref(), "AWS_ALLOW_HTTP")?;
    if builder.get_config_value(&AmazonS3ConfigKey::Checksum).is_none() {
        builder = builder.with_checksum_algorithm(Checksum::SHA256);
    }
    if builder.get_config_value(&AmazonS3ConfigKey::CopyIfNotExists).is_none() {
        let header = S3CopyIfNotExists::Header("if-none-match".to_owned(), "*".to_owned());
        builder = builder.with_copy_if_not_exists(header);
    }
    let store = builder
        .with_bucket_name(&address.bucket)
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), REQUEST)
        .with_retry(once())
        // not every server has it, and an answer that names other keys would end the process
        .with_disable_bulk_delete(true)
        .with_http_connector(Connector { is_clear, ..Connector::default() })
        .build()
        .map_err(|error| refused(address, &error))?;
    Ok(Cloud::new(Service::S3, store))
}

fn open_gcs(address: &Address) -> Result<Cloud, Error> {
    let builder = GoogleCloudStorageBuilder::from_env();
    let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    let allows = builder.get_config_value(&GoogleConfigKey::Client(ClientConfigKey::AllowHttp));
    let is_clear = is_clear(endpoint.as_deref(), allows.as_deref(), "GOOGLE_ALLOW_HTTP")?;
    let store = builder
        .with_bucket_name(&address.bucket)
        .with_config(GoogleConfigKey::Client(ClientConfigKey::Timeout), REQUEST)
        .with_retry(once())
        .with_http_connector(Connector { is_clear, ..Connector::default() })
        .build()
        .map_err(|error| refused(address, &error))?;
    Ok(Cloud::new(Service::Gcs, store))
}

fn open_azure(address: &Address) -> Result<Cloud, Error> {
    let builder = MicrosoftAzureBuilder::from_env();
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let allows = builder.get_config_value(&AzureConfigKey::Client(ClientConfigKey::AllowHttp));
    let is_clear = is_clear(endpoint.as_deref(), allows.as_deref(), "AZURE_ALLOW_HTTP")?;
    let account = builder.get_config_value(&AzureConfigKey::AccountName);
    let connector = Connector { is_clear, ..Connector::default() };
    let signer = Arc::clone(&connector.azure);
    let store = builder
        .with_container_name(&address.bucket)
        .with_config(AzureConfigKey::Client(ClientConfigKey::Timeout), REQUEST)
        .with_retry(once())
        .with_http_connector(connector)
        .build()
        .map_err(|error| refused(address, &error))?;
    if let Some(account) = account {
        // it is set once: the connector is this function's own
        let _ = signer.set((Arc::clone(store.credentials()), account));
    }
    Ok(Cloud::new(Service::Azure, store))
}

/// The client above repeats requests, so that it can count them.
fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Says whether the endpoint is `http://`, which has to be allowed.
fn is_clear(endpoint: Option<&str>, allows: Option<&str>, name: &str) -> Result<bool, Error> {
    let Some(endpoint) = endpoint else {
        return Ok(false);
    };
    // it is not repeated: it may have credentials in it
    let is_clear = is_clear_url(endpoint).ok_or_else(|| {
        Error::Refused(
            "the endpoint of the store is no URL: write https://HOST or https://HOST:PORT"
                .to_owned(),
        )
    })?;
    let is_allowed = allows.is_some_and(|allows| {
        matches!(allows.to_ascii_lowercase().as_str(), "1" | "true" | "on" | "yes" | "y")
    });
    if is_clear && !is_allowed {
        return Err(Error::Refused(format!(
            "the endpoint of the store is http://, without encryption: use https://, or set {name}=true where the network is trusted"
        )));
    }
    Ok(is_clear)
}

/// Says whether a URL is `http://`; `None`: it is none of a server, for which `object_store` and
/// `reqwest` would panic.
fn is_clear_url(endpoint: &str) -> Option<bool> {
    let uri: Uri = endpoint.parse().ok()?;
    let host = uri.host()?;
    let port = uri.authority()?.as_str().strip_prefix(host)?;
    let is_port = (port.is_empty() || uri.port_u16().is_some()) && !port.contains('@');
    // what ends in a number is an IPv4 address
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    let is_host = !host.contains('%') && (!is_number || host.parse::<Ipv4Addr>().is_ok());
    match uri.scheme_str()? {
        "http" if is_port && is_host => Some(true),
        "https" if is_port && is_host => Some(false),
        _ => None,
    }
}

/// Refuses what no URL and no header can hold, for which `object_store` would panic.
fn check_texts(builder: &AmazonS3Builder) -> Result<(), Error> {
    let texts = [
        (AmazonS3ConfigKey::Region, "AWS_REGION"),
        (AmazonS3ConfigKey::AccessKeyId, "AWS_ACCESS_KEY_ID"),
        (AmazonS3ConfigKey::Token, "AWS_SESSION_TOKEN"),
    ];
    for (key, name) in texts {
        let text = builder.get_config_value(&key).unwrap_or_default();
        let is_sound = |b: u8| match key {
            AmazonS3ConfigKey::Region => b.is_ascii_alphanumeric() || b"-_.".contains(&b),
            _ => b.is_ascii_graphic(),
        };
        if !text.bytes().all(is_sound) {
            return Err(Error::Refused(format!(
                "{name}, or what the profile says instead, has characters that it cannot have, for example a space or the end of a line: write it without them"
            )));
        }
    }
    Ok(())
}

fn refused(address: &Address, error: &object_store::Error) -> Error {
    Error::Refused(format!(
        "cannot open {}: {}. Check the variables of the environment",
        address.url(),
        plain(&root_cause(error))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_text_has_to_be_allowed() {
        let check = |endpoint, allows| is_clear(endpoint, allows, "X").ok();
        assert_eq!(check(None, None), Some(false));
        assert_eq!(check(Some("https://h"), None), Some(false));
        assert_eq!(check(Some("http://h"), None), None);
        assert_eq!(check(Some("HTTP://h"), Some("false")), None);
        assert_eq!(check(Some("http://h"), Some("true")), Some(true));
    }

    #[test]
    fn endpoints_are_urls_of_servers() {
        for good in ["https://h:9000", "https://h/path", "https://127.0.0.1", "https://[::1]:9"] {
            assert_eq!(is_clear_url(good), Some(false), "{good}");
        }
        for bad in [
            "",
            "h",
            "h:9000",
            "ü",
            "ftp://h",
            "https://",
            "https://u:p@h",
            "https://h:99999",
            "https://h:x",
            "https://1.2.3.999",
            "https://a%20b",
            "https://a b",
        ] {
            assert_eq!(is_clear_url(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_with_the_end_of_a_line_is_refused() {
        let good = AmazonS3Builder::new().with_region("eu-west-1").with_token("a.b+c/d=");
        assert!(check_texts(&good).is_ok());
        assert!(check_texts(&AmazonS3Builder::new().with_region("eu/west")).is_err());
        for bad in ["key\n", "a b", "ü"] {
            let builder = AmazonS3Builder::new().with_access_key_id(bad);
            assert!(check_texts(&builder).is_err(), "{bad:?}");
        }
    }
}
