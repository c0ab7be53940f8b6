//! Test operations for the kernel: episodes of about sixty operations, generated from a seed.
//!
//! An episode has one pattern (see the list in docs/spec/linux-readahead.md 7), a file of one of five sizes, and a
//! random offset and request size. The operations do not depend on what the kernel does, so the same seed always gives
//! the same operations.

use super::disk::SIZES;
use super::faults;
use super::story::{DrawSteps, Story, hint, length, place, spread};
use super::story::{EpisodeScript, Step};
use crate::conform::recording::PAGE;
use foreread_sim::rng::Rng;

const READS: [(&str, DrawSteps); 16] = [
    ("seq", sequential),
    ("inter", interleaved),
    ("stride", strided),
    ("dense", dense),
    ("sparse", sparse),
    ("back", backward),
    ("unal", unaligned),
    ("eof", past_the_end),
    ("fds", descriptors),
    ("hint", hints),
    ("reread", reread),
    ("holes", holes),
    ("ctx", context),
    ("leaves", leaves),
    ("sof", start_of_file),
    ("mix", mixed),
];

/// The next episode of reads and hints.
pub(super) fn reads(rng: &mut Rng) -> EpisodeScript {
    let (kind, draw) = READS[rng.below(READS.len() as u64) as usize];
    episode(rng, kind, draw)
}

/// The next episode that needs the helper: page faults, or readahead(2).
pub(super) fn faults(rng: &mut Rng) -> EpisodeScript {
    let kinds: Vec<(&str, DrawSteps)> = faults::KINDS
        .into_iter()
        .chain([("ra2", readahead as DrawSteps)])
        .collect();
    let (kind, draw) = kinds[rng.below(kinds.len() as u64) as usize];
    episode(rng, kind, draw)
}

fn episode(rng: &mut Rng, kind: &'static str, draw: DrawSteps) -> EpisodeScript {
    let file = rng.below(SIZES.len() as u64) as usize;
    let wanted = 30 + rng.below(60) as usize;
    let mut story = Story {
        size: SIZES[file],
        fds: 1,
        steps: Vec::new(),
        wanted,
        least: 0,
    };
    draw(rng, &mut story);
    story.steps.truncate(wanted.max(story.least));
    EpisodeScript {
        kind,
        file,
        fds: story.fds,
        steps: story.steps,
    }
}

fn sequential(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let (mut off, len) = (place(rng, story.size), length(rng));
        for _ in 0..1 + story.wanted / (1 + rng.below(2) as usize) {
            story.read(0, off, len);
            off += len;
            if off >= story.size + 2 * len {
                break;
            }
        }
    }
}

fn interleaved(rng: &mut Rng, story: &mut Story) {
    let streams = 2 + rng.below(4);
    // One descriptor for all, or one for each.
    let own = rng.below(2) == 0;
    story.fds = if own { streams as u32 } else { 1 };
    let len = length(rng).min(256 << 10);
    let mut at: Vec<u64> = (0..streams).map(|_| place(rng, story.size)).collect();
    let in_turn = rng.below(3) > 0;
    for nth in 0.. {
        if story.full() {
            break;
        }
        let stream = if in_turn {
            nth % streams
        } else {
            rng.below(streams)
        };
        let fd = if own { stream as u32 } else { 0 };
        let off = &mut at[stream as usize];
        story.steps.push(Step::Pread { fd, off: *off, len });
        *off = if *off + len >= story.size {
            place(rng, story.size)
        } else {
            *off + len
        };
    }
}

fn strided(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let (mut off, len) = (place(rng, story.size), length(rng).min(128 << 10));
        let gap = match rng.below(3) {
            0 => PAGE * (1 + rng.below(3)),
            1 => PAGE * rng.below(64),
            _ => rng.below(300_000),
        };
        for _ in 0..10 + rng.below(30) {
            story.read(0, off, len);
            off += len + gap;
            if off >= story.size {
                break;
            }
        }
    }
}

fn dense(rng: &mut Rng, story: &mut Story) {
    let region = (PAGE * (16 + rng.below(240))).min(story.size);
    let base = rng.below(story.size - region + 1) / PAGE * PAGE;
    while !story.full() {
        let len = length(rng).min(32_768);
        story.read(0, base + rng.below(region) / PAGE * PAGE, len);
    }
}

fn sparse(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let (off, len) = (rng.below(story.size), length(rng));
        story.read(
            0,
            if rng.below(2) == 0 {
                off
            } else {
                off / PAGE * PAGE
            },
            len,
        );
    }
}

fn backward(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let (mut off, len) = (place(rng, story.size), length(rng).min(256 << 10));
        for _ in 0..10 + rng.below(60) {
            story.read(0, off, len);
            if off < len {
                break;
            }
            off -= len;
        }
        if rng.below(2) == 0 {
            story.read(0, off, len * 4);
        }
    }
}

fn unaligned(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let mut off = rng.below(story.size);
        for _ in 0..5 + rng.below(40) {
            let len = 1 + spread(rng, 18);
            story.read(0, off, len);
            off += len
                + if rng.below(8) == 0 {
                    rng.below(3 * PAGE)
                } else {
                    0
                };
            if off >= story.size {
                break;
            }
        }
    }
}

fn past_the_end(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let (len, before) = (length(rng), rng.below(64 * PAGE).min(story.size));
        let mut off = story.size - before;
        for _ in 0..1 + rng.below(6) {
            story.read(0, off, len);
            off += len;
        }
        if rng.below(4) == 0 {
            story.read(0, story.size + rng.below(1 << 20), len);
        }
    }
}

