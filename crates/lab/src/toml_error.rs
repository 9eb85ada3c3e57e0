//! Sentences about TOML that is no plan, of no study and of no definition: what was read, what was
//! found, what to write. serde's own name Rust's types.

use headroom_suggest::with_suggestion;
use toml::de::Error;

use crate::at::line_of;

/// Added to what is said of an application or a layer that a plan defines.
pub(crate) const DEFINITIONS: &str =
    "; `headroom lab list --own-stacks` lists the keys of own applications and layers";

/// Returns `LINE: sentence` for an error in `text`.
pub(crate) fn in_text(error: &Error, text: &str) -> String {
    let line = error.span().map_or(1, |span| line_of(text, &span));
    let path = path(error);
    let message = error.message().trim();
    let sentence = of_value(message, path.as_deref()).unwrap_or_else(|| with_suggestion(message));
    let is_definition = |path: &str| path.split('.').any(|key| DEFINED.contains(&key));
    let is_part = |path: &str| path.split('.').next() == Some("part");
    let more = match path.as_deref() {
        Some(path) if is_definition(path) => DEFINITIONS,
        Some(path) if is_part(path) => PART,
        _ => "",
    };
    format!("{line}: {sentence}{more}")
}

/// Added to what is said of a part of a study.
const PART: &str = "; each [[part]] of a study is a plan";

/// The keys under which a plan defines stacks of its own.
const DEFINED: [&str; 2] = ["application", "layer"];

/// Returns the keys that lead to an error, `application.dav.port`. The error prints them only
/// where it does not know its text.
fn path(error: &Error) -> Option<String> {
    let mut bare = error.clone();
    bare.set_input(None);
    let printed = bare.to_string();
    let keys = printed.lines().last()?.strip_prefix("in `")?.strip_suffix('`')?;
    Some(keys.to_owned())
}

/// The sentence about a value of another type; none: the error is another one.
fn of_value(message: &str, path: Option<&str>) -> Option<String> {
    let (found, wanted) = if message == "wanted string or table" {
        (None, "a string")
    } else if let Some(rest) = message.strip_prefix("invalid length ") {
        let (count, wanted) = rest.rsplit_once(", expected ")?;
        (Some(format!("a list of {count}")), wanted)
    } else {
        let rest = message.strip_prefix("invalid type: ");
        let rest = rest.or_else(|| message.strip_prefix("invalid value: "))?;
        let (found, wanted) = rest.rsplit_once(", expected ")?;
        (Some(in_words(found)), wanted)
    };
    let what = path.map_or_else(|| "this".to_owned(), |path| format!("`{path}`"));
    let is_table = found.as_deref() == Some("a table");
    let is = found.map_or_else(String::new, |found| format!("is {found}, and "));
    let wanted = match wanted {
        "a sequence" if is_table => "a list: of tables, such as [[x]], or of texts: [\"x\", \"y\"]",
        _ => example(wanted),
    };
    Some(format!("{what} {is}must be {wanted}"))
}

/// A found value in words: `string "x"` is `the text "x"`.
fn in_words(found: &str) -> String {
    /// Characters of a text that are repeated.
    const MAX_CHARS: usize = 60;
    let number = |kind: &str| found.strip_prefix(kind)?.strip_suffix('`');
    if let Some(text) = found.strip_prefix("string ") {
        let short: String = text.chars().take(MAX_CHARS).collect();
        let more = if short.len() < text.len() { "…" } else { "" };
        return format!("the text {short}{more}");
    }
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        _ => match number("integer `").or_else(|| number("floating point `")) {
            Some(number) => format!("the number {number}"),
            None => number("boolean `").unwrap_or(found).to_owned(),
        },
    }
}

/// A wanted value in words, with an example; ours are such already.
fn example(wanted: &str) -> &str {
    match wanted {
        "a string" => "a text in quotes, such as \"x\"",
        "a sequence" => "a list, such as [\"x\", \"y\"]",
        "a boolean" => "true or false",
        "a map" => "a table",
        "u16" | "u32" | "u64" => "a whole number, such as 5",
        _ if wanted.starts_with("struct ") => "a table",
        _ => wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "lowercase")]
    #[allow(dead_code, reason = "read from TOML only")]
    struct File {
        count: Option<u32>,
        words: Option<Vec<String>>,
        flag: Option<bool>,
        color: Option<Colour>,
        #[serde(default)]
        application: std::collections::BTreeMap<String, Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, expecting = "a table such as { name = \"x\" }")]
    #[allow(dead_code, reason = "read from TOML only")]
    struct Inner {
        name: String,
        size: Option<u32>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
    }

    #[test]
    fn says_what_was_read_what_was_found_and_what_to_write() {
        for (text, sentence) in [
            (
                "count = \"5\"",
                "1: `count` is the text \"5\", and must be a whole number, such as 5",
            ),
            ("\ncount = -5", "2: `count` is the number -5, and must be a whole number"),
            ("count = 0.5", "1: `count` is the number 0.5, and must be a whole number"),
            (
                "words = \"a\"",
                "1: `words` is the text \"a\", and must be a list, such as [\"x\", \"y\"]",
            ),
            (
                "[words]\na = 1",
                "1: `words` is a table, and must be a list: of tables, such as [[x]], or of texts: [\"x\"",
            ),
            ("words = [true]", "1: `words` is true, and must be a text in quotes, such as \"x\""),
            ("flag = [1]", "1: `flag` is a list, and must be true or false"),
            ("color = 1", "1: `color` must be a text in quotes, such as \"x\""),
            ("color = \"rad\"", "1: unknown variant `rad` (did you mean `red`?), expected `red`"),
            ("cuont = 1", "1: unknown field `cuont` (did you mean `count`?), expected one of"),
            ("application = 1", "1: `application` is the number 1, and must be a table; `headroom"),
        ] {
            let error = toml::from_str::<File>(text).expect_err(text);
            let told = in_text(&error, text);
            assert!(told.starts_with(sentence), "{told}");
        }
        for (text, sentence) in [
            (
                "[application]\na = [\"x\"]",
                "2: `application.a` is a list of 1, and must be a table such as { name = \"x\" }",
            ),
            (
                "[application]\na = \"x\"",
                "2: `application.a` is the text \"x\", and must be a table such as { name = \"x\" }",
            ),
            ("[application.a]\nsize = 1", "1: missing field `name`"),
            (
                "[application.a]\nnmae = 1",
                "2: unknown field `nmae` (did you mean `name`?), expected `name` or `size`",
            ),
        ] {
            let error = toml::from_str::<File>(text).expect_err(text);
            assert_eq!(in_text(&error, text), format!("{sentence}{DEFINITIONS}"));
        }
        let long = format!("count = \"{}\"", "x".repeat(10_000));
        let error = toml::from_str::<File>(&long).expect_err("a text");
        assert!(in_text(&error, &long).len() < 200, "a long value is not repeated");
    }
}
