//! A store as its users see it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::address::Address;
use crate::backend::{Backend, FailureKind, Head};
use crate::client::{Client, Patience};
use crate::cloud;
use crate::error::Error;
use crate::key::Key;
use crate::listing::{ListAll, Listing};
use crate::memory::Memory;
use crate::metadata::Metadata;
use crate::object::Object;
use crate::record::{self, Record};
use crate::replace::{self, Expected, Replaced};
use crate::requests::Requests;
use crate::upload::{self, Upload, UploadOffer};
use crate::version::{Condition, Version};

/// An object store, or what is below a directory of one. Clones share requests in flight and
/// their counts.
///
/// Every call but [`read_object_async`](Self::read_object_async) blocks the thread, and panics on
/// one that runs tasks of a tokio runtime.
#[derive(Clone)]
pub struct Store {
    client: Arc<Client>,
    url: String,
    /// What names are relative to: empty, or with a `/` at its end.
    base: String,
}

impl Store {
    /// Opens `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`, and lists one
    /// page to see that it may.
    ///
    /// Credentials come from the environment, for S3 also from the profile `AWS_PROFILE` of
    /// `~/.aws/credentials`, else from the instance's role. `AWS_ENDPOINT_URL` names another
    /// server; `http://` needs `AWS_ALLOW_HTTP=true`.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]: no such URL. [`Error::NotFound`], [`Error::Refused`],
    /// [`Error::Unavailable`]: the store says so.
    pub fn open(url: &str, runtime: Handle) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let backend = {
            let _inside = runtime.enter();
            cloud::open(&address)?
        };
        let store = Self::on(Arc::new(backend), address.prefix.clone(), address.url(), runtime);
        store.client.wait(store.client.list("", None))?;
        Ok(store)
    }

    /// Checks the URL of a store without asking the store; returns it without a `/` at its end.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]: no such URL. The sentence does not repeat it, for it may have credentials.
    pub fn check_url(url: &str) -> Result<String, Error> {
        Ok(Address::parse(url)?.url())
    }

    /// Opens an empty store in memory, for tests.
    pub fn in_memory(runtime: Handle) -> Self {
        Self::of(Arc::new(Memory::new()), "memory://", runtime)
    }

    /// Makes a store of any backend, for tests. `url` is what errors call it.
    pub fn of(backend: Arc<dyn Backend>, url: &str, runtime: Handle) -> Self {
        Self::on(backend, String::new(), url.to_owned(), runtime)
    }

    fn on(backend: Arc<dyn Backend>, prefix: String, url: String, runtime: Handle) -> Self {
        let client = Client::new(backend, prefix, url.clone(), runtime, Patience::default());
        Self { client: Arc::new(client), url, base: String::new() }
    }

    /// The same store with other patience, and counts of its own.
    #[must_use]
    pub fn with_patience(&self, patience: Patience) -> Self {
        Self { client: Arc::new(self.client.with_patience(patience)), ..self.clone() }
    }

    /// The same store, whose [`own_requests`](Self::own_requests) are those made by this one and
    /// by what is made of it.
    #[must_use]
    pub fn counted(&self) -> Self {
        Self { client: Arc::new(self.client.counted()), ..self.clone() }
    }

    /// Its URL, with the directories of [`below`](Self::below).
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is below a directory, `a/b`; `""` is itself. Whether a store can hold the name, the
    /// calls say.
    #[must_use]
    pub fn below(&self, directory: &str) -> Self {
        let directory = directory.strip_suffix('/').unwrap_or(directory);
        if directory.is_empty() {
            return self.clone();
        }
        Self {
            client: Arc::clone(&self.client),
            url: if self.url.ends_with('/') {
                format!("{}{directory}", self.url)
            } else {
                format!("{}/{directory}", self.url)
            },
            base: format!("{}{directory}/", self.base),
        }
    }

    /// The requests up to now, of all clones.
    pub fn requests(&self) -> Requests {
        self.client.requests()
    }

    /// The requests since [`counted`](Self::counted) made this store; without that, of all clones.
    pub fn own_requests(&self) -> Requests {
        self.client.own_requests()
    }

    /// Says whether it keeps markers of directories: empty ones, and the metadata of any. Where
    /// it does not (Azure), writing one does nothing, and none is found.
    pub fn keeps_directories(&self) -> bool {
        self.client.keeps_directories()
    }

    /// Asks for an object, or the marker of a directory (`a/b/`); `None`: it is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Name`], and the store's.
    pub fn look(&self, key: &str) -> Result<Option<Object>, Error> {
        let key = self.key(key)?;
        if self.is_unkept(&key) {
            return Ok(None);
        }
        let head = self.client.wait(self.client.head(&key))?;
        Ok(head.map(|head| object(&key, head)))
    }

    /// Reads a whole object of `size` bytes together with its metadata, in one request; of a
    /// version if one is given that is known.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`]: it has another size or version. [`Error::Misuse`]: an empty object, or
    /// the marker of a directory, has nothing to read. [`Error::NotFound`], [`Error::Name`], and
    /// the store's.
    pub fn read_object(
        &self,
        key: &str,
        size: u64,
        version: Option<&Version>,
    ) -> Result<(Object, Bytes), Error> {
        self.client.wait(self.read_object_async(key, size, version))
    }

    /// Does what [`read_object`](Self::read_object) does without blocking, in a task of the
    /// store's runtime.
    ///
    /// # Errors
    ///
    /// Those of [`read_object`](Self::read_object).
    pub async fn read_object_async(
        &self,
        key: &str,
        size: u64,
        version: Option<&Version>,
    ) -> Result<(Object, Bytes), Error> {
        let key = self.key(key)?;
        if size == 0 || key.is_directory() {
            return Err(Error::Misuse(format!(
                "{:?} has no content: look at it instead",
                key.as_str()
            )));
        }
        let (head, content) = self.client.get_with_metadata(&key, size, version).await?;
        Ok((object(&key, head), content))
    }

    /// Reads exactly a range, of a version if one is given that is known. An empty range is read
    /// without a request.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`]: it is shorter, or has another version. [`Error::NotFound`],
    /// [`Error::Name`], and the store's.
    pub fn read(
        &self,
        key: &str,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Bytes, Error> {
        let key = self.key(key)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.client.wait(self.client.get(&key, range, version))
    }

    /// Lists what is directly in a directory, `a/b` or `""`.
    pub fn list(&self, directory: &str) -> Listing {
        Listing::new(&self.client, self.directory(directory))
    }

    /// Lists all that is below a directory.
    pub fn list_all(&self, directory: &str) -> ListAll {
        ListAll::new(&self.client, self.directory(directory))
    }

    /// Stores an object in one request; a key that ends in `/` is the marker of a directory.
    ///
    /// When an answer is lost and the request is repeated, what is there counts as this object if
    /// it is empty or has a hash in its metadata (`headroom-blake3`), and size and metadata are
    /// equal.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`]: the condition is not met. [`Error::Misuse`]: it is an unknown version,
    /// or a marker has content. [`Error::Name`], and the store's.
    pub fn put(
        &self,
        key: &str,
        content: Bytes,
        metadata: &Metadata,
        condition: Condition,
    ) -> Result<Version, Error> {
        let key = self.key(key)?;
        if key.is_directory() && !content.is_empty() {
            return Err(Error::Misuse(format!(
                "the marker of a directory, {:?}, has no content",
                key.as_str()
            )));
        }
        condition.check(key.as_str())?;
        if self.is_unkept(&key) {
            return Ok(Version::unknown());
        }
        let client = &self.client;
        client.wait(async move { client.put(&key, content, metadata, &condition).await })
    }

    /// Stores an object in one request, in place of what has its name. Each request requires what
    /// was there before it, so that one that arrives late replaces nothing that was stored since.
    /// `expected` is what the caller believes to be there: right, it takes one request, or two if
    /// the version has to be asked for; wrong, two more.
    ///
    /// When an answer is lost and the request is repeated, what is there counts as this object as
    /// with [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// [`Error::Changed`]: others store it at the same time again and again. [`Error::Misuse`]: the
    /// marker of a directory is not replaced so. [`Error::Name`], and the store's.
    pub fn replace(
        &self,
        key: &str,
        content: Bytes,
        metadata: &Metadata,
        expected: &Expected,
    ) -> Result<Replaced, Error> {
        let key = self.key(key)?;
        if key.is_directory() {
            return Err(Error::Misuse(format!(
                "the marker of a directory, {:?}, is put",
                key.as_str()
            )));
        }
        self.client.wait(replace::replace(&self.client, &key, content, metadata, expected))
    }

    /// Copies an object with its metadata and its record. A new name is taken only while it is
    /// free; in place of an object, a copy has no condition, as stores have none for it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]: `from` is not there. [`Error::Changed`]: `to` is there, and is not to
    /// be replaced. [`Error::Name`], and the store's: S3 copies at most 5 GiB.
    pub fn copy(&self, from: &str, to: &str, replace: bool) -> Result<(), Error> {
        let (from, to) = (self.key(from)?, self.key(to)?);
        if self.is_unkept(&from) || self.is_unkept(&to) {
            return Ok(());
        }
        self.client.wait(copy(&self.client, &from, &to, replace))
    }

    /// Removes an object and its record; what is not there is removed, too.
    ///
    /// # Errors
    ///
    /// [`Error::Name`], and the store's.
    pub fn remove(&self, key: &str) -> Result<(), Error> {
        let key = self.key(key)?;
        if self.is_unkept(&key) {
            return Ok(());
        }
        let record = record::name(&key);
        self.client.wait(async {
            if key.is_directory() {
                return self.client.delete(&key).await;
            }
            let (object, record) =
                tokio::join!(self.client.delete(&key), self.client.delete(&record));
            if let Err(error) = record {
                tracing::debug!(%error, "a record stays behind");
            }
            object
        })
    }

    /// Begins an upload in parts, or continues one of the same tag.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: another server or connection uploads it. [`Error::Refused`]: the store
    /// ignores the conditions of writes. [`Error::TooLarge`], [`Error::Misuse`] (an empty object),
    /// [`Error::Name`], and the store's.
    pub fn begin_upload(&self, key: &str, offer: &UploadOffer) -> Result<Upload, Error> {
        let key = self.upload_key(key)?;
        self.client.wait(upload::begin(&self.client, key, offer, None))
    }

    /// Returns the nonce of the upload of the same tag, if there is one that was
    /// [released](Upload::release), so that others may [join](Self::join_upload) it. It does not
    /// tell whether some have.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::Misuse`] (an empty object), [`Error::Name`], and the store's.
    pub fn find_released_upload(
        &self,
        key: &str,
        offer: &UploadOffer,
    ) -> Result<Option<[u8; 16]>, Error> {
        let key = self.upload_key(key)?;
        self.client.wait(upload::find_released(&self.client, &key, offer))
    }

    /// Joins an upload that was [released](Upload::release), to store parts of it while others
    /// store other parts. `nonce` names the upload.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`]: it is not there any more, or the offer is another one. [`Error::Busy`]:
    /// another server has taken it over. [`Error::Refused`]: 2048 have joined already, or the store
    /// ignores the conditions of writes. Otherwise as those of
    /// [`begin_upload`](Self::begin_upload).
    pub fn join_upload(
        &self,
        key: &str,
        offer: &UploadOffer,
        nonce: [u8; 16],
    ) -> Result<Upload, Error> {
        let key = self.upload_key(key)?;
        let nonce = data_encoding::HEXLOWER.encode(&nonce);
        self.client.wait(upload::join(&self.client, key, offer, &nonce))
    }

    /// Does what [`begin_upload`](Self::begin_upload) does. If the upload has this nonce, this also
    /// takes it over from contributors and from a server that completes it, whether they still work
    /// or were killed: those that work are stopped, and store nothing more once they notice.
    ///
    /// # Errors
    ///
    /// As those of [`begin_upload`](Self::begin_upload).
    pub fn take_over_upload(
        &self,
        key: &str,
        offer: &UploadOffer,
        nonce: [u8; 16],
    ) -> Result<Upload, Error> {
        let key = self.upload_key(key)?;
        let nonce = data_encoding::HEXLOWER.encode(&nonce);
        self.client.wait(upload::begin(&self.client, key, offer, Some(&nonce)))
    }

    /// Gives uploads up that nobody has continued for so long, in the whole store, and returns
    /// how many.
    ///
    /// # Errors
    ///
    /// The store's; uploads that were given up before stay so.
    pub fn abort_uploads(&self, older_than: Duration) -> Result<u64, Error> {
        self.client.wait(upload::abort_older(&self.client, older_than))
    }

    /// Reads the hashes of a version of a large object, if there are any.
    ///
    /// # Errors
    ///
    /// [`Error::Name`], and the store's.
    pub fn record(&self, key: &str, version: &Version) -> Result<Option<Record>, Error> {
        let key = self.key(key)?;
        self.client.wait(record::read(&self.client, &key, version))
    }

    fn key(&self, name: &str) -> Result<Key, Error> {
        Key::parse(self.client.prefix(), &format!("{}{name}", self.base))
    }

    fn upload_key(&self, name: &str) -> Result<Key, Error> {
        let key = self.key(name)?;
        if key.is_directory() {
            return Err(Error::Misuse(format!(
                "the marker of a directory, {:?}, is not uploaded",
                key.as_str()
            )));
        }
        Ok(key)
    }

    fn directory(&self, directory: &str) -> Result<String, Error> {
        let whole = format!("{}{directory}", self.base);
        let bare = whole.strip_suffix('/').unwrap_or(&whole);
        if bare.is_empty() {
            return Ok(String::new());
        }
        Key::parse(self.client.prefix(), bare).map(|key| format!("{}/", key.as_str()))
    }

    fn is_unkept(&self, key: &Key) -> bool {
        key.is_directory() && !self.client.keeps_directories()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("url", &self.url).finish_non_exhaustive()
    }
}

