//! `foreread mount`: mounts a source, prints a line once it can be read, and unmounts on Ctrl-C or a signal.
//!
//! With `-d` the command runs in the background (`background`); `-o` takes options in the form of mount(8) (`options`). The mount point is
//! printed to stdout once it is mounted, everything else to stderr. The process always unmounts before it ends, unless it is killed by
//! SIGKILL.

pub(super) mod background;
pub(super) mod options;

use crate::args;
use crate::args::values::ttl;
use crate::fail::{Fail, note};
use crate::out;
use crate::recording;
use crate::serving::{self, Front, Reporter, ServerArgs};
use crate::signals;
use foreread::Engine;
use foreread::front::fuse::{Control, FuseSettings, FuseStop, Mount, MountCounts, UnmountOutcome};
use foreread::source;
use foreread::source::SourceName;
use foreread::source::tree::Tree;
use foreread_attach::warm::{Budget, FillSettings, Filler};
use foreread_os::ends;
use foreread_os::host::{FOREREAD_MOUNT, Host, last_at};
use foreread_os::threads::{END_PATIENCE, Task};
use foreread_pagecache::program;
use foreread_plan::Plan;
use signal_hook::iterator::Signals;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Mount a source as files, with readahead and a cache
///
/// The mount is read-only. A folder or a prefix is shown as it is, a single file, object or image as a folder with one
/// file in it. Each open file has its own readahead state; all share one cache. If a file changes, a process that has it open keeps reading the version that it
/// opened, or gets an error. A later open gets the new version, at the latest after --attr-ttl.
///
/// The files belong to the mounting user; --allow-other lets other users read them, as permissions allow. foreread
/// prints a line when the mount is ready. Ctrl-C, SIGTERM and SIGHUP unmount; if files are open, the mount is only
/// detached, and a second Ctrl-C ends the process at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread mount data mnt
  foreread mount nbd://far.example/disk mnt --cache 1G --stats-every 5s
  foreread mount -d s3://bucket/data/ mnt; foreread umount mnt")]
pub struct MountArgs {
    /// A folder, a file, or a source as for 'foreread serve'
    #[arg(value_name = "SOURCE")]
    pub source: SourceName,
    /// An empty folder to mount on
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Return once it is mounted; serve in the background
    ///
    /// Later messages are lost. The systemd unit foreread-mount@.service keeps them in the journal.
    #[arg(short, long)]
    pub detach: bool,
    /// Do nothing if DIR shows this source already; fail if it shows another
    ///
    /// mount(8) uses this option, so that a line of fstab is mounted only once.
    #[arg(long, hide = true)]
    pub once: bool,
    /// Options of mount(8), such as allow_other,cache=1G
    ///
    /// Accepts every option of this command (written with _ or -), and env=FILE: a file with credentials, one NAME=VALUE on
    /// each line.
    /// Generic options of mount(8) (noauto, _netdev, x-systemd...) are ignored; unknown options are an error. In the
    /// values of policy and disk_cache, write + for a comma.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Let other users read, as permissions allow
    #[arg(long)]
    pub allow_other: bool,
    /// How long names, sizes and dates are cached [default: 5s for a store's prefix, else 1s]
    #[arg(long, value_name = "TIME", hide_short_help = true, value_parser = ttl)]
    pub attr_ttl: Option<Duration>,
    /// Accept the names of the next files on this unix socket, each ending with a 0 byte
    ///
    /// Only this user can connect to the socket. SOURCE must be a prefix of a store, because only its listings
    /// state the version of each file.
    #[arg(long, value_name = "SOCKET", hide_short_help = true)]
    pub control: Option<PathBuf>,
    /// Read ahead the ranges of this plan, in its order
    ///
    /// File names in the plan are relative to the mount point, as in a plan made from 'mount --record'. The ranges are
    /// read through the mount, into its cache and the kernel's.
    #[arg(long, value_name = "PLAN", hide_short_help = true)]
    pub plan: Option<PathBuf>,
}

