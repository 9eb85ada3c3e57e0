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
    let schema = schema(&row("", &blank(), "", &Sample::default()))?;
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
    let mut writer = SerializedFileWriter::new(to, schema, Arc::new(properties.build()))?;
    // a group without rows would have no columns
    for (name, results) in runs.iter().filter(|(_, results)| !results.samples.is_empty()) {
        let baseline = |sample: &Sample| {
            let planned = results.plan.stacks.iter().find(|stack| stack.name == sample.stack);
            planned.and_then(|stack| stack.baseline.as_deref()).unwrap_or_default()
        };
        let of_run = of_run(results);
        let rows: Vec<_> =
            results.samples.iter().map(|one| row(name, &of_run, baseline(one), one)).collect();
        let mut group = writer.next_row_group()?;
        for index in 0..rows.first().map_or(0, Vec::len) {
            let cells: Vec<&Value> = rows.iter().map(|row| &row[index].1).collect();
            write_column(&mut group, &cells)?;
        }
        group.close()?;
    }
    writer.close().map(drop)
}

/// What a run says of all its samples.
type OfRun = [(&'static str, String); 6];

fn of_run(results: &Results) -> OfRun {
    let machine = &results.environment;
    [
        ("plan", results.plan.name.clone()),
        ("started", machine.started.clone()),
        ("headroom", machine.headroom.clone()),
        ("kernel", machine.kernel.clone()),
        ("cpu", machine.cpu.clone()),
        ("offload", results.plan.offload.clone()),
    ]
}

fn blank() -> OfRun {
    ["plan", "started", "headroom", "kernel", "cpu", "offload"].map(|name| (name, String::new()))
}

fn row(run: &str, of_run: &OfRun, baseline: &str, sample: &Sample) -> Vec<(&'static str, Value)> {
    let text = |name, text: &str| (name, Value::Text(text.to_owned()));
    let mut row = vec![text("run", run)];
    row.extend(of_run.iter().map(|(name, value)| text(name, value)));
    row.push(text("baseline", baseline));
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
        let sample = |seconds| Sample {
            stack: "sftp".to_owned(),
            seconds,
            size_bytes: 1024,
            ok: true,
            ..Sample::default()
        };
        let rows =
            [sample(Some(0.5)), sample(None)].map(|one| row("results/1", &blank(), "", &one));
        let schema = schema(&rows[0]).expect("a schema");
        let mut file = tempfile::tempfile().expect("a file");
        let mut writer =
            SerializedFileWriter::new(&mut file, schema, Arc::default()).expect("open");
        let mut group = writer.next_row_group().expect("a group");
        for index in 0..rows[0].len() {
            let cells: Vec<&Value> = rows.iter().map(|row| &row[index].1).collect();
            write_column(&mut group, &cells).expect("a column");
        }
        group.close().expect("its end");
        writer.close().expect("the end");

        let reader = SerializedFileReader::new(file).expect("Parquet");
        let read: Vec<_> = reader.get_row_iter(None).expect("rows").map(Result::unwrap).collect();
        let at = |name: &str| rows[0].iter().position(|(column, _)| *column == name).expect(name);
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].get_string(at("run")).expect("text"), "results/1");
        assert_eq!(read[1].get_string(at("stack")).expect("text"), "sftp");
        assert_eq!(read[1].get_long(at("size_bytes")).expect("a count"), 1024);
        assert_eq!(read[0].get_double(at("seconds")).expect("a time"), 0.5);
        assert!(read[1].get_double(at("seconds")).is_err(), "null");
        assert!(read[0].get_bool(at("ok")).expect("a flag"));
    }
}
