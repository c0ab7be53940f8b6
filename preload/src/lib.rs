//! Reads ahead inside a program that is not changed, without root: a library for LD_PRELOAD.
//!
//! It takes the place of the functions of the C library that read. Each goes through to the one it replaces; before that the program's read goes to
//! the decision core, and what is worth reading ahead goes to the kernel by readahead(2):
//!
//! ```text
//!   program ──read(3, ..)──► here ──► the C library's read ──► kernel
//!                             └─► core ──► readahead(2): the page cache fills meanwhile
//! ```
//! Example: `LD_PRELOAD=libforeread_preload.so grep x big.txt`, or `foreread run --preload -- grep x big.txt`.
//!
//! | file | holds |
//! |---|---|
//! | `lib.rs` | the functions that are replaced |
//! | `state.rs` | what is known of descriptors and files, and the one lock |
//! | `memory.rs` | memory of our own |
//!
//! It does not see: page faults of mappings, io_uring, what stdio and other parts of the C library read inside, programs that are linked
//! statically or change their user (setuid), and what calls the kernel without the C library (Go).
//!
//! Never: an error, a word, a thread, or a changed errno in the program.

mod memory;
mod state;

use foreread_core::policy::{DEFAULT, PolicySpec};
use foreread_core::units::Nanos;
use libc::{c_char, c_int, c_void, iovec, mode_t, off_t, off64_t, size_t, ssize_t};
use state::State;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

#[global_allocator]
static MEMORY: memory::Memory = memory::Memory::new();

/// The variable that names another policy.
const POLICY: &str = "FOREREAD_POLICY";

/// What the library is doing.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// For good: it is not begun, or it has failed.
const OFF: u32 = 2;

struct Shared {
    flag: AtomicU32,
    state: UnsafeCell<Option<State>>,
}

// SAFETY: `state` is touched only by the thread that has changed `flag` from FREE to TAKEN.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { flag: AtomicU32::new(OFF), state: UnsafeCell::new(None) };

/// The function behind ours of the same name.
struct Next {
    name: &'static std::ffi::CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static std::ffi::CStr) -> Next {
        Next { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn find(&self) {
        // SAFETY: the name ends in a zero.
        self.found.store(unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }, Ordering::Release);
    }
}

/// Begins before the program does.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    NEXTS.iter().for_each(|next| next.find());
    let begun = catch_unwind(|| {
        std::panic::set_hook(Box::new(|_| ()));
        let named = std::env::var(POLICY).ok().and_then(|text| PolicySpec::parse(&text).ok());
        named.or_else(|| PolicySpec::parse(DEFAULT).ok()).map(State::new)
    });
    if let Ok(Some(state)) = begun {
        // SAFETY: the flag is OFF, so nothing else is here.
        unsafe { *SHARED.state.get() = Some(state) };
        SHARED.flag.store(FREE, Ordering::Release);
    }
}

/// Does something with the state where that is free; errno stays.
fn with<T>(take: impl FnOnce(&mut State) -> T) -> Option<T> {
    if SHARED.flag.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return None;
    }
    // SAFETY: the address is that of this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the flag was FREE and is ours.
    let state = unsafe { (*SHARED.state.get()).as_mut() };
    let done = catch_unwind(AssertUnwindSafe(|| state.map(take)));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    SHARED.flag.store(if done.is_ok() { FREE } else { OFF }, Ordering::Release);
    done.ok().flatten()
}

/// A read around which the core is asked.
fn around(descriptor: c_int, offset: Option<off64_t>, len: size_t, read: impl FnOnce() -> ssize_t) -> ssize_t {
    let began: Option<Nanos> = match offset.map(u64::try_from) {
        Some(Err(_)) => None,
        Some(Ok(at)) => with(|state| state.begin(descriptor, Some(at), len as u64)).flatten(),
        None => with(|state| state.begin(descriptor, None, len as u64)).flatten(),
    };
    let got = read();
    if let Some(began) = began {
        with(|state| state.ended(began, u64::try_from(got).unwrap_or(0)));
    }
    got
}

/// The bytes of a vector of buffers; nothing where that is none.
fn len_of(parts: *const iovec, count: c_int) -> size_t {
    let count = usize::try_from(count).unwrap_or(0);
    if parts.is_null() || count > 1024 {
        return 0;
    }
    // SAFETY: these are the arguments of readv, whose caller vouches for them.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.iov_len))
}

/// A function of the C library that is replaced: its name, its arguments, the call of the kernel where no other function is known yet, and what
/// is done around it.
macro_rules! replaced {
    ($($next:ident $name:literal fn $function:ident($($arg:ident: $type:ty),*) -> $result:ty, $kernel:expr, |$call:ident| $around:expr;)*) => {
        $(static $next: Next = Next::new($name);)*
        static NEXTS: &[&Next] = &[$(&$next),*];
        $(
            /// As the C library has it.
            ///
            /// # Safety
            /// As there.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function($($arg: $type),*) -> $result {
                let $call = || -> $result {
                    let next = $next.found.load(Ordering::Acquire);
                    if next.is_null() {
                        // SAFETY: the arguments are the program's own.
                        return unsafe { $kernel };
                    }
                    // SAFETY: the C library's function of this name has this type.
                    let next: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(next) };
                    // SAFETY: the arguments are the program's own.
                    unsafe { next($($arg),*) }
                };
                $around
            }
        )*
    };
}

