//! `foreread man [DIR]`: the manual pages, generated from the arguments themselves.

use crate::args::Args;
use crate::fail::Fail;
use crate::out;
use clap::CommandFactory;
use std::path::Path;

/// Prints `foreread(1)`, or writes it and a page for each command to `dir`.
pub fn run(dir: Option<&Path>) -> Result<(), Fail> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Args::command()).render(&mut page).map_err(|error| refused(Path::new("page"), &error))?;
        return out::print(page);
    };
    if !dir.is_dir() {
        return Err(Fail::input("not a directory", dir.display(), "name one that exists; the pages are written there"));
    }
    // The short help leaves some out; they have pages all the same.
    let all = Args::command().mut_subcommands(|command| command.hide(false));
    clap_mangen::generate_to(all, dir).map_err(|error| refused(dir, &error))
}

fn refused(place: &Path, error: &std::io::Error) -> Fail {
    Fail::input("cannot write the manual", format!("{}: {error}", place.display()), "name another directory")
}
