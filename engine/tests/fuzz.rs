//! A short run of the fuzz targets: the same functions, with seeded input and with mutations of real conversations. The
//! long run is ./test-long fuzz.

use crate::common::nbd::option;
use crate::common::{Rng, watch};
use foreread::nbd::wire::{Request, command};
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

/// The flags of a client, and its options: number and data.
type Sent<'a> = (u8, &'a [(u32, &'a [u8])]);

/// What nbdinfo, qemu and the kernel's client send.
fn handshakes() -> Vec<Vec<u8>> {
    let [one, four, fifteen] = [1_u32, 4, 15].map(u32::to_be_bytes);
    let go = [&four[..], b"disk", &[0, 3, 0, 1, 0, 2, 0, 3]].concat();
    let meta = [&four[..], b"disk", &one, &fifteen, b"base:allocation"].concat();
    let stories: [Sent<'_>; 3] = [
        (3, &[(8, &[]), (10, &meta), (6, &go), (7, &go)]),
        (3, &[(5, &[]), (3, &[]), (2, &[])]),
        (1, &[(1, b"disk")]),
    ];
    let bytes = |(flags, options): Sent<'_>| -> Vec<u8> {
        let options = options
            .iter()
            .flat_map(|(number, data)| option(*number, data));
        [0, 0, 0, flags].into_iter().chain(options).collect()
    };
    stories.map(bytes).to_vec()
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
        let (len, offset) = match what {
            command::FLUSH => (0, 0),
            _ => (1 + rng.below(20_000) as u32, rng.below(310_000)),
        };
        let flags = rng.below(2) as u16;
        let request = Request {
            flags,
            command: what,
            cookie,
            offset,
            len,
        };
        bytes.extend(request.bytes());
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
        let begin = vec![n as u8, rng.next() as u8];
        let bytes = [begin, mutate(&conversation(&mut rng), &mut rng)].concat();
        fuzz::requests(&bytes).unwrap_or_else(|why| panic!("input {n}: {why}"));
    }
}

#[test]
fn conversations_with_a_whole_server() {
    watch();
    let mut rng = Rng(3);
    for n in 0..600 {
        let mut bytes = conversation(&mut rng);
        if n % 3 > 0 {
            bytes = mutate(&bytes, &mut rng);
        }
        fuzz::conversation(&bytes).unwrap_or_else(|why| panic!("input {n}: {why}"));
    }
}

#[test]
fn stories_of_the_engine() {
    watch();
    // One seed, for looking at what a run has found.
    let one = std::env::var("FOREREAD_SEED").ok();
    let one = one.and_then(|seed| seed.parse().ok());
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
