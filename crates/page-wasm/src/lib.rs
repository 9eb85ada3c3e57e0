//! The transfer's protocol for the page: messages to and from bytes, hashes of spans, and the hash
//! of a file from them. JavaScript moves the bytes and decides what to send when.
//!
//! Names are bytes here; JavaScript maps them to text and back without loss. Numbers of bytes are
//! JavaScript's numbers, exact up to 2^53.
//!
//! Elsewhere than in a browser the crate is empty, and what it needs is not built.
#![cfg(target_arch = "wasm32")]

mod decode;

use headroom_transfer_proto::message::{
    DataHeader, EntryKind, ErrorCode, Inline, Message, Time, TreeOptions, VERSION, Wanted, body_len,
};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::proof::{Binding, EXPORTER_LABEL};
use headroom_transfer_proto::span::{ChainingValue, Hash, SPAN_BYTES, Spans, Tree};
use js_sys::Uint8Array;
use wasm_bindgen::prelude::*;

pub use decode::decode;

/// The program's name in `hello`.
const PROGRAM: &str = concat!("headroom page ", env!("CARGO_PKG_VERSION"));

type Framed = Result<Vec<u8>, JsError>;

fn frame(message: &Message) -> Framed {
    let mut bytes = Vec::new();
    message.frame(&mut bytes)?;
    Ok(bytes)
}

/// Parses a path as it is typed: an empty one, or `/`, is the root.
fn path(bytes: &[u8]) -> Result<Option<RelPath>, JsError> {
    RelPath::typed(bytes).map_err(|error| JsError::new(&error.to_string()))
}

fn name(bytes: &[u8]) -> Result<RelPath, JsError> {
    path(bytes)?.ok_or_else(|| JsError::new("the root has no name"))
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], JsError> {
    bytes.try_into().map_err(|_| JsError::new("the length is wrong"))
}

/// Splits milliseconds since 1970.
fn time(ms: f64) -> Time {
    let seconds = (ms / 1000.0).floor();
    Time { seconds: seconds as i64, nanoseconds: ((ms - seconds * 1000.0) * 1e6) as u32 }
}

/// Returns the bytes of a span.
#[wasm_bindgen(js_name = spanBytes)]
#[must_use]
pub fn span_bytes() -> u32 {
    SPAN_BYTES as u32
}

/// Returns the label for the exporter of WebTransport.
#[wasm_bindgen(js_name = exporterLabel)]
#[must_use]
pub fn exporter_label() -> Vec<u8> {
    EXPORTER_LABEL.to_vec()
}

/// Returns the size of the message that four bytes announce.
#[wasm_bindgen(js_name = bodyLength)]
pub fn body_length(length: &[u8]) -> Result<u32, JsError> {
    Ok(u32::try_from(body_len(array(length)?)?).unwrap_or(u32::MAX))
}

/// Makes `hello`, with the most bits per second that this side accepts; none if it is 0.
#[wasm_bindgen]
pub fn hello(rate_bps: f64) -> Framed {
    let rate_bps = (rate_bps > 0.0).then_some(rate_bps as u64);
    frame(&Message::Hello {
        version: VERSION,
        program: PROGRAM.to_owned(),
        rate_bps,
        priority: None,
        counts: None,
    })
}

fn binding(kind: &str) -> Result<Binding, JsError> {
    match kind {
        "exporter" => Ok(Binding::Exporter),
        "certificate" => Ok(Binding::Certificate),
        "origin" => Ok(Binding::Origin),
        _ => Err(JsError::new("there is no such binding")),
    }
}

/// Returns what is signed to prove a key.
#[wasm_bindgen(js_name = toSign)]
pub fn to_sign(
    kind: &str,
    key: &[u8],
    bound_to: &[u8],
    server_nonce: &[u8],
    client_nonce: &[u8],
) -> Framed {
    let kind = binding(kind)?;
    let (key, bound_to) = (array(key)?, array(bound_to)?);
    Ok(kind.to_sign(&key, &bound_to, &array(server_nonce)?, &array(client_nonce)?).to_vec())
}

/// Makes the proof of a key.
#[wasm_bindgen]
pub fn proof(kind: &str, key: &[u8], signature: &[u8], client_nonce: &[u8]) -> Framed {
    let (key, signature, nonce) = (array(key)?, array(signature)?, Some(array(client_nonce)?));
    frame(&Message::Proof { key, signature, binding: Some(binding(kind)?), nonce })
}

/// Shows the secret of an invitation, with a name for the key.
#[wasm_bindgen]
pub fn invited(secret: &[u8], name: String) -> Framed {
    frame(&Message::Invited { secret: array(secret)?, name })
}

