//! The tables of [Wu 2013]: four variants of context readahead on a query load, what the post says of them in words, and
//! sysbench on two file systems and two devices (`sysbench.rs`).
//!
//! **Queries.** One figure was fitted, the ratio of `original`, by one parameter, the density; the other ratios and the
//! order follow. What the load was is not published, so a sweep over the density is beside it. The first fit was of
//! another ratio and missed; its row is in the sweep, as a miss on record.
//!
//! **Words.** "On the 3rd read" is the rule itself. "Extremely low for pure random reads", "small for interleaved
//! sequential reads" and "benefits clustered random reads on HDD" have no figures: they are orders without a size.
//!
//! ```text
//!   pages   N   far   N+1   far   N+2        original and slow-ramp read ahead at N+1, conservative at N+2
//! ```
//!
//! Never: a published figure (they are in `published`).

use super::published::wu_2013::{QPS, STARTS};
use super::runs::{Ask, Runs, mean, over, time_s};
use super::{FigureKind, Paper, ReproduceError, Row, Table, sysbench};
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_sim::zero_latency;

const PAPER: Paper = Paper::Wu2013;
/// The row that the density was fitted to, the density in percent, and those that are shown.
const FITTED: &str = "original";
const DENSITY: u64 = 8;
const DENSITIES: [u64; 6] = [4, 6, 10, 25, 50, 80];
/// The first fit: this density, to `slow-ramp`.
const FIRST_DENSITY: u64 = 25;
/// How far the fitted one may be off (a whole per cent of density).
const FIT: f64 = 0.02;
/// How far the others may be off: this part of the published effect.
const CHECK: f64 = 0.5;
const FOLLOWS: &str =
    "follows from the density that was fitted to 'original'; the published figures were known then";
const UNKNOWN: &str = "neither the drive nor what a query reads and computes is published, so no rate can be predicted; \
    here a query is one page of 4 KiB on x25-m and nothing else";
const CONSERVATIVE: &str = "conservative";
const TOO_SMALL: &str = "published is a cost of 5.4 %, ours is one of 0.3 %: this load makes the conservative rule read ahead far less often \
    than the post's did. The row was met while its bound was 15 % of the ratio, which no effect at all would meet";
const TOO_SMALL_TOO: &str =
    "published is a cost of 10.9 %, ours is one of 2.9 %; see 'conservative'";
const FIRST: &str = "the first fit was of this density to 'slow-ramp'; 'original' missed the 15 %, and the density was \
    fitted to it instead";
/// Runs of the main table.
const RUNS: u32 = 5;

/// All tables of the seed.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    let mut tables = vec![queries(runs)?, densities(runs)?, starts()?, words(runs)?];
    tables.extend(sysbench::tables(runs)?);
    Ok(tables)
}

fn policies(contexts: &[&str]) -> Vec<String> {
    contexts
        .iter()
        .map(|context| format!("linux-3.12:context={context}"))
        .collect()
}

/// Queries a second of each variant.
fn rates(runs: &mut Runs<'_>, density: u64, most: u32) -> Result<[Option<f64>; 4], ReproduceError> {
    let policies = policies(&QPS.map(|(context, _)| context));
    let names: Vec<&str> = policies.iter().map(String::as_str).collect();
    let workload = format!("dense-random:density={density}");
    let table = runs.table(&Ask {
        workload: &workload,
        model: "x25-m",
        policies: &names,
        runs: most,
        ..Ask::default()
    })?;
    let rate = |at: usize| {
        mean(&table, names[at], |r| {
            r.stats.demand_reads as f64 / r.time_s
        })
    };
    Ok([0, 1, 2, 3].map(rate))
}

fn queries(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let rates = rates(runs, DENSITY, RUNS)?;
    let ours = rates.map(|rate| over(rate, rates[0]));
    let mut rows = Vec::new();
    for (at, (context, qps)) in QPS.into_iter().enumerate().skip(1) {
        let row = Row::new(context, "queries / off", Some(qps / QPS[0].1), ours[at]);
        rows.push(match context {
            FITTED => row
                .within(FigureKind::Fit, FIT)
                .because("the density, in whole per cents, was fitted to this ratio"),
            CONSERVATIVE => row
                .effect_within(FigureKind::LeftOut, CHECK)
                .because(TOO_SMALL)
                .known(),
            _ => row
                .effect_within(FigureKind::LeftOut, CHECK)
                .because(TOO_SMALL_TOO)
                .known(),
        });
    }
    for at in 1..QPS.len() {
        let label = format!("{} / {}", QPS[at - 1].0, QPS[at].0);
        let published = Some(QPS[at - 1].1 / QPS[at].1);
        rows.push(
            Row::new(label, "of queries", published, over(ours[at - 1], ours[at]))
                .ordered()
                .because(FOLLOWS),
        );
    }
    for ((context, qps), ours) in QPS.into_iter().zip(rates) {
        rows.push(Row::new(context, "QPS", Some(qps), ours).because(UNKNOWN));
    }
    Ok(Table::new(
        PAPER,
        format!("four context variants, density {DENSITY} %"),
        rows,
    ))
}

