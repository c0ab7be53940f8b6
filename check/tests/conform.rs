//! Tests with recordings of a running kernel: no decision may differ, and our predictions are stable.

use crate::common::says;
use flate2::read::GzDecoder;
use foreread_check::conform::linux::{Level, Verdict, check, open};
use foreread_check::conform::recording::CheckError;
use foreread_check::conform::world::EpisodeEffects;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Episodes of recordings, in the tree: without large folios, with them, with blocks of 16 KiB, with page faults; with blocks
/// of 64 KiB and page faults, and of 32 KiB and forced reads in several pieces.
const RECORDINGS: [(&str, u64); 6] = [
    ("ext4j-128.jsonl", 1000),
    ("ext4-128-folios.jsonl.gz", 500),
    ("xfs16k-128-blocks.jsonl.gz", 300),
    ("ext4j-64-faults.jsonl.gz", 300),
    ("xfs64k-128-faults.jsonl.gz", 200),
    ("xfs32k-8192-forced.jsonl.gz", 100),
];

fn path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    folder.join(name)
}

fn lines(name: &str) -> Vec<Value> {
    let lines = open(&path(name)).expect("a recording").lines();
    let json = |line: std::io::Result<String>| serde_json::from_str(&line.expect("a line"));
    lines.map(|line| json(line).expect("JSON")).collect()
}

