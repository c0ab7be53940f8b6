//! Tests of sources that fail: reads return the right bytes or the right error, nothing is left behind, and the next
//! read succeeds.
//!
//! An error of readahead alone never reaches a read.
//!
//! All faults that the engine is tested with, and the tests (`every_fault_has_its_test` checks that they exist):
//!
//! | fault | what happens | tests |
//! |---|---|---|
//! | F1 | EIO on readahead | faults::failing_readahead_fails_no_read |
//! | F2 | EIO on demand | faults::the_nth_fetch_fails_for_every_n |
//! | F3 | a short read, not at the end | edges::short_answers_are_continued |
//! | F4 | a short read at the end | files::at_and_past_the_end faults::an_early_end_is_short |
//! | F5 | a reply shorter than asked at an edge of ours | nbd::an_answer_has_the_requested_length |
//! | F6 | truncated, grown | files::shrunk_while_it_is_read files::appended_by_another_thread |
//! | F7 | replaced | files::replies_never_mix_versions object::a_stream_over_a_replaced_object_never_mixes |
//! | F8 | a server that ignores the range, or answers wrongly | stores::answers_that_no_retry_can_mend nbd::a_server_that_answers_wrongly_is_left |
//! | F9 | a hung request, a dribbling body | nbd::an_answer_that_dribbles_ends nbd::a_large_answer_that_makes_progress_is_not_ended object::each_deadline_ends_its_operation |
//! | F10 | a caller goes away | faults::dropped_while_busy uring::dropped_at_every_moment |
//! | F11 | io_uring is missing or forbidden | uring::forbidden_or_missing_it_falls_back_and_says_so uring::refused_in_the_middle faults::the_nth_mapping_of_files_is_refused_for_every_n |
//! | F12 | the memory is used up | edges::readahead_is_refused_before_demand bytes::reads_larger_than_the_cache |
//! | F14 | the kernel's cache above us | fuse::a_replaced_file_is_another_number_and_never_a_mix |
//! | F15 | writers outside | files::a_longer_file_copied_over_it_is_not_an_append writes::our_own_writes_are_no_change_and_those_of_others_are |
//! | F16 | thrash | rules::pages_evicted_unused_and_then_demanded_are_thrash faults::callers_take_turns_at_a_slow_source |
//! | F17 | NBD: hostile clients | nbd::bad_clients_lose_their_connection_and_no_other validate::each_rule_has_its_error fuzz::conversations_with_a_whole_server |
//! | F17 | NBD: many clients | nbd::one_client_too_many_is_refused nbd_turns::idle_clients_cost_nothing_and_active_ones_share nbd_turns::slow_clients_delay_no_other |
//! | F18 | FUSE: unmounted under load | fuse::unmounted_under_load_it_leaves_an_empty_folder |
//! | F21 | arithmetic at the ends | edges::the_largest_offsets_and_the_smallest_sizes edges::a_source_and_a_fetch_have_their_largest_size |
//! | F22 | the clock | edges::equal_times_and_a_clock_that_never_goes_back |
//! | F24 | librbd: absent, dying, late | rbd::closing_waits_for_reads_whose_caller_went_away rbd::a_cluster_that_dies_fails_the_reads_and_hangs_none |
//! | F25 | which clients may connect | nbd::a_socket_is_private_and_replaces_no_other values::a_port_without_an_address_is_local |
//! | F26 | no descriptors, EINTR, EAGAIN | edges::without_descriptors_connected_clients_are_served edges::an_interrupted_call_is_made_again |

