//! The windows of a stream that went on: how far it may be ahead now, and what is missing up to there.
//!
//! ```text
//!   distance   doubles when a read waited for readahead; at least what is worth it (`survival.rs`); at most distance::most
//!   safe       used / 8 + run / 64: a stream that has proved itself needs no credit for that
//!   ahead      the distance, but no more than what is worth it or safe, than half of the cache for all streams, and than
//!              safe + free credit / expected waste of a byte; a run that began elsewhere than at the start of its file: a quarter of it
//!   beside a reader at random   no more than rate x latency, in two requests: each waits behind at most one latency of readahead
//! ```
//! Behind the last mark nothing asks again. Where the distance has fallen below what is ahead there, half of it more goes out.
//!
//! What idle streams hold leaves the cache before anything else, so that it takes none of the half of the cache, as far as there is credit for it. A
//! stride is ahead by three times what it has run up to 1 MiB, and by as much as it has run beyond that.
//!
//! What is missing goes out as several windows with a mark at the start of each, so that the stream is asked about again when the
//! first of them is reached. A run that is short beside what is missing gets a first window of an eighth: its distance
//! is about to grow. With many readers it is one window, and its mark is where the lead begins (`distance.rs`). Windows end at multiples
//! of the length of a request, rounded down to a power of two, so that requests lie within the units of the storage and of the buffers.
//!
//! Example: a run of 256 KiB with a distance of 8 MiB and nothing ahead. Windows of 1 MiB, 4 MiB and 3 MiB. The read that reaches
//! the first mark comes before that window: the distance doubles, and 8 MiB more are missing.

use super::{Auto, Holding, Pace, Readers, RunKind, Stream, distance, survival};
use crate::policy::{Answer, Ask, SourceView, Urgency, Why};
use crate::units::Nanos;

/// A stream may be ahead by this part of what it made use of without credit, and by this part of its run. Without it a stream
/// that runs while there is no credit would never earn any. Both are parts of what the inequality of `credit.rs` allows.
pub const PROVEN: u64 = 8;
const UNPROVEN: u64 = 64;
/// Bytes that may be ahead for each byte of free credit, however likely they are to be read.
pub const MAX_LEVERAGE: u64 = 8;
/// The first window of a short run, as a part of what is missing. Each next one may be as many times as long.
const FIRST_PART: u64 = 8;

/// One bet of a run that did not begin at the start of its file takes at most this part of the free credit. A whole one was spent
/// on the first runs of a boot, and those after it had none.
pub const BET_PART: u64 = 4;

/// How far a stride is read ahead, in what it has run, and up to which length.
const FIRST_STRIDE: u64 = 3;
const MAX_FIRST_STRIDE: u64 = 1 << 20;

/// With more streams than this, one may be slow because its reader waits in another one: a limit took 1.08 times as long for 16 streams in turns.
pub const FEW: u64 = 4;

/// What else reads from the source.
struct Others {
    /// Streams that went on lately.
    active: Readers,
    /// Bytes that this stream has read ahead and not read, and what the credit counts of it.
    unread: u64,
    held: u64,
    /// A reader that no stream serves waits for its own reads: see [`Auto::disturbs`].
    are_disturbed: bool,
}

/// How far a stream may be ahead.
struct Reach {
    ahead: u64,
    /// The same if there were room for it.
    wanted: u64,
    /// Behind its last mark nothing asks again, and what is missing is little.
    is_last: bool,
    /// Bytes that need no credit.
    safe: u64,
    /// Part of the others that is expected to be wasted, in 1/65536.
    waste: u64,
    /// Why not even the next read is worth reading ahead, if it is not.
    short: Why,
}

