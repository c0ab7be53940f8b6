//! Tests of `explain` with small traces: the files add up to the row that `compare` shows for the same run, and rules have names.

use crate::common::{draft, loaded, plan_on, replay_of, table_of};
use foreread_core::event::Advice;
use foreread_history::policies;
use foreread_lab::compare::{ComparePlan, OracleRow};
use foreread_lab::explain::{ExplainReport, explain, render};
use foreread_lab::replay::Replay;
use foreread_lab::report::Report;
use foreread_report::progress::Silent;
use foreread_testing::says;
use foreread_trace::{FileInfo, Header, Item, Level, Op, Record};
use std::sync::Arc;

const PAGE: u64 = 4096;
const NEXT: &str = "foreread compare dir/small.trace --on model:rbd";

fn plan(files: &[(&str, u64)], records: Vec<Record>) -> ComparePlan {
    let infos = files
        .iter()
        .map(|(name, size)| Item::File(FileInfo::new(*name, Some(*size))));
    let items: Vec<Item> = infos.chain(records.into_iter().map(Item::Record)).collect();
    let replay = Some(replay_of("small.trace", items));
    ComparePlan {
        replay,
        runs: None,
        ..plan_on("rbd", &[])
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

fn under(plan: &ComparePlan, policy: &str) -> ExplainReport {
    explain(plan, draft(policy), NEXT.to_string(), &mut Silent).expect("it can be explained")
}

fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| (n * 7919 + n * n * 131 + 17) % 16_000)
}

/// One sequential file, one at random with a hint, one read whole.
fn mixed() -> ComparePlan {
    let hint = |file, advice| Record::read(file, 0, 0).op(Op::Hint(advice));
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
fn the_files_are_the_row_of_compare() {
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
            let all = policies();
            let names = all.iter().map(|info| info.name);
            for policy in names.chain(["linux-6.18:max=1M,folios=on"]) {
                let ours = under(&plan, policy);
                let asked = ComparePlan {
                    policies: vec![draft(policy)],
                    oracle: OracleRow::Usual,
                    ..plan.clone()
                };
                let mut rows = Report::of(&table_of(&asked)).rows.into_iter();
                let r = rows.find(|r| r.policy == policy).expect("its row");
                let c = ours.total;
                let pairs = [
                    (c.demand_reads, r.demand_reads),
                    (c.hits, r.hits),
                    (c.late_hits, r.late_hits),
                    (c.misses, r.misses),
                    (c.ra_bytes, r.ra_bytes),
                    (c.used_bytes, r.used_bytes),
                    (c.unused_bytes, r.unused_bytes),
                    (c.unresolved_bytes, r.unresolved_bytes),
                    (c.source_bytes, r.source_bytes),
                ];
                let what = format!("{name} under {policy}, cache {cache:?}");
                assert!(
                    pairs.iter().all(|(own, shown)| Some(*own) == *shown),
                    "{what}: {pairs:?}"
                );
                adds_up(&ours, &what);
            }
        }
    }
}

fn adds_up(report: &ExplainReport, what: &str) {
    for file in &report.files {
        let counts = &file.counts;
        let never_read = counts.unused_bytes + counts.unresolved_bytes;
        let fates = counts.used_bytes + counts.ra_failed_bytes + never_read;
        assert_eq!(counts.ra_bytes, fates, "{what}: {}", file.name);
        let reads = counts.hits + counts.late_hits + counts.misses;
        assert_eq!(counts.demand_reads, reads, "{what}: {}", file.name);
    }
    for (rule, times) in &report.rules {
        let of_files = report.files.iter().filter_map(|file| file.rules.get(rule));
        assert_eq!(of_files.sum::<u64>(), *times, "{what}: {rule}");
    }
}

#[test]
fn rules_are_counted_by_their_names() {
    let rules = |plan: &ComparePlan, policy: &str| under(plan, policy).rules;
    let sequence = rules(&pages(0..100), "linux-6.18");
    assert_eq!(sequence["file-start"], 1);
    assert!(sequence["next-window"] > 1, "{sequence:?}");
    for reads in [pages((1..100).map(|n| n * 16)), pages(scattered(100))] {
        let off = rules(&reads, "linux-6.18");
        assert!(off["no-history"] > 80, "{off:?}");
    }
    let interleaved = pages((0..100).flat_map(|n| [n, 4000 + n, 9000 + n]));
    assert!(rules(&interleaved, "linux-6.18")["context"] >= 2);
    // librbd has one detector, which every read in turn resets.
    assert_eq!(under(&interleaved, "rbd-plain").total.ra_bytes, 0);
    assert_eq!(rules(&pages(0..9), "rbd-plain")["below-trigger"], 9);
    assert!(rules(&pages(0..9), "none").is_empty());
}

#[test]
fn files_have_rules_of_their_own() {
    let report = under(&mixed(), "linux-6.18");
    let file = |name: &str| {
        let mut files = report.files.iter();
        files.find(|file| file.name == name).expect(name)
    };
    let random = file("/a/random");
    assert_eq!((random.rules["hint-random"], random.hints), (50, 1));
    assert!(file("/a/seq").rules["next-window"] > 1);
    assert!(file("/b/wanted").rules["hint-willneed"] >= 1);
    assert!(file("/b/wanted").counts.ra_bytes > 0);
    says(&report.summary, &["linux-6.18 read "]);
    let none = under(&mixed(), "none");
    assert_eq!(none.summary, "none read nothing ahead");
    assert!(!render(&none).contains("decides by"));
}

#[test]
fn the_text_fits_and_hides_nothing_from_the_sums() {
    let mut report = under(&mixed(), "linux-6.18");
    let all = render(&report);
    assert!(all.lines().all(|line| line.chars().count() <= 100), "{all}");
    says(&all, &["hint-random", "/a/seq (", &format!("    {NEXT}\n")]);
    let reads = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("all "));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
    };
    assert_eq!(reads(&all), Some(report.total.demand_reads));
    let files = report.files.len();
    report.files = std::iter::repeat_n(report.files, 13).flatten().collect();
    let many = render(&report);
    says(&many, &[&format!("{} more", 13 * files - 12)]);
    assert_eq!(reads(&many), Some(13 * report.total.demand_reads));
}

#[test]
fn the_json_has_every_counter_of_a_file() {
    let report = under(&mixed(), "linux-6.18");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["schema"].as_str(), Some("foreread.explain/1"));
    assert_eq!(json["total"]["demand_reads"].as_u64(), Some(116));
    let file = json["files"][0]["counts"].as_object().expect("counters");
    assert_eq!(file.len(), 19);
    assert!(file.contains_key("thrash_bytes") && !file.contains_key("evicted_pages"));
}

/// Traces that lack starts, threads and descriptors, and one taken below a cache.
#[test]
fn what_a_trace_lacks_is_no_obstacle() {
    let file = Item::File(FileInfo::new("sda", None));
    let reads = (0..50).map(|n| Item::Record(Record::read(0, n * 64 * PAGE, 8 * PAGE)));
    let header = Header {
        level: Level::BelowCache,
        ..Header::default()
    };
    let items = std::iter::once(file).chain(reads).collect();
    let loaded = loaded("below", header, items);
    let replay = Replay::of(&loaded, None, None).expect("asap fits all");
    let plan = ComparePlan {
        replay: Some(Arc::new(replay)),
        ..plan_on("rbd", &[])
    };
    let explained = under(&plan, "linux-6.18");
    says(&explained.notes.join("\n"), &["already contains readahead"]);
    assert_eq!(explained.total.demand_reads, 50);
}
