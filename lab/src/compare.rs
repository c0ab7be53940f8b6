//! `compare`: the same reads under several policies, in pairs, on a file or on a model.
//!
//! Run `i` of every policy has the same requests and, on a model, the same random numbers; on a file the policies take turns
//! at going first, so that a slow minute hits all of them alike. Never: prints, decides what a figure means (that is
//! `report`), or keeps a scratch file (it has no name from the moment it exists).
//!
//! ```text
//!   plan ──► cases: (workload, place) ──► for each run, for each policy in turn ──► RunResult ──► Table
//!                                           model: simulator::run      file: live::engine, live::kernel
//! ```

mod amounts;
mod cache;
mod error;
mod place;
mod reads;
mod rows;
mod site;
mod usual;
pub mod vary;
pub mod watched;

use crate::live;
use crate::replay::{Mode, Replay};
use crate::report::{MappedRun, PolicyRuns, Table};
pub use amounts::*;
pub use error::CompareError;
use foreread::Limits;
use foreread::source::SourceName;
use foreread_core::machine::Config;
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_core::units::PageSize;
use foreread_history::peer;
use foreread_os::output;
use foreread_report::{number, progress::Progress};
use foreread_sim::device::presets::Preset;
use foreread_sim::limits::{self, bound::Bound, oracle};
use foreread_sim::simulator;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::Workload;
use place::OpenTarget;
use reads::Reads;
use rows::{OnPage, ReadBy, Row};
pub use site::Site;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use usual::{USUAL_POLICIES, WIDE_POLICIES};
use usual::{chosen, wide};

/// What is to be compared. What is left open is chosen here.
#[derive(Clone, Debug, Default)]
pub struct ComparePlan {
    /// `NAME:key=value,...`; [`USUAL_WORKLOADS`] when open.
    pub workload: Option<String>,
    /// A trace, instead of a workload.
    pub replay: Option<Arc<Replay>>,
    /// Where; a scratch file and two models when open.
    pub on: Option<CompareOn>,
    /// Policies in the order of their rows; [`USUAL_POLICIES`] when empty. `none` is added where missing.
    pub policies: Vec<PolicyDraft>,
    /// No row of `none` beside them: nothing is compared.
    pub alone: bool,
    /// Which tables get a row of the oracle.
    pub oracle: OracleRow,
    /// Runs of each policy; [`MODEL_RUNS`], [`FILE_RUNS`] or [`SCRATCH_RUNS`] when open.
    pub runs: Option<u32>,
    /// Size of the cache in bytes; the workload's own or [`CACHE_BYTES`] when open.
    pub cache_bytes: Option<u64>,
    /// Size of a cache page; the workload's own when open.
    pub page: Option<PageSize>,
    /// Seed of the first run; run `i` has this plus `i`.
    pub seed: u64,
    /// Bytes that the workload spans; see [`SPAN_BYTES`].
    pub size_bytes: Option<u64>,
    /// Directory for the event log of every run on a file; it is made where it is not there.
    pub event_logs: Option<PathBuf>,
    /// An event log takes the place of a file that is there.
    pub replaces_logs: bool,
    /// A source that grows meanwhile was appended to: see [`foreread::Options::appending`].
    pub appending: bool,
    /// Whether the first run of each policy on a model is mapped; that takes the time of one run more.
    pub maps: bool,
    pub site: Site,
}

/// Which tables get a row of the oracle ([`foreread_sim::limits`]). There is none on a file: its timing is not known beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OracleRow {
    /// Those on models, if the plan names no policies.
    #[default]
    Usual,
    /// Those on models.
    OnModels,
    /// It was named: a plan with a file is refused.
    Asked,
}

