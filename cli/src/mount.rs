//! `foreread mount`: mounts a source, prints a line when it can be read, and unmounts on Ctrl-C or a signal.
//!
//! The place goes to stdout when it is mounted, everything else to stderr. Never: leaves a mount behind, unless it is killed.

use crate::args::MountArgs;
use crate::config;
use crate::fail::{Fail, note, say};
use crate::out;
use crate::recording;
use crate::serving::{self, Front, Reporter};
use crate::signals;
use foreread::Engine;
use foreread::front::fuse::{Control, FuseSettings, FuseStop, Mount, MountCounts, Unmounted};
use foreread::front::{FrontError, FrontErrorKind};
use foreread::source;
use foreread_lab::warm::{Budget, FillSettings, Filler};
use foreread_os::threads::{END_PATIENCE, Task};
use foreread_plan::Plan;
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::Arc;

/// Serves until Ctrl-C, SIGTERM or SIGHUP, or until it is unmounted.
pub fn run(args: &MountArgs) -> Result<(), Fail> {
    let tree = source::open_tree(&args.source).map_err(|error| Fail::Input(error.to_string()))?;
    if args.control.is_some() && !tree.lists_versions() {
        let remedy =
            "leave --control out: the files of other sources are read ahead when they are opened";
        return Err(Fail::input(
            "--control needs a prefix of S3",
            args.source.to_string(),
            remedy,
        ));
    }
    let config = config::load()?;
    let (policy, hint) = (
        config.bounded(args.policy.as_deref(), args.max_overfetch.as_deref())?,
        config.hint(args.hint),
    );
    let options = serving::options(&config, &policy, hint.as_ref())
        .cache_bytes(args.cache)
        .appending(args.appending);
    let plan = args
        .plan
        .as_deref()
        .map(|path| planned(path, &args.dir))
        .transpose()?;
    let engine =
        Engine::for_tree(options, &*tree).map_err(|error| Fail::Input(error.to_string()))?;
    serving::note_cache(&engine, args.cache);
    let defaults = tree.defaults();
    let recording = recording::start(args.record.as_deref(), "foreread mount")?;
    let observer = recording::observer(recording.as_ref());
    let settings = FuseSettings {
        allow_other: args.allow_other,
        attr_ttl: args.attr_ttl,
        observer,
        ..FuseSettings::default()
    };
    // Before the mount: a signal in between must not leave it behind.
    signals::end_at_second_signal()?;
    let signals = Signals::new(signals::ending()).map_err(signals::no_handler)?;
    let refused = |error: FrontError| {
        let line = error.to_string();
        if error.kind == FrontErrorKind::System {
            Fail::Cannot(line)
        } else {
            Fail::Input(line)
        }
    };
    let (mount, stop) = Mount::new(tree, engine.clone(), &args.dir, &settings).map_err(refused)?;
    let counter = mount.counter();
    // Before the threads: where it cannot be had, the mount goes as it came.
    #[cfg(feature = "metrics")]
    let _metrics = {
        let own = mount.counter();
        serving::metrics(args.metrics, &engine, move || front(&own()))?
    };
    let control = args
        .control
        .as_deref()
        .map(|path| control(path, &mount, &engine))
        .transpose()?;
    let ending = signals.handle();
    let filler = plan.map(|plan| fill(plan, args.cache)).transpose()?;
    let ends = filler.clone();
    let waits = Task::start("foreread-signals", move || {
        unmount_on(signals, &stop, ends.as_deref())
    });
    let waits = waits.map_err(|error| Fail::Input(error.to_string()))?;
    if args.allow_other {
        note(format!(
            "every user of this machine may open {}, as far as permissions allow",
            args.dir.display()
        ));
    }
    let own = mount.counter();
    let reporter = Reporter::start(engine.clone(), move || front(&own()), args.stats_every)?;
    note(serving::setup(
        &engine,
        defaults,
        &config.origins(&policy, hint.as_ref()),
    ));
    let said = out::print(format!("{}\n", args.dir.display()));
    let ran = mount.run();
    drop(control);
    ending.close();
    let _ = waits.within(END_PATIENCE);
    reporter.end();
    say(serving::line(&engine.stats(), &front(&counter())));
    let recorded = recording::end(recording);
    said?;
    ran.map_err(|error| Fail::input("the mount ended", error, "mount it again"))?;
    recorded
}

/// The plan, with its names below the folder of the mount.
fn planned(path: &Path, dir: &Path) -> Result<Plan, Fail> {
    let mut plan =
        foreread_plan::text::open(path).map_err(|error| Fail::Input(error.to_string()))?;
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    for file in &mut plan.files {
        // The mount has times for its files that a recording does not know.
        file.mtime_ns = None;
        if !file.path.starts_with(&dir) {
            file.path = dir.join(file.path.strip_prefix("/").unwrap_or(&file.path));
        }
    }
    Ok(plan)
}

/// Begins to read a plan through the mount. It waits in the kernel until the mount answers.
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

/// Listens for lists of files.
fn control(path: &Path, mount: &Mount, engine: &Engine) -> Result<Control, Fail> {
    if !engine.follows_order() {
        note("the policy takes no notice of the order of files; auto does");
    }
    Control::start(path, mount.planner()).map_err(|error| {
        Fail::input(
            "cannot listen for lists",
            format!("{}: {error}", path.display()),
            "name another place",
        )
    })
}

/// The first signal unmounts; the second ends the process, by another handler.
fn unmount_on(mut signals: Signals, stop: &FuseStop, filler: Option<&Filler>) {
    for _ in signals.forever() {
        if let Some(filler) = filler {
            filler.stop();
        }
        match stop.stop() {
            Ok(Unmounted::Clean) => {}
            Ok(Unmounted::Detached) => {
                note("files are still open: detached now, ends when they are closed");
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
        requests: counts.reads,
        failed: counts.failed,
        bytes: counts.bytes,
    }
}
