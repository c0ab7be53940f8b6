//! Compares a recording of a running kernel's readahead (docs/spec/linux-readahead.md 5) with the decisions of the policy `linux-6.18`.
//!
//! | level | operations are executed by | compared after each operation |
//! |---|---|---|
//! | *full* | [`Worlds`]: the policy's decisions and folios | calls, folios in order, marks, the descriptor's state |
//! | *pages* | [`PageMachine`]: the machine with the policy, as readers use it | the pages brought in, the marks |
//!
//! The comparison has two levels. The level *full* works for every recording. The level *full* determines whether a page is cached by the
//! same look-ups as the kernel, which can be inexact for large folios. The level *pages* works only for recordings that have no large
//! folios and no page faults, and knows exactly which pages are cached. After a difference, the rest of the episode (a short sequence of
//! operations on one file) is not compared, because the predicted cache then differs from the recorded cache. Each prediction continues
//! from the state that our own code has reached, not from the recorded state. If an episode was recorded under memory pressure, the
//! differences in this episode are counted separately, because they do not show that a rule is wrong.
//!
//! ```text
//!   recording ──op──► ours ──┬─► equal? count the kernel's decisions, else a divergence: the next episode
//!        │  └── evicted ──►  └─► the caller's `each` in any case
//!        └─────── the kernel's answers, if recorded
//! ```

use super::first_difference;
use super::pages::PageMachine;
use super::recording::{Act, Call, CheckError, Episode, Header, Item, Lines, Op, PAGE, TABLE};
use super::world::{EpisodeEffects, FAULT_AROUND, World};
use foreread_core::policy::PolicySpec;
use foreread_trace::input::unpack;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// What is compared. The texts are the help of `conform linux --level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// Compare only the fetched pages and the marks
    Pages,
    /// Compare every decision, folio and readahead mark, and the descriptor's readahead state
    Full,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Number of compared decisions of the kernel: entries of `calls`.
    pub decisions: u64,
    /// Number of episodes that ended early because of a difference.
    pub divergences: u64,
    /// Number of episodes in which the kernel was short of memory.
    pub pressure_episodes: u64,
    /// How many of these have a difference. They are not included in `divergences`.
    pub pressure_differences: u64,
    pub operations: u64,
    /// The first difference in words.
    pub first: Option<String>,
    /// The first difference under memory pressure.
    pub first_under_pressure: Option<String>,
}

impl Verdict {
    /// Evaluates an episode at its end, because only then is known whether memory ran short in it.
    fn take_in(&mut self, playing: Option<EpisodeCheck>) {
        let Some(EpisodeCheck {
            pressure, diverged, ..
        }) = playing
        else {
            return;
        };
        self.pressure_episodes += u64::from(pressure);
        let Some(difference) = diverged else { return };
        let (count, first) = if pressure {
            (
                &mut self.pressure_differences,
                &mut self.first_under_pressure,
            )
        } else {
            (&mut self.divergences, &mut self.first)
        };
        *count += 1;
        first.get_or_insert(difference);
    }
}

/// Opens a recording: JSON lines, compressed ([`unpack`]) or not.
pub fn open(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    let bytes = Box::new(foreread_os::open::stream(path)?);
    Ok(Box::new(BufReader::new(unpack(bytes)?)))
}

/// Compares a recording with our own decisions, and passes our decisions to `each`, operation by operation. Returns an error if the
/// recording cannot be read, is invalid or contains something that the level does not cover.
pub fn check(
    recording: impl BufRead,
    level: Level,
    mut each: impl FnMut(&EpisodeEffects),
) -> Result<Verdict, CheckError> {
    let mut lines = Lines::new(recording);
    let mut verdict = Verdict::default();
    let mut header = None;
    let mut playing: Option<EpisodeCheck> = None;
    while let Some(item) = lines.read()? {
        match item {
            Item::Header(read) => {
                if level == Level::Pages && (read.large_folios || read.min_order > 0 || read.mmap) {
                    let what =
                        "the level 'pages' cannot check large folios or page faults".to_string();
                    return Err(CheckError::Level {
                        line: lines.number(),
                        what,
                    });
                }
                header = Some(read);
            }
            Item::Episode(episode) => {
                let header = header.ok_or_else(|| lines.wrong("no header"))?;
                verdict.take_in(playing.take());
                playing = Some(
                    EpisodeCheck::new(&header, level, &episode)
                        .map_err(|what| lines.wrong(what))?,
                );
            }
            Item::Op(op, act) => {
                let playing = playing.as_mut().ok_or_else(|| lines.wrong("no episode"))?;
                let (ours, difference) =
                    playing.play(&op, act).map_err(|what| lines.wrong(what))?;
                each(&ours);
                verdict.operations += 1;
                playing.pressure |= op.pressure;
                if playing.diverged.is_some() {
                    continue;
                }
                verdict.decisions += op.calls.map_or(0, |calls| calls.len() as u64);
                if let Some(difference) = difference {
                    let (line, ep) = (lines.number(), playing.number);
                    let what = format!(
                        "line {line}, episode {ep}, operation {}: {difference}",
                        op.i
                    );
                    playing.diverged = Some(what);
                }
            }
        }
    }
    verdict.take_in(playing);
    Ok(verdict)
}

