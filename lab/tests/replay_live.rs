//! Tests of replays on a real file, through the engine and through the page cache: order, pauses, and refused input.
//!
//! Measured times are only compared with a lower bound that holds on every machine.

use crate::common::{draft, table_of};
use crate::replay::trace_of;
use foreread_core::machine::Config;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::explain;
use foreread_lab::live::{self, Cut, LiveError};
use foreread_lab::replay::{LoadedTrace, Mode, Replay, laid_out};
use foreread_lab::report::Report;
use foreread_report::progress::Silent;
use foreread_sim::device::presets;
use foreread_sim::simulator::{self, RunResult};
use foreread_sim::workload::Workload;
use foreread_testing::says;
use foreread_trace::{After, Op, Record};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const MS: u64 = 1_000_000;
const SIZE: u64 = 8 << 20;

/// A file of eight MiB, and its directory.
fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk.img");
    std::fs::write(&path, vec![7_u8; SIZE as usize]).expect("written");
    (dir, path)
}

fn trace(records: Vec<Record>) -> Arc<LoadedTrace> {
    trace_of(records, 2 << 20)
}

fn read(thread: u32, page: u64, ms: (u64, u64)) -> Record {
    let (start_ns, end_ns) = (Some(ms.0 * MS), Some(ms.1 * MS));
    Record {
        thread,
        open: thread,
        start_ns,
        end_ns,
        ..Record::read(0, page * PAGE, PAGE)
    }
}

fn on_file(loaded: &Arc<LoadedTrace>, mode: Mode) -> Workload {
    let replay = Replay::of(loaded, Some(mode), None).expect("the trace has what the mode needs");
    laid_out(&replay.workload, SIZE).expect("the file is large enough")
}

fn engine(path: &Path, workload: &Workload, policy: &str) -> Result<RunResult, LiveError> {
    let policy = foreread_history::parse_spec(policy).expect("a policy");
    let setup = live::Setup {
        cut: Cut::never(),
        policy: &policy,
        cache_bytes: 4 << 20,
        page_bytes: PAGE,
        event_log: None,
    };
    live::engine(live::file(path)?, workload, &setup)
}

/// What is simulated is what happens: the same reads fetch the same bytes in the same commands.
#[test]
fn the_simulator_and_the_engine_count_the_same() {
    let (_dir, path) = file();
    let records = (0..300_u64).map(|n| {
        let page = if n % 4 == 3 { n / 4 } else { (n * 37) % 500 };
        Record {
            file: (n % 3) as u32,
            open: (n % 3) as u32,
            len: PAGE * (1 + n % 3),
            ..read(0, page, (n, n))
        }
    });
    let loaded = trace(records.collect());
    for mode in [Mode::Asap, Mode::Closed] {
        let workload = on_file(&loaded, mode);
        let real = engine(&path, &workload, "none").expect("readable");
        let config = Config::new(PageSize::new(PAGE).expect("a page size"), 4 << 20);
        let policy = PolicySpec::none();
        let setup = simulator::Setup::new(&workload, &policy, config, 0);
        let simulated = simulator::run(&setup, presets::find("nvme").expect("a preset").build(1));
        let counts = |run: &RunResult| {
            let s = run.stats;
            let bytes = [s.demand_bytes, s.source_bytes, run.distinct_bytes];
            (bytes, [s.demand_reads, s.hits, run.latency.len()])
        };
        assert_eq!(counts(&real), counts(&simulated), "{mode:?}");
        assert_eq!(real.stats.demand_reads, 300);
    }
}

/// Recorded pauses, times and delays are kept: no run takes less than they do.
#[test]
fn nothing_comes_before_its_time() {
    let (_dir, path) = file();
    let after = |record, end, delay_ns| vec![After::new(record, end, delay_ns)];
    let mut records = vec![
        read(0, 0, (0, 1)),
        read(0, 90, (21, 22)),
        read(1, 300, (50, 51)),
        read(1, 2, (52, 53)),
    ];
    let paused = trace(records.clone());
    records[1].after = after(0, true, 30 * MS);
    records[2].after = after(1, false, 20 * MS);
    records[3] = Record {
        op: Op::Write,
        after: after(2, true, 10 * MS),
        ..records[3].clone()
    };
    records.push(Record {
        after: after(3, true, 5 * MS),
        ..read(1, 4, (60, 61))
    });
    let dependent = trace(records);
    for (loaded, mode, least_ms, reads) in [
        (&paused, Mode::Closed, 49, 4),
        (&dependent, Mode::Deps, 65, 4),
        (&paused, Mode::Asap, 0, 4),
    ] {
        let workload = on_file(loaded, mode);
        let begun = Instant::now();
        let by_engine = engine(&path, &workload, "linux-6.18");
        for run in [by_engine, live::kernel(&path, &workload, Cut::never())] {
            let run = run.expect("readable");
            let is_late = run.time_s >= least_ms as f64 / 1e3;
            assert!(is_late, "{mode:?}: {} s", run.time_s);
            assert_eq!(run.latency.len(), reads, "{mode:?}");
        }
        assert!(begun.elapsed() >= Duration::from_millis(2 * least_ms));
    }
}

