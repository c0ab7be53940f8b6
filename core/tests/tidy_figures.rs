//! The tables of figures in the documents are those of `docs/benchmarks/*.csv`, and no document has another.
//!
//! A table is between two comments and is made from the rows:
//!
//! ```text
//! <!-- table: nbd -->          the current rows of docs/benchmarks/nbd.csv, one a line
//! <!-- table: remote wide -->  one line for each metric, one column for each peer
//! <!-- rows: a b c -->         these rows, in short
//! <!-- table: misses -->       of all files, the rows whose target is missed
//! <!-- end -->
//! ```
//!
//! `FOREREAD_BLESS=1 cargo test -p foreread-core --test core_tests figures` writes the tables anew. A missed figure is bold.

use crate::figures::{self, Figure, Number, Target};
use crate::tree::{self, File};
use std::collections::BTreeMap;

const FOLDER: &str = "docs/benchmarks/";
/// The page that opens with the misses and names the machines.
const INDEX: &str = "docs/benchmarks.md";
const END: &str = "<!-- end -->";

/// Pages whose tables have figures of others, and the test that holds them.
const QUOTED: [&str; 1] = ["docs/posts.md"]; // check/tests/reproduce/posts.rs

/// The rows of each topic, by the name of its file.
type Topics = BTreeMap<String, Vec<Figure>>;

/// A place of a document that is made from the rows.
struct Table<'a> {
    /// What is between `<!-- ` and ` -->`.
    asks: String,
    /// The text up to and with the opening comment.
    before: &'a str,
    /// What is there.
    text: &'a str,
}

fn topics() -> Topics {
    let (mut topics, mut faults) = (Topics::new(), Vec::new());
    for File { name, text } in tree::files(FOLDER) {
        let Some(topic) = name
            .strip_prefix(FOLDER)
            .and_then(|file| file.strip_suffix(".csv"))
        else {
            faults.push(format!("{name} is not a table"));
            continue;
        };
        match figures::parse(&text) {
            Ok(rows) => drop(topics.insert(topic.to_string(), rows)),
            Err(found) => faults.extend(found.into_iter().map(|fault| format!("{name}:{fault}"))),
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    topics
}

fn pages() -> Vec<File> {
    let mut pages: Vec<File> = tree::files("docs")
        .into_iter()
        .filter(|file| is_page(&file.name))
        .collect();
    pages.push(File {
        name: "README.md".to_string(),
        text: tree::read("README.md"),
    });
    pages
}

/// Journals, decisions and specifications have figures of their day, and no tables of these.
fn is_page(name: &str) -> bool {
    name.strip_prefix("docs/")
        .is_some_and(|rest| rest.ends_with(".md") && !rest.contains('/'))
}

/// The tables of a page, and what is behind the last one.
fn tables(page: &File) -> (Vec<Table<'_>>, &str) {
    let (mut found, mut rest) = (Vec::new(), page.text.as_str());
    loop {
        let opening = ["<!-- table: ", "<!-- rows: "]
            .iter()
            .filter_map(|opening| rest.find(opening))
            .min();
        let Some(start) = opening else {
            return (found, rest);
        };
        let end = start
            + rest[start..]
                .find(" -->\n")
                .unwrap_or_else(|| panic!("{}: a comment does not end", page.name));
        let body = end + " -->\n".len();
        let close = rest[body..]
            .find(END)
            .unwrap_or_else(|| panic!("{}: a table without {END}", page.name));
        found.push(Table {
            asks: rest[start + "<!-- ".len()..end]
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            before: &rest[..body],
            text: &rest[body..body + close],
        });
        rest = &rest[body + close..];
    }
}

fn digits(number: &Number) -> String {
    let is_long = number.text.len() > 4 && number.text.chars().all(|c| c.is_ascii_digit());
    if !is_long {
        return number.text.clone();
    }
    let mut parts: Vec<&[u8]> = number.text.as_bytes().rchunks(3).collect();
    parts.reverse();
    String::from_utf8_lossy(&parts.join(&b","[..])).into_owned()
}

fn target(target: Option<&Target>) -> String {
    match target {
        None => String::new(),
        Some(Target::AtMost(number)) => format!("at most {}", digits(number)),
        Some(Target::AtLeast(number)) => format!("at least {}", digits(number)),
        Some(Target::Exactly(number)) => digits(number),
    }
}

/// `**0.92** of its rate (0.80 to 1.16)`; without the unit where a table names it once.
fn result(row: &Figure, has_unit: bool) -> String {
    let range = row
        .range
        .as_ref()
        .map(|[low, high]| format!("{} to {}", digits(low), digits(high)));
    let (value, rest) = match (&row.median, range) {
        (Some(median), Some(range)) => (digits(median), format!(" ({range})")),
        (Some(median), None) => (digits(median), String::new()),
        (None, range) => (range.unwrap_or_default(), String::new()),
    };
    let value = if row.is_met() == Some(false) {
        format!("**{value}**")
    } else {
        value
    };
    let unit = if has_unit {
        format!(" {}", row.unit)
    } else {
        String::new()
    };
    format!("{value}{unit}{rest}")
}

/// A command as code; words ("by hand, ...") as they are.
fn command(text: &str) -> String {
    if text.contains('`') || text.starts_with("by hand") {
        text.to_string()
    } else {
        format!("`{text}`")
    }
}

/// A table of Markdown, without the columns that are empty in every line.
fn markdown(head: &[&str], lines: &[Vec<String>]) -> String {
    let is_used = |column: &usize| lines.iter().any(|line| !line[*column].is_empty());
    let used: Vec<usize> = (0..head.len()).filter(is_used).collect();
    let row = |of: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = used.iter().map(|column| of(*column)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = row(&|column| head[column].to_string());
    text += &format!("|{}\n", "---|".repeat(used.len()));
    for line in lines {
        text += &row(&|column| line[column].replace('|', "\\|"));
    }
    text
}

/// One line for each row. A command and a machine as in the line above are left out.
fn long_table(rows: &[&Figure]) -> String {
    let mut lines = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let above = at.checked_sub(1).map(|above| &rows[above]);
        let is_new = |of: fn(&Figure) -> &str| above.is_none_or(|above| of(above) != of(row));
        let unless_above =
            |text: String, of: fn(&Figure) -> &str| if is_new(of) { text } else { String::new() };
        lines.push(vec![
            row.metric.clone(),
            row.peer.clone(),
            result(row, true),
            target(row.target.as_ref()),
            row.runs.clone(),
            row.date.clone(),
            unless_above(row.machine.clone(), |row| &row.machine),
            row.commit.clone(),
            unless_above(command(&row.command), |row| &row.command),
            row.note.clone(),
        ]);
    }
    let head = [
        "what",
        "beside, or of",
        "result",
        "target",
        "runs",
        "date",
        "machine",
        "commit",
        "command",
        "note",
    ];
    markdown(&head, &lines)
}

fn short_table(rows: &[&Figure]) -> String {
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.metric.clone(),
                row.peer.clone(),
                result(row, true),
                target(row.target.as_ref()),
            ]
        })
        .collect();
    markdown(&["what", "beside", "result", "target"], &lines)
}