struct EpisodeCheck {
    number: u64,
    worlds: Worlds,
    /// The machine, at the level *pages*.
    machine: Option<PageMachine>,
    /// The difference that ended the comparison.
    diverged: Option<String>,
    /// The kernel was short of memory.
    pressure: bool,
}

impl EpisodeCheck {
    fn new(header: &Header, level: Level, episode: &Episode) -> Result<EpisodeCheck, String> {
        let Episode {
            ep, file_size, fds, ..
        } = *episode;
        let world = World::new(header, level == Level::Full, episode);
        let machine = match level {
            Level::Full => None,
            Level::Pages => {
                let (max, io) = (header.ra_pages * PAGE, header.io_pages * PAGE);
                let policy = PolicySpec::parse(&format!("linux-6.18:max={max},io={io}"))
                    .map_err(|e| e.to_string())?;
                Some(PageMachine::new(policy, file_size, fds))
            }
        };
        Ok(EpisodeCheck {
            number: ep,
            worlds: Worlds::new(world),
            machine,
            diverged: None,
            pressure: false,
        })
    }

    /// Executes an operation. Returns its effects, and a text that describes the first difference from the recording.
    fn play(&mut self, op: &Op, act: Act) -> Result<(EpisodeEffects, Option<String>), String> {
        let Some(machine) = &mut self.machine else {
            return self.worlds.play(op, act, |ours| differs(op, ours));
        };
        let (ours, _) = self.worlds.play(op, act, |_| None)?;
        if self.diverged.is_some() {
            return Ok((ours, None));
        }
        let (added, marks) = machine.play(op, act);
        machine.evict(&op.evicted);
        Ok((ours, differs_in_pages(op, &added, &marks)))
    }
}

/// The first difference at the level *full*.
fn differs(op: &Op, ours: &EpisodeEffects) -> Option<String> {
    let tell = |what: &str, [ours, theirs]: [String; 2]| {
        Some(format!("{what} ours {ours}, the kernel's {theirs}"))
    };
    // If a call was recorded without the state before it, that state is not compared.
    let is_same = |ours: &Call, theirs: &Call| ours == theirs || ours.without_pre() == *theirs;
    if let Some(theirs) = &op.calls
        && let Some((at, words)) =
            first_difference(&ours.calls, theirs, is_same, |call| format!("{call:?}"))
    {
        return tell(&format!("call {at}:"), words);
    }
    let words = |(first, order): &(u64, u32)| format!("{first}:{order}");
    if let Some(theirs) = &op.added
        && let Some((at, words)) = first_difference(&ours.added, theirs, PartialEq::eq, words)
    {
        return tell(&format!("folio {at}:"), words);
    }
    if let Some(theirs) = &op.marks
        && theirs.iter().collect::<BTreeSet<_>>() != ours.marks.iter().collect()
    {
        return tell(
            "marks",
            [format!("{:?}", ours.marks), format!("{theirs:?}")],
        );
    }
    let theirs = op.state.filter(|theirs| *theirs != ours.state)?;
    tell(
        "state",
        [format!("{:?}", ours.state), format!("{theirs:?}")],
    )
}

/// The first difference at the level *pages*.
fn differs_in_pages(op: &Op, added: &BTreeSet<u64>, marks: &BTreeSet<u64>) -> Option<String> {
    if let Some(theirs) = &op.added {
        let theirs: BTreeSet<u64> = theirs
            .iter()
            .flat_map(|&(first, order)| first..first + (1 << order))
            .collect();
        if *added != theirs {
            let (more, less): (Vec<_>, Vec<_>) = (
                added.difference(&theirs).collect(),
                theirs.difference(added).collect(),
            );
            return Some(format!(
                "pages fetched only by us {more:?}, only by the kernel {less:?}"
            ));
        }
    }
    let theirs: BTreeSet<u64> = op.marks.as_ref()?.iter().copied().collect();
    (*marks != theirs).then(|| format!("marks ours {marks:?}, the kernel's {theirs:?}"))
}

// All states of the kernel ("worlds") that agree with a recording so far. There is only one world until a result
// depends on a detail that the recording does not contain:
//
// ```text
//   mmap without `va`:   each world ──► 16 worlds, the mapping one page further in each
//   touch that reads:    each world ──► one for each arrival of its neighbours that fault-around would see
//   any operation:       worlds that differ from the recording are dropped; if all do, that is a difference
//   mmap again:          worlds that differed only in the mapping become one
// ```
// On a page fault, the kernel maps all cached pages of a block that is aligned by virtual address (fault-around). Therefore the position
// of a mapping within its page table decides which pages are mapped (docs/spec/linux-readahead.md 4.10). Only the 16 positions of a
// mapping within a block are tried; the boundaries of page tables are not varied. If a fault on a page is retried, it depends on timing
// whether the neighbours of the page have arrived ([`World::play`]).

