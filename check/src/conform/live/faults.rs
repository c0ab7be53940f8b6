//! Test patterns with page faults: a file is mapped, pages of the mapping are touched, and some reads are done in
//! between.
//!
//! The test patterns never touch a page beyond the end of the file, because this would raise a signal.

use super::story::Step;
use super::story::{DrawSteps, Story, hint, length, place, spread};
use crate::conform::recording::{PAGE, TABLE};
use foreread_sim::rng::Rng;
use std::ops::Range;

/// The names of the patterns in a recording.
pub(super) const KINDS: [(&str, DrawSteps); 10] = [
    ("mrand", random),
    ("mseq", sequential),
    ("mback", backward),
    ("mstride", strided),
    ("madv_rand", told_random),
    ("madv_seq", told_sequential),
    ("mexec", executable),
    ("mhuge", huge),
    ("mmix", mixed),
    ("mcount", counted),
];

/// The advice values of madvise(2) on Linux.
const NORMAL: u32 = 0;
const RANDOM: u32 = 1;
const SEQUENTIAL: u32 = 2;
const HUGE: u32 = 14;

/// Maps a part of the file, or all of it; returns the number of pages.
fn map(rng: &mut Rng, story: &mut Story, prot: &'static str, advice: u32) -> u64 {
    let pages = story.pages();
    let (pgoff, npages) = match rng.below(3) {
        0 => {
            let from = rng.below(pages);
            (from, 1 + rng.below(pages - from))
        }
        _ => (0, pages),
    };
    push_map(rng, story, pgoff..pgoff + npages, prot, advice);
    npages
}

/// Half of the mappings are aligned like the file (as are those with a huge page in them); the others are anywhere.
fn push_map(rng: &mut Rng, story: &mut Story, pages: Range<u64>, prot: &'static str, advice: u32) {
    let (pgoff, npages) = (pages.start, pages.end - pages.start);
    let va = if rng.below(2) == 0 {
        pgoff % TABLE
    } else {
        rng.below(TABLE)
    };
    story.steps.push(Step::Mmap {
        fd: 0,
        pgoff,
        npages,
        va,
        prot,
        advice,
    });
}

fn touch(story: &mut Story, page: u64) {
    story.steps.push(Step::Touch { fd: 0, page });
}

/// Touches pages anywhere, or mostly near the last one, with occasional reads in between.
fn around(rng: &mut Rng, story: &mut Story, pages: u64) {
    let mut last = rng.below(pages);
    while !story.full() {
        last = if rng.below(3) == 0 {
            (last + rng.below(40)) % pages
        } else {
            rng.below(pages)
        };
        touch(story, last);
        if rng.below(12) == 0 {
            let (off, len) = (place(rng, story.size), length(rng).min(64 << 10));
            story.read(0, off, len);
        }
    }
}

/// Touches pages with a fixed step forward, from random positions.
fn forward(rng: &mut Rng, story: &mut Story, pages: u64, step: u64) {
    while !story.full() {
        let mut page = if rng.below(2) == 0 {
            0
        } else {
            rng.below(pages)
        };
        for _ in 0..10 + rng.below(80) {
            touch(story, page);
            page += step;
            if page >= pages {
                break;
            }
        }
    }
}

fn random(rng: &mut Rng, story: &mut Story) {
    let pages = map(rng, story, "r", NORMAL);
    around(rng, story, pages);
}

fn sequential(rng: &mut Rng, story: &mut Story) {
    let pages = map(rng, story, "r", NORMAL);
    forward(rng, story, pages, 1);
}

fn backward(rng: &mut Rng, story: &mut Story) {
    let pages = map(rng, story, "r", NORMAL);
    while !story.full() {
        let (mut page, step) = (rng.below(pages), 1 + rng.below(20));
        for _ in 0..10 + rng.below(60) {
            touch(story, page);
            if page < step {
                break;
            }
            page -= step;
        }
    }
}

