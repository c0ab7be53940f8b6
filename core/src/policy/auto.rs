//! `auto`: a readahead policy that sets its own parameters from what it measures. All files of a source share one state of the policy.
//!
//! ```text
//!   miss ──► streams: does a run continue? ──► survival: how far is it worth it? ──► credit: how much may be wasted? ──► window
//!   mark ──► the stream continues          ──► distance: was it late? then twice as far ──► top up
//! ```
//! The readahead of a stream is split into several windows. The first page of each window is a *mark*: when the reader reaches it, the
//! policy is called again. Apart from that, a read of cached bytes does not call the policy.
//!
//! Example: a file of 128 MiB in a store with 15 ms latency and 1.25 GB/s, read sequentially in reads of 128 KiB. The first read is at the
//! start of the file. Nothing is known about the source yet, so the policy reads ahead as many bytes as the first read requested: 128 KiB.
//! The second read reaches the mark of this readahead. By now the latency is known, and the policy reads ahead 31 times the 256 KiB read so
//! far: 8 MiB. The *distance* is how far ahead of the reader the policy reads. The distance doubles whenever the reader reaches the mark of
//! a window that is still in flight, up to four times rate x latency. After four round trips the distance is 64 MiB.
//!
//! | file | decides |
//! |---|---|
//! | `streams.rs` | which run a read continues, and which runs are parts of one run |
//! | `candidates.rs` | which reads start a run |
//! | `survival.rs` | how far a run probably goes, from earlier runs |
//! | `blocks.rs` | which blocks around a read are read, too |
//! | `regions.rs` | what is read near a first read, in any order |
//! | `credit.rs` | how many bytes may be wasted |
//! | `distance.rs` | the largest distance, and the request size |
//! | `effort.rs` | when to raise that distance, and when to use less of the cache |
//! | `ahead.rs` | the windows of a stream that continues |
//! | `files.rs` | which of the next files in listing order are read ahead |
//! | `walks.rs` | which readers go from file to file |
//!
//! The policy keeps no state after its process ends. Source: the project's own design; each file names the sources of its part.

mod ahead;
mod blocks;
mod candidates;
mod credit;
mod distance;
mod effort;
mod files;
mod regions;
mod streams;
mod survival;
mod walks;

