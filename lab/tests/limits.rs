//! Compares limits with the rows of a comparison: no row is below the bound, few policies beat the oracle, and of the
//! bytes that no reader wants the oracle reads only gaps.
//!
//! Sizes are small, so that every workload can be combined with every model and policy.

use crate::common::{self, plan_on, table_of};
use foreread_core::event::Advice;
use foreread_core::machine::Config;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_history::{OPPONENTS, policies};
use foreread_lab::compare::{self, ComparePlan, OracleRow};
use foreread_lab::report::{Report, Table};
use foreread_report::progress::Silent;
use foreread_sim::device::presets::{self, Model, PRESETS, Preset};
use foreread_sim::limits::bound::Bound;
use foreread_sim::limits::oracle;
use foreread_sim::simulator;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::{Job, Request, Workload};
use foreread_testing::{rows, says};

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

/// A run of each policy and of the oracle, by the first seed. `cache` is the usual one where it is none.
fn table(workload: &str, model: &str, size: u64, policies: &[&str], cache: Option<u64>) -> Table {
    tables(workload, model, size, 1, policies, cache)
}

fn tables(
    workload: &str,
    model: &str,
    size: u64,
    runs: u32,
    policies: &[&str],
    cache: Option<u64>,
) -> Table {
    table_of(&ComparePlan {
        workload: Some(workload.to_string()),
        oracle: OracleRow::Asked,
        runs: Some(runs),
        size_bytes: Some(size),
        cache_bytes: cache,
        ..plan_on(model, policies)
    })
}

fn row<'a>(table: &'a Table, policy: &str) -> &'a [RunResult] {
    &common::row(table, policy).runs
}

/// What the oracle's choice of fetches may cost it once, at the start of a run that is not bound by the device (see `limits/oracle`).
const START: f64 = 1.0005;

/// The same, for the mean of a few runs on a device with random behaviour: a turning drive's buffer reads on while no command
/// waits, and dies are busy with something else.
const RANDOM_SLACK: f64 = 1.05;
const RANDOM_RUNS: u32 = 3;

/// No run of these policies is below the bound, none that reads what is wanted and nothing else beats the oracle, and
/// the oracle reads nothing useless. Where a command costs more than the bytes of a gap, reading the gap may win. Gives the time of the
/// oracle, in bounds.
fn check_limits(
    name: &str,
    size: u64,
    preset: &Preset,
    policies: &[&str],
    beaten: &mut Vec<String>,
) -> f64 {
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
    let runs = if random { RANDOM_RUNS } else { 1 };
    let table = tables(name, preset.name, size, runs, policies, None);
    let mean = |runs: &[RunResult]| runs.iter().map(|r| r.time_s).sum::<f64>() / runs.len() as f64;
    let oracle = row(&table, "oracle");
    let what = format!("{name} on {}", preset.name);
    for (run, none) in oracle.iter().zip(row(&table, "none")) {
        let s = run.stats;
        let wanted = s.source_bytes - s.unused_bytes;
        assert_eq!(wanted, run.distinct_bytes, "{what}: gaps alone");
        assert_eq!(s.demand_reads, none.stats.demand_reads, "{what}");
    }
    for policy in &table.policies {
        let what = format!("{what} by {}", policy.policy);
        for (run, bound) in policy.runs.iter().zip(&table.bounds) {
            let (time, bound) = (run.time_s, bound.ns() as f64 / 1e9);
            let is_above = bound > 0.0 && time >= bound;
            assert!(is_above, "{what} in {time} s, the bound is {bound} s");
        }
        let mut runs = policy.runs.iter();
        let in_vain = runs.any(|r| r.stats.source_bytes > r.distinct_bytes);
        let (time, best) = (mean(&policy.runs), mean(oracle));
        if !in_vain && time * slack + long_s < best {
            beaten.push(format!("{what} in {time} s, the oracle in {best} s"));
        }
    }
    let bounds = table.bounds.iter().map(|bound| bound.ns() as f64 / 1e9);
    mean(oracle) * oracle.len() as f64 / bounds.sum::<f64>()
}