use crate::common::{
    Rng, by, check_memory, file_of, in_threads, is_alone, named, opened, quiet, read_and_check,
    right, this_test,
};
use foreread::source::{Mem, Source};
use foreread::{Advice, Engine, Options, ReadError, Reader};
use foreread_history::policies;
use foreread_testing::{
    self as testing, Call, FaultAction, Faulty, Other, QueuedSource, SystemRequest, needs, says,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const SIZE: u64 = 1 << 20;
const EIO: i32 = 5;

/// Reads in order: which reader (0 or 1), where, how much. A length of 0 is a hint that all will be needed.
type Story = Vec<(usize, u64, usize)>;
type Named = (&'static str, fn() -> Story);

const STORIES: [Named; 6] = [
    ("sequential", || in_order().collect()),
    ("backward", || in_order().rev().collect()),
    ("random", || {
        let mut rng = Rng(3);
        let read = |_| (0, rng.below(SIZE), 1 + rng.below(9000) as usize);
        (0..60).map(read).collect()
    }),
    ("two readers", || {
        let read = |i: usize| (i % 2, (i / 2) as u64 * (12 << 10), 12 << 10);
        (0..80).map(read).collect()
    }),
    ("one large", || {
        vec![(0, 100, SIZE as usize), (1, 0, SIZE as usize)]
    }),
    ("hinted", || {
        let reads = [(0, 5000, 20_000), (1, 500_000, 300_000), (0, SIZE - 10, 10)];
        [&[(0, 0, 0)], &reads[..]].concat()
    }),
];

fn in_order() -> impl DoubleEndedIterator<Item = (usize, u64, usize)> {
    (0..64).map(|i| (0, i * (16 << 10), 16 << 10))
}

/// Small, so that pages leave as well; one worker, so that fetches come in nearly the same order every time.
fn open(source: Arc<Faulty<Mem>>, policy: &str) -> Reader {
    crate::common::watch();
    Reader::open(source, small(policy).threads(1)).expect("opens")
}

fn small(policy: &str) -> Options {
    let policy = foreread_history::parse(policy).expect("a policy");
    Options::default().policy(policy).cache_bytes(256 << 10)
}

/// Runs the story; returns how many reads failed. Every error is the injected one, every byte is right.
fn tell(readers: &[&Reader; 2], story: &[(usize, u64, usize)]) -> u64 {
    let mut failed = 0;
    let mut buf = vec![0; SIZE as usize];
    for &(reader, offset, len) in story {
        let reader = readers[reader];
        if len == 0 {
            reader.advise(Advice::WillNeed, 0..SIZE).expect("taken");
            continue;
        }
        match reader.read_at(&mut buf[..len], offset) {
            Ok(read) => {
                assert_eq!(read as u64, (len as u64).min(SIZE - offset));
                right(&buf[..read], offset, 0);
            }
            Err(ReadError::Io { errno: EIO, .. }) => failed += 1,
            Err(error) => panic!("another error: {error}"),
        }
    }
    failed
}

/// Afterwards: nothing runs, memory is as it should be, and every byte can be read.
fn clean(reader: &Reader) {
    check_memory(&quiet(reader), 4096);
    let mut buf = vec![0; SIZE as usize];
    assert_eq!(read_and_check(reader, &mut buf, 0, 0) as u64, SIZE);
    check_memory(&quiet(reader), 4096);
}

/// By fetches of threads; and by transfers of a queue that ends them late and out of order, and that no thread waits for: without a
/// worker, a caller that does not reap, or does not call the next one, hangs.
#[test]
fn the_nth_fetch_fails_for_every_n() {
    let (mut runs, mut taken) = (0, 0);
    for policy in policies() {
        for (name, story) in STORIES {
            for (lasting, is_queued) in [(false, false), (true, false), (false, true), (true, true)]
            {
                for n in 0.. {
                    let make = [Faulty::nth, Faulty::from_nth][usize::from(lasting)];
                    let source = Arc::new(make(named(SIZE), n));
                    let queued = Arc::new(QueuedSource::new(Arc::clone(&source), n));
                    let first = match is_queued {
                        false => open(Arc::clone(&source), policy.name),
                        true => {
                            let options = small(policy.name).threads(0);
                            Reader::open(Arc::clone(&queued), options).expect("opens")
                        }
                    };
                    let second = first.try_clone().expect("opens");
                    let failed = tell(&[&first, &second], &story());
                    quiet(&first);
                    let (faults, stats) = (source.faults(), first.stats());
                    let what =
                        format!("{} {name}: {failed} reads for {faults} faults", policy.name);
                    assert!(failed <= faults, "{what}");
                    assert!(lasting || failed <= 1, "one fault fails one read at most");
                    assert_eq!(stats.failed_reads, failed, "{what}");
                    // A fetch of several transfers fails once.
                    let fetches = stats.failed_fetches;
                    let is_right = fetches <= faults && (fetches == 0) == (faults == 0);
                    assert!(is_right && (is_queued || fetches == faults), "{what}");
                    source.heal();
                    clean(&second);
                    let meter = first.engine().meter();
                    drop((first, second));
                    assert_eq!((meter.held_bytes(), queued.under_way()), (0, 0));
                    (runs, taken) = (runs + 1, taken + queued.taken());
                    if faults == 0 {
                        break;
                    }
                }
            }
        }
    }
    println!("{runs} runs, {taken} transfers");
    assert!(taken > 1000);
}

/// The queue goes on no longer, from any transfer on: threads and callers read the rest, and no caller notices.
#[test]
fn the_queue_refuses_from_the_nth_transfer_on() {
    for (name, story) in STORIES {
        for (threads, depth) in [(0, 64), (1, 64), (1, 1), (0, 2)] {
            for n in 0.. {
                let queued = QueuedSource::new(named(SIZE), n);
                let queued = Arc::new(queued.refused_from(n).depth(depth));
                let options = by("linux-6.18:max=128K", 256 << 10).threads(threads);
                let reader = Reader::open(Arc::clone(&queued), options).expect("opens");
                assert_eq!(tell(&[&reader, &reader], &story()), 0, "{name}");
                assert!(queued.taken() <= n && queued.most_under_way() <= depth);
                let meter = reader.engine().meter();
                drop(reader);
                assert_eq!((meter.held_bytes(), queued.under_way()), (0, 0));
                if queued.taken() < n || n == 40 {
                    break;
                }
            }
        }
    }
}

/// Callers wait for their own bytes and for each other's, with a small cache, with workers and without: by fetches of threads, and at one
/// queue. Ends come in any order and take any time; no caller is forgotten.
#[test]
fn callers_take_turns_at_a_slow_source() {
    for (seed, threads) in (0..12).zip([0, 1, 4].into_iter().cycle()) {
        let slow = || Faulty::slow(named(SIZE), seed, Duration::from_micros(100));
        let queued = Arc::new(QueuedSource::new(slow(), seed).depth(3 + seed as usize * 5));
        let sources: [Arc<dyn Source>; 2] = [queued.clone(), Arc::new(slow())];
        for source in sources {
            let options = by("linux-6.18:max=256K", 512 << 10).threads(threads);
            let reader = Reader::open(source, options).expect("opens");
            in_threads(6, |thread| {
                let own = reader.try_clone().expect("opens");
                let mut rng = Rng(thread / 2 + seed * 10);
                let mut buf = vec![0; 150_000];
                for _ in 0..60 {
                    let (at, len) = (rng.below(SIZE), 1 + rng.below(150_000) as usize);
                    read_and_check(&own, &mut buf[..len], at, 0);
                }
            });
            check_memory(&quiet(&reader), 4096);
        }
        assert!(queued.taken() > 0 && queued.under_way() == 0);
    }
}

/// A reaper that has its bytes leaves: a sleeping caller has to be woken to reap, since no other thread will.
#[test]
fn a_reaper_that_leaves_wakes_the_next() {
    for seed in 0..40 {
        let queued = Arc::new(QueuedSource::new(named(SIZE), seed));
        let mut options = Options::default().policy("none").threads(0);
        // Two fetches for each read: a lone one would be read without the queue.
        options.limits.max_fetch_bytes = Some(64 << 10);
        let reader = Reader::open(Arc::clone(&queued), options).expect("opens");
        let together = Barrier::new(3);
        in_threads(3, |thread| {
            together.wait();
            let read = read_and_check(&reader, &mut [0; 128 << 10], thread << 18, 0);
            assert_eq!(read, 128 << 10);
        });
        let missed = reader.engine().gauges().missed_calls;
        assert_eq!((missed, queued.taken()), (0, 6), "seed {seed}");
    }
}

/// Readers that go at every moment, with fetches or transfers under way: dropping waits for them, and nothing stays.
#[test]
fn dropped_while_busy() {
    let mut busy = 0;
    for n in 0..60 {
        let slow = || Faulty::slow(named(64 << 20), n, Duration::from_micros(500));
        let (queued, plain) = (Arc::new(QueuedSource::new(slow(), n)), Arc::new(slow()));
        let sources: [Arc<dyn Source>; 2] = [queued.clone(), plain.clone()];
        for source in sources {
            let options = Options::default().policy("linux-6.18:max=2M");
            let reader = Reader::open(source, options.threads((n % 3) as u32)).expect("opens");
            let mut buf = vec![0; 64 << 10];
            for i in 0..n % 20 {
                assert_eq!(read_and_check(&reader, &mut buf, i << 16, 0), 64 << 10);
            }
            let advised = reader.advise(Advice::WillNeed, 32 << 20..40 << 20);
            advised.expect("taken");
            busy += u64::from(queued.under_way() > 0);
            let meter = reader.engine().meter();
            drop(reader);
            assert_eq!((meter.held_bytes(), queued.under_way()), (0, 0));
        }
        let counts = (Arc::strong_count(&queued), Arc::strong_count(&plain));
        assert_eq!(counts, (1, 1));
    }
    assert!(busy > 30, "{busy} times there was something under way");
}

/// 20 % of the readahead fetches fail. No demand read does.
#[test]
fn failing_readahead_fails_no_read() {
    let waited: Arc<Mutex<Vec<Range<u64>>>> = Arc::default();
    let rng = Mutex::new(Rng(9));
    let seen = Arc::clone(&waited);
    let rule = move |call: Call| {
        let overlaps = |r: &Range<u64>| r.start < call.offset + call.len && call.offset < r.end;
        let demanded = seen.lock().expect("no panic").iter().any(overlaps);
        match rng.lock().expect("no panic").below(5) == 0 && !demanded {
            true => FaultAction::Fail(EIO),
            false => FaultAction::Pass,
        }
    };
    // A million of them: ./test-long faults.
    let reads = std::env::var("FOREREAD_READS");
    let reads: u64 = reads.map_or(10_240, |n| n.parse().expect("a number"));
    let each = reads.div_ceil(4);
    let source = Arc::new(Faulty::new(named((each * 4) << 14), rule));
    let options = by("linux-6.18:max=64K", 4 << 20);
    let reader = Reader::open(Arc::clone(&source), options).expect("opens");
    in_threads(4, |thread| {
        let own = reader.try_clone().expect("opens");
        let mut buf = vec![0; 16 << 10];
        for i in 0..each {
            let at = (thread * each + i) * (16 << 10);
            let range = at..at + (16 << 10);
            waited.lock().expect("no panic").push(range.clone());
            assert_eq!(read_and_check(&own, &mut buf, at, 0), 16 << 10);
            waited.lock().expect("no panic").retain(|r| *r != range);
            // Time for the workers to get to the readahead before its reader does.
            std::thread::sleep(Duration::from_micros(20));
        }
    });
    quiet(&reader);
    let (stats, faults) = (reader.stats(), source.faults());
    assert_eq!((stats.failed_reads, stats.failed_fetches), (0, faults));
    assert!(faults > reads / 100, "{faults} faults");
    println!("{reads} demand reads of 16 KiB, {faults} failed reads of readahead, no other");
}

fn workspace() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("the workspace")
}

/// The table at the head of this file names tests that are there, for every fault.
#[test]
fn every_fault_has_its_test() {
    let file = |name: &str| match name {
        "rules" => workspace().join("core/tests/rules.rs"),
        "validate" => workspace().join("engine/src/nbd/validate.rs"),
        "values" => workspace().join("cli/src/args/values.rs"),
        _ => workspace().join(format!("engine/tests/{name}.rs")),
    };
    let head = include_str!("faults.rs").lines();
    let mut faults = Vec::new();
    for row in head.filter_map(|line| line.strip_prefix("//! | F")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        faults.push(cells[0].parse::<u32>().expect("a number"));
        for test in cells[2].split(' ') {
            let (name, test) = test.split_once("::").expect("file::test");
            let text = std::fs::read_to_string(file(name)).expect(name);
            let is_there = text.contains(&format!("fn {test}("));
            assert!(is_there, "F{}: there is no {name}::{test}", cells[0]);
        }
    }
    faults.dedup();
    let all: Vec<u32> = (1..=26).filter(|n| ![13, 19, 20, 23].contains(n)).collect();
    assert_eq!(faults, all);
}

/// The text of all Rust files below a folder.
fn sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let text = |path: PathBuf| match path.extension() {
        Some(end) if end == "rs" => std::fs::read_to_string(&path).expect("a source"),
        None if path.is_dir() => sources(&path),
        _ => String::new(),
    };
    entries.map(|entry| text(entry.path())).collect()
}

