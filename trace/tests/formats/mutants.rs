//! The fixtures of every format, damaged in a few thousand ways that are the same each time: no importer may panic, go
//! on without end, or say more than one clean line. And each fixture is detected as what it is, or refused.
//!
//! Two importers that are broken on purpose must be found, or this test is worth nothing. Longer: `./test-long fuzz`.

use foreread_sim::rng::Rng;
use foreread_trace::catalog::{self, ALL};
use foreread_trace::check::CheckedItems;
use foreread_trace::error::{TraceError, TracePosition};
use foreread_trace::format::{Fit, Format, Pairs};
use foreread_trace::fuzz::{Outcome, by_name, one, sealed};
use foreread_trace::input::{HEAD_BYTES, Input};
use foreread_trace::{Header, Import, Item, LeftOut, Record};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Cases for each fixture.
const CASES: usize = 150;

/// Which format the fixtures are whose folder has not the name of their format, and the keys that a format is read with,
/// where `NAME.items` does not say others.
const FORMATS: &[(&str, &str)] = &[
    ("blk/be.blktrace", "blktrace"),
    ("blk/le.blktrace", "blktrace"),
    ("blk/text.blkparse", "blkparse"),
    ("disksim/", "disksim:dialect=ascii"),
    ("lirs/", "lirs:block=512"),
    ("oracle-general/", "oracle-general:unit=512"),
];

struct Fixture {
    /// Below `traces`.
    name: String,
    format: &'static Format,
    pairs: Pairs,
    /// It has to be named: its `.items` says how.
    named: bool,
    bytes: Vec<u8>,
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)
        .expect("a folder of fixtures")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

/// Every trace below `tests/traces`: not what it should become (`.txt`, `.items`), nor what explains it.
fn fixtures() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut all = Vec::new();
    for path in files(&root) {
        let name = path
            .strip_prefix(&root)
            .expect("below it")
            .display()
            .to_string();
        if [".txt", ".items", ".md", ".rs"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            continue;
        }
        let known = FORMATS.iter().find(|(start, _)| name.starts_with(start));
        let folder = name.split('/').next().expect("a folder");
        let usual = known.map_or(folder, |(_, format)| format);
        let items = std::fs::read_to_string(path.with_file_name(format!("{}.items", base(&path))))
            .unwrap_or_default();
        let named = items
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("format: "))
            .unwrap_or("detected");
        let (format, pairs) = by_name(if named == "detected" { usual } else { named })
            .unwrap_or_else(|error| {
                panic!(
                    "{name}: the folder has the name of its format, or a row in FORMATS: {error}"
                )
            });
        all.push(Fixture {
            bytes: bytes(&path),
            name,
            format,
            pairs,
            named: named != "detected",
        });
    }
    all
}

fn base(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .expect("a name")
}

/// The trace in a file; `.hex` is hexadecimal digits with comments.
fn bytes(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).expect("readable");
    if path.extension().is_none_or(|e| e != "hex") {
        return bytes;
    }
    let text = String::from_utf8(bytes).expect("text");
    let digits: Vec<u8> = text
        .lines()
        .flat_map(|line| line.split('#').next().unwrap_or("").bytes())
        .filter(u8::is_ascii_hexdigit)
        .collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}

#[test]
fn every_format_that_is_read_has_a_fixture() {
    let fixtures = fixtures();
    for format in ALL.iter().filter(|format| format.import.is_some()) {
        let has = fixtures
            .iter()
            .any(|fixture| std::ptr::eq(fixture.format, *format));
        assert!(has, "no fixture of {} below tests/traces", format.name);
    }
}

