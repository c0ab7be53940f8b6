//! A model of the kernel's state of one recorded file: folios, descriptors, mappings. The code of the policy `linux-6.18` makes the
//! decisions and chooses the folios; this file models read calls, page faults and page tables.
//!
//! ```text
//!   read   ─► folios from page i ─► none: sync ─► (still none: one folio) ─► marked: async ─► go on behind them
//!   fault  ─► mapped? ─► fault-around ─► cached: hit, async ─┐ absent: read-around, sync, ... ─► one folio
//!               ▲──────────── again, until the page is mapped ┴──────────────────────────────────────┘
//! ```
//!
//! From the recording, the model takes the operations and the folios that the kernel evicted, but none of the kernel's
//! decisions.
//!
//! Source: docs/spec/linux-readahead.md 4.2 and 4.10, and 4.8 for hints.

use super::cursor::Cursor;
use super::recording::{Act, Call, Episode, Header, Op, PAGE, Pre, StreamState, TABLE};
use foreread_core::event::Advice;
use foreread_core::policy::kernel::{
    Folio, FolioWindow, Folios, KernelReader, Placement, Raw, ReadaheadCall, Shape, Sight, Todo,
    Touch,
};
use foreread_core::units::PageRange;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// Pages that fault-around considers: one block, aligned by address (x86's default of 64 KiB).
pub(crate) const FAULT_AROUND: u64 = 16;
/// Segments of a request of a loop device: this many folios are one request; more may become several, split anywhere.
const SEGMENTS: usize = 128;
/// Maximum number of folios of one file: 4 GiB in single pages, more than any recording has.
const MAX_FOLIOS: usize = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpisodeEffects {
    /// Decisions, in order.
    pub calls: Vec<Call>,
    /// Folios inserted, in order.
    pub added: Vec<(u64, u32)>,
    /// The first pages of those folios that have the mark at the end of the operation.
    pub marks: Vec<u64>,
    /// The state of the descriptor at the end of the operation.
    pub state: StreamState,
}

/// A mapping. Page numbers are those of the file.
#[derive(Clone, PartialEq)]
struct Mapping {
    first: u64,
    end: u64,
    /// Page number in the file + shift = a number whose blocks and page tables are those of the address.
    shift: u64,
    advice: Advice,
    huge: bool,
    executable: bool,
    mapped: BTreeSet<u64>,
    /// Existing page tables, by number.
    tables: BTreeSet<u64>,
}

impl Mapping {
    /// Number of the page table that maps a page.
    fn table(&self, page: u64) -> u64 {
        (page + self.shift) / TABLE
    }
}

#[derive(Clone)]
pub struct World {
    shape: Shape,
    kernel_probes: bool,
    size: u64,
    /// Pages at which the file continues elsewhere on its device.
    extents: Rc<[u64]>,
    folios: Folios,
    readers: Vec<KernelReader>,
    /// The position of each descriptor's latest window. A huge page does not change the `start` in its state, but the
    /// state in a recording is taken from the windows.
    starts: Vec<u64>,
    maps: Vec<Option<Mapping>>,
    done: EpisodeEffects,
    /// Which possible arrival of a read the current operation assumes ([`World::arrivals`]), and the number of these.
    arrival: usize,
    possible: usize,
}

/// The cache, with a hook that records calls.
struct Watch<'a, S> {
    sight: S,
    heard: &'a Cell<Option<ReadaheadCall>>,
}

impl<S: Sight> Sight for Watch<'_, S> {
    fn is_cached(&self, page: u64) -> bool {
        self.sight.is_cached(page)
    }

    fn hole(&self, from: u64, limit: u64) -> Option<u64> {
        self.sight.hole(from, limit)
    }

    fn history(&self, i: u64, limit: u64) -> (u64, bool) {
        self.sight.history(i, limit)
    }

    fn called(&self, call: ReadaheadCall) {
        self.heard.set(Some(call));
    }
}

