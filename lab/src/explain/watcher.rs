//! Looks on at a run, and gives each read, each answer of the policy and each page of readahead to a file and a stream.
//!
//! ```text
//!   Event::Read ──► the stream of the read
//!   Answer of a read ──► its stream ──Planned──► pages bear the stream's number ──Touched, Left, Lost──► its counters
//!   Answer to a hint ──► no stream: the file's own part
//! ```
//! On a real file the files of a trace are laid out in one, one after the other: readahead belongs to the file of the stream that it
//! was read for, wherever it is; fetches and thrash to the file in which they begin.
//!
//! Never: guesses. What belongs to no stream (a hint's readahead, fetches, thrash) is the file's alone.

use super::share::Share;
use super::streams::Streams;
use crate::compare::watched::Scene;
use foreread_core::event::Event;
use foreread_core::machine::Note;
use foreread_core::policy::{Pattern, Tuning, Why};
use foreread_core::units::{ByteRange, PageRange, PageSize};
use foreread_sim::simulator::Watch;
use foreread_sim::simulator::outcomes::bits;
use std::collections::{BTreeMap, HashMap};

/// The number of no stream.
const NO_STREAM: u32 = u32::MAX;

/// How often a policy gave each reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// Answers by the rule that was named.
    pub by_why: BTreeMap<Why, u64>,
    /// Answers with a window and without a named rule.
    pub unnamed: u64,
    /// The rule of the first answer that read ahead beyond its read.
    pub first_on: Option<Why>,
}

impl Reasons {
    /// Both together; the first of `self` stays.
    pub fn add(&mut self, other: &Reasons) {
        other
            .by_why
            .iter()
            .for_each(|(why, n)| *self.by_why.entry(*why).or_default() += n);
        self.unnamed += other.unnamed;
        self.first_on = self.first_on.or(other.first_on);
    }
}

/// 64 pages of the cache that readahead brought, or is bringing.
struct Group {
    /// Planned and here or in flight.
    here: u64,
    submitted: u64,
    used: u64,
    late: u64,
    /// Whose each page is: the stream, and its file.
    stream: [u32; 64],
    file: [u32; 64],
}

/// Whose the latest answer is, and its rule.
#[derive(Clone, Copy)]
struct LatestAnswer {
    stream: u32,
    file: u32,
    why: Option<Why>,
}

/// The observer.
pub struct Watcher {
    page: PageSize,
    sizes: Vec<u64>,
    /// Where each file begins in the one that is read; empty where each is read for itself.
    bases: Vec<u64>,
    /// Sizes of the files as the machine was told; those of a model's files are the trace's.
    read_sizes: HashMap<u32, u64>,
    /// By open description.
    files_of_opens: HashMap<u32, u32>,
    pub streams: Streams,
    /// Of each file.
    pub files: Vec<Share>,
    /// Of each stream, by its number.
    pub of_streams: Vec<Share>,
    /// Why, of each stream.
    pub reasons: Vec<Reasons>,
    /// Hints that were given, of each file.
    pub hints: Vec<u64>,
    /// Touches of mapped pages among the reads, of each file.
    pub faults: Vec<u64>,
    /// What the policy had set itself to when it read farthest ahead.
    pub tuning: Option<Tuning>,
    /// The stream of each read that is under way.
    reads: HashMap<u64, u32>,
    latest: LatestAnswer,
    pages: HashMap<(u32, u64), Box<Group>>,
}

impl Watcher {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(scene: &Scene<'_>) -> Watcher {
        let workload = scene.workload;
        let files = workload.files.len();
        Watcher {
            page: scene.page,
            sizes: workload.files.clone(),
            bases: scene.bases.clone(),
            read_sizes: HashMap::new(),
            files_of_opens: workload
                .jobs
                .iter()
                .map(|job| (job.open, job.file))
                .collect(),
            streams: Streams::default(),
            files: vec![Share::default(); files],
            of_streams: Vec::new(),
            reasons: Vec::new(),
            hints: vec![0; files],
            faults: vec![0; files],
            tuning: None,
            reads: HashMap::new(),
            latest: LatestAnswer {
                stream: NO_STREAM,
                file: 0,
                why: None,
            },
            pages: HashMap::new(),
        }
    }

