//! Reads columns of a Parquet file on S3 with parquet's own reader, with and without readahead in front of its store.
//!
//! `parquet-ahead alone|ahead PATH [COLUMN...]` reads all columns, or the given ones, and prints seconds and rows. The
//! bucket is `bucket`; its server and account come from the environment. `bench/ahead-vs-alone` runs it.

#![allow(
    deprecated,
    reason = "parquet 60.1 calls its reader of stores deprecated, and has no other one"
)]

use foreread::Options;
use foreread::front::Ahead;
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use parquet::arrow::async_reader::ParquetObjectReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [way, path, columns @ ..] = &args[..] else {
        return Err("write: parquet-ahead alone|ahead PATH [COLUMN...]".into());
    };
    let own = AmazonS3Builder::from_env()
        .with_bucket_name("bucket")
        .build()?;
    // The one line.
    let store: Arc<dyn ObjectStore> = match way.as_str() {
        "alone" => Arc::new(own),
        _ => Arc::new(Ahead::new(own, Options::default())?),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let begun = Instant::now();
    let rows = runtime.block_on(rows(store, path, columns))?;
    println!("{:.3} {rows}", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Rows of a file of which these columns are read; all where none is named.
async fn rows(
    store: Arc<dyn ObjectStore>,
    path: &str,
    columns: &[String],
) -> Result<usize, Box<dyn Error>> {
    let reader = ParquetObjectReader::new(store, Path::from(path));
    let mut builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
    if !columns.is_empty() {
        let names = columns.iter().map(String::as_str);
        let mask = ProjectionMask::columns(builder.parquet_schema(), names);
        builder = builder.with_projection(mask);
    }
    let batches = builder.build()?;
    let counted = batches.try_fold(0, |sum, batch| {
        std::future::ready(Ok(sum + batch.num_rows()))
    });
    Ok(counted.await?)
}
