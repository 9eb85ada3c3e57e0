//! URLs of stores.

use crate::error::Error;
use crate::key::Key;

/// Whose interface a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Amazon S3 and its kin.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl Service {
    /// The scheme of its URLs.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }
}

/// A store: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Whose interface it has.
    pub(crate) service: Service,
    /// The bucket or container.
    pub(crate) bucket: String,
    /// What all keys begin with: empty, or with a `/` at its end.
    pub(crate) prefix: String,
}

impl Address {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]: another scheme, no bucket, or a prefix that is no path.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        // the URL itself is not repeated: it may have credentials in it
        let refuse = |found: &str| {
            Error::Name(format!(
                "this is no URL of a store: {found}. Write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
            ))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| refuse("no ://"))?;
        let service = [Service::S3, Service::Gcs, Service::Azure]
            .into_iter()
            .find(|service| service.scheme() == scheme)
            .ok_or_else(|| refuse("another scheme"))?;
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_bucket = (1..=255).contains(&bucket.len())
            && bucket
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'$'));
        if !is_bucket {
            return Err(refuse(
                "its bucket is not of letters, digits, '-', '.' and '_' (credentials and servers come from the environment)",
            ));
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        let prefix = if path.is_empty() {
            String::new()
        } else {
            Key::parse("", path).map_err(|_| refuse("its prefix is no path"))?;
            format!("{path}/")
        };
        Ok(Self { service, bucket: bucket.to_owned(), prefix })
    }

    /// The URL, without a `/` at its end.
    pub(crate) fn url(&self) -> String {
        let scheme = self.service.scheme();
        let whole = format!("{scheme}://{}/{}", self.bucket, self.prefix);
        whole.trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_buckets_and_prefixes() {
        let of = |url: &str| {
            let address = Address::parse(url).expect("a URL");
            (address.service, address.bucket.clone(), address.prefix.clone(), address.url())
        };
        let expected = |service, bucket: &str, prefix: &str, url: &str| {
            (service, bucket.to_owned(), prefix.to_owned(), url.to_owned())
        };
        assert_eq!(of("s3://b"), expected(Service::S3, "b", "", "s3://b"));
        assert_eq!(of("gs://b.c/"), expected(Service::Gcs, "b.c", "", "gs://b.c"));
        assert_eq!(of("az://c/x/y"), expected(Service::Azure, "c", "x/y/", "az://c/x/y"));
        assert_eq!(of("s3://b/x y/"), expected(Service::S3, "b", "x y/", "s3://b/x y"));
    }

    #[test]
    fn refuses_what_is_no_store() {
        for url in
            ["b", "http://b/c", "s3://", "s3:///x", "s3://b//x", "s3://b/../x", "s3://b/.headroom"]
        {
            assert!(matches!(Address::parse(url), Err(Error::Name(_))), "{url}");
        }
    }

    #[test]
    fn repeats_no_credentials() {
        for url in ["s3://key:secret@b/x", "s3://secret@b", "http://key:secret@b/x", "secret"] {
            let error = Address::parse(url).expect_err("it is refused").to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
