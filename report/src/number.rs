//! Formats numbers for tables and sentences with few digits. Rounding never makes a number look better than it is: "100 %" is shown only if
//! the value is exactly 100 %. The JSON output has all digits.

/// Formats a size with all its digits and in the notation of policy parameters: `512K`, `1000`.
pub use foreread_core::units::format_size as exact_size;

/// The text that is shown for an undefined value.
pub const UNDEFINED: &str = "-";

/// The number of bytes in a megabyte: in all output, MB is 10^6 bytes.
pub const MB: f64 = 1e6;

/// Formats `value` with `show`, or as `-` if it is undefined.
pub fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNDEFINED.to_string(), show)
}

/// Formats a number of bytes in MB.
pub fn mb(bytes: Option<u64>) -> String {
    or_dash(bytes, |bytes| three(bytes as f64 / MB))
}

/// Formats `part` as a percentage of `all`.
pub fn share(part: Option<u64>, all: Option<u64>) -> String {
    let both = part.zip(all).filter(|(_, all)| *all > 0);
    or_dash(both, |(part, all)| percent(part as f64 / all as f64))
}

/// Formats a number with about three significant digits, in at most six characters: `0`, `1.23`, `12.3`, `1234`, `1.23M`.
pub fn three(value: f64) -> String {
    let size = value.abs();
    // Each limit is where rounding would add a digit: 9.996 is written as 10.0, not 10.00.
    match size {
        _ if size == 0.0 => "0".to_string(),
        _ if size < 0.0005 => format!("{value:.0e}"),
        _ if size < 9.995 => format!("{value:.2}"),
        _ if size < 99.95 => format!("{value:.1}"),
        _ if size < 999_999.5 => format!("{value:.0}"),
        _ if size < 9.995e6 => format!("{:.2}M", value / 1e6),
        _ if size < 999.5e6 => format!("{:.0}M", value / 1e6),
        _ if size < 999.5e9 => format!("{:.1}G", value / 1e9),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a count: with all digits if it has at most six, otherwise with three significant digits.
pub fn count(value: u64) -> String {
    if value < 1_000_000 {
        value.to_string()
    } else {
        three(value as f64)
    }
}

/// Formats a number with its noun: `1 run`, `5 runs`.
pub fn plural(n: u64, one: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {one}{s}", count(n))
}

/// Formats a time in seconds and half the width of its confidence interval, with as many decimals as both need: `46.22 ±0.41`.
pub fn span_s(mean: f64, half: Option<f64>) -> String {
    let decimals = match mean {
        m if m >= 1000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 0.1 => 3,
        m if m >= 0.01 => 4,
        _ => 5,
    };
    match half {
        Some(half) => format!("{mean:.decimals$} ±{half:.decimals$}"),
        None => format!("{mean:.decimals$}"),
    }
}

/// Formats a latency that is given in microseconds, with a suitable unit: `690us`, `1.23ms`, `2.50s`.
pub fn latency_us(us: f64) -> String {
    match us {
        _ if us < 99.95 => format!("{}us", three(us)),
        _ if us < 999.5 => format!("{us:.0}us"),
        _ if us < 999_500.0 => format!("{}ms", three(us / 1e3)),
        _ => format!("{}s", three(us / 1e6)),
    }
}

/// Formats a fraction as a whole percentage of at most three characters: `<0`, `0`, `<1`, `97`, `>99`, `100`.
pub fn percent(part: f64) -> String {
    match part * 100.0 {
        p if p > -0.5 && p < 0.0 => "<0".to_string(),
        p if p > 0.0 && p < 0.5 => "<1".to_string(),
        p if p > 99.5 && p < 100.0 => ">99".to_string(),
        p => format!("{p:.0}"),
    }
}

/// Formats the ratio of a row's time to the time of the row `none` (without readahead): `x0.25`, `x1.00`, `x0.0011`.
pub fn times(ratio: f64) -> String {
    if (0.000_05..0.005).contains(&ratio) {
        format!("x{ratio:.4}")
    } else {
        format!("x{}", three(ratio))
    }
}

/// Formats the 95 % confidence interval that follows a ratio in a sentence: ` (95 %: x0.25 to x0.31)`, or ` (in every
/// run)` if both ends are equal after rounding.
pub fn interval([low, high]: [f64; 2]) -> String {
    match (times(low), times(high)) {
        (low, high) if low == high => " (in every run)".to_string(),
        (low, high) => format!(" (95 %: {low} to {high})"),
    }
}

/// Formats a size in units of 1024: exactly if the result is short, such as `128K` and `1536`, otherwise with three
/// digits, such as `1.35T`.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 6] = [
        (60, "E"),
        (50, "P"),
        (40, "T"),
        (30, "G"),
        (20, "M"),
        (10, "K"),
    ];
    let text = exact_size(bytes);
    let unit = UNITS.iter().find(|(shift, _)| bytes >> shift > 0);
    match unit {
        Some((shift, unit)) if text.len() > SHORT_SIZE => {
            format!("{}{unit}", three(bytes as f64 / (1_u64 << shift) as f64))
        }
        _ => text,
    }
}

