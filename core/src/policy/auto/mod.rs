//! `auto`: readahead that sets itself from what it measures. One state serves all files of a source.
//!
//! ```text
//!   miss ──► streams: does it go on? ──► gate: how far is it worth it? ──► credit: may it be wasted? ──► window
//!   mark ──► the stream goes on       ──► distance: was it late? then twice as far ──► top up
//! ```
//! A window is several chunks with a mark at the start of each, so that a stream is asked about when an eighth of its distance
//! has been read. A read of cached bytes asks nothing.
//!
//! Example: a file of 128 MiB in a store of 15 ms, read in order by 128 KiB. The first read is at the start of its file: nothing
//! is known, so as much again is read ahead. The second reaches the mark; latency is known now, so 4 MiB are worth it. The
//! mark of each chunk that is still in flight doubles the distance, up to four times rate x latency: 64 MiB.
//!
//! | file | holds |
//! |---|---|
//! | `streams.rs` | which read goes on with which run |
//! | `gate.rs` | what runs of a length have done before |
//! | `credit.rs` | what may be wasted |
//! | `distance.rs` | how far ahead, in which requests |
//!
//! It does not follow a program from file to file, and it keeps nothing between processes.
//! Source: the project's own design; each file names the sources of its part.

mod credit;
mod distance;
mod gate;
mod streams;

use crate::event::{Advice, Mapping};
use crate::policy::{Ask, Info, Outcome, Plan, Policy, Scope, Wants, Why};
use crate::units::FileId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use credit::Credit;
use distance::Effort;
use gate::{Class, Survival};
use streams::{Found, Stream, Streams};

/// A stream may be ahead by this part of what it made use of without credit.
const PROVEN: u64 = 8;
/// Runs are few among the births: then a run needs one read more.
const RARE: u64 = 16;
/// Births before that is judged.
const BIRTHS: u64 = 32;
/// A stream that went on within this number of decisions is active.
const ACTIVE: u64 = 64;
/// Blocks of a stride that are read ahead at first.
const FIRST_BLOCKS: u64 = 8;

/// All of a source.
struct Auto {
    files: BTreeMap<u32, Streams>,
    survival: Survival,
    credit: Credit,
    effort: Effort,
    clock: u64,
    births: u64,
    runs: u64,
    /// File, start and time of the latest miss: a read that misses in several places is one.
    last: (u32, u64, u64),
}

impl Policy for Auto {
    fn wants(&self) -> Wants {
        Wants { outcome: true, meter: true, ..Wants::default() }
    }

    fn on_miss(&mut self, ask: &Ask<'_>, plan: &mut Plan) {
        let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
        self.miss(ask, start, end, plan);
    }

    fn on_mark(&mut self, ask: &Ask<'_>, plan: &mut Plan) {
        self.clock += 1;
        let Some(file) = self.files.get_mut(&ask.file.0) else { return };
        let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
        let Some(at) = file.marked(ask.at, start) else { return };
        let stream = &mut file.all[at];
        stream.late |= !ask.probe.is_present(ask.at);
        stream.advance(start, end);
        self.go_on(ask, at, Why::NextWindow, plan);
    }

    fn on_fault(&mut self, ask: &Ask<'_>, _map: &Mapping, plan: &mut Plan) {
        self.on_miss(ask, plan);
    }

    fn on_fault_hit(&mut self, ask: &Ask<'_>, _map: &Mapping, marked: bool, plan: &mut Plan) {
        if marked {
            self.on_mark(ask, plan);
        }
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, plan: &mut Plan) {
        let file = self.files.entry(ask.file.0).or_default();
        match advice {
            Advice::Random => file.off = true,
            Advice::Normal | Advice::Sequential => file.off = false,
            Advice::WillNeed => {
                plan.why = Some(Why::Asked);
                plan.read(ask.request.start(), ask.request.len(), None);
            }
            Advice::DontNeed => {}
        }
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Used { bytes } => self.credit.used(*bytes),
            Outcome::Late { file, at, bytes } => {
                self.credit.used(*bytes);
                if let Some(file) = self.files.get_mut(&file.0)
                    && let Some(stream) = file.find(*at, 0)
                {
                    file.all[stream].late = true;
                }
            }
            Outcome::Unused { bytes } => self.credit.unused(*bytes),
            _ => {}
        }
    }

    fn on_file_closed(&mut self, file: FileId) {
        if let Some(Streams { all, size, .. }) = self.files.remove(&file.0) {
            all.into_iter().for_each(|stream| self.ends(stream, size));
        }
    }
}

impl Auto {
    fn new() -> Auto {
        Auto {
            files: BTreeMap::new(),
            survival: Survival::new(),
            credit: Credit::default(),
            effort: Effort::default(),
            clock: 0,
            births: 0,
            runs: 0,
            last: (u32::MAX, 0, 0),
        }
    }

