//! Names for programs: a name is bytes, and JSON has only text.

use data_encoding::BASE64;
use serde_json::{Map, Value};

/// Adds a name to an event: `KEY` has it as text, and where it is not UTF-8, in which case
/// some of that text stands for other bytes, `KEY_base64` has its bytes.
pub(super) fn insert(event: &mut Map<String, Value>, key: &str, name: &[u8]) {
    if str::from_utf8(name).is_err() {
        event.insert(format!("{key}_base64"), BASE64.encode(name).into());
    }
    event.insert(key.to_owned(), String::from_utf8_lossy(name).into());
}

/// Makes an object of an event with one name more.
pub(super) fn with(mut event: Value, key: &str, name: &[u8]) -> Value {
    if let Some(event) = event.as_object_mut() {
        insert(event, key, name);
    }
    event
}

/// Writes an event as a line that programs read as it is and terminals show safely: what
/// would turn the writing round, or shows nothing, is escaped as JSON does.
pub(super) fn line(event: &Value) -> String {
    let mut line = String::new();
    for c in event.to_string().chars() {
        // such characters stand within texts alone
        if c == '\x7f' || (!c.is_ascii() && c.escape_debug().len() > 1) {
            let units = &mut [0; 2];
            line.extend(c.encode_utf16(units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_can_be_given_back_as_they_are() {
        for (name, event) in [
            (&b"back\\slash\n\x1b"[..], json!({"path": "back\\slash\n\u{1b}"})),
            ("größe/日本".as_bytes(), json!({"path": "größe/日本"})),
            (
                b"\xff\xfe-latin",
                json!({"path": "\u{fffd}\u{fffd}-latin", "path_base64": "//4tbGF0aW4="}),
            ),
        ] {
            let written = with(json!({}), "path", name);
            assert_eq!(written, event);
        }
    }

    #[test]
    fn a_line_is_printable_and_read_as_what_was_written() {
        let name = "\u{202e}gpj\u{200b}\x7f\x1b\u{9b}\u{e0001} größe \\ \"";
        let event = with(json!({}), "path", name.as_bytes());
        let line = line(&event);
        assert_eq!(line, r#"{"path":"\u202egpj\u200b\u007f\u001b\u009b\udb40\udc01 größe \\ \""}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), event);
    }
}
