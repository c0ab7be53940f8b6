//! Compares limits with the rows of a comparison: no row is below the bound, few policies beat the oracle, and of the
//! bytes that no reader wants the oracle reads only gaps.
//!
//! Sizes are small, so that every workload can be combined with every model and policy.

mod search;

use foreread_core::event::Advice;
use foreread_core::machine::Config;
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_core::units::PageSize;
use foreread_history::{OPPONENTS, parse, policies};
use foreread_lab::compare::{self, CompareError, ComparePlan, OracleRow};
use foreread_lab::report::{Report, Table};
use foreread_report::progress::Silent;
use foreread_sim::device::presets::{self, Model, PRESETS, Preset};
use foreread_sim::limits::bound::Bound;
use foreread_sim::limits::oracle;
use foreread_sim::simulator;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::{Job, Request, Workload};

/// An example of each kind of workload, and the size that it spans here.
fn small_workloads() -> Vec<(&'static str, u64)> {
    let mut all = vec![
        ("sequential", 24 << 20),
        ("sequential:record=4K,depth=4", 4 << 20),
        ("sequential:record=16K,think=300", 8 << 20),
        ("random:count=300", 1 << 30),
        ("interleaved:streams=5", 24 << 20),
        ("aio-random:batch=8", 16 << 20),
    ];
    for info in foreread_history::workloads() {
        if all
            .iter()
            .all(|(name, _)| name.split(':').next() != Some(info.name))
        {
            all.push((info.name, info.least_bytes.max(16 << 20)));
        }
    }
    all
}

fn tables(
    workload: &str,
    model: &str,
    size: u64,
    runs: u32,
    policies: &[&str],
    cache: Option<u64>,
) -> Table {
    let plan = ComparePlan {
        workload: Some(workload.to_string()),
        on: Some(compare::model(model).expect("a model")),
        policies: policies
            .iter()
            .map(|p| parse(p).expect("a policy"))
            .collect(),
        oracle: OracleRow::Asked,
        runs: Some(runs),
        seed: 1,
        size_bytes: Some(size),
        cache_bytes: cache,
        ..ComparePlan::default()
    };
    let mut made =
        compare::run(&plan, &mut Silent).unwrap_or_else(|e| panic!("{workload} on {model}: {e}"));
    made.remove(0)
}

fn row<'a>(table: &'a Table, policy: &str) -> &'a [RunResult] {
    &table
        .policies
        .iter()
        .find(|p| p.policy == policy)
        .expect("a row")
        .runs
}

/// What the oracle's choice of fetches may cost it once, at the start of a run that is not bound by the device (see `limits/oracle`).
const START: f64 = 1.0005;

/// The same, for the mean of a few runs on a device with random behaviour: a turning drive's buffer reads on while no command
/// waits, and dies are busy with something else.
const RANDOM_SLACK: f64 = 1.05;
const RANDOM_RUNS: u32 = 3;

/// No run of these policies is below the bound, none that reads what is wanted and nothing else beats the oracle, and
/// the oracle reads nothing useless. Where a command costs more than the bytes of a gap, reading the gap may win.
fn check_limits(
    name: &str,
    size: u64,
    preset: &Preset,
    policies: &[&str],
    beaten: &mut Vec<String>,
) {
    // Where round trips are drawn, all of the few commands of a short run may be fast: the oracle gets one long one more.
    let (random, slack, long_s) = match preset.model {
        Model::Hdd(_) | Model::Ssd(_) => (true, RANDOM_SLACK, 0.0),
        Model::Net(net) => (
            net.rtt_p99_ns.is_some(),
            START,
            net.rtt_p99_ns.unwrap_or(0) as f64 / 1e9,
        ),
        Model::Disk(_) | Model::Array(_) | Model::Lanes(_) => (false, START, 0.0),
    };
    let table = tables(
        name,
        preset.name,
        size,
        if random { RANDOM_RUNS } else { 1 },
        policies,
        None,
    );
    let mean = |runs: &[RunResult]| runs.iter().map(|r| r.time_s).sum::<f64>() / runs.len() as f64;
    let oracle = row(&table, "oracle");
    for (run, none) in oracle.iter().zip(row(&table, "none")) {
        let s = run.stats;
        assert_eq!(
            s.source_bytes - s.unused_bytes,
            run.distinct_bytes,
            "{name} on {}: gaps alone",
            preset.name
        );
        assert_eq!(
            s.demand_reads, none.stats.demand_reads,
            "{name} on {}",
            preset.name
        );
    }
    for policy in &table.policies {
        let what = format!("{} reads {name} on {}", policy.policy, preset.name);
        for (run, bound) in policy.runs.iter().zip(&table.bounds) {
            let bound = bound.ns() as f64 / 1e9;
            assert!(
                bound > 0.0 && run.time_s >= bound,
                "{what} in {} s, the bound is {bound} s",
                run.time_s
            );
        }
        let in_vain = policy
            .runs
            .iter()
            .any(|r| r.stats.source_bytes > r.distinct_bytes);
        let (time, best) = (mean(&policy.runs), mean(oracle));
        if !in_vain && time * slack + long_s < best {
            beaten.push(format!("{what} in {time} s, the oracle in {best} s"));
        }
    }
}

