//! [Wu 2010a]'s hit ratios: how much of what readahead brings is touched, by its size, for page faults and for reads.
//!
//! "Sequential readahead hit ratio is pretty high regardless of max readahead size; the extra memory footprint is mainly
//! caused by enlarged mmap read-around." Then MB used and MB read of a desktop under X and on the console.
//!
//! ```text
//!   read-around   |····f·······|          f faults; the whole window is read, f too      read: all of it
//!                    ##f#                  # touched, now or later                        used: f and #
//! ```
//! What is read grows with the window until it is the whole of the files. What is used does not: a program touches the
//! same pages whatever the window is, which is what the console's rows show (30 MB of 56 and of 59). Under X the used
//! bytes fall (143, 138, 130 MB): the post calls these data less stable than the console's, and each size was measured
//! in another session. So the population of files has one amount of touched pages, near the mean of the three.
//!
//! The faulting page counts as used: the kernel reads it with its window. Earlier this was the part of readahead alone;
//! then a larger window, which needs fewer faults, seems to use more.
//!
//! Never: a published figure.

use super::published::wu_2010a::{HITS_CONSOLE, HITS_DESKTOP, HitRatio};
use super::runs::{Ask, Runs, mean, over};
use super::{FigureKind, Paper, ReproduceError, Row, Table};
use foreread_report::number;

const PAPER: Paper = Paper::Wu2010a;
/// How far a fitted row may be off.
const FIT: f64 = 0.06;
const FITTED: &str = "the population of files is invented and was fitted to the MB of all sizes; the pages that are \
    touched are the same at every size";
const SESSIONS: &str = "the population of files is invented and was fitted to the MB of all sizes. Its touched pages are \
    the same at every size; the post's used MB under X differ by session, and it calls them less stable";

/// Populations that were fitted to nothing: stretches a quarter and twice as long, gaps as long as the stretches or
/// twice that, long gaps from rare and short to common and long.
const OTHERS: [&str; 4] = [
    "stretch=5,gap-percent=100,long-gap=64,long-percent=5",
    "stretch=40,gap-percent=100,long-gap=512,long-percent=20",
    "stretch=20,gap-percent=200,long-gap=100,long-percent=20",
    "stretch=8,gap-percent=50,long-gap=400,long-percent=5",
];

/// Files read whole and several streams at once: sequential reads that were fitted to nothing.
const SEQUENTIAL: [(&str, &str); 2] = [
    ("files read whole", "tree"),
    ("streams at once", "interleaved"),
];
/// "Regardless": the ratio at the largest size is at most so far from that at the smallest.
const REGARDLESS: f64 = 0.01;

/// What was booted, the workload for it, and why its hit ratios are no prediction.
struct Machine {
    name: &'static str,
    workload: &'static str,
    reason: &'static str,
}

/// The tables of both machines and of sequential reads.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    let x = Machine {
        name: "X",
        workload: "mmap-desktop",
        reason: SESSIONS,
    };
    let desktop = around(runs, &x, &HITS_DESKTOP)?;
    let console = Machine {
        name: "console",
        workload: "mmap-console",
        reason: FITTED,
    };
    let console = around(runs, &console, &HITS_CONSOLE)?;
    Ok(vec![desktop, console, sequential(runs)?])
}

/// What a workload touches and what is read for it, in MB.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    used: Option<f64>,
    read: Option<f64>,
}

impl Amounts {
    fn percent(self) -> Option<f64> {
        over(self.used, self.read).map(|part| part * 100.0)
    }
}

/// MB touched and read with windows of each size, in KiB.
fn amounts(
    runs: &mut Runs<'_>,
    workload: &str,
    sizes: &[u64],
) -> Result<Vec<Amounts>, ReproduceError> {
    let policies: Vec<String> = sizes
        .iter()
        .map(|kib| format!("linux-2.6.31:max={kib}K"))
        .collect();
    let names: Vec<&str> = policies.iter().map(String::as_str).collect();
    let table = runs.table(&Ask {
        workload,
        model: "hdd-theory",
        policies: &names,
        runs: 5,
        ..Ask::default()
    })?;
    let of = |policy: &str| Amounts {
        used: mean(&table, policy, |run| run.distinct_bytes as f64 / number::MB),
        read: mean(&table, policy, |run| {
            run.stats.source_bytes as f64 / number::MB
        }),
    };
    Ok(names.into_iter().map(of).collect())
}

