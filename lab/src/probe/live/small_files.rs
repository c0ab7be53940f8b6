//! What whole small files of a file system of FUSE cost, one at a time and several at once.
//!
//! A probe of one large file does not show it: rclone reads each open description in its own request, and throws away what it has asked for
//! at each jump inside of one.
//!
//! ```text
//!   files of the trace ──► one after the other, 24 at most, 2 s     33 ms a file
//!                     └──► 16 at once, 128 at most                  2.4 ms a file
//! ```
//! Through the page cache, as a program does.

use foreread_os::open::regular;
use foreread_os::threads::spawn_scoped;
use rustix::fs::{Advice, fadvise};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Files that are read alone, and how long that may take.
const ALONE: usize = 24;
const ALONE_TIME: Duration = Duration::from_secs(2);
/// Files that are read together, and by how many readers: as many requests as a mount has under way.
const TOGETHER: usize = 128;
const READERS: usize = 16;
const MAX_BYTES: u64 = 1 << 20;

/// Mean times of a file, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct FileTimes {
    pub alone_s: f64,
    /// With others under way.
    pub together_s: f64,
}

/// Reads a file as a whole; nothing of one that is large, or not there. What is cached of it is dropped before.
fn read(name: &str, buffer: &mut [u8]) -> Option<()> {
    let file = regular(Path::new(name)).ok()?;
    let size = file.metadata().ok()?.len();
    if size == 0 || size > MAX_BYTES {
        return None;
    }
    fadvise(&file, 0, None, Advice::DontNeed).ok()?;
    file.read_exact_at(&mut buffer[..size as usize], 0).ok()
}

/// Reads the files of these names. Nothing where too few can be read.
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
        // Where a thread is refused the others read.
        (0..READERS).for_each(|_| drop(spawn_scoped(scope, "foreread-files", work)));
    });
    let together = began.elapsed().as_secs_f64();
    let read = done.into_inner();
    (read >= READERS).then(|| FileTimes {
        alone_s: alone.iter().sum::<f64>() / alone.len() as f64,
        together_s: together / read as f64,
    })
}