/// Cells in which a policy once beat the oracle: by order of readers, request size, gaps read through or random numbers.
#[test]
fn the_oracle_wins_where_it_once_lost() {
    let cells = [
        (
            "thrash:streams=4,think=0",
            "hdd-7200",
            16 << 20,
            512 << 10,
            "linux-6.18:max=32K",
        ),
        (
            "readers:streams=5,record=4K",
            "hdd-7200",
            64 << 20,
            2 << 20,
            "linux-6.18",
        ),
        (
            "thrash:streams=4,think=1000",
            "raid-6disk",
            16 << 20,
            64 << 20,
            "linux-2.6.0",
        ),
        (
            "strided:record=16K,stride=20K",
            "hdd-theory",
            64 << 20,
            256 << 20,
            "linux-6.18:max=4M",
        ),
        (
            "sequential:record=4K",
            "object-far",
            128 << 20,
            256 << 20,
            "linux-6.18:max=64M",
        ),
    ];
    for (workload, model, size, cache, policy) in cells {
        let cell = search::Cell::new(workload, model, size, cache, 0).expect("it fits");
        let (oracle, policy_s, bound) = (
            cell.oracle().time_s,
            cell.run(&cell.policy(policy)).time_s,
            cell.bound(),
        );
        assert!(
            oracle <= policy_s,
            "{cell}: {policy} in {policy_s} s, the oracle in {oracle} s"
        );
        assert!(
            bound <= oracle,
            "{cell}: the bound is {bound} s, the oracle takes {oracle} s"
        );
    }
}

/// Random cells and policies: none is below the bound, the oracle loses one row in a hundred at most (of some thousand that
/// were tried by hand it loses one in 400; no search finds the best of all schedules), and oracle and bound are as near to each
/// other as they were found to be.
#[test]
fn a_random_policy_hardly_beats_the_oracle_and_never_the_bound() {
    let found = search::search(100, 1);
    assert!(found.below.is_empty(), "{found:?}");
    assert!(found.lost.len() * 100 <= found.rows, "{found:?}");
    // The cells are the same in every run, and so is the figure, 1.754: a weaker search or a lower bound raises it.
    assert!(
        found.oracle_in_bounds < 1.76,
        "a weaker search, or a lower bound: {found:?}"
    );
}

/// Every workload on every model that holds it.
fn pairs() -> impl Iterator<Item = (usize, &'static str, u64, &'static Preset)> {
    let fits = |name: &str, p: &Preset| {
        p.capacity_bytes
            >= foreread_history::parse_workload(name)
                .expect("a workload")
                .info
                .least_bytes
    };
    let all = small_workloads().into_iter().flat_map(|(name, size)| {
        let tried = PRESETS.iter().filter(|p| !search::LATER.contains(&p.name));
        tried.map(move |p| (name, size, p))
    });
    all.filter(move |(name, _, p)| fits(name, p))
        .enumerate()
        .map(|(n, (name, size, p))| (n, name, size, p))
}

fn every_policy() -> Vec<&'static str> {
    policies()
        .iter()
        .chain(OPPONENTS)
        .map(|info| info.name)
        .collect()
}

/// One pair of workload and model in a few, with one policy in a few, and in turn all of them.
#[test]
fn nothing_is_below_the_bound_and_no_policy_beats_the_oracle() {
    let (all, mut beaten) = (every_policy(), Vec::new());
    for (n, name, size, preset) in pairs() {
        let long = ["boot-ide", "boot-virtio", "grep-ide", "grep-virtio"].contains(&name);
        let some = all
            .iter()
            .enumerate()
            .filter(|(i, p)| **p == "none" || i % 7 == n % 7)
            .map(|(_, p)| *p);
        if n % if long { 11 } else { 2 } == 0 {
            check_limits(name, size, preset, &some.collect::<Vec<_>>(), &mut beaten);
        }
    }
    assert!(beaten.is_empty(), "{}", beaten.join("\n"));
}

