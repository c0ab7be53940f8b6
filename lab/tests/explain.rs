//! What `explain` says of small traces, and that its parts are the whole: the row that `compare` shows of the same run.
//!
//! Never: a real file, or the clock.

use crate::common::replay_of;
use foreread_core::event::Advice;
use foreread_history::policies;
use foreread_lab::compare::{self, ComparePlan, OracleRow};
use foreread_lab::explain::{
    Decisions, ExplainOptions, ExplainReport, Stream, View, explain, render,
};
use foreread_lab::replay::{Part, Replay, load};
use foreread_lab::report::Report;
use foreread_report::progress::Silent;
use foreread_trace::{FileInfo, Flags, Header, Import, Item, LeftOut, Level, Op, Record};
use std::sync::Arc;

const PAGE: u64 = 4096;

fn plan(files: &[(&str, u64)], records: Vec<Record>) -> ComparePlan {
    let infos = files.iter().map(|(name, size)| {
        Item::File(FileInfo {
            name: (*name).to_string(),
            size: Some(*size),
        })
    });
    let items: Vec<Item> = infos.chain(records.into_iter().map(Item::Record)).collect();
    let replay = Some(replay_of("small.trace", items));
    ComparePlan {
        replay,
        on: Some(compare::model("rbd").expect("a model")),
        seed: 1,
        ..ComparePlan::default()
    }
}

/// Reads of a page each at these pages of the first file.
fn pages(pages: impl IntoIterator<Item = u64>) -> ComparePlan {
    let records = pages
        .into_iter()
        .map(|page| Record::read(0, page * PAGE, PAGE))
        .collect();
    plan(&[("/data/file", 64 << 20)], records)
}

fn under(plan: &ComparePlan, policy: &str, against: &[&str]) -> ExplainReport {
    let draft = |text: &str| foreread_history::parse(text).expect(text);
    let against = against.iter().map(|text| draft(text)).collect();
    let asked = ExplainOptions {
        plan: plan.clone(),
        policy: draft(policy),
        against,
    };
    explain(&asked, &mut Silent).expect("it can be explained")
}

fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| (n * 7919 + n * n * 131 + 17) % 16_000)
}

/// One sequential file, one at random with a hint, one read whole.
fn mixed() -> ComparePlan {
    let hint = |file, advice| Record {
        op: Op::Hint(advice),
        ..Record::read(file, 0, 0)
    };
    let mut records: Vec<Record> = (0..64)
        .map(|n| Record::read(0, n * 4 * PAGE, 4 * PAGE))
        .collect();
    records.push(hint(1, Advice::Random));
    records.extend(scattered(50).map(|page| Record::read(1, page * PAGE, PAGE)));
    records.push(Record::read(2, 0, 3 * PAGE));
    records.push(hint(3, Advice::WillNeed));
    records.push(Record::read(3, 8 * PAGE, PAGE));
    plan(
        &[
            ("/a/seq", 8 << 20),
            ("/a/random", 64 << 20),
            ("/b/whole", 10_000),
            ("/b/wanted", 80_000),
        ],
        records,
    )
}

