//! Reads a source from beginning to end, as a program would, and prints the rate.
//!
//! Usage: `read NAME [POLICY [FETCH_KIB]]`, with the name of any source. The bytes that it reads are discarded.

use foreread::{Options, Reader};
use std::time::Instant;

/// Bytes of one read, as in a program that copies.
const READ_BYTES: usize = 128 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("usage: read NAME [POLICY [FETCH_KIB]]")?;
    let policy = args.next().unwrap_or_else(|| "linux-6.18".to_string());
    let mut options = Options::default().policy(policy);
    if let Some(kib) = args.next() {
        options.limits.max_fetch_bytes = Some(kib.parse::<u64>()? << 10);
    }
    let begin = Instant::now();
    let reader = Reader::open(name, options)?;
    let mut buf = vec![0; READ_BYTES];
    let mut at = 0;
    loop {
        match reader.read_at(&mut buf, at)? {
            0 => break,
            len => at += len as u64,
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{at} bytes in {seconds:.3} s: {:.1} MB/s of {}",
        at as f64 / seconds / 1e6,
        reader.describe()
    );
    Ok(())
}