/// With a cache of a few reads things are fetched again, but not for nothing: every byte that arrives is read or evicted for
/// one that is wanted sooner.
#[test]
fn a_small_cache_is_enough_to_end() {
    for cache in [16_384, 20_000, 300_000] {
        for name in [
            "sequential:depth=3",
            "interleaved:streams=5",
            "random:count=200,record=64K",
        ] {
            for model in ["hdd-theory", "nvme", "object-near"] {
                let table = tables(name, model, 8 << 20, 1, &["none"], Some(cache));
                let (oracle, none) = (&row(&table, "oracle")[0], &row(&table, "none")[0]);
                assert_eq!(
                    oracle.stats.demand_reads, none.stats.demand_reads,
                    "{name} {model} {cache}"
                );
                assert_eq!(
                    oracle.stats.demand_bytes, none.stats.demand_bytes,
                    "{name} {model} {cache}"
                );
                let wanted = oracle.stats.source_bytes - oracle.stats.unused_bytes;
                assert_eq!(wanted, oracle.distinct_bytes, "nothing is read twice here");
            }
        }
    }
}

/// The counters of a row: reads by what they met, readahead by what became of it.
#[test]
fn the_counters_add_up() {
    for (name, size) in small_workloads() {
        let table = tables(name, "object-near", size, 2, &["none"], Some(3 << 20));
        for run in row(&table, "oracle") {
            let s = run.stats;
            assert_eq!(s.demand_reads, s.hits + s.late_hits + s.misses, "{name}");
            assert_eq!(s.ra_bytes, s.used_bytes + s.unused_bytes, "{name}");
            assert!(
                s.ra_bytes <= s.source_bytes && s.late_bytes <= s.used_bytes,
                "{name}"
            );
            assert_eq!(run.latency.len(), s.demand_reads, "{name}");
            assert!(
                s.misses <= s.source_reads && s.ra_ops <= s.source_reads,
                "{name}"
            );
        }
    }
}

fn oracle_run(workload: &Workload, model: &str, cache_bytes: u64) -> RunResult {
    let preset = presets::find(model).expect("a preset");
    let page = PageSize::new(4096).expect("a page");
    let mut config = Config::new(page, cache_bytes);
    config.max_in_flight = preset.connections;
    let bound = Bound::of(workload, preset, page.bytes());
    let setup = oracle::Setup {
        workload,
        config: config.bounded(),
        preset,
        seed: 1,
        bound,
    };
    oracle::run(&setup).expect("few touches")
}

fn jobs(jobs: &[&[u64]]) -> Workload {
    let job = |pages: &&[u64]| {
        Job::new(
            0,
            0,
            pages
                .iter()
                .map(|p| Request::read(p * 4096, 4096))
                .collect(),
        )
    };
    let jobs = jobs.iter().map(job).collect();
    Workload {
        name: "test".to_string(),
        files: vec![1 << 30],
        listed: false,
        page_bytes: 4096,
        jobs,
    }
}

/// Room for four pages. Belady, by hand: 10 20 30 40 fill it; 50 takes the place of 20, 30 or 40, whichever is wanted
/// last; LRU would drop 10, which is wanted next.
#[test]
fn what_is_wanted_last_leaves() {
    let cyclic: Vec<u64> = (0..5).cycle().take(50).map(|n| n * 10).collect();
    let run = oracle_run(&jobs(&[&cyclic]), "hdd-theory", 4 * 4096);
    // LRU misses all 50; the fewest are the first 5 and one in four after them. Fetching as soon as may be costs some
    // of the reads between, and no wait.
    let fewest = 5 + 45 / 4;
    assert!(
        (fewest..=2 * fewest).contains(&run.stats.source_reads),
        "{} fetches",
        run.stats.source_reads
    );
    assert!(run.stats.evicted_pages > 0);
    let ample = oracle_run(&jobs(&[&cyclic]), "hdd-theory", 5 * 4096);
    assert_eq!(
        (ample.stats.source_reads, ample.stats.evicted_pages),
        (5, 0)
    );
}

