//! Computes what a hint would gain. The same reads are simulated with the kernel's current readahead, but `posix_fadvise` is called
//! after each open of the files that have one access pattern.
//!
//! Two hints are tried: RANDOM for files whose reads follow no pattern, and SEQUENTIAL, which doubles the kernel's
//! maximum for the descriptor, for files that are read sequentially. The runs with and without the hint use the same random numbers. A
//! file for which the program already gives a hint gets no other hint.

use super::MIN_GAIN;
use crate::compare::{self, ComparePlan, OracleRow};
use crate::replay::Mode;
use crate::report::{Judge, PolicyRuns, Table};
use crate::verdict::Gain;
use foreread_core::event::Advice;
use foreread_core::policy::PolicyDraft;
use foreread_os::failure::Failure;
use foreread_report::progress::Progress;
use foreread_sim::stats::{Summary, holm, paired_t_test, ratio, ratio_ci95};
use foreread_sim::workload::{Request, RequestKind, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Probability that any hint is falsely called a gain.
const ALPHA: f64 = 0.05;
/// A file has a pattern if at least this part of its reads has it.
const NEARLY_ALL: f64 = 0.9;
/// A file with fewer reads counts as having no pattern.
const MIN_READS: u64 = 8;

const HINTS: [(Advice, &str); 2] = [
    (Advice::Random, "POSIX_FADV_RANDOM"),
    (Advice::Sequential, "POSIX_FADV_SEQUENTIAL"),
];

/// The best hint under the policy `today`, and the files that need it.
pub(super) fn best(
    plan: &ComparePlan,
    today: &str,
    progress: &mut dyn Progress,
) -> Result<(Option<Gain>, Vec<String>), Failure> {
    let Some(replay) = &plan.replay else {
        return Ok((None, Vec::new()));
    };
    let Ok(policy) = PolicyDraft::parse(today) else {
        return Ok((None, Vec::new()));
    };
    let orders = of_files(&replay.workload);
    let rows =
        |workload: Workload, progress: &mut dyn Progress| -> Result<Option<PolicyRuns>, Failure> {
            let replay = Arc::new(crate::replay::Replay {
                workload,
                ..(**replay).clone()
            });
            let plan = ComparePlan {
                replay: Some(replay),
                policies: vec![policy.clone()],
                oracle: OracleRow::Usual,
                ..plan.clone()
            };
            let tables: Vec<Table> = compare::run(&plan, progress)?;
            Ok(tables
                .into_iter()
                .flat_map(|t| t.policies)
                .find(|row| row.policy == today))
        };
    let by = if replay.mode == Mode::Open {
        Judge::Latency
    } else {
        Judge::Time
    };
    let mut found: Vec<(Gain, Option<f64>, Vec<String>)> = Vec::new();
    let mut base: Option<PolicyRuns> = None;
    for (advice, name) in HINTS {
        let numbers: BTreeSet<u32> = (0..)
            .zip(&orders)
            .filter(|(_, order)| is_for(order, advice))
            .map(|(number, _)| number)
            .collect();
        let names = numbers
            .iter()
            .map(|number| &replay.loaded.names[*number as usize]);
        let files: Vec<String> = names.cloned().collect();
        if numbers.is_empty() {
            continue;
        }
        if base.is_none() {
            base = rows(replay.workload.clone(), progress)?;
        }
        let with = rows(hinted(&replay.workload, &numbers, advice), progress)?;
        if let Some((base, with)) = base.as_ref().zip(with) {
            found.extend(gain(name, by, base, &with).map(|(gain, p)| (gain, p, files)));
        }
    }
    let p_values = holm(&found.iter().map(|(_, p, _)| *p).collect::<Vec<_>>());
    let called = found
        .into_iter()
        .zip(p_values)
        .filter(|((gain, _, _), p)| p.is_some_and(|p| p < ALPHA) && gain.ratio <= 1.0 - MIN_GAIN);
    let best = called
        .map(|(found, _)| found)
        .min_by(|a, b| a.0.ratio.total_cmp(&b.0.ratio));
    Ok(best.map_or((None, Vec::new()), |(gain, _, files)| (Some(gain), files)))
}

fn is_for(order: &ReadOrder, advice: Advice) -> bool {
    let part = match advice {
        Advice::Random => order.random,
        _ => order.sequential,
    };
    order.others == 0 && order.reads >= MIN_READS && part as f64 >= NEARLY_ALL * order.reads as f64
}

/// The workload with this hint before the first request of each open description of these files.
fn hinted(workload: &Workload, files: &BTreeSet<u32>, advice: Advice) -> Workload {
    let mut workload = workload.clone();
    let mut opened = BTreeSet::new();
    for job in workload
        .jobs
        .iter_mut()
        .filter(|job| files.contains(&job.file) && !job.requests.is_empty())
    {
        if opened.insert(job.open) {
            let think_ns = if job.timed {
                job.requests[0].think_ns
            } else {
                0
            };
            job.requests
                .insert(0, Request::hint(advice, 0, 0).think(think_ns));
        }
    }
    workload
}

/// The gain of a hint, with its uncorrected p value.
fn gain(
    name: &str,
    by: Judge,
    base: &PolicyRuns,
    with: &PolicyRuns,
) -> Option<(Gain, Option<f64>)> {
    let (before, after) = (base.judged_s(by), with.judged_s(by));
    let bytes =
        |row: &PolicyRuns| row.runs.iter().map(|r| r.stats.source_bytes).sum::<u64>() as f64;
    let (today_s, with_s) = (Summary::of(&before)?.mean, Summary::of(&after)?.mean);
    let gain = Gain {
        what: name.to_string(),
        ratio: ratio(with_s, today_s)?,
        ratio_ci95: ratio_ci95(&before, &after),
        today_s,
        with_s,
        bytes_ratio: ratio(bytes(with), bytes(base)),
        ..Gain::default()
    };
    Some((gain, paired_t_test(&before, &after)))
}

// Classifies the reads of each file as sequential, backward, strided or random, by offsets alone. Streams (series of reads with one
// pattern) are detected separately for each open file description:
//
// ```text
//   last read of a stream    ├───┤
//   goes on forward               ├──┤     begins at its end, or less than a page after it
//   goes on backward      ├──┤             ends where it begins
// ```
// A stream has at least three reads, or covers the whole file. Reads outside streams are strided if the distances
// between their offsets are equal, otherwise random.

/// Most streams of one open description that are remembered.
const MAX_STREAMS: usize = 64;
/// A gap shorter than a page is skipped without a read: the reader already has that page.
const GAP_BYTES: u64 = 4096;
const MIN_STREAM_READS: u64 = 3;

/// How many reads of a file are sequential, how many are random, and how many other accesses there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOrder {
    pub reads: u64,
    /// Reads in forward streams.
    pub sequential: u64,
    pub random: u64,
    /// Hints, and touches of mapped pages.
    pub others: u64,
}

