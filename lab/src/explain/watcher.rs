//! Observes a run, and counts for each file its reads, the policy's decisions, and its pages that were read ahead.
//!
//! On real storage, the files of a trace are placed one after the other in one large file. Each of its pages is counted for the file of the
//! trace in which the page begins. A readahead window and the rule that planned it are counted for the file of the read or hint that caused
//! the decision.

use foreread_core::event::Event;
use foreread_core::machine::{Note, groups_of};
use foreread_core::policy::Tuning;
use foreread_core::stats::Stats;
use foreread_core::units::{ByteRange, PageSize};
use foreread_sim::simulator::{Watch, bits};
use foreread_sim::workload::Workload;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The rule that is counted for a window without a reason from the policy.
const UNNAMED: &str = "unnamed";

#[derive(Default)]
pub struct WatchedFile {
    pub size_bytes: u64,
    pub counts: Stats,
    /// Decisions of the policy by rule.
    pub rules: BTreeMap<&'static str, u64>,
    /// Open descriptions that had reads.
    pub opens: BTreeSet<u32>,
    pub hints: u64,
    /// How many of the reads are page faults of mappings.
    pub faults: u64,
}

/// A group of 64 cache pages that readahead planned.
#[derive(Clone, Copy, Default)]
struct Planned {
    /// Pages in the cache or in flight.
    here: u64,
    submitted: u64,
}

pub struct Watcher {
    page: PageSize,
    /// Where each file begins in the one file that is read; empty if each file is read separately.
    bases: Vec<u64>,
    /// Sizes of the files that the machine reads.
    read_sizes: HashMap<u32, u64>,
    /// The file of each open description.
    files_of_opens: HashMap<u32, u32>,
    pub files: Vec<WatchedFile>,
    /// The values that a self-tuning policy had when it read farthest ahead.
    pub tuning: Option<Tuning>,
    /// The file of the latest decision.
    asked: u32,
    pages: HashMap<(u32, u64), Planned>,
}

impl Watcher {
    pub fn new(workload: &Workload, page: PageSize, bases: Vec<u64>) -> Watcher {
        let file = |size: &u64| WatchedFile {
            size_bytes: *size,
            ..WatchedFile::default()
        };
        let jobs = workload.jobs.iter();
        Watcher {
            page,
            bases,
            read_sizes: HashMap::new(),
            files_of_opens: jobs.map(|job| (job.open, job.file)).collect(),
            files: workload.files.iter().map(file).collect(),
            tuning: None,
            asked: 0,
            pages: HashMap::new(),
        }
    }

    /// Completes the counters after the run: bytes that were read ahead and are still unread in the cache are counted
    /// as never read.
    pub fn finish(&mut self) {
        for counts in self.files.iter_mut().map(|file| &mut file.counts) {
            counts.unresolved_bytes = counts.unread_bytes();
        }
    }

    fn of_open(&mut self, open: u32) -> &mut WatchedFile {
        let file = self.files_of_opens.get(&open).copied().unwrap_or(0);
        &mut self.files[file as usize]
    }

    /// The counters of the file that contains this byte of the machine's file.
    fn at(&mut self, file: u32, offset: u64) -> &mut Stats {
        let file = match self.bases.is_empty() {
            true => file as usize,
            false => self.bases.partition_point(|base| *base <= offset) - 1,
        };
        &mut self.files[file].counts
    }

    /// Adds the bytes of each page of `mask` to the counters of its file.
    fn give(&mut self, file: u32, number: u64, mask: u64, add: impl Fn(&mut Stats, u64)) {
        let trace_size = self.files.get(file as usize).map(|file| file.size_bytes);
        let size = self
            .read_sizes
            .get(&file)
            .copied()
            .or(trace_size)
            .unwrap_or(0);
        for bit in bits(mask) {
            let start = self.page.start_of(number * 64 + bit as u64);
            let bytes = size.saturating_sub(start).min(self.page.bytes());
            add(self.at(file, start), bytes);
        }
    }

