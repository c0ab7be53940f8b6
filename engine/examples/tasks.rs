//! Compares concurrent reads by tasks of one thread with reads by as many threads: 4 KiB each, at random offsets.
//!
//! Usage: `tasks NAME [TASKS [READS]]`. Prints both rates and their ratio. The runtime is tokio's current-thread runtime; any
//! runtime works. It does not keep the bytes.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may panic where a thread is refused"
)]

use foreread::{Options, ReadError, Reader};
use std::sync::Arc;
use std::time::Instant;

const BLOCK: u64 = 4096;

/// The offset of a task's read number `n`.
fn place(seed: u64, n: u64, blocks: u64) -> u64 {
    let mixed = (seed << 32 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) % blocks * BLOCK
}

/// Reads per second by tasks, all on this thread.
fn by_tasks(
    reader: &Arc<Reader>,
    tasks: u64,
    reads: u64,
) -> Result<f64, Box<dyn std::error::Error>> {
    let blocks = (reader.size() / BLOCK).max(1);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let begin = Instant::now();
    let each = (0..tasks).map(|seed| {
        let reader = Arc::clone(reader);
        runtime.spawn(async move {
            let mut buf = [0; BLOCK as usize];
            for n in 0..reads / tasks {
                reader
                    .read_at_async(&mut buf, place(seed, n, blocks))
                    .await?;
            }
            Ok::<(), ReadError>(())
        })
    });
    for task in each.collect::<Vec<_>>() {
        runtime.block_on(task)??;
    }
    Ok((reads / tasks * tasks) as f64 / begin.elapsed().as_secs_f64())
}

/// Reads per second by threads.
fn by_threads(reader: &Reader, threads: u64, reads: u64) -> Result<f64, ReadError> {
    let blocks = (reader.size() / BLOCK).max(1);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let each = (0..threads).map(|seed| {
            scope.spawn(move || {
                let mut buf = [0; BLOCK as usize];
                (0..reads / threads)
                    .try_for_each(|n| reader.read_at(&mut buf, place(seed, n, blocks)).map(drop))
            })
        });
        let all: Vec<_> = each.collect();
        // A thread that panicked has printed its message already.
        all.into_iter()
            .try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    Ok((reads / threads * threads) as f64 / begin.elapsed().as_secs_f64())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("usage: tasks NAME [TASKS [READS]]")?;
    let tasks = args
        .next()
        .map_or(Ok(32), |text| text.parse::<u64>())?
        .max(1);
    let reads = args
        .next()
        .map_or(Ok(20_000), |text| text.parse::<u64>())?
        .max(tasks);
    // Each has its own cache, so that neither reads what the other has fetched.
    let open = || {
        Reader::open(
            name.as_str(),
            Options::default().cache_bytes(16 << 20).policy("none"),
        )
    };
    let threads = by_threads(&open()?, tasks, reads)?;
    let tasked = by_tasks(&Arc::new(open()?), tasks, reads)?;
    println!(
        "{tasks} at once: {tasked:.0} reads/s by tasks, {threads:.0} by threads, ratio {:.2}",
        tasked / threads
    );
    Ok(())
}
