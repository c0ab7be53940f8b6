//! Published figures: the rows of `docs/benchmarks/*.csv`, one metric a row.
//!
//! A row is `id,metric,peer,command,unit,target,median,low,high,n,date,commit,machine,note`. Example:
//!
//! ```text
//! dd-2026-11-24,"in order, 128 KiB",buffered `dd`,bench/sequential-vs-fio,of its rate,>=1.0,0.92,0.80,1.16,15,2026-11-24,,vm2,
//! ```
//!
//! Whether a target is met follows from the median; where a row has no median, both ends of its range have to meet it.
//! A field with a comma or a quote is in quotes, and a quote in it is doubled. No field has a line break.

/// The columns, in their order.
pub const COLUMNS: [&str; 14] = [
    "id", "metric", "peer", "command", "unit", "target", "median", "low", "high", "n", "date",
    "commit", "machine", "note",
];

/// A number as it was written: `1.10` stays `1.10`.
#[derive(Clone, Debug)]
pub struct Number {
    pub text: String,
    pub value: f64,
}

/// What a figure has to be.
#[derive(Clone, Debug)]
pub enum Target {
    AtMost(Number),
    AtLeast(Number),
    Exactly(Number),
}

#[derive(Clone, Debug)]
pub struct Figure {
    pub id: String,
    pub metric: String,
    /// Beside what a ratio is; with another unit, what was measured where that is not foreread.
    pub peer: String,
    pub command: String,
    pub unit: String,
    pub target: Option<Target>,
    pub median: Option<Number>,
    /// Least and greatest.
    pub range: Option<[Number; 2]>,
    pub runs: String,
    pub date: String,
    pub commit: String,
    pub machine: String,
    pub note: String,
}

impl Target {
    fn parse(text: &str) -> Result<Target, String> {
        let of = |sign: &str| text.strip_prefix(sign).map(number);
        let parsed = if let Some(most) = of("<=") {
            most.map(Target::AtMost)
        } else if let Some(least) = of(">=") {
            least.map(Target::AtLeast)
        } else if let Some(exact) = of("=") {
            exact.map(Target::Exactly)
        } else {
            Err(String::new())
        };
        parsed.map_err(|_| format!("target {text:?}: write <=N, >=N or =N"))
    }

    fn is_met_by(&self, number: &Number) -> bool {
        match self {
            Target::AtMost(most) => number.value <= most.value,
            Target::AtLeast(least) => number.value >= least.value,
            Target::Exactly(exact) => number.value == exact.value,
        }
    }
}

impl Figure {
    fn parse(line: &str) -> Result<Figure, String> {
        let fields = split(line)?;
        let Ok(
            [
                id,
                metric,
                peer,
                command,
                unit,
                target,
                median,
                low,
                high,
                runs,
                date,
                commit,
                machine,
                note,
            ],
        ) = <[String; COLUMNS.len()]>::try_from(fields)
        else {
            return Err(format!("{} fields are a row", COLUMNS.len()));
        };
        let is_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if id.is_empty() || !id.chars().all(is_id) {
            return Err(format!(
                "id {id:?}: write small letters, digits and hyphens"
            ));
        }
        for (name, field) in [("metric", &metric), ("command", &command), ("unit", &unit)] {
            if field.is_empty() {
                return Err(format!("no {name}"));
            }
        }
        if !runs.is_empty() && !runs.parse::<u64>().is_ok_and(|runs| runs > 0) {
            return Err(format!("n {runs:?}: write a count of runs"));
        }
        if !is_date(&date) {
            return Err(format!("date {date:?}: write YYYY-MM-DD"));
        }
        if !commit.is_empty()
            && (commit.len() < 7 || !commit.chars().all(|c| c.is_ascii_hexdigit()))
        {
            return Err(format!(
                "commit {commit:?}: write at least seven digits of its hash"
            ));
        }
        let optional = |text: &str| (!text.is_empty()).then(|| number(text)).transpose();
        let (median, low, high) = (optional(&median)?, optional(&low)?, optional(&high)?);
        let range = match (low, high) {
            (Some(low), Some(high)) => Some([low, high]),
            (None, None) => None,
            _ => return Err("low without high, or high without low".to_string()),
        };
        check_order(median.as_ref(), range.as_ref())?;
        let target = (!target.is_empty())
            .then(|| Target::parse(&target))
            .transpose()?;
        Ok(Figure {
            id,
            metric,
            peer,
            command,
            unit,
            target,
            median,
            range,
            runs,
            date,
            commit,
            machine,
            note,
        })
    }

    /// Whether the target is met; `None` without one.
    pub fn is_met(&self) -> Option<bool> {
        let target = self.target.as_ref()?;
        let mut judged: Vec<&Number> = self.median.iter().collect();
        if judged.is_empty() {
            judged.extend(self.range.iter().flatten());
        }
        Some(judged.into_iter().all(|number| target.is_met_by(number)))
    }
}

/// Rows that are shown: not those that a later row of the same metric, peer and unit replaces.
pub fn current(rows: &[Figure]) -> Vec<&Figure> {
    let is_replaced = |row: &Figure| {
        rows.iter().any(|later| {
            [&later.metric, &later.peer, &later.unit] == [&row.metric, &row.peer, &row.unit]
                && later.date > row.date
        })
    };
    rows.iter().filter(|row| !is_replaced(row)).collect()
}

fn number(text: &str) -> Result<Number, String> {
    let is_plain = text
        .chars()
        .all(|c| c.is_ascii_digit() || c == '.' || c == '-');
    let value = text
        .parse()
        .ok()
        .filter(|value: &f64| is_plain && value.is_finite());
    let value = value.ok_or_else(|| format!("{text:?} is not a number"))?;
    Ok(Number {
        text: text.to_string(),
        value,
    })
}

