//! Safe wrappers around librbd: a connection to a cluster, a pool, an open image. Each wrapper closes its object when it is dropped, in
//! the order that librbd requires.
//!
//! ```text
//!   Cluster ◄── Pool ◄── Image ◄── a read in progress
//!      └ shutdown  └ destroy  └ close, once no read is in flight
//! ```
//!
//! This module never opens an image for writing.

#![allow(unsafe_code)]

use super::ETIMEDOUT;
use super::address::Address;
use crate::source::EIO;
use crate::sync::lock;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::stderr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// An error of librbd or librados: the (positive) error number, and the step that failed.
pub struct RbdError {
    pub errno: i32,
    pub step: Step,
}

/// The steps of opening an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Create,
    ReadConf,
    /// Setting an option.
    Option,
    Connect,
    Pool,
    Image,
    /// Queries of an open image.
    Stat,
}

fn done(step: Step, result: c_int) -> Result<(), RbdError> {
    if result < 0 {
        Err(RbdError {
            errno: result.saturating_neg(),
            step,
        })
    } else {
        Ok(())
    }
}

/// A name as a C string. A name with a zero byte becomes empty, which matches nothing; `address.rs` refuses such names.
fn name(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(null(), |text| text.as_ptr())
}

/// Restores the flags of stderr from before the first connection. The log of librados sets O_NONBLOCK if stderr is a pipe. That
/// affects every process that has the pipe open, and their output would be lost while the pipe is full.
struct StderrFlags;

impl Drop for StderrFlags {
    fn drop(&mut self) {
        self.give_back();
    }
}

static STDERR_FLAGS: OnceLock<Option<OFlags>> = OnceLock::new();

impl StderrFlags {
    fn kept() -> StderrFlags {
        STDERR_FLAGS.get_or_init(|| fcntl_getfl(stderr()).ok());
        StderrFlags
    }

    fn give_back(&self) {
        if let Some(Some(flags)) = STDERR_FLAGS.get() {
            let _ = fcntl_setfl(stderr(), *flags);
        }
    }
}

struct Cluster {
    api: &'static Api,
    handle: Handle,
}

// SAFETY: several threads may use `rados_t` concurrently, and not only the thread that created it.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    fn connect(
        api: &'static Api,
        address: &Address,
        options: &[(String, String)],
    ) -> Result<Cluster, RbdError> {
        let (id, conf) = (
            name(address.id.as_deref().unwrap_or("admin")),
            address.conf.as_deref().map(name),
        );
        let mut handle = null_mut();
        let flags = StderrFlags::kept();
        // SAFETY: the handle is written on success only, and the name lives until the call has returned.
        done(Step::Create, unsafe {
            (api.rados_create)(&mut handle, id.as_ptr())
        })?;
        let cluster = Cluster { api, handle };
        // Connecting may take long.
        flags.give_back();
        // SAFETY: a live handle that is not connected; null means the usual places.
        done(Step::ReadConf, unsafe {
            (api.rados_conf_read_file)(handle, pointer(conf.as_ref()))
        })?;
        // SAFETY: as above; null means CEPH_ARGS.
        done(Step::ReadConf, unsafe {
            (api.rados_conf_parse_env)(handle, null())
        })?;
        for (key, value) in options {
            let (key, value) = (name(key), name(value));
            // SAFETY: as above; both names live until the call has returned.
            done(Step::Option, unsafe {
                (api.rados_conf_set)(handle, key.as_ptr(), value.as_ptr())
            })?;
        }
        // SAFETY: as above.
        done(Step::Connect, unsafe { (api.rados_connect)(handle) })?;
        Ok(cluster)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: created by rados_create, and no longer used: pools keep their cluster alive.
        unsafe { (self.api.rados_shutdown)(self.handle) }
    }
}

/// A pool, or a namespace in a pool.
pub struct Pool {
    cluster: Cluster,
    handle: Handle,
}

