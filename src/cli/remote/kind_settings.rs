//! The flags of `rgpu remote add` that only some kinds of remotes take. They are made from the
//! settings of each kind.

#![expect(clippy::disallowed_methods, reason = "the certificates that the user named")]

use std::collections::BTreeMap;
use std::path::Path;

use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use crate::cli::support::app::App;
use crate::cli::support::missing;
use rgpu_model::duration::duration;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_remote::{REMOTES, RemoteKind, RemoteSpec, Setting, SettingValue, read_private};

/// The given flags with their values.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct KindSettings(BTreeMap<&'static str, String>);

/// Every flag, once, with the first kind that takes it.
fn all() -> Vec<(&'static RemoteKind, &'static Setting)> {
    let mut all: Vec<(&RemoteKind, &Setting)> = Vec::new();
    for kind in REMOTES {
        for setting in kind.flags() {
            if !all.iter().any(|(_, known)| known.flag == setting.flag) {
                all.push((kind, setting));
            }
        }
    }
    all
}

impl Args for KindSettings {
    fn augment_args(command: Command) -> Command {
        let all = all();
        let args = all.iter().map(|(kind, setting)| {
            // Two that replace each other cannot be given together.
            let excluded = all.iter().map(|(_, other)| other).filter(|other| {
                setting.replaces.contains(&other.flag) && other.replaces.contains(&setting.flag)
            });
            arg(setting).help_heading(kind.heading).conflicts_with_all(excluded.map(|o| o.flag))
        });
        command.args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KindSettings {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, Error> {
        let flags = all().into_iter().map(|(_, setting)| setting.flag);
        let given =
            flags.filter(|flag| matches.value_source(flag) == Some(ValueSource::CommandLine));
        let yes = || "yes".to_owned();
        let value = |flag| matches.try_get_one::<String>(flag).ok().flatten().cloned();
        Ok(Self(given.map(|flag| (flag, value(flag).unwrap_or_else(yes))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag of a setting.
fn arg(setting: &'static Setting) -> Arg {
    let arg = Arg::new(setting.flag).long(setting.flag).help(setting.help);
    match setting.value {
        SettingValue::Text(name) | SettingValue::OneOf(name, _) => arg.value_name(name),
        SettingValue::Url => arg.value_name("URL").value_hint(ValueHint::Url),
        SettingValue::HostFolder => arg.value_name("DIR").value_hint(ValueHint::Other),
        SettingValue::Number => arg.value_name("N").value_parser(number),
        SettingValue::Time => arg.value_name("TIME").value_parser(seconds),
        SettingValue::Variable => arg.value_name("VARIABLE"),
        SettingValue::File | SettingValue::SecretFile(_) => {
            arg.value_name("FILE").value_hint(ValueHint::AnyPath)
        }
        SettingValue::Switch => arg.action(ArgAction::SetTrue),
    }
}

fn number(text: &str) -> std::result::Result<String, std::num::ParseIntError> {
    text.parse::<u32>().map(|number| number.to_string())
}

fn seconds(text: &str) -> std::result::Result<String, String> {
    duration(text).map(|time| time.as_secs().max(1).to_string())
}

impl KindSettings {
    /// The value of a flag.
    pub(super) fn get(&self, flag: &str) -> Option<&str> {
        self.0.get(flag).map(String::as_str)
    }

    /// The given settings with their values.
    fn given(&self) -> impl Iterator<Item = (&'static Setting, &str)> {
        let all = all().into_iter();
        all.filter_map(|(_, setting)| Some((setting, self.get(setting.flag)?)))
    }

    /// The first given flag that remotes of `kind` do not take, and the kind that takes it.
    pub(super) fn first_foreign(
        &self,
        kind: Option<&RemoteKind>,
    ) -> Option<(&'static str, &'static RemoteKind)> {
        let is_known =
            |flag: &str| kind.is_some_and(|kind| kind.flags().any(|known| known.flag == flag));
        let mut all = all().into_iter().map(|(owner, setting)| (setting.flag, owner));
        all.find(|(flag, _)| self.0.contains_key(flag) && !is_known(flag))
    }

    /// Writes the given settings into those of a remote.
    pub(super) fn apply(&self, app: &App, spec: &mut RemoteSpec) -> Result<()> {
        let addresses: Vec<&str> =
            REMOTES.iter().filter_map(|kind| Some(kind.address.as_ref()?.setting.flag)).collect();
        for (setting, value) in self.given().filter(|(s, _)| !addresses.contains(&s.flag)) {
            let value = match setting.value {
                SettingValue::Variable => variable(setting.flag, value)?,
                SettingValue::File | SettingValue::SecretFile(_) => {
                    app.cwd.join(value).display().to_string()
                }
                _ => value.to_owned(),
            };
            for replaced in setting.replaces.iter().filter(|flag| !self.0.contains_key(*flag)) {
                spec.options.remove(&replaced.replace('-', "_"));
            }
            spec.options.insert(setting.key(), value);
        }
        Ok(())
    }

    /// Checks what the settings name, without using it: a file must be there, and a secret one be
    /// private to its user; a variable may be set later.
    pub(super) fn check(&self, app: &App, spec: &RemoteSpec) -> Result<()> {
        let mut unset = Vec::new();
        for (setting, value) in self.given() {
            let path = app.cwd.join(value);
            match setting.value {
                SettingValue::SecretFile(what) => check_secret_file(&path, what)?,
                SettingValue::File => {
                    std::fs::File::open(&path).map_err(|error| {
                        let code = format!("bad_{}", setting.key());
                        let what = format!("the file of `--{}` cannot be read", setting.flag);
                        let failure = Failure::new(Exit::Config, &code, what);
                        missing::file_or(&path, &error, failure)
                    })?;
                }
                SettingValue::Variable if std::env::var_os(value).is_none_or(|v| v.is_empty()) => {
                    unset.push(value);
                }
                _ => {}
            }
        }
        for variable in unset {
            app.print_note(&format!(
                "warning: ${variable} is not set here; export it before you use `{}`",
                spec.name
            ));
        }
        Ok(())
    }
}

fn check_secret_file(path: &Path, what: &str) -> Result<()> {
    read_private(path).map(drop).map_err(|lack| {
        let exit = if path.exists() { Exit::Config } else { Exit::Usage };
        Failure::new(exit, "bad_token_file", lack.why)
            .hint(lack.hint.unwrap_or_else(|| what.to_owned()))
    })
}

/// Checks the name of a variable. An invalid one may be the secret itself, so it is not printed.
fn variable(flag: &str, name: &str) -> Result<String> {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    if name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit()) {
        return Ok(name.to_owned());
    }
    let message = format!("`--{flag}` takes the name of a variable, not its value");
    Err(Failure::new(Exit::Usage, "bad_variable", message)
        .hint(format!("put it into a variable such as BOX_TOKEN: --{flag} BOX_TOKEN")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> std::result::Result<KindSettings, Error> {
        let command = KindSettings::augment_args(Command::new("add"));
        let matches = command.try_get_matches_from([&["add"], words].concat())?;
        KindSettings::from_arg_matches(&matches)
    }

    #[test]
    fn given_flags_become_texts_and_each_knows_its_kinds() {
        let given = parse(&["--gpus=2", "--idle=5m", "--cpus=08", "--allow-plain-http"]).unwrap();
        let expected = [("allow-plain-http", "yes"), ("cpus", "8"), ("gpus", "2"), ("idle", "300")];
        let texts = expected.map(|(flag, text)| (flag, text.to_owned()));
        assert_eq!(given.0, BTreeMap::from(texts));
        let kind = |scheme: &str| REMOTES.iter().find(|kind| kind.scheme == scheme);
        let foreign = |scheme: &str| given.first_foreign(kind(scheme)).map(|(flag, _)| flag);
        assert_eq!((foreign("slurm"), foreign("https")), (Some("allow-plain-http"), Some("gpus")));
        for words in ["--cpus=many", "--idle=soon"] {
            assert!(parse(&[words]).is_err(), "{words}");
        }
    }

    #[test]
    fn settings_that_replace_each_other_are_not_given_together() {
        let all = all();
        for (_, setting) in &all {
            for other in setting.replaces {
                assert!(all.iter().any(|(_, known)| known.flag == *other), "{other}");
            }
        }
        assert!(parse(&["--token-env=T", "--token-file=t"]).is_err());
        assert!(parse(&["--keychain=k", "--env-file=e"]).is_err());
        assert!(parse(&["--key-env=K", "--env-file=e"]).is_ok());
    }
}