fn descriptors(rng: &mut Rng, story: &mut Story) {
    story.fds = 2 + rng.below(7) as u32;
    let mut at: Vec<u64> = (0..story.fds).map(|_| place(rng, story.size)).collect();
    while !story.full() {
        let fd = rng.below(u64::from(story.fds)) as u32;
        let len = length(rng).min(128 << 10);
        let off = &mut at[fd as usize];
        if rng.below(6) == 0 || *off >= story.size {
            *off = place(rng, story.size);
        }
        story.steps.push(Step::Pread { fd, off: *off, len });
        *off += len;
    }
}

fn hints(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        hint(rng, story);
        let (mut off, len) = (place(rng, story.size), length(rng).min(512 << 10));
        let forward = rng.below(3) > 0;
        for _ in 0..2 + rng.below(12) {
            story.read(0, off, len);
            off = if forward {
                off + len
            } else {
                rng.below(story.size)
            };
        }
    }
}

fn reread(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let (base, len) = (place(rng, story.size), length(rng).min(64 << 10));
        let times = 3 + rng.below(10);
        for _ in 0..2 + rng.below(2) {
            for nth in 0..times {
                story.read(0, base + nth * len, len);
            }
        }
    }
}

fn holes(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let (base, len) = (place(rng, story.size), length(rng).min(128 << 10));
        for nth in 0..4 + rng.below(12) {
            story.read(0, base + nth * len, len);
        }
        for _ in 0..1 + rng.below(3) {
            let from = base + rng.below(16 * len + 1);
            story.advise(
                0,
                "dontneed",
                from / PAGE * PAGE,
                PAGE * (1 + rng.below(64)),
            );
        }
        for nth in 0..rng.below(16) {
            story.read(0, base + nth * len, len);
        }
    }
}

fn context(rng: &mut Rng, story: &mut Story) {
    story.fds = 3;
    while !story.full() {
        let (base, pages) = (place(rng, story.size) / PAGE * PAGE, 1 + rng.below(40));
        match rng.below(3) {
            0 => story.advise(0, "willneed", base, pages * PAGE),
            _ => (0..pages.min(8)).for_each(|nth| story.read(0, base + nth * PAGE, PAGE)),
        }
        let (mut off, len) = (base + pages * PAGE, PAGE * (1 + rng.below(4)));
        let fd = 1 + rng.below(2) as u32;
        for _ in 0..2 + rng.below(10) {
            story.read(fd, off, len);
            off += len;
        }
    }
}

/// Creates large folios, drops the pages before and after some of them, and then misses right after them, so that their
/// history extends over whole leaves (64 pages) of the kernel's index.
fn leaves(rng: &mut Rng, story: &mut Story) {
    story.fds = 3;
    let leaf = 64 * PAGE;
    while !story.full() {
        let base = rng.below(story.size) / leaf / 2 * leaf;
        let (len, times) = (leaf >> rng.below(3), 8 + rng.below(20));
        if rng.below(3) == 0 {
            story.advise(0, "sequential", 0, 0);
        }
        (0..times).for_each(|nth| story.read(0, base + nth * len, len));
        let leaves = times * len / leaf + 4;
        for _ in 0..1 + rng.below(3) {
            let hole = 1 + rng.below(leaves);
            let before = hole.saturating_sub(1 + rng.below(12));
            story.advise(0, "dontneed", base + hole * leaf, leaf * (8 + rng.below(8)));
            if rng.below(4) > 0 {
                story.advise(
                    0,
                    "dontneed",
                    (base + before * leaf).saturating_sub(leaf * 16),
                    leaf * 16,
                );
            }
            let fd = 1 + rng.below(2) as u32;
            for nth in 0..1 + rng.below(3) {
                story.read(fd, base + hole * leaf + nth * PAGE, PAGE << rng.below(3));
            }
        }
    }
}

fn start_of_file(rng: &mut Rng, story: &mut Story) {
    story.fds = 4;
    while !story.full() {
        let fd = rng.below(4) as u32;
        let mut off = PAGE * rng.below(6);
        let len = length(rng).min(64 << 10);
        for _ in 0..1 + rng.below(8) {
            story.read(fd, off, len);
            off += len;
        }
        if rng.below(3) == 0 {
            story.advise(fd, "dontneed", 0, PAGE * rng.below(20));
        }
    }
}

fn mixed(rng: &mut Rng, story: &mut Story) {
    story.fds = 1 + rng.below(3) as u32;
    let parts: [DrawSteps; 6] = [
        sequential,
        sparse,
        backward,
        unaligned,
        past_the_end,
        strided,
    ];
    let wanted = story.wanted;
    while story.steps.len() < wanted {
        story.wanted = story.steps.len() + 1 + rng.below(8) as usize;
        parts[rng.below(parts.len() as u64) as usize](rng, story);
        story.steps.truncate(story.wanted);
        if rng.below(2) == 0 {
            hint(rng, story);
        }
    }
}

fn readahead(rng: &mut Rng, story: &mut Story) {
    while !story.full() {
        let (off, len) = (
            place(rng, story.size),
            PAGE * (1 + spread(rng, 9)) - rng.below(PAGE),
        );
        story.steps.push(Step::Readahead { fd: 0, off, len });
        let mut at = if rng.below(2) == 0 { off + len } else { off };
        let step = length(rng).min(128 << 10);
        for _ in 0..rng.below(12) {
            story.read(0, at, step);
            at += step;
        }
    }
}