impl World {
    /// Creates the state of an episode's file, with new descriptors and no cached pages.
    pub fn new(header: &Header, kernel_probes: bool, episode: &Episode) -> World {
        let (size, fds) = (episode.file_size, episode.fds);
        let Header {
            ra_pages,
            io_pages,
            large_folios: large,
            min_order,
            max_order,
            ..
        } = *header;
        World {
            shape: Shape {
                large,
                min_order,
                max_order,
            },
            kernel_probes,
            size,
            extents: episode.extents.as_slice().into(),
            folios: Folios::default(),
            readers: (0..fds)
                .map(|_| KernelReader::new(ra_pages, io_pages))
                .collect(),
            starts: vec![0; fds as usize],
            maps: (0..fds).map(|_| None).collect(),
            done: EpisodeEffects::default(),
            arrival: 0,
            possible: 1,
        }
    }

    /// Whether an operation may have more than one outcome: a touch of an absent page, whose neighbours may arrive
    /// later.
    pub(crate) fn may_vary(&self, op: &Op, act: Act) -> bool {
        let first = self
            .maps
            .get(op.fd as usize)
            .and_then(Option::as_ref)
            .map(|map| map.first);
        act == Act::Touch
            && first.is_some_and(|first| self.folios.at(first.saturating_add(op.page)).is_none())
    }

    /// Executes one operation. If the operation can have several outcomes, `way` selects one of them, numbered from 0. Returns the effects,
    /// and the number of possible outcomes. Returns an error if the operation cannot be executed, or if the file has more folios than the
    /// maximum.
    pub fn play(
        &mut self,
        op: &Op,
        act: Act,
        way: usize,
    ) -> Result<(EpisodeEffects, usize), String> {
        self.done = EpisodeEffects::default();
        (self.arrival, self.possible) = (way, 1);
        let fd = op.fd as usize;
        match act {
            Act::Read => self.read(fd, op.off, op.len)?,
            Act::Hint(advice) => self.decide(fd, |reader, _| reader.hint(advice, None)),
            Act::WillNeed => {
                let first = op.off / PAGE;
                let end = if op.len == 0 {
                    self.end().max(first)
                } else {
                    (op.off + op.len).div_ceil(PAGE)
                };
                self.decide(fd, |reader, _| {
                    reader.hint(Advice::WillNeed, Some(PageRange::between(first, end)))
                });
            }
            Act::Other => {}
            Act::Map {
                advice,
                huge,
                executable,
            } => {
                let (mapped, tables) = (BTreeSet::new(), BTreeSet::new());
                let (first, end) = (op.pgoff, op.pgoff + op.npages);
                let shift = op.va.map_or(0, |va| (va + TABLE - first % TABLE) % TABLE);
                self.maps[fd] = Some(Mapping {
                    first,
                    end,
                    shift,
                    advice,
                    huge,
                    executable,
                    mapped,
                    tables,
                });
            }
            Act::Touch => self.touch(fd, op.page)?,
        }
        self.room()?;
        let mut done = std::mem::take(&mut self.done);
        let marked = |&(first, _): &(u64, u32)| {
            self.folios
                .at(first)
                .is_some_and(|f| f.marked)
                .then_some(first)
        };
        done.marks = done.added.iter().filter_map(marked).collect();
        let KernelReader {
            window, prev_pos, ..
        } = &self.readers[fd];
        let FolioWindow {
            size, async_size, ..
        } = *window;
        done.state = StreamState {
            start: self.starts[fd],
            size,
            async_size,
            prev_pos: position(*prev_pos),
        };
        Ok((done, self.possible))
    }

    /// Returns whether two predicted states (worlds) of one recording will behave the same from now on. Differences in the mapping of the
    /// descriptor `but_for_map_of` are ignored, because this mapping is about to be replaced. Cached pages are not compared, because in
    /// both worlds they are those of the recording.
    pub fn is_same(&self, other: &World, but_for_map_of: Option<usize>) -> bool {
        let mut maps = (0..self.maps.len()).filter(|&at| Some(at) != but_for_map_of);
        self.readers == other.readers
            && self.starts == other.starts
            && maps.all(|at| self.maps[at] == other.maps[at])
    }

    /// Removes from the predicted cache those folios that the kernel has evicted.
    pub fn evict(&mut self, evicted: &[(u64, u32)]) {
        for &(first, order) in evicted {
            let end = first + (1 << order);
            self.folios.remove(first, end);
            for map in self.maps.iter_mut().flatten() {
                map.mapped.retain(|page| !(first..end).contains(page));
            }
        }
    }

    /// The page after the last page of the file.
    fn end(&self) -> u64 {
        self.size.div_ceil(PAGE)
    }

