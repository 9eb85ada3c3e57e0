//! Rewrites messages of the TOML parser: they name the field and the correct notation, but not the
//! value, which may be a key.

use headroom_suggest::with_suggestion;

/// Returns the message for an error at byte `at` of `text`.
pub(super) fn message(text: &str, at: usize, said: &str) -> String {
    if let Some(table) = table(text, at).filter(|_| said.contains("map, expected a sequence")) {
        return format!("there may be several of this table: write [[{table}]]");
    }
    let Some((field, value)) = field(text, at) else { return sentence(said) };
    let bare = value.starts_with(|c: char| c.is_ascii_alphabetic());
    let named = ["true", "false", "inf", "nan"].iter().any(|word| value.starts_with(word));
    if bare && !named && (said.contains("invalid") || said.contains("quoted")) {
        return format!("`{field}` needs quotes around its value: {field} = \"…\"");
    }
    if said.contains("expected u64") {
        return if value.starts_with(['"', '\'']) {
            format!("`{field}` is a number: write it without quotes, as in 4096 or 0x1000")
        } else {
            format!("`{field}` is a whole number, 0 or more")
        };
    }
    if said.contains("below zero") {
        return format!("`{field}` must not be negative");
    }
    if said.contains("expected a string") {
        return format!("`{field}` is text: write it in quotes");
    }
    if said.contains("expected a boolean") {
        return format!("`{field}` is true or false, without quotes");
    }
    sentence(said)
}

/// Returns the parser's message in one line; an unknown name gets the one that was probably meant.
fn sentence(said: &str) -> String {
    with_suggestion(&said.trim().replace('\n', "; "))
}

/// Returns the field whose value is at `at` or contains it, and the text from that value.
fn field(text: &str, at: usize) -> Option<(&str, &str)> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next()?;
    // In an inline table: the last `name =` before the position.
    let before = line.get(..at - start).and_then(|before| before.rfind('='));
    let equals = before.or_else(|| line.find('='))?;
    let before = line[..equals].trim_end();
    let outside = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = before.rsplit(outside).next()?;
    (!name.is_empty()).then(|| (name, line[equals + 1..].trim_start()))
}

/// Returns the name in a table's header `[name]` at `at`.
fn table(text: &str, at: usize) -> Option<&str> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let name = text[start..].lines().next()?.trim_start().strip_prefix('[')?.split(']').next()?;
    (!name.starts_with('[')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn names_the_field_and_what_to_write() {
        for (text, at, said, words) in [
            (
                "a = 1\nmode = tunnel\n",
                13,
                "invalid boolean; expected `true`",
                "`mode` needs quotes",
            ),
            ("spi = \"0x1\"", 6, "invalid type: string \"0x1\", expected u64", "without quotes"),
            (
                "x = { hard_packets = -5 }",
                21,
                "a number below zero",
                "`hard_packets` must not be negative",
            ),
            ("mtu = -5", 6, "invalid value: integer `-5`, expected u64", "`mtu` is a whole number"),
            ("name = 5", 7, "invalid type: integer `5`, expected a string", "`name` is text"),
        ] {
            let message = message(text, at, said);
            assert!(message.contains(words), "{message}");
        }
        assert_eq!(
            message("a = 1\n[child]\nb = 2\n", 6, "invalid type: map, expected a sequence"),
            "there may be several of this table: write [[child]]"
        );
        assert_eq!(message("[[sa]]\n", 2, "unknown\nfield"), "unknown; field");
        let unknown = "unknown field `mtv`, expected `mtu` or `path_mtu`";
        assert_eq!(
            message("mtv = 1400\n", 0, unknown),
            "unknown field `mtv` (did you mean `mtu`?), expected `mtu` or `path_mtu`"
        );
        assert_eq!(message("key = \u{e9}", 6, "invalid"), "invalid");
    }
}
