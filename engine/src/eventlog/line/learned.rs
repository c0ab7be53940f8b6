//! The lines of what an earlier session or process learned: `learned NAME BLOCK PAGES`, `prior LATENCY RATE RATE`, `runs KIND OCTAVE REACHED ENDED`.

use super::{Fields, LineError, Word};
use foreread_core::event::{Event, FirstRead};
use foreread_core::storage::{RunEnds, RunKind, SourceFigures};
use std::fmt::{self, Write};

impl Word for RunKind {
    const ALL: &'static [(RunKind, &'static str)] = RunKind::ALL;
    const WANT: &'static str = "start, next or elsewhere";
}

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

pub(super) fn write_prior(out: &mut String, figures: SourceFigures) -> fmt::Result {
    let SourceFigures {
        latency_ns,
        rate,
        single_rate,
    } = figures;
    writeln!(out, "prior {latency_ns} {rate} {single_rate}")
}

pub(super) fn prior(fields: &mut Fields<'_>) -> Result<Event, LineError> {
    let figures = SourceFigures {
        latency_ns: fields.number("a latency")?,
        rate: fields.number("a rate")?,
        single_rate: fields.number("a rate")?,
    };
    Ok(Event::Prior { figures })
}

pub(super) fn write_runs(out: &mut String, runs: RunEnds) -> fmt::Result {
    let RunEnds {
        kind,
        octave,
        reached,
        ended,
    } = runs;
    writeln!(out, "runs {} {octave} {reached} {ended}", kind.word())
}

pub(super) fn runs(fields: &mut Fields<'_>) -> Result<Event, LineError> {
    let runs = RunEnds {
        kind: fields.word()?,
        octave: fields.number("an octave")?,
        reached: fields.number("a count")?,
        ended: fields.number("a count")?,
    };
    Ok(Event::RunsBefore { runs })
}