    /// 4.2.
    fn read(&mut self, fd: usize, off: u64, len: u64) -> Result<(), String> {
        let block = 1 << self.shape.min_order;
        let end = (off + len).div_ceil(PAGE).next_multiple_of(block);
        let (mut pos, stop) = (off, self.size.min(off + len));
        while pos < stop {
            let i = pos / PAGE;
            if self.folios.at(i).is_none() {
                self.decide(fd, |reader, sight| reader.sync(sight, i, end - i));
                self.fill(i);
            }
            let last = self.batch(i, end);
            if last.marked {
                let (x, req) = (last.first, end.saturating_sub(last.first));
                self.decide(fd, |reader, sight| reader.follow(sight, last, x, req));
            }
            pos = stop.min(last.end() * PAGE);
            self.room()?;
        }
        if stop > off {
            self.readers[fd].prev_pos = Some(stop);
        }
        Ok(())
    }

    /// The last folio of the run from page `i` that a read up to page `end` takes in one step.
    fn batch(&self, i: u64, end: u64) -> Folio {
        let mut last = self
            .folios
            .at(i)
            .unwrap_or_else(|| unreachable!("page {i} was filled"));
        while !last.marked && last.end() < end {
            let Some(next) = self.folios.at(last.end()) else {
                break;
            };
            last = next;
        }
        last
    }

    /// Reads the smallest folio that holds page `i`, if it is not cached yet.
    fn fill(&mut self, i: u64) {
        if self.folios.at(i).is_none() {
            let order = self.shape.min_order;
            self.insert(&[Folio {
                first: i >> order << order,
                order,
                marked: false,
            }]);
        }
    }

    /// An error if there are more folios than the maximum.
    fn room(&self) -> Result<(), String> {
        let full = self.folios.len() > MAX_FOLIOS;
        if full {
            Err(format!("the file has more than {MAX_FOLIOS} folios cached"))
        } else {
            Ok(())
        }
    }

    fn insert(&mut self, folios: &[Folio]) {
        for &folio in folios {
            self.folios.insert(folio);
            self.done.added.push((folio.first, folio.order));
        }
    }

    /// Asks a descriptor's reader a question and carries out the answer.
    fn decide(
        &mut self,
        fd: usize,
        question: impl FnOnce(&mut KernelReader, &Watch<'_, Cursor<'_, &Folios>>) -> Todo,
    ) {
        let heard = Cell::new(None);
        let folios = if self.kernel_probes {
            &self.folios
        } else {
            &Folios::NONE
        };
        let watch = Watch {
            sight: Cursor {
                folios,
                sight: &self.folios,
            },
            heard: &heard,
        };
        let reader = &mut self.readers[fd];
        let before = reader.clone();
        let todo = question(reader, &watch);
        if let Some(ReadaheadCall { hit, index, req }) = heard.get() {
            // Of the state before a call, only the miss counter may have changed since the question.
            let pre = Some(pre_of(&before, reader.mmap_miss));
            let call = if hit {
                Call::Async { index, req, pre }
            } else {
                Call::Sync { index, req, pre }
            };
            self.done.calls.push(call);
            if hit
                && todo != Todo::Keep
                && let Some(folio) = self.folios.at(index)
            {
                self.folios.clear_mark(folio.first);
            }
        }
        if let Todo::Place { at, window } = todo {
            let FolioWindow {
                size,
                async_size,
                order,
                ..
            } = window;
            self.done.calls.push(Call::Window {
                start: at,
                order,
                size,
                async_size,
            });
            self.starts[fd] = at;
            let placed = self.shape.place(&&self.folios, self.end(), at, window);
            self.readers[fd].placed(placed.order);
            self.take_in(&placed);
        }
        for (i, nr) in todo.pieces(self.shape.min_order) {
            let mut placed = Placement::default();
            self.shape
                .fetch(&&self.folios, self.end(), Raw::new(i, nr, 0), &mut placed);
            self.take_in(&placed);
        }
    }

    fn take_in(&mut self, placed: &Placement) {
        if let Some(raw) = placed.raw {
            self.done.calls.push(Call::Raw {
                index: raw.index,
                nr: raw.nr,
                lookahead: raw.lookahead,
            });
        }
        self.insert(&placed.folios);
    }