/// Longest size that is printed with all its digits: `1023K`.
const SHORT_SIZE: usize = 5;

/// Formats a number of bytes for a sentence, in units of 1000: `3 B`, `12.0 kB`, `134 MB`, `1.20 GB`.
pub fn amount(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", three(bytes as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} MB", three(bytes as f64 / 1e6)),
        _ => format!("{} GB", three(bytes as f64 / 1e9)),
    }
}

/// Like [`size`], but for a sentence: a size that is not a multiple of 1024 gets the unit `B`.
pub fn size_b(bytes: u64) -> String {
    let text = size(bytes);
    if text.ends_with(|c: char| c.is_ascii_digit()) && bytes > 0 {
        format!("{text} B")
    } else {
        text
    }
}

/// Like [`size_b`], with the unit in full: `8 MiB`, `128 KiB`, `1000 B`.
pub fn size_in_words(bytes: u64) -> String {
    let text = size_b(bytes);
    match text.strip_suffix(['K', 'M', 'G', 'T', 'P', 'E']) {
        Some(number) => format!("{number} {}iB", &text[number.len()..]),
        None => text,
    }
}

/// A space between two words that [`wrap`] keeps on one line.
pub const TIE: char = '\u{a0}';

/// Wraps `text` at spaces into lines of at most `width` characters. All lines after the first are indented by two. A
/// word that is longer than `width` is put on a separate line. A per cent sign stays on the line of its number, and words with a [`TIE`]
/// between them stay on one line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let tied = text.replace(" %", &format!("{TIE}%"));
    for word in tied
        .split(|c: char| c.is_whitespace() && c != TIE)
        .filter(|word| !word.is_empty())
    {
        let word = word.replace(TIE, " ");
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() {
            line.push_str(&word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

/// Replaces control characters in `text`, because text from a trace must not control the terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// Shortens `text` to at most `most` characters, and marks the place where it was cut.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_at_every_edge() {
        let cases = [
            (0.0, "0"),
            (0.000_04, "4e-5"),
            (0.25, "0.25"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (99.96, "100"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.23M"),
            (45_600_000.0, "46M"),
            (2.5e9, "2.5G"),
        ];
        for (value, text) in cases {
            assert_eq!(three(value), text);
            assert!(three(value).len() <= 6, "{text} is wide");
        }
        assert_eq!(count(999_999), "999999");
        assert_eq!(count(1_000_000), "1.00M");
    }

    #[test]
    fn spans_latencies_and_parts() {
        assert_eq!(span_s(46.22, Some(0.41)), "46.22 ±0.41");
        assert_eq!(span_s(0.0123, Some(0.0001)), "0.0123 ±0.0001");
        assert_eq!(span_s(1234.4, None), "1234");
        assert_eq!(latency_us(0.0), "0us");
        assert_eq!(latency_us(690.4), "690us");
        assert_eq!(latency_us(999.6), "1.00ms");
        assert_eq!(latency_us(1_234_567.0), "1.23s");
        for (part, text) in [
            (-0.001, "<0"),
            (0.0, "0"),
            (0.001, "<1"),
            (0.97, "97"),
            (0.996, ">99"),
            (1.0, "100"),
        ] {
            assert_eq!(percent(part), text);
        }
        assert_eq!(times(1.0), "x1.00");
        assert_eq!(
            [0.0049, 0.005, 0.0011, 0.0].map(times),
            ["x0.0049", "x0.01", "x0.0011", "x0"].map(String::from)
        );
        assert_eq!(or_dash(None, percent), "-");
        assert_eq!(interval([0.25, 0.3]), " (95 %: x0.25 to x0.30)");
        assert_eq!(interval([0.25, 0.251]), " (in every run)");
    }

    #[test]
    fn sizes_and_lines() {
        for (bytes, text) in [
            (0, "0"),
            (512, "512"),
            (4096, "4K"),
            (64 << 20, "64M"),
            (1536, "1536"),
            (3 << 30, "3G"),
            (1023 << 10, "1023K"),
            (65_535, "65535"),
            (1_414_732 << 20, "1.35T"),
            (4_194_300, "4.00M"),
            (1_000_204_886_016, "932G"),
            (1 << 62, "4.00E"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size_in_words(1_414_732 << 20), "1.35 TiB");
        assert_eq!(
            (size_b(65_535), size_b(1_000_000)),
            ("65535 B".into(), "977K".into())
        );
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "  cc"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("aa 12 %, bb\u{a0}7", 6), ["aa", "  12 %,", "  bb 7"]);
        assert_eq!(
            ["four", "fives", ""].map(|text| cut(text, 4)),
            ["four", "fiv…", ""]
        );
        assert_eq!(wrap("wider-than-that b", 5), ["wider-than-that", "  b"]);
    }
}
