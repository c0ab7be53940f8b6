//! `foreread check conform linux --check REC`, `foreread check conform rbd`: compares our decisions with those of a kernel or librbd.
//!
//! A Ceph cluster that this command has started is always removed.

use super::conform_live::{self, ConformLiveArgs};
use crate::conform::linux::{self, Level, Verdict};
use clap::ValueEnum;
use foreread_cli::fail::Fail;
use foreread_cli::out;
use std::path::Path;
use std::path::PathBuf;

/// The system to check against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformWhat {
    /// Compare linux-6.18 with the Linux kernel
    Linux,
    /// Compare rbd-aligned with librbd
    Rbd,
}

/// Check foreread's decisions against the kernel's or librbd's
///
/// linux: the running kernel executes random operations on a temporary loop device, and its decisions are
/// recorded from tracepoints. The policy linux-6.18 then executes every operation of this or an earlier recording.
/// After a difference the check continues with the next episode. The check needs the tracepoints of Linux 6.18. When
/// memory is short, the kernel makes smaller folios and reclaims marked pages: episodes under memory pressure are
/// marked, and their differences are counted separately.
///
/// At the level 'full', each operation must agree with the kernel's in its decisions, in the folios inserted and their
/// order, in the marks and in the state of the descriptor. Whether a page is cached is determined as the kernel does
/// it, which can be inexact for large folios. The level 'full' works for every recording. At the level 'pages', the
/// engine's state machine executes the operations and knows exactly which pages are cached, and only the fetched pages
/// and the marks must agree. The level 'pages' works for reads and hints without large folios (ext4 with data=journal).
///
/// rbd: the same reads go through librbd (cache policy writeback) and through rbd-aligned, and each extent in librbd's
/// log and both of its counters must agree. The reads are those of the published tables, one at a time, and random
/// sequences, one and four at a time. The check starts a temporary Ceph cluster on this machine, or, with --cluster,
/// creates small images on an existing one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
If decisions differ only under memory pressure, which proves nothing, the exit code is 3.

Examples:
  foreread check conform linux
  foreread check conform linux --fs xfs-16k,xfs-64k --read-ahead-kb 128 --mmap yes --operations 100000
  foreread check conform linux --check ext4-128.jsonl.gz
  foreread check conform rbd --operations 1000 --seed 7")]
pub struct ConformArgs {
    /// The system to check against
    #[arg(value_name = "WHAT")]
    pub what: ConformWhat,
    /// linux: a recording to check [default: the running kernel]
    #[arg(long, value_name = "REC")]
    pub check: Option<PathBuf>,
    /// linux: the level of comparison
    #[arg(
        long,
        value_name = "LEVEL",
        hide_short_help = true,
        default_value = "full",
        requires = "check"
    )]
    pub level: Level,
    /// rbd: a ceph.conf [default: a new cluster]
    #[arg(long, value_name = "CONF", hide_short_help = true)]
    pub cluster: Option<PathBuf>,
    /// Seed of the reads [default: random for linux, 1 for rbd]
    #[arg(long, value_name = "N", conflicts_with = "check")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub live: ConformLiveArgs,
}

/// Random sequences in addition to librbd's tables.
#[cfg(feature = "rbd")]
const SEQUENCES: u64 = 200;
const REMEDY: &str = "give a recording in JSON lines, plain or compressed with gzip";

/// Runs the check, and prints the verdict and `decisions N divergences M`. If there are divergences (decisions that differ), the check
/// fails, and the command prints the first divergence.
pub fn run(args: &ConformArgs) -> Result<(), Fail> {
    match args.what {
        ConformWhat::Linux if args.cluster.is_some() => Err(Fail::input(
            "--cluster is for 'conform rbd'",
            "",
            "remove it",
        )),
        ConformWhat::Linux if args.check.is_none() => conform_live::run(&args.live, args.seed),
        ConformWhat::Linux => linux(args),
        ConformWhat::Rbd if args.check.is_some() => Err(Fail::input(
            "--check is for 'conform linux'",
            "",
            "librbd is always checked on a running cluster: remove these options",
        )),
        ConformWhat::Rbd if args.live.is_asked() => Err(Fail::input(
            "--fs, --read-ahead-kb, --mmap, -o and --json are for 'conform linux'",
            "",
            "remove them",
        )),
        #[cfg(feature = "rbd")]
        ConformWhat::Rbd => rbd(args),
        #[cfg(not(feature = "rbd"))]
        ConformWhat::Rbd => Err(Fail::cannot(
            "this build has no librbd",
            "",
            "build it with --features rbd",
        )),
    }
}

