//! `foreread trace`: what is in a trace, and which formats there are.

use crate::args::TraceCommand;
use crate::fail::Fail;
use crate::out;
use foreread_lab::report::number::wrap;
use foreread_lab::trace::format::{ALL, Format};
use serde_json::{Value, json};

/// Widest line for people.
const WIDTH: usize = 90;

/// Does what is asked.
pub fn run(command: &TraceCommand) -> Result<(), Fail> {
    match command {
        TraceCommand::Formats(asked) => out::print(if asked.json { to_json() } else { in_words() }),
    }
}

/// Schema `foreread.formats/1`: `{"schema":..,"formats":[{"name","summary","read","write","keys":[{"key","help"}]}]}`.
fn to_json() -> String {
    let key = |(key, help): &(&str, &str)| json!({ "key": key, "help": help });
    let row = |format: &&Format| -> Value {
        json!({
            "name": format.name,
            "summary": format.summary,
            "read": format.import.is_some(),
            "write": format.export.is_some(),
            "keys": format.keys.iter().map(key).collect::<Vec<_>>(),
        })
    };
    let whole = json!({ "schema": "foreread.formats/1", "formats": ALL.iter().map(row).collect::<Vec<_>>() });
    format!("{whole:#}\n")
}

fn in_words() -> String {
    let mut text = String::new();
    for format in ALL {
        let can = match (format.import.is_some(), format.export.is_some()) {
            (true, true) => "read and written",
            (true, false) => "read",
            _ => "written",
        };
        text.push_str(&format!("{} ({can})\n", format.name));
        wrap(format.summary, WIDTH - 2).iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        let width = format.keys.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        format.keys.iter().for_each(|(key, help)| text.push_str(&format!("    {key:width$}  {help}\n")));
    }
    text
}
