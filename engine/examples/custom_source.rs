//! A source of one's own: bytes that are computed, here the squares.
//!
//! Never: waits for anything but its own storage. The engine calls it from several threads at once.

use foreread::source::{Defaults, Source, SourceError};
use foreread::{Options, Reader};
use std::io::IoSliceMut;
use std::sync::Arc;

/// Number `n` of eight bytes is the square of `n`.
struct Squares {
    numbers: u64,
}

impl Source for Squares {
    fn size(&self) -> u64 {
        self.numbers * 8
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let mut at = offset;
        for byte in bufs
            .iter_mut()
            .flat_map(|buf| buf.iter_mut())
            .take((self.size() - offset.min(self.size())) as usize)
        {
            let number = at / 8;
            *byte = number.wrapping_mul(number).to_le_bytes()[(at % 8) as usize];
            at += 1;
        }
        Ok((at - offset) as usize)
    }

    fn defaults(&self) -> Defaults {
        Defaults::MEMORY
    }

    fn describe(&self) -> String {
        format!("the first {} squares", self.numbers)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let reader = Reader::open(Arc::new(Squares { numbers: 1 << 20 }), Options::default())?;
    let mut eight = [0; 8];
    for number in [0, 1, 12, 1_000_000] {
        reader.read_at(&mut eight, number * 8)?;
        println!("{number} * {number} = {}", u64::from_le_bytes(eight));
        assert_eq!(u64::from_le_bytes(eight), number * number);
    }
    assert_eq!(reader.read_at(&mut eight, reader.size())?, 0);
    Ok(())
}