fn strided(rng: &mut Rng, story: &mut Story) {
    let pages = map(rng, story, "r", NORMAL);
    let step = 1 + spread(rng, 8);
    forward(rng, story, pages, step);
}

fn told_random(rng: &mut Rng, story: &mut Story) {
    let pages = map(rng, story, "r", RANDOM);
    around(rng, story, pages);
}

fn told_sequential(rng: &mut Rng, story: &mut Story) {
    let pages = map(rng, story, "r", SEQUENTIAL);
    let step = 1 + rng.below(3) * rng.below(12);
    forward(rng, story, pages, step);
}

fn executable(rng: &mut Rng, story: &mut Story) {
    let advice = [NORMAL, NORMAL, SEQUENTIAL, RANDOM][rng.below(4) as usize];
    let pages = map(rng, story, "rx", advice);
    around(rng, story, pages);
}

fn huge(rng: &mut Rng, story: &mut Story) {
    let pages = map(rng, story, "r", HUGE);
    around(rng, story, pages);
}

/// Several descriptors that are mapped and read, with hints and dropped pages.
fn mixed(rng: &mut Rng, story: &mut Story) {
    story.fds = 2;
    let pages = map(rng, story, "r", NORMAL);
    while !story.full() {
        match rng.below(8) {
            0 => hint(rng, story),
            1 => {
                let from = place(rng, story.size) / PAGE * PAGE;
                story.advise(1, "dontneed", from, PAGE * (1 + rng.below(64)));
            }
            2 | 3 => {
                let (mut off, len) = (place(rng, story.size), length(rng).min(64 << 10));
                let fd = rng.below(2) as u32;
                for _ in 0..1 + rng.below(5) {
                    story.read(fd, off, len);
                    off += len;
                }
            }
            _ => {
                let from = rng.below(pages);
                for page in from..(from + 1 + rng.below(6)).min(pages) {
                    touch(story, page);
                }
            }
        }
    }
}

/// Creates folios of many orders; then causes many misses that map nothing (only of the last page, dropped each time),
/// so that the miss counter is high; then touches those folios near the start of a mapping. Each touch lowers the
/// counter by the number of pages that it maps. Reads of a byte elsewhere show the counter.
fn counted(rng: &mut Rng, story: &mut Story) {
    story.fds = 2;
    let pages = story.pages();
    let (base, len) = (
        place(rng, story.size) / PAGE,
        length(rng).clamp(PAGE, 64 << 10),
    );
    let times = 8 + rng.below(24);
    (0..times).for_each(|nth| story.read(1, base * PAGE + nth * len, len));
    // The block of the last page, whatever the block size of the file system.
    let block = (pages - 1) / 16 * 16;
    for _ in 0..20 + rng.below(50) {
        push_map(rng, story, pages - 1..pages, "r", NORMAL);
        story.advise(1, "dontneed", block * PAGE, 0);
        touch(story, 0);
    }
    let pgoff = match rng.below(3) {
        0 => 0,
        1 => base.saturating_sub(rng.below(20)),
        _ => (base + rng.below(40)).min(pages - 1),
    };
    let npages = 1 + spread(rng, 10).min(pages - pgoff - 1);
    let npages = if rng.below(2) == 0 {
        pages - pgoff
    } else {
        npages
    };
    push_map(rng, story, pgoff..pgoff + npages, "r", NORMAL);
    let reach = (base + (times * len).div_ceil(PAGE))
        .saturating_sub(pgoff)
        .clamp(1, npages);
    for _ in 0..4 + rng.below(8) {
        let page = if rng.below(2) == 0 {
            rng.below(reach)
        } else {
            rng.below(reach.min(40))
        };
        touch(story, page);
        if rng.below(2) == 0 {
            let off = place(rng, story.size);
            story.read(0, off, 1);
        }
    }
    story.least = story.steps.len();
}
