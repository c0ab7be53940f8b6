//! Tests of replays in the simulator: handmade traces on a device that takes the same time for every page, checked to
//! the nanosecond.
//!
//! Real files are tested in `replay_live.rs`, and trace formats in the crate `trace`.

use crate::common::{loaded, of_program, plan_on, row, table_of};
use foreread_core::machine::Config;
use foreread_core::units::PageSize;
use foreread_lab::compare::{ComparePlan, OracleRow};
use foreread_lab::replay::{LoadedTrace, MAX_OUTSTANDING, Mode, Replay};
use foreread_lab::report::{Report, Row, table};
use foreread_report::width;
use foreread_sim::device::presets;
use foreread_sim::limits::bound::Bound;
use foreread_sim::simulator;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::Job;
use foreread_testing::says;
use foreread_trace::{After, FileInfo, Header, Item, Lacks, Op, Record};
use std::sync::Arc;

const PAGE: u64 = 4096;
/// What a page costs on hdd-theory: 8 ms and 4 KiB of 102,400 KiB/s, in nanoseconds, rounded up.
const PAGE_NS: u64 = 8_039_063;
const MS: u64 = 1_000_000;

fn trace(records: Vec<Record>) -> Arc<LoadedTrace> {
    trace_of(records, 64 << 20)
}

/// The records, in files of this size.
pub fn trace_of(records: Vec<Record>, file_bytes: u64) -> Arc<LoadedTrace> {
    let files = records.iter().map(|r| r.file).max().unwrap_or(0) + 1;
    let info = |n| FileInfo::new(format!("f{n}"), Some(file_bytes));
    let infos = (0..files).map(|n| Item::File(info(n)));
    let items = infos.chain(records.into_iter().map(Item::Record));
    loaded("test.trace", of_program(), items.collect())
}

/// A read of one page, far from all others, between two times in milliseconds.
fn read(thread: u32, page: u64, ms: (u64, u64)) -> Record {
    Record {
        thread,
        open: thread,
        start_ns: Some(ms.0 * MS),
        end_ns: Some(ms.1 * MS),
        ..Record::read(0, page * 64 * PAGE, PAGE)
    }
}

/// Reads of one thread at these times.
fn at_times<const N: usize>(times: [(u64, u64); N]) -> Arc<LoadedTrace> {
    let records = (0..).zip(times).map(|(page, ms)| read(0, page, ms));
    trace(records.collect())
}

fn replay(loaded: &Arc<LoadedTrace>, mode: Mode, think: Option<f64>) -> Replay {
    Replay::of(loaded, Some(mode), think).expect("the trace has what the mode needs")
}

fn simulate(replay: &Replay) -> RunResult {
    simulate_with(replay, "none")
}

fn simulate_with(replay: &Replay, policy: &str) -> RunResult {
    let config = Config::new(PageSize::new(PAGE).expect("a page size"), 64 << 20);
    let policy = foreread_history::parse_spec(policy).expect("a policy");
    let preset = presets::find("hdd-theory").expect("a preset");
    let setup = simulator::Setup::new(&replay.workload, &policy, config, 0);
    let result = simulator::run(&setup, preset.build(1));
    let (bound, ns) = (Bound::of(&replay.workload, preset, PAGE), ns(&result));
    assert!(bound.ns() <= ns, "{bound:?} of a run of {ns} ns");
    result
}

fn ns(result: &RunResult) -> u64 {
    (result.time_s * 1e9).round() as u64
}

fn time(loaded: &Arc<LoadedTrace>, mode: Mode, think: Option<f64>) -> u64 {
    ns(&simulate(&replay(loaded, mode, think)))
}

#[track_caller]
fn waited(run: &RunResult, ns: u64) {
    let longest = run.latency.max();
    assert!(near(longest, ns), "{longest}");
}

/// Within what a histogram of three digits keeps.
fn near(got: u64, want: u64) -> bool {
    got.abs_diff(want) * 500 <= want
}