/// A place to read from.
#[derive(Clone, Debug)]
pub enum CompareOn {
    /// A file or block device.
    File(PathBuf),
    /// A device model by its name.
    Model(String),
    /// A device model that has no name in the list.
    Preset(&'static Preset),
    /// Any source of the engine by its name: `nbd://...`, `s3://...`, `rbd:...`.
    Source(SourceName),
    /// A device model that really sleeps, read by the engine.
    ModelLive(&'static Preset),
}

/// Threads that sleep in a live model, at most.
const MAX_SLEEPERS: u32 = 256;

/// Measures everything that the plan asks for.
///
/// # Errors
/// See [`CompareError`]; nothing is measured when the plan cannot be carried out.
pub fn run(
    plan: &ComparePlan,
    mut progress: &mut dyn Progress,
) -> Result<Vec<Table>, CompareError> {
    run_each(plan, &mut progress, |_, _| ())
}

/// The same; `each` is given every table as soon as it is complete, between two measurements.
///
/// # Errors
/// As above.
pub fn run_each<P: Progress>(
    plan: &ComparePlan,
    progress: &mut P,
    mut each: impl FnMut(&mut P, &Table),
) -> Result<Vec<Table>, CompareError> {
    // The names first: a mistyped one should not cost a scratch file.
    let workloads = reads::all(plan)?;
    possible(plan)?;
    let no_file = reads::no_file(plan, &workloads);
    let places = place::all(plan, no_file.is_none(), progress)?;
    let mut cases = Vec::new();
    for place in &places {
        let (fit, mut left_out) = reads::fitting(plan, place, &workloads);
        left_out.extend(no_file.clone());
        for workload in fit {
            cases.push(Case::new(
                plan,
                place,
                workload,
                &left_out,
                wide(plan, place),
            )?);
        }
    }
    site::make_log_folder(plan, &places)?;
    let measure = |case: Case<'_>| {
        let table = case.run(progress)?;
        each(progress, &table);
        Ok(table)
    };
    cases.into_iter().map(measure).collect()
}

/// Refuses what only a model can do anywhere else, before a scratch file is made.
fn possible(plan: &ComparePlan) -> Result<(), CompareError> {
    if !matches!(plan.on, Some(CompareOn::Model(_) | CompareOn::Preset(_)))
        && let Some(peer) = plan.policies.iter().find(|p| peer::is_one(p.info))
    {
        return Err(CompareError::Peer(peer.to_string()));
    }
    match &plan.on {
        Some(CompareOn::File(path)) if plan.oracle == OracleRow::Asked => {
            return Err(CompareError::Oracle(path.display().to_string()));
        }
        Some(CompareOn::Source(name)) if plan.oracle == OracleRow::Asked => {
            return Err(CompareError::Oracle(name.to_string()));
        }
        Some(CompareOn::ModelLive(preset)) if plan.oracle == OracleRow::Asked => {
            return Err(CompareError::Oracle(format!(
                "the live run of model:{}",
                preset.name
            )));
        }
        None if plan.oracle == OracleRow::Asked => {
            return Err(CompareError::Oracle("the scratch file".to_string()));
        }
        _ => {}
    }
    Ok(())
}

/// One table to be.
struct Case<'a> {
    plan: &'a ComparePlan,
    place: &'a OpenTarget,
    workload: &'a Reads,
    notes: Vec<String>,
    rows: Vec<Row>,
    runs: u32,
    cache_bytes: u64,
    size: u64,
    /// What no run can be below, run by run; only a model has it.
    bounds: Vec<Bound>,
}