impl Auto {
    /// The stream has advanced: its distance is set and its readahead topped up.
    pub(super) fn go_on(&mut self, ask: &Ask<'_>, at: usize, why: Why, answer: &mut Answer) {
        let at = self.join(ask, at);
        let before = answer.windows.len();
        let (active, clock) = (self.active(), self.clock);
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        let mut stream = file.all[at].clone();
        (stream.seen, stream.clock) = (file.misses, clock);
        if stream.stride.is_none() && matches!(why, Why::WindowEnd | Why::Thrashed) {
            // A refusal, an eviction or a joined stream leaves a hole: what is ahead ends there.
            let look = stream.ahead().min(ask.source.room);
            let hole = ask.probe.next_hole(stream.pos, look);
            stream.end = hole.map_or(stream.end, |hole| hole.max(stream.pos));
        }
        let octave = survival::octave(stream.run);
        if octave > stream.octave {
            self.survival
                .grew(stream.class, Some(stream.octave), octave);
            stream.octave = octave;
        }
        let had = core::mem::take(&mut stream.holding);
        self.credit.change(
            had,
            Holding {
                held: had.held,
                bet: 0,
            },
        );
        let unread = had.held.min(stream.ahead());
        self.effort.calm(clock);
        let others = Others {
            active,
            unread,
            held: had.held,
            are_disturbed: self.disturbs(ask.open),
        };
        let reach = self.reach(&mut stream, (&ask.source, ask.now), &others);
        answer.max_fetch = distance::request(reach.ahead, active.link, &ask.source);
        if others.are_disturbed {
            answer.max_fetch = answer.max_fetch.min((reach.ahead / 2).max(stream.len));
        }
        match stream.stride {
            None => {
                // A lead beyond what is wanted would leave windows of one page.
                let most = stream.distance.min(reach.wanted);
                let lead = distance::lead(most, stream.len, active, &ask.source);
                if lead.is_some() {
                    answer.max_fetch = ask.source.max_fetch;
                }
                top_up(&mut stream, &reach, lead, ask, answer);
            }
            Some(stride) => step_up(&mut stream, stride, reach.ahead, ask.file_size, answer),
        }
        let planned: u64 = answer.windows[before..]
            .iter()
            .map(|window| ask.probe.missing(window.range))
            .sum();
        let bet = stream
            .ahead()
            .saturating_sub(reach.safe)
            .saturating_mul(reach.waste)
            / survival::ONE;
        stream.holding = Holding {
            held: unread + planned,
            bet,
        };
        self.credit.change(
            Holding {
                held: had.held,
                bet: 0,
            },
            stream.holding,
        );
        answer.why = Some(if answer.windows.len() > before {
            why
        } else if let Some(why) = answer.why.filter(|why| why.is_on()) {
            why
        } else if stream.stride.is_none_or(|s| s > 0) && stream.end >= ask.file_size {
            Why::EndOfFile
        } else if stream.ahead() < stream.len {
            reach.short
        } else {
            Why::NotYet
        });
        if let Some(file) = self.files.get_mut(&ask.file.0) {
            file.all[at] = stream;
        }
    }

    /// Sets the distance of a stream, and says how much of that it may be ahead now.
    fn reach(
        &mut self,
        stream: &mut Stream,
        (source, now): (&SourceView, Nanos),
        others: &Others,
    ) -> Reach {
        let price = self.credit.price(source);
        let mut most = distance::most(
            source,
            (stream.len, stream.run),
            others.active,
            &self.effort,
        );
        if others.are_disturbed {
            most = most.min(price.product.max(stream.len));
        }
        let threshold = price.threshold(stream.len);
        let mut worth = self.survival.ahead(stream.class, stream.run, threshold);
        if stream.stride.is_some() {
            // A program that reads 8 MB backwards and no more would waste 50 MB of a far store.
            worth = worth.min(
                stream
                    .run
                    .max((FIRST_STRIDE * stream.run).min(MAX_FIRST_STRIDE)),
            );
        }
        let late = core::mem::take(&mut stream.late);
        // A reader that waited because it was taken for a slow one needs no more than its distance.
        let was_slow = stream.pace.is_slow();
        if stream.is_past_hold() && late && !was_slow && stream.distance > 0 {
            let is_alone = others.active.link <= 1;
            let is_full = is_alone
                && stream.stride.is_none()
                && distance::is_filled_by_one(source, stream.distance);
            if stream.distance >= most && !is_full {
                self.effort.late(
                    source.rate,
                    self.clock,
                    others.active.link,
                    is_alone && stream.used >= most,
                );
            }
            stream.distance *= 2;
            stream.hold = stream.end;
        }
        let floor = match stream.stride {
            // Many readers keep the source busy without it.
            None if !others.active.are_many(source) => self.credit.floor(stream.run),
            _ => 0,
        };
        stream.distance = stream.distance.max(worth).max(floor).min(most);
        let enough = enough(stream, others.active.link, (source, now), late);
        let safe = (stream.used / PROVEN + stream.run / UNPROVEN).max(floor);
        let room = self.room(source, others, price.free);
        let fits = room >= stream.len;
        let left = match stream.stride {
            None => self.credit.left_of_run(stream.run, source),
            Some(_) => price.left,
        };
        let room = room.min((others.unread + left).max(self.credit.beyond(stream.run, floor)));
        let wanted = stream.distance.min(worth.max(safe)).min(enough);
        let is_last = stream.stride.is_none() && !stream.has_mark_ahead();
        let is_cut = is_last && stream.ahead() >= wanted;
        let wanted = if is_cut {
            stream.ahead() + wanted / 2
        } else {
            wanted
        };
        let ahead = wanted.min(room);
        let waste = self
            .survival
            .waste(stream.class, stream.run, ahead)
            .max(survival::ONE / MAX_LEVERAGE);
        let part = if stream.class == RunKind::Start {
            1
        } else {
            BET_PART
        };
        let free = (price.free / part).saturating_mul(survival::ONE) / waste;
        let paid = safe.saturating_add(free);
        let short = if wanted < stream.len {
            Why::RunsEnd
        } else if !fits {
            Why::NoRoom
        } else if ahead.min(paid) < stream.len {
            Why::NoCredit
        } else {
            Why::NotYet
        };
        Reach {
            short,
            ahead: ahead.min(paid),
            wanted: wanted.min(paid),
            is_last: is_last && (is_cut || stream.pace.is_slow()),
            safe,
            waste,
        }
    }

