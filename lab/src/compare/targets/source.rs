//! A target that is a source of the engine other than a file, such as an S3 object or an RBD image. All runs share one connection, because
//! a new connection for each run would not empty the caches of the storage. In addition to the rows for policies, the table of an RBD image
//! has rows for librbd.

#[cfg(feature = "rbd")]
use super::Row;
use super::{CompareOn, Description, OnPage, Run, Target, TargetName, engine};
use crate::compare::CompareError;
use crate::live::{LiveError, Pace};
use foreread::OpenError;
use foreread::source::{self, Source, SourceName};
use foreread_os::failure::Failure;
use foreread_sim::simulator::RunResult;
use std::sync::Arc;
#[cfg(feature = "rbd")]
use {crate::live::librbd, crate::report::RowKind};

/// The note about the rows of librbd.
#[cfg(feature = "rbd")]
const LIBRBD_ROWS: &str = "The rows librbd* are librbd itself, with a new client and an empty cache of 32 MiB for each run. They use the \
    default settings (the cache policy writearound, which does not read ahead), the cache policy writeback, and the readahead of 4 MiB of \
    [Crume 2014], which is never disabled";

/// Finds any source of the engine by its name: `nbd://...`, `s3://...`, `rbd:...`.
pub fn source(name: SourceName) -> CompareOn {
    Arc::new(name)
}

pub(super) fn parse(name: &SourceName) -> Option<Result<CompareOn, Failure>> {
    source::is_remote(name).then(|| Ok(source(name.clone())))
}

impl TargetName for SourceName {
    fn shown(&self) -> String {
        self.to_string()
    }

    fn open(&self) -> Result<Box<dyn Target>, CompareError> {
        let source = source::open(self).map_err(OpenError::from);
        let source = source.map_err(LiveError::from)?;
        Ok(Box::new(OnSource::new(self.clone(), source)))
    }
}

pub(super) struct OnSource {
    #[cfg_attr(
        not(feature = "rbd"),
        expect(dead_code, reason = "librbd opens it by its name")
    )]
    name: SourceName,
    source: Arc<dyn Source>,
    pub(super) about: Description,
}

impl OnSource {
    pub(super) fn new(name: SourceName, source: Arc<dyn Source>) -> OnSource {
        let notes = vec![format!(
            "{} has its own caches, which foreread cannot empty",
            source.describe()
        )];
        let [shown, about] = [name.to_string(), source.describe()];
        let about = Description {
            notes,
            smallest_page: u64::from(source.alignment().offset).max(512),
            pace: Pace::of(&*source),
            ..Description::new(shown, about, source.size(), source.defaults())
        };
        #[cfg(feature = "rbd")]
        let about = match name.scheme() == "rbd" {
            true => with_librbd(about),
            false => about,
        };
        OnSource {
            name,
            source,
            about,
        }
    }
}

#[cfg(feature = "rbd")]
fn with_librbd(about: Description) -> Description {
    let row = |peer: &librbd::Peer| (peer.name, RowKind::Librbd, librbd::PAGE_BYTES);
    Description {
        own: librbd::PEERS.iter().map(row).collect(),
        own_note: Some(LIBRBD_ROWS),
        ..about
    }
}

impl Target for OnSource {
    fn describe(&self) -> &Description {
        &self.about
    }

    fn run(&self, policy: OnPage<'_>, run: &Run<'_>) -> Result<RunResult, CompareError> {
        engine(Arc::clone(&self.source), policy, run)
    }

    #[cfg(feature = "rbd")]
    fn run_own(&self, row: &Row, run: &Run<'_>) -> Result<Option<RunResult>, CompareError> {
        let mut peers = librbd::PEERS.iter();
        let peer = peers.find(|peer| peer.name == row.policy);
        let peer = peer.expect("a row of librbd is one of its peers");
        Ok(Some(librbd::run(&self.name, peer, run.workload)?))
    }
}
