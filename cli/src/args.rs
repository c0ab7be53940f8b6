//! Arguments that all commands share, and the one-line error for a wrong command line.
//!
//! The help texts are the doc comments of the arguments. `-h` shows the first paragraph of each comment, in at most 24
//! lines of 80 columns; `--help` shows the whole comments. This module does not read files or check names (of policies,
//! for example): each command does that for its own arguments.

pub mod values;

use crate::CommandLine;
#[cfg(feature = "object")]
use crate::config;
use crate::fail::Fail;
use crate::log::LogLevel;
use clap::error::{ContextKind, ContextValue, ErrorKind};
#[cfg(feature = "object")]
use foreread::source::object;
use foreread_report::names;
use std::ffi::OsString;
use std::sync::OnceLock;

/// The options that every command has.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GlobalArgs {
    /// What to report on stderr: off, error, warn, info, debug, trace
    ///
    /// Reports clients, reconnections and errors of sources, one line each. Default: FOREREAD_LOG, or warn.
    #[arg(
        id = "log-level",
        long = "log",
        value_name = "LEVEL",
        global = true,
        hide_short_help = true,
        hide_possible_values = true
    )]
    pub log: Option<LogLevel>,
    /// Replace existing output files
    ///
    /// Applies to every option that names an output file (-o, --json, --html, --record ...). Without --force, an
    /// existing file or link is an error. Links are never followed; --force replaces the link. Pipes, terminals
    /// and /dev/stdout are always allowed.
    #[arg(long, global = true, hide_short_help = true)]
    pub force: bool,
    #[cfg(feature = "object")]
    #[command(flatten)]
    pub stores: StoreArgs,
}

/// `--force` of a command that writes no file: accepted like any option that all commands share, but not shown.
pub fn hidden_force() -> clap::Arg {
    let force = clap::Arg::new("force").long("force").hide(true);
    force.action(clap::ArgAction::SetTrue)
}

/// Settings for requests to object stores: S3, Google Cloud Storage, Azure, HTTP.
#[cfg(feature = "object")]
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Object stores")]
pub struct StoreArgs {
    /// The profile of the AWS tools
    ///
    /// Names a profile of ~/.aws/config and ~/.aws/credentials. Default: AWS_PROFILE, or 'default'. docs/stores.md
    /// lists where credentials come from.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    profile: Option<String>,
    /// The region of S3
    ///
    /// Default: AWS_REGION, the profile's region, or us-east-1. foreread also finds a bucket that is in another region.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    region: Option<String>,
    /// URL of an S3-compatible server
    ///
    /// For example http://127.0.0.1:9000. Plain http is allowed only to this machine, unless AWS_ALLOW_HTTP is true.
    /// docs/stores.md has the variables for other stores.
    #[arg(long, value_name = "URL", global = true, hide_short_help = true)]
    endpoint_url: Option<String>,
    /// Send no credentials (public objects)
    #[arg(long, global = true, hide_short_help = true)]
    no_sign_request: bool,
    /// Accept the charges of an S3 requester-pays bucket
    #[arg(long, global = true, hide_short_help = true)]
    requester_pays: bool,
    /// PEM file of certificates to trust in addition to the system's
    ///
    /// Default: AWS_CA_BUNDLE.
    #[arg(long, value_name = "PATH", global = true, hide_short_help = true)]
    ca_file: Option<String>,
}

#[cfg(feature = "object")]
impl StoreArgs {
    /// Applies the options for object stores to this process. Options on the command line override FOREREAD_OBJECT, which overrides the
    /// settings files.
    pub fn set(&self) -> Result<(), Fail> {
        object::configure_by(config::stores);
        let named = [
            ("profile", &self.profile),
            ("region", &self.region),
            ("endpoint-url", &self.endpoint_url),
            ("ca-file", &self.ca_file),
        ];
        let mut options = Vec::new();
        for (key, value) in named {
            let Some(value) = value else { continue };
            if value.contains(',') {
                let place = format!("--{key}");
                let remedy = "use a name without a comma";
                return Err(Fail::input("the value contains a comma", place, remedy));
            }
            options.push(format!("{key}={value}"));
        }
        options.extend(self.no_sign_request.then(|| "no-sign-request".to_string()));
        options.extend(self.requester_pays.then(|| "requester-pays".to_string()));
        if options.is_empty() {
            return Ok(());
        }
        object::configure(&options.join(",")).map_err(|why| {
            Fail::input(
                why,
                "the settings of stores".to_string(),
                format!("write {}", object::NOTATION),
            )
        })
    }
}

