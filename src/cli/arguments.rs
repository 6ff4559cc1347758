//! `rgpu __arguments`: the arguments of some commands as JSON. `cargo xtask schemas` makes the
//! functions of the Python package from it, so that each keyword there is a flag here.

use std::any::TypeId;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, CommandFactory};
use serde::Serialize;

use super::args::Cli;
use super::support::app::{App, Status};
use rgpu_model::error::Result;

/// The commands that the Python package has.
const COMMANDS: &[&str] = &["profile", "exec", "build", "disasm", "report", "compare"];

#[derive(Serialize)]
struct CommandArguments {
    name: String,
    about: String,
    arguments: Vec<Argument>,
}

/// An argument of a command.
#[derive(Serialize)]
struct Argument {
    /// The flag with its dashes; for a positional argument its name.
    flag: String,
    positional: bool,
    /// Whether it comes after `--`.
    last: bool,
    /// Whether it takes several values.
    many: bool,
    kind: ArgumentKind,
    /// The possible values, if there are only some.
    choices: Vec<String>,
    default: Option<String>,
    help: String,
}

/// The type of an argument's value.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ArgumentKind {
    /// None: the flag is given or not.
    Switch,
    Text,
    Integer,
    Number,
    /// Seconds, or text such as `10m`.
    Time,
    /// A number of bytes, or text such as `2GB`.
    Bytes,
    Path,
    /// A value of the form `NAME=VALUE`.
    Pair,
}

/// Prints the command line as JSON, from which `python/generate.py` makes the Python interface.
pub(super) fn print(app: &App) -> Result<Status> {
    let mut whole = Cli::command();
    whole.build();
    let commands: Vec<CommandArguments> = whole
        .get_subcommands()
        .filter(|command| COMMANDS.contains(&command.get_name()))
        .map(|command| CommandArguments {
            name: command.get_name().to_owned(),
            about: command.get_about().map(ToString::to_string).unwrap_or_default(),
            arguments: command
                .get_arguments()
                .filter(|arg| !arg.is_global_set() && !is_for_people(arg))
                .map(Argument::from_arg)
                .collect(),
        })
        .collect();
    app.print_json(&commands)?;
    Ok(0)
}

/// Whether programs do not need an argument: `--help`, `--version`, and a kernel without
/// `--kernel`.
fn is_for_people(arg: &Arg) -> bool {
    arg.get_id() == "target"
        || matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        )
}

impl Argument {
    fn from_arg(arg: &Arg) -> Self {
        let positional = arg.is_positional();
        let flag = match arg.get_long() {
            Some(long) => format!("--{long}"),
            None => arg.get_id().to_string(),
        };
        let choices = arg.get_possible_values();
        let default = arg.get_default_values().first().filter(|_| !is_switch(arg));
        let values = arg.get_num_args().unwrap_or_default();
        Self {
            flag,
            positional,
            last: arg.is_last_set(),
            many: matches!(arg.get_action(), ArgAction::Append) || values.max_values() > 1,
            kind: kind(arg),
            choices: if is_switch(arg) {
                Vec::new()
            } else {
                choices.iter().map(PossibleValue::get_name).map(str::to_owned).collect()
            },
            default: default.map(|value| value.to_string_lossy().into_owned()),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        }
    }
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// The kind of an argument's values: by their type, or by their name in `--help`.
fn kind(arg: &Arg) -> ArgumentKind {
    let names = arg.get_value_names().unwrap_or_default().join("|");
    let parsed = arg.get_value_parser().type_id();
    let is = |id: TypeId| parsed == id;
    let integers = [TypeId::of::<u8>(), TypeId::of::<u32>(), TypeId::of::<u64>()];
    match () {
        () if is_switch(arg) => ArgumentKind::Switch,
        () if names.contains("BYTES") => ArgumentKind::Bytes,
        () if names == "TIME" || is(TypeId::of::<Duration>()) => ArgumentKind::Time,
        () if is(TypeId::of::<f64>()) => ArgumentKind::Number,
        () if integers.into_iter().any(is) => ArgumentKind::Integer,
        () if names.contains('=') => ArgumentKind::Pair,
        () if ["FILE", "DIR", "PATH", "SRC"].iter().any(|word| names.contains(word)) => {
            ArgumentKind::Path
        }
        () => ArgumentKind::Text,
    }
}
