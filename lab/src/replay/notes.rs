//! Writes the notes that tables show about a replay: the time mode and its reason, omitted records, missing fields of
//! the trace.

use super::load::{Counts, LoadedTrace};
use super::{MAX_OUTSTANDING, Mode};
use foreread_report::number::plural;
use foreread_trace::Level;

/// Returns all notes, one sentence each. If the user gave no mode, `why` is the reason for the mode that foreread chose. `overlap` contains
/// the number of readers that had several reads in flight, and the maximum number of reads in flight.
pub fn all(
    loaded: &LoadedTrace,
    mode: Mode,
    think: Option<f64>,
    why: Option<&str>,
    overlap: Option<(u64, u64)>,
) -> Vec<String> {
    let why = why.map_or_else(String::new, |why| format!(", because {why}"));
    let mut notes = vec![format!(
        "Replayed in mode {}{why}: {}",
        mode.name(),
        in_words(mode, think)
    )];
    if matches!(mode, Mode::Asap | Mode::Closed) {
        notes.extend(readers(loaded, overlap));
    }
    if mode == Mode::Asap && think.is_none() && loaded.has_starts && !loaded.has_ends {
        notes
            .push("To see how much the unknown think time matters, try --think 0.5, 1 and 2, which scale the gaps between the starts of reads".into());
    }
    // If the waits are inferred, nothing waits for skipped records.
    if mode == Mode::Deps
        && loaded.has_deps
        && loaded.counts.writes
            + loaded.counts.ahead
            + loaded.counts.elsewhere
            + loaded.counts.empty
            > 0
    {
        notes.push("Records that depend on a skipped record do not wait for it".into());
    }
    if mode == Mode::Open {
        notes.push(format!(
            "The latency of a read counts from its recorded start; up to {MAX_OUTSTANDING} reads are outstanding at once"
        ));
    }
    notes.extend(left_out(&loaded.counts));
    notes.extend(sizes(loaded));
    if loaded.header.level == Level::BelowCache {
        notes.push(
            "The trace was taken below a cache: it lacks cache hits and already contains readahead, so comparisons of \
             readahead with it are biased"
                .into(),
        );
    }
    notes
}

fn in_words(mode: Mode, think: Option<f64>) -> String {
    let by = match think {
        Some(factor) if factor != 1.0 => format!(" times {factor}"),
        _ => String::new(),
    };
    match (mode, think) {
        (Mode::Asap, None) => {
            "each reader's next read begins when its previous read has ended".to_string()
        }
        (Mode::Asap, Some(_)) => {
            format!(
                "each reader's next read begins when its previous read has ended and the recorded time between the starts of the two reads{by} has passed"
            )
        }
        (Mode::Closed, _) => {
            format!(
                "each reader's next read begins when its previous read has ended and then the recorded pause{by} has passed"
            )
        }
        (Mode::Open, _) => "each read begins at its recorded time".to_string(),
        (Mode::Deps, _) => {
            format!(
                "each read begins once what it depends on has happened and its recorded delay{by} has passed"
            )
        }
    }
}

fn readers(loaded: &LoadedTrace, overlap: Option<(u64, u64)>) -> Vec<String> {
    let mut notes = Vec::new();
    let lacks = loaded.header.lacks;
    if lacks.threads {
        let each = if lacks.opens {
            "file"
        } else {
            "open description"
        };
        notes.push(format!(
            "The trace has no threads: each {each} gets its own reader"
        ));
    }
    if let Some((readers, most)) = overlap {
        let readers = if readers == 1 {
            "One reader keeps".to_string()
        } else {
            format!("{readers} readers keep")
        };
        notes.push(format!(
            "{readers} several reads in flight, as recorded: up to {most}"
        ));
    }
    notes
}

fn left_out(counts: &Counts) -> Vec<String> {
    let some = |n: u64, what: &str| (n > 0).then(|| plural(n, what));
    let left_out = [
        some(counts.writes, "write"),
        some(counts.ahead, "readahead record"),
        some(counts.elsewhere, "record").map(|records| records + " of other files"),
        some(counts.empty, "read").map(|reads| reads + " of no bytes or after the end of a file"),
    ];
    let left_out = Vec::from_iter(left_out.into_iter().flatten());
    let notes = [
        (!left_out.is_empty()).then(|| format!("Left out: {}", left_out.join(", "))),
        some(counts.clipped, "read").map(|reads| reads + " clipped to the end of the file"),
        some(counts.cut_scans, "page fault").map(|faults| {
            faults + " replayed as touches of the first page only: too many pages in total"
        }),
        (counts.cut).then(|| {
            "Only the first records of the trace were replayed, as --records says".to_string()
        }),
    ];
    notes.into_iter().flatten().collect()
}

fn sizes(loaded: &LoadedTrace) -> Option<String> {
    match (loaded.counts.unsized_files, loaded.files.len()) {
        (0, _) => None,
        (1, 1) => Some(
            "The file's size is not in the trace: it is assumed to end at its last record"
                .to_string(),
        ),
        (n, _) => Some(format!(
            "The sizes of {n} files are not in the trace: each is assumed to end at its last record"
        )),
    }
}
