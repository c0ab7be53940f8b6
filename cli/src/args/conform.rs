//! The arguments of `foreread conform`. Never: looks at a file.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use foreread_lab::conform::live::FileSystem;
use std::path::PathBuf;

/// The system to check against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformWhat {
    /// The Linux kernel's, against linux-6.18
    Linux,
    /// librbd's, against rbd-aligned
    Rbd,
}

/// What `--fs` takes beside the names of [`FileSystem::ALL`].
pub const ALL_FS: &str = "all";

fn file_systems() -> PossibleValuesParser {
    let named = FileSystem::ALL.map(|fs| PossibleValue::new(fs.name()).help(fs.about()));
    let refused = FileSystem::REFUSED.map(|(name, _)| PossibleValue::new(name).hide(true));
    let all = [PossibleValue::new(ALL_FS).help("All of them")];
    PossibleValuesParser::new(named.into_iter().chain(all).chain(refused))
}

/// Whether files are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformMmap {
    /// Reads and hints only
    No,
    /// Page faults and readahead(2), with reads in between
    Yes,
    /// A run of each
    Both,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformLevel {
    /// Pages brought in, and marks
    Pages,
    /// Every decision, folio, mark and state
    Full,
}

/// Check foreread's decisions against the kernel's or librbd's
///
/// linux: the running kernel carries out seeded operations on a loop device made for them, and its decisions are
/// recorded from tracepoints. The policy linux-6.18 then carries out every operation of this or an earlier recording.
/// After a difference the check goes on with the next episode. Anything that the
/// recording lacks is not compared: of a kernel that has only the page cache's tracepoints, decisions and states; of
/// one without any, all but the pages that are there after reads, on ext4-journal. Short of memory the kernel makes smaller
/// folios and takes marked pages back: episodes under memory pressure are marked, and their differences counted apart.
///
/// At the level 'full' each operation must agree with the kernel's in its decisions, in the folios inserted and their
/// order, in the marks and in the state of the descriptor; the cache is probed as the kernel probes it. It covers every
/// recording. At the level 'pages' the operations go to the engine's own machine, with exact probes, and the pages
/// brought in and the marks must agree. It covers reads and hints without large folios (ext4 with data=journal).
///
/// rbd: the same reads go through librbd (cache policy writeback) and through rbd-aligned, and each extent in librbd's log
/// and both of its counters must agree: the published tables one read at a time, random sequences one and four at a
/// time. It brings up a cluster of one machine for that and takes it down again, or makes small images on yours.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 1: a divergence. 3: none but under memory pressure, which proves none.

Examples:
  foreread conform linux
  foreread conform linux --fs xfs-16k,xfs-64k --read-ahead-kb 128 --mmap yes --operations 100000
  foreread conform linux --check ext4-128.jsonl.gz --predict ours.jsonl
  foreread conform rbd --sequences 1000 --seed 7")]
pub struct ConformArgs {
    /// The system to check against
    #[arg(value_name = "WHAT")]
    pub what: ConformWhat,
    /// linux: a recording to check [default: the running kernel]
    #[arg(long, value_name = "REC")]
    pub check: Option<PathBuf>,
    /// linux: how much is compared
    #[arg(
        long,
        value_name = "LEVEL",
        hide_short_help = true,
        default_value = "full",
        requires = "check"
    )]
    pub level: ConformLevel,
    /// linux: write foreread's decisions, as JSON lines
    #[arg(long, value_name = "OUT", hide_short_help = true)]
    pub predict: Option<PathBuf>,
    /// rbd: a ceph.conf [default: a new cluster]
    #[arg(long, value_name = "CONF", hide_short_help = true)]
    pub cluster: Option<PathBuf>,
    /// rbd: random sequences beside the tables [default: 200]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub sequences: Option<u64>,
    /// Seed of the reads [default: random for linux, 1 for rbd]
    #[arg(long, value_name = "N", conflicts_with = "check")]
    pub seed: Option<u64>,
    /// linux, live: file systems [default: all that this machine has]
    #[arg(long, value_name = "FS,...", hide_short_help = true, value_delimiter = ',', conflicts_with = "check",
        value_parser = file_systems())]
    pub fs: Vec<String>,
    /// linux, live: values of the device's read_ahead_kb [default: 0,4,65,128,1000,1024,8192]
    #[arg(long, value_name = "KIB,...", hide_short_help = true, value_delimiter = ',', conflicts_with = "check",
        value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub read_ahead_kb: Vec<u64>,
    /// linux, live: whether files are mapped [default: both]
    #[arg(
        long,
        value_name = "WHETHER",
        hide_short_help = true,
        conflicts_with = "check"
    )]
    pub mmap: Option<ConformMmap>,
    /// linux, live: operations for each combination of these three [default: 10000]
    #[arg(long, value_name = "N", hide_short_help = true, conflicts_with = "check", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub operations: Option<u64>,
    /// linux: keep the recordings in this folder
    #[arg(short = 'o', long, value_name = "DIR", conflicts_with = "check")]
    pub record: Option<PathBuf>,
    /// linux, live: print JSON (schema foreread.conform-linux/2)
    #[arg(long, hide_short_help = true, conflicts_with = "check")]
    pub json: bool,
}
