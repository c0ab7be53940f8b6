//! Determines the meaning of CSV columns, by unambiguous names or by options.
//!
//! ```text
//!   offset, offset_bytes                         len, length, size, bytes, length_bytes, size_bytes, len_req
//!   U_ns, U_100ns, U_us, U_ms, U_s for U in      start, t_start, ts, time, timestamp | end, t_end | dur, duration, latency
//!   file, filename, path                         op, operation, type, io_type        tid, thread, rank
//!   open    returned, len_ret    file_size    flags    after
//! ```
//!
//! Options give the meaning of columns with other names (`csv:offset=lba,offset-unit=sectors`); all other columns are recognised by the
//! names in this table. Upper and lower case are not distinguished. A column of times without a unit, or of offsets in sectors, is
//! ambiguous and needs an option. A column can have only one meaning.

use super::super::scan::{MS_NS, SECOND_NS, SECTOR, US_NS, choice, number};
use crate::error::TraceError;
use crate::format::{Fit, Pairs};
use std::path::Path;

pub const MAX_COLUMNS: usize = 256;
/// The largest unit of offsets and lengths: 1 GiB.
const MAX_UNIT: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Offset,
    /// Number of bytes requested.
    Len,
    Returned,
    Start,
    End,
    Dur,
    Op,
    File,
    FileSize,
    Open,
    Thread,
    Flags,
    After,
}

/// All roles (meanings) that a column can have, each with the key that assigns it. The roles that a user can assign by a key come first in
/// the list.
pub const ROLES: [(&str, Role); 13] = [
    ("offset", Role::Offset),
    ("len", Role::Len),
    ("start", Role::Start),
    ("end", Role::End),
    ("dur", Role::Dur),
    ("op", Role::Op),
    ("file", Role::File),
    ("thread", Role::Thread),
    ("open", Role::Open),
    ("returned", Role::Returned),
    ("file-size", Role::FileSize),
    ("flags", Role::Flags),
    ("after", Role::After),
];

/// Number of roles that a key can select.
const NAMED: usize = 11;

/// The units of time, each with its length in nanoseconds.
pub const TIMES: [(&str, u64); 5] = [
    ("ns", 1),
    // The ticks of Windows, in the traces of MSR Cambridge.
    ("100ns", 100),
    ("us", US_NS),
    ("ms", MS_NS),
    ("s", SECOND_NS),
];

/// A role, and the column names that mean it.
type Meaning = (Role, &'static [&'static str]);

const PLAIN: &[Meaning] = &[
    (Role::Offset, &["offset", "offset_bytes"]),
    (
        Role::Len,
        &[
            "len",
            "length",
            "size",
            "bytes",
            "length_bytes",
            "size_bytes",
            "len_req",
        ],
    ),
    (Role::Returned, &["returned", "len_ret"]),
    (Role::File, &["file", "filename", "path"]),
    (Role::FileSize, &["file_size"]),
    (Role::Op, &["op", "operation", "type", "io_type"]),
    (Role::Thread, &["tid", "thread", "rank"]),
    (Role::Open, &["open"]),
    (Role::Flags, &["flags"]),
    (Role::After, &["after"]),
];

const TIMED: &[Meaning] = &[
    (
        Role::Start,
        &["start", "t_start", "ts", "time", "timestamp"],
    ),
    (Role::End, &["end", "t_end"]),
    (Role::Dur, &["dur", "duration", "latency"]),
];

/// Names that are relevant but do not give a unit.
const DOUBTFUL: &[&str] = &[
    "response",
    "responsetime",
    "lba",
    "lbn",
    "sector",
    "block",
    "start_block",
    "sectors",
];

enum ColumnUse {
    Role(Role, u64),
    /// Relevant, but without a known unit.
    Doubt,
    No,
}

fn meant(list: &[Meaning], name: &str) -> Option<Role> {
    let meaning = list.iter().find(|(_, names)| names.contains(&name));
    meaning.map(|(role, _)| *role)
}

