//! The bytes of a trace: a file, plain or compressed ([`unpack`]), read in pieces of bounded size.
//!
//! A line or a record has a maximum size, so a decompression bomb costs time but no memory. Never: the whole of a
//! file, or a byte skipped without being counted.

use super::error::{TraceError, TracePosition};
use super::unpack::unpack;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Longest line. Lines of strace with long file names and those of blkparse stay far below.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// What a detector sees of a file: at most this many of its first bytes, decompressed.
pub const HEAD_BYTES: usize = 64 << 10;

/// Opens what may be a trace: a file, or a pipe.
pub(crate) fn opened(path: &Path) -> Result<File, TraceError> {
    if path.is_dir() {
        return Err(TraceError::whole(
            path,
            "a directory is no trace",
            "name a file in it",
        ));
    }
    foreread_os::open::stream(path)
        .map_err(|error| TraceError::io(path, TracePosition::Whole, &error))
}

/// A trace's bytes from the first one on.
pub struct Input {
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    /// Bytes taken so far.
    taken: u64,
    /// Lines, or records, taken so far.
    number: u64,
    /// The latest line.
    line: Vec<u8>,
}

impl Input {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Input, TraceError> {
        Input::of(path, Box::new(opened(path)?))
    }

    /// Reads from `bytes`; `path` is what errors call them.
    pub fn of(path: &Path, bytes: Box<dyn Read + Send>) -> Result<Input, TraceError> {
        let plain = unpack(bytes).map_err(|error| match error.kind() {
            // It names the compression and the command that unpacks it.
            std::io::ErrorKind::Unsupported => {
                let what = error.to_string();
                let (what, remedy) = what.split_once("; ").unwrap_or((&what, "unpack it first"));
                TraceError::whole(path, what, remedy)
            }
            _ => TraceError::io(path, TracePosition::Whole, &error),
        })?;
        let reader = BufReader::with_capacity(HEAD_BYTES, plain);
        Ok(Input {
            path: path.to_path_buf(),
            reader,
            taken: 0,
            number: 0,
            line: Vec::new(),
        })
    }

    /// The only one of `inputs`, for formats that are one file.
    pub fn only(inputs: Vec<Input>, format: &str) -> Result<Input, TraceError> {
        let mut inputs = inputs.into_iter();
        match (inputs.next(), inputs.next()) {
            (Some(input), None) => Ok(input),
            (_, second) => {
                let path = second.map_or_else(PathBuf::new, |input| input.path);
                let what = format!("a trace in the format {format} is one file");
                Err(TraceError::whole(&path, what, "name one file"))
            }
        }
    }

    /// What errors call it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its first bytes, at most [`HEAD_BYTES`], still to be taken. May be fewer than there are.
    pub fn head(&mut self) -> Result<&[u8], TraceError> {
        self.reader
            .fill_buf()
            .map_err(|error| TraceError::io(&self.path, TracePosition::Whole, &error))
    }

    /// The place of the line that was taken last.
    #[must_use]
    pub fn at_line(&self) -> TracePosition {
        TracePosition::Line(self.number)
    }

    /// The next line without its end, nothing after the last one.
    pub fn line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.line.clear();
        let mut limited = (&mut self.reader).take(MAX_LINE_BYTES as u64 + 1);
        let got = limited.read_until(b'\n', &mut self.line);
        self.number += 1;
        let got = got.map_err(|error| {
            TraceError::io(&self.path, TracePosition::Line(self.number), &error)
        })?;
        if got == 0 {
            return Ok(None);
        }
        self.taken += got as u64;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if got > MAX_LINE_BYTES {
            return Err(self.error(
                "a line of over 64 KiB",
                "this is no trace of this format; see --format",
            ));
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(Some(&self.line))
    }

    /// An error about the line that was taken last.
    #[must_use]
    pub fn error(&self, what: impl Into<String>, remedy: impl Into<String>) -> TraceError {
        TraceError::new(&self.path, self.at_line(), what, remedy)
    }

