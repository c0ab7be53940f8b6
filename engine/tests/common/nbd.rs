//! A server of ours in a test, a client by hand, and other people's servers. Never: a test.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::common::{by, opened, passed, right, wait_until, watch};
use foreread::front::FrontError;
use foreread::front::nbd::{Listen, NbdSettings, NbdStop, Server, ServerCounts};
use foreread::nbd::wire::{self, Request, command};
use foreread::source::{Nbd, Source};
use foreread::{Options, Reader};
use foreread_testing::machine::Running as Guard;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

pub const MIB: u64 = 1 << 20;

/// A server of ours at a place, until it is dropped.
pub struct Running {
    pub uri: String,
    pub counts: Box<dyn Fn() -> ServerCounts + Send + Sync>,
    stop: NbdStop,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    pub fn at(place: Listen, reader: Reader, settings: NbdSettings) -> Result<Running, FrontError> {
        watch();
        let (server, stop) = Server::bind(&[place], reader, settings)?;
        Ok(Running {
            uri: server.uris().remove(0),
            counts: Box::new(server.counter()),
            stop,
            thread: Some(std::thread::spawn(move || server.run())),
        })
    }

    pub fn tcp(source: impl Source + 'static, settings: NbdSettings) -> Running {
        let place = Listen::Tcp(([127, 0, 0, 1], 0).into());
        Running::at(place, opened(source, Options::default()), settings).expect("a port")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("served to the end");
        }
    }
}

/// The settings of a server that clients may write to.
pub fn writing() -> NbdSettings {
    NbdSettings {
        writable: true,
        ..NbdSettings::default()
    }
}

/// A server at a socket of the test's own.
pub struct Served {
    server: Running,
    pub dir: tempfile::TempDir,
}

/// So that `(served.counts)()` says what it has counted.
impl std::ops::Deref for Served {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.server
    }
}

impl Served {
    pub fn of(reader: Reader, settings: NbdSettings) -> Served {
        Served::try_of(reader, settings).expect("a place")
    }

    pub fn try_of(reader: Reader, settings: NbdSettings) -> Result<Served, FrontError> {
        let dir = tempfile::tempdir().expect("a directory");
        let place = Listen::Unix(dir.path().join("s"));
        let server = Running::at(place, reader, settings)?;
        Ok(Served { server, dir })
    }

    pub fn new(source: impl Source + 'static) -> Served {
        let options = by("linux-6.18:max=128K", 8 * MIB);
        Served::of(opened(source, options), NbdSettings::default())
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.path().display())
    }

    /// A connection before its greeting, whose reads end after 20 s.
    pub fn connect(&self) -> UnixStream {
        within_20_s(UnixStream::connect(self.path()).expect("connected"))
    }

    pub fn client(&self) -> Client {
        Client::begin(self.connect())
    }

    pub fn wait_for(&self, clients: u64) {
        let is = || (self.counts)().clients == clients;
        wait_until(&format!("there are not {clients} clients"), is);
    }
}

fn within_20_s(stream: UnixStream) -> UnixStream {
    let limit = stream.set_read_timeout(Some(Duration::from_secs(20)));
    limit.expect("a socket");
    stream
}

/// How a server greets.
pub fn hello() -> Vec<u8> {
    let [magic, options] = [wire::MAGIC, wire::OPTION_MAGIC].map(u64::to_be_bytes);
    [&magic[..], &options, &[0, 3]].concat()
}

/// An option as a client sends it.
pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let words = [number, data.len() as u32].map(u32::to_be_bytes).concat();
    [&wire::OPTION_MAGIC.to_be_bytes()[..], &words, data].concat()
}

/// What a server answers to an option.
pub fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    let words = [option, kind, len].map(u32::to_be_bytes).concat();
    [&wire::OPTION_REPLY_MAGIC.to_be_bytes()[..], &words, data].concat()
}

/// A client by hand, past the handshake, in plain text or by TLS.
pub struct Client<S = UnixStream>(pub S);

