//! A second in UTC, as HTTP and listings write it.
//!
//! ```text
//!   Last-Modified, Retry-After, Date ──► Date ──► seconds since 1970
//!                                           └──► the form that object_store knows
//! ```
//! Never: fails on a text that is no date; it is absent then.

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
/// Names of the zone that HTTP dates are in.
const ZONES: [&str; 4] = ["gmt", "utc", "ut", "+0000"];

/// A second, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    year: u32,
    /// From 1.
    month: u32,
    day: u32,
    /// Hour, minute, second.
    time: [u32; 3],
}

impl Date {
    /// Times as HTTP and listings write them.
    ///
    /// RFC 9110 5.6.7 has three forms of a date. Servers write more: another zone's name for GMT, a wrong day of the week, a year of four
    /// digits behind dashes. A text is read by its parts, in whatever of these forms. One that is none of them is absent: an object with a
    /// strong ETag needs no date.
    ///
    /// ```text
    ///   Fri, 02 Jan 2026 03:04:05 GMT    IMF-fixdate   ┐
    ///   Friday, 02-Jan-26 03:04:05 GMT   RFC 850       ├──► Date ──► seconds since 1970
    ///   Fri Jan  2 03:04:05 2026         asctime       ┘
    ///   2026-01-02T03:04:05Z, 0, -1                    ──► none
    /// ```
    pub fn of_http(text: &str) -> Option<Date> {
        // The day of the week says nothing more.
        let rest = text
            .trim()
            .trim_start_matches(|c: char| c.is_alphabetic())
            .trim_start_matches([',', ' ']);
        let parts: Vec<&str> = rest
            .split([' ', '-', '\t'])
            .filter(|part| !part.is_empty())
            .collect();
        match parts[..] {
            [day, month, year, time, zone] if is_zone(zone) => Date::new(year, month, day, time),
            [month, day, time, year] => Date::new(year, month, day, time),
            _ => None,
        }
    }

    fn new(year: &str, month: &str, day: &str, time: &str) -> Option<Date> {
        let month = 1 + MONTHS
            .iter()
            .position(|name| month.eq_ignore_ascii_case(name))? as u32;
        let year = match (year.len(), number(year)?) {
            // A year of two digits that is more than 50 years ahead is of the century before.
            (2, short @ 0..=75) => 2000 + short,
            (2, short) => 1900 + short,
            (4, year @ 1..) => year,
            _ => return None,
        };
        let mut of_time = time.split(':').map(number);
        let time = [of_time.next()??, of_time.next()??, of_time.next()??];
        let date = Date {
            year,
            month,
            day: number(day)?,
            time: [time[0], time[1], time[2].min(59)],
        };
        let is_one = of_time.next().is_none() && time[0] < 24 && time[1] < 60 && time[2] <= 60;
        (is_one && (1..=days_of(year, month)).contains(&date.day)).then_some(date)
    }

    /// As RFC 2822 writes it, without the day of the week.
    pub fn text(self) -> String {
        let Date {
            year,
            month,
            day,
            time: [hour, minute, second],
        } = self;
        let name = MONTHS[month as usize - 1];
        let (first, rest) = name.split_at(1);
        format!(
            "{day:02} {}{rest} {year:04} {hour:02}:{minute:02}:{second:02} GMT",
            first.to_ascii_uppercase()
        )
    }

    /// As RFC 3339 writes it.
    pub fn iso_text(self) -> String {
        let Date {
            year,
            month,
            day,
            time: [hour, minute, second],
        } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// Since 1970; 0 for what was before.
    pub fn since_1970(self) -> Duration {
        let years_before = u64::from(self.year) - 1;
        let leap_days = years_before / 4 - years_before / 100 + years_before / 400;
        let days_of_year: u32 = (1..self.month)
            .map(|month| days_of(self.year, month))
            .sum::<u32>()
            + self.day
            - 1;
        // 1970-01-01 is day 719,162 from 0001-01-01 on.
        let days = (years_before * 365 + leap_days + u64::from(days_of_year)).checked_sub(719_162);
        let [hour, minute, second] = self.time.map(u64::from);
        let Some(days) = days else {
            return Duration::ZERO;
        };
        Duration::from_secs(days * 86_400 + hour * 3600 + minute * 60 + second)
    }
}

fn is_zone(text: &str) -> bool {
    ZONES.iter().any(|zone| text.eq_ignore_ascii_case(zone))
}

fn number(text: &str) -> Option<u32> {
    (text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

fn days_of(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Now, by the clock of this machine: for a `Retry-After` that is a date.
pub fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms_and_what_servers_make_of_them() {
        for text in [
            "Fri, 02 Jan 2026 03:04:05 GMT",
            "Friday, 02-Jan-26 03:04:05 GMT",
            "Fri Jan  2 03:04:05 2026",
            " fri,  2 jan 2026 03:04:05 utc ",
            "Mon, 02 Jan 2026 03:04:05 +0000",
            "Fri, 02-Jan-2026 03:04:05 GMT",
            "02 Jan 2026 03:04:05 GMT",
        ] {
            let date = Date::of_http(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (date.text().as_str(), date.since_1970().as_secs()),
                ("02 Jan 2026 03:04:05 GMT", 1_767_323_045)
            );
            assert_eq!(date.iso_text(), "2026-01-02T03:04:05Z");
        }
        for text in [
            "",
            "0",
            "-1",
            "2026-01-02T03:04:05Z",
            "Fri, 02 Jan 2026 03:04:05",
            "Fri, 02 Jan 2026 03:04:05 CET",
            "Fri, 30 Feb 2026 03:04:05 GMT",
            "Fri, 02 Jan 2026 24:04:05 GMT",
            "Fri, 02 Jan 2026 03:04 GMT",
            "Fri, 02 Jan 0000 03:04:05 GMT",
            "Fri, 02 Foo 2026 03:04:05 GMT",
            "Fri, +2 Jan 2026 03:04:05 GMT",
        ] {
            assert_eq!(Date::of_http(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_counted_over_leap_years_and_centuries() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Wed, 31 Dec 1969 23:59:59 GMT", 0),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_799),
        ] {
            let date = Date::of_http(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(date.since_1970().as_secs(), seconds, "{text}");
        }
    }
}
