//! Matches the patterns of shells and udev, and decides whether a path with patterns refers to a disk.
//!
//! ```text
//!   /sys/block/sd*/queue/read_ahead_kb     /sys/class/bdi/8:0/read_ahead_kb     /dev/sd[a-c]     /dev/disk/by-id/ata-X
//! ```
//! `*` replaces a part of a path that is not known.

/// The names of a disk, or of a mount without a disk.
#[derive(Clone, Debug, Default)]
pub struct DiskNames {
    /// `sda`; for a mount, its number.
    pub name: String,
    /// `8:0`
    pub number: Option<String>,
    pub partitions: Vec<String>,
    /// Links to it and to its partitions: `/dev/disk/by-id/ata-X`.
    pub links: Vec<String>,
    /// The model as it appears in links of `/dev/disk/by-id`, if udev has kept no links.
    pub model: Option<String>,
    pub is_disk: bool,
}

impl DiskNames {
    /// Returns whether the pattern matches the device node of the disk or of one of its partitions, because `blockdev` on a partition also
    /// sets the whole disk.
    #[must_use]
    pub fn has_node(&self, pattern: &str) -> bool {
        let short = pattern.strip_prefix("/dev/").unwrap_or(pattern);
        let is_its = |name: &String| is_match(short, name);
        self.is_disk
            && (is_its(&self.name)
                || self.partitions.iter().any(is_its)
                || self.links.iter().any(|link| is_match(pattern, link))
                || pattern.starts_with("/dev/disk/by-id/")
                    && self
                        .model
                        .as_ref()
                        .is_some_and(|model| pattern.contains(model)))
    }

    /// Returns whether the pattern matches the path of the disk's `read_ahead_kb`.
    #[must_use]
    pub fn has_setting(&self, pattern: &str) -> bool {
        let mut parts: Vec<&str> = Vec::new();
        for part in pattern.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                _ => parts.push(part),
            }
        }
        let is_number = |part: &str| {
            self.number
                .as_deref()
                .is_some_and(|number| is_match(part, number))
        };
        let is_ours = |part: &str| is_match(part, &self.name) || is_number(part);
        match parts[..] {
            [.., "bdi", device, last] if is_match(last, "read_ahead_kb") => {
                is_number(device) || is_ours(device)
            }
            [.., device, queue, last] if is_match(last, "read_ahead_kb") => {
                self.is_disk
                    && (is_match(queue, "queue") || is_match(queue, "bdi"))
                    && is_ours(device)
            }
            [whole] => self.is_disk && whole.starts_with('*') && whole.ends_with("read_ahead_kb"),
            _ => false,
        }
    }
}

/// A longer pattern matches nothing.
const MAX_PATTERN_BYTES: usize = 4096;

/// Returns whether a shell pattern (`*`, `?`, `[a-z]`) matches `text`.
#[must_use]
pub fn is_match(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // The pattern after the last `*`, and the text that it has not matched yet: if the rest does not fit, the `*` takes one more letter.
    let mut again: Option<(&str, &str)> = None;
    while pattern.len() <= MAX_PATTERN_BYTES {
        if let Some(rest) = pattern.strip_prefix('*') {
            (pattern, again) = (rest, Some((rest, text)));
        } else if let Some((fits, rest)) = first(pattern)
            && let Some(letter) = text.chars().next().filter(|letter| fits(*letter))
        {
            (pattern, text) = (rest, &text[letter.len_utf8()..]);
        } else if pattern.is_empty() && text.is_empty() {
            return true;
        } else {
            let Some((after, left)) = again else { break };
            let mut letters = left.chars();
            if letters.next().is_none() {
                break;
            }
            (pattern, text) = (after, letters.as_str());
            again = Some((after, text));
        }
    }
    false
}

/// Which letters the first sign of a pattern matches, and the rest of the pattern.
fn first(pattern: &str) -> Option<(impl Fn(char) -> bool, &str)> {
    let mut signs = pattern.chars();
    let sign = signs.next()?;
    let (set, rest) = match signs.as_str().split_once(']').filter(|_| sign == '[') {
        Some((set, rest)) => (Some(set), rest),
        None => (None, signs.as_str()),
    };
    let fits = move |letter| match set {
        Some(set) => in_set(set, letter),
        None => sign == '?' || sign == letter,
    };
    Some((fits, rest))
}

fn in_set(set: &str, letter: char) -> bool {
    let inner = set.strip_prefix(['!', '^']);
    let letters: Vec<char> = inner.unwrap_or(set).chars().collect();
    let mut at = 0;
    let mut is_in = false;
    while at < letters.len() {
        let is_range = letters.get(at + 1) == Some(&'-') && at + 2 < letters.len();
        let last = letters[if is_range { at + 2 } else { at }];
        is_in |= (letters[at]..=last).contains(&letter);
        at += if is_range { 3 } else { 1 };
    }
    is_in != inner.is_some()
}

/// Expands braces: `sd{a,b}` gives `sda`, `sdb`; `sd{a..c}` also gives `sdc`.
#[must_use]
pub fn braces(word: &str) -> Vec<String> {
    if word.len() > MAX_WORD_BYTES {
        return vec![word.to_string()];
    }
    let found = word.match_indices('{').find_map(|(at, _)| {
        let end = at + word[at..].find('}')?;
        let inner = &word[at + 1..end];
        let parts: Vec<String> = match inner.split_once("..") {
            _ if inner.contains(',') => inner.split(',').map(str::to_string).collect(),
            Some((first, last)) => range(first, last)?,
            None => return None,
        };
        Some((at, end, parts))
    });
    let Some((at, end, parts)) = found else {
        return vec![word.to_string()];
    };
    let whole = |part: &String| format!("{}{part}{}", &word[..at], &word[end + 1..]);
    parts
        .iter()
        .map(whole)
        .flat_map(|word| braces(&word))
        .take(MAX_WORDS)
        .collect()
}

/// A longer word is not expanded.
const MAX_WORD_BYTES: usize = 512;
/// Maximum number of words into which the braces of one word are expanded.
pub const MAX_WORDS: usize = 256;

fn range(first: &str, last: &str) -> Option<Vec<String>> {
    if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
        return Some(
            (first..=last)
                .take(MAX_WORDS)
                .map(|n| n.to_string())
                .collect(),
        );
    }
    let (first, last) = (first.parse::<char>().ok()?, last.parse::<char>().ok()?);
    Some(
        (first..=last)
            .take(MAX_WORDS)
            .map(|letter| letter.to_string())
            .collect(),
    )
}