/// Every limit of SEMANTICS.md names tests that are there, or says that it has none.
#[test]
fn every_limit_names_its_test() {
    let folders = "core/src core/tests engine/src engine/tests lab/src attach/src attach/pagecache/src observe/src os/src \
        check/tests plan/tests cli/tests";
    let folders = folders.split(' ').map(|folder| workspace().join(folder));
    let all: String = folders.map(|folder| sources(&folder)).collect();
    let page = std::fs::read_to_string(workspace().join("SEMANTICS.md")).expect("SEMANTICS.md");
    let (_, limits) = page.split_once("## Limits").expect("a table");
    let limits = limits.split("## ").next().unwrap_or_default();
    let rows = limits.lines().filter(|line| line.starts_with("| "));
    let rows = Vec::from_iter(rows.skip(1));
    assert!(rows.len() >= 20, "{} rows", rows.len());
    for row in rows {
        let cell = row.trim_end_matches('|').rsplit('|').next();
        let cell = cell.expect("a cell").trim();
        let has_test = cell.starts_with('`') || cell.starts_with("none: ");
        assert!(has_test, "no test: {row}");
        for test in cell.split('`').skip(1).step_by(2) {
            let is_there = all.contains(&format!("fn {test}("));
            assert!(is_there, "there is no {test}: {row}");
        }
    }
}

