//! `foreread compare --vary`: hands a checked series to the lab, prints it, writes the JSON, the picture and the page.
//!
//! Never: measures before every value and every file to be written has been looked at.

use crate::fail::Fail;
use crate::out::Outputs;
use crate::progress::Bar;
use foreread_lab::compare::ComparePlan;
use foreread_lab::compare::vary::{self, MeasuredSeries, Vary};
use foreread_lab::report::page;

/// Measures, prints and draws; gives the values that were not measured, as the plan was stopped.
pub fn run(
    text: &str,
    plan: &ComparePlan,
    outputs: &Outputs,
    details: bool,
) -> Result<Vec<String>, Fail> {
    let asked = Vary::parse(text, plan)?;
    let MeasuredSeries { series, missing } = {
        let mut bar = Bar::new();
        vary::run(&asked, &mut bar)?
    };
    if !series.reports.is_empty() {
        outputs.emit(
            || series.render(details),
            || series.to_json(),
            &[
                ("svg", &|| series.to_svg()),
                ("html", &|| page::series(&series)),
            ],
        )?;
    }
    Ok(missing)
}
