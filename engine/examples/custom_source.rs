//! Defines a source in a program: a client that takes 10 ms for each request. The program reads this source first without and then with
//! readahead.
//!
//! Prints the speedup, the counters, and the message of a read that fails. A source must not wait for anything except its storage. The
//! engine calls the source from several threads at once.

use foreread::source::{Defaults, Source, SourceError};
use foreread::{Options, Reader};
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LATENCY: Duration = Duration::from_millis(10);
const READ_BYTES: u64 = 64 << 10;

/// The error of the client.
#[derive(Debug, thiserror::Error)]
#[error("server said {0}")]
struct Refused(u32);

/// A remote server. Each group of eight bytes is a number: group `n` is the square of `n`. From `fails_from` on, the server refuses.
struct Squares {
    bytes: u64,
    fails_from: u64,
}

impl Squares {
    /// One request: fills all buffers from `offset` on, or returns the client's error.
    fn get(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, Refused> {
        std::thread::sleep(LATENCY);
        let room: usize = bufs.iter().map(|buf| buf.len()).sum();
        if offset + room as u64 > self.fails_from {
            return Err(Refused(503));
        }
        let bytes = bufs.iter_mut().flat_map(|buf| buf.iter_mut());
        let filled = (offset..self.bytes)
            .zip(bytes)
            .map(|(at, byte)| *byte = square_byte(at));
        Ok(filled.count())
    }
}

/// The byte at this offset.
fn square_byte(at: u64) -> u8 {
    let number = at / 8;
    number.wrapping_mul(number).to_le_bytes()[(at % 8) as usize]
}

impl Source for Squares {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        // The client's error becomes the cause: a caller finds it by its type.
        Ok(self.get(bufs, offset).map_err(std::io::Error::other)?)
    }

    fn describe(&self) -> String {
        format!("the squares in {} bytes", self.bytes)
    }

    fn defaults(&self) -> Defaults {
        // A request takes 10 ms, so many should be in flight. A server on the same network, at about 1 ms, would use
        // `Defaults::NBD`, and a local disk `Defaults::FILE`.
        Defaults::OBJECT
    }
}

/// Reads everything sequentially, and checks the bytes.
fn read_all(
    size: u64,
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Box<dyn std::error::Error>>,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let mut buf = vec![0; READ_BYTES as usize];
    for at in (0..size).step_by(buf.len()) {
        let got = read(&mut buf, at)?;
        if buf[..got]
            .iter()
            .zip(at..)
            .any(|(byte, at)| *byte != square_byte(at))
        {
            return Err("wrong bytes".into());
        }
    }
    Ok(begun.elapsed())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Arc::new(Squares {
        bytes: 8 << 20,
        fails_from: u64::MAX,
    });
    let alone = read_all(source.bytes, |buf, at| {
        Ok(source.read_at(&mut [IoSliceMut::new(buf)], at)?)
    })?;
    let reader = Reader::open(Arc::clone(&source), Options::default())?;
    let with = read_all(source.bytes, |buf, at| Ok(reader.read_at(buf, at)?))?;
    println!(
        "{:.1} times as fast, {with:.3?} instead of {alone:.3?}",
        alone.as_secs_f64() / with.as_secs_f64()
    );
    println!("{}", reader.stats());

    let fails = Squares {
        bytes: 8 << 20,
        fails_from: 1 << 20,
    };
    let reader = Reader::open(Arc::new(fails), Options::default())?;
    let Err(error) = reader.read_at(&mut [0; 8], 1 << 20) else {
        return Err("a read that must fail succeeded".into());
    };
    println!("{error}");
    let below = std::error::Error::source(&error).and_then(|source_error| source_error.source());
    let refused = below.and_then(|error| error.downcast_ref::<Refused>());
    println!("the client's own error: {refused:?}");
    Ok(())
}
