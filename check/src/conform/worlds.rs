//! All states of the kernel ("worlds") that agree with a recording so far. There is only one world until a result
//! depends on a detail that the recording does not contain:
//!
//! ```text
//!   mmap without `va`:   each world ──► 16 worlds, the mapping one page further in each
//!   touch that reads:    each world ──► one for each arrival of its neighbours that fault-around would see
//!   any operation:       worlds that differ from the recording are dropped; if all do, that is a difference
//!   mmap again:          worlds that differed only in the mapping become one
//! ```
//! On a page fault, the kernel maps all cached pages of a block that is aligned by virtual address (fault-around). Therefore the position
//! of a mapping within its page table decides which pages are mapped (docs/spec/linux-readahead.md 4.10). Only the 16 positions of a
//! mapping within a block are tried; the boundaries of page tables are not varied. If a fault on a page is retried, it depends on timing
//! whether the neighbours of the page have arrived ([`World::play`]).

use super::recording::{Act, Op, TABLE};
use super::world::{EpisodeEffects, FAULT_AROUND, World};
use std::borrow::Cow;

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
