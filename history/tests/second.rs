//! Generations 1 to 3 of Linux readahead, written a second time and compared with the policies, story by story.
//!
//! The second implementation (`two_windows.rs`, `ondemand.rs`) was written from the publications alone, as a kernel's
//! read loop over a table of pages (`pages.rs`). After each step of a random story (`story.rs`) both must have given the
//! same answers to the same questions, and hold the same pages with the same marks; where pages are read one by one,
//! the same source reads in the same order. `FOREREAD_REQUESTS` asks for more than the default, `FOREREAD_SEED` begins elsewhere.
//!
//! What is left out of the comparison: a window of the one page that was missed, which the reader may as well read by
//! itself; and which pages eviction takes first. Never: the code of a policy.

mod ondemand;
mod pages;
mod story;
mod two_windows;

use crate::common::{FILE, World};
use foreread_core::event::{Event, Mapping};
use foreread_core::machine::{Config, Decision, Question};
use foreread_core::units::{ByteRange, MAX_OFFSET, OpenId, PageSize, ReadId};
use ondemand::{Context, Kernel};
use pages::{Decided, P, Pages};
use story::{OPENS, Op, Story};
use two_windows::Tree;

/// Requests of the default run.
const REQUESTS: u64 = 100_000;

/// One open description of either family.
enum File {
    Two(two_windows::File),
    OnDemand(ondemand::File),
}

impl File {
    fn new(story: &Story) -> File {
        let &Story {
            policy,
            context,
            max,
            min,
            ..
        } = story;
        let context = match context {
            "off" => Context::Off,
            "conservative" => Context::Conservative,
            "slow-ramp" => Context::SlowRamp,
            _ => Context::Original,
        };
        match policy {
            "linux-2.6.0" => File::Two(two_windows::File::new(Tree::Plain, max, min)),
            "linux-2.6.0-mm" => File::Two(two_windows::File::new(Tree::Mm, max, min)),
            "linux-2.6.0-mm-fix" => File::Two(two_windows::File::new(Tree::Fix, max, min)),
            "linux-2.6.23" => File::OnDemand(ondemand::File::new(Kernel::K2623, max)),
            "linux-2.6.31" => File::OnDemand(ondemand::File::new(Kernel::K2631, max)),
            "linux-thrashsafe" => File::OnDemand(ondemand::File::new(Kernel::Thrashsafe(min), max)),
            _ => File::OnDemand(ondemand::File::new(Kernel::K312(context), max)),
        }
    }

    fn act(&mut self, op: Op, pages: &mut Pages) {
        match (self, op) {
            (File::Two(file), Op::Read { start, len, .. }) => file.read(start, len, pages),
            (File::Two(file), Op::Fault { page, .. }) => file.fault(page, pages),
            (
                File::Two(file),
                Op::Advise {
                    advice, start, len, ..
                },
            ) => file.advise(advice, start, len, pages),
            (File::OnDemand(file), Op::Read { start, len, .. }) => file.read(start, len, pages),
            (File::OnDemand(file), Op::Fault { page, advice, .. }) => {
                file.fault(page, advice, pages)
            }
            (
                File::OnDemand(file),
                Op::Advise {
                    advice, start, len, ..
                },
            ) => file.advise(advice, start, len, pages),
            (_, Op::Drop { start, len }) => pages.forget(start, len),
        }
    }
}

/// The real policy in the machine, with room for everything and nothing merged.
fn world(story: &Story) -> World {
    let mut config = Config::new(PageSize::new(P as u64).expect("4096"), 0);
    (config.capacity_pages, config.max_fetch_bytes) = (1 << 20, 1 << 40);
    (
        config.max_in_flight,
        config.max_ahead_in_flight,
        config.max_piggyback_bytes,
    ) = (1 << 16, 1 << 15, 1 << 40);
    config.keep_windows_apart = true;
    let mut world = World::with(&story.spec(), config, story.size as u64);
    for open in 1..OPENS {
        world.send(Event::Open {
            open: OpenId(open),
            file: FILE,
            size: story.size as u64,
        });
    }
    world.machine.watch();
    world
}

fn act(world: &mut World, op: Op) {
    match op {
        Op::Read { open, start, len } => {
            world.read_on(OpenId(open), start as u64, len as u64);
        }
        Op::Fault { open, page, advice } => {
            let map = Mapping {
                range: ByteRange::between(0, MAX_OFFSET),
                executable: false,
                advice,
            };
            let read = ReadId(world.next_read);
            world.next_read += 1;
            world.send(Event::Fault {
                read,
                open: OpenId(open),
                at: (page * P) as u64,
                map,
            });
        }
        Op::Advise {
            open,
            advice,
            start,
            len,
        } => {
            // A length of 0 reaches to the end: so says the system call. An event has the range that is meant.
            let end = if len == 0 {
                world.size.max(start as u64 + 1)
            } else {
                (start + len) as u64
            };
            let range = ByteRange::between(start as u64, end);
            world.send(Event::Advise {
                open: OpenId(open),
                advice,
                range,
            });
        }
        Op::Drop { start, len } => world.invalidate(start as u64, len as u64),
    }
    // From the last place to the first: a reader goes on only when all that it sent out has come in.
    while let Some((&fetch, _)) = world.pending.iter().max_by_key(|(_, p)| p.range.start()) {
        world.finish(fetch);
    }
}