    /// The run is over: what is left was read ahead and never touched.
    pub fn finish(&mut self) {
        self.streams.finish();
        for ((file, number), group) in std::mem::take(&mut self.pages) {
            let left = group.here & group.submitted & !group.used;
            self.give(file, number, left, &group, |share, bytes| {
                share.unresolved_bytes += bytes
            });
        }
    }

    /// The size of each file in bytes.
    #[must_use]
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    fn file_of(&self, open: u32) -> u32 {
        self.files_of_opens.get(&open).copied().unwrap_or(0)
    }

    /// The file that a byte of the machine's file belongs to.
    fn file_at(&self, file: u32, offset: u64) -> u32 {
        if self.bases.is_empty() {
            file
        } else {
            self.bases.partition_point(|base| *base <= offset) as u32 - 1
        }
    }

    /// The bytes of a page of the machine's file.
    fn bytes_at(&self, file: u32, page: u64) -> u64 {
        let size = self
            .read_sizes
            .get(&file)
            .or(self.sizes.get(file as usize))
            .copied()
            .unwrap_or(0);
        size.saturating_sub(self.page.start_of(page))
            .min(self.page.bytes())
    }

    fn begins(&mut self, read: u64, open: u32, range: ByteRange) {
        let file = self.file_of(open);
        let base = self.bases.get(file as usize).copied().unwrap_or(0);
        let stream = self
            .streams
            .read(file, open, range.start().saturating_sub(base), range.len());
        self.reads.insert(read, stream);
        self.of_streams.resize(self.streams.len(), Share::default());
        self.reasons.resize(self.streams.len(), Reasons::default());
    }

    /// Adds to a file and, if there is one, to a stream.
    fn to(&mut self, file: u32, stream: u32, add: impl Fn(&mut Share)) {
        add(&mut self.files[file as usize]);
        if let Some(share) = self.of_streams.get_mut(stream as usize) {
            add(share);
        }
    }

    /// Adds the bytes of each page of `mask` to the stream that planned it.
    fn give(
        &mut self,
        file: u32,
        number: u64,
        mask: u64,
        group: &Group,
        add: impl Fn(&mut Share, u64),
    ) {
        for bit in bits(mask) {
            let bytes = self.bytes_at(file, number * 64 + bit as u64);
            self.to(group.file[bit], group.stream[bit], |share| {
                add(share, bytes)
            });
        }
    }

    /// Changes the group, if it is known; forgets it when nothing of it is left.
    fn group(&mut self, file: u32, number: u64, see: impl FnOnce(&mut Watcher, &mut Group)) {
        let Some(mut group) = self.pages.remove(&(file, number)) else {
            return;
        };
        see(self, &mut group);
        if group.here != 0 {
            self.pages.insert((file, number), group);
        }
    }

    fn planned(&mut self, file: u32, pages: PageRange) {
        let LatestAnswer {
            stream,
            file: owner,
            ..
        } = self.latest;
        for (number, mask) in groups(pages) {
            let (streams, files) = ([NO_STREAM; 64], [owner; 64]);
            let empty = || {
                Box::new(Group {
                    here: 0,
                    submitted: 0,
                    used: 0,
                    late: 0,
                    stream: streams,
                    file: files,
                })
            };
            let group = self.pages.entry((file, number)).or_insert_with(empty);
            group.here |= mask;
            (group.submitted, group.used, group.late) = (
                group.submitted & !mask,
                group.used & !mask,
                group.late & !mask,
            );
            bits(mask).for_each(|bit| (group.stream[bit], group.file[bit]) = (stream, owner));
        }
    }

    fn submitted(&mut self, file: u32, range: ByteRange) {
        let begins_in = self.file_at(file, range.start()) as usize;
        self.files[begins_in].source_reads += 1;
        self.files[begins_in].source_bytes += range.len();
        let mut first = None;
        for (number, mask) in groups(self.page.cover(range)) {
            self.group(file, number, |all, group| {
                let fresh = group.here & !group.submitted & mask;
                group.submitted |= fresh;
                if fresh != 0 {
                    let bit = fresh.trailing_zeros() as usize;
                    first = first.or(Some((group.file[bit], group.stream[bit])));
                }
                all.give(file, number, fresh, group, |share, bytes| {
                    share.ra_bytes += bytes
                });
            });
        }
        if let Some((file, stream)) = first {
            self.to(file, stream, |share| share.ra_ops += 1);
        }
    }