/// By hand: two reads of neighbouring pages on the disk of 8 ms are one command, and so are two in the other order.
#[test]
fn neighbours_share_a_command() {
    let ms = |kib: f64| (8.0 + kib / 102.4) / 1e3;
    for order in [[0, 1], [1, 0]] {
        let run = oracle_run(&jobs(&[&order]), "hdd-theory", 1 << 20);
        assert_eq!(
            (run.stats.source_reads, run.stats.source_bytes),
            (1, 8192),
            "{order:?}"
        );
        assert!(
            (run.time_s - ms(8.0)).abs() < 1e-6,
            "{order:?}: {}",
            run.time_s
        );
    }
    // A gap is read where it costs less than a command, and only there.
    let gap = |pages: u64| oracle_run(&jobs(&[&[0, pages + 1]]), "hdd-theory", 1 << 24).stats;
    assert_eq!(
        (
            gap(1).source_reads,
            gap(1).source_bytes,
            gap(1).unused_bytes
        ),
        (1, 3 * 4096, 4096)
    );
    assert_eq!(
        (
            gap(1000).source_reads,
            gap(1000).source_bytes,
            gap(1000).unused_bytes
        ),
        (2, 8192, 0)
    );
}

/// An arm goes the shortest way over what is due, with a long queue: several times as fast as in the order of the
/// readers.
#[test]
fn an_arm_sweeps() {
    for (model, times) in [("hdd-7200", 5.0), ("disk-2003", 3.0)] {
        let table = tables("random:count=2000", model, 256 << 20, 1, &["none"], None);
        let (none, oracle) = (
            row(&table, "none")[0].time_s,
            row(&table, "oracle")[0].time_s,
        );
        assert!(
            oracle * times < none,
            "{model}: {oracle} s, {none} s without readahead"
        );
    }
}

#[test]
fn several_jobs_end_even_when_they_want_the_whole_cache() {
    let down: Vec<u64> = (0..300).rev().collect();
    let up: Vec<u64> = (0..300).collect();
    let far: Vec<u64> = (0..100).map(|n| n * 7 % 300).collect();
    for cache in [4, 5, 8, 64] {
        let run = oracle_run(&jobs(&[&down, &up, &far, &up]), "nvme", cache * 4096);
        assert_eq!(run.stats.demand_reads, 1000, "{cache} pages");
    }
}

fn chain(parts: Vec<Vec<Request>>, opens: &[u32], gap_ns: u64) -> Workload {
    let mut workload = jobs(&[]);
    for (n, mut requests) in parts.into_iter().enumerate() {
        requests[0].think_ns = gap_ns;
        workload.jobs.push(Job {
            after: (n as u32).checked_sub(1),
            ..Job::new(0, opens[n], requests)
        });
    }
    workload
}

/// The same requests under the simulator without readahead.
fn sim_run(workload: &Workload, model: &str, cache_bytes: u64) -> RunResult {
    let preset = presets::find(model).expect("a preset");
    let config = Config::new(PageSize::new(4096).expect("a page"), cache_bytes).bounded();
    let policy = PolicySpec::none();
    let setup = simulator::Setup {
        workload,
        policy: &policy,
        config,
        host_ns_per_kib: preset.host_ns_per_kib,
    };
    simulator::run(&setup, preset.build(1))
}

/// By hand, on the disk of 8 ms: jobs of a chain think one after the other, those without one at the same time, and
/// nothing after the last read counts.
#[test]
fn a_job_begins_when_the_one_before_has_ended() {
    const S: u64 = 1_000_000_000;
    let read = |page: u64| vec![Request::read(page * 4096, 4096)];
    let mut workload = chain(vec![read(0), read(1), read(2)], &[0, 1, 2], S);
    let bound = |w: &Workload| {
        Bound::of(w, presets::find("hdd-theory").expect("a preset"), 4096).readers_ns
    };
    let run = oracle_run(&workload, "hdd-theory", 1 << 20);
    // All of it is there before the first has thought.
    assert_eq!(
        (run.time_s, run.stats.source_reads, bound(&workload)),
        (3.0, 1, 3 * S)
    );
    workload.jobs[2].after = Some(0);
    assert_eq!(
        (
            oracle_run(&workload, "hdd-theory", 1 << 20).time_s,
            bound(&workload)
        ),
        (2.0, 2 * S)
    );
    let late = Request {
        think_ns: 9 * S,
        ..Request::hint(Advice::WillNeed, 0, 1 << 30)
    };
    workload.jobs[1].requests.push(late);
    assert_eq!(
        (
            oracle_run(&workload, "hdd-theory", 1 << 20).time_s,
            bound(&workload)
        ),
        (2.0, 2 * S)
    );
    assert!((sim_run(&workload, "hdd-theory", 1 << 20).time_s - 2.0).abs() < 0.05);
    // The job after the hint waits for it.
    workload.jobs[2].after = Some(1);
    assert_eq!(
        (
            oracle_run(&workload, "hdd-theory", 1 << 20).time_s,
            bound(&workload)
        ),
        (12.0, 12 * S)
    );
}

