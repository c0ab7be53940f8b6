//! Measures the cost of reading a local file through foreread and by other means such as `pread`, alternating within one process.
//!
//! Usage: `local ROW FILE [TURNS [SIDE]]`, with the kind of read (ROW, see the table), a file, and the number of rounds (TURNS). Prints a
//! line of JSON for each round: reads per second, and CPU time and context switches per read, for foreread and for each alternative. If
//! SIDE is given (`ours`, `pread`, ...), only this way of reading is measured, for example to profile it. `bench/local-vs-peers` runs
//! this program for every kind of read (ROW) and takes medians. A virtual machine's host may cache FILE, so FILE is read once before the
//! measurement, and each round finds the same state.
//!
//! | row | `ours` | peers |
//! |---|---|---|
//! | `random` | cold reads of 4 KiB, depth 1 | `pread` O_DIRECT: `one_buffer`; `new_memory` for each block |
//! | `sequential` | cold reads of 128 KiB | `buffered`, as `dd` |
//! | `streams` | 16 streams in turns, 128 KiB each | `one` stream of ours; `buffered`: the kernel's 16 |
//! | `tasks:N` | N reads of 4 KiB at once by tasks of one thread | N `threads` of ours |
//! | `hit:BYTES:THREADS` | hits in 128 MiB, in random order | `pread` from the page cache |
//!
//! Example: `local hit:4096:16 big.bin 7` prints seven lines such as
//! `{"ours":{"rate":812345,"cpu_us":2.4,"switches":0.01},"pread":{...}}`.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may panic where a thread is refused"
)]

use foreread::{Options, ReadError, Reader};
use memmap2::MmapMut;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Reads a block at an offset; may be called from any thread.
type ReadFrom<'a> = dyn Fn(&mut [u8], u64) -> Result<(), Failed> + Sync + 'a;

const PAGE: usize = 4096;
const RECORD: usize = 128 << 10;
/// Bytes from which hits are read.
const HOT_BYTES: u64 = 128 << 20;
/// Bytes that are read sequentially.
const SPAN: u64 = 512 << 20;
/// Number of cold reads in one turn.
const COLD_READS: u64 = 4096;
/// Bytes that the hits of one turn copy.
const HIT_BYTES: u64 = 1 << 30;
const STREAMS: u64 = 16;

/// The results of one turn, as JSON.
struct Sides {
    only: Option<String>,
    json: Vec<String>,
}

impl Sides {
    /// Measures one side.
    fn measure(
        &mut self,
        name: &str,
        reads: u64,
        work: impl FnOnce() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        if self.only.as_ref().is_some_and(|only| only != name) {
            return Ok(());
        }
        let (before, begin) = (getrusage(UsageWho::RUSAGE_SELF)?, Instant::now());
        work()?;
        let (seconds, after) = (
            begin.elapsed().as_secs_f64(),
            getrusage(UsageWho::RUSAGE_SELF)?,
        );
        let cpu = |usage: &Usage| (usage.user_time() + usage.system_time()).num_microseconds();
        let switches = |usage: &Usage| {
            usage.voluntary_context_switches() + usage.involuntary_context_switches()
        };
        let each = |sum: i64| sum as f64 / reads as f64;
        self.json.push(format!(
            "\"{name}\":{{\"rate\":{:.0},\"cpu_us\":{:.3},\"switches\":{:.3}}}",
            reads as f64 / seconds,
            each(cpu(&after) - cpu(&before)),
            each(switches(&after) - switches(&before)),
        ));
        Ok(())
    }
}

/// The block number of a reader's read number `n`.
fn place(seed: u64, n: u64, blocks: u64) -> u64 {
    let mixed = (seed << 32 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) % blocks
}

/// Runs `work` in this many threads.
fn in_threads(threads: u64, work: impl Fn(u64) -> Result<(), Failed> + Sync) -> Result<(), Failed> {
    if threads == 1 {
        return work(0);
    }
    let work = &work;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        // A thread that panicked has printed its message already.
        all.into_iter()
            .try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
}