/// Anything fails now and then, under several threads; then nothing does.
#[test]
fn one_in_five_under_threads() {
    for policy in policies() {
        let source = Arc::new(Faulty::share(named(SIZE), 4, 200));
        let options = small(policy.name);
        let reader = Reader::open(Arc::clone(&source), options).expect("opens");
        in_threads(4, |thread| {
            let (own, mut rng) = (reader.try_clone().expect("opens"), Rng(thread));
            for _ in 0..20 {
                let story = STORIES[rng.below(6) as usize].1();
                tell(&[&own, &reader], &story);
            }
        });
        quiet(&reader);
        assert!(source.faults() > 0 && reader.stats().failed_reads > 0);
        source.heal();
        clean(&reader);
    }
}

/// A source that ends before its size says so.
#[test]
fn an_early_end_is_short() {
    let half = |call: Call| FaultAction::Cut((SIZE / 2).saturating_sub(call.offset) as usize);
    let source = Arc::new(Faulty::new(named(SIZE), half));
    let reader = open(Arc::clone(&source), "none");
    let mut buf = vec![0; 64 << 10];
    assert_eq!(read_and_check(&reader, &mut buf, 0, 0), 64 << 10);
    // The last page in front of the early end arrives whole; what reaches beyond it does not.
    let last = SIZE / 2 - 4096;
    assert_eq!(read_and_check(&reader, &mut buf[..4096], last, 0), 4096);
    for offset in [SIZE / 2 - 100, SIZE / 2, SIZE - 1] {
        let error = reader.read_at(&mut buf[..8192], offset);
        let error = error.expect_err("no bytes there");
        assert!(matches!(error, ReadError::Short { .. }), "{error}");
        says(&error.to_string(), &[&format!("at {offset}")]);
        assert_eq!(error.errno(), EIO);
    }
    source.heal();
    clean(&reader);
}

