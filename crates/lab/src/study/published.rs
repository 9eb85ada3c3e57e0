//! The figures that a paper printed: a CSV file of plain values, its first line the
//! names of the columns.

use std::path::Path;

use super::template::Row;

/// Bytes that a table may have.
const LONGEST: u64 = 1 << 20;

/// The text of a table of this name in a folder.
///
/// # Errors
/// A sentence: the name leads elsewhere, or it cannot be read.
pub(super) fn text(folder: &Path, name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!("`{name}` is not the name of a table in {}", folder.display()));
    }
    let path = folder.join(name);
    let told = |why: String| format!("the table {}: {why}", path.display());
    let length = std::fs::metadata(&path).map_err(|error| told(error.to_string()))?.len();
    if length > LONGEST {
        return Err(told(format!("{length} bytes are more than a printed table has")));
    }
    std::fs::read_to_string(&path).map_err(|error| told(error.to_string()))
}

/// The rows of a table.
///
/// # Errors
/// A sentence: a line has other columns than the first.
pub(super) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or("it is empty")?;
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let row = |(number, line): (usize, &str)| {
        let values: Vec<&str> = line.split(',').map(str::trim).collect();
        if line.contains('"') || values.len() != names.len() {
            let (number, wanted) = (number + 1, names.len());
            return Err(format!("line {number} has not {wanted} plain values: {line}"));
        }
        let pairs = names.iter().zip(values);
        Ok(pairs.map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect())
    };
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_its_header_and_as_many_values_a_line() {
        let rows = parse("a,b\n1,x y\n\n,2\n").expect("a table");
        assert_eq!((rows.len(), rows[0]["b"].as_str(), rows[1]["a"].as_str()), (2, "x y", ""));
        assert!(parse("").is_err() && parse("a,b\n1\n").is_err());
        assert!(parse("a,b\n\"1,2\",3\n").is_err_and(|why| why.starts_with("line 2")));
    }

    #[test]
    fn a_table_lies_in_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("times.csv"), "a\n1\n").expect("a table");
        assert_eq!(text(folder.path(), "times.csv").as_deref(), Ok("a\n1\n"));
        for (name, why) in [
            ("../times.csv", "is not the name of a table"),
            (".times.csv", "is not the name of a table"),
            ("none.csv", "the table "),
        ] {
            assert!(text(folder.path(), name).is_err_and(|said| said.contains(why)), "{name}");
        }
    }
}