/// The sums of the files are the counters of the row that `compare` shows, for every policy and shape of reads.
#[test]
fn the_parts_are_the_row_of_compare() {
    let interleaved = (0..200).flat_map(|n| [n, 4000 + n, 9000 + n]);
    let shapes = [
        ("sequential", pages(0..300)),
        ("strided", pages((0..200).map(|n| n * 16))),
        ("interleaved", pages(interleaved)),
        ("random", pages(scattered(300))),
        ("mixed", mixed()),
    ];
    for (name, plan) in shapes {
        // A cache so small that pages leave unused, and the usual one.
        for cache in [Some(256 << 10), None] {
            let plan = ComparePlan {
                cache_bytes: cache,
                runs: Some(1),
                ..plan.clone()
            };
            for policy in policies()
                .iter()
                .map(|info| info.name)
                .chain(["linux-6.18:max=1M,folios=on"])
            {
                let ours = under(&plan, policy, &[]);
                let policies = vec![foreread_history::parse(policy).expect("a policy")];
                let asked = ComparePlan {
                    policies,
                    oracle: OracleRow::Usual,
                    ..plan.clone()
                };
                let tables = compare::run(&asked, &mut Silent).expect("it can be compared");
                let row = Report::of(&tables[0])
                    .rows
                    .into_iter()
                    .find(|r| r.policy == policy)
                    .expect("its row");
                let told = [
                    ours.total.demand_reads,
                    ours.total.hits,
                    ours.total.late_hits,
                    ours.total.misses,
                    ours.total.ra_bytes,
                    ours.total.used_bytes,
                    ours.total.unused_bytes,
                    ours.total.unresolved_bytes,
                    ours.total.source_bytes,
                ];
                let shown = [
                    row.demand_reads,
                    row.hits,
                    row.late_hits,
                    row.misses,
                    row.ra_bytes,
                    row.used_bytes,
                    row.unused_bytes,
                    row.unresolved_bytes,
                    row.source_bytes,
                ];
                assert_eq!(
                    told.map(Some),
                    shown,
                    "{name} under {policy}, cache {cache:?}"
                );
                adds_up(&ours, &format!("{name} under {policy}, cache {cache:?}"));
            }
        }
    }
}

/// Files are the whole, and streams (with what hints brought) are their file.
fn adds_up(explained: &ExplainReport, what: &str) {
    let mut all = foreread_lab::explain::Share::default();
    for file in &explained.files {
        let mut sum = file.by_hints;
        for stream in &file.streams {
            sum.add(&stream.share);
            belongs_to_it(stream, &format!("{what}: {}", file.name));
        }
        // Fetches and thrash belong to a file alone.
        (sum.source_reads, sum.source_bytes) = (file.share.source_reads, file.share.source_bytes);
        sum.thrash_bytes = file.share.thrash_bytes;
        assert_eq!(sum, file.share, "{what}: {}", file.name);
        let share = &file.share;
        assert_eq!(
            share.ra_bytes,
            share.used_bytes + share.unused_bytes + share.ra_failed_bytes + share.unresolved_bytes,
            "{what}: {}",
            file.name
        );
        all.add(share);
    }
    assert_eq!(all, explained.total, "{what}");
}

/// What a stream has is its own: each byte that was read ahead for it has one fate, a read each met one verdict, and of a
/// stream in order no more was used than it read.
fn belongs_to_it(stream: &Stream, what: &str) {
    let s = &stream.share;
    assert_eq!(
        s.ra_bytes,
        s.used_bytes + s.unused_bytes + s.ra_failed_bytes + s.unresolved_bytes,
        "{what}: {stream:?}"
    );
    assert_eq!(
        s.demand_reads,
        s.hits + s.late_hits + s.misses,
        "{what}: {stream:?}"
    );
    assert!(
        s.late_bytes <= s.used_bytes && (s.late_hits > 0 || s.misses > 0 || s.stall_ns == 0),
        "{what}: {stream:?}"
    );
    let span = (stream.end.next_multiple_of(PAGE)) - stream.from / PAGE * PAGE;
    assert!(
        stream.shape != "sequential" || s.used_bytes <= span,
        "{what}: {stream:?}"
    );
}

fn words(explained: &ExplainReport, file: usize) -> (&str, &str) {
    let file = &explained.files[file];
    (&file.pattern.words, &file.streams[0].because.words)
}

#[test]
fn a_sequence_is_on_by_the_start_and_the_mark() {
    let explained = under(&pages(0..100), "linux-6.18", &[]);
    let (pattern, why) = words(&explained, 0);
    assert_eq!(pattern, "sequential");
    assert!(
        why.starts_with(
            "first by a read at the start of the file, then by the mark of its window ("
        ),
        "{why}"
    );
    let stream = &explained.files[0].streams[0];
    assert!(stream.because.on && stream.shape == "sequential" && stream.share.misses == 1);
    assert_eq!(stream.because.rules["file-start"], 1);
}