fn text(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Without the states before the calls, which only the kernel knows.
fn predicted(recording: &str, level: Level) -> (Verdict, Vec<EpisodeEffects>) {
    let mut all = Vec::new();
    let each = |ours: &EpisodeEffects| {
        let calls = ours.calls.iter().map(|call| call.without_pre()).collect();
        all.push(EpisodeEffects {
            calls,
            ..ours.clone()
        });
    };
    let verdict = check(recording.as_bytes(), level, each).expect("a recording");
    (verdict, all)
}

#[test]
fn nothing_differs_in_full() {
    let folder = std::env::var("FOREREAD_RECORDINGS").ok();
    let folder = folder.map(|folder| std::fs::read_dir(folder).expect("a folder of recordings"));
    let more = folder.into_iter().flatten();
    let more = more.map(|entry| (entry.expect("an entry").path(), 1));
    let own = RECORDINGS.map(|(name, least)| (path(name), least));
    for (path, least) in own.into_iter().chain(more) {
        let verdict = check(open(&path).expect("a file"), Level::Full, |_| {});
        let verdict = verdict.expect("a recording");
        let (decisions, divergences) = (verdict.decisions, verdict.divergences);
        let name = path.display();
        println!("{name}: decisions {decisions} divergences {divergences}");
        assert_eq!((verdict.first, divergences), (None, 0), "{name}");
        assert!(decisions >= least, "{name}: only {decisions} decisions");
    }
}

/// Episodes whose difference was a rule that was missing. A change that the rule does not explain is a difference.
#[test]
fn rules_that_one_episode_showed() {
    for (name, decisions, right, wrongs) in [
        // A fault is tried again while what its asynchronous call asked for is read, which is not mapped.
        ("ext4-128-under-way", 59, "", &[][..]),
        // Fault-around reaches page 98 of a file of 100 pages, and leaves page 99 of the same folio.
        ("xfs8k-128-last-folio", 63, "", &[]),
        // The fault of page 55 is tried again when its own request, 49 to 55, has arrived, and 57 to 70 have not. No arrival
        // explains a count that is larger by one.
        (
            "ext4-128-arrivals",
            126,
            "\"mmap_miss\":8,\"order\":0,\"prev_pos\":36865",
            &["\"mmap_miss\":9,\"order\":0,\"prev_pos\":36865"],
        ),
        // An extent begins at page 16, so 0 to 15 and 16 to 31 are two requests. One that begins elsewhere explains nothing.
        (
            "ext4j-128-extents",
            159,
            "\"extents\":[16,256]",
            &["\"extents\":[17,256]", "\"extents\":[]"],
        ),
    ] {
        let recording = text(&lines(&format!("{name}.jsonl.gz")));
        let verdict = predicted(&recording, Level::Full).0;
        let met = (verdict.first, verdict.decisions);
        assert_eq!(met, (None, decisions), "{name}");
        for wrong in wrongs {
            assert!(recording.contains(right), "{name}: {right} is in it");
            let verdict = predicted(&recording.replace(right, wrong), Level::Full).0;
            assert_eq!(verdict.divergences, 1, "{name}: {wrong}");
        }
    }
}

/// Mappings at any address (`va`). Without it the same decisions are explained by one of the places within a block.
#[test]
fn fault_around_is_aligned_by_address() {
    let placed = lines("xfs64k-128-anywhere.jsonl.gz");
    let place = |line: &Value| line["pgoff"].as_u64().map(|at| at % 512);
    let away = |line: &Value| line["op"] == "mmap" && line["va"].as_u64() != place(line);
    let is_away = placed.iter().any(away);
    assert!(is_away, "mappings that are not aligned like the file");
    let mut unplaced = placed.clone();
    for line in unplaced.iter_mut().filter_map(Value::as_object_mut) {
        line.remove("va");
    }
    for recording in [&placed, &unplaced] {
        let (verdict, _) = predicted(&text(recording), Level::Full);
        assert_eq!(verdict.first, None);
        assert!(verdict.decisions > 100, "{} decisions", verdict.decisions);
    }
}

/// The machine itself, page by page; and it predicts what the level 'full' does where both apply.
#[test]
fn nothing_differs_in_pages() {
    let recording = text(&lines("ext4j-128.jsonl"));
    let (verdict, pages) = predicted(&recording, Level::Pages);
    assert_eq!(verdict.first, None);
    assert!(verdict.decisions > 1000, "{} decisions", verdict.decisions);
    assert_eq!(pages, predicted(&recording, Level::Full).1);
}

/// Without the kernel's answers, and with wrong ones, we predict the same: nothing of them is used.
#[test]
fn predictions_do_not_look_at_the_answers() {
    for (name, _) in RECORDINGS {
        let whole = lines(name);
        let (_, ours) = predicted(&text(&whole), Level::Full);
        let (mut bare, mut wrong) = (whole.clone(), whole);
        for op in bare.iter_mut().filter(|line| line["t"] == "op") {
            for key in ["calls", "added", "marks", "state", "ret"] {
                op.as_object_mut().expect("an op").remove(key);
            }
        }
        let (verdict, blind) = predicted(&text(&bare), Level::Full);
        let compared = (verdict.decisions, verdict.divergences);
        assert_eq!(compared, (0, 0), "{name}: there was nothing to compare");
        assert!(ours == blind, "{name}: predictions depend on the answers");
        for op in wrong.iter_mut().filter(|line| line["t"] == "op") {
            op["state"] = json!({"start": 7, "size": 7, "async_size": 7, "prev_pos": 7});
            op["calls"] = json!([]);
        }
        let (verdict, misled) = predicted(&text(&wrong), Level::Full);
        assert!(verdict.divergences > 5, "{name}: every episode is wrong");
        assert!(ours == misled, "{name}: predictions depend on the answers");
    }
}

/// Each changed answer is reported, and only the rest of its episode is not compared.
#[test]
fn every_answer_is_compared() {
    let whole = lines("ext4-128-folios.jsonl.gz");
    let all = predicted(&text(&whole), Level::Full).0.decisions;
    let is_marked = |line: &Value| line["marks"].as_array().is_some_and(|m| !m.is_empty());
    let at = whole.iter().position(is_marked).expect("a mark");
    let changes: [(&str, Value, &str); 9] = [
        ("/calls/0/index", json!(3), "call 0: ours Sync"),
        ("/calls/0/req", json!(77), "call 0"),
        ("/calls/0/pre/mmap_miss", json!(77), "call 0"),
        ("/calls/1/async_size", json!(77), "call 1: ours Window"),
        ("/calls", json!([]), "the kernel's none"),
        ("/added/1", json!([70000, 0]), "folio 1: ours"),
        ("/added", json!([]), "folio 0"),
        ("/marks", json!([]), "marks ours"),
        ("/state/prev_pos", json!(-1), "state ours"),
    ];
    for (pointer, value, part) in changes {
        let mut lines = whole.clone();
        let place = lines[at].pointer_mut(pointer);
        *place.unwrap_or_else(|| panic!("{pointer} of {}", whole[at])) = value;
        let verdict = predicted(&text(&lines), Level::Full).0;
        let first = verdict.first.unwrap_or_default();
        let is_named = first.starts_with(&format!("line {}, ", at + 1));
        assert!(is_named && first.contains(part), "{pointer}: {first}");
        assert_eq!(verdict.divergences, 1, "{pointer}");
        let is_less = verdict.decisions < all;
        assert!(is_less, "{pointer}: the rest of the episode is skipped");
    }
}

fn refused(recording: &str) -> CheckError {
    let checked = check(recording.as_bytes(), Level::Full, |_| {});
    checked.err().unwrap_or_else(|| panic!("{recording}"))
}

/// It is an error of this line.
#[track_caller]
fn is_format(error: &CheckError, line: u64, part: &str) {
    let is_it = matches!(error, CheckError::Format { line: at, what } if *at == line && what.contains(part));
    assert!(is_it, "{error}");
}

const HEADER: &str = r#"{"t":"header","v":1,"page_size":4096,"ra_pages":32,"io_pages":320,"large_folios":true,"max_order":9,"min_order":0,"mmap":true}"#;
const EPISODE: &str = r#"{"t":"episode","ep":0,"kind":"own","file_size":16384000,"fds":1}"#;

/// Each wrong input, and a part of its error line.
#[test]
fn wrong_input_is_reported_with_its_line() {
    let op = r#"{"t":"op","i":0,"op":"pread","fd":0,"off":0,"len":1}"#;
    let huge = 1_u64 << 63;
    let own = |what: &str| format!("{HEADER}\n{EPISODE}\n{what}\n");
    let op_with = |from: &str, to: &str| own(&op.replace(from, to));
    let more = |what: &str| op_with("}", &format!(",{what}}}"));
    let map = |what: &str| own(&format!("{{\"t\":\"op\",\"i\":0,\"op\":\"mmap\",{what}}}"));
    let header = |from: &str, to: &str| HEADER.replace(from, to);
    let episode = |from: &str, to: &str| format!("{HEADER}\n{}\n", EPISODE.replace(from, to));
    let touch = r#"{"t":"op","i":1,"op":"touch","page":1}"#;
    let ra_pages = format!("\"ra_pages\":{huge}");
    let folios = "\"large_folios\":true";
    let no_folios = more(r#""added":[[0,1]]"#).replace(folios, "\"large_folios\":false");
    let no_mmap = map(r#""npages":1"#).replace("\"mmap\":true", "\"mmap\":false");
    let cases = [
        (1, String::new(), "the header is missing"),
        (1, HEADER[..40].to_string(), "EOF"),
        (1, "\u{0}\u{1}\n".to_string(), ""),
        (1, header("\"v\":1", "\"v\":2"), "version 2"),
        (1, header("\"ra_pages\":32", &ra_pages), "ra_pages"),
        (1, header("\":9", "\":64"), "folios of order"),
        (
            1,
            header("\"min_order\":0", "\"min_order\":10"),
            "folios of",
        ),
        (2, format!("{HEADER}\n{HEADER}\n"), "a second header"),
        (1, format!("{EPISODE}\n"), "an episode before"),
        (1, format!("{op}\n"), "an operation before the header"),
        (2, format!("{HEADER}\n{op}\n"), "an operation before an "),
        (2, episode("16384000", &huge.to_string()), "a file of"),
        (2, episode("\":1}", "\":5000}"), "5000 descriptors"),
        (3, op_with("\"fd\":0", "\"fd\":1"), "descriptor 1 of 1"),
        (3, op_with("off\":0", &format!("off\":{huge}")), "1 bytes"),
        (3, op_with("\":1}", &format!("\":{}}}", u64::MAX)), ""),
        (3, op_with("\"off\":0", "\"off\":-1"), "invalid value"),
        (3, op_with("pread", "pwrite"), "operation 'pwrite'"),
        (3, more(r#""added":[[0,10]]"#), "a folio of order 10"),
        (3, more(r#""evicted":[[0,200]]"#), "a folio of order 200"),
        (3, more(r#""evicted":[[1,1]]"#), "of order 1 at page 1"),
        (3, more(&format!("\"evicted\":[[{huge},1]]")), "at page"),
        (3, more(r#""calls":[{"t":"other"}]"#), "unknown variant"),
        (3, own(touch), "a touch without a mapping"),
        (3, map(r#""pgoff":1,"npages":18446744073709551615"#), "a m"),
        (3, map(r#""npages":1,"advice":3"#), "operation 'mmap'"),
        (
            4,
            map(r#""npages":1"#) + touch + "\n",
            "page 1 of a mapping",
        ),
        (3, no_mmap, "operation 'mmap', but"),
        (3, no_folios, "a folio of order 1"),
        (3, own(&op[..op.len() - 9]), "EOF"),
    ];
    for (line, recording, part) in cases {
        let line = format!("line {line}");
        says(&refused(&recording).to_string(), &[&line, part, "; "]);
    }
    let error = check(HEADER.as_bytes(), Level::Pages, |_| {}).expect_err("a level");
    says(&error.to_string(), &["line 1", "use the level 'full'"]);
}

/// A large file whose every page is read reaches the limit on folios, not the memory's end.
#[test]
fn a_file_has_only_so_many_folios() {
    let header = HEADER.replace("\"large_folios\":true", "\"large_folios\":false");
    let episode = EPISODE.replace("16384000", "17179869184");
    let op = r#"{"t":"op","i":0,"op":"pread","fd":0,"off":0,"len":17179869184}"#;
    let error = refused(&format!("{header}\n{episode}\n{op}\n"));
    is_format(&error, 3, "more than 1048576");
}

#[test]
fn a_file_has_only_so_many_extents() {
    let episode = |extents: usize| {
        let pages = vec!["7"; extents].join(",");
        let episode = EPISODE.replace('}', &format!(",\"extents\":[{pages}]}}"));
        format!("{HEADER}\n{episode}\n")
    };
    predicted(&episode(4096), Level::Full);
    let what = "4097 extents, but the maximum is 4096";
    is_format(&refused(&episode(4097)), 2, what);
}

/// A line without an end is given up early, however little it takes on disk; so is a file that is cut short.
#[test]
fn a_line_without_an_end() {
    let zeros = std::io::repeat(b' ').take(1 << 30);
    let error = check(BufReader::new(zeros), Level::Full, |_| {}).expect_err("too long");
    is_format(&error, 1, "longer than");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(HEADER.as_bytes()).expect("in memory");
    let packed = packed.finish().expect("in memory");
    let cut = BufReader::new(GzDecoder::new(&packed[..packed.len() - 12]));
    let error = check(cut, Level::Full, |_| {}).expect_err("cut short");
    assert!(matches!(error, CheckError::Io { line: 1, .. }), "{error}");
}
