//! What an earlier session read next: the same program started again, the same image booted, the next epoch.
//!
//! A *session* is what is read of a source from the start of a machine on. Its first reads are a list of steps, each a block of 64 KiB
//! with a bit for each of its pages, under the file's name, which is the same in every process.
//!
//! ```text
//!   learned   a.0  a.1  b.0  b.7  c.0  c.1  c.2  d.3
//!   now                 ▲ read, or a mark of what was read ahead
//!                            └────────────────┘ go out: up to `trust` bytes that no read has used yet
//! ```
//! *Trust* begins with nothing. A block whose first read was learned adds 4 MiB, and readahead of the list that is used adds its bytes. A
//! block that was not learned halves it, and what goes without a use for longer than it was ahead is taken from it. So a session that is another
//! one costs what was out when it showed. The distance, the room and the bound on waste (`credit.rs`) limit it as they limit streams,
//! which go on beside it, as do regions.
//!
//! Example: `cc` starts twice. Of the second start `ld.so.cache` is read first, as before: 4 MiB of the list go out, `libc` and the
//! compiler's own pages. Each block of these that is read brings as much again, and no read waits for a page that the first start had.
//!
//! Nothing is kept between processes by itself: a driver that has a place for it takes the steps at the end (`Machine::learned`) and sends
//! them as events to the next machine. Files without a name are not remembered.
//!
//! Source: record and replay of a start (REAP, Ustiugov et al., ASPLOS 2021; ureadahead). The growth and the gap are chosen on pairs of the
//! development half of the recordings (decision 0294).

use super::{Auto, Holding, distance};
use crate::event::{BLOCK, FirstRead};
use crate::policy::{Answer, Ask, SourceView, Why};
use crate::units::{ByteRange, FileId};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Steps that are kept of a session and those before it: 4 GiB.
const MAX_STEPS: usize = 1 << 16;
/// Files whose names are known.
const MAX_NAMES: usize = 1 << 20;
/// Steps that are looked at in one answer, and blocks that are read beside those that are out before what was not used is given up.
const LOOK: usize = 256;
const PASSED: u64 = 256;
/// Bytes of a step's page.
const PAGE: u64 = BLOCK / 16;
/// The longest part of the list that is one request.
const MAX_REQUEST: u64 = 1 << 20;
/// What is read through between two steps rather than asked for in two requests, until fetches have come in parts; then a quarter of it.
const MAX_GAP: u64 = 128 << 10;
/// Trust that a block adds which was read as before, and the least: with less nothing goes out.
const GROWTH: u64 = 4 << 20;
const MIN_TRUST: u64 = BLOCK;

type Key = (u64, u32);

/// A step of an earlier session.
struct LearnedStep {
    step: FirstRead,
    /// It was read in this session.
    is_read: bool,
    /// Bytes of it that were read ahead for it and that no read has used.
    unread: u64,
}

/// A step that is out: its place in the list, and the turn at which it is given up.
struct SentStep {
    place: usize,
    due: u64,
}

/// What was noted last: a long read comes in pieces, each with all that is left of it.
#[derive(Clone, Copy)]
struct NotedRead {
    file: FileId,
    start: u64,
    end: u64,
}

/// This session and what is known of those before it.
#[derive(Default)]
pub struct Sessions {
    names: BTreeMap<u32, u64>,
    files: BTreeMap<u64, FileId>,
    steps: Vec<FirstRead>,
    places: BTreeMap<Key, usize>,
    learned: Vec<LearnedStep>,
    learned_places: BTreeMap<Key, usize>,
    trust: u64,
    /// Bytes of the list that are out and unread.
    out: u64,
    sent: VecDeque<SentStep>,
    /// Blocks that were read first.
    turn: u64,
    /// From where the list has gone out, and up to where.
    gone: (usize, usize),
    noted: Option<NotedRead>,
}

fn key(step: &FirstRead) -> Key {
    (step.name, step.block)
}

/// The bits of the pages of a block from `start` to `end` of its file.
fn pages(block: u64, start: u64, end: u64) -> u16 {
    let from = start.max(block * BLOCK) % BLOCK / PAGE;
    let to = (end.min((block + 1) * BLOCK) - block * BLOCK).div_ceil(PAGE);
    (((1u32 << to) - 1) & !((1u32 << from) - 1)) as u16
}