    /// 4.10: a touch of a page in a mapping.
    fn touch(&mut self, fd: usize, page: u64) -> Result<(), String> {
        let Some(map) = &self.maps[fd] else {
            return Err("a touch without a mapping".to_string());
        };
        let Mapping {
            first,
            end,
            advice,
            huge,
            executable,
            ..
        } = *map;
        let page = first.saturating_add(page);
        if page >= end {
            return Err(format!(
                "page {} of a mapping of {}",
                page - first,
                end - first
            ));
        }
        // After the end of the file there is nothing to map: the process gets a signal.
        if page >= self.end() || map.mapped.contains(&page) {
            return Ok(());
        }
        let touch = Touch {
            page,
            map_end: end,
            advice,
            huge,
            executable,
        };
        let mut has_read = false;
        // The folios in flight while the fault is retried: those that an async call of this touch requested, from this
        // index of `added` on; and the folios of this touch that begin at this page or later.
        let (mut under_way, mut arrived) = (usize::MAX, u64::MAX);
        while !self.fault_around(fd, page, under_way, arrived) {
            let Some(folio) = self.folios.at(page) else {
                self.decide(fd, |reader, sight| reader.fault(sight, &touch));
                self.fill(page);
                has_read = true;
                let arrivals = self.arrivals(fd, page);
                self.possible = arrivals.len();
                arrived = arrivals[self.arrival.min(self.possible - 1)];
                continue;
            };
            // A fault that is retried after its own read counts no hit and reaches no mark; a fault that is retried
            // after an async call counts its hit a second time (both recorded on 6.18.44).
            if !has_read {
                let marked = folio.marked.then_some(folio);
                let asks = folio.marked && advice != Advice::Random && self.readers[fd].max > 0;
                under_way = under_way.min(self.done.added.len());
                self.decide(fd, |reader, sight| reader.fault_hit(sight, &touch, marked));
                if asks {
                    continue;
                }
            }
            self.map_at_the_end(fd, page, folio);
            break;
        }
        Ok(())
    }

    /// 4.10, row 1: maps the cached pages around a page, except marked ones and those still being read. Returns true if
    /// the page is mapped.
    fn fault_around(&mut self, fd: usize, page: u64, under_way: usize, arrived: u64) -> bool {
        let Some(map) = &self.maps[fd] else {
            return true;
        };
        if map.mapped.contains(&page) {
            return true;
        }
        let folios = self.around(map, page, under_way, arrived);
        let Some(folio) = folios.first() else {
            return false;
        };
        let no_table = !map.tables.contains(&map.table(page));
        if no_table && self.is_last(folio) {
            return false;
        }
        if folio.pages() == TABLE && self.is_mapped_whole(map, folio) {
            self.map(fd, folio.first..folio.end());
            return true;
        }
        let around = self.window(map, page);
        let part = |folio: &Folio| match self.is_mapped_whole(map, folio) && !self.is_last(folio) {
            true => folio.first..folio.end(),
            false => folio.first.max(around.start)..folio.end().min(around.end),
        };
        let found: Vec<u64> = folios.iter().flat_map(part).collect();
        let reader = &mut self.readers[fd];
        reader.mapped(found.len() as u64);
        let wanted = found.contains(&page);
        self.map(fd, found);
        wanted
    }

    /// The first pages from which on the folios that a fault has read may still be in flight when it is retried, if
    /// fault-around would see them; the first entry stands for none in flight. The fault waits only for its own page,
    /// and requests are executed in order. A later request begins after a page that was cached before (a touch of page
    /// 55 reads 49 to 55 and 57 to 70, and finds 52 to 56; seen on 6.18.44), where an extent of the file begins (a
    /// touch of page 15 reads 0 to 31, and does not find 16 to 27 if an extent begins at page 16), and anywhere in a
    /// run that is longer than the maximum request.
    fn arrivals(&self, fd: usize, page: u64) -> Vec<u64> {
        let mut arrivals = vec![u64::MAX];
        let Some(map) = &self.maps[fd] else {
            return arrivals;
        };
        let added = &self.done.added;
        let Some(own) = added
            .iter()
            .position(|&(first, order)| (first..first + (1 << order)).contains(&page))
        else {
            return arrivals;
        };
        let follows = |at: &usize| added[at - 1].0 + (1 << added[at - 1].1) == added[*at].0;
        let begin = (1..=own)
            .rev()
            .take_while(follows)
            .last()
            .map_or(own, |at| at - 1);
        let goes_on_elsewhere = |at: usize| {
            let (first, order) = added[at];
            let folio = first..first + (1 << order);
            self.extents.iter().any(|page| folio.contains(page))
        };
        let may_begin =
            |at: &usize| !follows(at) || goes_on_elsewhere(*at) || *at - begin >= SEGMENTS;
        let window = self.window(map, page);
        let seen = |at: usize| Some(added[at].0).filter(|first| window.contains(first));
        arrivals.extend((own + 1..added.len()).filter(may_begin).filter_map(seen));
        arrivals
    }