/// Shows the secret of a share link.
#[wasm_bindgen(js_name = shareSecret)]
pub fn share_secret(secret: &[u8]) -> Framed {
    frame(&Message::ShareSecret { secret: array(secret)? })
}

/// Asks for a share link, open for some seconds, for so many browsers; 0 is any number.
#[wasm_bindgen]
pub fn share(of: &[u8], write: bool, seconds: f64, uses: u32, name: String) -> Framed {
    let uses = (uses > 0).then_some(uses);
    frame(&Message::Share { path: path(of)?, write, seconds: seconds as u64, uses, name })
}

/// Asks for the share links that this key has made.
#[wasm_bindgen]
pub fn shares() -> Framed {
    frame(&Message::Shares)
}

/// Asks to end a share.
#[wasm_bindgen]
pub fn revoke(id: String) -> Framed {
    frame(&Message::Revoke { id })
}

/// Asks what this client may do.
#[wasm_bindgen]
pub fn rights() -> Framed {
    frame(&Message::Rights)
}

/// Asks for the entries of a directory.
#[wasm_bindgen]
pub fn list(of: &[u8]) -> Framed {
    frame(&Message::List { path: path(of)? })
}

/// Asks for a new directory.
#[wasm_bindgen(js_name = makeDirectory)]
pub fn make_directory(path: &[u8], parents: bool) -> Framed {
    frame(&Message::MakeDirectory { path: name(path)?, parents })
}

/// Asks for another name.
#[wasm_bindgen]
pub fn rename(from: &[u8], to: &[u8], replace: bool) -> Framed {
    frame(&Message::Rename { from: name(from)?, to: path(to)?, replace })
}

/// Asks for a removal.
#[wasm_bindgen]
pub fn remove(path: &[u8], recursive: bool) -> Framed {
    frame(&Message::Remove { path: name(path)?, recursive })
}

/// Asks to put files into a directory.
#[wasm_bindgen]
pub fn put(to: &[u8], fsync: bool) -> Framed {
    let tree = Some(TreeOptions::default());
    frame(&Message::Put { to: path(to)?, rename: false, fsync, lanes: None, tree, parts: None })
}

/// Gives this session's data streams to the upload of a ticket.
#[wasm_bindgen]
pub fn join(ticket: &[u8]) -> Framed {
    frame(&Message::Join { ticket: array(ticket)? })
}

/// Asks for files and directories.
#[wasm_bindgen]
pub fn get(paths: Vec<Uint8Array>) -> Framed {
    let from = paths
        .into_iter()
        .map(|it| Ok(Wanted { path: path(&it.to_vec())?, contents: false }))
        .collect::<Result<_, JsError>>()?;
    let tree = Some(TreeOptions::default());
    frame(&Message::Get { from, compress: None, lanes: None, tree, ranges: None })
}

/// Offers a directory.
#[wasm_bindgen(js_name = directoryEntry)]
pub fn directory_entry(id: f64, path: &[u8], modified_ms: f64) -> Framed {
    let kind = EntryKind::Directory { mode: 0o755, mtime: time(modified_ms), more: None };
    frame(&Message::Entry { id: id as u64, path: name(path)?, kind })
}

/// Offers a file, with its content if that is small.
#[wasm_bindgen(js_name = fileEntry)]
pub fn file_entry(
    id: f64,
    path: &[u8],
    size: f64,
    modified_ms: f64,
    content: Option<Vec<u8>>,
) -> Framed {
    let inline = content.map(|content| Inline { root: *blake3_of(&content).as_bytes(), content });
    let kind = EntryKind::File {
        size: size as u64,
        mode: 0o644,
        mtime: time(modified_ms),
        inline,
        hash: None,
        data: None,
        more: None,
    };
    frame(&Message::Entry { id: id as u64, path: name(path)?, kind })
}

/// Says that everything is offered.
#[wasm_bindgen(js_name = entriesEnd)]
pub fn entries_end(files: f64, bytes: f64) -> Framed {
    frame(&Message::EntriesEnd { files: files as u64, bytes: bytes as u64 })
}

/// Says which spans of a file are here: 32 bytes for each, from `first` on.
#[wasm_bindgen]
pub fn have(id: f64, first: f64, values: &[u8], last: bool) -> Framed {
    let values = values
        .chunks_exact(32)
        .map(|value| array(value).map(ChainingValue))
        .collect::<Result<_, _>>()?;
    let (id, first_span) = (id as u64, first as u64);
    frame(&Message::Have { id, first_span, values, last, old: None })
}

/// Says that all spans of a file were sent.
#[wasm_bindgen]
pub fn sealed(id: f64, hash: &[u8], bytes: f64) -> Framed {
    frame(&Message::Sealed { id: id as u64, root: array(hash)?, bytes: bytes as u64 })
}

