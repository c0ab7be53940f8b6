//! `foreread conform linux --check REC`, `foreread conform rbd`: our decisions beside those that a kernel or librbd took.
//!
//! Never: a cluster of ours that is left behind.

use crate::args::{ConformArgs, ConformLevel, ConformWhat};
use crate::conform_live;
use crate::fail::Fail;
use crate::out;
use foreread_lab::conform::linux::{self, Level, Verdict};
use foreread_os::output::growing;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

/// Random sequences beside librbd's tables.
#[cfg(feature = "rbd")]
const SEQUENCES: u64 = 200;
const REMEDY: &str = "name a recording in JSON lines, plain or gzipped";

/// Checks, prints the verdict and `decisions N divergences M`; a divergence is a failed check, and the first one is printed.
pub fn run(args: &ConformArgs) -> Result<(), Fail> {
    match args.what {
        ConformWhat::Linux if args.cluster.is_some() || args.sequences.is_some() => {
            Err(Fail::Input("--cluster and --sequences are for 'conform rbd'; leave them out".to_string()))
        }
        ConformWhat::Linux if args.check.is_none() => conform_live::run(args),
        ConformWhat::Linux => linux(args),
        ConformWhat::Rbd if args.check.is_some() || args.predict.is_some() => Err(Fail::Input(
            "--check and --predict are for 'conform linux'; librbd is asked live: leave them out".to_string(),
        )),
        ConformWhat::Rbd if conform_live::is_asked(args) => Err(Fail::Input(
            "--fs, --read-ahead-kb, --mmap, --operations, -o and --json are for 'conform linux'; leave them out"
                .to_string(),
        )),
        #[cfg(feature = "rbd")]
        ConformWhat::Rbd => rbd(args),
        #[cfg(not(feature = "rbd"))]
        ConformWhat::Rbd => Err(Fail::Cannot("this build has no librbd; build it with --features rbd".to_string())),
    }
}

fn linux(args: &ConformArgs) -> Result<(), Fail> {
    let ConformArgs {
        check,
        level,
        predict,
        ..
    } = args;
    let check = check.as_deref().unwrap_or(Path::new(""));
    let place = check.display();
    let recording = linux::open(check).map_err(|error| {
        Fail::input(
            "cannot read the recording",
            format!("{place}: {error}"),
            REMEDY,
        )
    })?;
    let level = match level {
        ConformLevel::Pages => Level::Pages,
        ConformLevel::Full => Level::Full,
    };
    let unwritable = |error: std::io::Error| {
        if let (ErrorKind::AlreadyExists, Some(path)) = (error.kind(), predict) {
            return out::there_already(path.as_os_str());
        }
        let place = predict
            .as_ref()
            .map_or(String::new(), |path| path.display().to_string());
        Fail::input(
            "cannot write the predictions",
            format!("{place}: {error}"),
            "name a file that can be written",
        )
    };
    let whole = |path: &Path| path.canonicalize().ok();
    if predict
        .as_deref()
        .and_then(whole)
        .is_some_and(|out| Some(out) == whole(check))
    {
        return Err(Fail::input(
            "the predictions would take the recording's place",
            place,
            "name another file",
        ));
    }
    let mut to = predict
        .as_ref()
        .map(|path| growing(path, out::force()))
        .transpose()
        .map_err(unwritable)?
        .map(BufWriter::new);
    let verdict = linux::check(recording, level, to.as_mut().map(|to| to as &mut dyn Write))
        .map_err(|error| Fail::Input(format!("{place}: {error}")))?;
    to.map_or(Ok(()), |mut to| to.flush()).map_err(unwritable)?;
    if verdict.operations == 0 {
        return Err(Fail::input(
            "nothing to check",
            format!("{place} has no operation"),
            "record something first",
        ));
    }
    let said = match (verdict.divergences, verdict.pressure_differences) {
        (0, 0) => "The policy linux-6.18 does what the recorded kernel did.",
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

/// On the named cluster, or on one of our own for as long as this takes.
#[cfg(feature = "rbd")]
fn rbd(args: &ConformArgs) -> Result<(), Fail> {
    use foreread_testing::{CephCluster, run_ceph};
    let Some(conf) = &args.cluster else {
        let cluster = CephCluster::up()
            .map_err(|error| Fail::Cannot(format!("no cluster to ask librbd on: {error}")))?;
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

/// The tables one read at a time; the sequences also with four in flight.
#[cfg(feature = "rbd")]
fn on_cluster(
    args: &ConformArgs,
    conf: &Path,
    ceph: foreread_lab::conform::rbd::Ceph<'_>,
) -> Result<(), Fail> {
    use crate::progress::Bar;
    use foreread_lab::conform::rbd::{Images, Verdict, check};
    use foreread_lab::conform::rbd_cases::{published, random};
    use foreread_lab::report::Progress;
    let sequences: Vec<_> = (0..args.sequences.unwrap_or(SEQUENCES))
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
        let found =
            found.map_err(|error| Fail::Cannot(format!("librbd cannot be asked: {error}")))?;
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
        "does what librbd does"
    } else {
        "differs from librbd"
    };
    out::print(format!(
        "The policy rbd-aligned {said}.\ndecisions {decisions} divergences {divergences} (reads {reads})\n"
    ))?;
    first.map_or(Ok(()), |first| Err(Fail::Check(first)))
}