    fn lost(&mut self, file: u32, number: u64, pages: u64, used: u64, submitted: bool) {
        self.group(file, number, |all, group| {
            all.give(file, number, used, group, |share, bytes| {
                share.used_bytes -= bytes;
                share.late_bytes -= bytes;
            });
            if submitted {
                all.give(file, number, pages, group, |share, bytes| {
                    share.ra_failed_bytes += bytes
                });
            }
            group.here &= !pages;
        });
    }

    fn answered(
        &mut self,
        open: u32,
        stream: u32,
        (why, pattern): (Option<Why>, Option<Pattern>),
        has_windows: bool,
    ) {
        let file = self.file_of(open);
        self.latest = LatestAnswer { stream, file, why };
        if let Some(pattern) = pattern {
            self.to(file, stream, |share| share.decisions.count(pattern));
        }
        if let Some(reasons) = self.reasons.get_mut(stream as usize) {
            match why {
                Some(why) => *reasons.by_why.entry(why).or_default() += 1,
                None => reasons.unnamed += u64::from(has_windows),
            }
        }
    }

    fn window(&mut self, bytes: u64, refused: u64) {
        let LatestAnswer { stream, file, why } = self.latest;
        self.to(file, stream, |share| {
            share.ra_planned_ops += u64::from(bytes > 0);
            share.ra_planned_bytes += bytes;
            share.ra_refused_bytes += refused;
        });
        if let Some(reasons) = self.reasons.get_mut(stream as usize).filter(|_| bytes > 0) {
            // A read that is rounded out to pages reaches beyond itself by whatever rule.
            reasons.first_on = reasons.first_on.or(why.filter(|why| why.is_on()));
        }
    }

    /// The latest of those with the largest distance.
    fn tuned(&mut self, now: Option<Tuning>) {
        let distance = |tuning: Option<Tuning>| tuning.map(|t| t.distance_bytes);
        if distance(now) >= distance(self.tuning) {
            self.tuning = now;
        }
    }

    fn note(&mut self, note: &Note) {
        match *note {
            Note::Answer {
                open,
                read,
                question,
                why,
                ref windows,
                tuning,
                ..
            } => {
                self.tuned(tuning);
                let stream = read
                    .and_then(|read| self.reads.get(&read.0).copied())
                    .unwrap_or(NO_STREAM);
                let pattern = question.pattern(why, !windows.is_empty());
                self.answered(open.0, stream, (why, pattern), !windows.is_empty());
            }
            Note::Window { bytes, refused, .. } => self.window(bytes, refused),
            Note::Planned { file, pages } => self.planned(file.0, pages),
            Note::Submitted { file, range } => self.submitted(file.0, range),
            Note::Touched {
                file,
                number,
                first,
                late,
            } => self.group(file.0, number, |all, group| {
                group.used |= first;
                group.late |= late;
                all.give(file.0, number, first, group, |share, bytes| {
                    share.used_bytes += bytes
                });
                all.give(file.0, number, late, group, |share, bytes| {
                    share.late_bytes += bytes
                });
            }),
            Note::Left {
                file,
                number,
                pages,
                unused,
            } => self.group(file.0, number, |all, group| {
                all.give(file.0, number, unused, group, |share, bytes| {
                    share.unused_bytes += bytes
                });
                group.here &= !pages;
            }),
            Note::Lost {
                file,
                number,
                pages,
                used,
                submitted,
            } => self.lost(file.0, number, pages, used, submitted),
            Note::Thrashed {
                file,
                number,
                pages,
            } => bits(pages)
                .map(|bit| number * 64 + bit as u64)
                .for_each(|page| {
                    let lies_in = self.file_at(file.0, self.page.start_of(page)) as usize;
                    self.files[lies_in].thrash_bytes += self.bytes_at(file.0, page);
                }),
            Note::Served {
                read,
                open,
                bytes,
                verdict,
                stall_ns,
            } => {
                let stream = self.reads.remove(&read.0).unwrap_or(NO_STREAM);
                self.to(self.file_of(open.0), stream, |share| {
                    share.served(bytes, verdict, stall_ns)
                });
            }
        }
    }
}

