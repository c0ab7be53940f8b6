//! Finds out from `/proc/PID/task/TID/syscall` in which system call a thread is blocked.
//!
//! ```text
//!   running                                                    on a CPU, or ready for one
//!   -1 0x7ffd... 0x55d1...                                     blocked, in no call: a page fault
//!   17 0x3 0x7f12... 0x20000 0x400000 0x0 0x0 0x7ffd... 0x...  call 17 with its arguments
//! ```

/// Whether a thread is running, in a page fault, or blocked in a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Runs,
    Faults,
    /// It is blocked in a call that reads a descriptor.
    Reads(ReadCall),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCall {
    pub descriptor: u32,
    /// The offset; `None` means the position of the descriptor.
    pub offset: Option<u64>,
    /// The length; `None` if it is not in the arguments.
    pub bytes: Option<u64>,
}

/// Its numbers on `x86_64` and on other architectures for which foreread is built, and which arguments are the descriptor, a pointer to
/// the offset (whose target cannot be seen; a null pointer means the position), the offset, and the length.
type ReadShape = ([i64; 2], usize, Option<usize>, Option<usize>, Option<usize>);

/// read, pread64, readv, preadv, preadv2, sendfile, `copy_file_range`, splice.
const READS: [ReadShape; 8] = [
    ([0, 63], 0, None, None, Some(2)),
    ([17, 67], 0, None, Some(3), Some(2)),
    ([19, 65], 0, None, None, None),
    ([295, 69], 0, None, Some(3), None),
    ([327, 286], 0, None, Some(3), None),
    ([40, 71], 1, Some(2), None, Some(3)),
    ([326, 285], 0, Some(1), None, Some(4)),
    ([275, 76], 0, Some(1), None, Some(4)),
];
const ARCHITECTURE: usize = if cfg!(target_arch = "x86_64") { 0 } else { 1 };

/// Parses a line of `/proc/PID/task/TID/syscall`, or returns `None` if the line is malformed.
pub fn parse(line: &str) -> Option<Doing> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(Doing::Runs);
    }
    let number: i64 = first.parse().ok()?;
    if number == -1 {
        // A program that has ended has no stack and no instruction pointer.
        let is_alive = words.any(|word| word.trim_start_matches("0x") != "0");
        return Some(if is_alive {
            Doing::Faults
        } else {
            Doing::Other
        });
    }
    let shape = READS
        .iter()
        .find(|(numbers, ..)| numbers[ARCHITECTURE] == number);
    let Some((_, descriptor, pointer, offset, bytes)) = shape else {
        return Some(Doing::Other);
    };
    let mut arguments = [0; 6];
    for (argument, word) in arguments.iter_mut().zip(words) {
        *argument = u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()?;
    }
    if pointer.is_some_and(|place| arguments[place] != 0) {
        return Some(Doing::Other);
    }
    let offset = offset.map(|place| arguments[place]);
    Some(Doing::Reads(ReadCall {
        // The register has 64 bits, the descriptor only 32.
        descriptor: arguments[*descriptor] as u32,
        // preadv2(2): -1 means the position.
        offset: offset.filter(|offset| *offset <= i64::MAX as u64),
        bytes: bytes.map(|place| arguments[place]),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_blocking_call() {
        assert_eq!(parse("running\n"), Some(Doing::Runs));
        assert_eq!(parse("-1 0x7ffd0 0x55d1\n"), Some(Doing::Faults));
        assert_eq!(parse("-1 0x0 0x0\n"), Some(Doing::Other));
        assert_eq!(
            parse("202 0x1 0x0 0x0 0x0 0x0 0x0 0x7ffd 0x7f\n"),
            Some(Doing::Other)
        );
        for line in ["", "x", "17x 0x3"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_arguments_of_reads_are_taken() {
        let read = |descriptor, offset, bytes| {
            Some(Doing::Reads(ReadCall {
                descriptor,
                offset,
                bytes,
            }))
        };
        let line = "17 0x3 0x7f12 0x20000 0x400000 0x0 0x0 0x7ffd 0x7f";
        assert_eq!(parse(line), read(3, Some(4 << 20), Some(128 << 10)));
        let line = "327 0x5 0x7f12 0x1 0xffffffffffffffff 0x0 0x0 0x7ffd 0x7f";
        assert_eq!(parse(line), read(5, None, None));
        let line = "40 0x1 0x7 0x0 0x10000 0x0 0x0 0x7ffd 0x7f";
        assert_eq!(parse(line), read(7, None, Some(64 << 10)));
        let line = "40 0x1 0x7 0x7ffd 0x10000 0x0 0x0 0x7ffd 0x7f";
        assert_eq!(parse(line), Some(Doing::Other));
        assert_eq!(parse("17 0x3 zz 0x1 0x1 0x0 0x0"), None);
    }
}