#[test]
fn as_fast_as_possible_there_are_no_pauses() {
    let one = at_times([(0, 1), (5, 6), (60, 70)]);
    assert_eq!(time(&one, Mode::Asap, None), 3 * PAGE_NS);
    // A second thread reads at the same time: the device has work for both, and each waits for the other.
    let two = trace(vec![
        read(0, 0, (0, 1)),
        read(1, 9, (100, 101)),
        read(0, 1, (105, 106)),
    ]);
    let run = simulate(&replay(&two, Mode::Asap, None));
    assert_eq!(ns(&run), 3 * PAGE_NS);
    waited(&run, 2 * PAGE_NS);
}

#[test]
fn a_closed_loop_takes_its_gaps_and_the_device() {
    let one = at_times([(10, 11), (15, 16), (16, 70), (71, 72)]);
    let thinks = [None, Some(0.5), Some(2.0), Some(0.0)];
    let pauses = thinks.map(|think| time(&one, Mode::Closed, think) - 4 * PAGE_NS);
    assert_eq!(pauses, [5 * MS, 5 * MS / 2, 10 * MS, 0]);
    // A thread that reads one file after the other keeps its gaps; one that begins later keeps that to the read before it.
    let other = |record: Record| Record {
        file: 1,
        open: 7,
        ..record
    };
    let two = vec![
        read(0, 0, (0, 1)),
        other(read(0, 1, (4, 5))),
        read(0, 2, (6, 7)),
        read(1, 3, (50, 51)),
    ];
    let run = simulate(&replay(&trace(two), Mode::Closed, None));
    assert_eq!(ns(&run), 4 * PAGE_NS + 47 * MS);
    // No read waited for another.
    waited(&run, PAGE_NS);
}

/// A program that a shell begins when the one before it has ended begins earlier where that one is faster; one that is begun while another reads
/// does as well, and the other goes on.
#[test]
fn a_reader_begins_after_the_read_that_ended_before_it() {
    let one_after_the_other = trace(vec![
        read(0, 0, (0, 50)),
        read(0, 1, (50, 100)),
        read(1, 2, (101, 150)),
        read(1, 3, (150, 200)),
    ]);
    let closed = simulate(&replay(&one_after_the_other, Mode::Closed, None));
    assert!(near(ns(&closed), 4 * PAGE_NS + MS), "{}", ns(&closed));
    let beside = trace(vec![
        read(0, 0, (0, 50)),
        read(1, 1, (60, 100)),
        read(0, 2, (90, 140)),
    ]);
    let jobs = replay(&beside, Mode::Closed, None).workload.jobs;
    let begin = jobs.iter().map(|job| (job.after, job.links.len()));
    let begin = Vec::from_iter(begin);
    assert_eq!(begin, [(None, 0), (Some(0), 0), (None, 1)]);
    let link = jobs[2].links[0];
    assert_eq!((link.job, link.end, link.delay_ns), (0, true, 10 * MS));
    assert_eq!(jobs[1].requests[0].think_ns, 40 * MS);
}

/// Two reads of one thread that overlapped overlap again; in a closed loop the third follows the one it followed.
#[test]
fn what_overlapped_overlaps() {
    let trace = at_times([(0, 30), (1, 9), (11, 12), (13, 14)]);
    let closed = replay(&trace, Mode::Closed, None);
    let pauses = |job: &Job| Vec::from_iter(job.requests.iter().map(|r| r.think_ns / MS));
    let pauses = Vec::from_iter(closed.workload.jobs.iter().map(pauses));
    assert_eq!(pauses, [vec![0], vec![1, 2, 1]]);
    let asap = replay(&trace, Mode::Asap, None);
    let [job] = &asap.workload.jobs[..] else {
        panic!("{} jobs", asap.workload.jobs.len())
    };
    assert_eq!(job.depth, 2);
    let note = "One reader keeps several reads in flight, as recorded: up to 2";
    says(&asap.notes.join("\n"), &[note]);
    let run = simulate(&asap);
    assert_eq!(ns(&run), 4 * PAGE_NS);
    waited(&run, 2 * PAGE_NS);
}