impl<'a> Case<'a> {
    fn new(
        plan: &'a ComparePlan,
        place: &'a OpenTarget,
        workload: &'a Reads,
        left_out: &[String],
        more: Vec<PolicyDraft>,
    ) -> Result<Case<'a>, CompareError> {
        let cache_bytes = plan
            .cache_bytes
            .or(workload.cache_bytes())
            .unwrap_or(CACHE_BYTES);
        let size = place
            .span(plan, workload)
            .max(workload.least_bytes().min(place.capacity()));
        let mut notes = left_out.to_vec();
        notes.extend(plan.site.notes.clone());
        notes.extend(workload.notes(place));
        if let Some(asked) = plan.size_bytes.filter(|asked| *asked > size) {
            let [asked, size] = [asked, size].map(number::size_b);
            notes.push(format!(
                "{} holds {size}: --size {asked} is cut to that",
                place.name()
            ));
        }
        let runs = place.runs(plan);
        let rows = Vec::new();
        let mut case = Case {
            plan,
            place,
            workload,
            notes,
            rows,
            runs,
            cache_bytes,
            size,
            bounds: Vec::new(),
        };
        let natural = case.workload(0)?.page_bytes;
        for draft in chosen(plan).into_iter().chain(more) {
            let draft = place.configured(&plan.site.readahead, draft)?;
            let by_capacity = draft.wants_capacity();
            let spec = place.ready(draft, cache_bytes)?;
            case.notes
                .extend(place.note(&spec).filter(|_| !by_capacity));
            if by_capacity {
                case.notes.push(format!(
                    "{spec} is {} here: {}",
                    spec.readable(),
                    place.capacity_in_words()
                ));
            }
            let page = case.page_for(&spec, natural)?;
            case.rows.push(Row {
                policy: spec.to_string(),
                read_by: ReadBy::Policy(spec),
                page,
            });
        }
        if place.path().is_some() {
            let page = PageSize::new(4096).unwrap_or(case.rows[0].page);
            case.rows.push(Row {
                policy: "kernel".to_string(),
                read_by: ReadBy::Kernel,
                page,
            });
        }
        if let Some(asked) = plan.cache_bytes {
            cache::check(asked, place, case.rows.iter().map(|row| row.page))?;
        }
        #[cfg(feature = "rbd")]
        case.add_librbd();
        case.add_oracle(natural)?;
        Ok(case)
    }

    /// The rows of librbd itself, beside ours on an image.
    #[cfg(feature = "rbd")]
    fn add_librbd(&mut self) {
        let OpenTarget::Source(source) = self.place else {
            return;
        };
        if source.image().is_none() {
            return;
        }
        let page = PageSize::new(live::librbd::PAGE_BYTES).unwrap_or(self.rows[0].page);
        let peers = live::librbd::PEERS.iter();
        self.rows.extend(peers.map(|peer| Row {
            policy: peer.name.to_string(),
            read_by: ReadBy::Librbd(peer),
            page,
        }));
        self.notes.push(LIBRBD_ROWS.to_string());
    }

    /// The row of the oracle, where there is to be one: with the page that a policy without wishes gets.
    fn add_oracle(&mut self, natural: u64) -> Result<(), CompareError> {
        let wanted = match self.plan.oracle {
            OracleRow::Usual => self.plan.policies.is_empty(),
            OracleRow::OnModels | OracleRow::Asked => true,
        };
        if !wanted || !matches!(self.place, OpenTarget::Model(_)) {
            return Ok(());
        }
        if self
            .workload
            .pace()
            .is_some_and(|pace| pace.mode == Mode::Open)
        {
            self.notes.push(ORACLE_IS_OF_TIME.to_string());
            return Ok(());
        }
        let page = self.page_for(&PolicySpec::none(), natural)?;
        self.rows.push(Row {
            policy: limits::ORACLE.to_string(),
            read_by: ReadBy::Oracle,
            page,
        });
        Ok(())
    }

    fn workload(&self, run: u32) -> Result<Cow<'a, Workload>, CompareError> {
        let seed = self.plan.seed.wrapping_add(u64::from(run));
        self.workload.build(self.place, self.size, seed)
    }

    /// The page of a policy: what was asked for, what the policy needs, what the storage can, what the workload likes.
    fn page_for(&self, spec: &PolicySpec, natural: u64) -> Result<PageSize, CompareError> {
        let wanted = self.plan.page.map(PageSize::bytes);
        let page = match (wanted, spec.info.page_bytes) {
            (Some(page), Some(needs)) if page != needs => {
                return Err(CompareError::Page {
                    policy: spec.to_string(),
                    needs,
                    page,
                });
            }
            (Some(page), _) => page,
            (None, Some(needs)) => needs,
            (None, None) => natural.max(self.place.smallest_page()),
        };
        let refused = || CompareError::Page {
            policy: spec.to_string(),
            needs: natural,
            page,
        };
        PageSize::new(page).ok_or_else(refused)
    }

    fn run(mut self, progress: &mut dyn Progress) -> Result<Table, CompareError> {
        progress.stage(&format!("{} on {}", self.workload, self.place.name()));
        let rows = self.rows.len();
        let total = u64::from(self.runs) * rows as u64;
        let mut results: Vec<Vec<RunResult>> = (0..rows).map(|_| Vec::new()).collect();
        let mut done = 0;
        let budget = self.place.seconds(self.plan).map(live::Budget::seconds);
        progress.step(done, total);
        for run in 0..self.runs {
            if run >= MIN_RUNS && budget.as_ref().is_some_and(live::Budget::is_spent) {
                break;
            }
            let workload = self.workload(run)?;
            if let OpenTarget::Model(preset) = self.place {
                let smallest = self.rows.iter().map(|r| r.page.bytes()).min().unwrap_or(1);
                let page = PageSize::new(smallest).unwrap_or(self.rows[0].page);
                let seed = self.plan.seed.wrapping_add(u64::from(run));
                self.bounds.push(Bound::of_run(
                    &workload,
                    preset,
                    &self.config(preset, page),
                    seed,
                ));
            }
            for turn in 0..rows {
                // A Latin square: each row goes first, second, ... equally often.
                let at = (turn + run as usize) % rows;
                if let Some(result) = self.run_once(&self.rows[at], &workload, run)? {
                    self.check(&self.rows[at], &result)?;
                    results[at].push(result);
                }
                done += 1;
                progress.step(done, total);
            }
        }
        let maps = self.maps()?;
        Ok(Table {
            maps,
            ..self.table(results)
        })
    }

    /// The first run of each policy once more, watched: the runs that are measured are not.
    fn maps(&self) -> Result<Vec<MappedRun>, CompareError> {
        let (OpenTarget::Model(preset), true) = (self.place, self.plan.maps) else {
            return Ok(Vec::new());
        };
        let workload = &self.workload(0)?;
        let map = |row: &Row| {
            let ReadBy::Policy(policy) = &row.read_by else {
                return None;
            };
            let (config, host_ns_per_kib) = (self.config(preset, row.page), preset.host_ns_per_kib);
            let setup = simulator::Setup {
                workload,
                policy,
                config,
                host_ns_per_kib,
            };
            let (_, map) = simulator::run_mapped(&setup, preset.build(self.plan.seed));
            Some(MappedRun {
                policy: row.policy.clone(),
                map,
            })
        };
        Ok(self.rows.iter().filter_map(map).collect())
    }

    /// Nothing for an oracle that has too much to know.
    fn run_once(
        &self,
        row: &Row,
        workload: &Workload,
        run: u32,
    ) -> Result<Option<RunResult>, CompareError> {
        let seed = self.plan.seed.wrapping_add(u64::from(run));
        let result = match (self.place, &row.read_by) {
            (OpenTarget::Model(preset), read_by) => {
                return Ok(self.simulate(preset, read_by, row.page, workload, seed));
            }
            (OpenTarget::File(_) | OpenTarget::Source(_), ReadBy::Policy(spec)) => {
                let event_log = self
                    .plan
                    .event_logs
                    .as_ref()
                    .map(|dir| self.log_path(dir, &row.policy, run));
                event_log.as_ref().map_or(Ok(()), |log| {
                    let what = format!("making the event log {}", log.display());
                    output::check(log, self.plan.replaces_logs).map_err(live::LiveError::io(what))
                })?;
                self.live(
                    OnPage {
                        policy: spec,
                        page: row.page,
                    },
                    workload,
                    seed,
                    event_log,
                )?
            }
            (OpenTarget::File(file), ReadBy::Kernel) => live::kernel(&file.path, workload)?,
            #[cfg(feature = "rbd")]
            (OpenTarget::Source(source), ReadBy::Librbd(peer)) => live::librbd::run(
                source
                    .image()
                    .expect("a row of librbd is made for an image"),
                peer,
                workload,
            )?,
            #[cfg(feature = "rbd")]
            (OpenTarget::File(_), ReadBy::Librbd(_)) => {
                unreachable!("only an image has rows of librbd")
            }
            (OpenTarget::File(_) | OpenTarget::Source(_), ReadBy::Oracle) => {
                unreachable!("only a model has a row of the oracle")
            }
            (OpenTarget::Source(_), ReadBy::Kernel) => {
                unreachable!("only a file has a row of the kernel")
            }
        };
        Ok(Some(result))
    }

    /// A run of the engine on the place, which is no model.
    fn live(
        &self,
        OnPage { policy, page }: OnPage<'_>,
        workload: &Workload,
        seed: u64,
        event_log: Option<PathBuf>,
    ) -> Result<RunResult, live::LiveError> {
        let (source, limits) = match self.place {
            OpenTarget::File(file) => (live::file(&file.path)?, None),
            OpenTarget::Source(source) => {
                let limits = source.preset().map(|preset| self.live_limits(preset, page));
                (source.source(seed, workload), limits)
            }
            OpenTarget::Model(_) => unreachable!("a model is simulated"),
        };
        if self.plan.appending {
            source.allow_appends();
        }
        let (cache_bytes, page_bytes) = (self.cache_bytes, page.bytes());
        live::engine(
            source,
            workload,
            &live::Setup {
                policy,
                cache_bytes,
                page_bytes,
                event_log,
                limits,
            },
        )
    }

    /// The limits that a run on the model has, for the engine, and a thread for each readahead in flight.
    fn live_limits(&self, preset: &Preset, page: PageSize) -> (Limits, u32) {
        let config = self.config(preset, page);
        let limits = Limits {
            max_fetch_bytes: Some(config.max_fetch_bytes),
            max_in_flight: config.max_in_flight,
            max_ahead_in_flight: Some(config.max_ahead_in_flight),
            max_piggyback_bytes: config.max_piggyback_bytes,
            ..Limits::default()
        };
        (limits, config.max_ahead_in_flight.clamp(1, MAX_SLEEPERS))
    }

    fn simulate(
        &self,
        preset: &Preset,
        read_by: &ReadBy,
        page: PageSize,
        workload: &Workload,
        seed: u64,
    ) -> Option<RunResult> {
        let (config, host_ns_per_kib) = (self.config(preset, page), preset.host_ns_per_kib);
        match read_by {
            ReadBy::Policy(policy) => Some(simulator::run(
                &simulator::Setup {
                    workload,
                    policy,
                    config,
                    host_ns_per_kib,
                },
                preset.build(seed),
            )),
            ReadBy::Oracle => {
                let bound = self.bounds.last().copied().unwrap_or_default();
                oracle::run(&oracle::Setup {
                    workload,
                    config,
                    preset,
                    seed,
                    bound,
                })
            }
            ReadBy::Kernel => unreachable!("a model has no kernel row"),
            #[cfg(feature = "rbd")]
            ReadBy::Librbd(_) => unreachable!("only an image has rows of librbd"),
        }
    }

    /// The cache of a run on a model.
    fn config(&self, preset: &Preset, page: PageSize) -> Config {
        let mut config = Config::new(page, self.cache_bytes);
        config.max_in_flight = preset.connections;
        config.max_ahead_in_flight = preset.connections / 2;
        config.max_short_ahead_in_flight = config.max_ahead_in_flight;
        config.max_fetch_bytes = preset.max_fetch_bytes;
        config.bounded()
    }

    /// A run that is faster than is possible is no result.
    fn check(&self, row: &Row, result: &RunResult) -> Result<(), CompareError> {
        let Some(bound) = self
            .bounds
            .last()
            .filter(|b| result.time_s < b.ns() as f64 / 1e9)
        else {
            return Ok(());
        };
        Err(CompareError::Impossible {
            policy: row.policy.clone(),
            workload: self.workload.to_string(),
            place: self.place.name(),
            got_ns: (result.time_s * 1e9).round() as u64,
            bound_ns: bound.ns(),
        })
    }

    /// A name for the log of one run: what is not a letter, a digit or one of `.-` becomes `_`.
    fn log_path(&self, dir: &Path, policy: &str, run: u32) -> PathBuf {
        let name = format!("{}-{policy}-{run}.log", self.workload);
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || ".-".contains(c) {
                c
            } else {
                '_'
            }
        };
        dir.join(name.chars().map(plain).collect::<String>())
    }

    fn table(self, results: Vec<Vec<RunResult>>) -> Table {
        let runs = results.first().map_or(0, |runs| runs.len() as u32);
        let mut notes = self.place.notes();
        notes.extend(self.notes);
        if self
            .rows
            .iter()
            .zip(&results)
            .any(|(row, runs)| matches!(row.read_by, ReadBy::Oracle) && runs.is_empty())
        {
            notes.push(format!(
                "The oracle was left out: it takes at most {} reads",
                limits::MAX_TOUCHES
            ));
        }
        let pages: Vec<u64> = self.rows.iter().map(|r| r.page.bytes()).collect();
        if pages.iter().any(|p| *p != pages[0]) {
            let list: Vec<String> = self
                .rows
                .iter()
                .map(|r| format!("{} {}", r.policy, r.page.bytes()))
                .collect();
            notes.push(format!(
                "The rows have different cache pages, in bytes: {}",
                list.join(", ")
            ));
        }
        let rows = self.rows.into_iter().zip(results);
        let policies = rows.map(|(row, runs)| PolicyRuns {
            kind: row.read_by.kind(),
            policy: row.policy,
            runs,
        });
        Table {
            workload: self.workload.to_string(),
            source: self.place.name(),
            source_about: self.place.about(),
            runs,
            seed: self.plan.seed,
            cache_bytes: self.cache_bytes,
            page_bytes: pages[0],
            notes,
            bounds: self.bounds,
            pace: self.workload.pace(),
            policies: policies.collect(),
            maps: Vec::new(),
        }
    }
}

/// What the rows of librbd are.
#[cfg(feature = "rbd")]
const LIBRBD_ROWS: &str = "The rows librbd* are librbd itself, a new client with an empty cache of 32 MiB for each run: as \
    shipped (writearound, which reads nothing ahead), the same with writeback, and with [Crume 2014]'s 4 MiB, never off";

/// Why a replay in mode open has no oracle.
const ORACLE_IS_OF_TIME: &str = "The oracle was left out: it is a limit of the total time, and this mode keeps the times of the trace";