fn linux(args: &ConformArgs) -> Result<(), Fail> {
    let check = args.check.as_deref().unwrap_or(Path::new(""));
    let place = check.display();
    let recording = linux::open(check).map_err(|error| {
        Fail::input(
            "cannot read the recording",
            format!("{place}: {error}"),
            REMEDY,
        )
    })?;
    let verdict = linux::check(recording, args.level, |_| {})
        .map_err(|error| Fail::input(place.to_string(), error, ""))?;
    if verdict.operations == 0 {
        return Err(Fail::input(
            "nothing to check",
            format!("{place} contains no operation"),
            "record something first",
        ));
    }
    let said = match (verdict.divergences, verdict.pressure_differences) {
        (0, 0) => "The policy linux-6.18 agrees with the recorded kernel.",
        (0, _) => "No verdict: the recorded kernel was short of memory.",
        _ => "The policy linux-6.18 differs from the recorded kernel.",
    };
    out::print(format!(
        "{said}\ndecisions {} divergences {}\n",
        verdict.decisions, verdict.divergences
    ))?;
    let Verdict {
        first,
        first_under_pressure,
        pressure_differences,
        ..
    } = verdict;
    conform_live::judge(
        first.map(|first| format!("{place}: {first}")),
        pressure_differences,
        first_under_pressure.map(|first| format!("{place}: {first}")),
    )
}

/// Checks on the given cluster, or on a temporary one.
#[cfg(feature = "rbd")]
fn rbd(args: &ConformArgs) -> Result<(), Fail> {
    use foreread_testing::{CephCluster, run_ceph};
    let Some(conf) = &args.cluster else {
        let cluster =
            CephCluster::up().map_err(|error| Fail::cannot("no cluster for librbd", error, ""))?;
        return on_cluster(args, &cluster.conf(), &|program, arguments| {
            cluster.run(program, arguments)
        });
    };
    if !conf.is_file() {
        return Err(Fail::input(
            "no such configuration",
            conf.display(),
            "name the ceph.conf of a cluster",
        ));
    }
    on_cluster(args, conf, &|program, arguments| {
        run_ceph(conf, program, arguments)
    })
}

/// Checks the tables with one read at a time, and the sequences also with four in flight.
#[cfg(feature = "rbd")]
fn on_cluster(
    args: &ConformArgs,
    conf: &Path,
    ceph: crate::conform::rbd::Ceph<'_>,
) -> Result<(), Fail> {
    use crate::conform::rbd::{Images, Verdict, check};
    use crate::conform::rbd::{published, random};
    use foreread_cli::progress::Bar;
    use foreread_report::progress::Progress;
    let sequences: Vec<_> = (0..args.live.operations.unwrap_or(SEQUENCES))
        .map(|nth| random(args.seed.unwrap_or(1), nth))
        .collect();
    let tables = published();
    let mut images = Images::new(conf, ceph);
    let mut all = Verdict::default();
    let rounds = [
        ("the tables", &tables, 1),
        ("sequences", &sequences, 1),
        ("sequences, four at a time", &sequences, 4),
    ];
    for (what, cases, depth) in rounds {
        let mut bar = Bar::new();
        bar.stage(what);
        let total = cases.len() as u64;
        let found = check(&mut images, cases, depth, &mut |done| bar.step(done, total));
        let found = found.map_err(|error| Fail::cannot("librbd cannot be called", error, ""))?;
        all.decisions += found.decisions;
        all.divergences += found.divergences;
        all.reads += found.reads;
        all.first = all.first.or(found.first);
    }
    let Verdict {
        decisions,
        divergences,
        reads,
        first,
    } = all;
    let said = if divergences == 0 {
        "agrees with librbd"
    } else {
        "differs from librbd"
    };
    out::print(format!(
        "The policy rbd-aligned {said}.\ndecisions {decisions} divergences {divergences} (reads {reads})\n"
    ))?;
    first.map_or(Ok(()), |first| Err(Fail::check(first, "", "")))
}