pub fn run(args: &MountArgs) -> Result<(), Fail> {
    are_taken_apart(&args.options)?;
    if args.once && !background::is_behind() && shows_already(&args.dir, &args.source)? {
        return Ok(());
    }
    if args.detach && !background::is_behind() {
        return background::begin(&args::given());
    }
    let (settings, options) = args.server.settings()?;
    #[cfg(feature = "object")]
    let tree = match &options.disk_cache {
        Some(cache) => cache.open_tree(&args.source)?,
        None => source::open_tree(&args.source)?,
    };
    #[cfg(not(feature = "object"))]
    let tree = source::open_tree(&args.source)?;
    may_be_controlled(args, &*tree)?;
    let plan = args
        .plan
        .as_deref()
        .map(|path| planned(path, &args.dir, &args.source))
        .transpose()?;
    let engine = Engine::for_tree(options, &*tree)?;
    serving::note_cache(&engine, args.server.cache);
    let defaults = tree.defaults();
    let recording = recording::start(args.server.record.as_deref(), "foreread mount")?;
    let observer = recording::observer(recording.as_ref());
    let of_mount = FuseSettings {
        allow_other: args.allow_other,
        attr_ttl: args.attr_ttl,
        observer,
        ..FuseSettings::default()
    };
    // Before the mount, so that a signal in between cannot leave it behind.
    signals::end_at_second_signal()?;
    let signals = Signals::new(signals::ending()).map_err(signals::no_handler)?;
    let (mount, stop) = Mount::new(tree, engine.clone(), &args.dir, &of_mount)?;
    let counter = mount.counter();
    // Before the threads of the mount start, so that a failure only has to unmount.
    let reporter = Reporter::start(&engine, &args.server, move || front(&counter()))?;
    let control = args
        .control
        .as_deref()
        .map(|path| control(path, &mount, &engine))
        .transpose()?;
    let ending = signals.handle();
    let filler = plan.map(|plan| fill(plan, args.server.cache)).transpose()?;
    let ends = filler.clone();
    let until = move || unmount_on(signals, &stop, ends.as_deref());
    let waits = Task::start("foreread-signals", until).map_err(Fail::of)?;
    note_other_users(args);
    note(settings.line(&engine, defaults));
    let said = out::print(ready(&args.dir));
    serving::say_ready();
    let ran = mount.run();
    drop(control);
    ending.close();
    let _ = waits.within(END_PATIENCE);
    reporter.end();
    let recorded = recording::end(recording);
    said?;
    ran.map_err(|error| Fail::input("the mount ended", error, "mount it again"))?;
    recorded
}

/// Whether the folder already shows the source; an error if it shows another source of foreread.
fn shows_already(dir: &Path, source: &SourceName) -> Result<bool, Fail> {
    // The files of the mount are not touched, because its server may hang.
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new(".")).canonicalize();
    let place = above.ok().zip(dir.file_name());
    let place = place.map(|(above, name)| above.join(name));
    let mounts = Host::here().mounts();
    let mount = place.and_then(|place| last_at(&mounts, &place).cloned());
    let Some(mount) = mount.filter(|mount| mount.kind == FOREREAD_MOUNT) else {
        return Ok(false);
    };
    if is_of(&mount.device, source) {
        return Ok(true);
    }
    let what = format!("{} shows another source", dir.display());
    let remedy = format!("unmount it first (foreread umount {})", dir.display());
    Err(Fail::input(what, mount.device, remedy))
}

