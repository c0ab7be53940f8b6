//! The control socket: a client sends the names of the files that it will read, and the mount reads them ahead in that order.
//!
//! From the listing of a folder, the mount can only guess which files a program reads next; a list from the program says which. The
//! socket never waits for the bytes of a file, and answers only root and the user who mounted.
//!
//! ```text
//!   client ── "d00/f1" 0 "d07/f2" 0 ... end ──►  names become inode numbers, linked in this order
//!          ◄── "2 files, 0 unknown\n" ─────────  or "error: WHY\n"
//! ```
//! Example: 1,000 objects of 100 kB in shuffled order (one training epoch), on storage with 30 ms latency. If the objects are opened one
//! after the other, each costs a round trip: 30 s in total. With the list, the mount reads the next files ahead, as many as fit into the
//! readahead distance, so that the total time depends only on the link's bandwidth.

use super::{FileOrder, Planner};
use crate::front::unix::{UnixSocket, knock};
use crate::sync::lock;
use crate::system;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum length of a name in bytes: PATH_MAX of Linux.
const MAX_NAME: u64 = 4096;
/// How long a client may take to send its next bytes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of clients that send lists at the same time; a silent client occupies only one of these slots.
const MAX_CLIENTS: usize = 16;

/// The server of the control socket, which runs until it is dropped.
pub struct Control {
    listener: Arc<UnixSocket>,
    path: PathBuf,
    state: Arc<ControlState>,
}

/// State shared by the threads and the drop.
#[derive(Default)]
struct ControlState {
    stop: AtomicBool,
    /// The clients that are now being served, by number.
    clients: Mutex<HashMap<u64, UnixStream>>,
}

impl Control {
    /// Listens at `path`; the file mode excludes other users.
    ///
    /// # Errors
    /// Returns an error if the path is in use, or cannot be written.
    pub fn start(path: &Path, planner: Planner) -> std::io::Result<Control> {
        let control = Control {
            listener: Arc::new(UnixSocket::bind(path)?),
            path: path.to_path_buf(),
            state: Arc::default(),
        };
        let (listener, state) = (Arc::clone(&control.listener), Arc::clone(&control.state));
        system::spawn("foreread-control", None, move || {
            for (number, client) in (0..).zip(listener.socket.incoming()) {
                if state.stop.load(Ordering::Acquire) {
                    return;
                }
                match client {
                    Ok(client) => begin(number, client, &planner, &state),
                    // Out of file descriptors: wait until some may have been closed.
                    Err(_) => std::thread::sleep(Duration::from_millis(50)),
                }
            }
        })?;
        Ok(control)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
        for client in lock(&self.state.clients).values() {
            let _ = client.shutdown(Shutdown::Both);
        }
        // Wakes the thread. It is not joined, because it may be waiting for storage that does not answer.
        let _ = knock(&self.path);
        self.listener.remove();
    }
}

/// Serves each client on its own thread with its own order, so that no client waits for another.
fn begin(number: u64, client: UnixStream, planner: &Planner, state: &Arc<ControlState>) {
    let refuse = |mut client: &UnixStream, why: &str| {
        drop(client.write_all(format!("error: {why}\n").as_bytes()))
    };
    let Ok(copy) = client.try_clone() else {
        return refuse(&client, "too many files are open (ulimit -n)");
    };
    let is_full = lock(&state.clients).len() >= MAX_CLIENTS;
    if is_full {
        return refuse(
            &client,
            &format!(
                "{MAX_CLIENTS} other clients are already sending lists of files; try again later"
            ),
        );
    }
    lock(&state.clients).insert(number, copy);
    let (planner, own) = (planner.clone(), Arc::clone(state));
    let work = move || {
        serve(client, &planner);
        // This copy must be dropped too: only then does the client see the end of the answer.
        lock(&own.clients).remove(&number);
    };
    if let Err(error) = system::spawn("foreread-list", None, work)
        && let Some(client) = lock(&state.clients).remove(&number)
    {
        refuse(&client, &error.to_string());
    }
}

/// Reads a list and answers with one line. The client may disconnect before the answer.
fn serve(mut client: UnixStream, planner: &Planner) {
    let taken = client
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| client.set_write_timeout(Some(PATIENCE)));
    let line = match taken.and_then(|()| take(&client, planner.begin())) {
        Ok(order) => format!("{} files, {} unknown\n", order.files(), order.unknown()),
        Err(error) => format!("error: {error}\n"),
    };
    let _ = client.write_all(line.as_bytes());
}

fn take(client: &UnixStream, mut order: FileOrder) -> std::io::Result<FileOrder> {
    let mut from = BufReader::new(client);
    loop {
        let mut name = Vec::new();
        let got = from.by_ref().take(MAX_NAME + 1).read_until(0, &mut name)?;
        if got == 0 {
            return Ok(order);
        }
        if name.last() == Some(&0) {
            name.pop();
        } else if got as u64 > MAX_NAME {
            return Err(std::io::Error::other(format!(
                "a file name is longer than {MAX_NAME} bytes; end each name with a 0 byte"
            )));
        }
        let name = PathBuf::from(OsString::from_vec(name));
        let refused = |error| {
            std::io::Error::other(format!(
                "{}: cannot be looked up in the storage: {error}",
                name.display()
            ))
        };
        if !name.as_os_str().is_empty() && !order.push(&name).map_err(refused)? {
            let most = super::MAX_PLANNED;
            return Err(std::io::Error::other(format!(
                "the list has more than {most} files; send the rest after some of them have been read"
            )));
        }
    }
}

/// Sends file names to the mount whose control socket is at `path`. Returns the answer of the mount.
///
/// # Errors
/// Returns an error if no mount listens at `path`, or the mount refuses the list or ends before it answers.
pub fn send(
    path: &Path,
    names: &mut dyn Iterator<Item = std::io::Result<OsString>>,
) -> std::io::Result<String> {
    let mut server = knock(path)?;
    for name in names {
        let mut bytes = name?.into_vec();
        bytes.push(0);
        if server.write_all(&bytes).is_err() {
            // The answer says why.
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match server.take(MAX_NAME).read_to_end(&mut answer) {
        // The mount answered before it had read all names.
        Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {}
        done => _ = done?,
    }
    let answer = String::from_utf8_lossy(&answer);
    let answer = answer.trim_end();
    match answer.strip_prefix("error: ") {
        Some(why) => Err(std::io::Error::other(why)),
        None if answer.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
        None => Ok(answer.to_string()),
    }
}