#[derive(Clone, Copy)]
struct Stream {
    /// First byte of the stream, and the start and end of its latest read.
    from: u64,
    start: u64,
    end: u64,
    reads: u64,
    is_backward: bool,
}

#[derive(Default)]
struct OpenReads {
    streams: Vec<Stream>,
    /// Indexes of streams that may continue, the latest last.
    latest: Vec<usize>,
}

/// Classifies the reads of each file.
pub fn of_files(workload: &Workload) -> Vec<ReadOrder> {
    let mut orders = vec![ReadOrder::default(); workload.files.len()];
    let mut opens: BTreeMap<u32, (u32, OpenReads)> = BTreeMap::new();
    for job in &workload.jobs {
        let order = &mut orders[job.file as usize];
        let (_, reads) = opens
            .entry(job.open)
            .or_insert_with(|| (job.file, OpenReads::default()));
        for request in &job.requests {
            if request.kind == RequestKind::Read {
                order.reads += 1;
                reads.add(request);
            } else {
                order.others += 1;
            }
        }
    }
    for (file, reads) in opens.into_values() {
        reads.count(workload.files[file as usize], &mut orders[file as usize]);
    }
    orders
}

impl OpenReads {
    fn add(&mut self, request: &Request) {
        let (start, end) = (request.offset, request.offset.saturating_add(request.len));
        let streams = &mut self.streams;
        let goes_on = |stream: &Stream| {
            let forward =
                stream.start < start && stream.end <= start && start - stream.end < GAP_BYTES;
            let backward = end == stream.start && start < end;
            let is_new = stream.reads == 1;
            (forward && (is_new || !stream.is_backward))
                || (backward && (is_new || stream.is_backward))
        };
        let found = self
            .latest
            .iter()
            .rposition(|stream| goes_on(&streams[*stream]));
        let number = match found {
            Some(at) => {
                let number = self.latest.remove(at);
                let stream = &mut streams[number];
                stream.is_backward = start < stream.start;
                (stream.start, stream.end) = (start, end);
                stream.reads += 1;
                number
            }
            None => {
                if self.latest.len() == MAX_STREAMS {
                    self.latest.remove(0);
                }
                let (from, reads, is_backward) = (start, 1, false);
                streams.push(Stream {
                    from,
                    start,
                    end,
                    reads,
                    is_backward,
                });
                streams.len() - 1
            }
        };
        self.latest.push(number);
    }