/// From the first to the last page of a step.
fn range(step: &FirstRead) -> ByteRange {
    let base = u64::from(step.block) * BLOCK;
    let (first, last) = (step.pages.trailing_zeros(), 16 - step.pages.leading_zeros());
    ByteRange::between(
        base + u64::from(first) * PAGE,
        base + u64::from(last) * PAGE,
    )
}

impl Sessions {
    /// What a file is called.
    pub fn name(&mut self, file: FileId, name: u64) {
        self.forget(file);
        if self.names.len() < MAX_NAMES {
            self.names.insert(file.0, name);
            self.files.insert(name, file);
        }
    }

    /// The file is gone, and its number may be another one's.
    pub fn forget(&mut self, file: FileId) {
        let name = self.names.remove(&file.0);
        if let Some(name) = name.filter(|name| self.files.get(name) == Some(&file)) {
            self.files.remove(&name);
        }
    }

    /// An earlier session read this after the one before it.
    pub fn learn(&mut self, step: FirstRead) {
        if let Some(at) = self.learned_places.get(&key(&step)) {
            self.learned[*at].step.pages |= step.pages;
        } else if step.pages != 0 && self.learned.len() < MAX_STEPS {
            self.learned_places.insert(key(&step), self.learned.len());
            self.learned.push(LearnedStep {
                step,
                is_read: false,
                unread: 0,
            });
        }
    }

    /// The steps of this session, and behind them those of earlier ones that it did not read.
    pub fn steps(&self) -> Vec<FirstRead> {
        let old = self.learned.iter().map(|learned| learned.step);
        let old = old.filter(|step| !self.places.contains_key(&key(step)));
        self.steps
            .iter()
            .copied()
            .chain(old)
            .take(MAX_STEPS)
            .collect()
    }

    /// Bytes of a file were demanded. Gives the place of the last of them in the list.
    fn read(&mut self, file: FileId, start: u64, end: u64) -> Option<usize> {
        let name = *self.names.get(&file.0)?;
        let block = u32::try_from(start / BLOCK).ok()?;
        let mut place = self.learned_places.get(&(name, block)).copied();
        let of_this =
            |noted: &NotedRead| noted.file == file && (noted.start..noted.end).contains(&start);
        let before = self.noted.filter(of_this);
        let from = before.map_or(start, |noted| noted.end);
        self.noted = Some(NotedRead {
            file,
            start: before.map_or(start, |noted| noted.start),
            end: end.max(from),
        });
        if from < end {
            for block in (from / BLOCK..end.div_ceil(BLOCK)).take(MAX_STEPS) {
                let key = (name, u32::try_from(block).ok()?);
                place = self.note(key, pages(block, from, end)).or(place);
            }
        }
        place
    }

    /// Pages of a block were read. Gives its place in the list.
    fn note(&mut self, key: Key, pages: u16) -> Option<usize> {
        let place = self.learned_places.get(&key).copied();
        if let Some(at) = self.places.get(&key) {
            self.steps[*at].pages |= pages;
            return place;
        }
        if self.steps.len() == MAX_STEPS {
            return place;
        }
        self.places.insert(key, self.steps.len());
        self.steps.push(FirstRead {
            name: key.0,
            block: key.1,
            pages,
        });
        self.turn += 1;
        match place {
            Some(at) => {
                self.learned[at].is_read = true;
                self.trust = self.trust.saturating_add(GROWTH);
            }
            None => self.trust /= 2,
        }
        place
    }

    /// Bytes of the list were used. Gives how many of them it had read ahead.
    fn used(&mut self, file: FileId, at: u64, bytes: u64) -> u64 {
        let Some(name) = self.names.get(&file.0) else {
            return 0;
        };
        let (mut left, mut used) = (bytes, 0);
        for block in at / BLOCK..(at + bytes).div_ceil(BLOCK) {
            let Ok(block) = u32::try_from(block) else {
                break;
            };
            let Some(place) = self.learned_places.get(&(*name, block)) else {
                continue;
            };
            let learned = &mut self.learned[*place];
            let part = learned.unread.min(left);
            learned.unread -= part;
            (left, used) = (left - part, used + part);
        }
        self.out -= used;
        self.trust += used;
        used
    }

