//! The worlds that a recording may have been made in. There is one, until something matters that the recording does not say:
//!
//! ```text
//!   mmap without `va`:   each world ──► 16 worlds, the mapping one page further in each
//!   touch that reads:    each world ──► one for each arrival of its neighbours that fault-around would see
//!   any operation:       worlds that differ from the recording go, unless all do: that is a difference
//!   mmap again:          worlds that differed by the mapping alone are one again
//! ```
//! Where a mapping begins within its page table decides what fault-around maps: its blocks are aligned by address
//! (docs/spec/linux-readahead.md 4.10). Only places within a block are tried, so the ends of page tables may be elsewhere.
//! Whether the neighbours of a page are there when its fault is tried again is a matter of time ([`World::play`]).

use super::recording::{Act, Op, TABLE};
use super::world::{EpisodeEffects, FAULT_AROUND, World};
use std::borrow::Cow;

/// Worlds at a time. Once there are 64, a touch is played in the first way alone: all has arrived.
const MAX_WORLDS: usize = 64;

/// There is always a first.
pub struct Worlds(Vec<World>);

/// What is left of one operation: worlds that agree with the recording, and the first that does not.
#[derive(Default)]
struct Outcome {
    /// Worlds that may come to these.
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

    /// Carries out one operation in all of them. Returns what the first that agrees with the recording did; if none does, what
    /// the first did, and `differs` in words.
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

    /// The operation, or a mapping once for each place that it may have.
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

    /// Keeps one of those that go on alike, and not too many of the others.
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
    /// Carries out the operation in one world, in all ways that it may go there.
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