#[test]
fn a_stride_and_random_reads_are_off_by_the_policys_own_word() {
    for (reads, pattern) in [
        (pages((1..100).map(|n| n * 16)), "strided 64K"),
        (pages(scattered(100)), "random"),
    ] {
        let explained = under(&reads, "linux-6.18", &[]);
        assert_eq!(explained.files[0].pattern.words, pattern);
        let because = &explained.files[0].streams[0].because;
        assert!(
            because
                .words
                .contains("a read that follows no read and too few cached pages"),
            "{}",
            because.words
        );
        assert!(because.rules["no-history"] > 80, "{:?}", because.rules);
    }
    let explained = under(&pages(scattered(40)), "rbd-plain", &[]);
    assert!(
        words(&explained, 0)
            .1
            .starts_with("by a read that does not begin where the last one ended")
    );
    let explained = under(&pages(0..9), "rbd-plain", &[]);
    assert_eq!(
        words(&explained, 0),
        (
            "sequential",
            "by fewer reads in order than the trigger (9 times)"
        )
    );
}

#[test]
fn interleaved_streams_are_found_by_context() {
    let explained = under(
        &pages((0..100).flat_map(|n| [n, 4000 + n, 9000 + n])),
        "linux-6.18",
        &[],
    );
    let file = &explained.files[0];
    assert_eq!(
        (
            file.pattern.words.as_str(),
            file.streams.len(),
            file.pattern.interleaved
        ),
        ("3 interleaved", 3, 3)
    );
    let contexts = file
        .streams
        .iter()
        .filter(|s| s.because.rules.contains_key("context"))
        .count();
    assert_eq!(contexts, 2, "all but the one from the start of the file");
    // librbd has one detector, which every read in turn resets.
    let explained = under(
        &pages((0..100).flat_map(|n| [n, 4000 + n, 9000 + n])),
        "rbd-plain",
        &[],
    );
    assert!(explained.files[0].streams.iter().all(|s| !s.because.on));
}

#[test]
fn files_have_reasons_of_their_own() {
    let explained = under(&mixed(), "linux-6.18", &[]);
    let file = |name: &str| explained.files.iter().find(|f| f.name == name).expect(name);
    let why = |name: &str| file(name).streams[0].because.words.as_str();
    assert!(why("/a/seq").contains("the mark of its window"));
    assert_eq!(
        (why("/a/random"), file("/a/random").hints),
        ("by the hint RANDOM (50 times)", 1)
    );
    assert_eq!(file("/b/whole").pattern.words, "sequential");
    assert_eq!(file("/b/whole").streams[0].shape, "whole");
    assert!(
        why("/b/whole").contains("whole file"),
        "{}",
        why("/b/whole")
    );
    assert!(
        file("/b/wanted").by_hints.ra_bytes > 0 && file("/b/wanted").streams[0].share.ra_bytes == 0
    );
    assert_eq!(
        under(&mixed(), "none", &[]).files[0].streams[0]
            .because
            .words,
        "the policy is none"
    );
    let old = under(&pages(0..100), "linux-2.6.0", &[]);
    assert!(
        words(&old, 0).1.starts_with(
            "first by a read at the start of the file, then by the mark of its window"
        )
    );
}