    fn submitted(&mut self, file: u32, range: ByteRange) {
        let counts = self.at(file, range.start());
        counts.source_reads += 1;
        counts.source_bytes += range.len();
        let mut first = None;
        for (number, mask) in groups_of(self.page.cover(range)) {
            let Some(group) = self.pages.get_mut(&(file, number)) else {
                continue;
            };
            let fresh = group.here & !group.submitted & mask;
            group.submitted |= fresh;
            first = first.or_else(|| Some(number * 64 + bits(fresh).next()? as u64));
            self.give(file, number, fresh, |counts, n| counts.ra_bytes += n);
        }
        if let Some(page) = first {
            let start = self.page.start_of(page);
            self.at(file, start).ra_ops += 1;
        }
    }

    /// Removes pages that are no longer in the cache or in flight.
    fn gone(&mut self, file: u32, number: u64, pages: u64) {
        if let Some(group) = self.pages.get_mut(&(file, number)) {
            group.here &= !pages;
            if group.here == 0 {
                self.pages.remove(&(file, number));
            }
        }
    }

    fn note(&mut self, note: &Note) {
        match *note {
            Note::Answer {
                open,
                why,
                ref windows,
                tuning,
                ..
            } => {
                let distance = |tuning: Option<Tuning>| tuning.map(|tuning| tuning.distance_bytes);
                if distance(tuning) >= distance(self.tuning) {
                    self.tuning = tuning;
                }
                self.asked = open.0;
                let unnamed = (!windows.is_empty()).then_some(UNNAMED);
                if let Some(rule) = why.map(|why| why.name()).or(unnamed) {
                    *self.of_open(open.0).rules.entry(rule).or_default() += 1;
                }
            }
            Note::Window { bytes, refused, .. } => {
                let counts = &mut self.of_open(self.asked).counts;
                counts.ra_planned_ops += u64::from(bytes > 0);
                counts.ra_planned_bytes += bytes;
                counts.ra_refused_bytes += refused;
            }
            Note::Planned { file, pages } => {
                for (number, mask) in groups_of(pages) {
                    let group = self.pages.entry((file.0, number)).or_default();
                    group.here |= mask;
                    group.submitted &= !mask;
                }
            }
            Note::Submitted { file, range } => self.submitted(file.0, range),
            Note::Touched {
                file,
                number,
                first,
                late,
            } => {
                self.give(file.0, number, first, |counts, n| counts.used_bytes += n);
                self.give(file.0, number, late, |counts, n| counts.late_bytes += n);
            }
            Note::Left {
                file,
                number,
                pages,
                unused,
            } => {
                self.give(file.0, number, unused, |counts, n| counts.unused_bytes += n);
                self.gone(file.0, number, pages);
            }
            Note::Lost {
                file,
                number,
                pages,
                used,
                submitted,
            } => {
                self.give(file.0, number, used, |counts, n| {
                    counts.used_bytes -= n;
                    counts.late_bytes -= n;
                });
                let failed = if submitted { pages } else { 0 };
                self.give(file.0, number, failed, |counts, n| {
                    counts.ra_failed_bytes += n
                });
                self.gone(file.0, number, pages);
            }
            Note::Thrashed {
                file,
                number,
                pages,
            } => {
                self.give(file.0, number, pages, |counts, n| counts.thrash_bytes += n);
            }
            Note::Served {
                open,
                bytes,
                verdict,
                stall_ns,
                ..
            } => {
                let file = self.of_open(open.0);
                file.opens.insert(open.0);
                verdict.count(&mut file.counts, bytes, stall_ns);
            }
        }
    }
}

impl Watch for Watcher {
    fn event(&mut self, event: &Event) {
        match *event {
            Event::Open { file, size, .. } => _ = self.read_sizes.entry(file.0).or_insert(size),
            Event::Fault { open, .. } => self.of_open(open.0).faults += 1,
            Event::Advise { open, .. } => self.of_open(open.0).hints += 1,
            _ => {}
        }
    }