/// What a detector sees is the head of the unpacked bytes. Those of a wrong length or a broken header may be refused;
/// nothing may be taken for another format.
#[test]
fn each_fixture_is_detected_as_itself_or_refused() {
    let (mut detected, mut wrong) = (0, Vec::new());
    for Fixture {
        name,
        format,
        named,
        bytes,
        ..
    } in fixtures()
    {
        let mut input =
            Input::of(Path::new(&name), Box::new(std::io::Cursor::new(bytes))).expect("unpacks");
        let head = input.head().expect("unpacks").to_vec();
        assert!(head.len() <= HEAD_BYTES);
        match catalog::detect(&head, Path::new(&name)) {
            Ok(found) if found.name == format.name => detected += 1,
            Ok(found) => wrong.push(format!("{name} is taken for {}", found.name)),
            Err(error) => {
                let may_be_refused =
                    named || name.contains("bad") || (format.detect)(&head) == Fit::Maybe;
                if !may_be_refused {
                    wrong.push(error.to_string());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
                let over = if rng.below(2) == 0 {
                    at
                } else {
                    (at + what.len()).min(bytes.len())
                };
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

/// The first case in which an importer does not pay what it owes, and how many were refused or read before.
fn hunt(
    format: &Format,
    seeds: &[(Pairs, &[u8])],
    cases: usize,
    rng: &mut Rng,
) -> Result<[usize; 2], String> {
    let mut seen = [0; 2];
    for (pairs, seed) in seeds {
        for case in 0..cases {
            let other = seeds[rng.below(seeds.len() as u64) as usize].1;
            let bytes = damaged(seed, other, rng);
            let shown = || format!("{} case {case}: {}", format.name, bytes.escape_ascii());
            match catch_unwind(|| one(format, pairs.clone(), &bytes)) {
                Err(_) => return Err(format!("a panic: {}", shown())),
                Ok(Err(owed)) => return Err(format!("{owed}: {}", shown())),
                Ok(Ok(Outcome::Refused(_))) => seen[0] += 1,
                Ok(Ok(_)) => seen[1] += 1,
            }
        }
    }
    Ok(seen)
}

#[test]
fn no_damage_does_more_than_be_refused() {
    let fixtures = fixtures();
    let mut rng = Rng::new(20);
    for format in ALL.iter().filter(|format| format.import.is_some()) {
        let of_it = fixtures
            .iter()
            .filter(|fixture| std::ptr::eq(fixture.format, *format));
        let seeds: Vec<(Pairs, &[u8])> = of_it
            .map(|f| (f.pairs.clone(), f.bytes.as_slice()))
            .collect();
        let [refused, read] =
            hunt(format, &seeds, CASES, &mut rng).unwrap_or_else(|found| panic!("{found}"));
        assert!(refused > 0, "{}: not one case was refused", format.name);
        // An importer that never sees the bytes refuses all of them. (Checksums guard those of our own format.)
        let none =
            format.name == "foreread" || format.name == "parquet" && cfg!(not(feature = "parquet"));
        assert!(read > 0 || none, "{}: not one case was read", format.name);
    }
}

/// The damage is done to bytes that the importer reads: undamaged, each fixture gives the items that its file gives.
#[test]
fn an_undamaged_fixture_is_read_from_its_bytes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut reached = std::collections::BTreeSet::new();
    for Fixture {
        name,
        format,
        pairs,
        bytes,
        ..
    } in fixtures().into_iter().filter(|f| !f.name.ends_with(".hex"))
    {
        let by_bytes = one(format, pairs.clone(), &bytes).expect("what it owes");
        let input = Input::open(&root.join(&name)).expect("a file");
        let import = format.import.expect("it has a fixture");
        let by_path = match import(vec![input], pairs)
            .map(|import| CheckedItems::new(import.items, &root).collect::<Result<Vec<_>, _>>())
        {
            Ok(Ok(items)) => Some(items.len() as u64),
            Err(_) | Ok(Err(_)) => None,
        };
        match (by_path, by_bytes) {
            (Some(items), Outcome::Whole(read)) => {
                assert_eq!(read, items, "{name}");
                reached.insert(format.name);
            }
            (None, Outcome::Refused(_)) => {}
            (by_path, by_bytes) => {
                panic!("{name}: {by_path:?} items by its path, {by_bytes:?} from its bytes")
            }
        }
    }
    let parquet = !cfg!(feature = "parquet") || reached.contains("parquet");
    assert!(
        parquet && reached.len() > ALL.len() / 2,
        "only {reached:?} were reached"
    );
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

/// An importer that takes the first byte of a line unchecked: broken on purpose.
fn broken(
    inputs: Vec<Input>,
    careless: fn(u8) -> Result<(), String>,
) -> Result<Import, TraceError> {
    let mut input = Input::only(inputs, "broken")?;
    while let Some(line) = input.line()? {
        let first = line.first().copied().unwrap_or(b'0');
        careless(first)
            .map_err(|what| TraceError::new(input.path(), TracePosition::Whole, what, "mend it"))?;
    }
    let items = vec![Ok(Item::Record(Record::read(0, 0, 1)))];
    Ok(Import {
        header: Header::default(),
        items: Box::new(items.into_iter()),
        left_out: LeftOut::default(),
    })
}

static PANICS: Format = Format {
    name: "panics",
    summary: "panics at what is no ASCII",
    keys: &[],
    detect: |_| Fit::No,
    import: Some(|inputs: Vec<Input>, _: Pairs| {
        broken(inputs, |b| if b < 128 { Ok(()) } else { panic!("found") })
    }),
    export: None,
};

static TALKS: Format = Format {
    name: "talks",
    summary: "repeats what it cannot read",
    keys: &[],
    detect: |_| Fit::No,
    import: Some(|inputs: Vec<Input>, _: Pairs| {
        broken(inputs, |b| {
            if b.is_ascii_digit() {
                Ok(())
            } else {
                Err(format!("bad letter {}", b as char))
            }
        })
    }),
    export: None,
};

#[test]
fn broken_importers_are_found() {
    let seed: (Pairs, &[u8]) = (Pairs::default(), b"1,2\n3,4\n5,6\n7,8\n");
    let found = hunt(
        &PANICS,
        std::slice::from_ref(&seed),
        4 * CASES,
        &mut Rng::new(22),
    )
    .expect_err("must be found");
    assert!(found.starts_with("a panic: panics case"), "{found}");
    let found = hunt(&TALKS, &[seed], 4 * CASES, &mut Rng::new(22)).expect_err("must be found");
    assert!(
        found.starts_with("an error with control characters: "),
        "{found}"
    );
}