/// Says that a file cannot be sent, because it changed or cannot be read.
#[wasm_bindgen]
pub fn withdrawn(id: f64, reason: String) -> Framed {
    let code = Some(ErrorCode::CHANGED);
    frame(&Message::Withdrawn { id: id as u64, reason, code })
}

/// Says that an entry is stored.
#[wasm_bindgen]
pub fn stored(id: f64) -> Framed {
    frame(&Message::Stored { id: id as u64 })
}

/// Says that an entry cannot be stored; `code` is the name of the reason for programs, or of none.
#[wasm_bindgen]
pub fn failed(id: f64, reason: String, code: &str) -> Framed {
    let code = ErrorCode::named(code);
    frame(&Message::Failed { id: id as u64, reason, code })
}

/// Says that every entry is answered.
#[wasm_bindgen]
pub fn end(stored: f64, failed: f64) -> Framed {
    frame(&Message::End { stored: stored as u64, failed: failed as u64 })
}

/// Makes the header of a data stream.
#[wasm_bindgen(js_name = dataHeader)]
pub fn data_header(id: f64, offset: f64, length: f64) -> Framed {
    let mut bytes = Vec::new();
    let (id, offset, len) = (id as u64, offset as u64, length as u64);
    DataHeader { id, offset, len, zstd: None }.frame(&mut bytes)?;
    Ok(bytes)
}

/// Reads the header of a data stream: the file, the offset and the number of bytes.
#[wasm_bindgen(js_name = readDataHeader)]
pub fn read_data_header(body: &[u8]) -> Result<Vec<f64>, JsError> {
    let header = DataHeader::parse(body)?;
    if header.zstd == Some(true) {
        return Err(JsError::new("the server compresses, which was not asked for"));
    }
    Ok(vec![header.id as f64, header.offset as f64, header.len as f64])
}

/// Returns the BLAKE3 hash of bytes.
#[wasm_bindgen]
#[must_use]
pub fn hash(bytes: &[u8]) -> Vec<u8> {
    blake3_of(bytes).as_bytes().to_vec()
}

fn blake3_of(bytes: &[u8]) -> Hash {
    let spans = Spans::new(bytes.len() as u64);
    let mut tree = Tree::new(spans);
    for span in 0..spans.count() {
        let range = spans.range(span).unwrap_or_default();
        let part = &bytes[range.start as usize..range.end as usize];
        if let Some(value) = spans.value(span, part) {
            tree.insert(span, value);
        }
    }
    // every span has a value now
    tree.root().unwrap_or(Hash::from_bytes([0; 32]))
}

/// Collects the hashes of a file's spans, and gives the file's.
#[wasm_bindgen]
pub struct FileHash {
    spans: Spans,
    tree: Tree,
}

#[wasm_bindgen]
impl FileHash {
    /// Begins with a file of this size.
    #[wasm_bindgen(constructor)]
    #[must_use]
    pub fn new(size: f64) -> Self {
        let spans = Spans::new(size as u64);
        Self { spans, tree: Tree::new(spans) }
    }

    /// Returns the number of spans.
    #[wasm_bindgen(getter)]
    #[must_use]
    pub fn count(&self) -> f64 {
        self.spans.count() as f64
    }

    /// Returns the chaining value of a whole span, and remembers it.
    pub fn add(&mut self, span: f64, bytes: &[u8]) -> Result<Vec<u8>, JsError> {
        let span = span as u64;
        let value = self.spans.value(span, bytes);
        let value = value.ok_or_else(|| JsError::new("these are not the bytes of a span"))?;
        self.tree.insert(span, value);
        Ok(value.0.to_vec())
    }

    /// Returns the chaining value of a whole span, and forgets it.
    pub fn value(&self, span: f64, bytes: &[u8]) -> Result<Vec<u8>, JsError> {
        let value = self.spans.value(span as u64, bytes);
        value
            .map(|value| value.0.to_vec())
            .ok_or_else(|| JsError::new("these are not the bytes of a span"))
    }

    /// Remembers the chaining value of a span.
    pub fn insert(&mut self, span: f64, value: &[u8]) -> Result<(), JsError> {
        self.tree.insert(span as u64, ChainingValue(array(value)?));
        Ok(())
    }

    /// Whether the value of a span is there.
    #[must_use]
    pub fn contains(&self, span: f64) -> bool {
        self.tree.contains(span as u64)
    }

    /// Returns the hash of the file; `undefined` while spans are missing.
    #[must_use]
    pub fn root(&self) -> Option<Vec<u8>> {
        self.tree.root().map(|hash| hash.as_bytes().to_vec())
    }
}
