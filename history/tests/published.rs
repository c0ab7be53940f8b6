//! Tests of behaviour that only the published policies have.

use crate::common::World;
use crate::patterns::{by_pattern, ones, story};
use foreread_core::machine::Config;
use foreread_core::units::PageSize;

const PAGE: u64 = 4096;

fn config(pages: u64) -> Config {
    Config::new(PageSize::new(PAGE).expect("4096"), pages * PAGE)
}

/// A read as long as a file can be is shown to the 2003 policies page by page, and still has to begin in reasonable time.
#[test]
fn a_very_long_read_is_shown_up_to_a_limit() {
    for policy in ["linux-2.6.0-mm", "linux-2.6.0-mm-fix"] {
        let mut world = World::with(policy, config(64), 1 << 50);
        world.read(0, 1 << 50);
        assert!(world.machine.stats().ra_planned_bytes < 3 << 30, "{policy}");
    }
}

/// Each pattern by a story whose decisions are the worked examples of docs/spec/linux-readahead.md 2.8, 1.5 and 4.12.
#[test]
fn decisions_are_counted_by_pattern() {
    // Two streams on one open description, and ten reads far from each other.
    let two = (0..4).flat_map(|n| [(1000 + n, 1), (5000 + n, 1)]);
    let far = [0, 100, 500, 900, 1300, 1700, 2100, 2500, 2900, 3300];
    let far = far.map(|page| (page, 1)).to_vec();
    for (policy, reads, counts) in [
        // Windows at 0, then at the marks 1, 4, 12, 28 and 60.
        ("linux-2.6.31", ones(0..92), [1, 5, 0, 0, 0, 0, 0]),
        // 1000 is random, 1001 follows it, then the marks 1002, 1005, 1013, 1029.
        ("linux-2.6.31", ones(1000..1030), [1, 4, 0, 0, 0, 0, 1]),
        // Larger than the window: one oversize, then its mark at 5032.
        ("linux-2.6.31", vec![(5000, 64)], [0, 1, 0, 0, 0, 1, 0]),
        // Each stream begins by its cached neighbour.
        ("linux-2.6.31", two.collect(), [0, 0, 2, 0, 0, 0, 2]),
        // Windows at 0, 1, 17 and 35; the walk into a window decides nothing.
        ("linux-2.6.0", ones(0..66), [1, 3, 0, 0, 0, 0, 0]),
        // A window of 16, then seven outside it, each two pages smaller, then it is off.
        ("linux-2.6.0", far, [8, 0, 0, 0, 0, 0, 2]),
        // Off: without the fix each of 16 pages is one decision, with it the request is.
        ("linux-2.6.0-mm", vec![(100, 16)], [0, 0, 0, 0, 0, 0, 16]),
        ("linux-2.6.0-mm-fix", vec![(100, 16)], [0, 0, 0, 0, 0, 0, 1]),
    ] {
        assert_eq!(by_pattern(&story(policy, reads)), counts, "{policy}");
    }
}