    /// The pages that fault-around considers. If the mapping begins inside the aligned block, the window begins there
    /// and has its usual length (seen on 6.18.44: 37 to 52 for a touch of page 40 of a mapping from page 37).
    fn window(&self, map: &Mapping, page: u64) -> Range<u64> {
        let address = page + map.shift;
        let first = (address / FAULT_AROUND * FAULT_AROUND).max(map.first + map.shift) - map.shift;
        let table_end = (map.table(page) + 1) * TABLE - map.shift;
        first
            ..(first + FAULT_AROUND)
                .min(map.end)
                .min(self.end())
                .min(table_end)
    }

    /// The unmarked folios in that window whose bytes have arrived (seen on 6.18.44: 2168 to 2175 are not counted when
    /// the fault of page 2158, whose mark began an async call for 2167 to 2195, is retried).
    fn around(&self, map: &Mapping, page: u64, under_way: usize, arrived: u64) -> Vec<Folio> {
        let is_being_read = |folio: &Folio| {
            let at = self
                .done
                .added
                .iter()
                .position(|&(first, _)| first == folio.first);
            at.is_some_and(|at| at >= under_way || folio.first >= arrived)
        };
        let is_there = |folio: &Folio| !folio.marked && !is_being_read(folio);
        let (mut folios, Range { start, end }) = (Vec::new(), self.window(map, page));
        let mut at = start;
        while at < end {
            let folio = self.folios.at(at);
            folios.extend(folio.filter(is_there));
            at = folio.map_or(at + 1, |folio| folio.end());
        }
        folios
    }

    /// Whether the kernel maps a folio as a whole, even if a fault or fault-around needs only a part of it: the folio
    /// must be inside the mapping, the file and one page table (seen on 6.18.44: pages 96 to 127, one folio, for a
    /// touch of page 100; in a file of 4 pages with blocks of 64 KiB, only page 0).
    fn is_mapped_whole(&self, map: &Mapping, folio: &Folio) -> bool {
        let inside = map.first <= folio.first && folio.end() <= map.end.min(self.end());
        inside && map.table(folio.first) == map.table(folio.end() - 1)
    }

    /// Whether the folio holds the file's last page. Fault-around never maps it as a whole: of pages 98 and 99 of a
    /// file of 100 pages, it maps only page 98 if its block ends there (seen on 6.18.44). The end of a fault does map
    /// it.
    fn is_last(&self, folio: &Folio) -> bool {
        folio.end() >= self.end()
    }

    /// 4.10, row 4: the end of a fault maps the whole folio of its page, whether marked or not, unless one of its pages
    /// is mapped.
    fn map_at_the_end(&mut self, fd: usize, page: u64, folio: Folio) {
        let Some(map) = &self.maps[fd] else { return };
        let untouched = map.mapped.range(folio.first..folio.end()).next().is_none();
        let whole = untouched && self.is_mapped_whole(map, &folio);
        self.map(
            fd,
            if whole {
                folio.first..folio.end()
            } else {
                page..page + 1
            },
        );
    }

    fn map(&mut self, fd: usize, pages: impl IntoIterator<Item = u64>) {
        let Some(map) = &mut self.maps[fd] else {
            return;
        };
        for page in pages {
            map.mapped.insert(page);
            map.tables.insert(map.table(page));
        }
    }
}

fn position(prev_pos: Option<u64>) -> i64 {
    prev_pos.map_or(-1, |p| i64::try_from(p).unwrap_or(i64::MAX))
}

fn pre_of(reader: &KernelReader, mmap_miss: u64) -> Pre {
    let FolioWindow {
        size,
        async_size,
        order,
        ..
    } = reader.window;
    Pre {
        order,
        size,
        async_size,
        ra_pages: reader.max,
        mmap_miss,
        prev_pos: position(reader.prev_pos),
    }
}
