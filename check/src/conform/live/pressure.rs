//! Detects memory pressure during the test.
//!
//! Under memory pressure, the kernel creates smaller folios and reclaims marked pages, so that its decisions differ
//! from those of `linux-6.18`. Differences under memory pressure do not come from the readahead rules (docs/spec/linux-readahead.md 4.10,
//! end). Counters in /proc/vmstat show the pressure. The counters rise when the kernel scans for pages to reclaim (also in memory
//! cgroups), when an allocation has to wait, or when memory is compacted.
//!
//! ```text
//!   counters rise ──► 1 s ──► an episode that begins within 1 s, or in which they rise, is under pressure
//! ```

use super::LiveError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Prefixes of the counters. `allocstall_*`: an allocation waited; `pgscan_*`: pages were scanned for reclaim;
/// `compact_*`: no run of free pages was long enough (documented in the kernel's admin guide, proc(5) and vmstat).
const RISES: [&str; 4] = ["allocstall", "pgscan", "compact_stall", "compact_fail"];
/// How long memory is assumed to stay scarce or fragmented after a rise: chosen.
const AFTERMATH: Duration = Duration::from_secs(1);
const PLACE: &str = "/proc/vmstat";

/// Monitors the counters.
pub(super) struct Pressure {
    file: File,
    text: Vec<u8>,
    count: u64,
    risen: Option<Instant>,
    episode: Instant,
}

impl Pressure {
    pub fn open() -> Result<Pressure, LiveError> {
        let file = File::open(PLACE).map_err(|e| LiveError::io(PLACE, e))?;
        let mut pressure = Pressure {
            file,
            text: vec![0; 1 << 16],
            count: 0,
            risen: None,
            episode: Instant::now(),
        };
        pressure.count = pressure.read()?;
        Ok(pressure)
    }

    pub fn begin(&mut self) -> Result<(), LiveError> {
        self.look()?;
        self.episode = Instant::now();
        Ok(())
    }

    /// Returns whether there has been memory pressure during the current test sequence (episode), or in the second before it.
    pub fn is_felt(&mut self) -> Result<bool, LiveError> {
        self.look()?;
        Ok(self
            .risen
            .is_some_and(|risen| risen + AFTERMATH >= self.episode))
    }

    fn look(&mut self) -> Result<(), LiveError> {
        let count = self.read()?;
        if count != self.count {
            (self.count, self.risen) = (count, Some(Instant::now()));
        }
        Ok(())
    }

    fn read(&mut self) -> Result<u64, LiveError> {
        let mut end = 0;
        // The kernel may return the text in parts.
        while end < self.text.len() {
            match self
                .file
                .read_at(&mut self.text[end..], end as u64)
                .map_err(|e| LiveError::io(PLACE, e))?
            {
                0 => break,
                got => end += got,
            }
        }
        Ok(sum(&String::from_utf8_lossy(&self.text[..end])))
    }
}

fn sum(text: &str) -> u64 {
    let rises = text
        .lines()
        .filter(|line| RISES.iter().any(|name| line.starts_with(name)));
    rises
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as in Linux 6.18.
    #[test]
    fn the_counters_that_rise() {
        let text = "nr_free_pages 700\npgscan_kswapd 1\nallocstall_normal 20\npgsteal_file 7\npgscan_file 300\ncompact_fail 4000\n";
        assert_eq!((sum(text), sum(""), sum("pgscan_file x\n")), (4321, 0, 0));
        assert!(sum(&std::fs::read_to_string(PLACE).expect("this system's")) < u64::MAX / 2);
    }

    /// A rise counts for an episode that begins up to a second later.
    #[test]
    fn a_rise_has_an_aftermath() {
        let mut pressure = Pressure::open().expect("opened");
        let now = Instant::now();
        // Whatever this machine does meanwhile, the latest rise is the one set here, or a later one.
        (pressure.risen, pressure.episode) = (Some(now), now + AFTERMATH);
        assert!(pressure.is_felt().expect("read"));
        (pressure.risen, pressure.episode) = (Some(now), now + 600 * AFTERMATH);
        assert!(!pressure.is_felt().expect("read"));
        pressure.risen = None;
        pressure.count = pressure.count.wrapping_sub(1);
        pressure.begin().expect("read");
        assert!(pressure.risen.is_some() && pressure.is_felt().expect("read"));
    }
}