fn open(path: &Path, cache_bytes: u64, policy: &str) -> Result<Reader, Failed> {
    Ok(Reader::open_file(
        path,
        Options::default().cache_bytes(cache_bytes).policy(policy),
    )?)
}

/// Opens the file after dropping it from the page cache.
fn uncached(path: &Path) -> Result<File, Failed> {
    let file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(file)
}

fn random(sides: &mut Sides, path: &Path, seed: u64) -> Result<(), Failed> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).custom_flags(direct).open(path)?;
    let blocks = file.metadata()?.len() / PAGE as u64;
    let at = |n| place(seed, n, blocks) * PAGE as u64;
    let mut warm = MmapMut::map_anon(PAGE)?;
    sides.measure("one_buffer", COLD_READS, || {
        (0..COLD_READS).try_for_each(|n| Ok(file.read_exact_at(&mut warm, at(n))?))
    })?;
    let (reader, mut buf) = (open(path, 64 << 20, "linux-6.18")?, [0; PAGE]);
    sides.measure("ours", COLD_READS, || {
        (0..COLD_READS).try_for_each(|n| Ok(reader.read_at(&mut buf, at(n)).map(|_| ())?))
    })?;
    let stats = reader.stats();
    if stats.demand_bytes > 0 {
        // The same block may be drawn twice and is then read once, so the ratio can be below 1 without any readahead.
        sides.json.push(format!(
            "\"overfetch\":{:.4}",
            stats.source_bytes as f64 / stats.demand_bytes as f64
        ));
    }
    let mut kept = MmapMut::map_anon(COLD_READS as usize * PAGE)?;
    sides.measure("new_memory", COLD_READS, || {
        (0..)
            .zip(kept.chunks_exact_mut(PAGE))
            .try_for_each(|(n, block)| {
                file.read_exact_at(block, at(n))?;
                buf.copy_from_slice(block);
                Ok(())
            })
    })
}

/// Sequential reads: `of_one` reads one stream, otherwise 16 streams alternate.
fn in_order(
    of_one: bool,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (mut buf, records) = (vec![0; RECORD], SPAN / RECORD as u64);
    (0..records).try_for_each(|n| {
        let record = if of_one {
            n
        } else {
            n % STREAMS * (records / STREAMS) + n / STREAMS
        };
        read(&mut buf, record * RECORD as u64)
    })
}

fn sequential(sides: &mut Sides, path: &Path, streams: bool) -> Result<(), Failed> {
    let reads = SPAN / RECORD as u64;
    let mut ours = |name: &str, of_one: bool| {
        let reader = open(path, 256 << 20, "linux-6.18:max=4M")?;
        sides.measure(name, reads, || {
            in_order(of_one, |buf, at| Ok(reader.read_at(buf, at).map(|_| ())?))
        })
    };
    if streams {
        ours("one", true)?;
    }
    ours("ours", !streams)?;
    let file = uncached(path)?;
    sides.measure("buffered", reads, || {
        in_order(!streams, |buf, at| Ok(file.read_exact_at(buf, at)?))
    })
}

/// Reads with tasks on one thread.
fn by_tasks(reader: &Arc<Reader>, tasks: u64, reads: u64, seed: u64) -> Result<(), Failed> {
    let blocks = reader.size() / PAGE as u64;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let each = (0..tasks).map(|task| {
        let reader = Arc::clone(reader);
        runtime.spawn(async move {
            let mut buf = [0; PAGE];
            for n in 0..reads / tasks {
                reader
                    .read_at_async(&mut buf, place(seed << 8 | task, n, blocks) * PAGE as u64)
                    .await?;
            }
            Ok::<(), ReadError>(())
        })
    });
    for task in each.collect::<Vec<_>>() {
        runtime.block_on(task)??;
    }
    Ok(())
}

