//! Which part of a trace is replayed, and how: what `explain` and `tune` ask alike. Never: looks at the trace.

use super::ReplayMode;

/// Flattened into the arguments of a command.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// How the replay keeps time [default: the best that the trace allows]
    #[arg(long, value_name = "MODE", hide_short_help = true)]
    pub mode: Option<ReplayMode>,
    /// A factor on the recorded pauses: 0, 0.5, 1, 2
    #[arg(long, value_name = "FACTOR", hide_short_help = true)]
    pub think: Option<f64>,
    /// Replay only the first N records
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Replay only the files whose names contain TEXT
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub only: Option<String>,
    /// The format of the trace, NAME[:key=value,...]; by default what its content shows
    #[arg(long, value_name = "FORMAT", hide_short_help = true)]
    pub format: Option<String>,
}
