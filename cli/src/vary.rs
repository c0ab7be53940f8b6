//! `foreread compare --vary`: hands a checked series to the lab, prints it, writes the JSON, the picture and the page.
//!
//! Never: measures before every value and every file to be written has been looked at.

use crate::compare_error;
use crate::fail::Fail;
use crate::names;
use crate::out::{self, JsonTo};
use crate::progress::Bar;
use foreread_lab::compare::ComparePlan;
use foreread_lab::compare::vary::{self, Vary, VaryError};
use foreread_lab::report::page;
use std::ffi::OsStr;

/// Where else the results of a series go.
pub struct Files<'a> {
    /// The JSON.
    pub json: Option<JsonTo>,
    /// The picture, before it was looked whether it can be written.
    pub svg: Option<&'a OsStr>,
    /// The page, likewise.
    pub html: Option<&'a OsStr>,
}

/// Measures, prints and draws.
pub fn run(text: &str, plan: &ComparePlan, files: &Files<'_>, details: bool) -> Result<(), Fail> {
    let asked = Vary::parse(text, plan).map_err(refused)?;
    let writable =
        |option, path: Option<&OsStr>| path.map(|path| out::writable(option, path)).transpose();
    let (svg, html) = (writable("svg", files.svg)?, writable("html", files.html)?);
    let json = files.json.as_ref();
    out::distinct(&[
        ("json", out::file(json)),
        ("svg", svg.as_deref()),
        ("html", html.as_deref()),
    ])?;
    let series = {
        let mut bar = Bar::new();
        vary::run(&asked, &mut bar).map_err(refused)?
    };
    if json != Some(&JsonTo::Stdout) {
        out::print(series.render(details))?;
    }
    json.map_or(Ok(()), |to| to.write(&series.to_json()))?;
    svg.map_or(Ok(()), |path| out::write("svg", &path, &series.to_svg()))?;
    html.map_or(Ok(()), |path| {
        out::write("html", &path, &page::series(&series))
    })
}

fn refused(error: VaryError) -> Fail {
    match error {
        VaryError::Usage(text) => Fail::Input(text),
        VaryError::Key { key, known } => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            names::unknown("parameter in --vary", &key, &known, "foreread workloads")
        }
        VaryError::Policy(error) => names::refused("policy", &error, "foreread policies"),
        VaryError::Compare(error) => compare_error::refused(error),
    }
}
