//! Escapes untrusted text for an HTML page, such as names of traces, files and policies.
//!
//! The escaped text contains no characters that could end an element, a script or an attribute. The escaped text also contains no
//! characters that XML forbids or that change the text direction.

/// Escapes `text` so that it can be put into an element or an attribute of HTML and XML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push('\n'),
            c => escaped.push(harmless(c)),
        }
    }
    escaped
}

/// Returns `letter`, or a replacement if XML forbids it or if it changes the text direction.
fn harmless(letter: char) -> char {
    match letter {
        '\u{fffe}' | '\u{ffff}' | '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => {
            '\u{fffd}'
        }
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Rewrites JSON text so that it can be put into a script element of type `application/json`. The value stays the same,
/// but characters that could end the element, or that [`escape`] would replace, are written as JSON escapes.
pub fn json_in_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        // All of these occur only inside strings: elsewhere JSON has none of them except the newline.
        let plain = letter == '\n' || (harmless(letter) == letter && !"<>&".contains(letter));
        if plain {
            safe.push(letter);
        } else {
            let mut units = [0; 2];
            letter
                .encode_utf16(&mut units)
                .iter()
                .for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")));
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out() {
        let hostile = "</script><script>alert(1)</script>&amp;\"'\u{0}\u{1b}\u{202e}\u{2028}\u{feff}\u{ffff}\u{1f600}";
        let html = escape(hostile);
        assert!(
            !html.contains([
                '<', '>', '"', '\'', '\u{0}', '\u{1b}', '\u{202e}', '\u{2028}', '\u{ffff}'
            ]),
            "{html}"
        );
        assert!(
            html.starts_with("&lt;/script&gt;")
                && html.ends_with('\u{1f600}')
                && html.contains("&amp;amp;")
        );
        let json =
            serde_json::to_string_pretty(&serde_json::json!({ hostile: [hostile] })).expect("JSON");
        let safe = json_in_script(&json);
        assert!(
            !safe.contains(['<', '>', '&', '\u{202e}', '\u{2028}']),
            "{safe}"
        );
        let back: serde_json::Value = serde_json::from_str(&safe).expect("still JSON");
        assert_eq!(
            back,
            serde_json::from_str::<serde_json::Value>(&json).expect("JSON")
        );
    }
}