/// The command line of this process, including the program's name.
static GIVEN: OnceLock<Vec<OsString>> = OnceLock::new();

/// Returns the original command line of this process, for commands that execute foreread again.
pub fn given() -> Vec<OsString> {
    GIVEN.get().cloned().unwrap_or_default()
}

static GLOBAL: OnceLock<GlobalArgs> = OnceLock::new();

/// Stores the global options; later calls have no effect.
pub fn set_global(args: &GlobalArgs) {
    let _ = GLOBAL.set(args.clone());
}

/// Returns the global options of this command.
pub fn global() -> GlobalArgs {
    GLOBAL.get().cloned().unwrap_or_default()
}

/// Where the JSON of a command goes.
#[cfg(any(feature = "lab", feature = "object"))]
#[derive(Debug, clap::Args)]
pub struct JsonArgs {
    /// Write JSON to a file, or to stdout
    ///
    /// The key 'schema' names the format. With '-', the JSON replaces the text on stdout. Write a
    /// name without a dot as ./NAME.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Appended to the long help and the manual page of every command.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 a check failed, 2 bad usage or bad input, 3 not possible on this machine, \
    70 a bug of foreread.";
/// Appended for commands that run a program.
const EXIT_CODES_OF_CMD: &str = " With a program to run (CMD), the exit code is that of the program: 127 if it is not found, \
    126 if it cannot be run, 128 plus the signal that ended it, such as 130 after Ctrl-C.";

/// Commands that read no object store: they accept the options for stores, as all commands do, but do not show them.
#[cfg(feature = "object")]
const WITHOUT_STORES: [&str; 14] = [
    "run",
    "replay",
    "doctor",
    "tune",
    "probe",
    "record",
    "watch",
    "trace",
    "list",
    "cache",
    "umount",
    "health",
    "completions",
    "man",
];

/// Completes the help of a command and of those below it: adds the exit codes, and hides options that are of no use.
pub fn with_help(command: clap::Command) -> clap::Command {
    #[cfg(feature = "object")]
    let command = if WITHOUT_STORES.contains(&command.get_name()) {
        let stores = <StoreArgs as clap::Args>::augment_args(clap::Command::new(""));
        command.args(stores.get_arguments().map(|arg| arg.clone().hide(true)))
    } else {
        command
    };
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let runs = runs_a_program(&command) || command.get_subcommands().any(runs_a_program);
    let of_cmd = if runs { EXIT_CODES_OF_CMD } else { "" };
    command
        .long_about(format!("{about}\n\n{EXIT_CODES}{of_cmd}"))
        .mut_subcommands(with_help)
}

/// Whether a command runs a program, whose words it accepts only after '--'.
fn runs_a_program(command: &clap::Command) -> bool {
    command.get_positionals().any(clap::Arg::is_last_set)
}

/// Parses the command line. If help was requested, prints the help and returns `None`.
pub fn parse<A: CommandLine>(arguments: &[OsString]) -> Result<Option<A>, Fail> {
    let arguments = &A::given(arguments);
    let _ = GIVEN.set(arguments.clone());
    let arguments = &A::expanded(arguments)?;
    let mut command = with_help(A::command());
    let parsed = command
        .try_get_matches_from_mut(arguments)
        .and_then(|mut matches| A::from_arg_matches_mut(&mut matches));
    match parsed.map_err(|error| error.format(&mut command)) {
        Ok(args) => Ok(Some(args)),
        Err(error) => refuse::<A>(&error, arguments).map(|()| None),
    }
}

/// Handles a parser error: help and version go to stdout, anything else becomes a one-line error.
fn refuse<A: CommandLine>(error: &clap::Error, arguments: &[OsString]) -> Result<(), Fail> {
    let (command, program) = (&A::command(), A::PROGRAM);
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print().map_err(|e| match e.kind() {
                std::io::ErrorKind::BrokenPipe => Fail::Closed,
                _ => Fail::input(
                    "cannot write",
                    format!("stdout: {e}"),
                    "free some space or write elsewhere",
                ),
            })
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // `foreread` without a command prints the help to stderr, because nothing was done.
            let _ = error.print();
            Err(Fail::Said)
        }
        ErrorKind::UnknownArgument if !cfg!(feature = "tls") && wants_tls(error) => Err(
            Fail::cannot("this build has no TLS", "", "build it with --features tls"),
        ),
        // For a wrong subcommand, the parser's own message already lists the valid names.
        ErrorKind::InvalidSubcommand if command_asked(command, arguments).is_empty() => {
            let name = match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(name)) => name.as_str(),
                _ => "",
            };
            if let Some(feature) = A::left_out(name) {
                let what = format!("this build has no '{name}'");
                return Err(Fail::cannot(
                    what,
                    "",
                    format!("build it with --features {feature}"),
                ));
            }
            let known: Vec<&str> = command
                .get_subcommands()
                .map(clap::Command::get_name)
                .collect();
            Err(names::unknown("command", name, &known, &format!("{program} -h")).into())
        }
        _ => Err(Fail::input(
            in_one_line(error, command, program, arguments),
            "",
            "",
        )),
    }
}

