//! Hashes of large objects, kept beside them: what is stored in parts cannot have them in its
//! metadata, which is written before its content is known.

use minicbor::{Decode, Encode};

use crate::client::Client;
use crate::error::Error;
use crate::key::Key;
use crate::metadata::Metadata;
use crate::replace::{Expected, replace};
use crate::version::Version;

/// Bytes of a span: what one value of a [`Record`] or of an [`Upload`](crate::Upload) covers.
pub const SPAN: u64 = 1 << 20;

/// Bytes of a record beyond its values, at most.
const OTHERS: u64 = 8 << 10;

/// Bytes of all values of a record that is read, at most: those of 4 TiB.
const MAX_VALUES: u64 = 128 << 20;

/// The hashes of an object: they hold for one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Bytes of the object.
    pub size: u64,
    /// The BLAKE3 hash of its content.
    pub root: [u8; 32],
    /// The values of its spans, in order.
    pub values: Vec<[u8; 32]>,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct Written {
    #[n(0)]
    key: String,
    #[n(1)]
    etag: String,
    #[n(2)]
    size: u64,
    #[cbor(n(3), with = "minicbor::bytes")]
    root: [u8; 32],
    #[cbor(n(4), with = "minicbor::bytes")]
    values: Vec<u8>,
}

/// The name of an object's record.
pub(crate) fn name(key: &Key) -> Key {
    Key::reserved(&format!("records/{}", key.digest()))
}

/// Writes the record of a version.
pub(crate) async fn write(
    client: &Client,
    key: &Key,
    version: &Version,
    record: &Record,
) -> Result<(), Error> {
    let Some(etag) = version.etag() else {
        return Ok(()); // nothing could say what it belongs to
    };
    let written = Written {
        key: key.as_str().to_owned(),
        etag: etag.to_owned(),
        size: record.size,
        root: record.root,
        values: record.values.concat(),
    };
    let content = encode(&written, "the record", key)?;
    replace(client, &name(key), content.into(), &Metadata::new(), &Expected::Nothing).await?;
    Ok(())
}

/// Reads the record of a version, `None` when there is none, or only that of another version.
pub(crate) async fn read(
    client: &Client,
    key: &Key,
    version: &Version,
) -> Result<Option<Record>, Error> {
    if !version.is_known() {
        return Ok(None);
    }
    let most = OTHERS + MAX_VALUES;
    let Some((_, content)) = client.get_whole(&name(key), most).await? else {
        return Ok(None);
    };
    let record = parse(&content, key, version);
    if record.is_none() {
        tracing::debug!(key = key.as_str(), "the record is of another version or damaged");
    }
    Ok(record)
}

fn parse(content: &[u8], key: &Key, version: &Version) -> Option<Record> {
    let written: Written = minicbor::decode(content).ok()?;
    let is_its = written.key == key.as_str()
        && Version::new(Some(written.etag), None) == *version
        && written.values.len() as u64 == written.size.div_ceil(SPAN).checked_mul(32)?;
    is_its.then(|| Record {
        size: written.size,
        root: written.root,
        values: apart(&written.values),
    })
}

/// Takes joined values apart.
pub(crate) fn apart(values: &[u8]) -> Vec<[u8; 32]> {
    values.as_chunks().0.to_vec()
}

/// Encodes what is written beside objects.
pub(crate) fn encode<T: Encode<()>>(value: &T, what: &str, key: &Key) -> Result<Vec<u8>, Error> {
    minicbor::to_vec(value).map_err(|error| {
        Error::Misuse(format!("cannot encode {what} of {}: {error}", key.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: &str) -> Version {
        Version::new(Some(etag.to_owned()), None)
    }

    fn written() -> Written {
        Written {
            key: "a/b".to_owned(),
            etag: "\"1\"".to_owned(),
            size: SPAN + 1,
            root: [7; 32],
            values: vec![1; 64],
        }
    }

    fn parsed(written: &Written, key: &str, etag: &str) -> Option<Record> {
        let key = Key::parse("", key).expect("a name");
        let content = encode(written, "a record", &key).expect("it is encoded");
        parse(&content, &key, &version(etag))
    }

    #[test]
    fn holds_for_one_version_of_one_object() {
        let record = parsed(&written(), "a/b", "\"1\"").expect("the store does it");
        assert_eq!((record.size, record.root, record.values.len()), (SPAN + 1, [7; 32], 2));
        assert_eq!(parsed(&written(), "a/b", "\"2\""), None);
        assert_eq!(parsed(&written(), "a/c", "\"1\""), None);
    }

    #[test]
    fn damaged_records_are_none() {
        let key = Key::parse("", "a/b").expect("a name");
        assert_eq!(parse(b"", &key, &version("\"1\"")), None);
        assert_eq!(parse(&[0xff; 40], &key, &version("\"1\"")), None);
        for values in [0, 32, 63, 96] {
            let damaged = Written { values: vec![1; values], ..written() };
            assert_eq!(parsed(&damaged, "a/b", "\"1\""), None);
        }
        let vast = Written { size: u64::MAX, ..written() };
        assert_eq!(parsed(&vast, "a/b", "\"1\""), None);
    }
}