    /// Bytes of a read are neither here nor in flight.
    fn miss(&mut self, ask: &Ask<'_>, start: u64, end: u64, plan: &mut Plan) {
        let file = self.files.entry(ask.file.0).or_default();
        file.size = ask.file_size;
        if ask.random || file.off {
            plan.why = Some(Why::HintRandom);
            return;
        }
        let this = (ask.file.0, start, ask.now.0);
        if start >= end || core::mem::replace(&mut self.last, this) == this {
            return;
        }
        self.clock += 1;
        if let Some(idle) = file.take_idle() {
            self.ends(idle, ask.file_size);
        }
        let Some(file) = self.files.get_mut(&ask.file.0) else { return };
        let gap = distance::measured(&ask.source).max(4 * (end - start));
        if let Some(at) = file.find(start, gap)
            && !file.all[at].is_past(end)
        {
            return self.missed_by_stream(ask, at, (start, end), plan);
        }
        // A read behind a stream changes nothing for that stream, and may be the beginning of another one.
        self.births += 1;
        if start == 0 {
            file.misses += 1;
            return self.begin(ask, Class::Start, None, (start, end), end, plan);
        }
        let careful = self.births >= BIRTHS && self.runs * RARE < self.births;
        match file.look(start, end, careful) {
            Found::Nothing => plan.why = Some(Why::NoHistory),
            Found::Run { high, run } => self.begin(ask, Class::Elsewhere, None, (high, high), run, plan),
            Found::Stride(stride) => {
                self.begin(ask, Class::Elsewhere, Some(stride), (start, end), 4 * (end - start), plan);
            }
        }
    }

    /// A read that goes on with a stream found nothing: it is at the stream's end, or what was read ahead has gone.
    fn missed_by_stream(&mut self, ask: &Ask<'_>, at: usize, (start, end): (u64, u64), plan: &mut Plan) {
        let Some(file) = self.files.get_mut(&ask.file.0) else { return };
        file.misses += 1;
        let stream = &mut file.all[at];
        let inside = match stream.stride {
            None => start < stream.end,
            Some(stride) => {
                if stride > 0 {
                    start <= stream.end
                } else {
                    start >= stream.end
                }
            }
        };
        if inside && stream.ahead() > 0 {
            // Evicted before use, or refused because there was no room.
            stream.distance = (stream.distance / 2).max(end - start);
            let had = stream.ahead();
            stream.end = end;
            self.credit.bet(core::mem::take(&mut stream.bet), 0);
            self.credit.leave(had);
            stream.advance(start, end);
            return self.go_on(ask, at, Why::Thrashed, plan);
        }
        stream.late = true;
        stream.advance(start, end);
        self.go_on(ask, at, Why::WindowEnd, plan);
    }

    /// A run begins.
    fn begin(
        &mut self,
        ask: &Ask<'_>,
        class: Class,
        stride: Option<i64>,
        (start, end): (u64, u64),
        run: u64,
        plan: &mut Plan,
    ) {
        let len = ask.request.end().min(ask.file_size).saturating_sub(ask.request.start()).max(1);
        self.runs += u64::from(class == Class::Elsewhere);
        let octave = gate::octave(run);
        self.survival.grew(class, None, octave);
        let pos = if stride.is_some() { start } else { end };
        let Some(file) = self.files.get_mut(&ask.file.0) else { return };
        let (seen, clock) = (file.misses, self.clock);
        let distance = if stride.is_some() { FIRST_BLOCKS * len } else { 0 };
        let (hit, late, hold, bet, used) = (false, false, 0, 0, 0);
        let stream = Stream {
            class,
            stride,
            len,
            pos,
            end: pos,
            run,
            used,
            distance,
            hold,
            bet,
            octave,
            late,
            hit,
            seen,
            clock,
        };
        let (at, gone) = file.add(stream);
        if let Some(gone) = gone {
            self.ends(gone, ask.file_size);
        }
        let why = match (class, stride) {
            (Class::Start, _) => Why::FileStart,
            (_, Some(_)) => Why::Triggered,
            (_, None) => Why::Sequential,
        };
        self.go_on(ask, at, why, plan);
    }

