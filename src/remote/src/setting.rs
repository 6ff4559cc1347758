//! The settings that only one kind of remote has. Each is a key of a remote's table in the user's
//! settings, and a flag of `rgpu remote add`.

use super::{RemoteError, RemoteSpec};

/// A setting of a kind of remote.
pub struct Setting {
    /// The name of the flag, without its dashes. The key in the settings has `_` for `-`.
    pub flag: &'static str,
    /// What its value may be.
    pub value: SettingValue,
    /// The text of the flag in `--help`.
    pub help: &'static str,
    /// The flags of settings that mean nothing any more once this one is given.
    pub replaces: &'static [&'static str],
}

/// What the value of a [`Setting`] may be. The names are those in `--help`.
#[derive(Clone, Copy)]
pub enum SettingValue {
    /// Any text.
    Text(&'static str),
    /// An address.
    Url,
    /// A folder on the host.
    HostFolder,
    /// One of these words.
    OneOf(&'static str, &'static [&'static str]),
    /// A number.
    Number,
    /// A time; the settings have its seconds.
    Time,
    /// The name of an environment variable, never its value.
    Variable,
    /// A file on this machine.
    File,
    /// A file on this machine that only its user may read, and what it is.
    SecretFile(&'static str),
    /// `yes`; the flag has no value.
    Switch,
}

impl Setting {
    /// A setting that replaces no other.
    pub const fn new(flag: &'static str, value: SettingValue, help: &'static str) -> Self {
        Self { flag, value, help, replaces: &[] }
    }

    /// The same setting, which replaces others.
    pub const fn instead_of(self, replaces: &'static [&'static str]) -> Self {
        Self { replaces, ..self }
    }

    /// The key in the settings.
    pub fn key(&self) -> String {
        self.flag.replace('-', "_")
    }
}

/// How a remote is added by the scheme of its kind and a flag, in place of an address.
pub struct AddressFlag {
    /// The flag.
    pub setting: Setting,
    /// Makes the address for the settings from the flag's value.
    pub address: fn(&str) -> Result<String, RemoteError>,
}

/// Refuses settings that the kind of the remote does not have, and words that are none of a
/// setting's.
pub(super) fn check(spec: &RemoteSpec, settings: &[Setting]) -> Result<(), RemoteError> {
    for (key, value) in &spec.options {
        let refused = |why: String| Err(RemoteError::Setting { setting: key.clone(), why });
        match settings.iter().find(|setting| setting.key() == *key) {
            None => return refused(format!("a `{}` remote does not know it", spec.scheme())),
            Some(Setting { value: SettingValue::OneOf(_, words), .. })
                if !words.contains(&value.as_str()) =>
            {
                return refused(format!("`{value}` is none of `{}`", words.join("`, `")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
