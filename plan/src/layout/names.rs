//! Names of parts, with `*` for any characters.
//!
//! `model.layers.0.*,lm_head.weight` matches `model.layers.0.w` and `lm_head.weight`. An empty list matches every name.

#[derive(Clone, Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Parses patterns; an empty list matches every name.
    pub fn new(patterns: Vec<String>) -> Names {
        Names(patterns)
    }

    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, name: &str) -> bool {
        self.is_all() || self.0.iter().any(|pattern| matches(pattern, name))
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// The parts between the stars must occur in order, the first at the start of the name and the last at its end.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = name.find(piece) else {
            return false;
        };
        name = &name[at + piece.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_characters() {
        let names = ["layer.0.*", "*.bias", "a*b*c", "lm_head"];
        let names = Names::new(names.map(str::to_string).to_vec());
        for name in "layer.0. layer.0.w x.bias abc a1b2c abbc lm_head".split(' ') {
            assert!(names.has(name), "{name}");
        }
        for name in "layer.1.w bias ac ab acb lm_head2 ".split(' ') {
            assert!(!names.has(name), "{name}");
        }
        assert!(Names::default().has("anything") && !Names::new(vec!["ab*ba".into()]).has("aba"));
    }
}
