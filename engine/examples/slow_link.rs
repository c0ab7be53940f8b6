//! Simulates a link with a given round-trip time and bandwidth to a TCP server, until standard input ends.
//!
//! Usage: `slow_link HOST:PORT MILLISECONDS MB_PER_SECOND`. The program prints the address to which clients connect instead of HOST:PORT.
//! For each line of standard input, the program prints three totals: bytes of answers, number of connections, number of requests. An input
//! line `MILLISECONDS MB_PER_SECOND` also changes the link's latency and bandwidth. The link passes all bytes on unchanged.

use foreread_testing::{Link, Proxy};
use std::net::ToSocketAddrs;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, round_trip, bandwidth] = &args[..] else {
        return Err("usage: slow_link HOST:PORT MILLISECONDS MB_PER_SECOND".into());
    };
    let server = server.to_socket_addrs()?.next().ok_or("no such server")?;
    let of =
        |round_trip: &str, bandwidth: &str| -> Result<(Duration, u64), std::num::ParseIntError> {
            Ok((
                Duration::from_millis(round_trip.parse()?),
                bandwidth.parse::<u64>()? * 1_000_000,
            ))
        };
    let (delay, rate) = of(round_trip, bandwidth)?;
    let link = Link::new(delay, rate);
    let proxy = Proxy::start(server, link.clone())?;
    println!("{}", proxy.address());
    for line in std::io::stdin().lines() {
        if let Some((round_trip, bandwidth)) = line?.split_once(' ') {
            let (delay, rate) = of(round_trip, bandwidth)?;
            link.set(delay, rate);
        }
        let counts = (proxy.passed(), proxy.connections(), proxy.requests());
        println!("{} {} {}", counts.0, counts.1, counts.2);
    }
    eprintln!(
        "{} bytes of answers over {} connections",
        proxy.passed(),
        proxy.connections()
    );
    Ok(())
}
