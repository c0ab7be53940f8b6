//! `foreread compare --vary`: hands a checked series to the lab, prints it, writes the JSON, the picture and the page.
//!
//! Never: measures before every value and every file to be written has been looked at.

use crate::fail::Fail;
use crate::out::Outputs;
use crate::progress::Bar;
use foreread_lab::compare::ComparePlan;
use foreread_lab::compare::vary::{self, Vary};
use foreread_lab::report::page;

/// Measures, prints and draws.
pub fn run(text: &str, plan: &ComparePlan, outputs: &Outputs, details: bool) -> Result<(), Fail> {
    let asked = Vary::parse(text, plan)?;
    let series = {
        let mut bar = Bar::new();
        vary::run(&asked, &mut bar)?
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
