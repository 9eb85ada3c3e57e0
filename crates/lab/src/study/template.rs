//! Texts with names in braces, filled row by row.

use std::collections::BTreeMap;

/// Values of a row's names.
pub(super) type Row = BTreeMap<String, String>;

/// `text` with every `{name}` replaced by what `row` has for it.
///
/// # Errors
/// A sentence: a name is unknown, a brace is not closed.
pub(super) fn fill(text: &str, row: &Row) -> Result<String, String> {
    fill_with(text, |name| {
        row.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = row.keys().map(String::as_str).collect();
            format!("`{text}`: there is no `{name}` in a row; there are {}", known.join(", "))
        })
    })
}

/// `text` with every `{name}` replaced by what `value` says of it.
///
/// # Errors
/// As [`fill`].
pub(super) fn fill_with(
    text: &str,
    mut value: impl FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) =
            behind.split_once('}').ok_or_else(|| format!("`{text}`: a `{{` is not closed"))?;
        filled += before;
        filled += &value(name)?;
        rest = after;
    }
    Ok(filled + rest)
}

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    /// A name in braces.
    Name(&'a str),
}

/// The pieces of a text whose braces are known to be closed.
pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((name, after)) = behind.split_once('}') else { break };
        pieces.extend([Piece::Text(before), Piece::Name(name)]);
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_once_and_must_be_known() {
        let row = Row::from([("a".to_owned(), "{b}".to_owned()), ("b".to_owned(), "2".to_owned())]);
        assert_eq!(fill("x{a}y{b}", &row).as_deref(), Ok("x{b}y2"));
        assert!(fill("{c}", &row).is_err_and(|why| why.contains("there are a, b")));
        assert!(fill("{a", &row).is_err_and(|why| why.contains("not closed")));
    }
}