/// Cells in which a policy once beat the oracle, by order of readers, request size or gaps read through: workload, model, MiB, KiB of
/// cache, policy.
#[test]
fn the_oracle_wins_where_it_once_lost() {
    for [workload, model, mib, cache_kib, policy] in rows(
        "thrash:streams=4,think=0 | hdd-7200 | 16 | 512 | linux-6.18:max=32K
         readers:streams=5,record=4K | hdd-7200 | 64 | 2048 | linux-6.18
         thrash:streams=4,think=1000 | raid-6disk | 16 | 65536 | linux-2.6.0
         strided:record=16K,stride=20K | hdd-theory | 64 | 262144 | linux-6.18:max=4M
         sequential:record=4K | object-far | 128 | 262144 | linux-6.18:max=64M",
    ) {
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let (size, cache) = (number(mib) << 20, number(cache_kib) << 10);
        let table = table(workload, model, size, &[policy], Some(cache));
        let [oracle, other] = ["oracle", policy].map(|policy| row(&table, policy)[0].time_s);
        assert!(
            oracle <= other,
            "{workload}: {oracle} s, {policy}: {other} s"
        );
    }
}

/// Presets that came after the figures of this folder were published: not tried here.
const LATER: [&str; 3] = ["ebs-gp3", "nfs", "s3-region"];

/// Every workload on every model that holds it.
fn pairs() -> impl Iterator<Item = (usize, &'static str, u64, &'static Preset)> {
    let fits = |name: &str, p: &Preset| {
        let workload = foreread_history::parse_workload(name).expect("a workload");
        p.capacity_bytes >= workload.info.least_bytes
    };
    let all = small_workloads().into_iter().flat_map(|(name, size)| {
        let tried = PRESETS.iter().filter(|p| !LATER.contains(&p.name));
        tried.map(move |p| (name, size, p))
    });
    all.filter(move |(name, _, p)| fits(name, p))
        .enumerate()
        .map(|(n, (name, size, p))| (n, name, size, p))
}

/// One pair of workload and model in a few, with one policy in a few, and in turn all of them, some with other windows. Oracle and bound are
/// as near to each other as they were found to be: a weaker oracle or a lower bound raises the figure.
#[test]
fn nothing_is_below_the_bound_and_no_policy_beats_the_oracle() {
    let windows = [
        "linux-6.18:max=16K",
        "linux-2.6.31:max=4M",
        "rbd-plain:max=16M",
    ];
    let published = policies();
    let named = published.iter().chain(OPPONENTS).map(|info| info.name);
    let all = Vec::from_iter(named.chain(windows));
    let (mut beaten, mut gaps) = (Vec::new(), Vec::new());
    for (n, name, size, preset) in pairs() {
        let long = ["boot-ide", "boot-virtio", "grep-ide", "grep-virtio"].contains(&name);
        let some = all.iter().enumerate();
        let some = some.filter(|(i, p)| **p == "none" || i % 7 == n % 7);
        let some = Vec::from_iter(some.map(|(_, p)| *p));
        if n % if long { 11 } else { 2 } == 0 {
            let in_bounds = check_limits(name, size, preset, &some, &mut beaten);
            gaps.push(in_bounds.ln());
        }
    }
    assert!(beaten.is_empty(), "{}", beaten.join("\n"));
    let gap = (gaps.iter().sum::<f64>() / gaps.len() as f64).exp();
    assert!(gap < 1.49, "{gap} bounds, not 1.484");
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
                let table = table(name, model, 8 << 20, &["none"], Some(cache));
                let (oracle, none) = (&row(&table, "oracle")[0], &row(&table, "none")[0]);
                let demand = |run: &RunResult| (run.stats.demand_reads, run.stats.demand_bytes);
                assert_eq!(demand(oracle), demand(none), "{name} {model} {cache}");
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
            assert!(s.ra_bytes <= s.source_bytes, "{name}");
            assert!(s.late_bytes <= s.used_bytes, "{name}");
            assert_eq!(run.latency.len(), s.demand_reads, "{name}");
            assert!(s.misses.max(s.ra_ops) <= s.source_reads, "{name}");
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
        let reads = pages.iter().map(|p| Request::read(p * 4096, 4096));
        Job::new(0, 0, reads.collect())
    };
    let jobs = jobs.iter().map(job).collect();
    Workload::of("test", vec![1 << 30], jobs)
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
    let fetches = run.stats.source_reads;
    let is_few = (fewest..=2 * fewest).contains(&fetches);
    assert!(is_few && run.stats.evicted_pages > 0, "{fetches} fetches");
    let ample = oracle_run(&jobs(&[&cyclic]), "hdd-theory", 5 * 4096).stats;
    assert_eq!((ample.source_reads, ample.evicted_pages), (5, 0));
}