fn densities(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for density in DENSITIES {
        let rates = rates(runs, density, 1)?;
        for (at, (context, qps)) in QPS.into_iter().enumerate().skip(1) {
            let row = Row::new(
                format!("density {density} %"),
                context,
                Some(qps / QPS[0].1),
                over(rates[at], rates[0]),
            );
            rows.push(match (density, context) {
                (FIRST_DENSITY, FITTED) => row
                    .effect_within(FigureKind::LeftOut, CHECK)
                    .because(FIRST)
                    .known(),
                _ => row.because("a sweep: the density of the load is not published"),
            });
        }
    }
    Ok(Table::new(PAPER, "queries / off, by density", rows))
}

/// At which of the reads of pages N, N+1, N+2, ... the rules first read ahead, and how far.
fn starts() -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    let mut first = Vec::new();
    for (context, published) in STARTS {
        let (read, pages) = start(context)?;
        rows.push(
            Row::new(context, "read that starts it", Some(published), Some(read))
                .within(FigureKind::Formula, 0.0),
        );
        let row = Row::new(context, "first window, pages", None, Some(pages));
        rows.push(row.because("\"slower size rampup\" has no figure; the order is below"));
        first.push((context, pages));
    }
    let pages = |of: &str| {
        first
            .iter()
            .find(|(context, _)| *context == of)
            .map(|(_, pages)| *pages)
    };
    let row = Row::new(
        "original / slow-ramp",
        "of first windows",
        None,
        over(pages(FITTED), pages("slow-ramp")),
    );
    rows.push(
        row.ordered()
            .because("\"start with a smaller readahead window\": no figure"),
    );
    Ok(Table::new(
        PAPER,
        "reads of three neighbours among others far away",
        rows,
    ))
}

const PAGE: u64 = 4096;
/// Where the neighbours begin, where the others are, and how large the file is, in pages.
const NEAR: u64 = 700;
const FAR: u64 = 100_000;
const FILE_PAGES: u64 = 1 << 20;

/// The number of the first neighbour whose read makes the policy read beyond it, and the pages of that window.
fn start(context: &str) -> Result<(f64, f64), ReproduceError> {
    let text = format!("linux-3.12:context={context}");
    let policy = foreread_history::parse_spec(&text)
        .map_err(|error| ReproduceError::Asked(error.to_string()))?;
    let page = PageSize::new(PAGE).expect("a power of two");
    let mut machine = Machine::new(Config::new(page, 64 << 20), policy);
    machine.watch();
    machine.handle(
        Nanos(0),
        Event::Open {
            open: OpenId(0),
            file: FileId(0),
            size: FILE_PAGES * PAGE,
        },
    );
    for n in 0..8 {
        for (far, place) in [(0, NEAR + n), (1, FAR * (n + 1))] {
            let range = ByteRange::between(place * PAGE, (place + 1) * PAGE);
            let read = Event::Read {
                read: ReadId(2 * n + far),
                open: OpenId(0),
                range,
                random: false,
            };
            zero_latency::tell(&mut machine, read, |_| ());
            let windows = machine.take_decisions().into_iter().flat_map(|d| d.windows);
            let longest = windows.map(|w| w.range.len() / PAGE).max().unwrap_or(0);
            if far == 0 && longest > 1 {
                return Ok(((n + 1) as f64, longest as f64));
            }
        }
    }
    Err(ReproduceError::Asked(format!("{text} never reads ahead")))
}

/// How much a time may change where the post calls the impact small: its own "minor" regression of 5 %.
const SMALL: f64 = 0.05;
/// Densities at which reads count as pure random, and as dense.
const PURE: [u64; 2] = [1, 10];
const EXTREMELY_LOW: &str = "\"extremely low for pure random reads\": no figure";
const INTERLEAVED: &str = "\"impact to interleaved sequential reads should be small\": no figure; at most 5 %, what the \
    thread calls minor";
