//! Restores for a child command what this process inherited from its parent: the handling of SIGPIPE and the blocked
//! signals.
//!
//! ```text
//!   nohup, a shell ──► foreread: SIGPIPE ignored by Rust's start code, before main ──► CMD: std sets SIGPIPE to its default, and blocks nothing
//!                        └── recorded before that ───────────────────────────────────► keep(&mut command): both restored
//! ```
//! Signals other than SIGPIPE that are ignored stay ignored over fork and exec, as long as no handler is set for them. A child process that
//! outlives foreread inherits no file that foreread has opened: otherwise the child would hold a lock (flock(1)) or a pipe of the calling
//! script open.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

#[derive(Clone, Copy)]
struct InheritedSignals {
    ignores_pipe: bool,
    blocked: libc::sigset_t,
}

static INHERITED: OnceLock<InheritedSignals> = OnceLock::new();

/// Called by the loader before Rust's start code, which ignores SIGPIPE.
#[allow(unsafe_code)] // An entry of the loader's table.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

#[allow(unsafe_code)] // sigaction and the mask of a thread have no safe wrapper here.
extern "C" fn look() {
    // SAFETY: both structures are plain numbers, for which zeros are a value; the calls only ask, and write into them.
    let found = unsafe {
        let (mut action, mut blocked) = (
            std::mem::zeroed::<libc::sigaction>(),
            std::mem::zeroed::<libc::sigset_t>(),
        );
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked);
        InheritedSignals {
            ignores_pipe: action.sa_sigaction == libc::SIG_IGN,
            blocked,
        }
    };
    let _ = INHERITED.set(found);
}

/// Makes `command` start with the same ignored and blocked signals with which this process started.
#[allow(unsafe_code)] // A closure between fork and exec.
pub fn keep(command: &mut Command) {
    let Some(inherited) = INHERITED.get().copied() else {
        return;
    };
    let (ignores_pipe, blocked) = (inherited.ignores_pipe, inherited.blocked);
    // SAFETY: the system has filled in the mask.
    let blocks =
        unsafe { (1..=64).any(|signal| libc::sigismember(&raw const blocked, signal) == 1) };
    if !ignores_pipe && !blocks {
        return;
    }
    let set = move || {
        // SAFETY: both calls may be made between fork and exec, and the mask lives through the call.
        unsafe {
            if ignores_pipe {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: the closure makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(set) };
}

/// Makes `command` start with only stdin, stdout and stderr open. Before Linux 5.11 this has no effect: the command
/// inherits all open files of this process.
#[allow(unsafe_code)] // A closure between fork and exec.
pub fn leave_files(command: &mut Command) {
    let leave = || {
        let (first, last, at_exec) = (3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        // SAFETY: the call may be made between fork and exec, and takes only numbers. The descriptors are closed by exec, so that std can
        // still report why an exec failed.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, at_exec) };
        Ok(())
    };
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(leave) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's own process: Rust's start has set SIGPIPE to ignored by now, which is not what was inherited.
    #[test]
    fn it_is_looked_at_before_rusts_start() {
        assert!(INHERITED.get().is_some(), "the loader has called it");
    }
}