/// By hand: two reads of neighbouring pages on the disk of 8 ms are one command, and so are two in the other order.
#[test]
fn neighbours_share_a_command() {
    let ms = |kib: f64| (8.0 + kib / 102.4) / 1e3;
    for order in [[0, 1], [1, 0]] {
        let run = oracle_run(&jobs(&[&order]), "hdd-theory", 1 << 20);
        let read = (run.stats.source_reads, run.stats.source_bytes);
        assert_eq!(read, (1, 8192), "{order:?}");
        let error = (run.time_s - ms(8.0)).abs();
        assert!(error < 1e-6, "{order:?}: {}", run.time_s);
    }
    // A gap is read where it costs less than a command, and only there.
    let gap = |pages: u64| {
        let s = oracle_run(&jobs(&[&[0, pages + 1]]), "hdd-theory", 1 << 24).stats;
        (s.source_reads, s.source_bytes, s.unused_bytes)
    };
    assert_eq!(gap(1), (1, 3 * 4096, 4096));
    assert_eq!(gap(1000), (2, 8192, 0));
}

/// An arm goes the shortest way over what is due, with a long queue: several times as fast as in the order of the
/// readers.
#[test]
fn an_arm_sweeps() {
    for (model, times) in [("hdd-7200", 5.0), ("disk-2003", 3.0)] {
        let table = table("random:count=2000", model, 256 << 20, &["none"], None);
        let [none, oracle] = ["none", "oracle"].map(|policy| row(&table, policy)[0].time_s);
        assert!(oracle * times < none, "{model}: {oracle} s, none: {none} s");
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
        workload
            .jobs
            .push(Job::new(0, opens[n], requests).after((n as u32).checked_sub(1)));
    }
    workload
}

/// The same requests under the simulator without readahead.
fn sim_run(workload: &Workload, model: &str, cache_bytes: u64) -> RunResult {
    let preset = presets::find(model).expect("a preset");
    let config = Config::new(PageSize::new(4096).expect("a page"), cache_bytes).bounded();
    let policy = PolicySpec::none();
    let setup = simulator::Setup::new(workload, &policy, config, preset.host_ns_per_kib);
    simulator::run(&setup, preset.build(1))
}