/// Read-around of a machine: the fit, then the order of the ratios where nothing was fitted.
fn around(
    runs: &mut Runs<'_>,
    machine: &Machine,
    published: &[HitRatio],
) -> Result<Table, ReproduceError> {
    let Machine {
        name,
        workload,
        reason,
    } = *machine;
    let percent = |hits: &HitRatio| hits.used_mb as f64 / hits.read_mb as f64 * 100.0;
    let sizes: Vec<u64> = published.iter().map(|row| row.kib).collect();
    let fitted = amounts(runs, workload, &sizes)?;
    let mut rows = Vec::new();
    for (hits, ours) in published.iter().zip(fitted) {
        let row = |column: &str, published: f64, ours: Option<f64>| {
            let row = Row::new(number::size(hits.kib << 10), column, Some(published), ours);
            row.within(FigureKind::Fit, FIT).because(reason)
        };
        rows.push(row("used, MB", hits.used_mb as f64, ours.used));
        rows.push(row("read, MB", hits.read_mb as f64, ours.read));
        rows.push(row("hit ratio, %", percent(hits), ours.percent()));
    }
    for (at, habits) in OTHERS.into_iter().enumerate() {
        let ours = amounts(runs, &format!("{workload}:{habits}"), &sizes)?;
        for (published, ours) in published.windows(2).zip(ours.windows(2)) {
            let [small, large] = [published[0], published[1]];
            let label = format!(
                "files {}: {} / {}",
                at + 1,
                number::size(small.kib << 10),
                number::size(large.kib << 10)
            );
            let ours = over(ours[0].percent(), ours[1].percent());
            let row = Row::new(
                label,
                "of hit ratios",
                Some(percent(&small) / percent(&large)),
                ours,
            );
            rows.push(
                row.ordered()
                    .because(format!("files that were fitted to nothing: {habits}")),
            );
        }
    }
    Ok(Table::new(
        PAPER,
        format!("hit ratio by read-around size, {name}"),
        rows,
    ))
}

/// "Pretty high regardless of max readahead size": above that of read-around at each size, and the same at all.
fn sequential(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let sizes: Vec<u64> = HITS_DESKTOP.iter().map(|row| row.kib).collect();
    let around = amounts(runs, "mmap-desktop", &sizes)?;
    let mut rows = Vec::new();
    for (name, workload) in SEQUENTIAL {
        let ours = amounts(runs, workload, &sizes)?;
        for ((kib, ours), around) in sizes.iter().zip(&ours).zip(&around) {
            let label = format!("{name}, {}", number::size(kib << 10));
            let row = Row::new(&label, "hit ratio, %", None, ours.percent());
            rows.push(row.because("no figure published: 'pretty high'"));
            let row = Row::new(
                &label,
                "of hit ratios",
                None,
                over(ours.percent(), around.percent()),
            );
            rows.push(
                row.ordered()
                    .because("no figure published; above that of read-around under X"),
            );
        }
        let [first, .., last] = ours.as_slice() else {
            continue;
        };
        let label = format!(
            "{name}, {} / {}",
            number::size(sizes[sizes.len() - 1] << 10),
            number::size(sizes[0] << 10)
        );
        let same = over(last.percent(), first.percent());
        let row = Row::new(label, "of hit ratios", None, same);
        let ok = same.is_some_and(|ratio| (ratio - 1.0).abs() <= REGARDLESS);
        rows.push(
            row.judged(FigureKind::Order, ok)
                .because("no figure published: 'regardless'; at most 1 % apart"),
        );
    }
    Ok(Table::new(PAPER, "hit ratio of sequential reads", rows))
}
