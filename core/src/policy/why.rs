//! The names of the rules by which policies decide, the same for all policies.
//!
//! A policy states the rule that it followed ([`super::Answer::why`]), and reports show this rule. The rule has no effect on decisions.
//! If a policy states no rule, the report gives no reason.
//!
//! ```text
//!   on    FileStart  Sequential  Large  Context  NextWindow  WindowEnd  FoundMark  Elsewhere  Thrashed  Triggered
//!         Around  Code  NextFile  Region  Asked
//!   off   NoHistory  HintRandom  Shrunk  Off  Broken  BelowTrigger  NotYet  AllCached  EndOfFile  RunsEnd  NoCredit  NoRoom
//!         SpentBytes  ManyMisses
//! ```

/// The rule by which a policy gave an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The read begins at the start of its file.
    FileStart,
    /// The read begins where the last read of its open description ended.
    Sequential,
    /// The read is larger than the largest window.
    Large,
    /// The read does not continue an earlier read, but cached pages before it indicate a stream: context readahead.
    Context,
    /// The read reached the mark of its latest window.
    NextWindow,
    /// The read missed at the page where its latest window ends.
    WindowEnd,
    /// The read reached a mark of an earlier window: a stream whose state was lost continues.
    FoundMark,
    /// The read is outside the windows of its open description, so a new and smaller window begins (Linux of 2003).
    Elsewhere,
    /// The read missed pages that its own window should have brought. They were evicted before use, or were never fetched.
    Thrashed,
    /// Enough sequential or strided reads were seen, and this is the first readahead request.
    Triggered,
    /// A page fault: pages around it are read.
    Around,
    /// A page fault in code: pages from the faulting page on are read.
    Code,
    /// The file was opened after its predecessor in the order of a listing.
    NextFile,
    /// In such files most bytes near earlier reads were read, too, so the bytes near this read are read ahead.
    Region,
    /// A hint requested exactly these bytes.
    Asked,
    /// The read does not continue an earlier read, and too few cached pages precede it: it is considered random.
    NoHistory,
    /// The reader gave the hint RANDOM.
    HintRandom,
    /// Misses have shrunk the window to zero (Linux of 2003): pages are read one by one.
    Shrunk,
    /// The largest window is zero.
    Off,
    /// The read does not begin where the last one ended, so the count of sequential reads restarts.
    Broken,
    /// The reads are sequential, but fewer than the trigger.
    BelowTrigger,
    /// The latest readahead request still reaches far enough.
    NotYet,
    /// All pages of the next window are cached already.
    AllCached,
    /// Everything up to the end of the file has been requested.
    EndOfFile,
    /// Earlier runs like this one ended before they reached the next bytes.
    RunsEnd,
    /// The waste budget is spent.
    NoCredit,
    /// The cache has no room for more readahead.
    NoRoom,
    /// The reader has read as many bytes as turn the policy off.
    SpentBytes,
    /// So many faults in a row missed that the policy no longer reads around them.
    ManyMisses,
}

impl Why {
    /// All rules; first those by which a policy reads ahead.
    pub const ALL: [Why; 29] = [
        Why::FileStart,
        Why::Sequential,
        Why::Large,
        Why::Context,
        Why::NextWindow,
        Why::WindowEnd,
        Why::FoundMark,
        Why::Elsewhere,
        Why::Thrashed,
        Why::Triggered,
        Why::Around,
        Why::Code,
        Why::NextFile,
        Why::Region,
        Why::Asked,
        Why::NoHistory,
        Why::HintRandom,
        Why::Shrunk,
        Why::Off,
        Why::Broken,
        Why::BelowTrigger,
        Why::NotYet,
        Why::AllCached,
        Why::EndOfFile,
        Why::RunsEnd,
        Why::NoCredit,
        Why::NoRoom,
        Why::SpentBytes,
        Why::ManyMisses,
    ];

    /// Whether a policy that follows this rule reads ahead, as far as the file and the cache allow.
    #[must_use]
    pub fn is_on(self) -> bool {
        self <= Why::Asked
    }

    /// The rule's name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Why::FileStart => "file-start",
            Why::Sequential => "sequential",
            Why::Large => "large-read",
            Why::Context => "context",
            Why::NextWindow => "next-window",
            Why::WindowEnd => "window-end",
            Why::FoundMark => "found-mark",
            Why::Elsewhere => "new-window",
            Why::Thrashed => "thrashed",
            Why::Triggered => "triggered",
            Why::Around => "fault-around",
            Why::Code => "fault-in-code",
            Why::NextFile => "next-file",
            Why::Region => "region",
            Why::Asked => "hint-willneed",
            Why::NoHistory => "no-history",
            Why::HintRandom => "hint-random",
            Why::Shrunk => "window-shrunk",
            Why::Off => "window-zero",
            Why::Broken => "not-in-order",
            Why::BelowTrigger => "below-trigger",
            Why::NotYet => "far-enough",
            Why::AllCached => "all-cached",
            Why::EndOfFile => "end-of-file",
            Why::RunsEnd => "runs-end",
            Why::NoCredit => "no-credit",
            Why::NoRoom => "no-room",
            Why::SpentBytes => "disabled-after",
            Why::ManyMisses => "many-fault-misses",
        }
    }

    /// Like [`Self::name`], but for people: the words that follow "by" in a report.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Why::FileStart => "a read at the start of the file",
            Why::Sequential => "a read that continues where the last one ended",
            Why::Large => "a read larger than the largest window",
            Why::Context => "cached pages before the read (context)",
            Why::NextWindow => "the mark of its window",
            Why::WindowEnd => "a miss at the end of its window",
            Why::FoundMark => "a mark of an earlier window (a lost stream goes on)",
            Why::Elsewhere => "a read outside its windows (a new and smaller window)",
            Why::Thrashed => "a miss in its own window (pages evicted or never fetched)",
            Why::Triggered => "enough reads in order (trigger)",
            Why::Around => "a page fault (read-around)",
            Why::Code => "a page fault in code",
            Why::NextFile => "a file opened after its predecessor in the listing",
            Why::Region => "a read in a part of the file that is mostly read whole",
            Why::Asked => "the hint WILLNEED",
            Why::NoHistory => {
                "a read that follows no read and too few cached pages (taken for random)"
            }
            Why::HintRandom => "the hint RANDOM",
            Why::Shrunk => "misses that shrank the window to nothing",
            Why::Off => "a largest window of 0",
            Why::Broken => "a read that does not begin where the last one ended",
            Why::BelowTrigger => "fewer reads in order than the trigger",
            Why::NotYet => "a latest request that still reaches far enough",
            Why::AllCached => "a next window that is cached already",
            Why::EndOfFile => "the end of the file",
            Why::RunsEnd => "runs like it that ended before",
            Why::NoCredit => "a spent allowance of unused bytes (max-overfetch)",
            Why::NoRoom => "a cache without room for more readahead",
            Why::SpentBytes => "the bytes after which it turns itself off (disable-after)",
            Why::ManyMisses => "too many faults in a row that missed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn each_rule_has_its_own_name_and_words() {
        let names: BTreeSet<&str> = Why::ALL.iter().map(|why| why.name()).collect();
        let words: BTreeSet<&str> = Why::ALL.iter().map(|why| why.words()).collect();
        assert_eq!((names.len(), words.len()), (Why::ALL.len(), Why::ALL.len()));
        assert_eq!(Why::ALL.iter().filter(|why| why.is_on()).count(), 15);
        assert!(Why::ALL.is_sorted());
    }
}
