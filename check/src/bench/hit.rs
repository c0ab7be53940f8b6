//! `foreread check bench hit`: measures how many cached reads per second the engine does, and how many `pread` does
//! from the page cache.
//!
//! The rates depend on the machine and on its load, so no test checks them. The published rates are in `docs/benchmarks/local.csv`.

use super::sim::{Figure, PAGE, ROUNDS, median, random_offsets};
use foreread::source::FileSource;
use foreread::{Options, Reader};
use foreread_lab::live::{LiveError, Scratch};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

/// The file that both sides read.
const HIT_BYTES: u64 = 128 << 20;

/// Measures how many 4 KiB reads of cached pages per second the engine does, and how many `pread` does with the same
/// pages. One thread reads the pages in random order, with the engine and with `pread` alternately. Returns the medians
/// of the rounds.
pub fn hit() -> Result<Vec<Figure>, LiveError> {
    let bytes = HIT_BYTES;
    let scratch = Scratch::make(bytes, &mut |_| ())?;
    let path = scratch.path();
    let options = Options {
        cache_bytes: 2 * bytes,
        ..Options::default()
    };
    let reader = Reader::open(Arc::new(FileSource::open(&path)?), options)?;
    let file = File::open(&path).map_err(LiveError::io("opening the scratch file"))?;
    let mut buffer = vec![0_u8; 1 << 20];
    for at in (0..bytes).step_by(buffer.len()) {
        reader.read_at(&mut buffer, at)?;
        file.read_at(&mut buffer, at)
            .map_err(LiveError::io("reading the scratch file"))?;
    }
    let offsets = random_offsets(400_000, bytes);
    let mut page = [0_u8; PAGE as usize];
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for &offset in &offsets {
            reader.read_at(&mut page, offset)?;
        }
        let our = offsets.len() as f64 / began.elapsed().as_secs_f64();
        let began = Instant::now();
        for &offset in &offsets {
            file.read_at(&mut page, offset)
                .map_err(LiveError::io("reading the scratch file"))?;
        }
        let their = offsets.len() as f64 / began.elapsed().as_secs_f64();
        ours.push(our);
        theirs.push(their);
        ratios.push(our / their);
    }
    let figures = [
        ("ours_reads_per_s", ours),
        ("pread_reads_per_s", theirs),
        ("ratio", ratios),
    ];
    let median_of = |(name, rounds): (&str, Vec<f64>)| (name.to_string(), Some(median(rounds)));
    Ok(figures.map(median_of).into())
}