// SAFETY: several threads may use `rados_ioctx_t` concurrently as long as no thread changes its namespace. That is done before
// any other thread has it.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub fn open(
        api: &'static Api,
        address: &Address,
        options: &[(String, String)],
    ) -> Result<Pool, RbdError> {
        let cluster = Cluster::connect(api, address, options)?;
        let (pool, namespace) = (name(&address.pool), name(&address.namespace));
        let mut handle = null_mut();
        // SAFETY: a connected cluster; the handle is written on success only.
        done(Step::Pool, unsafe {
            (api.rados_ioctx_create)(cluster.handle, pool.as_ptr(), &mut handle)
        })?;
        let pool = Pool { cluster, handle };
        if !address.namespace.is_empty() {
            // SAFETY: a live pool that no other thread has yet.
            unsafe { (api.rados_ioctx_set_namespace)(handle, namespace.as_ptr()) }
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: created by rados_ioctx_create; images keep their pool alive. The cluster is shut down after this.
        unsafe { (self.cluster.api.rados_ioctx_destroy)(self.handle) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub id: String,
    pub snap: Option<u64>,
    /// In bytes.
    pub size: u64,
}

/// An image that is opened read-only.
pub struct Image {
    pub(super) api: &'static Api,
    pub(super) handle: Handle,
    /// Counts the reads in flight.
    pub(super) in_flight: Arc<ReadsInFlight>,
    pub(super) buffers: Arc<Buffers>,
    pub identity: Identity,
    pool: Option<Arc<Pool>>,
}

// SAFETY: several threads may use `rbd_image_t` concurrently, and not only the thread that opened it.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    pub fn open(pool: &Arc<Pool>, address: &Address) -> Result<Image, RbdError> {
        let api = pool.cluster.api;
        let (image, snap) = (name(&address.image), address.snap.as_deref().map(name));
        let mut handle = null_mut();
        // SAFETY: a live pool; the names live until the call has returned; the handle is written on success only.
        done(Step::Image, unsafe {
            (api.rbd_open_read_only)(
                pool.handle,
                image.as_ptr(),
                &mut handle,
                pointer(snap.as_ref()),
            )
        })?;
        let identity = Identity {
            id: String::new(),
            snap: None,
            size: 0,
        };
        let (in_flight, buffers, pool) = (Arc::default(), Arc::default(), Some(Arc::clone(pool)));
        let mut image = Image {
            api,
            handle,
            in_flight,
            buffers,
            identity,
            pool,
        };
        image.identity = image.identify(snap.as_deref())?;
        Ok(image)
    }

    fn identify(&self, snap: Option<&CStr>) -> Result<Identity, RbdError> {
        let (mut size, mut number, mut id) = (0, 0, [0; 256]);
        // SAFETY: a live image; an integer is written.
        done(Step::Stat, unsafe {
            (self.api.rbd_get_size)(self.handle, &mut size)
        })?;
        // SAFETY: a live image, a buffer and its length.
        done(Step::Stat, unsafe {
            (self.api.rbd_get_id)(self.handle, id.as_mut_ptr().cast(), id.len())
        })?;
        if let Some(snap) = snap {
            // SAFETY: a live image; the name lives until the call has returned; an integer is written.
            let result =
                unsafe { (self.api.rbd_snap_get_id)(self.handle, snap.as_ptr(), &mut number) };
            done(Step::Stat, result)?;
        }
        let id = CStr::from_bytes_until_nul(&id)
            .map_or(String::new(), |id| id.to_string_lossy().into_owned());
        Ok(Identity {
            id,
            snap: snap.map(|_| number),
            size,
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.in_flight.drained() {
            // Reads that never ended still use it, so it stays open, with everything that it needs.
            std::mem::forget(self.pool.take());
            return;
        }
        // SAFETY: opened by us, and no read is in flight. Reads hold no image, so this is not librbd's thread.
        unsafe { (self.api.rbd_close)(self.handle) };
    }
}

// Reads in flight through librbd, and the owners of their memory.
//
// A read in flight owns its buffer. The caller waits separately, and may go away: the buffer stays until librbd reports that
// the read has ended. The callback runs on one of librbd's threads; it passes the result on and returns. It never unwinds into
// librbd, never closes anything there, and never touches the bytes before librbd is done with them.
//
// ```text
//   begin ──► Flight { buffer, answer, .. } ──rbd_aio_read──► librbd's threads ──landed──► answer.send(result, buffer)
//      └─► Ticket { answer } ── wait ──────────────────────────────────────────────────────────────┘    in_flight.leave
//          dropped: the buffer is freed with the answer
// ```

/// Buffers that are kept for later reads: as many as the engine has fetches in flight.
const KEPT_BUFFERS: usize = 64;
/// Larger buffers are not kept. The value is the engine's default fetch size.
const KEPT_BYTES: usize = 1 << 20;
/// How long closing waits for reads to end. librados ends each read after its own timeout, which is shorter.
const DRAIN: Duration = Duration::from_secs(90);

/// Counts the reads in flight through one image.
#[derive(Default)]
pub struct ReadsInFlight {
    inside: Mutex<usize>,
    bell: Condvar,
}

impl ReadsInFlight {
    fn enter(&self) {
        *lock(&self.inside) += 1;
    }

    fn leave(&self) {
        let mut inside = lock(&self.inside);
        *inside -= 1;
        if *inside == 0 {
            self.bell.notify_all();
        }
    }

    /// Waits until no read is in flight. Returns false if reads are still in flight long after librados's own timeout.
    pub fn drained(&self) -> bool {
        let inside = lock(&self.inside);
        let waited = self
            .bell
            .wait_timeout_while(inside, DRAIN, |inside| *inside > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

/// Read buffers that are reused, because each new MiB of memory costs 256 page faults.
#[derive(Default)]
pub struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self, len: usize) -> Vec<u8> {
        let mut kept = lock(&self.0);
        let fits = kept.iter().position(|buffer| buffer.len() >= len);
        fits.map(|at| kept.swap_remove(at))
            .unwrap_or_else(|| vec![0; len.next_power_of_two()])
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut kept = lock(&self.0);
        if buffer.len() <= KEPT_BYTES && kept.len() < KEPT_BUFFERS {
            kept.push(buffer);
        }
    }
}

/// The result of a read: a number of bytes or a negative error number, and the buffer.
type Answer = (isize, Vec<u8>);

/// Our data that librbd holds while a read is in flight.
struct Flight {
    release: unsafe extern "C" fn(Handle),
    result: unsafe extern "C" fn(Handle) -> isize,
    buffer: Vec<u8>,
    answer: Sender<Answer>,
    in_flight: Arc<ReadsInFlight>,
}

/// Called by librbd, once for each read.
extern "C" fn landed(completion: Handle, flight: Handle) {
    // SAFETY: created by Box::into_raw in `begin` and returned only here, because the callback is called once.
    let flight = unsafe { Box::from_raw(flight.cast::<Flight>()) };
    let Flight {
        release,
        result,
        buffer,
        answer,
        in_flight,
    } = *flight;
    // SAFETY: the completion is alive until it is released, which happens only in the next statement.
    let result = unsafe { result(completion) };
    // SAFETY: as above; librbd holds a reference to it while the callback runs.
    unsafe { release(completion) };
    // Nothing in here is expected to panic. If it did, the reader would time out, and librbd would continue.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(answer.send((result, buffer)))));
    let _ = catch_unwind(AssertUnwindSafe(|| in_flight.leave()));
}

/// A handle with which a caller waits for the result of a read.
pub struct Ticket {
    answer: Receiver<Answer>,
    buffers: Arc<Buffers>,
}

/// Starts a read of `len` bytes at `offset`. The error is the (positive) error number of librbd.
pub fn begin(image: &Image, offset: u64, len: usize) -> Result<Ticket, i32> {
    let api = image.api;
    let (to, answer) = channel();
    let mut buffer = image.buffers.take(len);
    let target = buffer.as_mut_ptr();
    let (release, result) = (api.rbd_aio_release, api.rbd_aio_get_return_value);
    let flight = Flight {
        release,
        result,
        buffer,
        answer: to,
        in_flight: Arc::clone(&image.in_flight),
    };
    let flight = Box::into_raw(Box::new(flight));
    let mut completion = null_mut();
    // SAFETY: the completion is written on success only; the flight is ours until a read has it.
    let made =
        unsafe { (api.rbd_aio_create_completion)(flight.cast(), Some(landed), &mut completion) };
    if made < 0 {
        // SAFETY: the only owner: there is no completion.
        drop(unsafe { Box::from_raw(flight) });
        return Err(made.saturating_neg());
    }
    image.in_flight.enter();
    // SAFETY: the image is open as long as this read is counted. The buffer has at least `len` bytes, belongs to the flight,
    // and is neither moved nor read before `landed` gets the flight back.
    let begun = unsafe { (api.rbd_aio_read)(image.handle, offset, len, target.cast(), completion) };
    if begun < 0 {
        // SAFETY: a refused read calls no callback, so the completion and the flight are still ours alone.
        unsafe { (api.rbd_aio_release)(completion) };
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(flight) });
        image.in_flight.leave();
        return Err(begun.saturating_neg());
    }
    Ok(Ticket {
        answer,
        buffers: Arc::clone(&image.buffers),
    })
}

impl Ticket {
    /// Waits until the read has ended, at most for the time `patience`, and passes the bytes to `take`. Returns their number.
    ///
    /// # Errors
    /// Returns the (positive) error number of the read; that of a timeout if librbd has not replied in time.
    pub fn wait(self, patience: Duration, take: impl FnOnce(&[u8])) -> Result<usize, i32> {
        let answer = self.answer.recv_timeout(patience);
        let (result, buffer) = answer.map_err(|_| ETIMEDOUT)?;
        let ended = match usize::try_from(result) {
            Ok(len) if len <= buffer.len() => {
                take(&buffer[..len]);
                Ok(len)
            }
            Ok(_) => Err(EIO),
            Err(_) => Err(i32::try_from(result.unsigned_abs()).unwrap_or(EIO)),
        };
        self.buffers.give(buffer);
        ended
    }
}

// librados and librbd, loaded when the first image is opened. They are not linked.
//
// The libraries are never unloaded, because they have threads, and thread-local state with destructors. This code calls nothing
// by itself.

/// A handle that librados and librbd return.
pub type Handle = *mut c_void;
/// The type of the callback that a librbd thread calls when a read has ended; its parameters are the completion and an argument.
pub type Callback = extern "C" fn(Handle, Handle);

/// Why librbd is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryError {
    /// A library does not exist or cannot be loaded: its name, and the loader's message.
    Library(String, String),
    /// A library exists, but lacks a function: its name, and the function.
    Function(String, &'static str),
}

macro_rules! functions {
    ($($from:ident $name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of librados and librbd that foreread uses.
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Api {
            fn bind(rados: (&str, &Library), rbd: (&str, &Library)) -> Result<Api, LibraryError> {
                Ok(Api {
                    $($name: {
                        let (file, library) = functions!(@ $from rados rbd);
                        // SAFETY: the type is that of the function in the public headers for this ABI version of the file; the
                        // library is never closed, so the pointer stays valid.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($arg),*) $(-> $result)?>(stringify!($name)) };
                        *symbol.map_err(|_| LibraryError::Function(file.to_string(), stringify!($name)))?
                    },)*
                })
            }
        }
    };
    (@ rados $rados:ident $rbd:ident) => { $rados };
    (@ rbd $rados:ident $rbd:ident) => { $rbd };
}

functions! {
    rados rados_create(*mut Handle, *const c_char) -> c_int;
    rados rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados rados_conf_parse_env(Handle, *const c_char) -> c_int;
    rados rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados rados_connect(Handle) -> c_int;
    rados rados_shutdown(Handle);
    rados rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados rados_ioctx_set_namespace(Handle, *const c_char);
    rados rados_ioctx_destroy(Handle);
    rbd rbd_version(*mut c_int, *mut c_int, *mut c_int);
    rbd rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd rbd_close(Handle) -> c_int;
    rbd rbd_get_size(Handle, *mut u64) -> c_int;
    rbd rbd_get_id(Handle, *mut c_char, usize) -> c_int;
    rbd rbd_snap_get_id(Handle, *const c_char, *mut u64) -> c_int;
    rbd rbd_aio_create_completion(Handle, Option<Callback>, *mut Handle) -> c_int;
    rbd rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    rbd rbd_aio_get_return_value(Handle) -> isize;
    rbd rbd_aio_release(Handle);
}

impl Api {
    /// Returns librados and librbd, which are loaded once, and never unloaded.
    pub fn load() -> Result<&'static Api, LibraryError> {
        static LOADED: Mutex<Option<&'static Api>> = Mutex::new(None);
        let mut loaded = lock(&LOADED);
        if let Some(api) = *loaded {
            return Ok(api);
        }
        let api: &'static Api = Box::leak(Box::new(Api::of("librados.so.2", "librbd.so.1")?));
        *loaded = Some(api);
        Ok(api)
    }

    fn of(rados: &str, rbd: &str) -> Result<Api, LibraryError> {
        // Load librados first, with global symbols, so that librbd uses this copy and no other.
        let (rados_library, rbd_library) = (open(rados)?, open(rbd)?);
        let api = Api::bind((rados, &rados_library), (rbd, &rbd_library));
        // Even if a function is missing: loading has started things that cannot be stopped.
        std::mem::forget((rados_library, rbd_library));
        api
    }

    /// Returns the version of the library's API, for messages.
    pub fn version(&self) -> String {
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: the function writes three integers, and these are three.
        unsafe { (self.rbd_version)(&mut major, &mut minor, &mut extra) };
        format!("{major}.{minor}.{extra}")
    }
}

fn open(name: &str) -> Result<Library, LibraryError> {
    // SAFETY: loading runs the initializers of Ceph's libraries, which may run at any time and on any thread.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
    library.map_err(|error| LibraryError::Library(name.to_string(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A completion of our own: its address is the result.
    fn fly(buffers: &Arc<Buffers>, in_flight: &Arc<ReadsInFlight>, len: usize) -> (Ticket, Handle) {
        unsafe extern "C" fn release(_: Handle) {}
        unsafe extern "C" fn result(completion: Handle) -> isize {
            completion as isize
        }
        let (to, answer) = channel();
        let mut buffer = buffers.take(len);
        buffer[..len].fill(7);
        let flight = Flight {
            release,
            result,
            buffer,
            answer: to,
            in_flight: Arc::clone(in_flight),
        };
        in_flight.enter();
        (
            Ticket {
                answer,
                buffers: Arc::clone(buffers),
            },
            Box::into_raw(Box::new(flight)).cast(),
        )
    }

    #[test]
    fn an_answer_reaches_its_waiter_and_the_buffer_is_used_again() {
        let (buffers, in_flight) = (Arc::<Buffers>::default(), Arc::<ReadsInFlight>::default());
        let (ticket, flight) = fly(&buffers, &in_flight, 100);
        let flight = flight as usize;
        let thread = std::thread::spawn(move || landed(50 as Handle, flight as Handle));
        let mut got = Vec::new();
        assert_eq!(
            ticket.wait(Duration::from_secs(20), |bytes| got = bytes.to_vec()),
            Ok(50)
        );
        thread.join().expect("no panic");
        assert_eq!(got, [7; 50]);
        assert!(in_flight.drained());
        assert_eq!(lock(&buffers.0).len(), 1);
        assert!(buffers.take(128).len() >= 128);
        assert!(lock(&buffers.0).is_empty(), "it was the one to use");
    }

    #[test]
    fn errors_and_impossible_lengths_are_no_bytes() {
        let (buffers, in_flight) = (Arc::<Buffers>::default(), Arc::<ReadsInFlight>::default());
        for (result, ended) in [(-110, Err(110)), (4097, Err(EIO))] {
            let (ticket, flight) = fly(&buffers, &in_flight, 4096);
            landed(result as Handle, flight);
            assert_eq!(
                ticket.wait(Duration::from_secs(20), |_| panic!("no bytes")),
                ended
            );
        }
    }

    #[test]
    fn a_reader_that_goes_away_takes_nothing_with_it() {
        let (buffers, in_flight) = (Arc::<Buffers>::default(), Arc::<ReadsInFlight>::default());
        let (ticket, flight) = fly(&buffers, &in_flight, 4096);
        assert_eq!(
            ticket.wait(Duration::from_millis(1), |_| panic!("no bytes")),
            Err(ETIMEDOUT)
        );
        assert_eq!(
            *lock(&in_flight.inside),
            1,
            "it is still in flight, with its buffer"
        );
        landed(4096 as Handle, flight);
        assert!(in_flight.drained());
    }

    #[test]
    fn kept_buffers_are_limited() {
        let buffers = Buffers::default();
        (0..KEPT_BUFFERS + 1).for_each(|_| buffers.give(vec![0; 1]));
        assert_eq!(lock(&buffers.0).len(), KEPT_BUFFERS);
        let buffers = Buffers::default();
        buffers.give(vec![0; KEPT_BYTES + 1]);
        buffers.give(vec![0; KEPT_BYTES]);
        assert_eq!(lock(&buffers.0).len(), 1);
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        match Api::of("libforeread-nothing.so.9", "librbd.so.1") {
            Err(LibraryError::Library(name, _)) => assert_eq!(name, "libforeread-nothing.so.9"),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }

    /// The C library has none of the functions, and is everywhere.
    #[test]
    fn a_library_without_a_function_is_named_with_it() {
        match Api::of("libc.so.6", "libc.so.6") {
            Err(missing) => assert_eq!(
                missing,
                LibraryError::Function("libc.so.6".to_string(), "rados_create")
            ),
            Ok(_) => panic!("libc is no librados"),
        }
    }
}