    fn count(&self, size: u64, order: &mut ReadOrder) {
        let is_whole = |stream: &&Stream| stream.from == 0 && stream.end >= size;
        let is_stream = |stream: &&Stream| stream.reads >= MIN_STREAM_READS || is_whole(stream);
        let forward = self
            .streams
            .iter()
            .filter(|stream| is_stream(stream) && !stream.is_backward);
        order.sequential += forward.map(|stream| stream.reads).sum::<u64>();
        let alone: Vec<&Stream> = self
            .streams
            .iter()
            .filter(|stream| !is_stream(stream))
            .collect();
        let mut is_strided = vec![false; alone.len()];
        for (first, three) in alone.windows(3).enumerate() {
            let [a, b, c] = [0, 1, 2].map(|at| three[at].from as i64);
            if b - a == c - b && a != b {
                is_strided[first..first + 3].fill(true);
            }
        }
        let random = alone
            .iter()
            .zip(is_strided)
            .filter(|(_, is_strided)| !is_strided);
        order.random += random.map(|(stream, _)| stream.reads).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::workload::{Job, RequestKind};

    fn workload(files: Vec<u64>, jobs: Vec<Job>) -> Workload {
        Workload::of("", files, jobs)
    }

    #[test]
    fn each_open_description_is_hinted_once() {
        let read = || vec![Request::read(0, 4096)];
        let jobs = vec![
            Job::new(0, 0, read()),
            Job::new(0, 0, read()),
            Job::new(0, 1, read()),
            Job::new(1, 2, read()),
        ];
        let workload = workload(vec![9999, 9999], jobs);
        let with = hinted(&workload, &BTreeSet::from([0]), Advice::Random);
        let hints = |job: &Job| {
            job.requests
                .iter()
                .filter(|r| r.kind == RequestKind::Hint(Advice::Random))
                .count()
        };
        assert_eq!(
            with.jobs.iter().map(hints).collect::<Vec<_>>(),
            [1, 0, 1, 0]
        );
        assert_eq!(
            (with.reads(), with.bytes()),
            (workload.reads(), workload.bytes())
        );
    }

    /// Reads of 4 KiB at these pages of one open description: all, sequential, random.
    fn of(pages: &[u64]) -> [u64; 3] {
        let requests = pages.iter().map(|page| Request::read(page * 4096, 4096));
        let jobs = vec![Job::new(0, 0, requests.collect())];
        let order = of_files(&workload(vec![1 << 30], jobs))[0];
        [order.reads, order.sequential, order.random]
    }

    #[test]
    fn streams_are_told_from_scattered_reads() {
        for (pages, sequential, random) in [
            (&[0, 1, 2, 3][..], 4, 0),
            (&[0, 1000, 1, 1001, 2, 1002], 6, 0),
            (&[9, 8, 7], 0, 0),
            (&[0, 16, 32, 48], 0, 0),
            (&[5, 90, 31], 0, 3),
            (&[7, 7, 7], 0, 3),
            (&[40, 41, 7], 0, 3),
        ] {
            assert_eq!(
                of(pages),
                [pages.len() as u64, sequential, random],
                "{pages:?}"
            );
        }
    }
}