    /// The stream has advanced: its distance is set and its readahead topped up.
    fn go_on(&mut self, ask: &Ask<'_>, at: usize, why: Why, plan: &mut Plan) {
        let active = self.active();
        let clock = self.clock;
        let Some(file) = self.files.get_mut(&ask.file.0) else { return };
        let misses = file.misses;
        let stream = &mut file.all[at];
        (stream.seen, stream.clock) = (misses, clock);
        let octave = gate::octave(stream.run);
        if octave > stream.octave {
            self.survival.grew(stream.class, Some(stream.octave), octave);
            stream.octave = octave;
        }
        let most = distance::most(&ask.source, stream.len, active, self.effort.raised());
        let wanted = gate::threshold(stream.len, distance::product(&ask.source));
        let worth = self.survival.ahead(stream.class, stream.run, wanted);
        let forward = stream.stride.is_none_or(|s| s > 0);
        let passed = if forward { stream.pos >= stream.hold } else { stream.pos <= stream.hold };
        if passed || stream.hold == 0 {
            if core::mem::take(&mut stream.late) && stream.distance > 0 {
                if stream.distance >= most {
                    self.effort.late(ask.source.rate, clock, active);
                }
                stream.distance *= 2;
                stream.hold = stream.end;
            }
        } else {
            stream.late = false;
        }
        stream.distance = stream.distance.max(worth.min(most)).min(most);
        // An eighth of what it made use of a stream may always be ahead; more is a bet. What it holds is not asked for again.
        let safe = stream.used / PROVEN;
        let held = core::mem::take(&mut stream.bet);
        self.credit.bet(held, 0);
        let product = distance::product(&ask.source);
        let free = self.credit.available(ask.source.demand_bytes, product, ask.source.room);
        let ahead = stream.distance.min(worth.max(safe)).min(safe + free);
        plan.max_fetch = distance::request(ahead, ask.source.max_fetch);
        match stream.stride {
            None => top_up(stream, ahead, (ask.file_size, ask.probe.page_bytes()), plan),
            Some(stride) => step_up(stream, stride, ahead, ask.file_size, plan),
        }
        let bet = stream.ahead().saturating_sub(safe);
        self.credit.bet(core::mem::replace(&mut stream.bet, bet), bet);
        plan.why = Some(if !plan.windows.is_empty() {
            why
        } else if forward && stream.end >= ask.file_size {
            Why::EndOfFile
        } else {
            Why::NotYet
        });
    }

    /// Streams that went on lately.
    fn active(&self) -> u64 {
        let streams = self.files.values().flat_map(|file| &file.all);
        streams.filter(|s| s.clock + ACTIVE > self.clock).take(256).count() as u64
    }

    /// A stream is over. At the end of its file it did not end, the file did.
    fn ends(&mut self, stream: Stream, file_size: u64) {
        if stream.end < file_size && stream.pos < file_size {
            self.survival.ended(stream.class, stream.octave);
        }
        self.credit.bet(stream.bet, 0);
        self.credit.leave(stream.ahead());
    }
}

/// Reads ahead of a stream in order, in chunks of an eighth of `ahead` or a request with a mark each, when half of a chunk
/// is missing.
fn top_up(stream: &mut Stream, ahead: u64, (file_size, page): (u64, u64), plan: &mut Plan) {
    let eighth = (ahead / 8).checked_next_multiple_of(plan.max_fetch).unwrap_or(ahead);
    let chunk = eighth.min(ahead / 2).max(1).next_multiple_of(page);
    let mut at = stream.end.next_multiple_of(page);
    let to = stream.pos.saturating_add(ahead).next_multiple_of(page).min(file_size);
    let missing = to.saturating_sub(at);
    if missing == 0 || (2 * missing < chunk && at > stream.pos && to < file_size) {
        return;
    }
    while at < to {
        // A last part that is less than half of a chunk goes with the one before it.
        let len = if to - at < chunk + chunk / 2 { to - at } else { chunk };
        plan.read(at, len, Some(at));
        at += len;
    }
    stream.end = to;
}

/// Reads ahead the next blocks of a stride, with a mark each.
fn step_up(stream: &mut Stream, stride: i64, ahead: u64, file_size: u64, plan: &mut Plan) {
    let blocks = (ahead / stream.len).max(1);
    let planned = stream.end.abs_diff(stream.pos) / stride.unsigned_abs().max(1);
    if planned + blocks / 8 >= blocks.max(2) {
        return;
    }
    for _ in planned..blocks {
        let Some(next) = stream.end.checked_add_signed(stride).filter(|next| *next < file_size) else { return };
        plan.read(next, stream.len, Some(next));
        stream.end = next;
    }
}

/// See the head of this file. Not in [`crate::policy::ALL`] yet: the evaluation runs it, no command does.
pub static AUTO: Info = Info {
    name: "auto",
    summary: "sets itself: measures latency, rate, runs and waste, and reads ahead as far as that is worth",
    origin: "foreread, 2026: PostgreSQL 19, ZFS, BBR, STEP and others combined; see docs/policies.md",
    scope: Scope::Source,
    page_bytes: None,
    params: &[],
    build: |_| Box::new(Auto::new()),
};