/// By hand, on the disk of 8 ms: jobs of a chain think one after the other, those without one at the same time, and
/// nothing after the last read counts.
#[test]
fn a_job_begins_when_the_one_before_has_ended() {
    const S: u64 = 1_000_000_000;
    let read = |page: u64| vec![Request::read(page * 4096, 4096)];
    let mut workload = chain(vec![read(0), read(1), read(2)], &[0, 1, 2], S);
    let both = |w: &Workload| {
        let preset = presets::find("hdd-theory").expect("a preset");
        let run = oracle_run(w, "hdd-theory", 1 << 20);
        // All of it is there before the first has thought.
        assert_eq!(run.stats.source_reads, 1);
        (run.time_s, Bound::of(w, preset, 4096).readers_ns)
    };
    assert_eq!(both(&workload), (3.0, 3 * S));
    workload.jobs[2].after = Some(0);
    assert_eq!(both(&workload), (2.0, 2 * S));
    let late = Request::hint(Advice::WillNeed, 0, 1 << 30).think(9 * S);
    workload.jobs[1].requests.push(late);
    assert_eq!(both(&workload), (2.0, 2 * S));
    assert!((sim_run(&workload, "hdd-theory", 1 << 20).time_s - 2.0).abs() < 0.05);
    // The job after the hint waits for it.
    workload.jobs[2].after = Some(1);
    assert_eq!(both(&workload), (12.0, 12 * S));
}

/// A hint over a whole file is no byte of it.
#[test]
fn hints_cost_nothing() {
    let hint = |advice| Request::hint(advice, 0, 1 << 30);
    let plain = chain(vec![vec![Request::read(0, 8192)]], &[0], 0);
    let hints = [Advice::WillNeed, Advice::Random].map(hint);
    let requests = hints.into_iter().chain([Request::read(0, 8192)]);
    let hinted = chain(vec![requests.collect()], &[0], 0);
    for model in ["x25-m", "nvme"] {
        let preset = presets::find(model).expect("a preset");
        let [plain, hinted] = [&plain, &hinted].map(|workload| {
            let run = oracle_run(workload, model, 1 << 20);
            let bound = Bound::of(workload, preset, 512);
            (bound, run.time_s, run.stats, run.latency)
        });
        assert_eq!(plain, hinted);
    }
}

/// Only the first touch of a page through its mapping is a fault, and another once the page has left; the same
/// faults as the simulator's.
#[test]
fn a_mapped_page_is_no_event() {
    let touches = |pages: &[u64]| {
        let all = pages.iter().map(|p| Request::touch(p * 4096 + 17));
        Vec::from_iter(all)
    };
    let again = || vec![touches(&[3, 3, 4]), touches(&[3, 4, 3])];
    // (open descriptions, faults): the second job has the mapping of the first, or its own.
    for (opens, faults) in [([0, 0], 2), ([0, 1], 4)] {
        let workload = chain(again(), &opens, 0);
        let run = oracle_run(&workload, "x25-m", 1 << 20);
        let demand = (run.stats.demand_reads, run.stats.demand_bytes);
        assert_eq!(demand, (faults, faults * 4096));
        assert_eq!((run.stats.source_bytes, run.latency.len()), (8192, faults));
        let simulated = sim_run(&workload, "x25-m", 1 << 20).stats;
        assert_eq!(simulated.demand_reads, faults);
        // 400 ns for each KiB of a fault; the first in a block of 16 pages may map the other page, too.
        let bound = Bound::of(&workload, presets::find("x25-m").expect("a preset"), 4096);
        assert_eq!(bound.readers_ns, faults / 2 * 1600);
    }
    // Room for four pages: the fifth drives one out, and a page that left is not mapped any more.
    let cyclic: Vec<u64> = (0..5).cycle().take(50).map(|n| n * 10).collect();
    let workload = chain(vec![touches(&cyclic)], &[0], 0);
    let s = oracle_run(&workload, "hdd-theory", 4 * 4096).stats;
    assert!(s.evicted_pages > 0 && s.source_reads >= 16, "{s:?}");
    let is_mapped = s.demand_reads >= s.source_reads && s.demand_reads < 50;
    assert!(is_mapped, "{s:?}");
}