    /// Fills `buf` with the next record; false if there is none any more. It is an error if the input ends in the middle.
    pub fn record(&mut self, buf: &mut [u8]) -> Result<bool, TraceError> {
        self.number += 1;
        match self.fill(buf)? {
            0 => Ok(false),
            got => self.whole(got, buf.len()).map(|()| true),
        }
    }

    /// Fills `buf` with the rest of the record that was begun last.
    pub fn rest(&mut self, buf: &mut [u8]) -> Result<(), TraceError> {
        let got = self.fill(buf)?;
        self.whole(got, buf.len())
    }

    fn whole(&self, got: usize, wanted: usize) -> Result<(), TraceError> {
        if got == wanted {
            return Ok(());
        }
        let what = format!("the trace ends in the middle of a record ({got} of {wanted} bytes)");
        Err(self.record_error(
            got as u64,
            what,
            "copy it again, or cut it before this record",
        ))
    }

    /// An error about the record that was taken last, `len` bytes of which have been taken.
    #[must_use]
    pub fn record_error(
        &self,
        len: u64,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> TraceError {
        let place = TracePosition::Byte {
            record: self.number,
            byte: self.taken.saturating_sub(len),
        };
        TraceError::new(&self.path, place, what, remedy)
    }

    /// Fills as much of `buf` as there is, and says how much that is: less than all of it only at the end. For formats
    /// that say themselves what a cut means.
    pub fn fill(&mut self, buf: &mut [u8]) -> Result<usize, TraceError> {
        let mut got = 0;
        while got < buf.len() {
            match self.reader.read(&mut buf[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let place = TracePosition::Byte {
                        record: self.number,
                        byte: self.taken,
                    };
                    return Err(TraceError::io(&self.path, place, &error));
                }
            }
        }
        self.taken += got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn of(bytes: Vec<u8>) -> Input {
        Input::of(Path::new("t"), Box::new(std::io::Cursor::new(bytes))).expect("readable")
    }

    #[test]
    fn lines_come_without_their_ends_from_all_three_wrappings() {
        let text = b"one\r\n\ntwo";
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text).expect("memory");
        let wrapped = [
            text.to_vec(),
            gz.finish().expect("memory"),
            zstd::encode_all(&text[..], 1).expect("memory"),
        ];
        for bytes in wrapped {
            let mut input = of(bytes);
            assert_eq!(input.head().expect("readable"), text);
            for want in [Some(&b"one"[..]), Some(b""), Some(b"two"), None] {
                assert_eq!(input.line().expect("readable"), want);
            }
        }
    }

    #[test]
    fn a_line_has_a_largest_length_and_a_record_is_whole() {
        let mut input = of([
            vec![b'x'; MAX_LINE_BYTES],
            vec![b'\n'],
            vec![b'x'; MAX_LINE_BYTES + 1],
        ]
        .concat());
        assert_eq!(
            input.line().expect("just short enough").map(<[u8]>::len),
            Some(MAX_LINE_BYTES)
        );
        let error = input.line().expect_err("too long").to_string();
        assert!(
            error.starts_with("a line of over 64 KiB: t, line 2; "),
            "{error}"
        );
        let mut input = of(vec![7; 10]);
        let mut buf = [0; 4];
        assert!(input.record(&mut buf).expect("whole") && input.record(&mut buf).expect("whole"));
        let error = input.record(&mut buf).expect_err("cut").to_string();
        assert!(error.starts_with(
            "the trace ends in the middle of a record (2 of 4 bytes): t, record 3 at byte 8;"
        ));
        assert!(!of(Vec::new()).record(&mut buf).expect("at its end"));
    }

    /// A frame that asks for a gigabyte of window is refused before it gets it.
    #[test]
    fn a_zstd_window_has_a_limit() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("memory");
        encoder.window_log(27).expect("a window");
        encoder.write_all(&vec![1; 1 << 20]).expect("memory");
        let mut input = of(encoder.finish().expect("memory"));
        assert!(input.head().is_err());
    }
}
