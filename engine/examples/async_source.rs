//! Uses an async client as a source, and reads it without and with readahead, on a runtime with one thread.
//!
//! Prints the speedup and the counters. A request of this client takes 10 ms, during which its thread does other work.

use bytes::Bytes;
use foreread::source::{self, AsyncSource, Defaults, SourceError};
use foreread::{Options, Reader};
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LATENCY: Duration = Duration::from_millis(10);
const READ_BYTES: u64 = 64 << 10;

/// A remote server. Each byte of its object is the lowest byte of its offset.
struct Client {
    bytes: u64,
}

impl AsyncSource for Client {
    fn size(&self) -> u64 {
        self.bytes
    }

    async fn read_at(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        tokio::time::sleep(LATENCY).await;
        // A client's own error becomes the cause with `std::io::Error::other(error)?`.
        Ok(range.map(|at| at as u8).collect())
    }

    fn describe(&self) -> String {
        "client".to_string()
    }

    fn defaults(&self) -> Defaults {
        // A request takes 10 ms, but a whole answer arrives at once: use fetches of 1 MiB.
        Defaults {
            max_fetch_bytes: 1 << 20,
            ..Defaults::OBJECT
        }
    }
}

fn check(bytes: &[u8], from: u64) -> Result<(), Box<dyn Error>> {
    if bytes.iter().zip(from..).any(|(byte, at)| *byte != at as u8) {
        return Err("wrong bytes".into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let client = Arc::new(Client { bytes: 8 << 20 });
    let source = source::from_async(Arc::clone(&client), runtime.handle().clone());
    let reader = Reader::open(Arc::new(source), Options::default())?;
    runtime.block_on(async {
        let begun = Instant::now();
        for from in (0..client.bytes).step_by(READ_BYTES as usize) {
            check(&client.read_at(from..from + READ_BYTES).await?, from)?;
        }
        let alone = begun.elapsed();
        let begun = Instant::now();
        let mut buf = vec![0; READ_BYTES as usize];
        for from in (0..client.bytes).step_by(READ_BYTES as usize) {
            let read = reader.read_at_async(&mut buf, from).await?;
            check(&buf[..read], from)?;
        }
        let with = begun.elapsed();
        println!(
            "{:.1} times as fast, {with:.3?} instead of {alone:.3?}",
            alone.as_secs_f64() / with.as_secs_f64()
        );
        println!("{}", reader.stats());
        Ok(())
    })
}