/// A source with a bug is a source with an error; no caller hangs.
#[test]
fn a_panic_is_an_error() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"a bug in a source") {
            usual(info);
        }
    }));
    let bug = |call: Call| match call.nth % 3 {
        1 => FaultAction::Panic,
        _ => FaultAction::Pass,
    };
    let source = Arc::new(Faulty::new(named(SIZE), bug));
    let reader = open(Arc::clone(&source), "linux-6.18:max=128K");
    let failed = tell(&[&reader, &reader], &STORIES[2].1());
    assert!(failed > 0);
    source.heal();
    clean(&reader);
}

/// What the source holds in version `v`.
fn version(v: u16) -> Vec<u8> {
    testing::pattern(0, 64 << 10, v)
}

/// A memory of 64 KiB of which the `n`th call of this kind fails, and with `lasting` all later ones.
fn failing(what: Other, n: u64, lasting: bool) -> Arc<Faulty<Mem>> {
    let memory = Mem::new(version(0));
    Arc::new(Faulty::nth_of(memory, what, n, lasting))
}

/// A source that cannot take over its new version goes on to say that it has changed: no read mixes two, and none hangs.
#[test]
fn the_nth_accept_fails_for_every_n() {
    for lasting in [false, true] {
        for n in 0.. {
            let source = failing(Other::Accept, n, lasting);
            let reader = open(Arc::clone(&source), "linux-6.18:max=128K");
            let mut buf = vec![0; 10_000];
            assert_eq!(read_and_check(&reader, &mut buf, 0, 0), 10_000);
            for v in 1..4 {
                source.inner().replace(version(v));
                reader.advise(Advice::DontNeed, 0..0).expect("taken");
                let mut told = 0;
                for _ in 0..8 {
                    match reader.read_at(&mut buf, 20_000) {
                        Ok(10_000) => right(&buf, 20_000, v),
                        Err(ReadError::Changed { .. }) => told += 1,
                        other => panic!("accept {n}: {other:?}"),
                    }
                }
                let is_right = told > 0 && (lasting || told <= 2);
                assert!(is_right, "accept {n}: told {told} times");
            }
            let faults = source.faults();
            source.heal();
            let _ = reader.read_at(&mut buf, 0);
            assert_eq!(read_and_check(&reader, &mut buf, 0, 3), 10_000);
            assert_eq!(reader.size(), 64 << 10);
            check_memory(&quiet(&reader), 4096);
            if faults == 0 {
                break;
            }
        }
    }
}

