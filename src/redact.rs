//! What must not leave the house, taken out of a profile and the documents beside it.
//!
//! Some fields are emptied whatever they hold: command lines, the host's own words, source text.
//! Then every text that is left is searched: for the names that the profile itself gives away (host,
//! user, remote, folders), for addresses, for absolute paths, of which the last part stays, and for
//! `NAME=value` pairs of environments. Reports are rendered from what comes out, so that what is
//! rendered holds no more.
//!
//! The tools' own reports hold all of it (nsys keeps the environment and command line of every
//! process) in formats that cannot be rewritten safely. They are not part of a redacted document,
//! and the document says so.

use std::borrow::Cow;

use regex::{Captures, Regex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::profile::Gap;
use crate::model::{Profile, Sidecars};

/// What stands where something was taken out.
const OUT: &str = "redacted";

/// Redaction failed: nothing may be shown then.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// One of our own patterns or documents does not survive the trip.
    #[error("the document cannot be redacted")]
    Document(#[from] serde_json::Error),
    /// A name cannot be made into a pattern.
    #[error("a name cannot be searched for")]
    Pattern(#[from] regex::Error),
}

/// Takes everything out that says where and by whom a profile was made.
///
/// # Errors
/// [`RedactError`]; the documents are unchanged or partly redacted then, and must not be shown.
pub fn redact(profile: &mut Profile, sidecars: &mut Sidecars) -> Result<(), RedactError> {
    let texts = Texts::of(profile)?;
    empty_fields(profile, sidecars);
    *profile = texts.document(profile)?;
    if let Some(hotspots) = &mut sidecars.hotspots {
        *hotspots = texts.document(hotspots)?;
    }
    if let Some(trace) = &mut sidecars.trace {
        *trace = texts.document(trace)?;
    }
    profile.gaps.push(Gap {
        code: "redacted".to_owned(),
        text: "host, user, paths, command lines, environment and source text are left out; the \
               tools' own reports hold all of them and cannot be rewritten: pass this document on, \
               not the reports"
            .to_owned(),
    });
    Ok(())
}

/// Fields that are of no use without what they give away.
fn empty_fields(profile: &mut Profile, sidecars: &mut Sidecars) {
    profile.run.command.clear();
    profile.run.labels.clear();
    if profile.run.remote != "local" {
        OUT.clone_into(&mut profile.run.remote);
    }
    for rung in &mut profile.ladder {
        rung.argv.clear();
        rung.stdout_tail.clear();
    }
    if let Some(host) = &mut profile.host {
        if host.remote != "local" {
            OUT.clone_into(&mut host.remote);
        }
        let agent = &mut host.agent;
        for text in [
            &mut agent.host_id,
            &mut agent.boot_id,
            &mut agent.hostname,
            &mut agent.user,
            &mut agent.folder,
        ] {
            OUT.clone_into(text);
        }
        agent.answers.clear();
        host.tools.iter_mut().for_each(|tool| OUT.clone_into(&mut tool.path));
    }
    let spots = sidecars.hotspots.iter_mut().flat_map(|hotspots| &mut hotspots.launches);
    spots.flat_map(|launch| &mut launch.lines).for_each(|line| line.text = None);
}

/// What is searched for in texts.
struct Texts {
    /// Names that the profile gives away.
    names: Option<Regex>,
    remote: Regex,
    address: Regex,
    path: Regex,
    pair: Regex,
    uuid: Regex,
}

impl Texts {
    fn of(profile: &Profile) -> Result<Texts, RedactError> {
        let mut names: Vec<&str> = vec![&profile.run.remote];
        if let Some(host) = &profile.host {
            let agent = &host.agent;
            names.extend([
                host.remote.as_str(),
                &agent.hostname,
                &agent.user,
                &agent.host_id,
                &agent.boot_id,
                &agent.folder,
            ]);
        }
        // `root` and `local` are nobody's; a name of two letters stands in every other word.
        names.retain(|name| name.len() > 2 && !matches!(*name, "root" | "local" | "localhost"));
        names.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
        let any = names.iter().map(|name| regex::escape(name)).collect::<Vec<_>>().join("|");
        let bounded = format!(r"(^|[^A-Za-z0-9])({any})($|[^A-Za-z0-9])");
        let v4 = r"\b(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)\b";
        let v6 = r"\b(?:[0-9A-Fa-f]{1,4}:){3,7}:?[0-9A-Fa-f]{1,4}\b|\b(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})::[0-9A-Fa-f:]+";
        Ok(Texts {
            names: if names.is_empty() { None } else { Some(Regex::new(&bounded)?) },
            remote: Regex::new(
                r"\b(?:ssh|https?|git)://[^\s/]*@[^\s`'\x22]*|\bssh://[^\s`'\x22]*",
            )?,
            address: Regex::new(&format!("{v4}|{v6}"))?,
            // A path of two parts or more; the last stays.
            path: Regex::new(
                r#"(^|[\s"'`=(\[,:])(?:~|file://)?/(?:[^\s"'`,;:()\[\]/]+/)+([^\s"'`,;:()\[\]/]*)"#,
            )?,
            pair: Regex::new(r"\b([A-Z][A-Z0-9_]{2,})=\S+")?,
            uuid: Regex::new(r"\b(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")?,
        })
    }

    /// A document with all its texts searched.
    fn document<T: Serialize + DeserializeOwned>(&self, document: &T) -> Result<T, RedactError> {
        let mut value = serde_json::to_value(document)?;
        self.walk(&mut value);
        Ok(serde_json::from_value(value)?)
    }

    fn walk(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.text(text) {
                    *text = redacted;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.walk(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut now = Cow::Borrowed(text);
        let keep_last = |found: &Captures<'_>| format!("{}…/{}", &found[1], &found[2]);
        apply(&mut now, |text| self.remote.replace_all(text, OUT));
        apply(&mut now, |text| self.path.replace_all(text, keep_last));
        apply(&mut now, |text| self.pair.replace_all(text, "$1=redacted"));
        apply(&mut now, |text| self.uuid.replace_all(text, "$1-redacted"));
        apply(&mut now, |text| self.address.replace_all(text, OUT));
        if let Some(names) = &self.names {
            // What ends one name may begin the next: until nothing is found any more.
            for _ in 0..4 {
                apply(&mut now, |text| names.replace_all(text, "${1}redacted${3}"));
            }
        }
        now
    }
}

/// Replaces a text by what `change` makes of it.
fn apply(text: &mut Cow<'_, str>, change: impl FnOnce(&str) -> Cow<'_, str>) {
    if let Cow::Owned(changed) = change(text) {
        *text = Cow::Owned(changed);
    }
}

#[cfg(test)]
mod tests;
