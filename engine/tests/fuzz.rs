//! A short run of the fuzz targets: the same functions, with seeded input and with mutations of real conversations. The
//! long run is ./test-long fuzz.

use crate::common::{Rng, watch};
use foreread::nbd::wire::{self, Request, command};
use foreread_testing::fuzz::{self, Story};

/// Bytes with a few changes: bits, cuts, repeats, and numbers that matter.
fn mutate(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(out.len() as u64) as usize;
        match rng.below(5) {
            0 if !out.is_empty() => out[at] ^= 1 << rng.below(8),
            1 => out.truncate(at),
            2 => {
                let piece = out[at..(at + 28).min(out.len())].to_vec();
                out.extend(piece);
            }
            3 if at + 8 <= out.len() => {
                let number = [0, 1, u64::MAX, 1 << 63, 1 << 32, 4096][rng.below(6) as usize];
                out[at..at + 8].copy_from_slice(&number.to_be_bytes());
            }
            _ if !out.is_empty() => out[at] = rng.next() as u8,
            _ => {}
        }
    }
    out
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let head = [
        &wire::OPTION_MAGIC.to_be_bytes()[..],
        &number.to_be_bytes(),
        &(data.len() as u32).to_be_bytes(),
    ];
    [&head.concat(), data].concat()
}

/// What nbdinfo, qemu and the kernel's client send.
fn handshakes() -> Vec<Vec<u8>> {
    let go = [&4_u32.to_be_bytes()[..], b"disk", &[0, 3, 0, 1, 0, 2, 0, 3]].concat();
    let meta = [
        &4_u32.to_be_bytes()[..],
        b"disk",
        &1_u32.to_be_bytes(),
        &15_u32.to_be_bytes(),
        b"base:allocation",
    ]
    .concat();
    vec![
        [
            vec![0, 0, 0, 3],
            option(8, &[]),
            option(10, &meta),
            option(6, &go),
            option(7, &go),
        ]
        .concat(),
        [
            vec![0, 0, 0, 3],
            option(5, &[]),
            option(3, &[]),
            option(2, &[]),
        ]
        .concat(),
        [vec![0, 0, 0, 1], option(1, b"disk")].concat(),
    ]
}

#[test]
fn handshakes_by_strangers() {
    let (real, mut rng) = (handshakes(), Rng(1));
    for n in 0..50_000_usize {
        let bytes = mutate(&real[n % real.len()], &mut rng);
        fuzz::handshake(&bytes).unwrap_or_else(|why| panic!("input {n}: {why}"));
    }
}

fn conversation(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for cookie in 0..1 + rng.below(12) {
        let what = [0, 0, 0, 0, 1, 3, 4, 5, 6, 7, 2, 99][rng.below(12) as usize];
        let len = if what == command::FLUSH {
            0
        } else {
            1 + rng.below(20_000) as u32
        };
        let offset = if what == command::FLUSH {
            0
        } else {
            rng.below(310_000)
        };
        bytes.extend(
            Request {
                flags: rng.below(2) as u16,
                command: what,
                cookie,
                offset,
                len,
            }
            .bytes(),
        );
        if what == command::WRITE {
            bytes.extend(vec![0x25; len as usize]);
        }
    }
    bytes
}

#[test]
fn requests_by_strangers() {
    let mut rng = Rng(2);
    for n in 0..20_000 {
        let bytes = [
            vec![n as u8, rng.next() as u8],
            mutate(&conversation(&mut rng), &mut rng),
        ]
        .concat();
        fuzz::requests(&bytes).unwrap_or_else(|why| panic!("input {n}: {why}"));
    }
}

#[test]
fn conversations_with_a_whole_server() {
    watch();
    let mut rng = Rng(3);
    for n in 0..600 {
        let plain = conversation(&mut rng);
        let bytes = if n % 3 == 0 {
            plain
        } else {
            mutate(&plain, &mut rng)
        };
        fuzz::conversation(&bytes).unwrap_or_else(|why| panic!("input {n}: {why}"));
    }
}

#[test]
fn stories_of_the_engine() {
    watch();
    // One seed, for looking at what a run has found.
    let one = std::env::var("FOREREAD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..3000, |seed: u64| seed..seed + 1) {
        let story = Story::drawn(seed);
        fuzz::engine(&story, false).unwrap_or_else(|why| panic!("seed {seed}: {why}: {story:?}"));
    }
}

/// The canary: a bug that is there has to be found, or nothing above means anything.
#[test]
fn a_planted_bug_is_found() {
    watch();
    let found = (0..5000).find(|&seed| fuzz::engine(&Story::drawn(seed), true).is_err());
    println!("found with seed {found:?}");
    assert!(found.is_some());
}
