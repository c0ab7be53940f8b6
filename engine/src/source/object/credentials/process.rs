//! Runs the user's credential_process without a shell; errors never contain its output.

use crate::source::object::refusal::Unfit;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of the program. Chosen value: it may query a service, but no longer than a chain may take.
const LIMIT: Duration = Duration::from_secs(25);
/// Maximum size of the output.
const MAX_BYTES: u64 = 64 << 10;
const LOOKS_EVERY: Duration = Duration::from_millis(5);

pub async fn run(what: &str, command: &str, remedy: &str) -> Result<String, Unfit> {
    let unfit = |why: String| Unfit::new(format!("{what} {why}"), remedy);
    let words = words(command);
    let Some((program, arguments)) = words.split_first() else {
        return Err(unfit("is empty".to_string()));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let done = tokio::task::spawn_blocking(move || output(command)).await;
    let text =
        done.map_err(|_| unfit("failed, because the thread that ran it panicked".to_string()))?;
    text.map_err(unfit)
}

fn output(mut command: Command) -> Result<String, String> {
    let mut child = command
        .spawn()
        .map_err(|error| format!("could not be started: {error}"))?;
    let mut pipe = child.stdout.take();
    let reader = std::thread::Builder::new()
        .name("foreread-cred".to_string())
        .spawn(move || {
            let mut text = String::new();
            let read = pipe
                .as_mut()
                .map(|pipe| pipe.take(MAX_BYTES + 1).read_to_string(&mut text));
            read.is_some_and(|read| read.is_ok()).then_some(text)
        });
    let reader = reader.map_err(|error| format!("could not be read: {error}"))?;
    let since = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if since.elapsed() < LIMIT => std::thread::sleep(LOOKS_EVERY),
            _ => {
                let _ = (child.kill(), child.wait());
                return Err(format!("took longer than {LIMIT:?}"));
            }
        }
    };
    if !status.success() {
        return Err(format!("failed ({status})"));
    }
    let text = reader.join().ok().flatten();
    text.filter(|text| text.len() as u64 <= MAX_BYTES)
        .ok_or_else(|| "printed no text, or too much".to_string())
}

/// Splits a command into words as a shell does: blanks separate words, quotes keep them together.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some(open), _) if letter == open => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_cut_as_a_shell_does() {
        assert_eq!(
            words(r#" a  "b c" 'd "e' f\ g "" "#),
            ["a", "b c", "d \"e", "f g", ""]
        );
        assert!(words("  ").is_empty());
    }
}
