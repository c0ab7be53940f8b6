//! The environment of the machine in tests: it completes every fetch in an order that the test chooses, and checks that
//! every served page was really present. There is no clock: time is the number of events.
#![allow(dead_code, reason = "each test binary uses its own part")]

use foreread_core::event::{Action, Class, Error, Event};
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::{Info, Policy, PolicySpec, Scope};
use foreread_core::units::{ByteRange, FetchId, FileId, LeaseId, Nanos, OpenId, PageSize, ReadId};
use std::collections::{BTreeMap, BTreeSet};

/// A policy of a test, without parameters.
pub const fn test_policy(
    name: &'static str,
    summary: &'static str,
    build: fn(&[u64]) -> Box<dyn Policy>,
) -> Info {
    Info {
        name,
        summary,
        origin: "a test",
        scope: Scope::Open,
        page_bytes: None,
        params: &[],
        build,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub file: FileId,
    pub range: ByteRange,
    pub class: Class,
    /// When it was submitted: its bytes are as old as that.
    pub stamp: u64,
}

/// The machine and everything that a driver would keep.
pub struct World {
    pub machine: Machine,
    pub page: u64,
    pub now: u64,
    pub pending: BTreeMap<FetchId, Pending>,
    /// Pages whose bytes are held, and how old these are.
    pub held: BTreeMap<(FileId, u64), u64>,
    /// When each page was last written from outside.
    pub written: BTreeMap<u64, u64>,
    /// When the whole file was last replaced.
    pub replaced: u64,
    pub leases: Vec<(ReadId, LeaseId, ByteRange, bool)>,
    pub served: BTreeMap<ReadId, u64>,
    pub ended: BTreeMap<ReadId, Result<(), Error>>,
    pub submitted: Vec<(ByteRange, Class)>,
    pub wakes: Vec<Nanos>,
    pub cancelled: BTreeSet<FetchId>,
    pub abandoned: BTreeSet<ReadId>,
    pub release_at_once: bool,
    pub next_read: u64,
    pub size: u64,
}

pub const FILE: FileId = FileId(0);
pub const OPEN: OpenId = OpenId(0);

impl World {
    pub fn new(policy: &str, page: u64, cache: u64, size: u64) -> World {
        let page_size = PageSize::new(page).expect("a page size");
        World::with(policy, Config::new(page_size, cache), size)
    }

    pub fn with(policy: &str, config: Config, size: u64) -> World {
        let policy = crate::golden::parse(policy).expect("a policy");
        World::of(policy, config, size)
    }

    pub fn of(spec: PolicySpec, config: Config, size: u64) -> World {
        let mut world = World {
            page: config.page.bytes(),
            machine: Machine::new(config, spec),
            now: 0,
            pending: BTreeMap::new(),
            held: BTreeMap::new(),
            written: BTreeMap::new(),
            replaced: 0,
            leases: Vec::new(),
            served: BTreeMap::new(),
            ended: BTreeMap::new(),
            submitted: Vec::new(),
            wakes: Vec::new(),
            cancelled: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            release_at_once: true,
            next_read: 0,
            size,
        };
        world.open(OPEN);
        world
    }

    /// Another open description of the file.
    pub fn open(&mut self, open: OpenId) {
        let (file, size) = (FILE, self.size);
        self.send(Event::open(open, file, size));
    }

    /// The caller says that it will read these bytes.
    pub fn prefetch(&mut self, open: OpenId, start: u64, len: u64) {
        let range = ByteRange::new(start, len).expect("a range");
        self.send(Event::Prefetch { open, range });
    }

    pub fn send(&mut self, event: Event) {
        self.now += 1;
        self.machine.handle(Nanos(self.now), event);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(action) = self.machine.poll() {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Submit {
                fetch,
                file,
                range,
                class,
            } => {
                assert!(!range.is_empty(), "an empty fetch");
                self.submitted.push((range, class));
                let pending = Pending {
                    file,
                    range,
                    class,
                    stamp: self.now,
                };
                let before = self.pending.insert(fetch, pending);
                assert_eq!(before, None, "a fetch id given twice");
            }
            Action::Serve {
                read,
                lease,
                file,
                range,
                last,
            } => {
                self.check_held(file, range);
                *self.served.entry(read).or_insert(0) += range.len();
                self.leases.push((read, lease, range, last));
                if last {
                    self.end(read, Ok(()));
                }
                if self.release_at_once {
                    self.release(0);
                }
            }
            Action::Fail { read, error } => self.end(read, Err(error)),
            Action::Drop {
                file,
                number,
                pages,
                ..
            } => {
                for bit in (0..64).filter(|b| pages >> b & 1 != 0) {
                    let page = number * 64 + bit;
                    let held = self.held.remove(&(file, page));
                    assert!(held.is_some(), "dropped page {page} was not held");
                }
            }
            Action::Cancel { fetch } => {
                self.cancelled.insert(fetch);
            }
            Action::WakeAt { at } => self.wakes.push(at),
        }
    }

    fn end(&mut self, read: ReadId, how: Result<(), Error>) {
        let before = self.ended.insert(read, how);
        assert_eq!(before, None, "a read that ended twice");
    }

    /// What is served must be held, and be no older than the last change.
    fn check_held(&self, file: FileId, range: ByteRange) {
        let pages = self.machine.config().page.cover(range);
        for page in pages.first..pages.end {
            let Some(&read_at) = self.held.get(&(file, page)) else {
                panic!("page {page} served without its bytes");
            };
            let written = self.written.get(&page).copied().unwrap_or(0);
            let written = written.max(self.replaced);
            let is_new = read_at >= written;
            assert!(is_new, "page {page} of {read_at}, written at {written}");
        }
    }

    /// These bytes are written.
    pub fn invalidate(&mut self, start: u64, len: u64) {
        let range = ByteRange::new(start, len).expect("a range");
        let pages = self.machine.config().page.cover(range);
        for page in pages.first..pages.end {
            self.written.insert(page, self.now + 1);
        }
        self.send(Event::Invalidate { file: FILE, range });
    }

    /// The file is replaced.
    pub fn replace(&mut self, size: u64) {
        self.replaced = self.now + 1;
        self.size = size;
        self.send(Event::Changed { file: FILE, size });
    }

    pub fn release(&mut self, index: usize) {
        let (_, lease, ..) = self.leases.remove(index);
        self.now += 1;
        self.machine
            .handle(Nanos(self.now), Event::Release { lease });
        self.drain();
    }

    pub fn read(&mut self, start: u64, len: u64) -> ReadId {
        self.read_on(OPEN, start, len)
    }

    pub fn read_on(&mut self, open: OpenId, start: u64, len: u64) -> ReadId {
        let read = ReadId(self.next_read);
        self.next_read += 1;
        let range = ByteRange::new(start, len).expect("a range");
        self.send(Event::read(read, open, range));
        read
    }

    /// The pages of a fetch up to `bytes` are held from now on, unless it is doomed.
    fn hold(&mut self, fetch: FetchId, bytes: u64) {
        let pending = self.pending[&fetch];
        let view = self.machine.fetch(fetch);
        let view = view.expect("an unanswered fetch is known");
        if view.doomed {
            return;
        }
        let got = ByteRange::between(pending.range.start(), pending.range.start() + bytes);
        let page = self.machine.config().page;
        let whole = got.end() == pending.range.end();
        let end = if whole {
            page.cover(got).end
        } else {
            page.page_of(got.end())
        };
        for p in page.pages_for(got.start() + view.arrived)..end {
            self.held.insert((pending.file, p), pending.stamp);
        }
    }

    pub fn progress(&mut self, fetch: FetchId, bytes: u64) {
        self.hold(fetch, bytes);
        self.send(Event::Progress { fetch, bytes });
    }

    pub fn finish(&mut self, fetch: FetchId) {
        let bytes = self.pending[&fetch].range.len();
        self.finish_with(fetch, bytes);
    }

    pub fn finish_with(&mut self, fetch: FetchId, bytes: u64) {
        self.hold(fetch, bytes);
        self.pending.remove(&fetch);
        self.send(Event::Done { fetch, bytes });
    }

    pub fn fail(&mut self, fetch: FetchId) {
        self.pending.remove(&fetch);
        self.send(Event::Failed {
            fetch,
            error: Error::Io(5),
        });
    }

    /// Answers everything, first submitted first, until nothing is left.
    pub fn settle(&mut self) {
        for _ in 0..1_000_000 {
            let Some(&fetch) = self.pending.keys().next() else {
                if self.leases.is_empty() {
                    return;
                }
                self.release(0);
                continue;
            };
            self.finish(fetch);
        }
        panic!("never settles");
    }

    /// What must hold whenever the machine has been polled empty.
    pub fn check(&self) {
        let cache = self.machine.cache();
        self.check_books();
        let (pages, most) = (cache.pages(), self.machine.config().capacity_pages);
        assert!(pages <= most, "over capacity: {pages}");
    }

    /// The part of it that holds after the cache was made smaller under pages in use, too.
    pub fn check_books(&self) {
        let stats = self.machine.stats();
        let cache = self.machine.cache();
        let most = self.machine.config().max_in_flight as usize;
        let in_flight = self.pending.len();
        assert!(in_flight <= most, "{in_flight} in flight, at most {most}");
        let present = cache.groups().map(|g| u64::from(g.present().count_ones()));
        let held = self.held.len() as u64;
        assert_eq!(present.sum::<u64>(), held, "pages present and pages held");
        // A refused read (no such open description) is failed but was never a demand read.
        let served = stats.hits + stats.late_hits + stats.misses;
        let demanded = served..=served + stats.failed_reads;
        assert!(demanded.contains(&stats.demand_reads), "{stats:?}");
    }

    /// What must hold when nothing is in progress.
    pub fn check_idle(&self) {
        self.check_books();
        assert_eq!(self.machine.reads_in_progress(), 0, "reads left");
        assert_eq!(self.machine.fetches_in_progress(), 0, "fetches left");
        let stats = self.machine.stats();
        let parts =
            stats.used_bytes + stats.unused_bytes + stats.ra_failed_bytes + stats.unresolved_bytes;
        assert_eq!(stats.ra_bytes, parts, "readahead bytes: {stats:?}");
        let mut groups = self.machine.cache().groups();
        assert!(groups.all(|g| g.pins == 0), "pins left");
    }
}
