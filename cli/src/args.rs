//! What the arguments of all commands share, and the one line that a wrong one gets.
//!
//! `-h` shows the first paragraph of each comment and fits 24 lines of 80 columns; `--help` shows all of it.
//! Never: looks at a file or a registry. What an argument means is its command's matter.

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
    /// Clients, reconnections and errors of sources, one line each. Default: FOREREAD_LOG, or warn.
    #[arg(
        id = "log-level",
        long = "log",
        value_name = "LEVEL",
        global = true,
        hide_short_help = true,
        hide_possible_values = true
    )]
    pub log: Option<LogLevel>,
    /// Replace output files that are there
    ///
    /// Of every option that names a file to write (-o, --json, --html, --svg, --record ...). Without it a file or link that is there is
    /// refused. A link is never followed: with --force it is replaced. Pipes, terminals, /dev/stdout and '-' are written as they are.
    #[arg(long, global = true, hide_short_help = true)]
    pub force: bool,
    #[cfg(feature = "object")]
    #[command(flatten)]
    pub stores: StoreArgs,
}

/// How the stores of objects are asked: S3, Google Cloud Storage, Azure, HTTP.
#[cfg(feature = "object")]
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Stores of objects")]
pub struct StoreArgs {
    /// The profile of the AWS tools
    ///
    /// Of ~/.aws/config and ~/.aws/credentials. Default AWS_PROFILE, or default. docs/stores.md has the chain of each store.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    profile: Option<String>,
    /// The region of S3
    ///
    /// Default AWS_REGION, then that of the profile, then us-east-1; a bucket elsewhere is found.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    region: Option<String>,
    /// Another server of S3's protocol
    ///
    /// Such as http://127.0.0.1:9000. http is for this machine alone, unless AWS_ALLOW_HTTP is true. docs/stores.md has the variables of other stores.
    #[arg(long, value_name = "URL", global = true, hide_short_help = true)]
    endpoint_url: Option<String>,
    /// Send no credentials: for public objects
    #[arg(long, global = true, hide_short_help = true)]
    no_sign_request: bool,
    /// Pay for requests and bytes of a bucket of S3 whose owner does not
    #[arg(long, global = true, hide_short_help = true)]
    requester_pays: bool,
    /// Certificates to trust beside the system's, PEM
    ///
    /// Default AWS_CA_BUNDLE.
    #[arg(long, value_name = "PATH", global = true, hide_short_help = true)]
    ca_file: Option<String>,
}

#[cfg(feature = "object")]
impl StoreArgs {
    /// Sets them for this process: they go before FOREREAD_OBJECT, which goes before the files of settings.
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
                let remedy = "name it without one";
                return Err(Fail::input("cannot take a comma", place, remedy));
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

/// The command line of this process, its name first.
static GIVEN: OnceLock<Vec<OsString>> = OnceLock::new();

/// The command line as it was given, for a command that begins again.
pub fn given() -> Vec<OsString> {
    GIVEN.get().cloned().unwrap_or_default()
}

static GLOBAL: OnceLock<GlobalArgs> = OnceLock::new();

/// Keeps what was given; the first counts.
pub fn set_global(args: &GlobalArgs) {
    let _ = GLOBAL.set(args.clone());
}

/// What was given to this command.
pub fn global() -> GlobalArgs {
    GLOBAL.get().cloned().unwrap_or_default()
}

/// Where the JSON of a command goes.
#[cfg(any(feature = "lab", feature = "object"))]
#[derive(Debug, clap::Args)]
pub struct JsonArgs {
    /// Write JSON to a file, or to stdout
    ///
    /// Its key 'schema' names it. With '-' the JSON takes the place of the text.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// The command line, parsed; none if it asked for help, which was shown.
pub fn parse<A: CommandLine>(arguments: &[OsString]) -> Result<Option<A>, Fail> {
    let arguments = &A::given(arguments);
    let _ = GIVEN.set(arguments.clone());
    let arguments = &A::expanded(arguments)?;
    match A::try_parse_from(arguments) {
        Ok(args) => Ok(Some(args)),
        Err(error) => refuse::<A>(&error, arguments).map(|()| None),
    }
}

/// Answers what the parser refused: help and version are results, everything else is one line.
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
            // The help screen is what a bare `foreread` asks for; it goes to stderr, since nothing was done.
            let _ = error.print();
            Err(Fail::Said)
        }
        ErrorKind::UnknownArgument if !cfg!(feature = "tls") && wants_tls(error) => Err(
            Fail::cannot("this build has no TLS", "", "build it with --features tls"),
        ),
        // Below a command the parser's own line names what there is.
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

/// The argument that is not known is one of those for TLS.
fn wants_tls(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(name)) if name.starts_with("--tls"))
}

/// The parser's complaint and its tips without its usage, and the command that helps.
fn in_one_line(
    error: &clap::Error,
    command: &clap::Command,
    program: &str,
    arguments: &[OsString],
) -> String {
    let text = error.render().to_string();
    let mut parts = Vec::new();
    for paragraph in text.split("\n\n") {
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(what) = line.strip_prefix("error: ") {
            parts.push(what.to_string());
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            parts.push(tip.to_string());
        }
    }
    let asked = command_asked(command, arguments);
    if error.kind() == ErrorKind::UnknownArgument
        && is_a_commands_word(error, command, asked.trim_start())
    {
        parts.push("write '--' before the command that is to run".to_string());
    }
    parts.push(format!("see '{program}{asked} -h'"));
    parts.join("; ")
}

/// Whether the argument that is not known looks like a command's name, and `asked` runs commands, which it takes behind '--' alone.
fn is_a_commands_word(error: &clap::Error, command: &clap::Command, asked: &str) -> bool {
    let is_word = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
    let runs = |command: &clap::Command| command.get_positionals().any(clap::Arg::is_last_set);
    is_word && command.find_subcommand(asked).is_some_and(runs)
}

/// ` compare` or ` trace import`, if that is what was asked for. The parser does not always say.
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