/// Decisions by pattern: of each file, of all files together, and in the text.
#[test]
fn decisions_are_counted_by_pattern() {
    let explained = under(&mixed(), "linux-6.18:max=128K", &[]);
    let of = |name: &str| {
        explained
            .files
            .iter()
            .find(|f| f.name == name)
            .expect(name)
            .share
            .decisions
    };
    let only = |pattern: &str, n: u64| {
        let mut json = serde_json::to_value(Decisions::default()).expect("numbers");
        (json[pattern], json["all"]) = (n.into(), n.into());
        serde_json::from_value::<Decisions>(json).expect("decisions")
    };
    // 64 reads of four pages: the start, then the marks at 4, 8, 16, 32 pages and each 32 further on.
    let seq = of("/a/seq");
    assert_eq!(
        (seq.initial, seq.subsequent, seq.all),
        (1, seq.all - 1, seq.all)
    );
    assert_eq!(
        (of("/a/random"), of("/b/whole")),
        (only("random", 50), only("initial", 1))
    );
    assert_eq!(
        (of("/b/wanted"), of("/b/wanted").hint),
        (only("hint", 1), 1)
    );
    let all = explained.total.decisions;
    assert_eq!(
        (all.initial, all.random, all.hint, all.all),
        (2, 50, 1, 53 + seq.subsequent)
    );
    let text = render(
        &explained,
        &View {
            rows: 12,
            details: true,
            ..View::default()
        },
    );
    let line = format!(
        "Decisions by pattern: 2 initial, {} subsequent, 1 hint, 50 random; {} in all.",
        seq.subsequent, all.all
    );
    assert!(text.contains(&line), "{line} is not in\n{text}");
    let old = under(
        &pages((0..40).map(|n| n * 97 % 4001 * 4)),
        "linux-2.6.0",
        &[],
    )
    .total
    .decisions;
    assert!(
        old.initial > 5 && old.random > 20 && old.all == old.initial + old.random,
        "{old:?}"
    );
}

#[test]
fn what_the_recorded_system_did_is_said() {
    let ahead = |page| Record {
        flags: Flags::AHEAD,
        ..Record::read(0, page * PAGE, 4 * PAGE)
    };
    let reads = [0, 1, 2].map(|page| Record::read(0, page * PAGE, PAGE));
    let records = [vec![ahead(0)], reads.to_vec(), vec![ahead(100)]].concat();
    let explained = under(
        &plan(&[("/data/file", 4 << 20)], records),
        "linux-6.18",
        &[],
    );
    let recorded = explained.recorded.as_ref().expect("two records of it");
    assert_eq!(
        (recorded.ra_ops, recorded.ra_bytes, recorded.wanted_bytes),
        (2, 8 * PAGE, 3 * PAGE)
    );
    let text = render(
        &explained,
        &View {
            rows: 12,
            details: true,
            ..View::default()
        },
    );
    assert!(
        text.contains("The recorded system itself read ahead 2 times"),
        "{text}"
    );
    assert_eq!(under(&pages(0..9), "none", &[]).recorded, None);
}

#[test]
fn others_are_measured_and_the_verdict_is_one_sentence() {
    let far = ComparePlan {
        on: Some(compare::model("object-near").expect("a model")),
        ..pages(0..400)
    };
    let explained = under(&far, "linux-6.18:max=32K", &["none", "linux-6.18:max=1M"]);
    let names: Vec<&str> = explained.others.iter().map(|o| o.policy.as_str()).collect();
    assert_eq!(
        names,
        ["none", "linux-6.18:max=1M", "linux-6.18:max=32K", "oracle"]
    );
    assert!(explained.others[2].explained && explained.others[3].limit);
    let text = &explained.verdict;
    assert!(
        text.starts_with("Use linux-6.18:max=1M: these reads take "),
        "{text}"
    );
    assert!(
        text.contains("; with perfect foresight: ") && !text.contains(". "),
        "{text}"
    );
    let random = under(&pages(scattered(200)), "linux-6.18", &["none", "rbd-plain"]);
    assert!(
        random.verdict.starts_with("Readahead gains nothing here"),
        "{}",
        random.verdict
    );
    let single = ComparePlan {
        runs: Some(1),
        ..pages(0..100)
    };
    assert!(
        under(&single, "linux-6.18", &["none"])
            .verdict
            .starts_with("One run of each cannot separate")
    );
}