/// A hint over a whole file is no byte of it.
#[test]
fn hints_cost_nothing() {
    let hint = |advice| Request::hint(advice, 0, 1 << 30);
    let plain = chain(vec![vec![Request::read(0, 8192)]], &[0], 0);
    let hinted = chain(
        vec![vec![
            hint(Advice::WillNeed),
            hint(Advice::Random),
            Request::read(0, 8192),
        ]],
        &[0],
        0,
    );
    for model in ["x25-m", "nvme"] {
        let preset = presets::find(model).expect("a preset");
        assert_eq!(
            Bound::of(&hinted, preset, 512),
            Bound::of(&plain, preset, 512)
        );
        let (one, two) = (
            oracle_run(&plain, model, 1 << 20),
            oracle_run(&hinted, model, 1 << 20),
        );
        assert_eq!(
            (one.time_s, one.stats, one.latency),
            (two.time_s, two.stats, two.latency)
        );
    }
}

/// Only the first touch of a page through its mapping is a fault, and another once the page has left; the same
/// faults as the simulator's.
#[test]
fn a_mapped_page_is_no_event() {
    let touches = |pages: &[u64]| {
        pages
            .iter()
            .map(|p| Request::touch(p * 4096 + 17))
            .collect::<Vec<_>>()
    };
    let again = || vec![touches(&[3, 3, 4]), touches(&[3, 4, 3])];
    // (open descriptions, faults): the second job has the mapping of the first, or its own.
    for (opens, faults) in [([0, 0], 2), ([0, 1], 4)] {
        let workload = chain(again(), &opens, 0);
        let run = oracle_run(&workload, "x25-m", 1 << 20);
        assert_eq!(
            (run.stats.demand_reads, run.stats.demand_bytes),
            (faults, faults * 4096)
        );
        assert_eq!((run.stats.source_bytes, run.latency.len()), (8192, faults));
        assert_eq!(
            sim_run(&workload, "x25-m", 1 << 20).stats.demand_reads,
            faults
        );
        // 400 ns for each KiB of a fault; the first in a block of 16 pages may map the other page, too.
        let bound = Bound::of(&workload, presets::find("x25-m").expect("a preset"), 4096);
        assert_eq!(bound.readers_ns, faults / 2 * 1600);
    }
    // Room for four pages: the fifth drives one out, and a page that left is not mapped any more.
    let cyclic: Vec<u64> = (0..5).cycle().take(50).map(|n| n * 10).collect();
    let run = oracle_run(
        &chain(vec![touches(&cyclic)], &[0], 0),
        "hdd-theory",
        4 * 4096,
    );
    assert!(run.stats.evicted_pages > 0 && run.stats.source_reads >= 16);
    assert!(
        run.stats.demand_reads >= run.stats.source_reads && run.stats.demand_reads < 50,
        "{:?}",
        run.stats
    );
}

#[test]
fn a_limit_is_no_choice() {
    let table = tables(
        "sequential",
        "rbd",
        24 << 20,
        5,
        &["none", "linux-6.18"],
        None,
    );
    let report = Report::of(&table);
    let oracle = report.rows.last().expect("rows");
    assert!(
        oracle.limit
            && oracle.policy == "oracle"
            && report.rows.iter().filter(|r| r.limit).count() == 1
    );
    assert_eq!(
        (oracle.p_value, oracle.differs_from_none, oracle.score),
        (None, None, Some(1.0))
    );
    assert_eq!(report.rows[0].score, Some(0.0));
    let score = report.rows[1].score.expect("there is something to gain");
    assert!(score > 0.9 && score <= 1.0, "{score}");
    assert_eq!(report.comparisons.len(), 1, "none and linux-6.18");
    assert_eq!(report.best, ["linux-6.18"]);
    let advice =
        foreread_lab::verdict::tables::of_tables(std::slice::from_ref(&report), |_| String::new());
    let advice = advice.expect("a whole table").why;
    assert!(
        advice.starts_with("Use linux-6.18 on model:rbd") && !advice.contains("oracle"),
        "{advice}"
    );
    let bound = report.bound_s.expect("a model has one");
    assert!(bound <= oracle.time_s.as_ref().expect("runs").mean);
    assert!(
        report.bound_device_s.expect("both parts") <= bound && report.bound_readers_s == Some(0.0)
    );
}

