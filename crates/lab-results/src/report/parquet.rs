//! Samples of many runs as one table in Parquet, which DuckDB, pandas and Spark read. Each row has
//! the columns of results.csv behind those of its run.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::rows::{Value, columns};
use crate::schema::{Results, Sample};

/// Writes the table: a group of rows for each run, in the order of the runs. Each has a name.
///
/// # Errors
/// The file cannot be written.
pub fn write(runs: &[(String, Results)], to: impl Write + Send) -> Result<()> {
    let mut table = SampleTable::new(to)?;
    for (name, results) in runs {
        table.add(name, results)?;
    }
    table.finish()
}

/// A table that is written run by run: no more than one of them is in memory.
pub struct SampleTable<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> SampleTable<W> {
    /// Begins a table.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(to: W) -> Result<Self> {
        let schema = schema(&row("", None, &Sample::default()))?;
        let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
        SerializedFileWriter::new(to, schema, Arc::new(properties.build())).map(Self)
    }

    /// Adds the samples of a run as a group of rows.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, name: &str, results: &Results) -> Result<()> {
        let rows: Vec<_> =
            results.samples.iter().map(|one| row(name, Some(results), one)).collect();
        // a group without rows would have no columns
        let Some(first) = rows.first() else { return Ok(()) };
        let mut group = self.0.next_row_group()?;
        for index in 0..first.len() {
            let cells: Vec<&Value> = rows.iter().map(|row| &row[index].1).collect();
            write_column(&mut group, &cells)?;
        }
        group.close().map(drop)
    }

    /// Ends the table.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> Result<()> {
        self.0.close().map(drop)
    }
}

/// A column that is the same for all samples of a run.
type OfRun = (&'static str, fn(&Results) -> &str);

const OF_RUN: [OfRun; 6] = [
    ("plan", |run| &run.plan.name),
    ("started", |run| &run.environment.started),
    ("headroom", |run| &run.environment.headroom),
    ("kernel", |run| &run.environment.kernel),
    ("cpu", |run| &run.environment.cpu),
    ("offload", |run| &run.plan.offload),
];

/// A sample's row; without its run the texts are empty.
fn row(name: &str, run: Option<&Results>, sample: &Sample) -> Vec<(&'static str, Value)> {
    let text = |column, text: &str| (column, Value::Text(text.to_owned()));
    let planned = run.and_then(|run| run.plan.stacks.iter().find(|one| one.name == sample.stack));
    let baseline = planned.and_then(|stack| stack.baseline.as_deref());
    let pair = run.and_then(|run| run.plan.pair_name()).unwrap_or_default();
    let mut row = vec![text("run", name), text("pair", &pair)];
    row.extend(OF_RUN.map(|(column, of)| text(column, run.map_or("", of))));
    row.push(text("baseline", baseline.unwrap_or_default()));
    row.extend(columns(sample));
    row
}

fn schema(row: &[(&'static str, Value)]) -> Result<TypePtr> {
    let column = |(name, value): &(&'static str, Value)| {
        let (physical, logical, repetition) = match value {
            Value::Text(_) => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED)
            }
            Value::Whole(_) => (Physical::INT64, None, Repetition::OPTIONAL),
            Value::Number(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
            Value::Flag(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
        };
        let column = Type::primitive_type_builder(name, physical);
        column.with_logical_type(logical).with_repetition(repetition).build().map(Arc::new)
    };
    let columns = row.iter().map(column).collect::<Result<Vec<TypePtr>>>()?;
    Type::group_type_builder("samples").with_fields(columns).build().map(Arc::new)
}

fn write_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    cells: &[&Value],
) -> Result<()> {
    match cells.first() {
        Some(Value::Text(_)) => {
            let texts = cells.iter().filter_map(|cell| match cell {
                Value::Text(text) => Some(ByteArray::from(text.as_str())),
                _ => None,
            });
            write_values::<ByteArrayType, W>(group, &texts.collect::<Vec<_>>(), None)
        }
        Some(Value::Flag(_)) => {
            let flags = cells.iter().map(|cell| matches!(cell, Value::Flag(true)));
            write_values::<BoolType, W>(group, &flags.collect::<Vec<_>>(), None)
        }
        Some(Value::Whole(_)) => {
            let counts = cells.iter().map(|cell| match cell {
                Value::Whole(value) => value.and_then(|value| i64::try_from(value).ok()),
                _ => None,
            });
            write_known::<Int64Type, W>(group, &counts.collect::<Vec<_>>())
        }
        Some(Value::Number(_)) => {
            let numbers = cells.iter().map(|cell| match cell {
                Value::Number(value) => *value,
                _ => None,
            });
            write_known::<DoubleType, W>(group, &numbers.collect::<Vec<_>>())
        }
        None => Ok(()),
    }
}

/// Writes those that are known; the others are null.
fn write_known<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[Option<T::T>],
) -> Result<()> {
    let known: Vec<T::T> = values.iter().flatten().cloned().collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    write_values::<T, W>(group, &known, Some(&levels))
}

fn write_values<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<()> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn a_reader_finds_the_columns_and_what_was_not_measured_is_null() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/round-trips.json");
        let mut results = super::super::read_file(kept.as_ref()).expect("the kept results");
        results.samples[1].seconds = None;
        results.plan.pair = Some("berlin-paris".to_owned());
        let empty = Results { samples: Vec::new(), ..results.clone() };
        let count = results.samples.len();
        let runs = ["empty", "one", "two"].map(str::to_owned);
        let runs: Vec<_> = runs.into_iter().zip([empty, results.clone(), results]).collect();
        let file = tempfile::tempfile().expect("a file");
        write(&runs, file.try_clone().expect("the same file")).expect("a table");

        let reader = SerializedFileReader::new(file).expect("Parquet");
        let read: Vec<_> = reader.get_row_iter(None).expect("rows").map(Result::unwrap).collect();
        assert_eq!(read.len(), 2 * count, "a run without samples has no rows");
        let first = row("", None, &Sample::default());
        let at = |name: &str| first.iter().position(|(column, _)| *column == name).expect(name);
        let sample = &runs[1].1.samples[0];
        assert_eq!(read[0].get_string(at("run")).expect("text"), "one");
        assert_eq!(read[count].get_string(at("run")).expect("text"), "two");
        assert_eq!(read[0].get_string(at("pair")).expect("text"), "berlin-paris");
        assert_eq!(read[0].get_string(at("plan")).expect("text"), &runs[1].1.plan.name);
        assert_eq!(read[0].get_string(at("stack")).expect("text"), &sample.stack);
        assert_eq!(read[0].get_long(at("size_bytes")).expect("a count"), 1024);
        assert_eq!(read[0].get_double(at("seconds")).ok(), sample.seconds);
        assert!(read[1].get_double(at("seconds")).is_err(), "null");
        let secured = read
            .iter()
            .find(|one| one.get_string(at("stack")).is_ok_and(|stack| stack == "sftp(sntrup761)"));
        let baseline = secured.expect("its row").get_string(at("baseline"));
        assert_eq!(baseline.expect("text"), "sftp");
    }
}
