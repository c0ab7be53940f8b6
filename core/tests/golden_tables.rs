//! Reads golden tables: requests go in and decisions come out, through the whole machine. The tables describe their formats.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::World;
use foreread_core::event::{Advice, Event, Mapping};
use foreread_core::machine::{Decision, Question};
use foreread_core::units::{ByteRange, OpenId, ReadId};

const PAGE: u64 = 4096;

/// Cuts a table into cases: name, policy, size, lines.
fn cases(table: &str) -> Vec<(String, String, u64, Vec<String>)> {
    let mut cases = Vec::new();
    let lines = table.lines().map(str::trim);
    for line in lines.filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let Some(head) = line.strip_prefix("case ") else {
            let (.., lines): &mut (String, String, u64, Vec<String>) =
                cases.last_mut().expect("a case first");
            lines.push(line.to_string());
            continue;
        };
        let parts: Vec<&str> = head.split('|').map(str::trim).collect();
        let size = match parts[2].strip_suffix('P') {
            Some(pages) => pages.parse::<u64>().expect("pages") * PAGE,
            None => parts[2].parse().expect("bytes"),
        };
        cases.push((parts[0].to_string(), parts[1].to_string(), size, Vec::new()));
    }
    cases
}

fn number(word: &str) -> u64 {
    let number = word.trim_start_matches('x').parse();
    number.unwrap_or_else(|_| panic!("'{word}' is not a number"))
}

fn advice(word: &str) -> Option<Advice> {
    Some(match word {
        "normal" => Advice::Normal,
        "sequential" => Advice::Sequential,
        "random" => Advice::Random,
        "willneed" => Advice::WillNeed,
        "dontneed" => Advice::DontNeed,
        _ => return None,
    })
}

fn fault(world: &mut World, open: OpenId, page: u64, words: &[&str]) {
    let map = words.iter().position(|w| *w == "map");
    let (first, pages) = map.map_or((0, world.size / PAGE), |i| {
        (number(words[i + 1]), number(words[i + 2]))
    });
    let advice = words.iter().find_map(|w| advice(w));
    let map = Mapping {
        range: ByteRange::new(first * PAGE, pages * PAGE).expect("a range"),
        executable: words.contains(&"exec"),
        advice: advice.unwrap_or(Advice::Normal),
    };
    let read = ReadId(world.next_read);
    world.next_read += 1;
    world.send(Event::Fault {
        read,
        open,
        at: page * PAGE,
        map,
    });
}

fn linux_line(world: &mut World, open: &mut OpenId, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[0] {
        "open" => {
            *open = OpenId(number(words[1]) as u32);
            world.open(*open);
        }
        "read" => {
            let (page, pages) = (number(words[1]), number(words[2]));
            for i in 0..words.get(3).map_or(1, |w| number(w)) {
                world.read_on(*open, (page + i * pages) * PAGE, pages * PAGE);
                world.settle();
            }
        }
        "bytes" => {
            world.read_on(*open, number(words[1]), number(words[2]));
        }
        "advise" => {
            let at = |i: usize| words.get(i).map_or(0, |w| number(w)) * PAGE;
            let range = ByteRange::new(at(2), at(3)).expect("a range");
            world.send(Event::Advise {
                open: *open,
                advice: advice(words[1]).expect("a hint"),
                range,
            });
        }
        "streams" => {
            let first: Vec<u64> = words[1].split(',').map(number).collect();
            for i in 0..number(words[2]) {
                for page in &first {
                    world.read_on(*open, (page + i) * PAGE, PAGE);
                    world.settle();
                }
            }
        }
        "drop" => world.invalidate(number(words[1]) * PAGE, number(words[2]) * PAGE),
        "fault" => {
            let times = words.iter().find(|w| w.starts_with('x'));
            for i in 0..times.map_or(1, |w| number(w)) {
                fault(world, *open, number(words[1]) + i, &words);
                world.settle();
            }
        }
        other => panic!("'{other}' is no operation"),
    }
    world.settle();
}

fn in_pages(decision: &Decision) -> String {
    let windows = decision.windows.iter().map(|w| {
        let mark = w.mark.map_or(String::new(), |m| format!(" m{}", m / PAGE));
        format!("{}+{}{mark}", w.range.start() / PAGE, w.range.len() / PAGE)
    });
    let windows: Vec<String> = windows.collect();
    let question = format!("{:?}", decision.question).to_lowercase();
    format!("{question} {}: {}", decision.at / PAGE, windows.join(", "))
}

/// Every case of a table of the `linux-*` policies; returns how many decisions it holds.
pub fn linux(table: &str) -> usize {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (name, policy, size, lines) in cases(table) {
        let mut world = World::new(&policy, PAGE, 1 << 30, size);
        world.machine.watch();
        let mut open = OpenId(0);
        let (expected, steps): (Vec<String>, Vec<String>) =
            lines.into_iter().partition(|l| l.starts_with('>'));
        for line in &steps {
            linux_line(&mut world, &mut open, line);
        }
        let decisions = world.machine.take_decisions();
        let decided = decisions.iter().map(|d| format!("> {}", in_pages(d)));
        let decided: Vec<String> = decided.collect();
        if decided != expected {
            let both = format!("  decided  {decided:?}\n  expected {expected:?}");
            wrong.push(format!("case {name}\n{both}"));
        }
        checked += decided.len();
        world.check_idle();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    checked
}

/// Every case of a table of the `rbd-*` policies; returns how many decisions it holds.
pub fn rbd(table: &str) -> usize {
    let mut checked = 0;
    for (name, policy, size, lines) in cases(table) {
        let mut world = World::new(&policy, 512, 1 << 30, size);
        world.machine.watch();
        let (expected, steps): (Vec<String>, Vec<String>) =
            lines.into_iter().partition(|l| l.starts_with(['>', '=']));
        let (mut decided, mut count) = (Vec::new(), 0);
        let mut planned = 0;
        for line in &steps {
            let words: Vec<&str> = line.split_whitespace().collect();
            for i in 0..words.get(3).map_or(1, |w| number(w)) {
                count += 1;
                world.read(number(words[1]) + i * number(words[2]), number(words[2]));
                for decision in world.machine.take_decisions() {
                    assert_eq!(decision.question, Question::Read);
                    let range = decision.windows[0].range;
                    planned += range.len();
                    decided.push(format!("> {count}: {}+{}", range.start(), range.len()));
                }
                world.settle();
            }
        }
        // librbd's own two counters (section 5, item 7).
        let stats = world.machine.stats();
        let counted = (stats.ra_planned_ops, stats.ra_planned_bytes);
        assert_eq!(counted, (decided.len() as u64, planned), "case {name}");
        checked += decided.len();
        if expected.first().is_some_and(|l| l.starts_with('=')) {
            decided = vec![format!("= {} {planned}", decided.len())];
        }
        assert_eq!(decided, expected, "case {name}");
        world.check_idle();
    }
    checked
}

/// One test for each table: its name, its kind, the decisions it holds at least.
macro_rules! golden {
    ($($test:ident: $kind:ident, $file:literal, $least:literal;)*) => {
        $(#[test]
        fn $test() {
            let checked = $crate::golden_tables::$kind(include_str!(concat!("golden/", $file)));
            assert!(checked >= $least, "only {checked} decisions in the table");
        })*
    };
}

pub(crate) use golden;
