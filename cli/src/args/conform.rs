//! The arguments of `foreread conform`. Never: looks at a file.

use clap::ValueEnum;
use std::path::PathBuf;

/// Whose decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformWhat {
    /// The Linux kernel's, against linux-6.18
    Linux,
    /// librbd's, against rbd-aligned
    Rbd,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformLevel {
    /// Pages brought in, and marks
    Pages,
    /// Every decision, folio, mark and state
    Full,
}

/// Check our decisions against those of a kernel, or of librbd
///
/// linux: every operation of a recording from a running kernel is carried out by linux-6.18. After a difference the check
/// goes on with the next episode; the predictions go on from our own state. What the recording does not answer is not
/// compared.
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
Prints 'decisions N divergences M'; any divergence is exit code 1.

Examples:
  foreread conform linux --check ext4-128.jsonl.gz --predict ours.jsonl
  foreread conform rbd --sequences 1000 --seed 7")]
pub struct ConformArgs {
    /// Whose decisions
    #[arg(value_name = "WHAT")]
    pub what: ConformWhat,
    /// linux: the recording, .jsonl or .jsonl.gz
    #[arg(long, value_name = "REC", required_if_eq("what", "linux"))]
    pub check: Option<PathBuf>,
    /// linux: what is compared
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub level: ConformLevel,
    /// linux: write our own decisions, in JSON lines
    #[arg(long, value_name = "OUT")]
    pub predict: Option<PathBuf>,
    /// rbd: a ceph.conf [default: a cluster of our own]
    #[arg(long, value_name = "CONF")]
    pub cluster: Option<PathBuf>,
    /// rbd: random sequences beside the tables
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub sequences: u64,
    /// rbd: the seed of the sequences
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}