fn known(name: &str) -> ColumnUse {
    let name = name.trim().to_ascii_lowercase();
    if let Some(role) = meant(PLAIN, &name) {
        return ColumnUse::Role(role, 1);
    }
    if meant(TIMED, &name).is_some() || DOUBTFUL.contains(&name.as_str()) {
        return ColumnUse::Doubt;
    }
    let (stem, unit) = name.rsplit_once('_').unwrap_or((&name, ""));
    let unit = TIMES.iter().find(|(known, _)| *known == unit);
    match (meant(TIMED, stem), unit) {
        (Some(role), Some((_, unit))) => ColumnUse::Role(role, *unit),
        _ => ColumnUse::No,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub role: Role,
    /// The unit in bytes or nanoseconds.
    pub unit: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns(pub Vec<Option<Column>>);

impl Columns {
    pub fn of(&self, role: Role) -> Option<Column> {
        self.0
            .iter()
            .flatten()
            .find(|column| column.role == role)
            .copied()
    }

    fn put(&mut self, at: usize, role: Role, unit: u64) -> Result<(), String> {
        if self.of(role).is_some() {
            return Err(format!("two columns for the {}", key(role)));
        }
        if self.0[at].is_some() {
            return Err(format!("two meanings for column {}", at + 1));
        }
        self.0[at] = Some(Column { role, unit });
        Ok(())
    }

    /// For each role without a column, adds a column whose name is unambiguous or lacks only the given unit of time.
    fn fill(&mut self, names: &[String], time: Option<u64>) {
        let timed = |name: &str| meant(TIMED, &name.trim().to_ascii_lowercase()).zip(time);
        let mut found: Vec<(usize, Role, u64)> = Vec::new();
        for (at, name) in names
            .iter()
            .enumerate()
            .filter(|(at, _)| self.0[*at].is_none())
        {
            match known(name) {
                ColumnUse::Role(role, unit) => found.push((at, role, unit)),
                ColumnUse::Doubt => found.extend(timed(name).map(|(role, unit)| (at, role, unit))),
                ColumnUse::No => {}
            }
        }
        // An end or a duration needs a start, and only one of the two is allowed.
        found.sort_by_key(|(at, role, _)| (*role != Role::Start, *at));
        for (at, role, unit) in found {
            let is_free = match role {
                Role::End => self.of(Role::Start).is_some() && self.of(Role::Dur).is_none(),
                Role::Dur => self.of(Role::Start).is_some() && self.of(Role::End).is_none(),
                _ => true,
            };
            if is_free && self.of(role).is_none() {
                self.0[at] = Some(Column { role, unit });
            }
        }
    }

    fn whole(self) -> Result<Columns, String> {
        for (role, key) in [(Role::Offset, "offset"), (Role::Len, "len")] {
            if self.of(role).is_none() {
                return Err(format!("no column for the {key}"));
            }
        }
        match (self.of(Role::Start), self.of(Role::End), self.of(Role::Dur)) {
            (_, Some(_), Some(_)) => {
                Err("there is a column for the end and another for the duration (dur)".to_string())
            }
            (None, Some(_), _) | (None, _, Some(_)) => {
                Err("there is no column for the start time".to_string())
            }
            _ => Ok(self),
        }
    }
}

fn key(role: Role) -> &'static str {
    ROLES
        .iter()
        .find(|(_, r)| *r == role)
        .map_or("", |(key, _)| key)
}

/// Determines the meaning of columns from the names in a header.
pub fn by_names(names: &[String]) -> Result<Columns, String> {
    let mut columns = Columns(vec![None; names.len()]);
    for (at, name) in names.iter().enumerate() {
        match known(name) {
            ColumnUse::Role(role, unit) => columns.put(at, role, unit)?,
            ColumnUse::Doubt => {
                return Err(format!(
                    "column '{}' does not say its unit",
                    name.escape_debug()
                ));
            }
            ColumnUse::No => {}
        }
    }
    columns.whole()
}

/// Returns how well a header fits this format: if any of its words is a known column name, the file may be a table of reads.
pub fn fit(names: &[String]) -> Fit {
    let matters = names
        .iter()
        .filter(|name| !matches!(known(name), ColumnUse::No))
        .count();
    match by_names(names) {
        Ok(_) => Fit::Sure,
        Err(_) if matters >= 2 => Fit::Maybe,
        Err(_) => Fit::No,
    }
}

/// Assigns the columns that the user's keys select, in a table with these column names. Columns that no key selects are recognised by
/// their names, as in [`by_names`]. Returns `None` if no key is given.
pub fn by_keys(
    pairs: &Pairs,
    names: &[String],
    path: &Path,
) -> Result<Option<Columns>, TraceError> {
    let refuse = |what: String, remedy: &str| TraceError::whole(path, what, remedy);
    let unit = |key: &str| match pairs.get(key) {
        None => Ok(None),
        Some("bytes") => Ok(Some(1)),
        Some("sectors") => Ok(Some(SECTOR)),
        Some(text) => match number(text.as_bytes()).filter(|unit| (1..=MAX_UNIT).contains(unit)) {
            Some(unit) => Ok(Some(unit)),
            None => Err(refuse(
                format!("'{key}={text}' is not a unit"),
                "bytes, sectors or a number of bytes",
            )),
        },
    };
    let (offset_unit, len_unit) = (unit("offset-unit")?, unit("len-unit")?);
    let time = choice(pairs, "unit", &TIMES.map(|(name, _)| name), path)?.map(|n| TIMES[n].1);
    let mut columns = Columns(vec![None; names.len()]);
    for (key, role) in &ROLES[..NAMED] {
        let Some(wanted) = pairs.get(key) else {
            continue;
        };
        let at = names.iter().position(|name| *name == wanted);
        let at = at.ok_or_else(|| refuse(format!("no column '{wanted}'"), &remedy(names)))?;
        let own = match known(&names[at]) {
            ColumnUse::Role(known, unit) if known == *role => Some(unit),
            _ => None,
        };
        let unit = match role {
            Role::Offset => Some(offset_unit.unwrap_or(1)),
            // With offsets in sectors, lengths may be in either unit.
            Role::Len => len_unit.or(offset_unit.is_none_or(|unit| unit == 1).then_some(1)),
            Role::Start | Role::End | Role::Dur => time.or(own),
            _ => Some(1),
        };
        let unit = unit.ok_or_else(|| match role {
            Role::Len => refuse(
                "the unit of lengths is not given".to_string(),
                "give len-unit=bytes or len-unit=sectors",
            ),
            _ => refuse(
                "the unit of times is not given".to_string(),
                "give unit=ns, 100ns, us, ms or s",
            ),
        })?;
        columns
            .put(at, *role, unit)
            .map_err(|what| refuse(what, "name each column once"))?;
    }
    if columns.0.iter().all(Option::is_none) && offset_unit.or(len_unit).or(time).is_none() {
        return Ok(None);
    }
    columns.fill(names, time);
    columns
        .whole()
        .map(Some)
        .map_err(|what| refuse(what, &remedy(names)))
}

/// Returns the remedy for an error message: how to assign the table's columns by options.
pub fn remedy(names: &[String]) -> String {
    let mut shown: Vec<String> = names
        .iter()
        .take(20)
        .map(|name| name.escape_debug().take(40).collect())
        .collect();
    if names.len() > shown.len() {
        shown.push("...".to_string());
    }
    format!(
        "name the columns, as in --format csv:offset=NAME,len=NAME,start=NAME,unit=us; the file has the columns {}",
        shown.join(" ")
    )
}
