//! Error messages for unknown names (of policies or models, for example): a message suggests similar known names, and
//! the command that lists all names.
//!
//! A command that gets an unknown name always ends with this message, and never uses a similar name instead.

use foreread_core::policy::SpecError;
use foreread_os::failure::Failure;

/// From this similarity on, a name is suggested: two swapped letters of five give 0.7, one wrong letter of three
/// gives 0.6.
const LIKE: f64 = 0.6;

/// Most names in a suggestion.
const NAMES: usize = 3;

/// Returns the known names that are similar to `name`; the most similar name comes first.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> = known.iter().map(|k| (likeness(&name, k), *k)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    let like = scored
        .iter()
        .take_while(|(score, _)| *score >= LIKE)
        .count();
    scored
        .into_iter()
        .take(like.min(NAMES))
        .map(|(_, k)| k)
        .collect()
}

/// Similarity from 0 (nothing in common) to 1 (equal). If one name contains the other, it is nearly 1: `linux` for
/// `linux-6.18`, `plain` for `rbd-plain`.
fn likeness(name: &str, known: &str) -> f64 {
    // The first measure alone prefers a common beginning so strongly that it suggests `raid-6disk` for `rdb`; the
    // second handles swapped letters.
    let score = f64::midpoint(
        strsim::jaro_winkler(name, known),
        strsim::normalized_damerau_levenshtein(name, known),
    );
    if name.len() > 1 && known.contains(name) {
        score.max(0.9)
    } else {
        score
    }
}

/// Returns the error message for an unknown name: `unknown KIND: 'NAME'; nearest: ...; 'COMMAND' lists them`.
pub fn unknown(kind: &str, name: &str, known: &[&str], command: &str) -> Failure {
    let near = nearest(name, known);
    let near = if near.is_empty() {
        String::new()
    } else {
        format!("nearest: {}; ", near.join(", "))
    };
    Failure::input(
        format!("unknown {kind}"),
        format!("'{name}'"),
        format!("{near}'{command}' lists them"),
    )
}

/// Returns the error message for an invalid `NAME:key=value,...`, for example of a policy (`kind`). `command` is the command that lists the
/// valid names, keys and values.
pub fn refused(kind: &str, error: &SpecError, command: &str) -> Failure {
    match error {
        SpecError::UnknownName { name, known } => unknown(kind, name, known, command),
        SpecError::UnknownKey { name, key, known } if known.is_empty() => {
            let place = format!("'{key}' of {kind} '{name}', which has none");
            Failure::input(
                "unknown parameter",
                place,
                format!("'{command}' lists them"),
            )
        }
        SpecError::UnknownKey { name, key, known } => {
            unknown(&format!("parameter of {name}"), key, known, command)
        }
        SpecError::Syntax(_) => Failure::input(
            format!("bad {kind}"),
            error,
            "write NAME:key=value,key=value",
        ),
        SpecError::Value { .. } => Failure::input(
            format!("bad {kind}"),
            error,
            format!("'{command}' lists the ranges"),
        ),
        _ => Failure::input(format!("bad {kind}"), error, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["none", "linux-6.18", "rbd-plain", "rbd-aligned"];

    #[test]
    fn typing_errors_and_parts_find_the_name() {
        assert_eq!(nearest("linux", &KNOWN)[0], "linux-6.18");
        assert_eq!(nearest("LINUX-6.81", &KNOWN)[0], "linux-6.18");
        assert_eq!(nearest("plain", &KNOWN)[0], "rbd-plain");
        assert_eq!(nearest("rdb-plain", &KNOWN)[0], "rbd-plain");
        assert_eq!(nearest("nome", &KNOWN), ["none"]);
    }

    #[test]
    fn something_wholly_different_gets_no_suggestion() {
        assert!(nearest("xyzzy", &KNOWN).is_empty());
        assert!(nearest("", &KNOWN).is_empty());
        assert!(nearest("x", &[]).is_empty());
    }
}