/// At a rate that no reader can keep, the run fails, and says that the reader was late; at one that can be kept, it says by how much.
#[test]
fn a_late_replayer_fails() {
    let (_dir, path) = file();
    let at = |n: u64, gap_ns: u64| Record {
        start_ns: Some(n * gap_ns),
        end_ns: None,
        ..read(0, n % 512, (0, 0))
    };
    let absurd = trace((0..30_000).map(|n| at(n, 1)).collect());
    let workload = on_file(&absurd, Mode::Open);
    let by_engine = engine(&path, &workload, "none");
    for run in [by_engine, live::kernel(&path, &workload, Cut::never())] {
        let error = run.expect_err("30,000 reads in 30 us");
        let is_late = matches!(error, LiveError::Late { late_us, .. } if late_us > 100);
        assert!(is_late, "{error}");
        let words = [
            "the replayer itself was late: ",
            "use --mode closed or asap",
        ];
        says(&error.to_string(), &words);
    }
    let calm = trace((0..20).map(|n| at(n, 5 * MS)).collect());
    match engine(&path, &on_file(&calm, Mode::Open), "none") {
        Ok(run) => {
            assert_eq!((run.latency.len(), run.stats.demand_reads), (20, 20));
            assert!(run.time_s >= 0.095 && run.late_p99_ns.is_some());
        }
        Err(LiveError::Late { .. }) => {
            println!("skipped: needs a machine that is not busy with something else")
        }
        Err(error) => panic!("{error}"),
    }
}

/// A read that fails ends the run with its error, however many others wait.
#[test]
fn a_failing_read_ends_the_run() {
    let (_dir, path) = file();
    let records = (0..40).map(|n| read((n % 8) as u32, n * 12, (n, n + 1)));
    let workload = on_file(&trace(records.collect()), Mode::Closed);
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    file.and_then(|file| file.set_len(64 * PAGE))
        .expect("shorter");
    assert!(engine(&path, &workload, "none").is_err());
    let by_kernel = live::kernel(&path, &workload, Cut::never());
    assert!(matches!(by_kernel, Err(LiveError::Short { .. })));
}

/// Through `compare`: rows, mode and notes; and for a file that is too small the error says how large it must be.
#[test]
fn a_comparison_on_a_file() {
    let (dir, path) = file();
    let records = (0..60).map(|n| Record {
        file: (n % 2) as u32,
        open: (n % 2) as u32,
        ..read(0, n, (n, n))
    });
    let loaded = trace(records.collect());
    let plan = |path: &Path| ComparePlan {
        replay: Some(Arc::new(Replay::of(&loaded, None, None).expect("ready"))),
        on: Some(compare::file(path.to_path_buf())),
        policies: vec![draft("rbd-plain")],
        runs: Some(2),
        ..ComparePlan::default()
    };
    let report = Report::of(&table_of(&plan(&path)));
    let shown = (report.mode.as_deref(), report.think, report.bound_s);
    assert_eq!(shown, (Some("closed"), Some(1.0), None));
    let names = Vec::from_iter(report.rows.iter().map(|row| row.policy.as_str()));
    assert_eq!(names, ["none", "rbd-plain", "kernel"]);
    let mut rows = report.rows.iter();
    assert!(rows.all(|row| row.demand_reads == Some(60) && row.late_p99_us.is_some()));
    let begin = "All files of the trace are taken to be on file:";
    let end = ", one after the other, each at a multiple of 1 MiB (2 files); --only selects some";
    says(&report.notes.join("\n"), &[begin, end]);
    let small = dir.path().join("small");
    std::fs::write(&small, [1; 9000]).expect("written");
    let refused = |plan: &ComparePlan| {
        let error = compare::run(plan, &mut Silent).expect_err("refused");
        error.to_string()
    };
    let needs = "the trace needs 4.19 MB for 2 files, and file:";
    let words = [needs, " has 9.00 kB; ", "--only NAME"];
    says(&refused(&plan(&small)), &words);
    let faults = trace(vec![read(0, 0, (0, 1)).op(Op::Fault)]);
    let replay = Some(Arc::new(Replay::of(&faults, None, None).expect("ready")));
    let plan = ComparePlan {
        replay,
        ..plan(&path)
    };
    let why = "test.trace takes page faults in mapped files, which is not supported with --on FILE";
    says(&refused(&plan), &[why]);
}

