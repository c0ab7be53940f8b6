//! Requests the next windows when a stream continues: computes how far readahead may now go beyond the reader, and which bytes up to there
//! are neither cached nor in flight.
//!
//! ```text
//!   distance   doubles if a read waited for readahead; at least what is worth it (`survival.rs`); at most distance::most
//!   floor      what a run may have read ahead without credit (`credit.rs`)
//!   ahead      the distance, but at most what is worth it or the floor, what the credit allows, and half of the cache for all streams
//!   beside a reader at random   at most rate x latency, in two requests: each random read waits for at most one latency of readahead
//! ```
//! When the reader passes the last mark of a stream, the policy must read ahead something, because nothing else calls it again. Even if
//! more bytes are already read ahead than the distance now allows, the policy reads ahead another half of the distance.
//!
//! Readahead of idle streams is evicted before anything else. As far as the credit (`credit.rs`) covers readahead of idle streams, that
//! readahead does not count towards the limit of half of the cache. For strided reads, readahead is three times as long as the run of
//! reads so far, but at most 1 MiB, or as long as the run if that is more. Where runs are rare, two adjacent reads may be chance: a run
//! that did not begin at the start of its file is read ahead by its own length, or by a quarter of rate x latency if that is more.
//!
//! The missing bytes are requested as several windows with a mark at the start of each, so that the policy is called again when the reader
//! reaches the first mark. If the run of reads so far is shorter than the missing bytes, the first window is an eighth of the missing
//! bytes, since the distance is about to grow. With many readers there is only one window; its mark is placed where the next window must
//! be requested (the *lead*, see `distance.rs`). Windows end at multiples of the request length (rounded down to a power of two), so that
//! requests do not cross the units of storage and buffers.
//!
//! Example: a reader has read 256 KiB sequentially, the distance is 8 MiB, and nothing has been read ahead. Then the windows are 1 MiB, 4
//! MiB and 3 MiB. The reader reaches the first mark before that window has arrived: the distance doubles, and 8 MiB more are missing.

use super::{Auto, RARE, Readers, RunKind, Stream, distance, survival};
use crate::policy::{Answer, Ask, SourceView, Urgency, Why};

/// The first window of a short run is the missing bytes divided by this. Each next window may be longer by this factor.
const FIRST_PART: u64 = 8;

/// Where runs are rare, rate x latency divided by this may be read ahead of any run: so many bytes cost little beside a round trip.
const CHEAP: u64 = 4;

/// A stride is read ahead by this multiple of its run, up to this number of bytes.
const FIRST_STRIDE: u64 = 3;
const MAX_FIRST_STRIDE: u64 = 1 << 20;

/// The other readers of the source, and what this stream holds.
struct Others {
    /// Streams that continued recently.
    active: Readers,
    /// Bytes that this stream has read ahead and not used, and how many the credit counts.
    unread: u64,
    held: u64,
    /// Another reader reads at random and waits for its own reads: see [`Auto::disturbs`].
    are_disturbed: bool,
}

/// How far a stream may be ahead.
struct Reach {
    ahead: u64,
    /// How far it would be ahead if there were enough room.
    wanted: u64,
    /// The stream has passed its last mark, so even a small missing part is read ahead now.
    is_last: bool,
    /// The reason, if not even the next read is read ahead.
    short: Why,
}