/// Nothing to gain: a single read. The score would be a quotient of nothings.
#[test]
fn without_a_gain_there_is_no_score() {
    let report = Report::of(&tables(
        "random:count=1",
        "rbd",
        1 << 20,
        2,
        &["none", "rbd-plain"],
        None,
    ));
    assert!(report.rows.iter().all(|r| r.score.is_none()));
}

#[test]
fn which_tables_have_an_oracle() {
    let rows = |oracle, policies: Vec<PolicyDraft>| {
        let on = Some(compare::model("rbd").expect("a model"));
        let workload = Some("random:count=5".to_string());
        let plan = ComparePlan {
            workload,
            on,
            oracle,
            policies,
            runs: Some(2),
            ..ComparePlan::default()
        };
        let table = compare::run(&plan, &mut Silent).expect("a table").remove(0);
        table
            .policies
            .into_iter()
            .map(|p| p.policy)
            .collect::<Vec<_>>()
    };
    let none = || vec![PolicyDraft::from(PolicySpec::none())];
    let usual = [
        "none",
        "auto",
        "linux-6.18",
        "rbd-plain",
        "linux-6.18:max=4M",
        "linux-6.18:max=64M",
        "oracle",
    ];
    assert_eq!(rows(OracleRow::Usual, Vec::new()), usual);
    assert_eq!(rows(OracleRow::Usual, none()), ["none"]);
    assert_eq!(rows(OracleRow::OnModels, none()), ["none", "oracle"]);
    assert_eq!(rows(OracleRow::Asked, none()), ["none", "oracle"]);
    let file = |path: &str| ComparePlan {
        on: Some(compare::file(path)),
        oracle: OracleRow::Asked,
        ..ComparePlan::default()
    };
    let error = compare::run(&file("Cargo.toml"), &mut Silent).expect_err("refused");
    assert!(
        matches!(error, CompareError::Oracle(_)) && error.to_string().contains("--on model:NAME"),
        "{error}"
    );
    let scratch = ComparePlan {
        oracle: OracleRow::Asked,
        ..ComparePlan::default()
    };
    assert!(matches!(
        compare::run(&scratch, &mut Silent),
        Err(CompareError::Oracle(_))
    ));
}

/// A store with a tail of 1 %: each request draws its latency.
const TAIL: &str = r#"
schema = "foreread.model/1"
summary = "a store with a 1 % tail of 500 ms"
origin = "a test"
calibrated = false
fit_error = "none"
capacity_bytes = 4398046511104
commands_at_once = 32
host_ns_per_kib = 75
host_origin = "a test"
max_fetch_bytes = 8388608

[net]
rtt_ns = 15000000
rtt_p99_ns = 500000000
connection_bytes_per_s = 90000000
link_bytes_per_s = 1000000000
server_connections = 64
whole_answers = false
"#;

/// Windows of 64 MiB are other requests than the oracle's, and draw half of its time with this seed: the report says so.
#[test]
fn an_oracle_that_loses_is_reported_with_policy_part_and_seed() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("tail.toml");
    std::fs::write(&model, TAIL).expect("room");
    let model = model.display().to_string();
    let of = |model: &str, runs, seed| {
        let plan = ComparePlan {
            workload: Some("sequential:depth=4".to_string()),
            on: Some(compare::model(model).expect("a model")),
            policies: vec![parse("linux-6.18:max=64M").expect("a policy")],
            oracle: OracleRow::Asked,
            runs: Some(runs),
            seed,
            size_bytes: Some(4 << 20),
            ..ComparePlan::default()
        };
        let tables = compare::run(&plan, &mut Silent).expect("simulated");
        Report::of(&tables[0])
    };
    let report = of(&model, 2, 20);
    let beaten = report.oracle_beaten.as_ref().expect("it loses");
    assert_eq!(
        (beaten.policy.as_str(), beaten.seed, beaten.policies),
        ("linux-6.18:max=64M", 21, 1)
    );
    assert!((0.5..0.62).contains(&beaten.ratio), "{beaten:?}");
    let note = report.notes.iter().find(|note| note.contains("oracle"));
    let want = "the oracle is not a lower bound here: linux-6.18:max=64M took x0.5";
    assert!(note.is_some_and(|note| note.starts_with(want)), "{note:?}");
    // Without random latencies nothing is said.
    assert_eq!(of("rbd", 2, 20).oracle_beaten, None);
}