#[test]
fn without_ends_a_factor_is_on_the_gaps_between_starts() {
    let no_end = |record: Record| Record {
        end_ns: None,
        ..record
    };
    let starts = [3, 10, 14].into_iter().zip(0..);
    let reads = starts.map(|(ms, page)| no_end(read(0, page, (ms, ms))));
    let one = trace(reads.collect());
    let thinks = [None, Some(0.0), Some(1.0)];
    let pauses = thinks.map(|think| time(&one, Mode::Asap, think) - 3 * PAGE_NS);
    assert_eq!(pauses, [0, 0, 11 * MS]);
    let none = trace(vec![Record::read(0, 0, PAGE)]);
    let range = "the factor of --think is below 0 or above 100";
    let no_ends = "the think time is unknown, because the trace does not say when reads ended: test.trace, mode closed; use --mode asap";
    let no_waits = "the trace says neither what its records wait for nor when they ended";
    let no_starts = "the trace does not say when each read began";
    let no_times = "there is no pause to lengthen, because the trace has no times";
    let no_pause = "there is no pause to lengthen in mode open";
    for (of, mode, think, begin) in [
        (&one, Mode::Closed, None, no_ends),
        (&one, Mode::Deps, None, no_waits),
        (&one, Mode::Open, Some(1.0), no_pause),
        (&one, Mode::Asap, Some(-1.0), range),
        (&one, Mode::Asap, Some(f64::NAN), range),
        (&none, Mode::Open, None, no_starts),
        (&none, Mode::Asap, Some(0.5), no_times),
    ] {
        let error = Replay::of(of, Some(mode), think)
            .expect_err(begin)
            .to_string();
        assert!(error.starts_with(begin), "{error}");
    }
}

/// Latency counts from the recorded time: a read that cannot be served at once has waited since then.
#[test]
fn an_open_loop_counts_from_the_recorded_time() {
    let one = at_times([(5, 6), (6, 7), (7, 8), (105, 106)]);
    let run = simulate(&replay(&one, Mode::Open, None));
    assert_eq!(ns(&run), 100 * MS + PAGE_NS);
    let latencies = run.latency.iter_recorded().map(|v| v.value_iterated_to());
    let latencies = Vec::from_iter(latencies);
    // Two of them wait for a page.
    let want = [PAGE_NS, 2 * PAGE_NS - MS, 3 * PAGE_NS - 2 * MS];
    assert_eq!(latencies.len(), want.len());
    let mut pairs = latencies.iter().zip(want);
    let are_near = pairs.all(|(got, want)| near(*got, want));
    assert!(are_near, "{latencies:?} {want:?}");
}

/// Coordinated omission: the device stalls for a long read, and the small reads that were due meanwhile have waited.
#[test]
fn a_stall_shows_in_the_high_percentiles() {
    let mut records: Vec<Record> = (0..99).map(|n| read(0, n, (10 * n, 10 * n + 9))).collect();
    // 20 MiB: 208 ms, beside the others, through its own description.
    let long = Record {
        offset: 32 << 20,
        len: 20 << 20,
        ..read(1, 0, (500, 700))
    };
    records.insert(51, long);
    let stalled = trace(records);
    let [open, closed] = [Mode::Open, Mode::Closed].map(|mode| {
        let run = simulate(&replay(&stalled, mode, None));
        run.latency.value_at_quantile(0.9)
    });
    // Ten reads and more were due in 208 ms; in a closed loop one read waits, and no other read is issued.
    assert!(open > 100 * MS && closed < 10 * MS, "{open} {closed}");
}