/// A descriptor that is new is another file than before.
fn opened(descriptor: c_int) -> c_int {
    if descriptor >= 0 {
        with(|state| state.forget(descriptor));
    }
    descriptor
}

use libc::{
    SYS_close, SYS_dup2, SYS_dup3, SYS_fadvise64, SYS_openat, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_read,
    SYS_readv, syscall,
};

replaced! {
    READ c"read" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t,
        syscall(SYS_read, fd, buffer, len) as ssize_t, |call| around(fd, None, len, call);
    READ_CHK c"__read_chk" fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t,
        syscall(SYS_read, fd, buffer, len.min(room)) as ssize_t, |call| around(fd, None, len, call);
    PREAD c"pread" fn pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t,
        syscall(SYS_pread64, fd, buffer, len, offset) as ssize_t, |call| around(fd, Some(offset), len, call);
    PREAD64 c"pread64" fn pread64(fd: c_int, buffer: *mut c_void, len: size_t, offset: off64_t) -> ssize_t,
        syscall(SYS_pread64, fd, buffer, len, offset) as ssize_t, |call| around(fd, Some(offset), len, call);
    PREAD_CHK c"__pread_chk" fn __pread_chk(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t,
        syscall(SYS_pread64, fd, buffer, len.min(room), offset) as ssize_t, |call| around(fd, Some(offset), len, call);
    PREAD64_CHK c"__pread64_chk" fn __pread64_chk(fd: c_int, buffer: *mut c_void, len: size_t, offset: off64_t, room: size_t) -> ssize_t,
        syscall(SYS_pread64, fd, buffer, len.min(room), offset) as ssize_t, |call| around(fd, Some(offset), len, call);
    READV c"readv" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t,
        syscall(SYS_readv, fd, parts, count) as ssize_t, |call| around(fd, None, len_of(parts, count), call);
    PREADV c"preadv" fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        syscall(SYS_preadv, fd, parts, count, offset, 0) as ssize_t,
        |call| around(fd, Some(offset), len_of(parts, count), call);
    PREADV64 c"preadv64" fn preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t,
        syscall(SYS_preadv, fd, parts, count, offset, 0) as ssize_t,
        |call| around(fd, Some(offset), len_of(parts, count), call);
    PREADV2 c"preadv2" fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
        syscall(SYS_preadv2, fd, parts, count, offset, 0, flags) as ssize_t,
        |call| around(fd, (offset != -1).then_some(offset), len_of(parts, count), call);
    PREADV64V2 c"preadv64v2" fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
        syscall(SYS_preadv2, fd, parts, count, offset, 0, flags) as ssize_t,
        |call| around(fd, (offset != -1).then_some(offset), len_of(parts, count), call);
    // The mode is there only with some flags; where it is not, what its register holds is passed on and not looked at.
    OPEN c"open" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        syscall(SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int, |call| opened(call());
    OPEN64 c"open64" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        syscall(SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int, |call| opened(call());
    OPENAT c"openat" fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        syscall(SYS_openat, folder, path, flags, mode) as c_int, |call| opened(call());
    OPENAT64 c"openat64" fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        syscall(SYS_openat, folder, path, flags, mode) as c_int, |call| opened(call());
    CLOSE c"close" fn close(fd: c_int) -> c_int,
        syscall(SYS_close, fd) as c_int, |call| { let done = call(); opened(fd); done };
    DUP2 c"dup2" fn dup2(from: c_int, to: c_int) -> c_int,
        syscall(SYS_dup2, from, to) as c_int, |call| opened(call());
    DUP3 c"dup3" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int,
        syscall(SYS_dup3, from, to, flags) as c_int, |call| opened(call());
    ADVISE c"posix_fadvise" fn posix_fadvise(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int,
        advise(fd, offset, len, advice), |call| { with(|state| state.advised(fd, advice)); call() };
    ADVISE64 c"posix_fadvise64" fn posix_fadvise64(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) -> c_int,
        advise(fd, offset, len, advice), |call| { with(|state| state.advised(fd, advice)); call() };
}

/// posix_fadvise returns its error, and leaves errno.
unsafe fn advise(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) -> c_int {
    // SAFETY: the kernel gets no address.
    unsafe {
        let errno = *libc::__errno_location();
        let failed = syscall(SYS_fadvise64, fd, offset, len, advice) != 0;
        let error = if failed { *libc::__errno_location() } else { 0 };
        *libc::__errno_location() = errno;
        error
    }
}