#[test]
fn a_limit_is_no_choice() {
    let policies = ["none", "linux-6.18"];
    let table = tables("sequential", "rbd", 24 << 20, 5, &policies, None);
    let report = Report::of(&table);
    let oracle = report.rows.last().expect("rows");
    let limits = report.rows.iter().filter(|row| row.limit);
    assert!(oracle.limit && oracle.policy == "oracle" && limits.count() == 1);
    let shown = (oracle.p_value, oracle.differs_from_none, oracle.score);
    assert_eq!(shown, (None, None, Some(1.0)));
    assert_eq!(report.rows[0].score, Some(0.0));
    let score = report.rows[1].score.expect("there is something to gain");
    assert!(score > 0.9 && score <= 1.0, "{score}");
    assert_eq!(report.comparisons.len(), 1, "none and linux-6.18");
    assert_eq!(report.best, ["linux-6.18"]);
    let advice =
        foreread_lab::verdict::tables::of_tables(std::slice::from_ref(&report), |_| String::new());
    let advice = advice.expect("a whole table").why;
    says(&advice, &["Use linux-6.18 on model:rbd"]);
    assert!(!advice.contains("oracle"), "{advice}");
    let bound = report.bound_s.expect("a model has one");
    assert!(bound <= oracle.time_s.as_ref().expect("runs").mean);
    assert!(report.bound_device_s.expect("both parts") <= bound);
    assert_eq!(report.bound_readers_s, Some(0.0));
}

/// Nothing to gain: a single read. The score would be a quotient of nothings.
#[test]
fn without_a_gain_there_is_no_score() {
    let policies = ["none", "rbd-plain"];
    let report = Report::of(&tables(
        "random:count=1",
        "rbd",
        1 << 20,
        2,
        &policies,
        None,
    ));
    assert!(report.rows.iter().all(|r| r.score.is_none()));
}

#[test]
fn which_tables_have_an_oracle() {
    let rows = |oracle, policies: &[&str]| {
        let table = table_of(&ComparePlan {
            workload: Some("random:count=5".to_string()),
            oracle,
            ..plan_on("rbd", policies)
        });
        Vec::from_iter(table.policies.into_iter().map(|p| p.policy))
    };
    let usual = [
        "none",
        "auto",
        "linux-6.18",
        "rbd-plain",
        "linux-6.18:max=4M",
        "linux-6.18:max=64M",
        "oracle",
    ];
    assert_eq!(rows(OracleRow::Usual, &[]), usual);
    assert_eq!(rows(OracleRow::Usual, &["none"]), ["none"]);
    assert_eq!(rows(OracleRow::OnModels, &["none"]), ["none", "oracle"]);
    assert_eq!(rows(OracleRow::Asked, &["none"]), ["none", "oracle"]);
    let file = |path: &str| ComparePlan {
        on: Some(compare::file(path)),
        oracle: OracleRow::Asked,
        ..ComparePlan::default()
    };
    let scratch = ComparePlan {
        oracle: OracleRow::Asked,
        ..ComparePlan::default()
    };
    for plan in [file("Cargo.toml"), scratch] {
        let error = compare::run(&plan, &mut Silent).expect_err("refused");
        says(
            &error.to_string(),
            &["the oracle needs a model", "--on model:NAME"],
        );
    }
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
        Report::of(&table_of(&ComparePlan {
            workload: Some("sequential:depth=4".to_string()),
            oracle: OracleRow::Asked,
            runs: Some(runs),
            seed,
            size_bytes: Some(4 << 20),
            ..plan_on(model, &["linux-6.18:max=64M"])
        }))
    };
    let report = of(&model, 2, 20);
    let beaten = report.oracle_beaten.as_ref().expect("it loses");
    let named = (beaten.policy.as_str(), beaten.seed, beaten.policies);
    assert_eq!(named, ("linux-6.18:max=64M", 21, 1));
    assert!((0.5..0.62).contains(&beaten.ratio), "{beaten:?}");
    let note = report.notes.iter().find(|note| note.contains("oracle"));
    let want = "the oracle is not a lower bound here: linux-6.18:max=64M took x0.5";
    assert!(note.is_some_and(|note| note.starts_with(want)), "{note:?}");
    // Without random latencies nothing is said.
    assert_eq!(of("rbd", 2, 20).oracle_beaten, None);
}
