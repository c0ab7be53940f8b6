//! The bytes of a trace: a file, plain or compressed ([`unpack`]), read in buffers of limited size.
//!
//! A line or a record has a maximum size, so a decompression bomb costs time but no memory. A file is never held in
//! memory as a whole, and every skipped byte is counted.

use super::error::{TraceError, TracePosition};
use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

/// Maximum length of a line in bytes. Lines of strace with long file names, and lines of blkparse, are far shorter than this limit.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Number of decompressed bytes at the start of a file from which its format is detected.
pub const HEAD_BYTES: usize = 64 << 10;

/// Opens a file or pipe that may be a trace.
pub(crate) fn opened(path: &Path) -> Result<File, TraceError> {
    if path.is_dir() {
        return Err(TraceError::whole(
            path,
            "a directory is not a trace",
            "name a file in it",
        ));
    }
    foreread_os::open::stream(path)
        .map_err(|error| TraceError::io(path, TracePosition::Whole, &error))
}

/// The bytes of a trace, from the start.
pub struct Input {
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    /// Number of bytes taken so far.
    taken: u64,
    /// Number of lines or records taken so far.
    number: u64,
    /// The latest line.
    line: Vec<u8>,
}

impl Input {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Input, TraceError> {
        Input::of(path, Box::new(opened(path)?))
    }

    /// Creates an input that reads from `bytes`; error messages name `path`.
    pub fn of(path: &Path, bytes: Box<dyn Read + Send>) -> Result<Input, TraceError> {
        let plain = unpack(bytes).map_err(|error| match error.kind() {
            // The error names the compression and the command to unpack the file.
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

    /// Returns the path that error messages show for this input.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the first bytes of the input, at most [`HEAD_BYTES`], without removing them from the input. The result may be shorter than
    /// [`HEAD_BYTES`] even if the file has more bytes.
    pub fn head(&mut self) -> Result<&[u8], TraceError> {
        self.reader
            .fill_buf()
            .map_err(|error| TraceError::io(&self.path, TracePosition::Whole, &error))
    }

    /// Returns the position of the line that was read last.
    #[must_use]
    pub fn at_line(&self) -> TracePosition {
        TracePosition::Line(self.number)
    }

    /// Returns the next line without its line end, or `None` after the last line.
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
                "a line longer than 64 KiB",
                "the trace has another format; see --format",
            ));
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(Some(&self.line))
    }

    /// Creates an error at the last line that was read.
    #[must_use]
    pub fn error(&self, what: impl Into<String>, remedy: impl Into<String>) -> TraceError {
        TraceError::new(&self.path, self.at_line(), what, remedy)
    }

    /// Fills `buf` with the next record; returns false at the end of the input. It is an error if the input ends within the record.
    pub fn record(&mut self, buf: &mut [u8]) -> Result<bool, TraceError> {
        self.number += 1;
        match self.fill(buf)? {
            0 => Ok(false),
            got => self.whole(got, buf.len()).map(|()| true),
        }
    }

    /// Fills `buf` with the rest of the current record.
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

    /// Creates an error at the current record, of which `len` bytes have been read.
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

