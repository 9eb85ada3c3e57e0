//! Messages as objects of JavaScript.

use headroom_transfer_proto::message::{
    EntryKind, ErrorCode, Inline, Listed, ListedKind, Message, ShareTerms, Time,
};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::ChainingValue;
use js_sys::{Array, Object, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;

/// Decodes the body of a message to an object, whose `type` is its name.
#[wasm_bindgen]
pub fn decode(body: &[u8]) -> Result<Object, JsError> {
    let message = Message::parse(body)?;
    Ok(match message {
        Message::Hello { version, program, rate_bps, .. } => object("hello")
            .number("version", f64::from(version))
            .text("program", &program)
            .optional_number("rate", rate_bps),
        Message::Challenge { nonce } => object("challenge").bytes("nonce", &nonce),
        Message::Accepted { ticket, .. } => match ticket {
            Some(ticket) => object("accepted").bytes("ticket", &ticket),
            None => object("accepted"),
        },
        Message::Refused { reason, about_files, code } => object("refused")
            .text("reason", &reason)
            .flag("aboutFiles", about_files == Some(true))
            .code(code),
        Message::Granted { known, read_only, rate_bps, may_share, share } => {
            let granted = object("granted")
                .flag("known", known)
                .flag("readOnly", read_only)
                .flag("mayShare", may_share == Some(true))
                .optional_number("rate", rate_bps);
            match share {
                Some(share) => granted.set("share", &terms(&share)),
                None => granted,
            }
        }
        Message::Shared { terms: made, secret, .. } => {
            object("shared").set("terms", &terms(&made)).bytes("secret", &secret)
        }
        Message::SharesListed { shares, last } => {
            let shares: Array = shares.iter().map(terms).collect();
            object("shares-listed").set("shares", &shares).flag("last", last)
        }
        Message::Entry { id, path, kind } => entry(id, &path, kind),
        Message::EntriesEnd { files, bytes } => {
            object("entries-end").number("files", files as f64).number("bytes", bytes as f64)
        }
        Message::Have { id, first_span, values, last, .. } => object("have")
            .number("id", id as f64)
            .number("first", first_span as f64)
            .bytes("values", &joined(&values))
            .flag("last", last),
        Message::Sealed { id, root, bytes } => object("sealed")
            .number("id", id as f64)
            .bytes("hash", &root)
            .number("bytes", bytes as f64),
        Message::Withdrawn { id, reason, code } => {
            object("withdrawn").text("reason", &reason).code(code).number("id", id as f64)
        }
        Message::Arrived { bytes, streams } => {
            object("arrived").number("bytes", bytes as f64).number("streams", streams as f64)
        }
        Message::Stored { id } => object("stored").number("id", id as f64),
        Message::Failed { id, reason, code } => {
            object("failed").text("reason", &reason).code(code).number("id", id as f64)
        }
        Message::End { stored, failed } => {
            object("end").number("stored", stored as f64).number("failed", failed as f64)
        }
        Message::Listing { entries, last } => {
            let entries: Array = entries.iter().map(listed).collect();
            object("listing").set("entries", &entries).flag("last", last)
        }
        Message::Unreadable { reason, code, .. } => {
            object("unreadable").text("reason", &reason).code(code)
        }
        Message::Removed { path } => object("removed").bytes("path", path.as_bytes()),
        Message::Left { reason, failed, code } => {
            object("left").text("reason", &reason).code(code).flag("failed", failed)
        }
        Message::Hole { id, offset, len } => object("hole")
            .number("id", id as f64)
            .number("offset", offset as f64)
            .number("length", len as f64),
        Message::Remark { text, .. } => object("remark").text("text", &text),
        _ => return Err(JsError::new("the server sends what this page does not know")),
    }
    .0)
}

fn entry(id: u64, path: &RelPath, kind: EntryKind) -> Fields {
    let entry = object("entry").number("id", id as f64).bytes("path", path.as_bytes());
    match kind {
        EntryKind::Directory { mtime, .. } => {
            entry.text("kind", "directory").number("modified", ms(mtime))
        }
        EntryKind::Symlink { target, .. } => entry.text("kind", "link").bytes("target", &target),
        EntryKind::File { size, mode, mtime, inline, .. } => {
            let entry = entry
                .text("kind", "file")
                .number("size", size as f64)
                .number("mode", f64::from(mode))
                .number("modified", ms(mtime));
            match inline {
                Some(Inline { content, root }) => {
                    entry.bytes("content", &content).bytes("hash", &root)
                }
                None => entry,
            }
        }
        EntryKind::HardLink { .. } => entry.text("kind", "other"),
    }
}

fn listed(entry: &Listed) -> Object {
    let kind = match entry.kind {
        ListedKind::File => "file",
        ListedKind::Directory => "directory",
        ListedKind::Symlink => "link",
        ListedKind::Other => "other",
    };
    let fields = object(kind)
        .bytes("name", entry.path.as_bytes())
        .number("size", entry.size as f64)
        .number("mode", f64::from(entry.mode))
        .number("modified", ms(entry.mtime));
    match &entry.target {
        Some(target) => fields.bytes("target", target).0,
        None => fields.0,
    }
}

/// Describes a share, with times in milliseconds since 1970.
fn terms(share: &ShareTerms) -> Object {
    let path = share.path.as_ref().map_or(&b""[..], RelPath::as_bytes);
    object("share")
        .text("id", &share.id)
        .bytes("path", path)
        .flag("isFile", share.is_file)
        .flag("write", share.write)
        .number("created", share.created as f64 * 1000.0)
        .number("expires", share.expires as f64 * 1000.0)
        .optional_number("uses", share.uses.map(u64::from))
        .number("used", f64::from(share.used))
        .text("name", &share.name)
        .text("by", &share.by)
        .0
}

/// Returns milliseconds since 1970.
fn ms(time: Time) -> f64 {
    time.seconds as f64 * 1000.0 + f64::from(time.nanoseconds / 1_000_000)
}

fn joined(values: &[ChainingValue]) -> Vec<u8> {
    values.iter().flat_map(|value| value.0).collect()
}

/// An object that is being made.
struct Fields(Object);

fn object(kind: &str) -> Fields {
    Fields(Object::new()).text("type", kind)
}

impl Fields {
    fn set(self, name: &str, value: &JsValue) -> Self {
        // it fails for frozen objects and proxies alone
        let _ = Reflect::set(&self.0, &JsValue::from_str(name), value);
        self
    }

    fn number(self, name: &str, value: f64) -> Self {
        self.set(name, &JsValue::from_f64(value))
    }

    fn optional_number(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(name, value as f64),
            None => self.set(name, &JsValue::NULL),
        }
    }

    /// Sets the name of an error's code; none if the server gave none or a later one.
    fn code(self, code: Option<ErrorCode>) -> Self {
        match code.and_then(ErrorCode::name) {
            Some(name) => self.text("code", name),
            None => self.set("code", &JsValue::NULL),
        }
    }

    fn text(self, name: &str, value: &str) -> Self {
        self.set(name, &JsValue::from_str(value))
    }

    fn flag(self, name: &str, value: bool) -> Self {
        self.set(name, &JsValue::from_bool(value))
    }

    fn bytes(self, name: &str, value: &[u8]) -> Self {
        self.set(name, &Uint8Array::from(value))
    }
}