impl Auto {
    /// Sets the distance of a stream that has advanced, and tops up its readahead.
    pub(super) fn go_on(&mut self, ask: &Ask<'_>, at: usize, why: Why, answer: &mut Answer) {
        let at = self.join(ask, at);
        let before = answer.windows.len();
        let (active, clock) = (self.active(), self.clock);
        let file = self.file(ask);
        let mut stream = file.all[at].clone();
        (stream.seen, stream.clock) = (file.misses, clock);
        if stream.stride.is_none() && matches!(why, Why::WindowEnd | Why::Thrashed) {
            // A refusal, an eviction or an absorbed stream may leave a hole: the readahead ends there.
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
        let had = stream.held;
        let unread = had.min(stream.ahead());
        self.effort.calm(clock);
        let others = Others {
            active,
            unread,
            held: had,
            are_disturbed: self.disturbs(ask.open),
        };
        let reach = self.reach(&mut stream, &ask.source, &others);
        answer.max_fetch = distance::request(reach.ahead, active.link, &ask.source);
        if others.are_disturbed {
            answer.max_fetch = answer.max_fetch.min((reach.ahead / 2).max(stream.len));
        }
        match stream.stride {
            None => {
                // A lead longer than the wanted readahead would leave windows of one page.
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
        stream.held = unread + planned;
        self.credit.change(had, stream.held);
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
        self.file(ask).all[at] = stream;
    }

    /// Sets the distance of a stream. Returns how much of it the stream may be ahead now.
    fn reach(&mut self, stream: &mut Stream, source: &SourceView, others: &Others) -> Reach {
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
        if stream.class != RunKind::Start && self.are_runs_rarer(RARE) {
            worth = worth.min(stream.run.max(price.product / CHEAP));
        }
        if stream.stride.is_some() {
            // Without this limit, a program that reads 8 MB backwards and stops would waste 50 MB of a distant store.
            worth = worth.min(
                stream
                    .run
                    .max((FIRST_STRIDE * stream.run).min(MAX_FIRST_STRIDE)),
            );
        }
        let late = core::mem::take(&mut stream.late);
        if stream.is_past_hold() && late && stream.distance > 0 {
            let is_alone = others.active.link <= 1;
            if stream.distance >= most {
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
            // Many readers keep the source busy without a floor.
            None if !others.active.are_many(source) => self.credit.floor(stream.run),
            _ => 0,
        };
        stream.distance = stream.distance.max(worth).max(floor).min(most);
        let room = self.room(source, others, price.free);
        let fits = room >= stream.len;
        let left = match stream.stride {
            None => self.credit.left_of_run(stream.run, source),
            Some(_) => price.left,
        };
        let room =
            room.min((others.unread + left).max(self.credit.beyond(stream.run, stream.len, floor)));
        let wanted = stream.distance.min(worth.max(floor));
        let is_last = stream.stride.is_none() && !stream.has_mark_ahead();
        let is_cut = is_last && stream.ahead() >= wanted;
        let wanted = if is_cut {
            stream.ahead() + wanted / 2
        } else {
            wanted
        };
        let ahead = wanted.min(room);
        let short = if wanted < stream.len {
            Why::RunsEnd
        } else if !fits {
            Why::NoRoom
        } else if ahead < stream.len {
            Why::NoCredit
        } else {
            Why::NotYet
        };
        Reach {
            short,
            ahead,
            wanted,
            is_last: is_cut,
        }
    }

    /// Bytes that a stream may be ahead because of the cache size, if the free credit is `free` bytes.
    fn room(&self, source: &SourceView, others: &Others, free: u64) -> u64 {
        if others.active.are_many(source) {
            // Bytes evicted unread stay held until their stream continues.
            let unread = source.unread_bytes.saturating_sub(others.unread);
            let held = unread.max(self.credit.held().saturating_sub(others.held));
            distance::room(source, &self.effort).saturating_sub(held)
        } else {
            // Readahead of idle streams is evicted first. It takes room only as far as the credit does not cover it.
            let idle = self.credit.held().saturating_sub(others.active.held);
            let idle = idle.saturating_sub(free);
            others.unread
                + (source.room / 2)
                    .saturating_sub(source.unread_bytes.min(others.active.held + idle))
        }
    }
}

/// Reads ahead for a sequential stream when half of a window is missing.
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
    // With many readers, the part up to the last aligned offset is nearly always small.
    let (missing, whole_missing) = (until.saturating_sub(at), to.saturating_sub(at));
    let is_little = !reach.is_last
        && 2 * if lead.is_some() {
            whole_missing
        } else {
            missing
        } < whole
        && to < file_size;
    // Reading ahead only a part of the next read saves no wait: the reader waits for the rest.
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
        // A last part of less than half a window is added to the window before it.
        let len = if to - at < window + window / 2 {
            to - at
        } else {
            aligned(at, at + window, unit) - at
        };
        // The mark is where the next window must be requested: at the start of this one, or where only the lead is left.
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

/// The last multiple of a request's length up to `end`, or `end` if none is after `at`. Requests between such multiples do not cross the
/// boundaries of the storage's units (RBD objects, stripes, buffers), which are powers of two.
fn aligned(at: u64, end: u64, unit: u64) -> u64 {
    let down = end / unit * unit;
    if down > at { down } else { end }
}

/// Reads ahead the next blocks of a stride, each with a mark.
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
mod tests {
    use super::*;

    /// Even after 100 MB were wasted, far more than is allowed, a run of 256 KiB is read ahead by 256 KiB.
    #[test]
    fn a_run_is_read_ahead_whatever_was_wasted() {
        let mut auto = Auto::new(2000);
        let source = SourceView {
            latency_ns: 1_000_000,
            room: 32 << 20,
            unused_bytes: 100 << 20,
            ahead_slots: 16,
            ..SourceView::default()
        };
        let others = Others {
            active: Readers {
                link: 1,
                room: 1,
                held: 0,
            },
            unread: 0,
            held: 0,
            are_disturbed: false,
        };
        let run = 256 << 10;
        let mut stream = Stream::new(RunKind::Start, None, run, run, 4096);
        let reach = auto.reach(&mut stream, &source, &others);
        assert_eq!(reach.ahead, run);
    }
}
