//! `auto`: readahead that sets itself from what it measures. One state serves all files of a source.
//!
//! ```text
//!   miss ──► streams: does it go on? ──► survival: how far is it worth it? ──► credit: may it be wasted? ──► window
//!   mark ──► the stream goes on       ──► distance: was it late? then twice as far ──► top up
//! ```
//! A window is several chunks with a mark at the start of each, so that a stream is asked about when an eighth of its distance
//! has been read. A read of cached bytes asks nothing.
//!
//! Example: a file of 128 MiB in a store of 15 ms and 1.25 GB/s, read in order by 128 KiB. The first read is at the start of its
//! file: nothing is known, so as much again is read ahead. The second reaches the mark; latency is known now, so 31 times
//! what was read is worth it: 8 MiB. The mark of each window that is still in flight doubles the distance, up to
//! four times rate x latency: 64 MiB after four round trips.
//!
//! | file | holds |
//! |---|---|
//! | `streams.rs` | which read goes on with which run |
//! | `joins.rs` | which runs are one |
//! | `candidates.rs` | which reads are the beginning of a run |
//! | `survival.rs` | what runs of a length have done before |
//! | `blocks.rs` | which part of what is near a read is read, too |
//! | `regions.rs` | what is read near a first read, in any order |
//! | `credit.rs` | what may be wasted |
//! | `distance.rs` | how far ahead at most, in which requests |
//! | `ahead.rs` | the windows of a stream that went on |
//! | `pace.rs` | how far is enough for a slow reader |
//! | `view.rs` | its figures, for reports |
//! | `files.rs` | the files behind the one that is read, in the order of a listing |
//! | `walks.rs` | which readers go from file to file |
//!
//! It keeps nothing between processes.
//! Source: the project's own design; each file names the sources of its part.

mod ahead;
mod blocks;
mod candidates;
mod credit;
mod distance;
mod effort;
mod files;
mod joins;
mod pace;
mod regions;
mod streams;
mod survival;
mod view;
mod walks;