/// Each text once, in the order of its first row.
fn once<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for text in texts.filter(|text| !text.is_empty()) {
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// Of each column the units of its cells, where each cell has the first of the same units.
fn units<'a>(rows: &[&'a Figure], peers: &[&str]) -> Option<Vec<Vec<&'a str>>> {
    let of_peer = |peer: &&str| {
        let mut cells: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.peer == *peer) {
            cells.entry(&row.metric).or_default().push(&row.unit);
        }
        let longest = cells.values().max_by_key(|units| units.len())?.clone();
        let is_alike = cells.values().all(|units| longest.starts_with(units));
        is_alike.then_some(longest)
    };
    peers.iter().map(of_peer).collect()
}

/// The units of all columns, where each has the first of them.
fn common<'a>(units: &[Vec<&'a str>]) -> Option<Vec<&'a str>> {
    let longest = units.iter().max_by_key(|units| units.len())?;
    let is_alike = units.iter().all(|units| longest.starts_with(units));
    is_alike.then(|| longest.clone())
}

/// One line for each metric, one column for each peer; what was run, and notes, are below.
fn wide_table(rows: &[&Figure]) -> String {
    let metrics = once(rows.iter().map(|row| row.metric.as_str()));
    let mut peers: Vec<&str> = Vec::new();
    for row in rows {
        if !peers.contains(&row.peer.as_str()) {
            peers.push(&row.peer);
        }
    }
    let units = units(rows, &peers);
    let common = units.as_deref().and_then(common);
    let mut lines = Vec::new();
    for metric in metrics {
        let of = || rows.iter().filter(|row| row.metric == metric);
        let mut line = vec![metric.to_string()];
        for peer in &peers {
            let cell = of()
                .filter(|row| row.peer == *peer)
                .map(|row| result(row, units.is_none()));
            line.push(cell.collect::<Vec<_>>().join(", "));
        }
        let targets: Vec<String> = of()
            .filter(|row| row.target.is_some())
            .map(|row| format!("{} {}", target(row.target.as_ref()), row.unit))
            .collect();
        line.push(once(targets.iter().map(String::as_str)).join("; "));
        lines.push(line);
    }
    let mut head = vec!["what".to_string()];
    for (at, peer) in peers.iter().enumerate() {
        let name = if peer.is_empty() { "foreread" } else { *peer };
        head.push(match (&common, &units) {
            (None, Some(units)) => format!("{name}, {}", units[at].join(", ")),
            _ => name.to_string(),
        });
    }
    head.push("target".to_string());
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let cells = common.map_or(String::new(), |units| {
        format!("Each cell: {}. ", units.join(", "))
    });
    format!(
        "{}\n{cells}{}{}",
        markdown(&head, &lines),
        caption(rows),
        notes(rows)
    )
}

