//! `foreread man [DIR]`: prints or writes the manual pages, which are generated from the argument definitions.

use crate::fail::Fail;
use crate::out;
use std::path::Path;
use std::path::PathBuf;

/// Print the manual page, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread man | man -l -
  foreread man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write foreread.1 and a page for each command to this directory
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Prints the manual page `foreread(1)`, or writes this page and a page for each command to `dir`.
pub fn run(args: &ManArgs, command: clap::Command) -> Result<(), Fail> {
    let Some(dir) = args.dir.as_deref() else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .map_err(|error| refused(Path::new("page"), &error))?;
        return out::print(page);
    };
    if !dir.is_dir() {
        return Err(Fail::input(
            "not a directory",
            dir.display(),
            "name an existing folder; the pages are written there",
        ));
    }
    // Commands that are hidden in the short help have pages too.
    let mut all = command.mut_subcommands(|command| command.hide(false));
    all.build();
    write(&all, dir)
}

/// The page of a command, and the pages of its subcommands.
fn write(command: &clap::Command, dir: &Path) -> Result<(), Fail> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_string();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(|error| refused(Path::new(&name), &error))?;
    let text = String::from_utf8_lossy(&page);
    out::write("", &dir.join(format!("{name}.1")), &text)?;
    let shown = command
        .get_subcommands()
        .filter(|command| command.get_name() != "help" && !command.is_hide_set());
    shown
        .into_iter()
        .try_for_each(|command| write(command, dir))
}

fn refused(place: &Path, error: &std::io::Error) -> Fail {
    Fail::input(
        "cannot write the manual",
        format!("{}: {error}", place.display()),
        "name another directory",
    )
}
