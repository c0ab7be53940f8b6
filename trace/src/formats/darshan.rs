//! `darshan`: Darshan's extended traces (DXT) of parallel programs, as `darshan-dxt-parser` prints them.
//!
//! ```text
//!   # DXT, file_id: 16457598720760448348, file_name: /tmp/test/testFile      a file of one rank begins
//!   # DXT, rank: 0, hostname: node1
//!   # Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)   [OST]
//!    X_POSIX       0   read        0               0       262144      0.0048      0.0049
//! ```
//! The text is ordered by file and rank, so all of the text is read before the first record is emitted; the records are ordered by start
//! time. An MPI rank becomes a thread. All accesses of a rank to one file become one open file description, because DXT does not record how
//! often the file was opened. Each request of MPI-IO causes POSIX requests, which the text also contains. Only POSIX requests are
//! imported, so that no read is counted twice. Times are seconds since the start of the job with four decimals or
//! more. Columns after the end time are ignored. Source: the darshan-util documentation, "darshan-dxt-parser".

use super::published::lines_fit;
use super::scan::{self, Names, SECOND_NS, decimal_ns};
use super::step::{Step, items};
use crate::error::{Fault, TraceError};
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{FileInfo, Header, Import, Item, Lacks, LeftOut, Level, Op, Record};
use std::collections::{HashMap, VecDeque};

pub static FORMAT: Format = Format {
    name: "darshan",
    summary: "text of darshan-dxt-parser (DXT); seconds with decimals, bytes",
    keys: &[],
    detect,
    import,
    export: None,
};

/// Maximum number of requests held for sorting, 48 bytes each: 192 MiB. By default Darshan stores 2 MiB of requests per process, which is
/// about 40,000 requests.
pub const MAX_REQUESTS: usize = 4 << 20;

const REMEDY: &str = "the file is damaged or not of darshan-dxt-parser; see --format";
const BAD: Fault = (
    "the line does not have the fields MODULE RANK Wt/Rd SEGMENT OFFSET LENGTH START END",
    REMEDY,
);

/// Matches DXT comments, if the head has nothing but comments and requests.
fn detect(head: &[u8]) -> Fit {
    let fit = lines_fit(head, |_, line| {
        let line = line.trim_ascii();
        Fit::sure_if(line.is_empty() || line.starts_with(b"#") || request(line).is_ok())
    });
    let of_dxt = |line: &[u8]| line.starts_with(b"# DXT, ") || line.starts_with(b"# DXT_");
    if head.split(|b| *b == b'\n').any(of_dxt) {
        fit
    } else {
        Fit::No
    }
}

fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let input = Input::only(inputs, FORMAT.name)?;
    pairs.finish(input.path(), FORMAT.name, FORMAT.keys)?;
    let lacks = Lacks {
        opens: true,
        ..Lacks::default()
    };
    let notes = [
        "each rank is shown as a thread; the trace has no opens, so each rank reads a file through one open description",
        "Darshan keeps a bounded number of requests for each process: the last ones of a long job may be missing",
    ];
    let units = ["seconds since the job began", "bytes"];
    let header = Header::of(FORMAT.name, units, lacks, Level::Program, &notes);
    let left_out = LeftOut::default();
    let darshan = Darshan {
        input,
        files: Names::default(),
        items: VecDeque::new(),
        file: None,
        opens: HashMap::new(),
        requests: Vec::new(),
        next: None,
        left_out: left_out.clone(),
    };
    Ok(Import::new(header, items(darshan), left_out))
}

/// A request in a compact form.
#[derive(Clone, Copy)]
struct Request {
    start_ns: u64,
    end_ns: u64,
    offset: u64,
    len: u64,
    file: u32,
    rank: u32,
    write: bool,
}

struct Darshan {
    input: Input,
    files: Names,
    items: VecDeque<Item>,
    /// The file whose requests are being read.
    file: Option<u32>,
    opens: HashMap<(u32, u32), u32>,
    requests: Vec<Request>,
    /// The next request to emit, once all are sorted.
    next: Option<usize>,
    left_out: LeftOut,
}

