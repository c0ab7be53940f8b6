//! The fixtures of every format, damaged in a few thousand ways that are the same each time: no importer may panic, go
//! on without end, or say more than one clean line. And each fixture is detected as what it is, or refused.
//! Longer: `./test-long fuzz`.

use super::traces::{fixtures, input, named, trace};
use foreread_sim::rng::Rng;
use foreread_trace::catalog::{self, ALL};
use foreread_trace::format::{Fit, Format, Pairs};
use foreread_trace::fuzz::{Outcome, by_name, one, sealed};
use foreread_trace::input::HEAD_BYTES;
use std::panic::catch_unwind;
use std::path::Path;

/// Cases for each fixture.
const CASES: usize = 150;

struct Fixture {
    name: String,
    /// As the first line of its items names it.
    format: Option<String>,
    bytes: Vec<u8>,
}

fn of(format: &Format) -> Vec<Fixture> {
    let all = fixtures(format.name, false).into_iter().map(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("a name").to_string();
        let items = path.with_file_name(format!("{name}.items"));
        let items = std::fs::read_to_string(items).unwrap_or_default();
        Fixture {
            name,
            format: named(&items).map(str::to_string),
            bytes: trace(&path),
        }
    });
    all.collect()
}

/// What a detector sees is the head of the unpacked bytes. Those of a wrong length or a broken header may be refused;
/// nothing may be taken for another format.
#[test]
fn each_fixture_is_detected_as_itself_or_refused() {
    let mut detected = 0;
    let all = ALL.iter();
    let all = all.flat_map(|format| of(format).into_iter().map(move |one| (format, one)));
    for (format, fixture) in all {
        let name = fixture.name;
        let mut input = input(&name, fixture.bytes);
        let head = input.head().expect("unpacks").to_vec();
        assert!(head.len() <= HEAD_BYTES);
        match catalog::detect(&head, Path::new(&name)) {
            Ok(found) => {
                assert_eq!(found.name, format.name, "{name}");
                detected += 1;
            }
            Err(error) => {
                let may_be_refused = fixture.format.is_some()
                    || name.contains("bad")
                    || (format.detect)(&head) == Fit::Maybe;
                assert!(may_be_refused, "{error}");
            }
        }
    }
    assert!(detected >= ALL.len(), "only {detected} are detected");
}

/// Texts and bytes that break what counts on less.
const NASTY: &[&[u8]] = &[
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775808",
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"99999999999.999999999999",
    b"\n",
    b"\r",
    b",",
    b",,,,,,,,",
    b"\x1b[31m",
    b"\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\"",
    b"\xc3\x28",
];

/// The bytes with one to four damages.
fn damaged(bytes: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let end = (at + rng.below(16) as usize).min(bytes.len());
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            3 => {
                let from = rng.below(other.len() as u64 + 1) as usize;
                bytes.splice(at.., other[from..].iter().copied());
            }
            4 | 5 => {
                let what = NASTY[rng.below(NASTY.len() as u64) as usize];
                let over = at + what.len() * rng.below(2) as usize;
                let over = over.min(bytes.len());
                bytes.splice(at..over, what.iter().copied());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
    bytes
}

/// Counts what was refused and what was read of damaged seeds; panics with the first case in which the importer owes something.
fn hunt(format: &Format, seeds: &[(Pairs, &[u8])], rng: &mut Rng) -> [usize; 2] {
    let mut seen = [0; 2];
    for (pairs, seed) in seeds {
        for case in 0..CASES {
            let other = seeds[rng.below(seeds.len() as u64) as usize].1;
            let bytes = damaged(seed, other, rng);
            let shown = || format!("{} case {case}: {}", format.name, bytes.escape_ascii());
            match catch_unwind(|| one(format, pairs.clone(), &bytes)) {
                Err(_) => panic!("a panic: {}", shown()),
                Ok(Err(owed)) => panic!("{owed}: {}", shown()),
                Ok(Ok(Outcome::Refused(_))) => seen[0] += 1,
                Ok(Ok(_)) => seen[1] += 1,
            }
        }
    }
    seen
}

#[test]
fn no_damage_does_more_than_be_refused() {
    let mut rng = Rng::new(20);
    for format in ALL {
        let fixtures = of(format);
        let pairs = |one: &Fixture| {
            let named = one.format.as_deref().unwrap_or(format.name);
            // One fixture names an unknown key.
            by_name(named).map_or_else(|_| Pairs::default(), |known| known.1)
        };
        let seeds = fixtures.iter().map(|one| (pairs(one), &one.bytes[..]));
        let [refused, read] = hunt(format, &Vec::from_iter(seeds), &mut rng);
        assert!(refused > 0, "{}: not one case was refused", format.name);
        // An importer that never sees the bytes refuses all of them. (Checksums guard those of our own format.)
        let is_ours = format.name == "foreread";
        assert!(read > 0 || is_ours, "{}: not one was read", format.name);
    }
}

/// Bytes behind a checksum are only reached when it is made anew.
#[test]
fn no_sealed_damage_does_more_than_be_refused() {
    let (format, pairs) = by_name("foreread").expect("ours");
    let mut rng = Rng::new(21);
    // A file "a", a read with all fields, reads that follow.
    let plain = [
        0, 1, b'a', 0x91, 31, 0, 0, 0, 0, 8, 5, 3, 0, 1, 1, 3, 9, 0x71, 0, 0, 0, 1, 1, 2, 3,
    ];
    let mut reached = 0;
    for _ in 0..4000 {
        let bytes = sealed(&damaged(&plain, &plain, &mut rng), 1 + rng.below(6) as u32);
        match one(format, pairs.clone(), &bytes).expect("what it owes") {
            Outcome::Refused(line) => reached += usize::from(!line.contains("checksum")),
            outcome => panic!("it has no end, and yet: {outcome:?}"),
        }
    }
    assert_eq!(reached, 4000);
}