/// How much of a cluster is read, in percent: the workload's default, which was chosen before the first run, and a sweep.
const CLUSTER: u64 = 50;
const CLUSTERS: [u64; 5] = [25, CLUSTER, 75, 90, 100];
const CLUSTERED: &str = "\"actually benefits clustered random reads on HDD\": no figure, and the workload is ours. At its \
    default, half of a cluster, readahead costs as much as it saves; from three quarters on it helps (rows below)";
const CLUSTER_SWEEP: &str = "a sweep: the post does not say how much of a cluster is read";
const MINOR: &str =
    "\"minor regressions on the HDD cases are expected\": no figure for these reads";

fn words(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for density in PURE {
        let workload = format!("dense-random:density={density}");
        let table = table(runs, &workload, "x25-m", &["original", "conservative"])?;
        let part = |policy: &String| {
            mean(&table, policy, |r| {
                r.stats.ra_planned_ops as f64 / r.stats.demand_reads as f64 * 100.0
            })
        };
        let names = policies(&["original", "conservative"]);
        let label = format!("random, density {density} %");
        for (name, column) in names.iter().zip(["original, %", "after, %"]) {
            rows.push(
                Row::new(&label, column, None, part(name))
                    .because("reads that start readahead; no figure"),
            );
        }
        let ratio = over(part(&names[0]), part(&names[1]));
        rows.push(
            Row::new(&label, "of starts", None, ratio)
                .ordered()
                .because(EXTREMELY_LOW),
        );
    }
    for model in ["x25-m", "hdd-7200"] {
        let table = table(
            runs,
            "interleaved:streams=8",
            model,
            &["original", "conservative"],
        )?;
        let names = policies(&["original", "conservative"]);
        let ours = over(time_s(&table, &names[1]), time_s(&table, &names[0]));
        let row = Row::new(
            format!("interleaved, {model}"),
            "of times, small",
            None,
            ours,
        );
        rows.push(
            row.judged(
                FigureKind::Order,
                ours.is_some_and(|r| (r - 1.0).abs() <= SMALL),
            )
            .because(INTERLEAVED),
        );
    }
    rows.extend(clustered(runs)?);
    Ok(Table::new(
        PAPER,
        "what the post says of the rules in words",
        rows,
    ))
}

/// Clustered random reads without context readahead, and after the change, over the same with the original rule.
fn clustered(runs: &mut Runs<'_>) -> Result<Vec<Row>, ReproduceError> {
    let mut rows = Vec::new();
    let contexts = ["off", "original", "conservative"];
    let [off, original, conservative] = contexts.map(|context| policies(&[context]).remove(0));
    let cases = CLUSTERS
        .map(|percent| ("hdd-7200", percent))
        .into_iter()
        .chain([("x25-m", CLUSTER)]);
    for (model, percent) in cases {
        let table = table(
            runs,
            &format!("clustered-random:percent={percent}"),
            model,
            &contexts,
        )?;
        let time = |policy: &str| time_s(&table, policy);
        let row = |column: &str, ours| {
            Row::new(
                format!("clustered {percent} %, {model}"),
                column,
                None,
                ours,
            )
        };
        let gain = row("of times, off/old", over(time(&off), time(&original)));
        let loss = row(
            "of times, new/old",
            over(time(&conservative), time(&original)),
        );
        match (model, percent) {
            ("hdd-7200", CLUSTER) => {
                rows.push(gain.ordered().because(CLUSTERED).known());
                rows.push(loss.ordered().because(MINOR));
            }
            ("hdd-7200", _) => rows.extend([gain, loss].map(|row| row.because(CLUSTER_SWEEP))),
            _ => {
                rows.extend([gain, loss].map(|row| row.because("the post says it of disks alone")))
            }
        }
    }
    Ok(rows)
}

/// A workload under these variants, three runs each.
fn table(
    runs: &mut Runs<'_>,
    workload: &str,
    model: &str,
    contexts: &[&str],
) -> Result<foreread_lab::report::Table, ReproduceError> {
    let policies = policies(contexts);
    let names: Vec<&str> = policies.iter().map(String::as_str).collect();
    runs.table(&Ask {
        workload,
        model,
        policies: &names,
        runs: 3,
        ..Ask::default()
    })
}
