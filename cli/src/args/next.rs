//! The arguments of `foreread next`. Never: connects to anything.

use std::path::PathBuf;

/// Give a mount the files that are read next, in their order
///
/// The mount reads them ahead, whole, as far as its policy's distance and half of its cache go; 'auto' does, other policies take no
/// notice. Names begin at the mount's folder, or are whole paths in it, one a line. A name that is no file there is counted and left
/// out. It returns when the mount knows the order, before anything is read.
///
/// A mount keeps 65,536 files that are planned and not opened yet; a longer list goes out in parts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread mount s3://bucket/train mnt --control /run/user/1000/train
  ls mnt | shuf --random-source=seed | foreread next /run/user/1000/train
  find mnt -name '*.npy' -print0 | foreread next -0 /run/user/1000/train")]
pub struct NextArgs {
    /// The socket of 'foreread mount --control'
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    /// The list; standard input without it
    #[arg(value_name = "LIST")]
    pub list: Option<PathBuf>,
    /// Names end with a 0 byte, as those of 'find -print0'
    #[arg(short = '0', long)]
    pub null: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