    fn notes(&mut self, notes: Vec<Note>) {
        notes.iter().for_each(|note| self.note(note));
    }
}

/// Counters that only the whole run has.
const OF_THE_RUN: [&str; 4] = [
    "failed_reads",
    "evicted_pages",
    "failed_fetches",
    "doomed_fetches",
];

/// The counters of a file, each with its name.
pub(super) fn counters(stats: &Stats) -> impl Iterator<Item = (&'static str, u64)> {
    let of_file = |(name, _): &(&str, u64)| !OF_THE_RUN.contains(name);
    stats.counters().into_iter().filter(of_file)
}

/// Returns the name of the first counter for which the files do not add up to the run, with both values.
pub(super) fn difference(files: &[WatchedFile], run: &Stats) -> Option<(&'static str, [u64; 2])> {
    counters(run).enumerate().find_map(|(at, (name, run))| {
        let of_file = |file: &WatchedFile| counters(&file.counts).nth(at).map_or(0, |(_, n)| n);
        let sum = files.iter().map(of_file).sum();
        (sum != run).then_some((name, [sum, run]))
    })
}

/// Bytes that were read ahead and never read, whether or not they were evicted.
pub(super) fn never_read_bytes(counts: &Stats) -> u64 {
    counts.unused_bytes + counts.unresolved_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_core::event::{Action, Error};
    use foreread_core::machine::{Config, Machine};
    use foreread_core::policy::PolicySpec;
    use foreread_core::units::{FetchId, FileId, Nanos, OpenId, ReadId};
    use foreread_sim::workload::Job;

    /// A machine, its watcher, and the fetches that it asked for.
    struct Watched(Machine, Watcher, Vec<FetchId>);

    impl Watched {
        fn tell(&mut self, event: Event) {
            self.1.event(&event);
            self.0.handle(Nanos(0), event);
            self.1.notes(self.0.take_notes());
            let asked = std::iter::from_fn(|| self.0.poll());
            self.2.extend(asked.filter_map(|action| match action {
                Action::Submit { fetch, .. } => Some(fetch),
                _ => None,
            }));
        }
    }

    /// Readahead that fails while a read waits for it does not count as used.
    #[test]
    fn lost_bytes_do_not_count_as_used() {
        let page = PageSize::new(4096).expect("a page size");
        let jobs = vec![Job::new(0, 0, Vec::new())];
        let workload = Workload::of("", vec![1 << 20], jobs);
        let watcher = Watcher::new(&workload, page, Vec::new());
        let policy = PolicySpec::parse("linux-6.18:max=128K").expect("a policy");
        let mut watched = Watched(
            Machine::new(Config::new(page, 1 << 20), policy),
            watcher,
            Vec::new(),
        );
        watched.0.observe();
        let (open, file) = (OpenId(0), FileId(0));
        let read = |n: u64| {
            let range = ByteRange::between(n * 4096, n * 4096 + 4096);
            Event::read(ReadId(n), open, range)
        };
        watched.tell(Event::open(open, file, 1 << 20));
        watched.tell(read(0));
        let fetch = watched.2[0];
        watched.tell(Event::Progress { fetch, bytes: 4096 });
        watched.tell(read(1));
        let counts = watched.1.files[0].counts;
        assert_eq!(
            (counts.used_bytes, counts.late_bytes),
            (4096, 4096),
            "the second read waits for readahead"
        );
        watched.tell(Event::Failed {
            fetch,
            error: Error::Io(5),
        });
        watched.1.finish();
        let counts = watched.1.files[0].counts;
        assert_eq!((counts.used_bytes, counts.late_bytes), (0, 0));
        assert!(counts.ra_failed_bytes > 0);
        let mut run = watched.0.stats();
        assert_eq!(difference(&watched.1.files, &run), None);
        run.late_bytes = 7;
        let named = Some(("late_bytes", [0, 7]));
        assert_eq!(difference(&watched.1.files, &run), named);
    }
}
