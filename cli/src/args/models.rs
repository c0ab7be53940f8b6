//! The arguments of `foreread models`. Never: looks at a file or a registry.

/// List the device models: figures, origin, error
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread compare --on model:rbd
  foreread models --toml rbd > mine.toml
  foreread compare --on model:mine.toml")]
pub struct ModelsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print one as a model file, as a starting point
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    pub toml: Option<String>,
}
