//! S3, Google Cloud Storage and Azure Blob Storage, by crate `object_store`.

mod exchange;
mod failure;
mod location;
mod open;
mod profile;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{TryStreamExt, future, stream};
use http::{HeaderName, HeaderValue};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{
    Attribute, Attributes, CopyMode, CopyOptions, GetOptions, GetRange, GetResult, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, UpdateVersion,
};

pub(crate) use open::open;

use crate::address::Service;
use crate::backend::{Backend, Failure, FailureKind, Head, Listed, Page};
use crate::metadata::Metadata;
use crate::version::{Condition, Version};
use exchange::{EXCHANGE, Exchange};

/// Bytes that are reserved for an answer before it arrives, at most.
const RESERVED: u64 = 16 << 20;

/// A bucket.
pub(crate) struct Cloud {
    service: Service,
    objects: Arc<dyn ObjectStore>,
    uploads: Arc<dyn MultipartStore>,
    pages: Arc<dyn PaginatedListStore>,
}

/// Says nothing of the store below, which knows credentials.
impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Cloud {
    fn new<T>(service: Service, store: T) -> Self
    where
        T: ObjectStore + MultipartStore + PaginatedListStore,
    {
        let store = Arc::new(store);
        Self {
            service,
            objects: Arc::clone(&store) as Arc<dyn ObjectStore>,
            uploads: Arc::clone(&store) as Arc<dyn MultipartStore>,
            pages: store,
        }
    }

    /// Makes a request and explains its failure by what came over the wire.
    async fn exchange<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send,
    ) -> Result<T, Failure> {
        self.exchange_with(Arc::new(Exchange::default()), request).await
    }

    async fn exchange_with<T>(
        &self,
        exchange: Arc<Exchange>,
        request: impl Future<Output = object_store::Result<T>> + Send,
    ) -> Result<T, Failure> {
        EXCHANGE
            .scope(Arc::clone(&exchange), request)
            .await
            .map_err(|error| failure::of(self.service, &error, exchange.reply().as_ref()))
    }

    fn attributes(&self, metadata: &Metadata) -> Attributes {
        metadata
            .iter()
            .map(|(key, value)| {
                let name = self.service.metadata_name(key);
                (Attribute::Metadata(Cow::Owned(name)), value.to_owned())
            })
            .collect()
    }

    fn head_of(&self, answer: &GetResult) -> Head {
        let entries = answer.attributes.iter().filter_map(|(name, value)| match name {
            Attribute::Metadata(name) => Some((self.service.our_name(name), value.as_ref())),
            _ => None,
        });
        let entries: Vec<(String, &str)> = entries.collect();
        let metadata = entries.iter().map(|(name, value)| (name.as_str(), *value));
        Head {
            size: answer.meta.size,
            modified: SystemTime::from(answer.meta.last_modified),
            version: Version::new(answer.meta.e_tag.clone(), answer.meta.version.clone()),
            metadata: Metadata::from_store(metadata),
        }
    }

    /// Says whether a listing has the marker of a directory, which would be its first entry.
    async fn lists(&self, marker: &str) -> Result<bool, Failure> {
        let options = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
        let answer = self.exchange(self.pages.list_paginated(Some(marker), options)).await?;
        let bare = marker.strip_suffix('/').unwrap_or(marker);
        let mut objects = answer.result.objects.iter();
        Ok(objects.any(|object| object.location.as_ref() == bare))
    }

    /// The ETag of a listing as headers have it: Azure lists it without its quotes.
    fn quoted(&self, etag: String) -> String {
        match self.service {
            Service::Azure if !etag.ends_with('"') => format!("\"{etag}\""),
            _ => etag,
        }
    }

    /// The headers that a completion needs and `object_store` does not write.
    fn completion_headers(
        &self,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        let mut add = |name: &str, value: &str| {
            if let (Ok(name), Ok(value)) = (name.parse(), value.parse()) {
                headers.push((name, value));
            }
        };
        match (self.service, condition) {
            (_, Condition::Any) => {}
            (Service::Gcs, Condition::New) => add("x-goog-if-generation-match", "0"),
            (Service::Gcs, Condition::Is(version)) => {
                add("x-goog-if-generation-match", version.generation().unwrap_or_default());
            }
            (_, Condition::New) => add("if-none-match", "*"),
            (_, Condition::Is(version)) => add("if-match", version.etag().unwrap_or_default()),
        }
        // Azure has an upload's metadata at its end alone
        if self.service == Service::Azure {
            for (key, value) in metadata.iter() {
                add(&format!("x-ms-meta-{}", self.service.metadata_name(key)), value);
            }
        }
        headers
    }
}