/// Tasks and threads, each with its own cache.
fn tasks(sides: &mut Sides, path: &Path, tasks: u64, seed: u64) -> Result<(), Failed> {
    let reads = COLD_READS * if tasks > 1 { 4 } else { 1 };
    let reader = open(path, 16 << 20, "none")?;
    let blocks = reader.size() / PAGE as u64;
    sides.measure("threads", reads, || {
        in_threads(tasks, |thread| {
            let mut buf = [0; PAGE];
            let at = |n| place(seed << 8 | thread, n, blocks) * PAGE as u64;
            (0..reads / tasks).try_for_each(|n| Ok(reader.read_at(&mut buf, at(n)).map(|_| ())?))
        })
    })?;
    let reader = Arc::new(open(path, 16 << 20, "none")?);
    sides.measure("ours", reads, || by_tasks(&reader, tasks, reads, seed))
}

/// A reader that has the hot bytes in its cache, and the file with these bytes in the page cache.
fn warmed(path: &Path) -> Result<(Reader, File), Failed> {
    let (reader, file) = (open(path, 2 * HOT_BYTES, "linux-6.18")?, File::open(path)?);
    let mut buf = vec![0; 1 << 20];
    for at in (0..HOT_BYTES).step_by(buf.len()) {
        reader.read_at(&mut buf, at)?;
        file.read_exact_at(&mut buf, at)?;
    }
    Ok((reader, file))
}

fn hits(
    sides: &mut Sides,
    (reader, file): &(Reader, File),
    bytes: usize,
    threads: u64,
    seed: u64,
) -> Result<(), Failed> {
    let (blocks, reads) = (HOT_BYTES / bytes as u64, HIT_BYTES / bytes as u64 / threads);
    let mut measure = |name: &str, read: &ReadFrom<'_>| {
        sides.measure(name, reads * threads, || {
            in_threads(threads, |thread| {
                let mut buf = vec![0; bytes];
                (0..reads).try_for_each(|n| {
                    read(
                        &mut buf,
                        place(seed << 8 | thread, n, blocks) * bytes as u64,
                    )
                })
            })
        })
    };
    measure("ours", &|buf, at| {
        Ok(reader.read_at(buf, at).map(|_| ())?)
    })?;
    measure("pread", &|buf, at| Ok(file.read_exact_at(buf, at)?))
}

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [row, path, rest @ ..] = &args[..] else {
        return Err("usage: local ROW FILE [TURNS [SIDE]]".into());
    };
    let (path, parts) = (Path::new(path), row.split(':').collect::<Vec<_>>());
    if std::fs::metadata(path)?.len() < SPAN {
        return Err(format!(
            "{} has less than {} MiB: use a larger file",
            path.display(),
            SPAN >> 20
        )
        .into());
    }
    let turns = rest.first().map_or(Ok(7), |text| text.parse::<u64>())?;
    let hot = if parts[0] == "hit" {
        Some(warmed(path)?)
    } else {
        None
    };
    // No two runs read the same blocks.
    let begin = u64::from(std::process::id()) << 8;
    for seed in begin..begin + turns {
        let mut sides = Sides {
            only: rest.get(1).cloned(),
            json: Vec::new(),
        };
        match (&parts[..], &hot) {
            (["random"], _) => random(&mut sides, path, seed)?,
            (["sequential"], _) => sequential(&mut sides, path, false)?,
            (["streams"], _) => sequential(&mut sides, path, true)?,
            (["tasks", n], _) => tasks(&mut sides, path, n.parse()?, seed)?,
            (["hit", bytes, threads], Some(hot)) => {
                hits(&mut sides, hot, bytes.parse()?, threads.parse()?, seed)?
            }
            _ => {
                return Err(
                    "ROW is random, sequential, streams, tasks:N or hit:BYTES:THREADS".into(),
                );
            }
        }
        println!("{{{}}}", sides.json.join(","));
    }
    Ok(())
}