impl Watch for Watcher {
    fn event(&mut self, event: &Event) {
        match *event {
            Event::Open { file, size, .. } => _ = self.read_sizes.entry(file.0).or_insert(size),
            Event::Read {
                read, open, range, ..
            }
            | Event::Hit { read, open, range } => {
                self.begins(read.0, open.0, range);
            }
            Event::Fault { read, open, at, .. } => {
                let page = self.page.page_of(at);
                let (start, end) = (self.page.start_of(page), self.page.start_of(page + 1));
                let file = self.file_of(open.0) as usize;
                self.faults[file] += 1;
                self.begins(read.0, open.0, ByteRange::between(start, end));
            }
            Event::Advise { open, .. } => {
                let file = self.file_of(open.0) as usize;
                self.hints[file] += 1;
            }
            _ => {}
        }
    }

    fn notes(&mut self, notes: Vec<Note>) {
        notes.iter().for_each(|note| self.note(note));
    }
}

/// The groups of 64 that the pages lie in, and which of each.
fn groups(pages: PageRange) -> impl Iterator<Item = (u64, u64)> {
    (pages.first / 64..pages.end.div_ceil(64)).map(move |number| {
        let (low, high) = (
            pages.first.max(number * 64) % 64,
            pages.end.min(number * 64 + 64) - number * 64,
        );
        (number, (u64::MAX << low) & (u64::MAX >> (64 - high)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_core::event::{Action, Error};
    use foreread_core::machine::{Config, Machine};
    use foreread_core::policy::PolicySpec;
    use foreread_core::units::{FetchId, FileId, Nanos, OpenId, ReadId};
    use foreread_sim::workload::{Job, Workload};

    /// A machine that is looked on, and the fetches it has asked for.
    struct WatchedMachine(Machine, Watcher, Vec<FetchId>);

    impl WatchedMachine {
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

    /// No model fails, storage does: readahead that a read waits for is lost, and what counted as used is taken back.
    #[test]
    fn what_is_lost_was_not_used() {
        let page = PageSize::new(4096).expect("a page size");
        let jobs = vec![Job::new(0, 0, Vec::new())];
        let workload = Workload {
            name: String::new(),
            files: vec![1 << 20],
            listed: false,
            page_bytes: 4096,
            jobs,
        };
        let watcher = Watcher::new(&Scene {
            workload: &workload,
            page,
            bases: Vec::new(),
        });
        let policy = PolicySpec::parse("linux-6.18:max=128K").expect("a policy");
        let mut looked = WatchedMachine(
            Machine::new(Config::new(page, 1 << 20), policy),
            watcher,
            Vec::new(),
        );
        looked.0.observe();
        let (open, file) = (OpenId(0), FileId(0));
        let read = |n: u64| {
            let range = ByteRange::between(n * 4096, n * 4096 + 4096);
            Event::Read {
                read: ReadId(n),
                open,
                range,
                random: false,
            }
        };
        looked.tell(Event::Open {
            open,
            file,
            size: 1 << 20,
        });
        looked.tell(read(0));
        let fetch = looked.2[0];
        looked.tell(Event::Progress { fetch, bytes: 4096 });
        looked.tell(read(1));
        let share = looked.1.files[0];
        assert_eq!(
            (share.used_bytes, share.late_bytes),
            (4096, 4096),
            "the second read waits for readahead"
        );
        looked.tell(Event::Failed {
            fetch,
            error: Error::Io(5),
        });
        looked.1.finish();
        let share = looked.1.files[0];
        assert_eq!(
            (
                share.used_bytes,
                share.late_bytes,
                share.ra_failed_bytes > 0
            ),
            (0, 0, true),
            "{share:?}"
        );
        assert_eq!(
            (
                share.differs_from(&looked.0.stats()),
                looked.1.of_streams[0].ra_failed_bytes
            ),
            (None, share.ra_failed_bytes)
        );
    }
}