/// A flush that fails is kept for every later one, and what it was for can still be read. Opened again it starts clean.
#[test]
fn the_nth_flush_fails_for_every_n() {
    for lasting in [false, true] {
        for n in 0..5 {
            let source = failing(Other::Flush, n, lasting);
            let reader = open(Arc::clone(&source), "none");
            reader.allow_writes().expect("memory");
            let mut failed = 0;
            for at in (0..4).map(|block| block * 5000) {
                let bytes = testing::pattern(at, 5000, 9);
                reader.write_at(&bytes, at).expect("written");
                failed += u64::from(reader.flush().is_err_and(|error| error.errno() == EIO));
                read_and_check(&reader, &mut [0; 5000], at, 9);
            }
            // The storage is not asked again once it failed.
            let expected = (4_u64.saturating_sub(n), u64::from(n < 4));
            assert_eq!((failed, source.faults()), expected, "flush {n}");
            source.heal();
            assert_eq!(reader.flush().is_ok(), n >= 4, "flush {n}: kept");
            drop(reader);
            let again = open(Arc::clone(&source), "none");
            again.allow_writes().expect("memory");
            assert!(again.flush().is_ok(), "flush {n}: opened again");
        }
    }
}

/// With no thread to be had, and whichever is the first: every read is right, by threads, by a queue, by tasks.
#[test]
fn the_nth_thread_is_refused_for_every_n() {
    needs!(is_alone(this_test!()));
    let mut refused = 0;
    for lasting in [false, true] {
        for n in 0.. {
            testing::refuse(SystemRequest::Thread, Some(n), lasting);
            for seed in 0..2 {
                let options = by("linux-6.18:max=128K", 256 << 10).threads(3);
                let slow = Faulty::slow(named(SIZE), seed, Duration::from_micros(50));
                let reader = match seed {
                    0 => Reader::open(Arc::new(slow), options),
                    _ => Reader::open(Arc::new(QueuedSource::new(slow, n)), options),
                };
                let reader = reader.expect("opens");
                for (_, story) in STORIES {
                    assert_eq!(tell(&[&reader, &reader], &story()), 0, "thread {n}");
                }
                let mut buf = vec![0; 50_000];
                let read = pollster::block_on(reader.read_at_async(&mut buf, 300_000));
                assert_eq!(read.ok(), Some(50_000), "thread {n}");
                check_memory(&quiet(&reader), 4096);
            }
            let fired = !testing::is_due(SystemRequest::Thread);
            testing::refuse(SystemRequest::Thread, None, false);
            refused += u64::from(fired);
            if !fired {
                break;
            }
        }
    }
    assert!(refused >= 4, "{refused}");
}

/// An NBD server whose first thread cannot be had says so; no client waits for one that will never be.
#[test]
#[cfg(feature = "nbd")]
fn a_server_without_its_first_thread_is_an_error() {
    needs!(is_alone(this_test!()));
    use foreread::front::nbd::{Listen, NbdSettings, Server};
    let dir = tempfile::tempdir().expect("a directory");
    let reader = || opened(named(SIZE), Options::default());
    let place = [Listen::Unix(dir.path().join("s"))];
    testing::refuse(SystemRequest::Thread, Some(0), true);
    let bind = || Server::bind(&place, reader(), NbdSettings::default());
    let error = bind().err().expect("no thread");
    assert_eq!(error.kind, foreread::front::FrontErrorKind::System);
    let error = error.to_string();
    says(&error, &["no thread can be started", "ulimit -u"]);
    testing::refuse(SystemRequest::Thread, None, false);
    assert!(bind().is_ok(), "the place is free again");
}

