//! `--preset NAME`: inserts the flags of `[preset.NAME]` of a settings file before the typed ones.
//!
//! A preset's keys are the long flags of `rgpu profile`. Typed flags come later and win. A key that
//! is no flag is refused with the file that has it; Clap checks the values like any others.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{Arg, Command};
use etcetera::BaseStrategy;

use crate::cli::support::session::ssh_alias;
use rgpu_model::error::{Exit, Failure, Result, nearest};
use rgpu_run::config::{Config, ConfigValue, Environment, Origin};

/// The command line with the preset's flags inserted; unchanged if it names no preset. `root` is
/// the definition of the command line.
pub(in crate::cli) fn expand(argv: &[OsString], root: Command) -> Result<Vec<OsString>> {
    let Some(name) = preset_name(argv) else { return Ok(argv.to_vec()) };
    let cwd = std::env::current_dir().unwrap_or_default();
    let Ok(base) = etcetera::choose_base_strategy() else { return Ok(argv.to_vec()) };
    let config = Config::load(&cwd, &base.config_dir(), &Environment::read())?;
    let Some(preset) = config.presets.get(&name) else {
        let near = nearest(&name, config.presets.keys().map(String::as_str));
        let mut failure =
            Failure::new(Exit::Config, "unknown_preset", format!("there is no preset `{name}`"));
        if !near.is_empty() {
            failure = failure.hint(format!("did you mean `{}`?", near.join("` or `")));
        }
        return Err(failure.hint("presets are `[preset.NAME]` tables of rgpu.toml"));
    };
    check_flags(&name, preset, root)?;
    config.check_preset(&name, preset, ssh_alias)?;
    // Right after the subcommand, so that typed flags come later.
    let at =
        argv.iter().position(|a| a == "profile" || a == "exec").map_or(argv.len(), |at| at + 1);
    let mut out: Vec<OsString> = argv[..at].to_vec();
    out.extend(flags(&name, &preset.value)?.into_iter().map(OsString::from));
    out.extend_from_slice(&argv[at..]);
    Ok(out)
}

/// The long names of a flag, hidden ones too.
fn long_names(arg: &Arg) -> impl Iterator<Item = &str> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases)
}

/// Refuses a key that is no flag of the commands that take presets.
fn check_flags(name: &str, preset: &ConfigValue<toml::Table>, mut root: Command) -> Result<()> {
    // Until then the subcommands have no flags.
    root.build();
    let commands = ["profile", "exec"].into_iter().filter_map(|name| root.find_subcommand(name));
    let own = commands.flat_map(Command::get_arguments).chain(root.get_arguments());
    let known: BTreeSet<&str> = own.flat_map(long_names).collect();
    for key in preset.value.keys() {
        let flag = key.replace('_', "-");
        if known.contains(flag.as_str()) {
            continue;
        }
        let what = format!("preset `{name}` sets `--{flag}`, which is no flag of `rgpu profile`");
        let mut failure = Failure::new(Exit::Config, "unknown_flag_of_preset", what);
        if let Origin::Project(file) | Origin::User(file) = &preset.origin {
            failure = failure.file(file.display());
        }
        let near = nearest(&flag, known.iter().copied());
        if !near.is_empty() {
            failure = failure.hint(format!("did you mean `--{}`?", near.join("` or `--")));
        }
        return Err(failure.hint("`rgpu profile --help` lists the flags"));
    }
    Ok(())
}

/// The preset that a `profile` or `exec` command line names.
fn preset_name(argv: &[OsString]) -> Option<String> {
    let words: Vec<&str> =
        argv.iter().take_while(|a| *a != "--").filter_map(|a| a.to_str()).collect();
    if !words.contains(&"profile") && !words.contains(&"exec") {
        return None;
    }
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--preset") {
        Some("") => words.get(at + 1).map(|s| (*s).to_owned()),
        Some(rest) => rest.strip_prefix('=').map(str::to_owned),
        None => None,
    })
}

/// Turns a table into flags: `set = "full"` is `--set full`, `strict = true` is `--strict`, a list
/// repeats its flag.
fn flags(name: &str, table: &toml::Table) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for (key, value) in table {
        let flag = format!("--{}", key.replace('_', "-"));
        let values = match value {
            toml::Value::Array(list) => list.iter().collect(),
            value => vec![value],
        };
        for value in values {
            match value {
                toml::Value::Boolean(true) => out.push(flag.clone()),
                toml::Value::Boolean(false) => {}
                toml::Value::String(text) => out.push(format!("{flag}={text}")),
                toml::Value::Integer(n) => out.push(format!("{flag}={n}")),
                toml::Value::Float(x) => out.push(format!("{flag}={x}")),
                _ => {
                    return Err(Failure::new(
                        Exit::Config,
                        "bad_preset",
                        format!("`{key}` of preset `{name}` has a value that no flag accepts"),
                    )
                    .hint("write a text, a number, true, or a list of these"));
                }
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn a_presets_table_becomes_flags() {
        let table: toml::Table =
            "set = \"full\"\nstrict = true\nsudo = false\nsection = [\"A\", \"B\"]\nlaunch_count = 3".parse().unwrap();
        assert_eq!(
            flags("p", &table).unwrap(),
            ["--launch-count=3", "--section=A", "--section=B", "--set=full", "--strict"]
        );
    }

    #[test]
    fn a_key_that_is_no_flag_is_told_with_its_file_and_the_nearest_flag() {
        let preset = |text: &str| ConfigValue {
            value: text.parse().unwrap(),
            origin: Origin::User("/home/a/config.toml".into()),
        };
        let failure =
            check_flags("fast", &preset("kernal_name = \"k\""), Cli::command()).unwrap_err();
        let shown = failure.to_string();
        assert_eq!(failure.code, "unknown_flag_of_preset", "{shown}");
        assert!(failure.hints.iter().any(|hint| hint.contains("`--kernel-name`")), "{failure:?}");
        assert!(failure.what.contains("`--kernal-name`"), "{shown}");
        for text in ["set = \"full\"", "kernel_name = \"k\"", "timeout = 3", "quiet = true"] {
            assert!(check_flags("fast", &preset(text), Cli::command()).is_ok(), "{text}");
        }
    }

    #[test]
    fn only_a_command_that_profiles_names_a_preset() {
        let argv = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            preset_name(&argv(&["rgpu", "profile", "--preset", "quick"])).as_deref(),
            Some("quick")
        );
        assert_eq!(
            preset_name(&argv(&["rgpu", "profile", "--preset=quick"])).as_deref(),
            Some("quick")
        );
        assert_eq!(preset_name(&argv(&["rgpu", "profile", "--", "--preset", "x"])), None);
        assert_eq!(preset_name(&argv(&["rgpu", "report", "--preset", "x"])), None);
    }
}
