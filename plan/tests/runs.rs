//! Tests of merged runs: the example of the module, shares of runs, limits.

use foreread_plan::runs::{Runs, Selection, Touch};
use foreread_plan::{Plan, PlanFile};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const MS: u64 = 1_000_000;
const KIB: u64 = 1 << 10;

/// Reads of files `a`, `b`, ...: name, bytes, milliseconds since the start, milliseconds of waiting.
type Read = (char, Range<u64>, u64, u64);

fn runs(all: &[&[Read]]) -> Runs {
    let mut runs = Runs::default();
    for name in 'a'..='f' {
        runs.file(PlanFile::sized(name.to_string(), 10_000 * KIB))
            .expect("a number");
    }
    for run in all {
        for (name, range, at, stall) in run.iter().cloned() {
            let file = u32::from(name) - u32::from('a');
            runs.touch(Touch {
                file,
                range,
                at_ns: at * MS,
                thread: 1,
                stall_ns: stall * MS,
            });
        }
        runs.end_run();
    }
    runs
}

/// Name, bytes in KiB, milliseconds, runs.
fn told(plan: &Plan) -> Vec<(String, Range<u64>, u64, u32)> {
    let one = |range: &foreread_plan::PlanRange| {
        let name = plan.files[range.file as usize].path.display().to_string();
        (
            name,
            range.offset / KIB..range.end() / KIB,
            range.at_ns.expect("a time") / MS,
            range.runs,
        )
    };
    plan.ranges.iter().map(one).collect()
}

fn row(name: &str, range: Range<u64>, at: u64, runs: u32) -> (String, Range<u64>, u64, u32) {
    (name.to_string(), range, at, runs)
}

fn any() -> Selection {
    Selection {
        at_least: (0, 1),
        ..Selection::default()
    }
}

const FIRST: &[Read] = &[
    ('a', 0..64 * KIB, 0, 4),
    ('b', 0..8 * KIB, 20, 1),
    ('c', 0..4 * KIB, 30, 2),
];
const SECOND: &[Read] = &[
    ('a', 0..64 * KIB, 5, 0),
    ('b', 0..8 * KIB, 45, 0),
    ('d', 0..4 * KIB, 46, 0),
    ('c', 0..4 * KIB, 60, 0),
];

#[test]
fn the_second_run_is_put_among_the_first() {
    let plan = runs(&[FIRST, SECOND]).plan(&any());
    let expected = [
        row("a", 0..64, 0, 2),
        row("b", 0..8, 20, 2),
        row("d", 0..4, 21, 1),
        row("c", 0..4, 30, 2),
    ];
    assert_eq!(told(&plan), expected);
    assert_eq!(plan.files.len(), 4, "files without ranges are left out");
    let gap = |range: &foreread_plan::PlanRange| (range.after, range.gap_ns.map(|ns| ns / MS));
    let gaps: Vec<_> = plan.ranges.iter().map(gap).collect();
    let after = |number, ms| (Some(number), Some(ms));
    assert_eq!(gaps, [(None, None), after(0, 16), after(1, 0), after(2, 9)]);
}

#[test]
fn ranges_of_too_few_runs_are_left_out() {
    let of = |at_least| {
        let selection = Selection {
            at_least,
            ..Selection::default()
        };
        told(&runs(&[FIRST, SECOND]).plan(&selection)).len()
    };
    let lens = [(2, 2), (2, 3), (1, 2), (3, 2)].map(of);
    assert_eq!(lens, [3, 3, 4, 0]);
    let single = told(&runs(&[FIRST]).plan(&Selection::default()));
    assert_eq!(single.len(), 3, "of one run everything is in two thirds");
}

#[test]
fn ranges_that_overlap_in_part_are_cut() {
    let second: &[Read] = &[
        ('a', 40 * KIB..60 * KIB, 0, 0),
        ('a', 96 * KIB..120 * KIB, 1, 0),
    ];
    let all = || runs(&[&[('a', 0..100 * KIB, 0, 0)], second]);
    let both = told(&all().plan(&Selection {
        at_least: (2, 2),
        ..Selection::default()
    }));
    assert_eq!(both, [row("a", 40..60, 0, 2), row("a", 96..100, 0, 2)]);
    let bytes = all().plan(&any()).bytes();
    assert_eq!(bytes, 120 * KIB, "every byte once");
}

#[test]
fn a_page_is_planned_only_at_its_first_touch() {
    let reads: &[Read] = &[
        ('a', 0..1, 0, 1),
        ('a', 100..5000, 1, 1),
        ('b', 0..1, 2, 0),
        ('a', 0..12 * KIB, 3, 1),
    ];
    let plan = runs(&[reads]).plan(&any());
    assert_eq!(told(&plan), [row("a", 0..12, 0, 1), row("b", 0..4, 2, 1)]);
    assert_eq!(plan.ranges[0].stall_ns, 3 * MS);
}

