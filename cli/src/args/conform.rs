//! The arguments of `foreread conform`. Never: looks at a file.

use clap::ValueEnum;
use std::path::PathBuf;

/// Whose decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformWhat {
    /// The Linux kernel's, against linux-6.18
    Linux,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformLevel {
    /// Pages brought in, and marks
    Pages,
    /// Every decision, folio, mark and state
    Full,
}

/// Check our decisions against those recorded from a running kernel
///
/// Every operation of the recording is carried out by linux-6.18. After a difference the check goes on with the next
/// episode; the predictions go on from our own state. What the recording does not answer is not compared.
///
/// At the level 'full' each operation must agree with the kernel's in its decisions, in the folios inserted and their
/// order, in the marks and in the state of the descriptor; the cache is probed as the kernel probes it. It covers every
/// recording. At the level 'pages' the operations go to the engine's own machine, with exact probes, and the pages
/// brought in and the marks must agree. It covers reads and hints without large folios (ext4 with data=journal).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints 'decisions N divergences M'; any divergence is exit code 1.

Example:
  foreread conform linux --check ext4-128.jsonl.gz --predict ours.jsonl")]
pub struct ConformArgs {
    /// Whose decisions
    #[arg(value_name = "WHAT")]
    pub what: ConformWhat,
    /// The recording, .jsonl or .jsonl.gz
    #[arg(long, value_name = "REC")]
    pub check: PathBuf,
    /// What is compared
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub level: ConformLevel,
    /// Write our own decisions, a JSON line for each operation
    #[arg(long, value_name = "OUT")]
    pub predict: Option<PathBuf>,
}
