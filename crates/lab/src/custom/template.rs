//! Words with placeholders: `--port={port}`. `{{` and `}}` stand for braces.

use std::collections::BTreeMap;

use headroom_suggest::suggestion;

/// A text with placeholders of a known set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(&'static str),
}

/// What placeholders stand for.
#[derive(Debug, Default)]
pub(super) struct Values(BTreeMap<&'static str, String>);

impl Template {
    /// Reads a text in which `known` placeholders may stand.
    ///
    /// # Errors
    /// A sentence: a placeholder is unknown, or a brace stands alone.
    pub(super) fn parse(text: &str, known: &[&'static str]) -> Result<Self, String> {
        let (mut pieces, mut plain) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                plain.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let inside = from.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            let Some((name, after)) = inside else {
                let brace = &from[..1];
                return Err(format!(
                    "a `{brace}` stands alone: a placeholder is `{{name}}`, and a brace itself is written `{brace}{brace}`"
                ));
            };
            let known_name = known.iter().find(|known| **known == name);
            let Some(name) = known_name else {
                let meant = suggestion(name, known.iter().copied());
                return Err(format!(
                    "there is no placeholder `{{{name}}}` here{meant}; there are {} (a brace itself is written twice)",
                    known.join(", ")
                ));
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Value(name));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// The text with a value for each placeholder.
    pub(super) fn fill(&self, values: &Values) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value(name) => values.0.get(name).cloned().unwrap_or_default(),
        };
        self.0.iter().map(piece).collect()
    }
}

impl Values {
    /// These values with more.
    pub(super) fn with<const N: usize>(mut self, more: [(&'static str, String); N]) -> Self {
        self.0.extend(more);
        self
    }

    /// The placeholders that have a value.
    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 2] = ["host", "port"];

    #[test]
    fn placeholders_are_replaced_inside_words_and_values_are_not_read_again() {
        let values = Values::default().with([("host", "{port}".to_owned()), ("port", "21".into())]);
        for (text, filled) in [
            ("", ""),
            ("plain", "plain"),
            ("{host}:{port}", "{port}:21"),
            ("a{{b}}c{port}", "a{b}c21"),
            ("{{{port}}}", "{21}"),
            ("é{port}é", "é21é"),
        ] {
            let template = Template::parse(text, &KNOWN).expect(text);
            assert_eq!(template.fill(&values), filled, "{text}");
        }
    }

    #[test]
    fn unknown_placeholders_and_single_braces_are_refused() {
        for (text, sentence) in [
            (
                "{prot}",
                "there is no placeholder `{prot}` here (did you mean `port`?); there are host, port",
            ),
            ("{}", "there is no placeholder `{}` here; there are host, port"),
            ("{ port}", "there is no placeholder `{ port}`"),
            ("{port", "a `{` stands alone"),
            (
                "a}b",
                "a `}` stands alone: a placeholder is `{name}`, and a brace itself is written `}}`",
            ),
            ("{{port}", "a `}` stands alone"),
        ] {
            let error = Template::parse(text, &KNOWN).expect_err(text);
            assert!(error.starts_with(sentence), "{error}");
        }
    }
}
