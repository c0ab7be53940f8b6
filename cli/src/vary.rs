//! `foreread compare --vary`: hands a checked series to the lab, prints it, writes the JSON and the picture.
//!
//! Never: measures before every value and every file to be written has been looked at.

use crate::compare;
use crate::fail::Fail;
use crate::names;
use crate::out::{self, JsonTo};
use crate::progress::Bar;
use foreread_lab::compare::Plan;
use foreread_lab::compare::vary::{self, Vary, VaryError};
use std::ffi::OsStr;
use std::path::Path;

/// Measures, prints and draws.
pub fn run(text: &str, plan: &Plan, json: Option<&JsonTo>, svg: Option<&OsStr>) -> Result<(), Fail> {
    let asked = Vary::parse(text, plan).map_err(refused)?;
    let svg = svg.map(|path| out::writable("svg", path)).transpose()?;
    if let (Some(JsonTo::File(json)), Some(svg)) = (json, &svg)
        && json == svg
    {
        return Err(Fail::input("one file named twice", format!("--json and --svg {}", svg.display()), "name two"));
    }
    let series = {
        let mut bar = Bar::new();
        vary::run(&asked, &mut bar).map_err(refused)?
    };
    if json != Some(&JsonTo::Stdout) {
        out::print(series.render())?;
    }
    json.map_or(Ok(()), |to| to.write(&series.to_json()))?;
    svg.as_deref().map_or(Ok(()), |path: &Path| out::write("svg", path, &series.to_svg()))
}

fn refused(error: VaryError) -> Fail {
    match error {
        VaryError::Usage(text) => Fail::Input(text),
        VaryError::Key { key, known } => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            names::unknown("parameter in --vary", &key, &known, "foreread workloads")
        }
        VaryError::Policy(error) => names::refused("policy", &error, "foreread policies"),
        VaryError::Compare(error) => compare::refused(error),
    }
}