#[test]
fn a_range_ends_with_the_file_and_a_scan_is_cut_into_pieces() {
    let scan: Vec<Read> = (0..40)
        .map(|i| ('a', i * 128 * KIB..(i + 1) * 128 * KIB, i, 0))
        .collect();
    let plan = runs(&[
        &scan,
        &[
            ('b', 9_999 * KIB..99_999 * KIB, 0, 0),
            ('c', 99_999 * KIB..u64::MAX, 0, 0),
        ],
    ])
    .plan(&any());
    let lens: Vec<u64> = plan.ranges.iter().map(|range| range.len / KIB).collect();
    assert_eq!(lens.iter().sum::<u64>(), 40 * 128 + 4);
    assert!(lens.iter().all(|len| *len <= 1024), "{lens:?}");
}

#[test]
fn a_limit_keeps_the_longest_waits() {
    // A wait for a byte: a 4/64, b 1/8, c 2/4.
    let kept = |bytes| {
        let selection = Selection {
            max_bytes: Some(bytes),
            ..any()
        };
        let kept = told(&runs(&[FIRST]).plan(&selection)).into_iter();
        kept.map(|(name, ..)| name).collect::<Vec<_>>()
    };
    assert_eq!(kept(12 * KIB), ["b", "c"]);
    assert!(kept(0).is_empty());
}

/// Random runs against a plain table of pages: every page as often as runs have it, and each once.
#[test]
fn pages_of_random_runs_are_counted() {
    let mut seed: u64 = 7;
    let mut random = move |n: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for _ in 0..300 {
        let mut counts = BTreeMap::<(char, u64), u32>::new();
        let mut all = Vec::new();
        for _ in 0..3 {
            let (mut pages, count) = (BTreeSet::new(), random(12));
            let mut read = |at| {
                let name = ['a', 'b'][random(2) as usize];
                let (start, len) = (random(30), 1 + random(12));
                let end = start + len;
                pages.extend((start..end).map(|page| (name, page)));
                (name, start * 4 * KIB..end * 4 * KIB, at, random(3))
            };
            all.push((0..count).map(&mut read).collect::<Vec<Read>>());
            for page in pages {
                *counts.entry(page).or_default() += 1;
            }
        }
        let all: Vec<&[Read]> = all.iter().map(Vec::as_slice).collect();
        for share in 1..=3 {
            let plan = runs(&all).plan(&Selection {
                at_least: (share, 3),
                ..Selection::default()
            });
            let mut got = Vec::new();
            for (name, range, ..) in told(&plan) {
                let name = name.chars().next().expect("a name");
                got.extend((range.start / 4..range.end / 4).map(|page| (name, page)));
            }
            got.sort_unstable();
            let enough = counts.iter().filter(|(_, n)| **n >= share);
            let expected: Vec<_> = enough.map(|(page, _)| *page).collect();
            assert_eq!(got, expected, "{share} of 3: {all:?}");
            let times: Vec<_> = plan.ranges.iter().map(|range| range.at_ns).collect();
            assert!(times.is_sorted(), "{times:?}");
        }
    }
}

/// Inodes 2 and 3 of a device are needed by another thread than 4, and before a file.
#[test]
fn what_is_read_of_a_block_device_is_put_together_by_place() {
    let mut runs = Runs::default();
    let file = |path: &str, mtime_ns| PlanFile {
        path: path.into(),
        size: 10_000 * KIB,
        mtime_ns,
    };
    let device = PlanFile::sized("/dev/sdx", 10_000 * KIB);
    assert!(device.is_device() && !file("/dev/sdx", Some(1)).is_device());
    let disk = runs.file(device).expect("a number");
    let file = runs.file(file("a", Some(1))).expect("a number");
    for (file, kib, at) in [
        (disk, 16, 5),
        (disk, 8, 6),
        (disk, 12, 7),
        (file, 0, 8),
        (disk, 40, 9),
        (disk, 20, 10),
    ] {
        runs.touch(Touch {
            file,
            range: kib * KIB..(kib + 4) * KIB,
            at_ns: at * MS,
            thread: at as u32,
            stall_ns: MS,
        });
    }
    runs.end_run();
    let plan = runs.plan(&any());
    let [first, second] = [(8..24, 5), (40..44, 9)].map(|(kib, at)| row("/dev/sdx", kib, at, 1));
    assert_eq!(told(&plan), [first, row("a", 0..4, 8, 1), second]);
    assert_eq!(plan.ranges[0].stall_ns, 4 * MS);
}
