//! `foreread reproduce`: has the lab make the published tables again, prints them, and fails where a check fails that is not
//! on record as a miss.
//!
//! Never: judges a figure.

use crate::args::ReproduceArgs;
use crate::fail::Fail;
use crate::out::{self, JsonTo, json_to};
use crate::progress::Bar;
use foreread_lab::reproduce::{self, Options, Paper, ReproduceError, Reproduction, real, text};

/// Makes the tables and prints them.
pub fn run(args: &ReproduceArgs) -> Result<(), Fail> {
    let json = json_to(args.json.as_ref())?;
    let html = args
        .html
        .as_deref()
        .map(|path| out::writable("html", path))
        .transpose()?;
    out::distinct(&[
        ("json", out::file(json.as_ref())),
        ("html", html.as_deref()),
    ])?;
    // "all" is the only value that names no paper.
    let papers: Vec<Paper> = Paper::parse(&args.paper).into_iter().collect();
    let done = if args.real {
        real::run(&papers, &real::Extent::default(), &mut Bar::new()).map_err(cannot)?
    } else {
        let options = Options {
            papers,
            most_runs: args.runs,
            instead: Vec::new(),
        };
        reproduce::run(&options, &mut Bar::new()).map_err(refused)?
    };
    show(&done, json.as_ref())?;
    html.map_or(Ok(()), |path| {
        out::write("html", &path, &reproduce::page(&done))
    })?;
    match done.new_misses().count() {
        0 => Ok(()),
        missed => Err(Fail::Check(text::missed_line(&done, missed))),
    }
}

/// What this machine cannot do is no fault of the input.
fn cannot(error: real::RealError) -> Fail {
    Fail::Cannot(error.to_string())
}

fn refused(error: ReproduceError) -> Fail {
    match error {
        ReproduceError::Compare(error) => crate::compare_error::refused(error),
        error => Fail::Input(error.to_string()),
    }
}

fn show(done: &Reproduction, json: Option<&JsonTo>) -> Result<(), Fail> {
    if json != Some(&JsonTo::Stdout) {
        out::print(text::render(done))?;
    }
    json.map_or(Ok(()), |to| to.write(&done.to_json()))
}
