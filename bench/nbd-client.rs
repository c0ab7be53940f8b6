//! The client of bench/nbd-vs-nbdkit and bench/nbd-clients: it uses only std, and sends one request at a time except
//! for `random`, so that the server is measured. The scripts build it with `rustc -O`.
//!
//!   nbd-client SOCKET hot BYTES SECONDS SPAN      sequential reads of BYTES, repeatedly over the first SPAN bytes: reads per second
//!   nbd-client SOCKET seq BYTES COUNT             COUNT sequential reads from 0 on: seconds
//!   nbd-client SOCKET sorted BYTES COUNT SEED     COUNT reads at sorted random places: seconds
//!   nbd-client SOCKET random BYTES COUNT DEPTH    COUNT reads at random places, DEPTH at once: seconds, the longest in milliseconds
//!   nbd-client SOCKET clients IDLE ACTIVE SECONDS   bytes of each active client, one per line; it reads 4 KiB sequentially
//!
//! It does not check the bytes; the tests do.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

struct Client {
    stream: UnixStream,
    size: u64,
    buffer: Vec<u8>,
}

impl Client {
    /// By `EXPORT_NAME`: simple replies from both servers.
    fn connect(path: &str) -> std::io::Result<Client> {
        let mut stream = UnixStream::connect(path)?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello)?;
        stream.write_all(&[0, 0, 0, 3])?;
        stream.write_all(&[&b"IHAVEOPT"[..], &[0, 0, 0, 1], &[0; 4]].concat())?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        let size = export[..8].iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        Ok(Client { stream, size, buffer: Vec::new() })
    }

    fn ask(&mut self, cookie: u64, offset: u64, len: usize) -> std::io::Result<()> {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        request[8..16].copy_from_slice(&cookie.to_be_bytes());
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&(len as u32).to_be_bytes());
        self.stream.write_all(&request)
    }

    /// Reads of `len` bytes at these places, `depth` at once; the longest of them.
    fn read_all(&mut self, places: &[u64], len: usize, depth: usize) -> std::io::Result<Duration> {
        let (mut sent, mut longest) = (vec![Instant::now(); places.len()], Duration::ZERO);
        let mut next = 0;
        for done in 0..places.len() {
            while next < places.len() && next < done + depth {
                sent[next] = Instant::now();
                self.ask(next as u64, places[next], len)?;
                next += 1;
            }
            let mut head = [0; 16];
            self.stream.read_exact(&mut head)?;
            if head[4..8] != [0; 4] {
                return Err(std::io::Error::other("the server answers with an error"));
            }
            self.buffer.resize(len, 0);
            self.stream.read_exact(&mut self.buffer)?;
            let cookie = head[8..].iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
            longest = longest.max(sent[cookie].elapsed());
        }
        Ok(longest)
    }

    fn read(&mut self, offset: u64, len: usize) -> std::io::Result<()> {
        self.ask(0, offset, len)?;
        // Head and data in one go where they come so.
        let whole = 16 + len;
        self.buffer.resize(whole, 0);
        let mut got = 0;
        while got < whole {
            match self.stream.read(&mut self.buffer[got..])? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => got += n,
            }
            if got >= 16 && self.buffer[4..8] != [0; 4] {
                return Err(std::io::Error::other("the server answers with an error"));
            }
        }
        Ok(())
    }
}

/// Numbers below `below`, drawn from a seed.
fn draw(count: u64, seed: u64, below: u64) -> Vec<u64> {
    let mut draw = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (draw >> 11) % below
    };
    (0..count).map(|_| next()).collect()
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args[at].parse::<u64>().expect("a number");
    let path = args[1].as_str();
    match args[2].as_str() {
        "hot" => {
            let (len, time, span) = (number(3), Duration::from_secs_f64(args[4].parse().expect("seconds")), number(5));
            let mut client = Client::connect(path)?;
            (0..span / len).try_for_each(|i| client.read(i * len, len as usize))?;
            let (start, mut reads) = (Instant::now(), 0_u64);
            while reads % 16 != 0 || start.elapsed() < time {
                client.read(reads * len % (span - span % len), len as usize)?;
                reads += 1;
            }
            println!("{}", reads as f64 / start.elapsed().as_secs_f64());
        }
        "seq" => {
            let mut client = Client::connect(path)?;
            let start = Instant::now();
            (0..number(4)).try_for_each(|i| client.read(i * number(3), number(3) as usize))?;
            println!("{}", start.elapsed().as_secs_f64());
        }
        "sorted" => {
            let mut client = Client::connect(path)?;
            let len = number(3);
            let mut places = draw(number(4), number(5), client.size / len);
            places.sort_unstable();
            places.dedup();
            let start = Instant::now();
            places.iter().try_for_each(|place| client.read(place * len, len as usize))?;
            println!("{} {}", start.elapsed().as_secs_f64(), places.len());
        }
        "random" => {
            let mut client = Client::connect(path)?;
            let len = number(3);
            let places: Vec<u64> = draw(number(4), 7, client.size / len).iter().map(|place| place * len).collect();
            let start = Instant::now();
            let longest = client.read_all(&places, len as usize, number(5) as usize)?;
            println!("{} {}", start.elapsed().as_secs_f64(), longest.as_secs_f64() * 1e3);
        }
        "clients" => {
            let (idle, active, time) = (number(3), number(4), Duration::from_secs(number(5)));
            let idle: Vec<Client> = (0..idle).map(|_| Client::connect(path)).collect::<Result<_, _>>()?;
            let begin = Arc::new(Barrier::new(active as usize));
            let threads: Vec<_> = (0..active)
                .map(|me| {
                    let (path, begin) = (path.to_string(), Arc::clone(&begin));
                    std::thread::Builder::new().stack_size(256 << 10).spawn(move || -> std::io::Result<u64> {
                        let mut client = Client::connect(&path)?;
                        let share = client.size / active / 4096 * 4096;
                        begin.wait();
                        let (start, mut bytes) = (Instant::now(), 0);
                        while start.elapsed() < time {
                            client.read(me * share + bytes % share, 4096)?;
                            bytes += 4096;
                        }
                        Ok(bytes)
                    })
                })
                .collect::<Result<_, _>>()?;
            for thread in threads {
                println!("{}", thread.join().expect("no panic")?);
            }
            // They were connected all the time, and still are.
            for mut client in idle {
                client.read(0, 512)?;
            }
        }
        other => panic!("hot, seq, sorted, random or clients, not {other}"),
    }
    Ok(())
}
