//! A program that is started twice: what the second session of `auto` gains from the first, and what another program loses by it.
//!
//! Example: 400 reads of 4 KiB at random places of 40 files of 4 MiB are 400 round trips, twice. A second session that was given the
//! first one's steps has them before they are read.

use foreread_core::event::FirstRead;
use foreread_core::machine::Config;
use foreread_core::policy::{PolicySpec, auto};
use foreread_core::units::PageSize;
use foreread_sim::device::presets;
use foreread_sim::rng::Rng;
use foreread_sim::simulator::{Memory, RunResult, Setup, Watch, run, run_session};
use foreread_sim::workload::{Job, Request, Workload};

const FILES: usize = 40;
const FILE_BYTES: u64 = 4 << 20;
const READS: u64 = 10;

struct Unwatched;

impl Watch for Unwatched {
    fn event(&mut self, _event: &foreread_core::event::Event) {}
    fn notes(&mut self, _notes: Vec<foreread_core::machine::Note>) {}
}

/// Reads at random places of one file after the other; the same ones for the same seed.
fn program(seed: u64) -> Workload {
    let mut rng = Rng::new(seed);
    let mut place = || Request::read((rng.unit() * 1000.0) as u64 * 4096, 4096);
    let jobs = (0..FILES as u32).map(|file| Job {
        after: file.checked_sub(1),
        ..Job::new(file, file, (0..READS).map(|_| place()).collect())
    });
    Workload {
        name: String::new(),
        files: vec![FILE_BYTES; FILES],
        listed: false,
        page_bytes: 4096,
        jobs: jobs.collect(),
    }
}

fn session(workload: &Workload, steps: &[FirstRead]) -> (RunResult, Vec<FirstRead>) {
    let page = PageSize::new(4096).expect("a page size");
    let policy = PolicySpec::of(&auto::INFO);
    let setup = Setup {
        workload,
        policy: &policy,
        config: Config::new(page, 64 << 20),
        host_ns_per_kib: 0,
    };
    let device = || presets::find("object-near").expect("a preset").build(1);
    if steps.is_empty() {
        let names: Vec<u64> = (1000..).take(FILES).collect();
        let memory = Memory {
            names: &names,
            steps,
        };
        let (result, learned) = run_session(&setup, device(), &memory, &mut Unwatched);
        let plain = run(&setup, device());
        assert_eq!(result.time_s, plain.time_s, "names alone change nothing");
        return (result, learned);
    }
    let names: Vec<u64> = (1000..).take(FILES).collect();
    let memory = Memory {
        names: &names,
        steps,
    };
    run_session(&setup, device(), &memory, &mut Unwatched)
}

#[test]
fn a_second_session_does_not_wait_for_known_reads() {
    let (first, learned) = session(&program(1), &[]);
    let (second, _) = session(&program(1), &learned);
    assert!(
        second.time_s < first.time_s / 4.0,
        "{} s, then {} s",
        first.time_s,
        second.time_s
    );
    assert!(second.stats.source_bytes <= first.stats.source_bytes);
    assert_eq!(
        second.time_s,
        session(&program(1), &learned).0.time_s,
        "deterministic"
    );
}

/// The same files at other places, and other files: at most what was out when it showed.
#[test]
fn another_program_costs_next_to_nothing() {
    let (own, _) = session(&program(2), &[]);
    let (_, learned) = session(&program(1), &[]);
    // Blocks that are not read, of files that are.
    let other_blocks: Vec<FirstRead> = (0..2000)
        .map(|n| FirstRead {
            name: 1000 + n % FILES as u64,
            block: 63 - (n / FILES as u64) as u32,
            pages: 1,
        })
        .collect();
    for steps in [learned, other_blocks] {
        let (second, _) = session(&program(2), &steps);
        assert!(
            second.time_s < own.time_s * 1.05,
            "{} s, {} s alone",
            second.time_s,
            own.time_s
        );
        let more = second
            .stats
            .source_bytes
            .saturating_sub(own.stats.source_bytes);
        assert!(more < 4 << 20, "{more} bytes more");
    }
}

/// What is read through between two steps counts: no more goes out than the bound on waste allows, an eighth of the cache here.
#[test]
fn a_list_that_is_wrong_wastes_no_more_than_the_bound() {
    let steps: Vec<FirstRead> = (0..64 * FILES as u64)
        .map(|n| FirstRead {
            name: 1000 + n / 64,
            block: (n % 64) as u32 / 2 * 2,
            pages: 1,
        })
        .collect();
    let (second, _) = session(&program(3), &steps);
    let stats = &second.stats;
    let unused = stats.unused_bytes + stats.unresolved_bytes;
    let earned = stats.source_bytes - unused;
    assert!(
        unused <= earned + (8 << 20),
        "{unused} wasted, {earned} earned"
    );
}

/// A third session knows what the first read and the second did not.
#[test]
fn steps_of_earlier_sessions_are_kept_behind_those_of_the_latest() {
    let (_, first) = session(&program(1), &[]);
    let (_, second) = session(&program(2), &first);
    let (third, _) = session(&program(1), &second);
    let (alone, own) = session(&program(1), &[]);
    assert!(second.len() > own.len() && third.time_s < alone.time_s / 2.0);
}
