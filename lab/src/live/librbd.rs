//! Does the reads of a comparison through librbd, with librbd's own cache and readahead, for the rows of librbd in the
//! table of an RBD image.
//!
//! Each run has a new client, so its cache is empty. The amount that librbd read ahead comes from librbd's counters, which are read through
//! its admin socket. In these rows, foreread's counters are missing. Each row always has the settings in the following table, even if
//! Ceph's configuration sets other values.
//!
//! | row | settings |
//! |---|---|
//! | `librbd` | as shipped since Octopus: cache policy writearound, which reads nothing ahead |
//! | `librbd-writeback` | as shipped, except the policy: 512 KiB after 10 reads, off after 50 MiB |
//! | `librbd-crume` | values of [Crume 2014]: 4 MiB, never off |

use super::{LiveError, ReadCalls, ReadFn, check, result, run_jobs};
use foreread::OpenError;
use foreread::source::{Rbd, RbdSettings, Source, SourceName};
use foreread_core::stats::Stats;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::Workload;
use serde_json::Value;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest reply on the socket.
const MAX_ANSWER: u32 = 16 << 20;
/// Longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The cache page size that is reported for the rows of librbd; librbd's own cache has no pages.
pub const PAGE_BYTES: u64 = 512;

/// A row of librbd: its name and its configuration.
#[derive(Debug)]
pub struct Peer {
    /// Name of its row.
    pub name: &'static str,
    policy: &'static str,
    /// Largest readahead in bytes.
    max_bytes: u64,
    /// Bytes after which readahead stays off; 0 means never.
    disable_after_bytes: u64,
}

/// The rows of librbd, in the order of the table. The values are from docs/spec/rbd-readahead.md, sections 1 and 6.
pub static PEERS: [Peer; 3] = [
    Peer {
        name: "librbd",
        policy: "writearound",
        max_bytes: 512 << 10,
        disable_after_bytes: 50 << 20,
    },
    Peer {
        name: "librbd-writeback",
        policy: "writeback",
        max_bytes: 512 << 10,
        disable_after_bytes: 50 << 20,
    },
    Peer {
        name: "librbd-crume",
        policy: "writeback",
        max_bytes: 4 << 20,
        disable_after_bytes: 0,
    },
];

impl Peer {
    /// Returns librbd's settings for this row, with its admin socket at `socket`.
    pub fn settings(&self, socket: &Path) -> RbdSettings {
        RbdSettings::as_configured()
            .with("rbd_cache", true)
            .with("rbd_cache_policy", self.policy)
            .with("rbd_cache_size", 32 << 20)
            .with("rbd_readahead_trigger_requests", 10)
            .with("rbd_readahead_max_bytes", self.max_bytes)
            .with(
                "rbd_readahead_disable_after_bytes",
                self.disable_after_bytes,
            )
            .with("admin_socket", socket.display())
    }
}

/// Executes one run of a workload through librbd, with a new client.
/// Returns an error if the image cannot be opened or read, if librbd does not report its counters, or if [`check`] refuses the workload.
pub fn run(name: &SourceName, peer: &Peer, workload: &Workload) -> Result<RunResult, LiveError> {
    check(workload)?;
    let dir = tempfile::tempdir().map_err(LiveError::io("a folder for librbd's socket"))?;
    let socket = dir.path().join("asok");
    let image = Rbd::open_with(name, &peer.settings(&socket)).map_err(OpenError::from)?;
    let read = |_: u32, buf: &mut [u8], offset: u64| {
        let read = image.read_at(&mut [IoSliceMut::new(buf)], offset);
        read.map_err(|error| {
            let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
            LiveError::io(format!("reading through {}", peer.name))(std::io::Error::new(
                kind,
                error.to_string(),
            ))
        })
    };
    let read: ReadFn<'_> = &read;
    // librbd has no hints apart from reads: they are left out.
    let timed = run_jobs(
        workload,
        &ReadCalls {
            read,
            advise: &|_, _, _, _| Ok(()),
        },
    )?;
    let (windows, bytes) =
        counters(&socket).map_err(LiveError::io("asking librbd for its counters"))?;
    let stats = Stats::of(|stats| {
        stats.demand_reads = workload.reads();
        stats.demand_bytes = workload.bytes();
        stats.ra_planned_ops = windows;
        stats.ra_planned_bytes = bytes;
    });
    Ok(result(timed, stats, workload, PAGE_BYTES, true))
}

/// Returns the number of readahead requests of the open image, and their total bytes.
/// Returns an error if the admin socket does not reply, or if the reply is not from a librbd with exactly one open image.
pub fn counters(socket: &Path) -> std::io::Result<(u64, u64)> {
    let odd = |what: &str| std::io::Error::new(ErrorKind::InvalidData, what.to_string());
    let dump: Value = serde_json::from_slice(&ask(socket, "perf dump")?)?;
    let sections = dump
        .as_object()
        .ok_or_else(|| odd("the answer is not a JSON object"))?;
    let image = sections
        .iter()
        .find(|(name, _)| name.starts_with("librbd-"))
        .map(|(_, section)| section);
    let count = |key: &str| {
        image
            .and_then(|section| section.get(key))
            .and_then(Value::as_u64)
    };
    count("readahead")
        .zip(count("readahead_bytes"))
        .ok_or_else(|| odd("the answer has no counters of readahead"))
}

/// Sends a command to the admin socket of a Ceph client or daemon: JSON and a zero byte are sent, a length and JSON
/// are received.
fn ask(socket: &Path, what: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    stream.write_all(format!("{{\"prefix\":\"{what}\",\"format\":\"json\"}}\0").as_bytes())?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let len = u32::from_be_bytes(head);
    if len > MAX_ANSWER {
        return Err(std::io::Error::new(
            ErrorKind::InvalidData,
            "the answer is too long",
        ));
    }
    let mut answer = vec![0; len as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// What `counters` makes of an answer.
    fn asked(answer: &[u8], len: u32) -> std::io::Result<(u64, u64)> {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut question = Vec::new();
                while question.last() != Some(&0) {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("a byte");
                    question.push(byte[0]);
                }
                assert_eq!(
                    question,
                    b"{\"prefix\":\"perf dump\",\"format\":\"json\"}\0"
                );
                // A client that refuses the length may hang up.
                let _ = stream
                    .write_all(&len.to_be_bytes())
                    .and_then(|()| stream.write_all(answer));
            });
            counters(&path)
        })
    }

    #[test]
    fn counters_are_found_and_nothing_else_is_believed() {
        let whole = |text: &str| asked(text.as_bytes(), text.len() as u32);
        let good = r#"{"objecter":{"op_r":5},"librbd-1-rbd-x":{"rd":9,"readahead":3,"readahead_bytes":4096}}"#;
        assert_eq!(whole(good).expect("counters"), (3, 4096));
        for bad in [
            "{}",
            "[]",
            "x",
            r#"{"librbd-1":{"readahead":3}}"#,
            r#"{"librbd-1":{"readahead":-1,"readahead_bytes":1}}"#,
        ] {
            assert!(whole(bad).is_err(), "{bad}");
        }
        assert!(asked(b"", 5).is_err(), "it disconnects in the middle");
        assert_eq!(
            asked(b"", MAX_ANSWER + 1).expect_err("long").to_string(),
            "the answer is too long"
        );
    }

    #[test]
    fn the_rows_have_names_of_their_own() {
        assert!(PEERS.iter().all(|peer| {
            foreread_core::policy::ALL
                .iter()
                .all(|info| info.name != peer.name)
        }));
    }
}