    /// What was not used when as many other blocks were read as were out, and some more, is given up: its bytes.
    fn give_up(&mut self) -> u64 {
        let mut lost = 0;
        while let Some(sent) = self.sent.front().filter(|sent| sent.due <= self.turn) {
            lost += core::mem::take(&mut self.learned[sent.place].unread);
            self.sent.pop_front();
        }
        self.out -= lost;
        self.trust = self.trust.saturating_sub(lost);
        lost
    }
}

impl Auto {
    /// Bytes of readahead were used. Gives how many of them were not of the list.
    pub(super) fn used_by_session(&mut self, file: FileId, at: u64, bytes: u64) -> u64 {
        self.sessions.read(file, at, at + bytes);
        let used = self.sessions.used(file, at, bytes);
        self.credit
            .change(Holding { held: used, bet: 0 }, Holding::default());
        bytes - used
    }

    /// A miss or a mark: reads ahead what an earlier session read next. True if that is followed.
    pub(super) fn follow_session(&mut self, ask: &Ask<'_>, answer: &mut Answer) -> bool {
        let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
        if start >= end {
            return false;
        }
        let Some(place) = self.sessions.read(ask.file, start, end) else {
            return false;
        };
        let lost = self.sessions.give_up();
        self.credit
            .change(Holding { held: lost, bet: 0 }, Holding::default());
        let source = &ask.source;
        let price = self.credit.price(source);
        let len = end - start;
        let most = distance::most(source, (len, 0), self.active(), &self.effort)
            .min(self.sessions.out + price.left)
            .min(self.sessions.trust);
        if most < MIN_TRUST {
            return false;
        }
        let sent = self.sessions.send(place, most, ask, answer);
        self.credit
            .change(Holding::default(), Holding { held: sent, bet: 0 });
        if sent > 0 {
            answer.why = Some(Why::Remembered);
        }
        sent > 0
    }
}

impl Sessions {
    /// Plans the steps behind `place`, up to `most` bytes that are out. Gives how many more are.
    fn send(&mut self, place: usize, most: u64, ask: &Ask<'_>, answer: &mut Answer) -> u64 {
        let had = self.out;
        let (from, upto) = self.gone;
        let is_next = (from..=upto).contains(&(place + 1));
        self.gone.0 = if is_next { from } else { place + 1 };
        let first = if is_next { upto } else { place + 1 };
        let last = self.learned.len().min(first.saturating_add(LOOK));
        self.gone.1 = last;
        let gap = gap(&ask.source);
        let mut requests: Vec<(FileId, ByteRange)> = Vec::new();
        for place in first..last {
            let Some((file, part)) = self.missing_part(place, ask) else {
                continue;
            };
            let probe = ask.probe.of(file);
            let near = requests.iter_mut().find_map(|(of, range)| {
                let (start, end) = (range.start().min(part.start()), range.end().max(part.end()));
                let most = MAX_REQUEST.min(range.len() + gap + part.len());
                (*of == file && end - start <= most)
                    .then_some((range, ByteRange::between(start, end)))
            });
            let had = near.as_ref().map_or(0, |(range, _)| probe.missing(**range));
            let whole = near.as_ref().map_or(part, |(_, both)| *both);
            let added = probe.missing(whole).saturating_sub(had);
            if self.out + added > most {
                self.gone.1 = place;
                break;
            }
            self.learned[place].unread = added;
            self.out += added;
            let due = self.turn + PASSED + self.sent.len() as u64;
            self.sent.push_back(SentStep { place, due });
            match near {
                Some((range, both)) => *range = both,
                None => requests.push((file, part)),
            }
        }
        for (file, range) in requests {
            answer.read_file(file, (range.start(), range.end()), Some(range.start()));
        }
        self.out - had
    }

    /// The bytes of a step, if it was not read, is not out, and some of it is not cached.
    fn missing_part(&self, place: usize, ask: &Ask<'_>) -> Option<(FileId, ByteRange)> {
        let learned = self.learned.get(place)?;
        if learned.is_read || learned.unread > 0 {
            return None;
        }
        let file = *self.files.get(&learned.step.name)?;
        let (probe, part) = (ask.probe.of(file), range(&learned.step));
        let end = part.end().min(probe.file_size()?);
        let part = (part.start() < end).then(|| ByteRange::between(part.start(), end))?;
        (probe.missing(part) > 0).then_some((file, part))
    }
}

/// What is read through between two steps rather than asked for in two requests.
fn gap(source: &SourceView) -> u64 {
    if source.single_rate == 0 {
        MAX_GAP
    } else {
        MAX_GAP / 4
    }
}
