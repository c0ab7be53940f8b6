//! Runs every sequence of operations and every order of completion in tiny environments, and fails each Nth fetch in turn.
//!
//! An environment has four to eight pages, a cache of four pages, and two fetches in flight. Nothing is random: the
//! tree of all choices is walked to a fixed depth by replaying each path from the start, and the number of paths is
//! printed.

use crate::common::World;
use foreread_core::event::Class;
use foreread_core::machine::Config;
use foreread_core::units::PageSize;

const PAGE: u64 = 4096;

fn tiny(policy: &str) -> World {
    let mut config = Config::new(PageSize::new(PAGE).expect("4096"), 4 * PAGE);
    config.max_in_flight = 2;
    let mut world = World::with(policy, config, 8 * PAGE - 100);
    world.release_at_once = false;
    world
}

/// The choices in a state: a few reads, an invalidation, and for each fetch and lease in progress what can become of it.
fn choices(world: &World) -> usize {
    READS.len() + 1 + 3 * world.pending.len() + world.leases.len()
}

/// Pages and lengths in bytes: one page, two, across the end, backwards of each other.
const READS: [(u64, u64); 4] = [
    (0, PAGE),
    (PAGE, 2 * PAGE),
    (2 * PAGE + 5, PAGE),
    (7 * PAGE, 2 * PAGE),
];

fn choose(world: &mut World, choice: usize) {
    if let Some(&(start, len)) = READS.get(choice) {
        world.read(start, len);
        return;
    }
    let choice = choice - READS.len();
    if choice == 0 {
        return world.invalidate(PAGE, PAGE);
    }
    let choice = choice - 1;
    let fetches = world.pending.len();
    if choice >= 3 * fetches {
        return world.release(choice - 3 * fetches);
    }
    let fetch = world.pending.keys().nth(choice / 3);
    let fetch = *fetch.expect("a fetch in progress");
    match choice % 3 {
        0 => world.finish(fetch),
        1 => world.fail(fetch),
        _ => world.progress(fetch, PAGE),
    }
}

/// Walks every path of `depth` choices; returns how many there were.
fn walk(policy: &str, depth: usize) -> u64 {
    let mut path = vec![0usize; depth];
    let mut count = 0;
    loop {
        let mut world = tiny(policy);
        let mut widths = vec![0; depth];
        for (step, &choice) in path.iter().enumerate() {
            widths[step] = choices(&world);
            choose(&mut world, choice);
            world.check();
        }
        world.settle();
        world.check_idle();
        let ended = world.ended.len() as u64;
        let all = world.next_read;
        assert_eq!(ended, all, "a read never ended: {policy} {path:?}");
        count += 1;
        // The next path, like the digits of a number whose bases differ.
        let Some(step) = (0..depth).rev().find(|&s| path[s] + 1 < widths[s]) else {
            return count;
        };
        path[step] += 1;
        path[step + 1..].fill(0);
    }
}

/// Choices in a path; more in the long run.
fn depth() -> usize {
    let depth = std::env::var("FOREREAD_DEPTH").ok();
    depth.and_then(|d| d.parse().ok()).unwrap_or(6)
}

#[test]
fn every_small_world() {
    for policy in crate::golden::SMALL_WORLDS {
        let count = walk(policy, depth());
        println!("{policy}: {count} paths of {} choices", depth());
        assert!(count > 200_000, "{policy}: only {count}");
    }
}

/// Sequential, interleaved, random and backward reads, three rounds.
fn scenario(world: &mut World, kind: usize) {
    let size = world.size;
    for i in 0..64u64 {
        let at = match kind {
            0 => i * 8192,
            1 => (i % 2) * size / 2 + (i / 2) * 4096,
            2 => i.wrapping_mul(2_654_435_761) % size,
            _ => (63 - i) * 8192,
        };
        world.read(at, 8192);
        step(world);
    }
}

/// Whether the submission of this number and class fails.
type Fails = fn(u64, Class) -> bool;

thread_local! {
    /// Submissions seen, and which of them fail.
    static FAULTS: std::cell::RefCell<(u64, Fails)> = std::cell::RefCell::new((0, |_, _| false));
}

/// Answers what is in flight, failing what is to fail.
fn step(world: &mut World) {
    while let Some(&fetch) = world.pending.keys().next() {
        let class = world.pending[&fetch].class;
        let fails = FAULTS.with_borrow_mut(|(seen, fails)| {
            *seen += 1;
            fails(*seen, class)
        });
        if fails {
            world.fail(fetch)
        } else {
            world.finish(fetch)
        }
        world.check();
    }
}

/// Fails the Nth fetch for every N, once and from then on. Everything ends, and a later read is clean.
#[test]
fn the_nth_fetch_fails() {
    static N: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    use std::sync::atomic::Ordering::Relaxed;
    let mut runs = 0;
    for policy in ["none", "linux-6.18", "rbd-plain:trigger=3"] {
        for kind in 0..4 {
            for forever in [false, true] {
                for n in 1.. {
                    N.store(n, Relaxed);
                    let once: Fails = |seen, _| seen == N.load(Relaxed);
                    let after: Fails = |seen, _| seen >= N.load(Relaxed);
                    FAULTS.with_borrow_mut(|f| *f = (0, if forever { after } else { once }));
                    let mut world = World::new(policy, 4096, 64 * 4096, 64 * 8192 - 700);
                    scenario(&mut world, kind);
                    world.check_idle();
                    assert_eq!(world.ended.len() as u64, world.next_read);
                    let failed = world.ended.values().filter(|e| e.is_err()).count();
                    assert!(forever || failed <= 1, "one fault failed {failed} reads");
                    // The faults have stopped: the next read is right.
                    FAULTS.with_borrow_mut(|f| f.1 = |_, _| false);
                    let read = world.read(4096, 12288);
                    step(&mut world);
                    assert_eq!(world.ended[&read], Ok(()));
                    world.check_idle();
                    runs += 1;
                    if FAULTS.with_borrow(|f| f.0) + 1 < n {
                        break;
                    }
                }
            }
        }
    }
    println!("{runs} runs");
    assert!(runs > 500);
}

/// Readahead may fail always: no read fails.
#[test]
fn failing_readahead_fails_no_read() {
    for policy in ["linux-6.18", "rbd-plain:trigger=3"] {
        for kind in 0..4 {
            FAULTS.with_borrow_mut(|f| *f = (0, |_, class| class == Class::Ahead));
            let mut world = World::new(policy, 4096, 64 * 4096, 64 * 8192 - 700);
            scenario(&mut world, kind);
            assert!(world.ended.values().all(Result::is_ok), "{policy} {kind}");
            let failed = world.machine.stats().failed_fetches;
            assert!(kind != 0 || failed > 0, "nothing failed");
            world.check_idle();
        }
    }
}