fn check_order(median: Option<&Number>, range: Option<&[Number; 2]>) -> Result<(), String> {
    match (median, range) {
        (None, None) => Err("neither a median nor a range".to_string()),
        (_, Some([low, high])) if low.value > high.value => Err("low is above high".to_string()),
        (Some(median), Some([low, high])) if !(low.value..=high.value).contains(&median.value) => {
            Err(format!(
                "the median {} is outside {} to {}",
                median.text, low.text, high.text
            ))
        }
        _ => Ok(()),
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_part = |(part, (width, least, most)): (&&str, (usize, u32, u32))| {
        let value = part.parse().ok().filter(|_| part.len() == width);
        value.is_some_and(|value: u32| (least..=most).contains(&value))
    };
    let limits = [(4, 2000, 2999), (2, 1, 12), (2, 1, 31)];
    parts.len() == 3 && parts.iter().zip(limits).all(is_part)
}

/// The fields of a line.
pub fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut fields, mut rest) = (Vec::new(), line);
    loop {
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => split_quoted(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_string(), &rest[end..])
            }
        };
        if field.contains('"') && !rest.starts_with('"') {
            return Err(format!("{field:?}: a quote in a field without quotes"));
        }
        fields.push(field);
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None if behind.is_empty() => return Ok(fields),
            None => return Err(format!("{behind:?} behind a closing quote")),
        }
    }
}

/// A field behind its opening quote, and what is behind its closing quote.
fn split_quoted(text: &str) -> Result<(String, &str), String> {
    let mut at = 0;
    while let Some(quote) = text[at..].find('"').map(|found| at + found) {
        if !text[quote + 1..].starts_with('"') {
            return Ok((text[..quote].replace("\"\"", "\""), &text[quote + 1..]));
        }
        at = quote + 2;
    }
    Err("a quote that does not close".to_string())
}

/// The rows of a file, or its faults.
pub fn parse(text: &str) -> Result<Vec<Figure>, Vec<String>> {
    let mut lines = text.lines().enumerate();
    if lines
        .next()
        .is_none_or(|(_, head)| head != COLUMNS.join(","))
    {
        return Err(vec![format!("1: the first line is {}", COLUMNS.join(","))]);
    }
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        match Figure::parse(line) {
            Ok(row) => rows.push(row),
            Err(fault) => faults.push(format!("{}: {fault}", number + 1)),
        }
    }
    if faults.is_empty() {
        Ok(rows)
    } else {
        Err(faults)
    }
}

#[test]
fn fields_are_split_at_commas_outside_quotes() {
    assert_eq!(
        split("a,,\"b, \"\"c\"\"\",").expect("fields"),
        ["a", "", "b, \"c\"", ""]
    );
    for wrong in ["a,\"b", "\"a\"b,c", "a\"b,c"] {
        assert!(split(wrong).is_err(), "{wrong} is refused");
    }
}

/// Each fault of a row has one example; without its fault each is a row.
#[test]
fn bad_rows_are_refused() {
    let row = [
        "dd",
        "in order",
        "dd",
        "bench/a",
        "of its rate",
        ">=1.0",
        "0.92",
        "0.80",
        "1.16",
        "15",
        "2026-11-24",
        "8754c92b",
        "vm2",
        "a note",
    ];
    let with = |column: &str, field: &str| {
        let mut fields = row;
        fields[COLUMNS
            .iter()
            .position(|name| *name == column)
            .expect("a column")] = field;
        Figure::parse(&fields.join(","))
    };
    assert_eq!(with("note", "").expect("a row").is_met(), Some(false));
    for (column, field) in [
        ("id", "DD"),
        ("metric", ""),
        ("command", ""),
        ("unit", ""),
        ("note", "a,b"),
        ("target", "about 1"),
        ("target", ">=x"),
        ("median", "0.7"),
        ("median", "1e3"),
        ("low", ""),
        ("low", "2"),
        ("n", "0"),
        ("date", "2026-13-01"),
        ("date", "yesterday"),
        ("date", ""),
        ("commit", "main"),
    ] {
        assert!(
            with(column, field).is_err(),
            "{column} {field:?} is refused"
        );
    }
    assert!(Figure::parse("a,b").is_err());
    assert!(parse("id,metric\n").is_err(), "another head is refused");
}

#[test]
fn a_target_is_met_by_the_median_or_by_both_ends() {
    let met = |target: &str, figures: &str| {
        Figure::parse(&format!("a,b,,c,s,{target},{figures},,2026-11-24,,,"))
            .expect("a row")
            .is_met()
    };
    assert_eq!(met("<=1", "0.9,0.8,1.2"), Some(true));
    assert_eq!(met("<=1", ",0.8,1.2"), Some(false));
    assert_eq!(met(">=1", ",1.0,1.2"), Some(true));
    assert_eq!(met("=0", "0,,"), Some(true));
    assert_eq!(met("", "0,,"), None);
}

#[test]
fn a_later_row_replaces_one_of_the_same_metric() {
    let row = |id: &str, metric: &str, date: &str| {
        Figure::parse(&format!("{id},{metric},,c,s,,1,,,,{date},,,")).expect("a row")
    };
    let rows = [
        row("a", "m", "2026-11-23"),
        row("b", "m", "2026-11-24"),
        row("c", "n", "2026-11-23"),
        row("d", "m", "2026-11-24"),
    ];
    let shown: Vec<&str> = current(&rows).iter().map(|row| row.id.as_str()).collect();
    assert_eq!(shown, ["b", "c", "d"]);
}