#[test]
fn dependencies_are_kept() {
    let after = After::new;
    let waiting = |page: u64, after: Vec<After>| Record {
        after,
        ..Record::read(0, page * 64 * PAGE, PAGE)
    };
    let three = trace(vec![
        waiting(0, vec![]),
        waiting(1, vec![after(0, true, 20 * MS)]),
        waiting(2, vec![after(0, false, MS)]),
    ]);
    let chosen = Replay::of(&three, None, None).expect("fine");
    assert_eq!(chosen.mode, Mode::Deps);
    // The third waits in the device's queue while the first is served; the second comes 20 ms after the first.
    let times = [None, Some(0.5), Some(0.0)].map(|think| time(&three, Mode::Deps, think));
    let two = 2 * PAGE_NS;
    assert_eq!(times, [two + 20 * MS, two + 10 * MS, 3 * PAGE_NS]);
    waited(&simulate(&replay(&three, Mode::Deps, None)), two - MS);
    // A write takes no time, but a read that waits for it waits for what it waited for.
    let write = waiting(5, vec![after(0, true, 3 * MS)]).op(Op::Write);
    let through = trace(vec![
        waiting(0, vec![]),
        write,
        waiting(1, vec![after(1, true, 4 * MS), after(0, true, MS)]),
    ]);
    assert_eq!(time(&through, Mode::Deps, None), 2 * PAGE_NS + 7 * MS);
    // Its start counts, too.
    let write = waiting(5, vec![]).op(Op::Write);
    let started = trace(vec![write, waiting(1, vec![after(0, false, 4 * MS)])]);
    assert_eq!(time(&started, Mode::Deps, None), PAGE_NS + 4 * MS);
    let long = trace(vec![
        waiting(0, vec![]),
        waiting(1, vec![after(0, true, u64::MAX)]),
    ]);
    let error = Replay::of(&long, None, None).expect_err("centuries");
    let why = "the delays add up to more than 400 days: test.trace, record 2";
    says(&error.to_string(), &[why]);
}

#[test]
fn faults_are_touches_and_hints_count() {
    let fault = |ms| read(0, 0, (ms, ms + 1)).op(Op::Fault);
    let hint = Record {
        op: Op::Hint(foreread_core::event::Advice::WillNeed),
        ..Record {
            len: 64 * PAGE,
            end_ns: None,
            ..read(0, 1, (40, 40))
        }
    };
    let one = trace(vec![fault(0), fault(30), hint, read(0, 1, (900, 901))]);
    for mode in [Mode::Asap, Mode::Closed, Mode::Open] {
        let s = simulate_with(&replay(&one, mode, None), "linux-2.6.23").stats;
        // The second fault is none: its page is mapped.
        assert_eq!((s.demand_reads, s.misses), (2, 1), "{mode:?}");
        assert!(s.ra_bytes >= 64 * PAGE, "the hint reads it all: {s:?}");
    }
}

/// The mode that is chosen, and the sentence that says so.
#[test]
fn the_best_mode_is_chosen_and_said() {
    let full = at_times([(0, 1), (2, 3)]);
    let chosen = Replay::of(&full, None, None).expect("fine");
    assert_eq!((chosen.mode, chosen.think), (Mode::Closed, Some(1.0)));
    assert_eq!(
        chosen.notes,
        [
            "Replayed in mode closed, because the trace has the calls of a program with their starts and ends: each reader's \
          next read begins when its previous read has ended and then the recorded pause has passed"
        ]
    );
    let none = trace(vec![Record::read(0, 0, PAGE)]);
    assert_eq!(
        Replay::of(&none, None, None).expect("fine").mode,
        Mode::Asap
    );
}

fn compared(replay: Replay, model: &str, oracle: OracleRow) -> foreread_lab::report::Table {
    table_of(&ComparePlan {
        replay: Some(Arc::new(replay)),
        oracle,
        runs: Some(3),
        ..plan_on(model, &["none", "linux-6.18"])
    })
}

/// On every model and in every mode no row is below its bound, and the oracle, where there is one, is a limit.
#[test]
fn limits_hold_in_every_mode() {
    let mut records: Vec<Record> = Vec::new();
    for n in 0..200_u64 {
        let thread = (n % 3) as u32;
        let at = Record {
            offset: (n / 3) * 2 * PAGE,
            len: 2 * PAGE,
            ..read(thread, 0, (n * 2, n * 2 + 5))
        };
        let after = n
            .checked_sub(2)
            .map(|record| After::new(record, n % 2 == 0, MS / 2));
        records.push(Record {
            file: thread,
            after: after.into_iter().collect(),
            ..at
        });
    }
    let loaded = trace(records);
    for model in ["hdd-theory", "rbd", "nvme", "object-near", "hdd-7200"] {
        for mode in Mode::ALL {
            let table = compared(replay(&loaded, mode, None), model, OracleRow::Asked);
            let report = Report::of(&table);
            assert_eq!(report.mode.as_deref(), Some(mode.json_name()));
            if mode == Mode::Open {
                let why = "The oracle was left out: it shows the shortest total time";
                says(&table.notes.join("\n"), &[why]);
                assert!(table.policies.iter().all(|row| row.policy != "oracle"));
                continue;
            }
            let times = |policy: &str| row(&table, policy).times_s().into_iter();
            let best = times("none").zip(times("linux-6.18"));
            for (oracle, (none, linux)) in times("oracle").zip(best) {
                let is_least = oracle <= none.min(linux) * 1.0001;
                assert!(is_least, "{model} {mode:?}: {oracle}, {none}, {linux}");
            }
        }
    }
}

