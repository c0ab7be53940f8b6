//! Measures how long it takes to read whole small files of a FUSE file system, one at a time and several in parallel.
//!
//! The time cannot be derived from reads of one large file: rclone makes a separate request for each open file, and
//! discards its data whenever a reader jumps.
//!
//! ```text
//!   files of the trace ──► one after the other, 24 at most, 2 s     33 ms a file
//!                     └──► 16 at once, 128 at most                  2.4 ms a file
//! ```
//! Files are read through the page cache, as programs do.

use foreread_os::open::regular;
use foreread_os::threads::spawn_scoped;
use rustix::fs::{Advice, fadvise};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of files that are read one at a time, and the time limit for that.
const ALONE: usize = 24;
const ALONE_TIME: Duration = Duration::from_secs(2);
/// Number of files that are read in parallel, and by how many readers: as many requests as a mount has in flight.
const TOGETHER: usize = 128;
const READERS: usize = 16;
const MAX_BYTES: u64 = 1 << 20;

/// Mean times to read a small file, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct FileTimes {
    pub alone_s: f64,
    /// With other reads in flight.
    pub together_s: f64,
}

/// Reads a file as a whole after dropping its cached pages. Returns `None` if it is large or missing.
fn read(name: &str, buffer: &mut [u8]) -> Option<()> {
    let file = regular(Path::new(name)).ok()?;
    let size = file.metadata().ok()?.len();
    if size == 0 || size > MAX_BYTES {
        return None;
    }
    fadvise(&file, 0, None, Advice::DontNeed).ok()?;
    file.read_exact_at(&mut buffer[..size as usize], 0).ok()
}

/// Measures how long it takes to read these small files. Returns `None` if too few of them can be read.
#[must_use]
pub fn small_files(names: &[String]) -> Option<FileTimes> {
    let mut buffer = vec![0; MAX_BYTES as usize];
    let (began, mut alone) = (Instant::now(), Vec::new());
    let mut names_left = names.iter();
    while alone.len() < ALONE && began.elapsed() < ALONE_TIME {
        let Some(name) = names_left.next() else { break };
        let since = Instant::now();
        alone.extend(read(name, &mut buffer).map(|()| since.elapsed().as_secs_f64()));
    }
    let rest: Vec<&String> = names_left.take(TOGETHER).collect();
    if alone.is_empty() || rest.len() < READERS {
        return None;
    }
    let (next, done, began) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        let work = || {
            let mut buffer = vec![0; MAX_BYTES as usize];
            while let Some(name) = rest.get(next.fetch_add(1, Ordering::Relaxed)) {
                let is_read = read(name, &mut buffer).is_some();
                done.fetch_add(usize::from(is_read), Ordering::Relaxed);
            }
        };
        // If a thread cannot be started, the others read all.
        (0..READERS).for_each(|_| drop(spawn_scoped(scope, "foreread-files", work)));
    });
    let together = began.elapsed().as_secs_f64();
    let read = done.into_inner();
    (read >= READERS).then(|| FileTimes {
        alone_s: alone.iter().sum::<f64>() / alone.len() as f64,
        together_s: together / read as f64,
    })
}