/// What was run, when and where.
fn caption(rows: &[&Figure]) -> String {
    let list = |of: fn(&Figure) -> &str| once(rows.iter().map(|row| of(row))).join(", ");
    let commands = once(rows.iter().map(|row| row.command.as_str()));
    let commands: Vec<String> = commands.into_iter().map(command).collect();
    let mut text = format!("Run by {}; {}", commands.join(", "), list(|row| &row.date));
    for (name, list) in [
        ("runs", list(|row| &row.runs)),
        ("machine", list(|row| &row.machine)),
        ("commit", list(|row| &row.commit)),
    ] {
        if !list.is_empty() {
            text += &format!("; {name}: {list}");
        }
    }
    text + ".\n"
}

fn notes(rows: &[&Figure]) -> String {
    let noted = rows.iter().filter(|row| !row.note.is_empty());
    let lines = noted.map(|row| {
        let peer = if row.peer.is_empty() {
            String::new()
        } else {
            format!(", {}", row.peer)
        };
        format!("- {}{peer}: {}\n", row.metric, row.note)
    });
    let lines: String = lines.collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\n{lines}")
    }
}

/// Of all topics the rows whose target is missed, each with the page that shows its topic.
fn misses(topics: &Topics, places: &BTreeMap<String, String>) -> String {
    let mut lines = Vec::new();
    for (topic, rows) in topics {
        let place = &places[topic];
        let link = if place == INDEX {
            format!("#{topic}")
        } else {
            place.replace("docs/", "")
        };
        let rows = figures::current(rows).into_iter();
        for row in rows.filter(|row| row.is_met() == Some(false)) {
            lines.push(vec![
                row.metric.clone(),
                row.peer.clone(),
                result(row, true),
                target(row.target.as_ref()),
                row.date.clone(),
                format!("[{topic}]({link})"),
                row.note.clone(),
            ]);
        }
    }
    markdown(
        &[
            "what",
            "beside, or of",
            "result",
            "target",
            "date",
            "table",
            "note",
        ],
        &lines,
    )
}

fn rendered(
    asks: &str,
    topics: &Topics,
    places: &BTreeMap<String, String>,
) -> Result<String, String> {
    if let Some(ids) = asks.strip_prefix("rows: ") {
        let current = || topics.values().flat_map(|rows| figures::current(rows));
        let rows = ids.split(' ').map(|id| {
            let mut found = current().filter(|row| row.id == id);
            found
                .next()
                .ok_or_else(|| format!("no row {id}, or a later one replaces it"))
        });
        return Ok(short_table(&rows.collect::<Result<Vec<_>, _>>()?));
    }
    let asked: Vec<&str> = asks.split(' ').skip(1).collect();
    let [topic, layout @ ..] = asked.as_slice() else {
        return Err("no topic".to_string());
    };
    if *topic == "misses" {
        return Ok(misses(topics, places));
    }
    let rows = topics
        .get(*topic)
        .ok_or_else(|| format!("no file {FOLDER}{topic}.csv"))?;
    match layout {
        [] => Ok(long_table(&figures::current(rows))),
        ["wide"] => Ok(wide_table(&figures::current(rows))),
        _ => Err(format!("{layout:?} is not a layout")),
    }
}

/// Of each topic, the page that has its table.
fn places(pages: &[File]) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for page in pages {
        for table in tables(page).0 {
            if let Some(topic) = table
                .asks
                .strip_prefix("table: ")
                .and_then(|asks| asks.split(' ').next())
            {
                places.insert(topic.to_string(), page.name.clone());
            }
        }
    }
    places
}

#[test]
fn tables_of_figures_are_their_rows() {
    let (topics, pages) = (topics(), pages());
    let places = places(&pages);
    for topic in topics.keys() {
        assert!(
            places.contains_key(topic),
            "no page has <!-- table: {topic} -->"
        );
    }
    let is_blessed = std::env::var_os("FOREREAD_BLESS").is_some();
    let mut faults = Vec::new();
    for page in &pages {
        let (tables, behind) = tables(page);
        let mut text = String::new();
        for table in &tables {
            let made = rendered(&table.asks, &topics, &places)
                .unwrap_or_else(|fault| panic!("{}: {}: {fault}", page.name, table.asks));
            if made != table.text {
                faults.push(format!("{}: {}", page.name, table.asks));
            }
            text += table.before;
            text += &made;
        }
        text += behind;
        if is_blessed && text != page.text {
            std::fs::write(tree::root().join(&page.name), text).expect("a page");
        }
    }
    assert!(
        faults.is_empty() || is_blessed,
        "tables that are not their rows (FOREREAD_BLESS=1 writes them anew):\n{}",
        faults.join("\n")
    );
}