impl Step for Darshan {
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError> {
        let Some(next) = self.next else {
            while let Some(line) = self.input.line()? {
                let line = line.trim_ascii().to_vec();
                self.line(&line)
                    .map_err(|(what, remedy)| self.input.error(what, remedy))?;
            }
            self.requests.sort_by_key(|request| request.start_ns);
            self.next = Some(0);
            out.append(&mut self.items);
            return Ok(true);
        };
        let Some(request) = self.requests.get(next).copied() else {
            return Ok(false);
        };
        self.next = Some(next + 1);
        self.leave(request, out);
        Ok(true)
    }
}

impl Darshan {
    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        if let Some(comment) = line.strip_prefix(b"#") {
            if let Some(rest) = comment.strip_prefix(b" DXT, file_id: ") {
                const NAME: &[u8] = b"file_name: ";
                let at = rest.windows(NAME.len()).position(|part| part == NAME);
                let at = at.ok_or(("a file without a name", REMEDY))?;
                self.file = Some(self.begin(&rest[at + NAME.len()..])?);
            }
            return Ok(());
        }
        if line.is_empty() {
            return Ok(());
        }
        let (module, mut request) = request(line)?;
        if module != b"X_POSIX" {
            self.left_out
                .count("requests of another layer than the file system (such as MPI-IO)");
            return Ok(());
        }
        request.file = self
            .file
            .ok_or(("a request before the first file", REMEDY))?;
        if self.requests.len() == MAX_REQUESTS {
            return Err((
                "more than 4194304 requests",
                "split the output of darshan-dxt-parser: one rank or one file for each trace",
            ));
        }
        self.requests.push(request);
        Ok(())
    }

    /// The number of a file; a file appears once for each rank that used it.
    fn begin(&mut self, name: &[u8]) -> Result<u32, Fault> {
        let named = || FileInfo {
            name: String::from_utf8_lossy(name).into_owned(),
            size: None,
        };
        let file = self.files.file(name, &mut self.items, named);
        file.ok_or((
            "more than 64 MiB of file names in total",
            "print fewer files",
        ))
    }

    fn leave(&mut self, request: Request, out: &mut VecDeque<Item>) {
        let opens = u32::try_from(self.opens.len()).unwrap_or(u32::MAX);
        let open = *self
            .opens
            .entry((request.file, request.rank))
            .or_insert(opens);
        let base = self.requests[0].start_ns;
        out.push_back(Item::Record(Record {
            op: if request.write { Op::Write } else { Op::Read },
            open,
            thread: request.rank,
            start_ns: Some(request.start_ns - base),
            end_ns: Some(request.end_ns - base),
            ..Record::read(request.file, request.offset, request.len)
        }));
    }
}

/// A request line: its module and the request without its file.
fn request(line: &[u8]) -> Result<(&[u8], Request), Fault> {
    let mut rest = line;
    let module = scan::word(&mut rest);
    let mut next = || scan::word(&mut rest);
    let (rank, op, segment, offset, len) = (next(), next(), next(), next(), next());
    let (start, end) = (next(), next());
    let write = match op {
        b"read" => false,
        b"write" => true,
        _ => return Err(BAD),
    };
    if !module.starts_with(b"X_") || scan::number(segment).is_none() {
        return Err(BAD);
    }
    let rank = scan::small(rank).ok_or(BAD)?;
    let number = |text| scan::number(text).ok_or(BAD);
    let (offset, len) = (number(offset)?, number(len)?);
    let seconds = |text| decimal_ns(text, SECOND_NS).ok_or(BAD);
    let (start_ns, end_ns) = (seconds(start)?, seconds(end)?);
    if end_ns < start_ns {
        return Err(("a request ends before it starts", REMEDY));
    }
    Ok((
        module,
        Request {
            start_ns,
            end_ns,
            offset,
            len,
            file: 0,
            rank,
            write,
        },
    ))
}