/// In mode open the rows are judged by how long reads wait, and the table says so.
#[test]
fn open_loops_are_judged_by_latency() {
    let records = (0..400).map(|n| Record {
        offset: n * PAGE,
        ..read(0, 0, (n, n + 1))
    });
    let replay = replay(&trace(records.collect()), Mode::Open, None);
    let report = Report::of(&compared(replay, "rbd", OracleRow::Usual));
    let judged = (report.judged_by.as_str(), report.think);
    assert_eq!(judged, ("latency_s", None));
    assert_eq!(report.best, ["linux-6.18"]);
    let row = |policy: &str| {
        let mut rows = report.rows.iter();
        rows.find(|r| r.policy == policy).expect("a row")
    };
    let [none, linux] = ["none", "linux-6.18"].map(row);
    let mean = |row: &Row| row.latency_s.as_ref().expect("judged by it").mean;
    let ratio = linux.ratio_to_none.expect("some");
    assert!(ratio == mean(linux) / mean(none) && ratio < 0.5, "{ratio}");
    let time = |row: &Row| row.time_s.as_ref().expect("measured").mean;
    let is_of_trace = time(linux) / time(none) > 0.98;
    assert!(is_of_trace, "both take the time of the trace");
    let text = table::render(&report, table::Style::default());
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(width::DEFAULT), "{text}");
    says(&text, &["wait, ms", "from when it was due"]);
    let advice =
        foreread_lab::verdict::tables::of_tables(std::slice::from_ref(&report), |_| String::new());
    let advice = advice.expect("a whole table").why;
    says(&advice, &["makes test.trace wait ", " a read"]);
}

/// Readers of a trace without threads are its open descriptions.
#[test]
fn without_threads_each_description_is_a_reader() {
    let jobs = |threads: bool| {
        let records = [read(0, 0, (0, 1)), read(1, 1, (2, 3))];
        let records = records.map(|r| Item::Record(Record { thread: 0, ..r }));
        let file = std::iter::once(Item::File(FileInfo::default()));
        let lacks = Lacks {
            threads,
            ..Lacks::default()
        };
        let header = Header {
            lacks,
            ..Header::default()
        };
        let loaded = loaded("t", header, file.chain(records).collect());
        let jobs = replay(&loaded, Mode::Asap, None).workload.jobs;
        Vec::from_iter(jobs.iter().map(|job| job.after))
    };
    assert_eq!(jobs(false), [None, Some(0)]);
    assert_eq!(jobs(true), [None, None]);
}

/// One read more than may be outstanding waits, and its waiting counts from its time on.
#[test]
fn what_exceeds_the_outstanding_reads_waits_and_is_counted() {
    let reads = u64::from(MAX_OUTSTANDING) + 1;
    let file = Item::File(FileInfo::new("f", Some(reads * 64 * PAGE)));
    let all = (0..reads).map(|n| {
        Item::Record(Record {
            open: 0,
            ..read(0, n, (0, 0))
        })
    });
    let items = std::iter::once(file).chain(all).collect();
    let loaded = loaded("test.trace", Header::default(), items);
    let replay = replay(&loaded, Mode::Open, None);
    let jobs = &replay.workload.jobs;
    assert_eq!((jobs.len(), jobs[0].depth), (1, MAX_OUTSTANDING));
    let note = "up to 16384 reads are outstanding at once";
    says(&replay.notes.join("\n"), &[note]);
    let run = simulate(&replay);
    assert_eq!((ns(&run), run.latency.len()), (reads * PAGE_NS, reads));
    waited(&run, reads * PAGE_NS);
}