use crate::event::{Advice, Mapping};
use crate::policy::{
    Answer, Ask, Info, Limit, Outcome, Param, Policy, Scope, SourceView, Tuning, Unit, Wants, Why,
};
use crate::storage::RunKind;
use crate::units::{ByteRange, FileId, Nanos, OpenId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use blocks::Kinds;
use candidates::{Candidates, DisplacedRun};
use credit::Credit;
use distance::Readers;
use effort::Effort;
use regions::Regions;
use streams::{Stream, Streams};
use survival::Survival;
use walks::{Walk, WalkFile, Walks};

/// Runs are rare if after this number of misses outside all streams, less than one in that many became a run. If they are rarer than
/// [`RARE`], a run that did not begin at the start of its file is read ahead by its own length (`ahead.rs`). If they are rarer than
/// [`RARER`], a run must also show one more read, and cached bytes before a read are no evidence.
const RARE: (u64, u64) = (8, 8);
const RARER: (u64, u64) = (32, 16);
/// A stream that continued within this number of decisions is active. A reader that missed outside all streams within this number reads at
/// random.
const ACTIVE: u64 = 64;
/// Streams that continued within this number of decisions share the room for readahead: if 100 streams take turns, each continues only
/// every hundredth decision. Readahead of other streams is evicted before theirs.
const PRESENT: u64 = 256;
/// Like [`PRESENT`], for streams that hold readahead; and the largest number of streams that are counted.
const HELD_PRESENT: u64 = 2048;
const MAX_COUNTED: usize = 512;
/// Number of reads that reveal a stride.
const STRIDE_READS: u64 = 3;

/// A run that was just detected.
struct Birth {
    class: RunKind,
    stride: Option<i64>,
    /// Where its next read is expected; for a stride, the start of its latest read.
    pos: u64,
    /// Bytes read in this run so far.
    run: u64,
}

impl Birth {
    fn run(class: RunKind, pos: u64, run: u64) -> Birth {
        let stride = None;
        Birth {
            class,
            stride,
            pos,
            run,
        }
    }

    /// The stride whose latest read is from `start` to `end`.
    fn stride(step: i64, (start, end): (u64, u64)) -> Birth {
        let run = STRIDE_READS * (end - start);
        Birth {
            stride: Some(step),
            ..Birth::run(RunKind::Elsewhere, start, run)
        }
    }
}

/// The state of `auto` for one source.
#[derive(Default)]
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
    /// The latest miss: file, start and time. A read that misses in several places counts once.
    last: Option<(FileId, u64, Nanos)>,
    /// The two open descriptions that most recently missed outside all streams, with the decision counter at that time.
    lone: [Option<(OpenId, u64)>; 2],
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
            stream.advance(start, end);
            self.go_on(ask, at, Why::NextWindow, answer);
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
        let file = self.file(ask);
        match advice {
            Advice::Random => file.off = true,
            Advice::Normal | Advice::Sequential => file.off = false,
            Advice::WillNeed => {
                answer.why = Some(Why::Asked);
                // A hint for more than half of the cache would evict its own first bytes.
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
        let closed = self.files.remove(&file.0).unwrap_or_default();
        // If the file had streams, they count how far it was read.
        self.give_up(file, closed.all.is_empty());
        let streams = closed.all.iter();
        streams.for_each(|stream| self.ends(stream, closed.size));
        self.regions_end(closed.regions);
    }
}

impl Auto {
    fn new(max_overfetch: u64) -> Auto {
        Auto {
            credit: Credit::new(max_overfetch),
            ..Auto::default()
        }
    }

    fn file(&mut self, ask: &Ask<'_>) -> &mut Streams {
        self.files.entry(ask.file.0).or_default()
    }

    /// Records the use of readahead, by the reader of its stream or, after that stream has ended, by another reader.
    fn used(&mut self, file: FileId, at: u64, bytes: u64) {
        if self.used_by_region(file.0, at, bytes) {
            return;
        }
        let streams = self.files.get_mut(&file.0);
        let streams = streams.map_or(&mut [][..], |file| &mut file.all[..]);
        let held = streams.iter().position(|stream| stream.holds(at));
        let passed = || streams.iter().position(|stream| stream.is_behind(at));
        match held.or_else(passed) {
            Some(n) => {
                let stream = &mut streams[n];
                if at >= stream.pos || stream.stride.is_some() {
                    self.credit.read(&mut stream.held, bytes);
                }
                stream.touched += bytes;
                stream.steps.note(at, bytes);
            }
            None => self.used_by_walk(file, bytes),
        }
    }

    /// Handles a read or page fault whose bytes are neither cached nor in flight.
    fn missed(&mut self, ask: &Ask<'_>, is_mapped: bool, answer: &mut Answer) {
        self.credit.begin_answer();
        self.miss(ask, is_mapped, answer);
        self.follow(ask, answer);
    }

    fn miss(&mut self, ask: &Ask<'_>, is_mapped: bool, answer: &mut Answer) {
        let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
        let file = self.file(ask);
        file.size = ask.file_size;
        if ask.random || file.off {
            answer.why = Some(Why::HintRandom);
            return;
        }
        let this = (ask.file, start, ask.now);
        if start >= end || self.last.replace(this) == Some(this) {
            return;
        }
        self.clock += 1;
        // Check no more bytes than the cache can hold.
        let most = end.min(start.saturating_add(ask.source.room));
        let missing = ask.probe.missing(ByteRange::between(start, most));
        self.credit.missed(missing.saturating_add(end - most));
        if let Some(idle) = self.file(ask).take_idle() {
            self.ends(&idle, ask.file_size);
        }
        self.missed_in_region(ask.file.0, start, end);
        // For a page fault, the pages near it are better evidence than a stream. For a read, they are used only if no stream continues.
        if is_mapped && self.read_region(ask, (start, end), is_mapped, answer) {
            return;
        }
        let gap = distance::measured(&ask.source).max((end - start).saturating_mul(4));
        let file = self.file(ask);
        if let Some(at) = file.find((start, end - start), gap)
            && !file.all[at].is_past(end)
        {
            return self.missed_by_stream(ask, at, (start, end), answer);
        }
        // A read that ends before a stream's position does not change that stream, and may start another one.
        self.births += 1;
        if self.begin_stepping(ask, (start, end), answer)
            || !is_mapped && self.read_region(ask, (start, end), is_mapped, answer)
        {
            return;
        }
        let careful = self.are_runs_rarer(RARER);
        let file = self.file(ask);
        file.misses += 1;
        let birth = if start == 0 {
            file.candidates.is_lone(start, end);
            Some(Birth::run(RunKind::Start, end, end))
        } else if !careful && ask.probe.is_cached(start - 1) {
            file.candidates.went_on(start, end, is_mapped);
            Some(Birth::run(RunKind::Next, end, end - start))
        } else {
            file.candidates.look(start, end, careful)
        };
        let Some(birth) = birth else {
            answer.why = answer.why.or(Some(Why::NoHistory));
            return self.missed_alone(ask.open);
        };
        let may_have_turns = birth.class != RunKind::Start && birth.stride.is_none();
        self.begin(ask, birth, (0, 0), answer);
        if may_have_turns {
            self.begin_in_turn(ask, end - start, answer);
        }
    }

    /// Records a miss that continues nothing.
    fn missed_alone(&mut self, open: OpenId) {
        if self.lone[0].is_some_and(|(other, _)| other != open) {
            self.lone[1] = self.lone[0];
        }
        self.lone[0] = Some((open, self.clock));
    }

    /// Starts a strided stream if reads within a stream's readahead reveal a stride. That stream ends then. Returns whether a strided
    /// stream was started.
    fn begin_stepping(
        &mut self,
        ask: &Ask<'_>,
        (start, end): (u64, u64),
        answer: &mut Answer,
    ) -> bool {
        // Concurrent reads may come from threads that take pieces of the file in turns.
        let alone = ask.source.reads == 1;
        let file = self.file(ask);
        let Some((at, step)) = file.stepping(start).filter(|_| alone) else {
            return false;
        };
        let over = file.all.swap_remove(at);
        self.ends(&over, ask.file_size);
        self.begin(ask, Birth::stride(step, (start, end)), (0, 0), answer);
        true
    }

    /// Handles a miss that continues a stream: the read is at the end of the stream's readahead, or the readahead was evicted.
    fn missed_by_stream(
        &mut self,
        ask: &Ask<'_>,
        at: usize,
        (start, end): (u64, u64),
        answer: &mut Answer,
    ) {
        let file = self.file(ask);
        file.misses += 1;
        let stream = &mut file.all[at];
        let inside = match stream.stride {
            None => start < stream.end,
            Some(stride) if stride > 0 => start <= stream.end,
            Some(_) => start >= stream.end,
        };
        if inside && stream.ahead() > 0 {
            // The readahead was evicted before use, or refused because there was no room.
            stream.end = end;
            let lost = core::mem::take(&mut stream.held);
            stream.advance(start, end);
            self.credit.change(lost, 0);
            let readers = self.active();
            self.effort
                .thrashed(self.clock, readers.are_many(&ask.source), &ask.source);
            return self.go_on(ask, at, Why::Thrashed, answer);
        }
        stream.late = true;
        stream.advance(start, end);
        self.go_on(ask, at, Why::WindowEnd, answer);
    }

    /// Starts a stream for a new run, of which `held` bytes up to the file offset `to` are already read ahead.
    fn begin(&mut self, ask: &Ask<'_>, birth: Birth, (to, held): (u64, u64), answer: &mut Answer) {
        let Birth {
            class,
            stride,
            pos,
            run,
        } = birth;
        let end = ask.request.end().min(ask.file_size);
        let len = end.saturating_sub(ask.request.start()).max(1);
        self.runs += u64::from(class == RunKind::Elsewhere);
        self.survival.grew(class, None, survival::octave(run));
        let mut stream = Stream::new(class, stride, pos, run, len);
        (stream.end, stream.held) = (stream.end.max(to), held);
        let file = self.file(ask);
        if stride.is_none() {
            // If the run starts inside the readahead of another stream, it takes over the rest of that readahead.
            let covers = |s: &&mut Stream| s.stride.is_none() && s.pos <= pos && pos < s.end;
            for other in file.all.iter_mut().filter(covers) {
                stream.end = stream.end.max(other.end);
                other.end = pos;
                other.touched = other.touched.min(other.ahead());
                let held = other.held.min(other.ahead());
                stream.held += other.held - held;
                other.held = held;
            }
        }
        if let Some((end, held)) = self.take_over(ask.file, pos) {
            (stream.end, stream.held) = (stream.end.max(end), stream.held + held);
        }
        let (at, gone) = self.file(ask).add(stream);
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

    /// Whether, after `births` misses outside all streams, less than one in `part` became a run.
    fn are_runs_rarer(&self, (births, part): (u64, u64)) -> bool {
        self.births >= births && self.runs * part < self.births
    }

    /// Whether another reader reads at random: its reads wait behind readahead that is in flight.
    fn disturbs(&self, open: OpenId) -> bool {
        let mut lone = self.lone.iter().flatten();
        lone.any(|(other, clock)| *other != open && clock + ACTIVE > self.clock)
    }

    /// Counts the streams that continued recently, or the walks from file to file: those that share the link, and those that share the
    /// room for readahead.
    fn active(&self) -> Readers {
        let (mut link, mut room, mut lively) = (0, 0, 0);
        // A stream that is far enough ahead needs few decisions, but still occupies its part of the room.
        let present = |age: u64, held: u64| age < PRESENT || (held > 0 && age < HELD_PRESENT);
        let all = self
            .files
            .values()
            .flat_map(|file| &file.all)
            .map(|s| (self.clock - s.clock, s.held));
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

    /// The values that `auto` uses now, for reports: those of the active stream with the largest distance.
    fn view(&self, source: &SourceView) -> Tuning {
        let active = self.active();
        let all = self.files.values().flat_map(|file| &file.all);
        let farthest = all
            .filter(|s| s.clock + ACTIVE > self.clock)
            .max_by_key(|s| s.distance);
        let credit_bytes = self.credit.available(source);
        let (len, run) = farthest.map_or((1, 0), |s| (s.len, s.run));
        let max_distance_bytes = distance::most(source, (len, run), active, &self.effort);
        let distance_bytes = farthest.map_or(0, |s| s.distance);
        let (runs, runs_went_on) = self.survival.over;
        Tuning {
            latency_ns: source.latency_ns,
            rate: distance::known_rate(source),
            distance_bytes,
            max_distance_bytes,
            request_bytes: distance::request(distance_bytes, active.link, source),
            streams: active.link,
            wasted_bytes: self.credit.wasted(source),
            credit_bytes,
            cache_share: self.effort.share(),
            runs: runs.into(),
            runs_went_on: runs_went_on.into(),
            limit: farthest.map_or(Limit::Idle, |stream| {
                limit(stream, source, max_distance_bytes, credit_bytes)
            }),
        }
    }

    /// Accounts for a stream that is over. If it reached the end of its file, its run does not count as ended.
    fn ends(&mut self, stream: &Stream, file_size: u64) {
        if stream.end < file_size && stream.pos < file_size {
            self.survival.ended(stream.class, stream.octave);
        }
        self.survival.is_over(stream.hit);
        self.credit.change(stream.held, 0);
    }
}

/// What limits the readahead of a stream, whose distance is at most `most`.
fn limit(stream: &Stream, source: &SourceView, most: u64, credit_bytes: u64) -> Limit {
    // Less than the distance is normal: the rest is read ahead at the next mark.
    let falls_short = stream.ahead() < stream.distance / 4;
    if credit_bytes == 0 && falls_short {
        Limit::Credit
    } else if stream.distance >= most {
        if most < distance::product(source) {
            Limit::Cache
        } else {
            Limit::Source
        }
    } else if falls_short {
        Limit::Evidence
    } else {
        Limit::Reader
    }
}

/// By default, one byte may be wasted for each byte that is demanded: see `credit.rs`.
const MAX_OVERFETCH: Param = Param {
    key: "max-overfetch",
    unit: Unit::Ratio,
    default: "2",
    range: (1000, 100_000),
    help: "maximum bytes fetched for each byte demanded; 1 is off",
};

/// `auto`: readahead that sets its own parameters from what it measures.
pub static INFO: Info = Info {
    name: "auto",
    summary: "measures the source and its readers, and adjusts how far it reads ahead; limits unused bytes",
    origin: "foreread, 2026: PostgreSQL 19, ZFS, BBR, STEP and others combined; see docs/policies.md",
    scope: Scope::Source,
    page_bytes: None,
    params: &[MAX_OVERFETCH],
    build: |values| Box::new(Auto::new(values[0])),
};
