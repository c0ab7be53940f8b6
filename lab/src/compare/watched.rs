//! One run of one policy of a comparison, with an observer: the run that `compare` would make first, with the
//! same page, cache, limits and random numbers. So the explanation fits the row of `compare`.
//!
//! ```text
//!   model   simulator::run_watched ──────────────────────────────────────────────────► Watch
//!   file    live::engine ──event log──► a fresh machine, which decides the same ──► Watch     the log has no name
//! ```
//! Never: another way to set up a run than [`super::Case`]'s, or a live run slowed by the observer: it works
//! when it is over.

use super::{Case, CompareError, ComparePlan, OnPage, ReadBy, place, possible, reads};
use crate::live::LiveError;
use crate::replay::bases;
use foreread::eventlog::{ReplayError, check_log_among};
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_core::units::PageSize;
use foreread_history::{OPPONENTS, policies};
use foreread_report::progress::Silent;
use foreread_sim::device::presets::Preset;
use foreread_sim::simulator::RunResult;
use foreread_sim::simulator::{self, Watch};
use foreread_sim::workload::Workload;
use place::OpenTarget;
use std::io::BufReader;

/// A run, and what it was made with.
#[derive(Clone, Debug)]
pub struct Watched {
    pub result: RunResult,
    pub policy: PolicySpec,
    /// In the notation of `--on`.
    pub source: String,
    /// One line about it.
    pub source_about: String,
    /// Size of the cache in bytes.
    pub cache_bytes: u64,
    pub page: PageSize,
    /// What a reader must know, a sentence each.
    pub notes: Vec<String>,
}

/// What an observer has to know before the run.
pub struct Scene<'a> {
    /// The reads, in separate files.
    pub workload: &'a Workload,
    /// Size of a cache page.
    pub page: PageSize,
    /// Where each of the files begins in the one that is read; empty where each is read for itself.
    pub bases: Vec<u64>,
}

/// What a live run was told from.
const BY_ITS_LOG: &str = "This was one run of the engine, told from its event log: a fresh machine was fed the same \
    events and decided the same; the times are those of the run";

/// Runs `policy` once on the plan's reads at the first place of the plan. `watch` is made for what it will see.
///
/// # Errors
/// As [`super::run`]; and the log of a live run cannot be kept, or does not replay.
pub fn run<W: Watch>(
    plan: &ComparePlan,
    policy: PolicyDraft,
    watch: impl FnOnce(&Scene<'_>) -> W,
) -> Result<(Watched, W), CompareError> {
    let plan = &ComparePlan {
        policies: vec![policy.clone()],
        runs: Some(1),
        ..plan.clone()
    };
    let all = reads::all(plan)?;
    possible(plan)?;
    let places = place::all(plan, false, &mut Silent)?;
    let (Some(reads), Some(place)) = (all.first(), places.first()) else {
        unreachable!("a plan has reads and places")
    };
    let mut case = Case::new(plan, place, reads, &[], Vec::new())?;
    let workload = case.workload(0)?.into_owned();
    let name = policy.to_string();
    let row = case.rows.iter().position(|row| row.policy == name);
    let row = case
        .rows
        .swap_remove(row.expect("the plan has this policy alone, and none"));
    let ReadBy::Policy(spec) = &row.read_by else {
        unreachable!("a named policy is one of ours")
    };
    let mut notes: Vec<String> = place
        .notes()
        .into_iter()
        .chain(case.notes.clone())
        .collect();
    let (result, watch) = if let OpenTarget::Model(preset) = place {
        let mut watch = watch(&Scene {
            workload: &workload,
            page: row.page,
            bases: Vec::new(),
        });
        (
            case.watch(
                preset,
                OnPage {
                    policy: spec,
                    page: row.page,
                },
                &workload,
                &mut watch,
            ),
            watch,
        )
    } else {
        notes.push(BY_ITS_LOG.to_string());
        let apart = plan
            .replay
            .as_ref()
            .map_or(&workload, |replay| &replay.workload);
        let mut watch = watch(&Scene {
            workload: apart,
            page: row.page,
            bases: bases(&apart.files).0,
        });
        (
            case.watch_live(
                OnPage {
                    policy: spec,
                    page: row.page,
                },
                &workload,
                &mut watch,
            )?,
            watch,
        )
    };
    let (source, source_about, cache_bytes) = (place.name(), place.about(), case.cache_bytes);
    Ok((
        Watched {
            result,
            policy: spec.clone(),
            source,
            source_about,
            cache_bytes,
            page: row.page,
            notes,
        },
        watch,
    ))
}

impl Case<'_> {
    fn watch(
        &self,
        preset: &Preset,
        OnPage { policy, page }: OnPage<'_>,
        workload: &Workload,
        watch: &mut dyn Watch,
    ) -> RunResult {
        let (config, host_ns_per_kib) = (self.config(preset, page), preset.host_ns_per_kib);
        let setup = simulator::Setup {
            workload,
            policy,
            config,
            host_ns_per_kib,
        };
        simulator::run_watched(&setup, preset.build(self.plan.seed), watch)
    }

    /// Lives it first, and looks at its log then.
    fn watch_live(
        &self,
        policy: OnPage<'_>,
        workload: &Workload,
        watch: &mut dyn Watch,
    ) -> Result<RunResult, CompareError> {
        let place = "making an event log in the folder for temporary files (TMPDIR names another)";
        // Without a name nothing is left of it, however this ends.
        let log = tempfile::tempfile().map_err(LiveError::io(place))?;
        let path = foreread_os::open::descriptor_path(&log);
        let result = self.live(policy, workload, self.plan.seed, Some(path))?;
        let replayed = check_log_among(
            BufReader::new(&log),
            &[&policies(), OPPONENTS],
            Some(&mut |event, notes| {
                watch.event(event);
                watch.notes(notes);
            }),
        );
        match replayed {
            Ok(_) => Ok(result),
            Err(ReplayError::Io { error, .. }) => {
                Err(LiveError::io("reading the event log again")(error).into())
            }
            Err(error) => Err(CompareError::Log(error.to_string())),
        }
    }
}
