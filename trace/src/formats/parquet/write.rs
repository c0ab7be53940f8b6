//! Writes a trace as Parquet: rows are gathered into groups of bounded size, each column compressed by zstd.
//!
//! Never: more than one group in memory.

use super::columns::{SCHEMA, SCHEMA_VERSION, code};
use crate::error::{TraceError, TracePosition};
use crate::format::{ExportReport, Output, Pairs};
use crate::formats::csv::write::after_text;
use crate::{FileInfo, Header, Item, Items, Record};
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Rows of a group: some 20 MB while it is gathered.
pub const GROUP_ROWS: usize = 1 << 17;

fn failed(path: &Path, record: u64, error: &ParquetError) -> TraceError {
    TraceError::new(
        path,
        TracePosition::Record(record),
        format!("cannot be written ({error})"),
        "check the disk",
    )
}

pub fn export(
    header: &Header,
    pairs: Pairs,
    items: Items,
    output: Output,
) -> Result<ExportReport, TraceError> {
    pairs.finish(&output.path, super::FORMAT.name, &[])?;
    let path = output.path;
    let mut records = 0;
    let fail = |error: ParquetError| failed(&path, 0, &error);
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(fail)?);
    let level = ZstdLevel::try_new(3).map_err(fail)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .build();
    let mut to =
        SerializedFileWriter::new(output.to, schema, Arc::new(properties)).map_err(fail)?;
    for (key, value) in about(header) {
        to.append_key_value_metadata(KeyValue::new(key.to_string(), value));
    }
    let (mut files, mut rows) = (Vec::new(), Rows::default());
    for item in items {
        match item? {
            Item::File(file) => files.push(file),
            Item::Record(record) => {
                records += 1;
                rows.add(&record, &files[record.file as usize]);
                if rows.len == GROUP_ROWS {
                    rows.write(&mut to)
                        .map_err(|error| failed(&path, records, &error))?;
                }
            }
        }
    }
    if rows.len > 0 {
        rows.write(&mut to)
            .map_err(|error| failed(&path, records, &error))?;
    }
    to.close().map_err(|error| failed(&path, records, &error))?;
    Ok(ExportReport {
        records,
        left_out: Vec::new(),
    })
}

fn about(header: &Header) -> Vec<(&'static str, String)> {
    vec![
        ("schema_version", SCHEMA_VERSION.to_string()),
        ("source_format", header.format.clone()),
        ("clock", "ns since the trace began".to_string()),
        ("time_unit_origin", header.time_unit.clone()),
        ("offset_unit_origin", header.offset_unit.clone()),
        ("lacks", header.lacks.names().join(" ")),
        ("level", format!("{:?}", header.level)),
        ("notes", header.notes.join("\n")),
    ]
}

#[derive(Default)]
struct Maybe<T> {
    values: Vec<T>,
    known: Vec<i16>,
}

impl<T> Maybe<T> {
    fn add(&mut self, value: Option<T>) {
        self.known.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

#[derive(Default)]
struct Rows {
    len: usize,
    longs: [Vec<i64>; 2],
    maybe_longs: [Maybe<i64>; 4],
    ints: [Vec<i32>; 5],
    files: Vec<ByteArray>,
    after: Maybe<ByteArray>,
    /// The latest name, which rows share.
    name: Option<(u32, ByteArray)>,
}

/// Below 2^63: all that goes through the checks is, and times of a trace fit for 292 years.
fn long(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Rows {
    fn add(&mut self, record: &Record, file: &FileInfo) {
        self.len += 1;
        let optional = [record.start_ns, record.end_ns, file.size, record.returned];
        for (column, value) in self.maybe_longs.iter_mut().zip(optional) {
            column.add(value.map(long));
        }
        for (column, value) in self.longs.iter_mut().zip([record.offset, record.len]) {
            column.push(long(value));
        }
        let small = [record.file, record.open, record.thread].map(u32::cast_signed);
        let ints = [
            small[0],
            small[1],
            small[2],
            code(record.op),
            i32::from(record.flags.0),
        ];
        for (column, value) in self.ints.iter_mut().zip(ints) {
            column.push(value);
        }
        let name = match &self.name {
            Some((file, name)) if *file == record.file => name.clone(),
            _ => ByteArray::from(file.name.as_str()),
        };
        self.name = Some((record.file, name.clone()));
        self.files.push(name);
        let after =
            (!record.after.is_empty()).then(|| ByteArray::from(after_text(&record.after).as_str()));
        self.after.add(after);
    }

    fn write<W: Write + Send>(
        &mut self,
        to: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError> {
        let mut group = to.next_row_group()?;
        let mut number = 0;
        while let Some(mut column) = group.next_column()? {
            let plain: Option<&[i16]> = None;
            match number {
                0 | 1 | 4 | 10 => {
                    let at = match number {
                        4 => 2,
                        10 => 3,
                        n => n,
                    };
                    let Maybe { values, known } = &self.maybe_longs[at];
                    column
                        .typed::<Int64Type>()
                        .write_batch(values, Some(known), None)?;
                }
                2 => {
                    column
                        .typed::<ByteArrayType>()
                        .write_batch(&self.files, plain, None)?;
                }
                8 | 9 => {
                    column.typed::<Int64Type>().write_batch(
                        &self.longs[number - 8],
                        plain,
                        None,
                    )?;
                }
                12 => {
                    column.typed::<ByteArrayType>().write_batch(
                        &self.after.values,
                        Some(&self.after.known),
                        None,
                    )?;
                }
                n => {
                    let at = match n {
                        3 => 0,
                        11 => 4,
                        n => n - 4,
                    };
                    column
                        .typed::<Int32Type>()
                        .write_batch(&self.ints[at], plain, None)?;
                }
            }
            column.close()?;
            number += 1;
        }
        group.close()?;
        *self = Rows {
            name: self.name.take(),
            ..Rows::default()
        };
        Ok(())
    }
}
