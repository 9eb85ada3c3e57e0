//! Profiles of the AWS command line: `~/.aws/credentials` and `~/.aws/config`, which
//! `object_store` does not read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs, io};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::error::Error;

/// Bytes of such a file, at most.
const LONGEST: u64 = 1 << 20;

/// Adds what a profile says to what the environment says, which takes precedence.
///
/// # Errors
///
/// [`Error::Refused`]: `AWS_PROFILE` names a profile that has no keys. Other ways to get some
/// (`sso`, `credential_process`, `role_arn`) are not known here.
pub(super) fn apply(mut builder: AmazonS3Builder) -> Result<AmazonS3Builder, Error> {
    let named = env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
    let name = named.as_deref().unwrap_or("default");
    let is_set = |key: AmazonS3ConfigKey, builder: &AmazonS3Builder| {
        builder.get_config_value(&key).is_some()
    };
    if !is_set(AmazonS3ConfigKey::Region, &builder) {
        // all but the default have a word before their name in this file
        let title = match name {
            "default" => name.to_owned(),
            _ => format!("profile {name}"),
        };
        let config = section(&text("AWS_CONFIG_FILE", "config")?, &title);
        if let Some(region) = config.get("region") {
            builder = builder.with_region(region);
        }
    }
    let others = [
        AmazonS3ConfigKey::AccessKeyId,
        AmazonS3ConfigKey::SecretAccessKey,
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ];
    if others.into_iter().any(|key| is_set(key, &builder)) {
        return Ok(builder);
    }
    let entries = section(&text("AWS_SHARED_CREDENTIALS_FILE", "credentials")?, name);
    match (entries.get("aws_access_key_id"), entries.get("aws_secret_access_key")) {
        (Some(key), Some(secret)) => {
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
            if let Some(token) = entries.get("aws_session_token") {
                builder = builder.with_token(token);
            }
            Ok(builder)
        }
        _ if named.is_some() => Err(Error::Refused(format!(
            "the profile {name:?} of AWS_PROFILE has no aws_access_key_id and aws_secret_access_key in ~/.aws/credentials: export its keys, for example with `aws configure export-credentials --format env`"
        ))),
        // the instance's role remains
        _ => Ok(builder),
    }
}

/// The text of a file of `~/.aws`, empty when there is none.
fn text(variable: &str, name: &str) -> Result<String, Error> {
    let path = match env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => match env::home_dir() {
            Some(home) => home.join(".aws").join(name),
            None => return Ok(String::new()),
        },
    };
    let refuse = |found: &str| {
        Error::Refused(format!(
            "cannot read {}: {found}. Mend it, or set the keys in the environment",
            path.display()
        ))
    };
    match fs::metadata(&path) {
        Ok(metadata) if metadata.len() > LONGEST => return Err(refuse("it is longer than 1 MiB")),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(refuse(&error.to_string())),
    }
    fs::read_to_string(&path).map_err(|error| refuse(&error.to_string()))
}

/// The entries below `[title]`. Those of a nested table, which are indented, are none.
fn section(text: &str, title: &str) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::new();
    let mut is_inside = false;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let found = rest.split(']').next().unwrap_or_default();
            is_inside = found.split_whitespace().eq(title.split_whitespace());
        } else if is_inside
            && !is_nested
            && let Some((key, value)) = line.split_once('=')
        {
            entries.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# comment
[default]
aws_access_key_id = A
aws_secret_access_key=B=C

[ profile  two ]
region = eu-west-1
s3 =
  region = nested
; comment
[three]
aws_access_key_id = D
";

    #[test]
    fn reads_one_profile() {
        let default = section(TEXT, "default");
        assert_eq!(default.get("aws_access_key_id").map(String::as_str), Some("A"));
        assert_eq!(default.get("aws_secret_access_key").map(String::as_str), Some("B=C"));
        let two = section(TEXT, "profile two");
        assert_eq!(two.get("region").map(String::as_str), Some("eu-west-1"));
        assert!(section(TEXT, "two").is_empty());
        assert_eq!(section(TEXT, "three").len(), 1);
        assert!(section("", "default").is_empty());
    }
}