use crate::event::{Advice, Mapping};
use crate::policy::{
    Answer, Ask, Info, Outcome, Param, Policy, Scope, SourceView, Tuning, Unit, Wants, Why,
};
use crate::storage::RunKind;
use crate::units::{ByteRange, FileId, Nanos, OpenId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use blocks::Kinds;
use candidates::{Candidates, Detection, DisplacedRun};
use credit::{Credit, Holding};
use distance::Readers;
use effort::Effort;
use pace::Pace;
use regions::Regions;
use streams::{Stream, Streams};
use survival::Survival;
use walks::{Walk, WalkFile, Walks};

/// Runs are few among the births: then a run needs one read more, and cached bytes before a read show nothing.
const RARE: u64 = 16;
/// Births before that is judged.
const BIRTHS: u64 = 32;
/// A stream that went on within this number of decisions is active, and a reader that missed where no stream goes on reads at random.
const ACTIVE: u64 = 64;
/// Streams that went on within this number of decisions share the room: with 100 of them in turn each goes on every hundredth decision. What
/// others hold leaves the cache before what these read ahead.
const PRESENT: u64 = 256;
/// The same of those that hold readahead, and streams of a source that are counted.
const HELD_PRESENT: u64 = 2048;
const MAX_COUNTED: usize = 512;
/// Reads that it takes to see a stride.
const STRIDE_READS: u64 = 3;

/// What a run is when it is found.
struct Birth {
    class: RunKind,
    stride: Option<i64>,
    /// Where its next read is expected; for a stride the start of its latest.
    pos: u64,
    /// Bytes that it has run.
    run: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Miss {
    file: FileId,
    start: u64,
    at: Nanos,
}

/// A miss where no stream goes on.
#[derive(Clone, Copy)]
struct LoneMiss {
    open: OpenId,
    /// Decisions of the source before it.
    clock: u64,
}

/// All of a source.
struct Auto {
    files: BTreeMap<u32, Streams>,
    walks: Walks,
    survival: Survival,
    credit: Credit,
    effort: Effort,
    kinds: Kinds,
    clock: u64,
    births: u64,
    runs: u64,
    /// A read that misses in several places is one miss.
    last: Option<Miss>,
    /// The two open descriptions that missed last where no stream goes on.
    lone: [Option<LoneMiss>; 2],
}

impl Policy for Auto {
    fn wants(&self) -> Wants {
        Wants {
            outcome: true,
            meter: true,
            ..Wants::default()
        }
    }

    fn on_miss(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        self.missed(ask, false, answer);
    }

    fn on_mark(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        self.credit.begin_answer();
        self.clock += 1;
        let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
        let file = self.files.get_mut(&ask.file.0);
        if let Some((at, file)) =
            file.and_then(|file| Some((file.marked(ask.at, (start, end - start))?, file)))
        {
            let stream = &mut file.all[at];
            stream.late |= !ask.probe.is_present(ask.at);
            stream.advance(start, end);
            self.go_on(ask, at, Why::NextWindow, answer);
        } else if self.is_passed(ask, start) {
            answer.why = Some(Why::NotYet);
        } else if !self.begin_stepping(ask, (start, end), answer)
            && !self.run_from_region(ask, (start, end), answer)
        {
            self.begin_in_walk(ask, answer);
        }
        self.follow(ask, answer);
    }

    fn on_fault(&mut self, ask: &Ask<'_>, _map: &Mapping, answer: &mut Answer) {
        self.missed(ask, true, answer);
    }

    fn on_fault_hit(&mut self, ask: &Ask<'_>, _map: &Mapping, marked: bool, answer: &mut Answer) {
        if marked {
            self.on_mark(ask, answer);
        }
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, answer: &mut Answer) {
        let file = self.files.entry(ask.file.0).or_default();
        match advice {
            Advice::Random => file.off = true,
            Advice::Normal | Advice::Sequential => file.off = false,
            Advice::WillNeed => {
                answer.why = Some(Why::Asked);
                // More than half of the cache would drive its own first bytes out.
                let room = (ask.source.room / 2).saturating_sub(ask.source.unread_bytes);
                let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
                let range = ByteRange::between(start.min(end), end.min(start.saturating_add(room)));
                self.credit.asked(ask.probe.missing(range));
                answer.read(range.start(), range.len(), None);
            }
            Advice::DontNeed => {}
        }
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Used { file, at, bytes } => self.used(*file, *at, *bytes),
            Outcome::Late { file, at, bytes } => {
                self.used(*file, *at, *bytes);
                if let Some(file) = self.files.get_mut(&file.0)
                    && let Some(stream) = file.find((*at, u64::MAX), 0)
                {
                    file.all[stream].late = true;
                }
            }
            _ => {}
        }
    }

    fn tuning(&self, source: &SourceView) -> Option<Tuning> {
        Some(self.view(source))
    }

    fn on_file_opened(&mut self, file: FileId, before: Option<FileId>) {
        self.opened(file, before);
    }

    fn on_file_closed(&mut self, file: FileId) {
        let streams = self.files.remove(&file.0);
        // Where there were streams they count how far the file was read.
        self.give_up(
            file,
            streams.as_ref().is_none_or(|file| file.all.is_empty()),
        );
        if let Some(Streams {
            all, size, regions, ..
        }) = streams
        {
            all.iter().for_each(|stream| self.ends(stream, size));
            self.regions_end(regions);
        }
    }
}

impl Auto {
    fn new(max_overfetch: u64) -> Auto {
        Auto {
            files: BTreeMap::new(),
            walks: Walks::default(),
            survival: Survival::new(),
            credit: Credit::new(max_overfetch),
            effort: Effort::default(),
            kinds: Kinds::default(),
            clock: 0,
            births: 0,
            runs: 0,
            last: None,
            lone: [None; 2],
        }
    }

    /// Readahead was demanded: by the reader of its stream, or by others after that has ended.
    fn used(&mut self, file: FileId, at: u64, bytes: u64) {
        if self.used_by_region(file.0, at, bytes) {
            return;
        }
        let streams = self
            .files
            .get_mut(&file.0)
            .map_or(&mut [][..], |file| &mut file.all[..]);
        let held = streams.iter().position(|stream| stream.holds(at));
        let passed = || streams.iter().position(|stream| stream.is_behind(at));
        match held.or_else(passed) {
            Some(n) => {
                let stream = &mut streams[n];
                if at >= stream.pos || stream.stride.is_some() {
                    self.credit.read(&mut stream.holding, bytes);
                }
                stream.touched += bytes;
                stream.steps.note(at, bytes);
            }
            None => self.used_by_walk(file, bytes),
        }
    }

    /// Bytes of a read, or of a mapping, are neither here nor in flight.
    fn missed(&mut self, ask: &Ask<'_>, is_mapped: bool, answer: &mut Answer) {
        self.credit.begin_answer();
        self.miss(ask, is_mapped, answer);
        self.follow(ask, answer);
    }

    fn miss(&mut self, ask: &Ask<'_>, is_mapped: bool, answer: &mut Answer) {
        let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
        let file = self.files.entry(ask.file.0).or_default();
        file.size = ask.file_size;
        if ask.random || file.off {
            answer.why = Some(Why::HintRandom);
            return;
        }
        let this = Miss {
            file: ask.file,
            start,
            at: ask.now,
        };
        if start >= end || self.last.replace(this) == Some(this) {
            return;
        }
        self.clock += 1;
        // No more than the cache has room for is looked at.
        let most = end.min(start.saturating_add(ask.source.room));
        let missing = ask.probe.missing(ByteRange::between(start, most));
        self.credit.missed(missing.saturating_add(end - most));
        if self.walks.has(ask.file, start) {
            // What was read ahead before the file was opened has left the cache.
            self.give_up(ask.file, false);
            let readers = self.active();
            self.effort
                .thrashed(self.clock, readers.are_many(&ask.source), &ask.source);
        }
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        if let Some(idle) = file.take_idle() {
            self.ends(&idle, ask.file_size);
        }
        self.missed_in_region(ask.file.0, start, end);
        // What is near a fault says more than a stream; what is near a read does where no stream goes on.
        if is_mapped && self.read_region(ask, (start, end), is_mapped, answer) {
            return;
        }
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        let gap = distance::measured(&ask.source).max((end - start).saturating_mul(4));
        if let Some(at) = file.find((start, end - start), gap)
            && !file.all[at].is_past(end)
        {
            return self.missed_by_stream(ask, at, (start, end), answer);
        }
        // A read behind a stream changes nothing for that stream, and may be the beginning of another one.
        self.births += 1;
        if self.begin_stepping(ask, (start, end), answer) {
            return;
        }
        if !is_mapped && self.read_region(ask, (start, end), is_mapped, answer) {
            return;
        }
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        if start == 0 {
            file.misses += 1;
            file.candidates.is_lone(start, end);
            return self.begin(
                ask,
                Birth {
                    class: RunKind::Start,
                    stride: None,
                    pos: end,
                    run: end,
                },
                answer,
            );
        }
        let careful = self.births >= BIRTHS && self.runs * RARE < self.births;
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        if !careful && ask.probe.is_cached(start - 1) {
            file.misses += 1;
            file.candidates.went_on(start);
            self.begin(
                ask,
                Birth {
                    class: RunKind::Next,
                    stride: None,
                    pos: end,
                    run: end - start,
                },
                answer,
            );
            return self.begin_in_turn(ask, end - start, answer);
        }
        file.misses += 1;
        let found = file.candidates.look(start, end, careful);
        self.begin_by_history(found, ask, (start, end), answer);
    }

    /// Begins the stream that earlier lone reads show, if they show one.
    fn begin_by_history(
        &mut self,
        found: Detection,
        ask: &Ask<'_>,
        (start, end): (u64, u64),
        answer: &mut Answer,
    ) {
        match found {
            Detection::Nothing => {
                answer.why = answer.why.or(Some(Why::NoHistory));
                if self.lone[0].is_some_and(|lone| lone.open != ask.open) {
                    self.lone[1] = self.lone[0];
                }
                self.lone[0] = Some(LoneMiss {
                    open: ask.open,
                    clock: self.clock,
                });
            }
            Detection::Run { high, run } => {
                self.begin(
                    ask,
                    Birth {
                        class: RunKind::Elsewhere,
                        stride: None,
                        pos: high,
                        run,
                    },
                    answer,
                );
                self.begin_in_turn(ask, end - start, answer);
            }
            Detection::Stride(stride) => {
                let run = STRIDE_READS * (end - start);
                self.begin(
                    ask,
                    Birth {
                        class: RunKind::Elsewhere,
                        stride: Some(stride),
                        pos: start,
                        run,
                    },
                    answer,
                );
            }
        }
    }

    /// Begins the stride that reads of what is read ahead show, if they show one. The stream that was read ahead has ended.
    fn begin_stepping(
        &mut self,
        ask: &Ask<'_>,
        (start, end): (u64, u64),
        answer: &mut Answer,
    ) -> bool {
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return false;
        };
        // Reads at once may be those of threads that take pieces in turns.
        let alone = ask.source.reads == 1;
        let Some((at, stride)) = file.stepping(start).filter(|_| alone) else {
            return false;
        };
        let over = file.all.swap_remove(at);
        self.ends(&over, ask.file_size);
        let found = Detection::Stride(stride);
        self.begin_by_history(found, ask, (start, end), answer);
        true
    }

    /// A read that goes on with a stream found nothing: it is at the stream's end, or what was read ahead has gone.
    fn missed_by_stream(
        &mut self,
        ask: &Ask<'_>,
        at: usize,
        (start, end): (u64, u64),
        answer: &mut Answer,
    ) {
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        file.misses += 1;
        let stream = &mut file.all[at];
        let inside = match stream.stride {
            None => start < stream.end,
            Some(stride) if stride > 0 => start <= stream.end,
            Some(_) => start >= stream.end,
        };
        if inside && stream.ahead() > 0 {
            // Evicted before use, or refused because there was no room.
            stream.distance = (stream.distance / 2).max(end - start);
            stream.end = end;
            let lost = core::mem::take(&mut stream.holding);
            self.credit.change(lost, Holding::default());
            let used = stream.used.saturating_sub(ahead::PROVEN * lost.held);
            stream.advance(start, end);
            let readers = self.active();
            if readers.are_many(&ask.source)
                && let Some(file) = self.files.get_mut(&ask.file.0)
            {
                // It has taken what is lost from the part that needs no credit.
                file.all[at].used = used;
            }
            self.effort
                .thrashed(self.clock, readers.are_many(&ask.source), &ask.source);
            return self.go_on(ask, at, Why::Thrashed, answer);
        }
        stream.late = true;
        stream.advance(start, end);
        self.go_on(ask, at, Why::WindowEnd, answer);
    }

    /// A run begins.
    fn begin(&mut self, ask: &Ask<'_>, birth: Birth, answer: &mut Answer) {
        self.begin_ahead(ask, birth, (0, Holding::default()), answer);
    }

    /// A run begins of which there is readahead up to a place in the file.
    fn begin_ahead(
        &mut self,
        ask: &Ask<'_>,
        birth: Birth,
        (to, holding): (u64, Holding),
        answer: &mut Answer,
    ) {
        let Birth {
            class,
            stride,
            pos,
            run,
        } = birth;
        let len = ask
            .request
            .end()
            .min(ask.file_size)
            .saturating_sub(ask.request.start())
            .max(1);
        self.runs += u64::from(class == RunKind::Elsewhere);
        self.survival.grew(class, None, survival::octave(run));
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        let mut stream = Stream::new(class, stride, pos, run, len);
        (stream.end, stream.holding) = (stream.end.max(to), holding);
        if stride.is_none() {
            // It may have begun inside what another one has read ahead: then it takes that over.
            for other in file
                .all
                .iter_mut()
                .filter(|s| s.stride.is_none() && s.pos <= pos && pos < s.end)
            {
                stream.end = stream.end.max(other.end);
                other.end = pos;
                other.touched = other.touched.min(other.ahead());
                let held = other.holding.held.min(other.ahead());
                stream.holding.held += other.holding.held - held;
                self.credit.change(
                    other.holding,
                    Holding {
                        held: other.holding.held,
                        bet: 0,
                    },
                );
                other.holding = Holding { held, bet: 0 };
            }
        }
        let taken = self.take_over(ask.file, pos);
        if let Some((end, held)) = taken {
            (stream.end, stream.holding.held) = (stream.end.max(end), stream.holding.held + held);
        }
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        let (at, gone) = file.add(stream);
        if let Some(gone) = gone {
            self.ends(&gone, ask.file_size);
        }
        let why = match (class, stride) {
            (RunKind::Start, _) => Why::FileStart,
            (_, Some(_)) => Why::Triggered,
            (_, None) => Why::Sequential,
        };
        self.go_on(ask, at, why, answer);
    }

    /// Another reader than this one reads at random: its reads wait behind readahead that is in flight.
    fn disturbs(&self, open: OpenId) -> bool {
        self.lone
            .iter()
            .flatten()
            .any(|lone| lone.open != open && lone.clock + ACTIVE > self.clock)
    }

    /// Streams that went on lately, or walks from file to file: those that share the link, and those that share the room.
    fn active(&self) -> Readers {
        let (mut link, mut room, mut lively) = (0, 0, 0);
        // A stream that is far enough ahead is seldom decided about, and has its part of the room all the same.
        let present = |age: u64, held: u64| age < PRESENT || (held > 0 && age < HELD_PRESENT);
        let all = self
            .files
            .values()
            .flat_map(|file| &file.all)
            .map(|s| (self.clock - s.clock, s.holding.held));
        for (age, held) in all
            .filter(|(age, held)| present(*age, *held))
            .take(MAX_COUNTED)
        {
            (link, room) = (link + u64::from(age < ACTIVE), room + 1);
            lively += if age < PRESENT { held } else { 0 };
        }
        // A walk and the stream in its file are one reader.
        let walks = self.walks.active();
        Readers {
            link: link.max(walks),
            room: room.max(walks),
            held: lively,
        }
    }

    /// A stream is over. At the end of its file it did not end, the file did.
    fn ends(&mut self, stream: &Stream, file_size: u64) {
        if stream.end < file_size && stream.pos < file_size {
            self.survival.ended(stream.class, stream.octave);
        }
        self.survival.is_over(stream.hit);
        self.credit.change(stream.holding, Holding::default());
    }
}

/// Default: a byte may be wasted for each that is demanded. See `credit.rs`.
const MAX_OVERFETCH: Param = Param {
    key: "max-overfetch",
    unit: Unit::Ratio,
    default: "2",
    range: (1000, 100_000),
    help: "bytes fetched for a byte demanded, at most, beside a debt",
};

/// `auto`: readahead that sets itself from what it measures.
pub static INFO: Info = Info {
    name: "auto",
    summary: "sets itself: measures latency, rate, runs and waste, and reads ahead as far as that is worth",
    origin: "foreread, 2026: PostgreSQL 19, ZFS, BBR, STEP and others combined; see docs/policies.md",
    scope: Scope::Source,
    page_bytes: None,
    params: &[MAX_OVERFETCH],
    build: |values| Box::new(Auto::new(values[0])),
};