impl Service {
    /// How it writes the name of an entry: Azure wants identifiers.
    fn metadata_name(self, key: &str) -> String {
        match self {
            Self::Azure => key.replace('-', "_"),
            Self::S3 | Self::Gcs => key.to_owned(),
        }
    }

    /// The entry that a name stands for.
    fn our_name(self, name: &str) -> String {
        match self {
            Self::Azure => name.replace('_', "-"),
            Self::S3 | Self::Gcs => name.to_owned(),
        }
    }
}

#[async_trait]
impl Backend for Cloud {
    async fn list(&self, prefix: &str, page: Option<&str>) -> Result<Page, Failure> {
        let options = PaginatedListOptions {
            delimiter: Some(Cow::Borrowed("/")),
            page_token: page.map(str::to_owned),
            ..PaginatedListOptions::default()
        };
        let prefix_or_none = Some(prefix).filter(|prefix| !prefix.is_empty());
        let answer = self.exchange(self.pages.list_paginated(prefix_or_none, options)).await?;
        // the marker of the directory arrives without its `/`
        let marker = prefix.strip_suffix('/').unwrap_or(prefix);
        let objects = answer
            .result
            .objects
            .into_iter()
            .filter(|object| object.location.as_ref() != marker)
            .map(|object| Listed {
                modified: SystemTime::from(object.last_modified),
                size: object.size,
                version: Version::new(object.e_tag.map(|etag| self.quoted(etag)), object.version),
                key: object.location.into(),
            })
            .collect();
        let prefixes =
            answer.result.common_prefixes.into_iter().map(|prefix| format!("{prefix}/")).collect();
        Ok(Page { objects, prefixes, next: answer.page_token })
    }

