//! A server of ours in a test, a client by hand, and other people's servers. Never: a test.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::common::watch;
use foreread::front::FrontError;
use foreread::front::nbd::{Listen, NbdSettings, NbdStop, Server, ServerCounts};
use foreread::nbd::wire::{self, Request};
use foreread::source::{Nbd, Source};
use foreread::{Options, Reader};
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;

/// A server that runs until it is dropped.
pub struct Served {
    pub dir: tempfile::TempDir,
    stop: NbdStop,
    pub counts: Box<dyn Fn() -> ServerCounts + Send>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Served {
    pub fn of(reader: Reader, settings: NbdSettings) -> Served {
        Served::try_of(reader, settings).expect("a place")
    }

    pub fn try_of(reader: Reader, settings: NbdSettings) -> Result<Served, FrontError> {
        watch();
        let dir = tempfile::tempdir().expect("a directory");
        let (server, stop) = Server::bind(&[Listen::Unix(dir.path().join("s"))], reader, settings)?;
        let counts = Box::new(server.counter());
        Ok(Served {
            dir,
            stop,
            counts,
            thread: Some(std::thread::spawn(move || server.run())),
        })
    }

    pub fn new(source: impl Source + 'static) -> Served {
        let options = Options::default()
            .cache_bytes(8 * MIB)
            .policy("linux-6.18:max=128K");
        Served::of(
            Reader::open(Arc::new(source), options).expect("opened"),
            NbdSettings::default(),
        )
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.path().display())
    }

    pub fn client(&self) -> Client {
        Client::begin(UnixStream::connect(self.path()).expect("connected"))
    }

    pub fn wait_for(&self, clients: u64) {
        let until = Instant::now() + Duration::from_secs(20);
        while (self.counts)().clients != clients {
            assert!(
                Instant::now() < until,
                "{:?}, not {clients} clients",
                (self.counts)()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("served to the end");
        }
    }
}

/// A client by hand, past the handshake.
pub struct Client(pub UnixStream);

impl Client {
    pub fn begin(mut stream: UnixStream) -> Client {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        let mut hello = [0; 18];
        stream.read_exact(&mut hello).expect("a greeting");
        stream.write_all(&[0, 0, 0, 3]).expect("sent");
        let head = [
            &wire::OPTION_MAGIC.to_be_bytes()[..],
            &[0, 0, 0, 1],
            &[0; 4],
        ]
        .concat();
        stream.write_all(&head).expect("sent");
        stream.read_exact(&mut [0; 10]).expect("the export");
        Client(stream)
    }

    pub fn send(&mut self, command: u16, cookie: u64, offset: u64, len: u32) {
        let request = Request {
            flags: 0,
            command,
            cookie,
            offset,
            len,
        };
        self.0.write_all(&request.bytes()).expect("sent");
    }

    /// Cookie and error of the next answer.
    pub fn answer(&mut self) -> (u64, u32) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).expect("an answer");
        Client::parse(&head)
    }

    /// Cookie and error of a simple reply.
    pub fn parse(head: &[u8; 16]) -> (u64, u32) {
        assert_eq!(head[..4], wire::SIMPLE_MAGIC.to_be_bytes());
        let number = |at: usize, n: usize| {
            head[at..at + n]
                .iter()
                .fold(0, |all, b| all << 8 | u64::from(*b))
        };
        (number(8, 8), number(4, 4) as u32)
    }

    pub fn data(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.0.read_exact(&mut data).expect("its bytes");
        data
    }

    /// The server has closed the connection.
    pub fn is_gone(&mut self) -> bool {
        match self.0.read(&mut [0; 1]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

pub fn read(source: &Nbd, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let got = source
        .read_at(&mut [IoSliceMut::new(&mut bytes)], offset)
        .expect("readable");
    bytes.truncate(got);
    bytes
}

pub fn has(program: &str, package: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|all| std::env::split_paths(&all).any(|p| p.join(program).is_file()));
    if !found {
        println!("skipped: needs {program} (Debian package {package})");
    }
    found
}

pub fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        out.status.success(),
        "{program} {args:?}: {}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
    text(&out.stdout)
}

/// A server of another project, stopped when dropped.
pub struct Peer {
    child: Child,
    dir: tempfile::TempDir,
}

impl Peer {
    pub fn start(program: &str, args: impl Fn(&str) -> Vec<String>) -> Peer {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("s");
        let child = Command::new(program)
            .args(args(socket.to_str().expect("UTF-8")))
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        let until = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < until, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Peer { child, dir }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