#[test]
fn the_text_fits_and_hides_nothing_from_the_sums() {
    let explained = under(&mixed(), "linux-6.18", &["none"]);
    let all = render(
        &explained,
        &View {
            rows: 12,
            details: true,
            ..View::default()
        },
    );
    assert!(all.lines().all(|line| line.chars().count() <= 100), "{all}");
    assert!(all.lines().count() < 50, "{} lines", all.lines().count());
    let plain = render(
        &explained,
        &View {
            rows: 12,
            ..View::default()
        },
    );
    assert!(
        all.contains("Statistics: paired t tests") && all.contains("95 %"),
        "{all}"
    );
    assert!(
        !plain.contains("Statistics") && !plain.contains("95 %"),
        "{plain}"
    );
    let one = render(
        &explained,
        &View {
            file: Some("/b/".to_string()),
            rows: 1,
            ..View::default()
        },
    );
    assert!(
        one.contains("1 more") && one.contains("2 not asked for") && !one.contains("/a/seq ("),
        "{one}"
    );
    let line = |text: &str| {
        text.lines()
            .find(|l| l.starts_with("all "))
            .expect("a sum")
            .split_whitespace()
            .collect::<String>()
    };
    assert_eq!(line(&one), line(&all));
}

#[test]
fn the_json_has_the_promised_keys() {
    let explained = under(&mixed(), "linux-6.18", &["none"]);
    let json = serde_json::to_value(&explained).expect("JSON");
    assert_eq!(
        (json["schema"].as_str(), json["trace"].as_str()),
        (Some("foreread.explain/1"), Some("small.trace"))
    );
    for key in
        "foreread source policy cache_bytes page_bytes mode time_s notes total files recorded others verdict".split(' ')
    {
        assert!(json.get(key).is_some(), "{key} is missing");
    }
    let file = json["files"]
        .as_array()
        .expect("files")
        .iter()
        .find(|f| f["name"] == "/a/seq")
        .expect("seq");
    assert_eq!(
        (
            file["pattern"]["sequential"].as_f64(),
            file["share"]["demand_reads"].as_u64()
        ),
        (Some(1.0), Some(64))
    );
    let stream = &file["streams"][0];
    for key in "open shape step_bytes from end share because".split(' ') {
        assert!(stream.get(key).is_some(), "{key} is missing");
    }
    assert_eq!(stream["because"]["on"].as_bool(), Some(true));
    let back: ExplainReport = serde_json::from_value(json).expect("what was written can be read");
    assert_eq!(back, explained);
}

/// Traces that lack starts, threads and descriptors, and one taken below a cache.
#[test]
fn what_a_trace_lacks_is_no_obstacle() {
    let items = || {
        let file = Item::File(FileInfo {
            name: "sda".to_string(),
            size: None,
        });
        let reads = (0..50).map(|n| Item::Record(Record::read(0, n * 64 * PAGE, 8 * PAGE)));
        [file].into_iter().chain(reads).map(Ok).collect::<Vec<_>>()
    };
    let header = Header {
        level: Level::BelowCache,
        ..Header::default()
    };
    let import = Import {
        header,
        items: Box::new(items().into_iter()),
        left_out: LeftOut::default(),
    };
    let loaded = Arc::new(load("below", import, &Part::default()).expect("readable"));
    let replay = Some(Arc::new(
        Replay::of(&loaded, None, None).expect("asap fits all"),
    ));
    let plan = ComparePlan {
        replay,
        on: Some(compare::model("rbd").expect("a model")),
        seed: 1,
        ..ComparePlan::default()
    };
    let explained = under(&plan, "linux-6.18", &[]);
    assert!(
        explained
            .notes
            .iter()
            .any(|n| n.contains("readahead is already in it")),
        "{:?}",
        explained.notes
    );
    assert_eq!(explained.files[0].pattern.words, "strided 256K");
}