/// Whether the kernel's name of a mount is that of a source. The name may be followed by a description of the reader.
fn is_of(device: &str, source: &SourceName) -> bool {
    let path = source.path();
    let absolute = std::path::absolute(path).unwrap_or_default();
    let real = path.canonicalize().unwrap_or_default();
    let files = [path, &absolute, &real].map(|path| format!("file:{}", path.display()));
    let names = [source.to_string()].into_iter().chain(files);
    names.into_iter().any(|name| {
        // The same characters as in the mount's options.
        let is_odd = |c: char| c.is_control() || c == ',' || c == '\\';
        let rest = device.strip_prefix(&name.replace(is_odd, "_"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("_ "))
    })
}

/// Warns that other users may read the mounted files.
fn note_other_users(args: &MountArgs) {
    if args.allow_other {
        note(format!(
            "every user of this machine may open {}, as far as permissions allow",
            args.dir.display()
        ));
    }
}

/// `-o` has been expanded into options by now, unless it was written in an unsupported place.
fn are_taken_apart(options: &[String]) -> Result<(), Fail> {
    if options.is_empty() {
        return Ok(());
    }
    let remedy = "write 'foreread mount -o OPTIONS ...': 'mount' first, and -o as a separate word";
    Err(Fail::input("-o was not recognised", "-o", remedy))
}

/// Prints the line that reports the mount. A background process detaches from the terminal first.
fn ready(dir: &Path) -> String {
    if background::is_behind() {
        program::leave_terminal();
        return format!("{}\n", background::READY);
    }
    format!("{}\n", dir.display())
}

/// Refuses `--control` without listings that have versions, which the order of files needs.
fn may_be_controlled(args: &MountArgs, tree: &dyn Tree) -> Result<(), Fail> {
    if args.control.is_none() || tree.lists_versions() {
        return Ok(());
    }
    let remedy = "remove --control: files of other sources are read ahead when they are opened";
    let what = "--control needs a prefix of a store";
    Err(Fail::input(what, args.source.to_string(), remedy))
}

/// Reads the plan, and prefixes its names with the folder of the mount.
fn planned(path: &Path, dir: &Path, source: &SourceName) -> Result<Plan, Fail> {
    let mut plan = foreread_plan::text::open(path)?;
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let source = source.to_string();
    let root = Path::new(source.trim_end_matches('/'));
    for file in &mut plan.files {
        // A plan made from headers has full source names; the mount shows them relative to its own source.
        if source::is_remote(&SourceName::from(file.path.as_path())) {
            let below = file.path.strip_prefix(root).unwrap_or(&file.path);
            let is_all = below.as_os_str().is_empty();
            let name = if is_all { file.path.file_name() } else { None };
            file.path = name.map_or(below, Path::new).to_path_buf();
        }
        // The mount's file times differ from those of the recording.
        file.mtime_ns = None;
        if !file.path.starts_with(&dir) {
            file.path = dir.join(file.path.strip_prefix("/").unwrap_or(&file.path));
        }
    }
    Ok(plan)
}

/// Starts to read a plan through the mount. The reads block in the kernel until the mount answers.
fn fill(plan: Plan, cache: u64) -> Result<Arc<Filler>, Fail> {
    let settings = FillSettings {
        budget: Budget::now(Some(cache / 2)),
        follows_program: true,
        keeps_times: false,
    };
    let filler = Filler::start(Arc::new(plan), settings);
    let filler =
        filler.map_err(|error| Fail::input("cannot follow the plan", error, "mount it again"))?;
    Ok(Arc::new(filler))
}

/// Listens for lists of file names.
fn control(path: &Path, mount: &Mount, engine: &Engine) -> Result<Control, Fail> {
    if !engine.follows_order() {
        note("this policy ignores the announced order of files; auto follows it");
    }
    Control::start(path, mount.planner()).map_err(|error| {
        Fail::input(
            "cannot listen for lists",
            format!("{}: {error}", path.display()),
            "name another path",
        )
    })
}

/// The first signal unmounts; for the second one, another handler ends the process.
fn unmount_on(mut signals: Signals, stop: &FuseStop, filler: Option<&Filler>) {
    for _ in signals.forever() {
        ends::waits_for("requests of the mount");
        if let Some(filler) = filler {
            filler.stop();
        }
        match stop.stop() {
            Ok(UnmountOutcome::Clean) => {}
            Ok(UnmountOutcome::Detached) => {
                note("files are still open: the mount is detached and ends when they are closed");
            }
            Err(error) => note(format!("cannot unmount: {error}")),
        }
    }
}

fn front(counts: &MountCounts) -> Front {
    Front {
        what: "files",
        open: counts.handles,
        opened: counts.opened,
        passed: counts.passed,
        requests: counts.reads,
        failed: counts.failed,
        bytes: counts.bytes,
        written: 0,
    }
}