/// Maximum number of worlds. Once there are 64, a touch is only played with its first outcome: everything has arrived.
const MAX_WORLDS: usize = 64;

/// The possible states of the kernel (worlds); there is always at least one.
pub struct Worlds(Vec<World>);

/// The outcome of one operation: worlds that agree with the recording, and the first one that does not.
#[derive(Default)]
struct Outcome {
    /// Maximum number of worlds that may follow from these.
    room: usize,
    agreeing: Vec<World>,
    done: Option<EpisodeEffects>,
    differing: Option<Difference>,
}

/// A world that does not agree with the recording.
struct Difference {
    world: World,
    done: EpisodeEffects,
    what: String,
}

impl Worlds {
    pub fn new(world: World) -> Worlds {
        Worlds(vec![world])
    }

    /// Executes one operation in all worlds. Returns the effects in the first world that agrees with the recording. If no world agrees,
    /// returns the effects in the first world, and the text that `differs` returns for it.
    pub fn play(
        &mut self,
        op: &Op,
        act: Act,
        differs: impl Fn(&EpisodeEffects) -> Option<String>,
    ) -> Result<(EpisodeEffects, Option<String>), String> {
        let ops = self.placed(op, act);
        let mut outcome = Outcome {
            room: MAX_WORLDS.saturating_sub(self.0.len()),
            ..Outcome::default()
        };
        for world in std::mem::take(&mut self.0) {
            let mut left = Some(world);
            for (nth, op) in ops.iter().enumerate() {
                let last = nth + 1 == ops.len();
                let Some(world) = (if last { left.take() } else { left.clone() }) else {
                    break;
                };
                outcome.play(world, op, act, &differs)?;
            }
        }
        let Outcome {
            agreeing,
            done,
            differing,
            ..
        } = outcome;
        match (done, differing) {
            (Some(done), _) => {
                self.0 = agreeing;
                if self.0.len() > 1 {
                    self.merge(None);
                }
                Ok((done, None))
            }
            (None, Some(Difference { world, done, what })) => {
                self.0.push(world);
                Ok((done, Some(what)))
            }
            (None, None) => unreachable!("there is always a first world"),
        }
    }

    /// The operation; for a mapping, one variant for each possible position.
    fn placed<'a>(&mut self, op: &'a Op, act: Act) -> Vec<Cow<'a, Op>> {
        let Act::Map { .. } = act else {
            return vec![Cow::Borrowed(op)];
        };
        self.merge(Some(op.fd as usize));
        if op.va.is_some() {
            return vec![Cow::Borrowed(op)];
        }
        self.0.truncate(MAX_WORLDS / FAULT_AROUND as usize);
        let at = |shift| Op {
            va: Some((op.pgoff + shift) % TABLE),
            ..op.clone()
        };
        (0..FAULT_AROUND)
            .map(|shift| Cow::Owned(at(shift)))
            .collect()
    }

    /// Keeps one of several worlds that behave the same, and limits the number of the others.
    fn merge(&mut self, but_for_map_of: Option<usize>) {
        let mut apart: Vec<World> = Vec::new();
        for world in std::mem::take(&mut self.0) {
            if !apart
                .iter()
                .any(|other| other.is_same(&world, but_for_map_of))
            {
                apart.push(world);
            }
        }
        apart.truncate(MAX_WORLDS);
        self.0 = apart;
    }
}

impl Outcome {
    /// Executes the operation in one world, with all its possible outcomes.
    fn play(
        &mut self,
        mut world: World,
        op: &Op,
        act: Act,
        differs: &impl Fn(&EpisodeEffects) -> Option<String>,
    ) -> Result<(), String> {
        let before = (self.room > 0 && world.may_vary(op, act)).then(|| world.clone());
        let (done, ways) = world.play(op, act, 0)?;
        self.take_in(world, op, done, differs);
        let Some(before) = before else { return Ok(()) };
        for way in 1..ways.min(1 + self.room) {
            self.room -= 1;
            let mut world = before.clone();
            let (done, _) = world.play(op, act, way)?;
            self.take_in(world, op, done, differs);
        }
        Ok(())
    }

    fn take_in(
        &mut self,
        mut world: World,
        op: &Op,
        done: EpisodeEffects,
        differs: &impl Fn(&EpisodeEffects) -> Option<String>,
    ) {
        world.evict(&op.evicted);
        match differs(&done) {
            None => {
                self.done.get_or_insert(done);
                self.agreeing.push(world);
            }
            Some(what) if self.differing.is_none() => {
                self.differing = Some(Difference { world, done, what });
            }
            Some(_) => {}
        }
    }
}
