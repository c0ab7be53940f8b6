//! A population of mapped files and of programs that touch the pages of these files, shared by `mmap-desktop` and `mmap-console`. Not a
//! workload.
//!
//! **Everything is invented.** For three sizes of mmap read-around, the posting gives only the fraction of pages that were used (see the
//! two workloads), but no trace and no list of files. The population is the simplest population that we found whose figures are close to
//! the published figures:
//!
//! ```text
//!   a file   ....#######..####....########..............####...      # touched stretches, . gaps of two kinds
//!                   2        4          1                 3          in which order: drawn
//! ```
//!
//! - The size of a file (an executable, library, font or cache) is a whole number of pages. Sizes are lognormally distributed with a
//!   median of 512 KiB; one in a hundred files is larger than 8 MiB. Two in three files contain executable code.
//! - Programs touch a file in stretches of consecutive pages, with gaps between them; the lengths of both are exponentially distributed.
//!   Some gaps are long: they are parts of a file that the program never needs. The length of these long gaps determines how fast the used
//!   fraction falls as the read-around grows. The lengths of stretches and of short gaps determine the used fraction of a small
//!   read-around.
//! - Each process gets the same number of files. A process goes through all stretches of all its files in random order; within a stretch it
//!   touches each page once, from first to last.
//!
//! No page is touched twice, no file belongs to two processes, and there are no read calls and no pauses.

use foreread_core::policy::spec::SpecError;
use foreread_core::policy::{Param, Unit};
use foreread_sim::rng::Rng;
use foreread_sim::workload::{Info, Job, Request, Workload, too_small};

const PAGE_BYTES: u64 = Workload::PAGE_BYTES;

/// Median and 0.99 quantile of the files, in pages.
const FILE_PAGES: (f64, f64) = (128.0, 2048.0);

/// The longest mean length of a stretch or a gap, in pages: 4 GiB.
const MAX_PAGES: u64 = 1 << 20;

/// The mean lengths that define a population, in pages.
struct Habits {
    stretch: f64,
    gap: f64,
    /// The length of a long gap, and the share of gaps that are long.
    long_gap: f64,
    long_share: f64,
}

pub const fn bytes(default: &'static str) -> Param {
    Param {
        key: "bytes",
        unit: Unit::Bytes,
        default,
        range: (PAGE_BYTES, 16 << 30),
        help: "of all files together",
    }
}
pub const fn processes(default: &'static str) -> Param {
    Param {
        key: "processes",
        unit: Unit::Count,
        default,
        range: (1, 1024),
        help: "that touch their files at once",
    }
}

/// The keys that set the fields of [`Habits`], in the order of the fields; values are pages or percentages.
pub const fn stretch(default: &'static str) -> Param {
    Param {
        key: "stretch",
        unit: Unit::Count,
        default,
        range: (1, MAX_PAGES),
        help: "pages touched in a row, mean",
    }
}
pub const fn gap(default: &'static str) -> Param {
    let help = "pages of a short gap, mean, in percent of a stretch";
    Param {
        key: "gap-percent",
        unit: Unit::Count,
        default,
        range: (1, 10_000),
        help,
    }
}
pub const fn long_gap(default: &'static str) -> Param {
    Param {
        key: "long-gap",
        unit: Unit::Count,
        default,
        range: (1, MAX_PAGES),
        help: "pages of a long gap, mean",
    }
}
pub const fn long_share(default: &'static str) -> Param {
    Param {
        key: "long-percent",
        unit: Unit::Count,
        default,
        range: (0, 100),
        help: "gaps that are long, percent",
    }
}

/// Builds the workload from the values of [`bytes`], [`processes`], [`stretch`], [`gap`], [`long_gap`] and
/// [`long_share`].
pub fn build(info: &Info, values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [
        bytes,
        processes,
        stretch,
        gap_percent,
        long_gap,
        long_percent,
    ] = *values
    else {
        unreachable!("six parameters")
    };
    let habits = Habits {
        stretch: stretch as f64,
        gap: stretch as f64 * gap_percent as f64 / 100.0,
        long_gap: long_gap as f64,
        long_share: long_percent as f64 / 100.0,
    };
    if size < bytes {
        return Err(too_small(
            info.name,
            size,
            format!("is less than bytes={bytes}"),
        ));
    }
    let mut rng = Rng::new(seed);
    let files = files(&mut rng, bytes / PAGE_BYTES);
    let mut stretches = vec![Vec::new(); processes as usize];
    for (file, &pages) in files.iter().enumerate() {
        let touched = habits
            .touched(&mut rng, pages)
            .into_iter()
            .map(|(first, n)| (file as u32, first, n));
        stretches[file % processes as usize].extend(touched);
    }
    let mut workload = Workload::on_files(
        info.name,
        files.iter().map(|pages| pages * PAGE_BYTES).collect(),
    );
    for mut of_process in stretches {
        rng.shuffle(&mut of_process);
        let mut last = None;
        for (file, first, n) in of_process {
            let touches = (first..first + n)
                .map(|page| Request::touch(page * PAGE_BYTES))
                .collect();
            workload.then(
                &mut last,
                Job {
                    executable: file % 3 < 2,
                    ..Job::new(file, file, touches)
                },
            );
        }
    }
    Ok(workload)
}

/// The number of pages of each file; their sum is `total`.
fn files(rng: &mut Rng, total: u64) -> Vec<u64> {
    let mut left = total;
    let mut files = Vec::new();
    while left > 0 {
        let pages = (rng.lognormal(FILE_PAGES.0, FILE_PAGES.1) as u64).clamp(1, left);
        files.push(pages);
        left -= pages;
    }
    files
}

impl Habits {
    /// The stretches of a file with this many pages: first page and length; at least one stretch.
    fn touched(&self, rng: &mut Rng, pages: u64) -> Vec<(u64, u64)> {
        let mut stretches = Vec::new();
        // Half of the files are touched from their first page on.
        let mut at = if rng.below(2) == 0 {
            0
        } else {
            length(rng, self.gap).min(pages - 1)
        };
        while at < pages {
            let n = length(rng, self.stretch).min(pages - at);
            stretches.push((at, n));
            let gap = if rng.unit() < self.long_share {
                self.long_gap
            } else {
                self.gap
            };
            at += n + length(rng, gap);
        }
        stretches
    }
}

/// An exponential length in whole pages, at least one; its mean is about `mean`.
fn length(rng: &mut Rng, mean: f64) -> u64 {
    1 + (-(1.0 - rng.unit()).ln() * (mean - 0.5)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_mean() {
        let mut rng = Rng::new(1);
        for mean in [4.0, 12.0, 192.0] {
            let n = 100_000;
            let sum: u64 = (0..n).map(|_| length(&mut rng, mean)).sum();
            let got = sum as f64 / f64::from(n);
            assert!((got / mean - 1.0).abs() < 0.02, "{got} instead of {mean}");
        }
    }

    #[test]
    fn stretches_lie_apart_and_in_their_file() {
        let habits = Habits {
            stretch: 8.0,
            gap: 4.0,
            long_gap: 50.0,
            long_share: 0.1,
        };
        let mut rng = Rng::new(2);
        for pages in [1, 2, 1000] {
            let stretches = habits.touched(&mut rng, pages);
            assert!(!stretches.is_empty());
            assert!(
                stretches.iter().all(|&(at, n)| n > 0 && at + n <= pages),
                "{stretches:?}"
            );
            assert!(
                stretches.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0),
                "{stretches:?}"
            );
        }
        assert_eq!(files(&mut rng, 60_000).iter().sum::<u64>(), 60_000);
    }
}