#[test]
fn a_figure_has_one_id_and_a_known_machine() {
    let (topics, index) = (topics(), tree::read(INDEX));
    let (mut ids, mut rows) = (BTreeMap::new(), 0);
    for (topic, row) in topics
        .iter()
        .flat_map(|(topic, rows)| rows.iter().map(move |row| (topic, row)))
    {
        if let Some(other) = ids.insert(&row.id, topic) {
            panic!("{topic}.csv: the id {} is in {other}.csv too", row.id);
        }
        let is_known =
            row.machine.is_empty() || index.contains(&format!("\n- `{}`: ", row.machine));
        assert!(
            is_known,
            "{topic}.csv: {}: {INDEX} does not describe the machine {}",
            row.id, row.machine
        );
        rows += 1;
    }
    assert!(rows > 400, "{rows} rows: the rule must reach them");
}

#[test]
fn the_misses_come_first() {
    for (page, first) in [
        (INDEX, "table: misses"),
        ("docs/remote.md", "table: remote wide"),
    ] {
        let page = File {
            name: page.to_string(),
            text: tree::read(page),
        };
        assert_eq!(tables(&page).0[0].asks, first, "{}", page.name);
    }
}

/// Cells of a table that begin with a measured figure: `0.92`, `**1.2**`, `87,812`.
fn has_figure(line: &str) -> bool {
    line.starts_with('|')
        && line.split('|').any(|cell| {
            let cell = cell.trim().trim_start_matches('*');
            let digits = cell.chars().take_while(char::is_ascii_digit).count();
            let mut behind = cell[digits..].chars();
            digits > 0
                && [Some('.'), Some(',')].contains(&behind.next())
                && behind.next().is_some_and(|c| c.is_ascii_digit())
        })
}

#[test]
fn no_table_of_figures_is_written_by_hand() {
    for page in pages()
        .iter()
        .filter(|page| !QUOTED.contains(&page.name.as_str()))
    {
        let (tables, behind) = tables(page);
        let by_hand = tables.iter().map(|table| table.before).chain([behind]);
        for line in by_hand.flat_map(str::lines) {
            assert!(
                !has_figure(line),
                "{}: figures are rows of {FOLDER}*.csv: {line}",
                page.name
            );
        }
    }
    assert!(
        has_figure("| a | **0.92** (x) |") && has_figure("| 87,812 |") && has_figure("|27.0 % |")
    );
    assert!(!has_figure("| `linux-2.6.0` | 4 KiB | 1 to 2 |") && !has_figure("0.92"));
}

#[test]
fn tables_are_drawn() {
    let rows = "a,in order,,c d,s,<=1.5,1.60,,,,2026-11-24,,m,why\nb,in order,,c d,requests,,10500,,,,2026-11-24,,m,\n\
                c,in order,rclone,c d,s,,1.65,1.2,2.0,3,2026-11-25,,m,";
    let rows = figures::parse(&format!("{}\n{rows}", figures::COLUMNS.join(","))).expect("rows");
    assert_eq!(
        long_table(&figures::current(&rows[1..])),
        "| what | beside, or of | result | runs | date | machine | command |\n|---|---|---|---|---|---|---|\n\
         | in order |  | 10,500 requests |  | 2026-11-24 | m | `c d` |\n\
         | in order | rclone | 1.65 s (1.2 to 2.0) | 3 | 2026-11-25 |  |  |\n"
    );
    assert_eq!(
        wide_table(&figures::current(&rows)),
        "| what | foreread | rclone | target |\n|---|---|---|---|\n\
         | in order | **1.60**, 10,500 | 1.65 (1.2 to 2.0) | at most 1.5 s |\n\n\
         Each cell: s, requests. Run by `c d`; 2026-11-24, 2026-11-25; runs: 3; machine: m.\n\n- in order: why\n"
    );
    let topics = Topics::from([("t".to_string(), rows)]);
    let places = BTreeMap::from([("t".to_string(), "docs/t.md".to_string())]);
    assert_eq!(
        misses(&topics, &places),
        "| what | result | target | date | table | note |\n|---|---|---|---|---|---|\n\
         | in order | **1.60** s | at most 1.5 | 2026-11-24 | [t](t.md) | why |\n"
    );
    for asks in ["table: u", "table: t tall", "rows: d"] {
        assert!(rendered(asks, &topics, &places).is_err(), "{asks}");
    }
}