impl Client {
    pub fn begin(mut stream: UnixStream) -> Client {
        stream.read_exact(&mut [0; 18]).expect("a greeting");
        stream.write_all(&[0, 0, 0, 3]).expect("sent");
        Client(stream).begun()
    }
}

/// A request as it is sent.
pub fn request(command: u16, cookie: u64, offset: u64, len: u32) -> [u8; Request::BYTES] {
    let flags = 0;
    Request {
        flags,
        command,
        cookie,
        offset,
        len,
    }
    .bytes()
}

impl<S: Read + Write> Client<S> {
    /// Names the export in the old way, so that replies are simple.
    pub fn begun(mut self) -> Client<S> {
        self.0.write_all(&option(1, &[])).expect("sent");
        self.0.read_exact(&mut [0; 10]).expect("the export");
        self
    }

    pub fn send(&mut self, command: u16, cookie: u64, offset: u64, len: u32) {
        let request = request(command, cookie, offset, len);
        self.0.write_all(&request).expect("sent");
    }

    /// Cookie and error of the next answer.
    pub fn answer(&mut self) -> (u64, u32) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).expect("an answer");
        assert_eq!(head[..4], wire::SIMPLE_MAGIC.to_be_bytes());
        let cookie = head[8..].try_into().expect("eight");
        let error = head[4..8].try_into().expect("four");
        (u64::from_be_bytes(cookie), u32::from_be_bytes(error))
    }

    pub fn data(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.0.read_exact(&mut data).expect("its bytes");
        data
    }

    /// Sends a request, and gives the error of its answer.
    pub fn asks(&mut self, command: u16, offset: u64, len: u32) -> u32 {
        self.send(command, 77, offset, len);
        let (cookie, error) = self.answer();
        assert_eq!(cookie, 77);
        error
    }

    /// Reads, and checks every byte.
    #[track_caller]
    pub fn reads(&mut self, cookie: u64, offset: u64, len: u32) {
        self.send(command::READ, cookie, offset, len);
        assert_eq!(self.takes(len as usize, |_| offset), cookie);
    }

    /// Takes the answer to a read of version 0, and checks every byte. Gives its cookie, from which its offset follows.
    #[track_caller]
    pub fn takes(&mut self, len: usize, offset: impl Fn(u64) -> u64) -> u64 {
        let (cookie, error) = self.answer();
        assert_eq!(error, 0);
        right(&self.data(len), offset(cookie), 0);
        cookie
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
    let got = source.read_at(&mut [IoSliceMut::new(&mut bytes)], offset);
    bytes.truncate(got.expect("readable"));
    bytes
}

pub fn has(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        println!("skipped: needs {program} (Debian package {package})");
    }
    found
}

#[track_caller]
pub fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect("started");
    passed(&out);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A server of another project, stopped when dropped.
pub struct Peer {
    _server: Guard,
    dir: tempfile::TempDir,
}

impl Peer {
    /// With these arguments, in which `SOCKET` is where it listens.
    pub fn start(program: &str, args: &[&str]) -> Peer {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("s");
        let place = |word: &&str| word.replace("SOCKET", socket.to_str().expect("UTF-8"));
        let mut command = Command::new(program);
        let command = command.args(args.iter().map(place)).stdout(Stdio::null());
        let _server = Guard(command.spawn().expect("started"));
        let listens = || UnixStream::connect(&socket).is_ok();
        wait_until(&format!("{program} does not listen"), listens);
        Peer { _server, dir }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }
}

/// Runs a script by the system's python with its module nbd; `h` is a handle that is connected to this URI.
pub fn by_python(uri: &str, script: &str) {
    let python = "/usr/bin/python3";
    let usable = Command::new(python).args(["-c", "import nbd"]).output();
    if !usable.is_ok_and(|out| out.status.success()) {
        println!("skipped: needs the module nbd of python (Debian package python3-libnbd)");
        return;
    }
    let begin = "import nbd\nh = nbd.NBD()\nh.set_uri_allow_local_file(True)\n";
    let script = format!("{begin}h.connect_uri({uri:?})\n{script}h.shutdown()\n");
    run(python, &["-c", &script]);
}