/// Answers of a policy as the second implementation notes them: in pages, cut at the end of the file.
fn decided(decisions: &[Decision], eof: i64) -> Vec<Decided> {
    let page = |byte: u64| byte as i64 / P;
    let cut = |d: &Decision| {
        let windows = d.windows.iter().filter_map(|w| {
            assert!(!w.range.is_empty(), "an empty window: {d:?}");
            let (first, end) = (page(w.range.start()), (w.range.end() as i64 + P - 1) / P);
            let end = end.min(eof + 1);
            (first < end).then(|| {
                (
                    first,
                    end,
                    w.mark.map(page).filter(|m| (first..end).contains(m)),
                )
            })
        });
        Decided {
            question: d.question,
            page: page(d.at),
            windows: windows.collect(),
        }
    };
    decisions.iter().map(cut).collect()
}

/// Without windows of the one page that was missed: see the head of this file.
fn plain(decided: Vec<Decided>) -> Vec<Decided> {
    let alone = |d: &Decided, w: &pages::Window| {
        matches!(d.question, Question::Miss | Question::Fault) && *w == (d.page, d.page + 1, None)
    };
    let strip = |mut d: Decided| {
        let windows = std::mem::take(&mut d.windows);
        d.windows = windows.into_iter().filter(|w| !alone(&d, w)).collect();
        d
    };
    decided
        .into_iter()
        .map(strip)
        .filter(|d| !d.windows.is_empty())
        .collect()
}

/// Pages that are here, with their marks.
fn held(world: &World) -> Vec<(i64, bool)> {
    let mut held = Vec::new();
    for group in world.machine.cache().groups() {
        let bits = (0..64).filter(|b| group.present() >> b & 1 != 0);
        held.extend(bits.map(|b| ((group.number * 64 + b) as i64, group.marked() >> b & 1 != 0)));
    }
    held.sort_unstable();
    held
}

fn differ<T: PartialEq + std::fmt::Debug>(
    what: &str,
    machine: &[T],
    second: &[T],
) -> Result<(), String> {
    let Some(at) = (0..machine.len().max(second.len())).find(|&i| machine.get(i) != second.get(i))
    else {
        return Ok(());
    };
    let part = |list: &[T]| format!("{:?}", &list[at.min(list.len())..list.len().min(at + 3)]);
    Err(format!(
        "{what} differ from number {at} on:\n  the policy: {}\n  the second: {}",
        part(machine),
        part(second)
    ))
}

/// Both sides of a story: the first step after which they differ, and how.
fn compare(story: &Story) -> Result<(), (usize, String)> {
    let mut world = world(story);
    let mut files: Vec<File> = (0..OPENS).map(|_| File::new(story)).collect();
    let serial = story.policy.starts_with("linux-2.6.0");
    let mut pages = Pages::new(story.size, !serial);
    for (step, &op) in story.ops.iter().enumerate() {
        let open = match op {
            Op::Read { open, .. } | Op::Fault { open, .. } | Op::Advise { open, .. } => open,
            Op::Drop { .. } => 0,
        };
        act(&mut world, op);
        files[open as usize].act(op, &mut pages);
        check(&mut world, &mut pages, serial).map_err(|how| (step, how))?;
    }
    world.check_idle();
    Ok(())
}

fn check(world: &mut World, pages: &mut Pages, serial: bool) -> Result<(), String> {
    let machine = plain(decided(&world.machine.take_decisions(), pages.eof()));
    differ(
        "decisions",
        &machine,
        &plain(std::mem::take(&mut pages.decided)),
    )?;
    differ(
        "pages and marks",
        &held(world),
        &pages
            .cached
            .iter()
            .map(|(&p, &m)| (p, m))
            .collect::<Vec<_>>(),
    )?;
    pages.send(|_| true);
    let second = std::mem::take(&mut pages.source);
    let submitted = std::mem::take(&mut world.submitted);
    if serial {
        let run = |r: &ByteRange| (r.start() as i64 / P, (r.end() as i64 + P - 1) / P);
        differ(
            "source reads",
            &submitted
                .iter()
                .map(|(range, _)| run(range))
                .collect::<Vec<_>>(),
            &second,
        )?;
    }
    Ok(())
}

/// The story without every step that it can do without and still fail.
fn shrink(mut story: Story, step: usize) -> Story {
    story.ops.truncate(step + 1);
    let mut at = 0;
    while at < story.ops.len() {
        let mut shorter = story.clone();
        shorter.ops.remove(at);
        match compare(&shorter) {
            Err((step, _)) => {
                shorter.ops.truncate(step + 1);
                story = shorter;
            }
            Ok(()) => at += 1,
        }
    }
    story
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: a number"))
    })
}

#[test]
fn policies_agree_with_the_second_implementation() {
    let requests = from_env("FOREREAD_REQUESTS", REQUESTS);
    let first = from_env("FOREREAD_SEED", 0);
    let (mut done, mut stories) = (0, 0);
    while done < requests {
        let seed = first + stories;
        let story = Story::new(seed);
        if let Err((step, _)) = compare(&story) {
            let story = shrink(story, step);
            let how = compare(&story).err().map_or(String::new(), |(_, how)| how);
            let spec = story.spec();
            panic!(
                "FOREREAD_SEED={seed}: {spec}, {} bytes: {how}\n  after {:#?}",
                story.size, story.ops
            );
        }
        done += story.ops.len() as u64;
        stories += 1;
    }
    println!("second: {done} requests in {stories} stories agree");
}