    async fn head(&self, key: &str) -> Result<Head, Failure> {
        let path = location::of(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let exchange = Arc::new(Exchange::default());
        let request = self.objects.get_opts(&path, options);
        match self.exchange_with(Arc::clone(&exchange), request).await {
            Ok(answer) => Ok(self.head_of(&answer)),
            Err(failure) if exchange.status() == Some(500) => {
                // servers that keep directories of a file system say so of each, with and without
                // its slash (s3s-fs), and list none of them
                if self.lists(key).await? {
                    return Err(failure);
                }
                Err(Failure::new(FailureKind::NotFound, "it is not listed"))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn get(
        &self,
        key: &str,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<(Head, Bytes), Failure> {
        let path = location::of(key)?;
        let most = range.end.saturating_sub(range.start);
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: version.and_then(Version::etag).map(str::to_owned),
            ..GetOptions::default()
        };
        let answer = self
            .exchange(async {
                let answer = self.objects.get_opts(&path, options).await?;
                let head = self.head_of(&answer);
                let expected = answer.range.end.saturating_sub(answer.range.start);
                let mut content =
                    BytesMut::with_capacity(expected.min(most).min(RESERVED) as usize);
                let mut pieces = answer.into_stream();
                while let Some(piece) = pieces.try_next().await? {
                    if (content.len() + piece.len()) as u64 > most {
                        return Ok((head, None));
                    }
                    content.extend_from_slice(&piece);
                }
                Ok::<_, object_store::Error>((head, Some(content.freeze())))
            })
            .await?;
        match answer {
            (head, Some(content)) => Ok((head, content)),
            (_, None) => Err(Failure::new(
                FailureKind::Invalid,
                "the answer is longer than the range that was asked for",
            )),
        }
    }

    async fn put(
        &self,
        key: &str,
        content: Bytes,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        let path = location::of(key)?;
        let mode = match condition {
            Condition::Any => PutMode::Overwrite,
            Condition::New => PutMode::Create,
            Condition::Is(version) => PutMode::Update(UpdateVersion {
                e_tag: version.etag().map(str::to_owned),
                version: version.generation().map(str::to_owned),
            }),
        };
        let options =
            PutOptions { mode, attributes: self.attributes(metadata), ..PutOptions::default() };
        let exchange = Arc::new(Exchange::default());
        let request = self.objects.put_opts(&path, PutPayload::from(content), options);
        match self.exchange_with(Arc::clone(&exchange), request).await {
            Ok(stored) => Ok(Version::new(stored.e_tag, stored.version)),
            // some servers make a directory of it, which has no ETag
            Err(_) if key.ends_with('/') && exchange.has_succeeded() => Ok(Version::unknown()),
            Err(failure) => Err(failure),
        }
    }

    async fn copy(&self, from: &str, to: &str, replace: bool) -> Result<(), Failure> {
        let (from, to) = (location::of(from)?, location::of(to)?);
        let mode = if replace { CopyMode::Overwrite } else { CopyMode::Create };
        let options = CopyOptions::new().with_mode(mode);
        self.exchange(self.objects.copy_opts(&from, &to, options)).await
    }

    async fn delete(&self, key: &str) -> Result<(), Failure> {
        let path = location::of(key)?;
        let path = Ok::<_, object_store::Error>(path);
        let paths = Box::pin(stream::once(future::ready(path)));
        let mut removed = self.objects.delete_stream(paths);
        self.exchange(async move { removed.try_next().await.map(|_| ()) }).await
    }

    async fn create_upload(&self, key: &str, metadata: &Metadata) -> Result<String, Failure> {
        let path = location::of(key)?;
        let options = PutMultipartOptions {
            // Azure gets it at the end
            attributes: match self.service {
                Service::Azure => Attributes::new(),
                Service::S3 | Service::Gcs => self.attributes(metadata),
            },
            ..PutMultipartOptions::default()
        };
        self.exchange(self.uploads.create_multipart_opts(&path, options)).await
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: u32,
        content: Bytes,
    ) -> Result<String, Failure> {
        let path = location::of(key)?;
        let upload = upload.to_owned();
        let request =
            self.uploads.put_part(&path, &upload, part as usize, PutPayload::from(content));
        Ok(self.exchange(request).await?.content_id)
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        parts: Vec<String>,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        let path = location::of(key)?;
        let upload = upload.to_owned();
        let parts = parts.into_iter().map(|content_id| PartId { content_id }).collect();
        let exchange = Arc::new(Exchange::new(self.completion_headers(metadata, condition)));
        let request = self.uploads.complete_multipart(&path, &upload, parts);
        match self.exchange_with(exchange, request).await {
            Ok(stored) => Ok(Version::new(stored.e_tag, stored.version)),
            // the upload is there, and the version that it would replace is not
            Err(failure)
                if failure.kind == FailureKind::NotFound
                    && matches!(condition, Condition::Is(_))
                    && failure.text.ends_with(": NoSuchKey") =>
            {
                Err(Failure { kind: FailureKind::Changed, ..failure })
            }
            Err(failure) => Err(failure),
        }
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), Failure> {
        let path = location::of(key)?;
        let upload = upload.to_owned();
        self.exchange(self.uploads.abort_multipart(&path, &upload)).await
    }

    fn honours_conditions(&self) -> bool {
        // S3 is the interface of many programs
        self.service != Service::S3
    }

    fn keeps_directories(&self) -> bool {
        // Azure's paths lose the `/` at their end
        self.service != Service::Azure
    }
}