/// Memory that the system does not map: buffers come from the allocator, and every read is right.
#[test]
fn the_nth_mapping_is_refused_for_every_n() {
    needs!(is_alone(this_test!()));
    // Each round needs one slab more than what the ones before have left.
    for n in 0..3_u64 {
        let size = (n + 1) * (36 << 20);
        testing::refuse(SystemRequest::Mapping, Some(0), n == 2);
        let reader = opened(named(size), by("linux-6.18:max=1M", size));
        let mut buf = vec![0; 1 << 20];
        for i in 0..size >> 20 {
            assert_eq!(read_and_check(&reader, &mut buf, i << 20, 0), 1 << 20);
        }
        let is_refused = !testing::is_due(SystemRequest::Mapping);
        assert!(is_refused, "mapping {n} was never asked for");
        testing::refuse(SystemRequest::Mapping, None, false);
        check_memory(&quiet(&reader), 4096);
    }
}

/// A ring of io_uring is memory that the kernel maps. Where it is refused, threads read the file, and the file says so; the
/// next file has a ring again.
#[test]
#[cfg(feature = "uring")]
fn the_nth_mapping_of_files_is_refused_for_every_n() {
    needs!(is_alone(this_test!()));
    let file = file_of(4 << 20, 0);
    let options = Options::default().cache_bytes(8 << 20);
    let open = || Reader::open(file.path(), options.clone()).expect("opens");
    let read_all = |reader: &Reader| {
        for i in 0..40 {
            let read = read_and_check(reader, &mut vec![0; 100_000], i * 100_000, 0);
            assert_eq!(read, 100_000);
        }
        check_memory(&quiet(reader), 4096);
    };
    let usual = open().describe();
    if !usual.ends_with("direct, io_uring") {
        return println!("skipped: needs a file system with direct I/O and io_uring: {usual}");
    }
    let mut without = 0;
    for lasting in [false, true] {
        for n in 0.. {
            testing::refuse(SystemRequest::Mapping, Some(n), lasting);
            let (first, second) = (open(), open());
            [&first, &second].into_iter().for_each(read_all);
            let fired = !testing::is_due(SystemRequest::Mapping);
            testing::refuse(SystemRequest::Mapping, None, false);
            let words = "io_uring got too little locked memory: ENOMEM";
            let refused = |reader: &Reader| reader.describe().contains(words);
            let expected = [fired && n == 0, fired && (n == 1 || lasting && n == 0)];
            assert_eq!([&first, &second].map(refused), expected);
            without += u32::from(fired);
            assert_eq!(open().describe(), usual, "mapping {n}: rings are back");
            if !fired {
                break;
            }
        }
    }
    assert!(without >= 4, "{without}");
}

/// A file that cannot be opened is an error that says what to do; the engine and the files that it has go on.
#[test]
fn the_nth_open_fails_for_every_n() {
    needs!(is_alone(this_test!()));
    let file = file_of(100_000, 0);
    for n in 0..5 {
        let engine = Engine::new(Options::default().cache_bytes(4 << 20)).expect("an engine");
        testing::refuse(SystemRequest::File, Some(n), false);
        let opened: Vec<_> = (0..4).map(|_| engine.open(file.path())).collect();
        testing::refuse(SystemRequest::File, None, false);
        let failed = opened.iter().position(Result::is_err);
        assert_eq!(failed, (n < 4).then_some(n as usize));
        for reader in &opened {
            match reader {
                Err(error) => says(&error.to_string(), &["ulimit -n"]),
                Ok(reader) => {
                    assert_eq!(read_and_check(reader, &mut [0; 5000], 70_000, 0), 5000)
                }
            }
        }
        let files = opened.iter().flatten().count() as u64;
        assert_eq!(engine.gauges().files, files);
        drop(opened);
        let gauges = engine.gauges();
        let left = (gauges.files, gauges.opens, engine.meter().held_bytes());
        assert_eq!(left, (0, 0, 0));
    }
}