/// Whether the unknown argument is a TLS option.
fn wants_tls(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(name)) if name.starts_with("--tls"))
}

/// The parser's error and tips on one line, without the usage, and where to find help.
fn in_one_line(
    error: &clap::Error,
    command: &clap::Command,
    program: &str,
    arguments: &[OsString],
) -> String {
    let mut text = error.render().to_string();
    // The texts of std::num::ParseIntError.
    for (of_std, plain) in [
        ("invalid digit found in string", "it is not a whole number"),
        (
            "cannot parse integer from empty string",
            "it is not a whole number",
        ),
        ("number too large to fit in target type", "it is too large"),
    ] {
        text = text.replace(of_std, plain);
    }
    // A dash before a digit begins a wrong value, which no '--' makes right.
    let is_negative = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word))
        if word.trim_start_matches('-').starts_with(|letter: char| letter.is_ascii_digit()));
    let mut parts = Vec::new();
    for paragraph in text.split("\n\n") {
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(what) = line.strip_prefix("error: ") {
            parts.push(what.to_string());
        } else if let Some(tip) = line.strip_prefix("tip: ").filter(|_| !is_negative) {
            parts.push(tip.to_string());
        }
    }
    let asked = command_asked(command, arguments);
    if error.kind() == ErrorKind::UnknownArgument
        && is_a_commands_word(error, command, asked.trim_start())
    {
        parts.push("write '--' before the command to run".to_string());
    }
    parts.push(format!("see '{program}{asked} -h'"));
    parts.join("; ")
}

/// Whether the unknown argument looks like the name of a program, and `asked` runs programs.
fn is_a_commands_word(error: &clap::Error, command: &clap::Command, asked: &str) -> bool {
    let is_word = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
    is_word && command.find_subcommand(asked).is_some_and(runs_a_program)
}

/// The subcommand of a command line, such as ` compare` or ` trace import`. The parser's error does not always include it.
fn command_asked(command: &clap::Command, arguments: &[OsString]) -> String {
    let mut asked = String::new();
    let mut within = command;
    for word in arguments.iter().skip(1) {
        let found = within.get_subcommands().find(|c| word == c.get_name());
        let Some(found) = found else { break };
        asked.push(' ');
        asked.push_str(found.get_name());
        within = found;
    }
    asked
}
