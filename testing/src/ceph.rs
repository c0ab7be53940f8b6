//! A Ceph cluster on one machine, for tests and comparisons. The cluster starts in about ten seconds, and is removed when the
//! process that created it ends.
//!
//! The script `ceph-dev-cluster` is next to this file and is compiled into the binary. A guard process removes the cluster even if
//! this process is killed: it waits on a pipe that the kernel closes when this process ends. This module only uses a cluster that it has
//! created, needs no password, and leaves no daemon running.
//!
//! ```text
//!   up ──► script up ──► cluster            this process ──pipe── guard
//!                           ▲                    ends ──────────► end of file ──► script down
//!                           └────────────────────────────────────────────────────────┘
//! ```

use std::fmt;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The script, in the form for `bash -c`.
const SCRIPT: &str = include_str!("ceph-dev-cluster");
const PROGRAMS: [&str; 7] = [
    "ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "rados", "rbd", "bash",
];
/// Size of the sparse file behind the cluster.
const BYTES: u64 = 12 << 30;

/// A program that does not finish is ended after this many seconds.
const RUN_SECONDS: &str = "60";

/// Why the Ceph cluster could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CephError {
    /// A program is not installed.
    Missing(&'static str),
    /// A command failed: the command and its message.
    Failed(String, String),
}

impl std::error::Error for CephError {}

impl fmt::Display for CephError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CephError::Missing(program) => write!(
                f,
                "{program} is not installed; on Debian: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common"
            ),
            CephError::Failed(what, said) => write!(f, "{what}: {said}"),
        }
    }
}

/// The cluster. When this value is dropped, the cluster is removed.
#[derive(Debug)]
pub struct CephCluster {
    dir: PathBuf,
    port: u16,
    guard: Child,
}

impl CephCluster {
    /// Creates a cluster in the folder for temporary files. Returns an error if a package is missing, or if the cluster does not
    /// start in time.
    pub fn up() -> Result<CephCluster, CephError> {
        if let Some(missing) = PROGRAMS.iter().find(|program| !is_here(program)) {
            return Err(CephError::Missing(missing));
        }
        // The path is short, because the names of its sockets must fit into 107 bytes.
        let dir = std::env::temp_dir().join(format!("foreread-ceph-{}", std::process::id()));
        let port = free_ports().ok_or_else(|| failed("a port for the cluster", "none is free"))?;
        let guard = guard_of(&dir, port).map_err(|error| failed("bash", &error.to_string()))?;
        let cluster = CephCluster { dir, port, guard };
        cluster.again()?;
        Ok(cluster)
    }

    /// Starts the daemons that are not running.
    pub fn again(&self) -> Result<(), CephError> {
        output(&mut script("up", &self.dir, self.port), "the cluster").map(|_| ())
    }

    /// Returns the path of the cluster's configuration, for `?conf=PATH` and `CEPH_CONF`.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn is_up(&self) -> bool {
        let runs = |daemon: &str| {
            self.pid(daemon)
                .is_some_and(|pid| Path::new(&format!("/proc/{pid}/stat")).exists())
        };
        ["mon.a", "mgr.x", "osd.0"].into_iter().all(runs)
    }

    /// Runs one of Ceph's programs (`ceph`, `rbd`, `rados`) on the cluster. Returns the output of the program.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, CephError> {
        run_ceph(&self.conf(), program, arguments)
    }

    /// Returns the process id of a daemon, such as `osd.0`, `mon.a` or `mgr.x`.
    pub fn pid(&self, daemon: &str) -> Option<u32> {
        let text = std::fs::read_to_string(self.dir.join(format!("run/{daemon}.devpid"))).ok()?;
        text.split_whitespace().next()?.parse().ok()
    }
}

impl Drop for CephCluster {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Runs one of Ceph's programs on the cluster with this configuration. Returns the output of the program. Returns an error if the
/// program cannot be run, fails, or does not end within a minute.
pub fn run_ceph(conf: &Path, program: &str, arguments: &[&str]) -> Result<String, CephError> {
    let mut command = Command::new("timeout");
    command
        .args([RUN_SECONDS, program])
        .arg("-c")
        .arg(conf)
        .args(arguments)
        .stdin(Stdio::null());
    output(&mut command, &format!("{program} {}", arguments.join(" ")))
}

fn failed(what: &str, said: &str) -> CephError {
    CephError::Failed(what.to_string(), said.to_string())
}

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .into_iter()
        .any(|folder| folder.join(program).is_file())
}

/// Two consecutive free ports, for the two protocols of a monitor.
fn free_ports() -> Option<u16> {
    (0..100).find_map(|_| {
        let first = TcpListener::bind("127.0.0.1:0")
            .ok()?
            .local_addr()
            .ok()?
            .port();
        let both = first
            .checked_add(1)
            .map(|second| [first, second].map(|port| TcpListener::bind(("127.0.0.1", port))));
        both.filter(|both| both.iter().all(Result::is_ok))
            .map(|_| first)
    })
}

/// The script with a verb, not started yet.
fn script(verb: &str, dir: &Path, port: u16) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-c", SCRIPT, "ceph-dev-cluster", verb])
        .arg(dir)
        .stdin(Stdio::null());
    environment(&mut command, port);
    command
}

fn environment(command: &mut Command, port: u16) {
    let values = [
        ("CEPH_DEV_PORT", port.to_string()),
        ("CEPH_DEV_OSD_BYTES", BYTES.to_string()),
    ];
    command.envs(values);
}

/// Starts the guard: it ignores signals, waits for the end of its input, and removes the cluster.
fn guard_of(dir: &Path, port: u16) -> std::io::Result<Child> {
    let wait = "trap '' INT TERM HUP; cat >/dev/null; bash -c \"$1\" ceph-dev-cluster down \"$2\" && rm -rf -- \"$2\"";
    let mut command = Command::new("bash");
    command
        .args(["-c", wait, "ceph-dev-cluster-guard", SCRIPT])
        .arg(dir);
    environment(&mut command, port);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// The output of a command; if the command fails, the last line of its message.
fn output(command: &mut Command, what: &str) -> Result<String, CephError> {
    let out = command
        .output()
        .map_err(|error| failed(what, &error.to_string()))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let last = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it failed and said nothing");
    Err(failed(what, last))
}