fn object(key: &Key, head: Head) -> Object {
    Object {
        name: key.name().to_owned(),
        size: head.size,
        modified: head.modified,
        version: head.version,
        metadata: Some(head.metadata),
    }
}

async fn copy(client: &Client, from: &Key, to: &Key, replace: bool) -> Result<(), Error> {
    let Some(head) = client.head(from).await? else {
        return Err(Error::NotFound(format!("cannot copy {:?}: it is not there", from.as_str())));
    };
    // not every store compares when it copies
    let is_there = client.head(to).await?.is_some();
    if !replace && is_there {
        return Err(Error::Changed(format!(
            "cannot copy {:?} to {:?}, which is there: remove it first",
            from.as_str(),
            to.as_str()
        )));
    }
    // to a name that is free, a request that arrives late replaces nothing
    match client.copy(from, to, is_there).await {
        Ok(()) => {}
        Err(trouble) if trouble.kind == FailureKind::Unsupported && !is_there => {
            client.copy(from, to, true).await?;
        }
        Err(trouble)
            if trouble.kind == FailureKind::Changed && (trouble.is_repeated || replace) =>
        {
            // it may have been this copy whose answer was lost
            let there = client.head(to).await?;
            let is_equal =
                there.is_some_and(|to| to.size == head.size && to.metadata == head.metadata);
            let is_copy = trouble.is_repeated && is_equal;
            if !is_copy || head.metadata.get("headroom-blake3").is_none() {
                if !replace {
                    return Err(trouble.into());
                }
                client.copy(from, to, true).await?;
            }
        }
        Err(trouble) => return Err(trouble.into()),
    }
    // what was stored in one request has its hash in its metadata
    if from.is_directory() || head.metadata.get("headroom-blake3").is_some() {
        return Ok(());
    }
    let Some(record) = record::read(client, from, &head.version).await? else {
        return Ok(());
    };
    match client.head(to).await? {
        // an upload's metadata has its nonce: what was copied is what was looked at
        Some(copied) if copied.size == record.size && copied.metadata == head.metadata => {
            record::write(client, to, &copied.version, &record).await
        }
        _ => Ok(()),
    }
}