    /// Fills as much of `buf` as possible and returns the number of bytes, which is less than the length of `buf` only at the end of the
    /// input. This function is for formats that report a truncated file themselves.
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

// Unpacks compressed files: gzip, zstd, xz and bzip2. The compression is recognised by the first bytes, never by the file name.
//
// ```text
//   bytes ──► its head ──► a magic that is read here      ──► decoder ──► plain bytes
//                     ├──► a magic that is known, not read ──► error: "compressed by lz4; unpack it first: lz4 -d FILE"
//                     └──► anything else                   ──► the bytes as they are
// ```
// Used for traces, recordings of decisions, and event logs. The memory of a decoder is limited, so a bomb costs time
// and never memory; the caller has to limit the size of the output. Sources of the magic numbers: RFC 1952 (gzip), RFC
// 8878 (zstd), the .xz file format 1.2.1, and the file formats of bzip2, lz4, 7-Zip, zip and compress.

/// Number of bytes read before the compression is known. A magic number needs seven; format detectors use all of them.
const PACKED_HEAD_BYTES: u64 = 64 << 10;

/// Maximum window of a zstd frame, as a power of two: 8 MiB, which the command zstd uses up to level 19.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;

/// Maximum memory for the dictionary of an xz block: xz -9 uses 64 MiB, and the decoder needs a little more.
const MAX_XZ_KIB: u32 = 80 << 10;

/// Compressions that are recognised but not supported: first bytes, name, and the command to unpack.
const UNREAD: &[(&[u8], &str, &str)] = &[
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -d FILE"),
    (b"PK\x03\x04", "zip", "unzip FILE"),
    (&[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c], "7-Zip", "7z x FILE"),
    (&[0x1f, 0x9d, 0x90], "compress", "gzip -d FILE"),
    (b"LZIP", "lzip", "lzip -d FILE"),
];

/// Decompresses `bytes` if they are compressed. Damaged data causes an error in a later read.
pub fn unpack(mut bytes: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut head = Vec::new();
    (&mut bytes)
        .take(PACKED_HEAD_BYTES)
        .read_to_end(&mut head)?;
    if let Some((_, name, command)) = UNREAD.iter().find(|(magic, ..)| head.starts_with(magic)) {
        let what = format!(
            "it is compressed by {name}, which is not supported; unpack it first: {command}"
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    let kind = Compression::of(&head);
    let whole =
        BufReader::with_capacity(PACKED_HEAD_BYTES as usize, Cursor::new(head).chain(bytes));
    Ok(match kind {
        Compression::Plain => Box::new(whole),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(whole)),
        Compression::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(whole, true, MAX_XZ_KIB)),
        Compression::Zstd => zstd_reader(whole)?,
    })
}

enum Compression {
    Plain,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
}

impl Compression {
    fn of(head: &[u8]) -> Compression {
        match head {
            [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            // The level, followed by the magic number of a block, or of the end if there is no block.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, ..] => Compression::Bzip2,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, ..] => Compression::Bzip2,
            _ => Compression::Plain,
        }
    }
}

fn zstd_reader(whole: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut decoder = zstd::Decoder::with_buffer(whole)?;
    decoder.window_log_max(MAX_ZSTD_WINDOW_LOG)?;
    Ok(Box::new(decoder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn of(bytes: Vec<u8>) -> Input {
        Input::of(Path::new("t"), Box::new(std::io::Cursor::new(bytes))).expect("readable")
    }

    fn gz(part: &[u8]) -> Vec<u8> {
        let fast = flate2::Compression::fast();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), fast);
        encoder.write_all(part).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn lines_come_without_their_ends_from_all_three_wrappings() {
        let text = b"one\r\n\ntwo";
        let zst = zstd::encode_all(&text[..], 1).expect("memory");
        let wrapped = [text.to_vec(), gz(text), zst];
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
        let mut bytes = vec![b'x'; 2 * MAX_LINE_BYTES + 2];
        bytes[MAX_LINE_BYTES] = b'\n';
        let mut input = of(bytes);
        let longest = input.line().expect("just short enough");
        assert_eq!(longest.map(<[u8]>::len), Some(MAX_LINE_BYTES));
        let error = input.line().expect_err("too long").to_string();
        let what = "a line longer than 64 KiB: t, line 2; ";
        assert!(error.starts_with(what), "{error}");
        let mut input = of(vec![7; 10]);
        let mut buf = [0; 4];
        assert!(input.record(&mut buf).expect("whole") && input.record(&mut buf).expect("whole"));
        let error = input.record(&mut buf).expect_err("cut").to_string();
        assert!(error.starts_with(
            "the trace ends in the middle of a record (2 of 4 bytes): t, record 3 at byte 8;"
        ));
        assert!(!of(Vec::new()).record(&mut buf).expect("at its end"));
    }

    /// A frame that requests a window of 1 GiB is refused before the memory is allocated.
    #[test]
    fn a_zstd_window_has_a_limit() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("memory");
        encoder.window_log(27).expect("a window");
        encoder.write_all(&vec![1; 1 << 20]).expect("memory");
        let mut input = of(encoder.finish().expect("memory"));
        assert!(input.head().is_err());
    }

    fn plain(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        unpack(Box::new(Cursor::new(bytes.to_vec())))?.read_to_end(&mut plain)?;
        Ok(plain)
    }

    /// Two concatenated parts, as from `cat a.gz b.gz`.
    #[test]
    fn four_wrappings_and_none_give_the_same_bytes() {
        let text = (0..100_000_u32).flat_map(|n| n.to_string().into_bytes());
        let text: Vec<u8> = text.collect();
        let (first, second) = text.split_at(text.len() / 3);
        let bz = |part: &[u8]| {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(part).expect("memory");
            encoder.finish().expect("memory")
        };
        let zst = |part: &[u8]| zstd::encode_all(part, 1).expect("memory");
        let none = |part: &[u8]| part.to_vec();
        for wrap in [&gz as &dyn Fn(&[u8]) -> Vec<u8>, &bz, &zst, &none] {
            assert!(plain(&[wrap(first), wrap(second)].concat()).expect("whole") == text);
        }
        assert_eq!(plain(b"").expect("empty"), b"");
        assert_eq!(plain(&bz(b"")).expect("empty"), b"");
        assert!(plain(&gz(first)[..1000]).is_err(), "a cut is no end");
    }

    /// Written by `xz -6`: "hello\n".
    const XZ: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21,
        0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x05, 0x68, 0x65, 0x6c,
        0x6c, 0x6f, 0x0a, 0x00, 0x00, 0x00, 0xa5, 0x60, 0x97, 0xf1, 0x94, 0xf6, 0xfd, 0xe0, 0x00,
        0x01, 0x1e, 0x06, 0xc1, 0x2f, 0xa4, 0x1d, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00,
        0x00, 0x04, 0x59, 0x5a,
    ];

    #[test]
    fn xz_is_read_and_its_memory_has_a_limit() {
        let two = plain(&[XZ, XZ].concat()).expect("two streams");
        assert_eq!(two, b"hello\nhello\n");
        assert!(plain(&XZ[..XZ.len() - 20]).is_err(), "a cut is no end");
        // The header of the block as `xz --lzma2=dict=1GiB` writes it.
        let mut large = XZ.to_vec();
        large[16] = 0x24;
        large[20..24].copy_from_slice(&[0x5e, 0x1f, 0xc7, 0xf9]);
        let error = plain(&large).expect_err("too large a dictionary");
        assert!(error.to_string().contains("mem"), "{error}");
    }

    #[test]
    fn a_compression_that_is_not_read_is_named_with_its_command() {
        let error = plain(&[0x04, 0x22, 0x4d, 0x18, 0x64, 0x40]).expect_err("lz4");
        let said = "it is compressed by lz4, which is not supported; unpack it first: lz4 -d FILE";
        assert_eq!(error.to_string(), said);
        for (magic, name, command) in UNREAD {
            let read = plain(&[*magic, &[0; 20]].concat());
            let error = read.expect_err("not read").to_string();
            assert!(error.contains(name) && error.ends_with(command), "{error}");
        }
        // Text that starts with bzip2's magic letters, but is not bzip2.
        assert_eq!(plain(b"BZh9 is a name").expect("text"), b"BZh9 is a name");
    }
}