/// A run that takes more than its part of the time limit is left out, and an interrupt ends a run before its last read.
#[test]
fn a_run_that_takes_too_long_is_left_out() {
    let (_dir, path) = file();
    let loaded = trace((0..60).map(|n| read(0, n, (n, n))).collect());
    let plan = ComparePlan {
        replay: Some(Arc::new(Replay::of(&loaded, None, None).expect("ready"))),
        on: Some(compare::file(path.clone())),
        limit_ms: Some(0),
        ..ComparePlan::default()
    };
    let table = table_of(&plan);
    assert!(table.policies.iter().all(|row| row.runs.is_empty()));
    let notes = table.notes.join("\n");
    says(&notes, &["none was left out: the time was over"]);
    let workload = on_file(&loaded, Mode::Closed);
    let cut = Cut {
        until: None,
        stop: &AtomicUsize::new(1),
    };
    let ended = live::kernel(&path, &workload, cut);
    assert!(matches!(ended, Err(LiveError::Cut)));
}

/// A live run is explained from its event log: to the byte what the engine counted, or it is refused; and each file of
/// the trace has its own part of it, at its own offsets, though all are in one.
#[test]
fn a_live_run_is_explained_file_by_file() {
    let (_dir, path) = file();
    let scattered = (0..40_u64).map(|n| (n * 7919 + n * n * 131 + 17) % 500);
    let mut records: Vec<Record> = (0..240)
        .map(|n| Record::read(0, n * 2 * PAGE, 2 * PAGE))
        .collect();
    // Both in turn: a read at random after each six in order.
    for (n, page) in scattered.enumerate() {
        let random = Record::read(1, page * PAGE, PAGE);
        records.insert(n * 7 + 3, Record { open: 1, ..random });
    }
    let hint = Record::read(2, 0, 16 * PAGE).op(Op::Hint(foreread_core::event::Advice::WillNeed));
    for hinted in [hint, Record::read(2, 3 * PAGE, PAGE)] {
        records.push(Record { open: 2, ..hinted });
    }
    let loaded = trace(records);
    for policy in [
        "linux-6.18:max=64K",
        "linux-2.6.0:max=64K",
        "rbd-plain:trigger=2,max=64K",
        "none",
    ] {
        let replay = Replay::of(&loaded, Some(Mode::Asap), None).expect("ready");
        let plan = ComparePlan {
            replay: Some(Arc::new(replay)),
            on: Some(compare::file(path.clone())),
            cache_bytes: Some(256 << 10),
            runs: Some(1),
            ..ComparePlan::default()
        };
        let told = explain::explain(&plan, draft(policy), String::new(), &mut Silent);
        let told = told.unwrap_or_else(|error| panic!("{policy}: {error}"));
        assert_eq!(told.source, format!("file:{}", path.display()));
        says(&told.notes.join("\n"), &["event log"]);
        let of = |name: &str| told.files.iter().find(|f| f.name == name).expect(name);
        let (order, random, hinted) = (of("f0"), of("f1"), of("f2"));
        assert_eq!((order.size_bytes, hinted.hints), (2 << 20, 1), "{policy}");
        let reads = [order, random, hinted].map(|file| file.counts.demand_reads);
        assert_eq!(reads, [240, 40, 1], "{policy}");
        assert_eq!(order.counts.ra_bytes > 0, policy != "none", "{policy}");
        let is_hint_taken = policy.starts_with("linux");
        assert_eq!(hinted.counts.ra_bytes > 0, is_hint_taken, "{policy}");
        assert!(hinted.counts.source_bytes > 0, "{policy}");
        assert!(random.counts.source_bytes >= 30 * PAGE, "{policy}");
    }
}
