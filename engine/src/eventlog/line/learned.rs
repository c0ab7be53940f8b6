//! Lines for the first reads of an earlier session: `learned NAME BLOCK PAGES`.

use super::{Fields, LineError};
use foreread_core::event::{Event, FirstRead};
use std::fmt::{self, Write};

pub(super) fn write_step(out: &mut String, step: FirstRead) -> fmt::Result {
    writeln!(out, "learned {} {} {}", step.name, step.block, step.pages)
}

pub(super) fn step(fields: &mut Fields<'_>) -> Result<Event, LineError> {
    let step = FirstRead {
        name: fields.number("a name")?,
        block: fields.number("a block")?,
        pages: fields.number("pages")?,
    };
    Ok(Event::Learned { step })
}