    /// Bytes of the cache that a stream may be ahead, where `free` bytes may be expected to be wasted.
    fn room(&self, source: &SourceView, others: &Others, free: u64) -> u64 {
        if others.active.are_many(source) {
            // What has left the cache unread stays held until its stream goes on.
            let unread = source.unread_bytes.saturating_sub(others.unread);
            let held = unread.max(self.credit.held().saturating_sub(others.held));
            distance::room(source, &self.effort).saturating_sub(held)
        } else {
            // What idle streams hold leaves the cache first. It takes room only as far as the credit does not cover it.
            let idle = self.credit.held().saturating_sub(others.active.held);
            let idle = idle.saturating_sub(free);
            others.unread
                + (source.room / 2)
                    .saturating_sub(source.unread_bytes.min(others.active.held + idle))
        }
    }
}

/// How far ahead is enough for the pace of its reader. Behind the last mark nothing asks again: then it is at least as much more.
/// A pace that does not count is forgotten, so that it neither limits nor keeps the distance of a reader that waits from growing.
fn enough(
    stream: &mut Stream,
    readers: u64,
    (source, now): (&SourceView, Nanos),
    late: bool,
) -> u64 {
    if stream.stride.is_some() || readers > FEW {
        stream.pace = Pace::default();
        return u64::MAX;
    }
    let (run, distance) = (
        (stream.run, now.0),
        (stream.distance, distance::least(stream.len)),
    );
    let enough = stream.pace.at(run, late, distance, source);
    if stream.has_mark_ahead() {
        enough
    } else {
        enough.max(stream.ahead().saturating_add(enough / 2))
    }
}

/// Reads ahead of a stream in order when half of a window is missing.
fn top_up(
    stream: &mut Stream,
    reach: &Reach,
    lead: Option<u64>,
    ask: &Ask<'_>,
    answer: &mut Answer,
) {
    let (ahead, file_size, page) = (reach.ahead, ask.file_size, ask.probe.page_bytes());
    let eighth = (ahead / 8)
        .checked_next_multiple_of(answer.max_fetch)
        .unwrap_or(ahead);
    let whole = lead
        .map_or(eighth.min(ahead / 2), |lead| {
            reach.wanted.saturating_sub(lead)
        })
        .max(1)
        .next_multiple_of(page);
    let mut at = stream.end.next_multiple_of(page);
    let unit = 1 << answer.max_fetch.max(page).ilog2();
    let to = stream
        .pos
        .saturating_add(ahead)
        .next_multiple_of(page)
        .min(file_size);
    let until = if to < file_size {
        aligned(at, to, unit)
    } else {
        to
    };
    // With many readers the part up to a multiple is little at almost any time.
    let (missing, whole_missing) = (until.saturating_sub(at), to.saturating_sub(at));
    let is_little = !reach.is_last
        && 2 * if lead.is_some() {
            whole_missing
        } else {
            missing
        } < whole
        && to < file_size;
    // A part of a read saves no wait: the rest of it is waited for.
    let is_sliver = until < file_size && until < stream.pos.saturating_add(stream.len);
    if missing == 0 || is_sliver || (is_little && (at > stream.pos || lead.is_some())) {
        return;
    }
    let to = until;
    let is_short = stream.run < missing;
    let mut window = if is_short {
        (missing / FIRST_PART).max(page).next_multiple_of(page)
    } else {
        whole
    };
    while at < to {
        // A last part that is less than half of a window goes with the one before it.
        let len = if to - at < window + window / 2 {
            to - at
        } else {
            aligned(at, at + window, unit) - at
        };
        // The mark is where the next window has to go out: early on, or with the lead that is left.
        let early = lead.map_or(len, |lead| lead.next_multiple_of(page).min(len));
        stream.last_mark = at + len - early;
        answer.urgency = Some(Urgency {
            stream: stream.id,
            away: at - stream.pos,
        });
        answer.read(at, len, Some(stream.last_mark));
        at += len;
        window = (FIRST_PART * window).min(whole);
    }
    stream.end = to;
}

/// The last multiple of a request's length up to `end`, if one is behind `at`. Requests between such multiples do not cross the borders of a
/// storage's own units (objects of RBD, stripes, buffers), which are powers of two.
fn aligned(at: u64, end: u64, unit: u64) -> u64 {
    let down = end / unit * unit;
    if down > at { down } else { end }
}

/// Reads ahead the next blocks of a stride, with a mark each.
fn step_up(stream: &mut Stream, stride: i64, ahead: u64, file_size: u64, answer: &mut Answer) {
    let blocks = ahead / stream.len;
    let planned = stream.end.abs_diff(stream.pos) / stride.unsigned_abs().max(1);
    if blocks == 0 || planned + blocks / 8 >= blocks.max(2) {
        return;
    }
    for _ in planned..blocks {
        let Some(next) = stream
            .end
            .checked_add_signed(stride)
            .filter(|next| *next < file_size)
        else {
            return;
        };
        answer.urgency = Some(Urgency {
            stream: stream.id,
            away: stream.ahead(),
        });
        answer.read(next, stream.len, Some(next));
        stream.end = next;
    }
}

#[cfg(test)]
mod tests;
