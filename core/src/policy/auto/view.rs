//! The values that `auto` uses now, and what limits its readahead, for reports: see [`Tuning`].
//!
//! ```text
//!   streams ──► the active stream with the largest distance ──► that distance, and what limits it:
//!                   too little read ahead, no credit left        ──► Credit
//!                   the distance is at its maximum               ──► Source, or Cache if the cache allows less
//!                   too little read ahead for another reason     ──► Evidence
//!                   none of these                                ──► Reader
//! ```
//! Example: a stream has a distance of 8 MiB of at most 64 MiB, and its reader has never waited for readahead. Then the reported
//! limit is `Reader`. If the stream's readahead ends after 1 MiB because half of the runs of its length end there, the reported
//! limit is `Evidence`.

use super::{ACTIVE, Auto, Stream, distance};
use crate::policy::SourceView;
use crate::policy::tuning::{Limit, Tuning};

impl Auto {
    pub(super) fn view(&self, source: &SourceView) -> Tuning {
        let active = self.active();
        let all = self.files.values().flat_map(|file| &file.all);
        let farthest = all
            .filter(|s| s.clock + ACTIVE > self.clock)
            .max_by_key(|s| s.distance);
        let credit_bytes = self.credit.available(source);
        let (len, run) = farthest.map_or((1, 0), |s| (s.len, s.run));
        let max_distance_bytes = distance::most(source, (len, run), active, &self.effort);
        let distance_bytes = farthest.map_or(0, |s| s.distance);
        let (runs, runs_went_on) = self.survival.over;
        Tuning {
            latency_ns: source.latency_ns,
            rate: distance::known_rate(source),
            distance_bytes,
            max_distance_bytes,
            request_bytes: distance::request(distance_bytes, active.link, source),
            streams: active.link,
            wasted_bytes: self.credit.wasted(source),
            credit_bytes,
            cache_share: self.effort.share(),
            runs: runs.into(),
            runs_went_on: runs_went_on.into(),
            limit: farthest.map_or(Limit::Idle, |stream| {
                limit(stream, source, max_distance_bytes, credit_bytes)
            }),
        }
    }
}

fn limit(stream: &Stream, source: &SourceView, most: u64, credit_bytes: u64) -> Limit {
    // Less than the distance is normal: the rest is read ahead at the next mark.
    let falls_short = stream.ahead() < stream.distance / 4;
    if credit_bytes == 0 && falls_short {
        Limit::Credit
    } else if stream.distance >= most {
        if most < distance::product(source) {
            Limit::Cache
        } else {
            Limit::Source
        }
    } else if falls_short {
        Limit::Evidence
    } else {
        Limit::Reader
    }
}
