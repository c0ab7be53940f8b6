//! `foreread compare --vary`: hands a checked series to the lab, prints it, writes the JSON, the picture and the page.
//!
//! Never: measures before every value and every file to be written has been looked at.

use crate::compare_error;
use crate::fail::Fail;
use crate::names;
use crate::out::Outputs;
use crate::progress::Bar;
use foreread_lab::compare::ComparePlan;
use foreread_lab::compare::vary::{self, Vary, VaryError};
use foreread_lab::report::page;

/// Measures, prints and draws.
pub fn run(text: &str, plan: &ComparePlan, outputs: &Outputs, details: bool) -> Result<(), Fail> {
    let asked = Vary::parse(text, plan).map_err(refused)?;
    let series = {
        let mut bar = Bar::new();
        vary::run(&asked, &mut bar).map_err(refused)?
    };
    outputs.emit(
        || series.render(details),
        || series.to_json(),
        &[
            ("svg", &|| series.to_svg()),
            ("html", &|| page::series(&series)),
        ],
    )
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
