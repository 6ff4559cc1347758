//! Removes confidential data from a profile and its sidecar documents.
//!
//! Some fields are always emptied: command lines, the host's own output, source text. Then all
//! remaining texts are searched for names in the profile (host, user, remote, folders), addresses,
//! absolute paths (of which the last part stays), and `NAME=value` pairs of environments. Reports
//! are rendered from the redacted profile, so they contain no more than it does.
//!
//! The tools' own reports contain all of it (nsys keeps the environment and command line of every
//! process), in formats that cannot be rewritten safely. They are not part of a redacted document,
//! and the document says so.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::mem;

use regex::{Captures, Regex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::ser::{CharEscape, Formatter, Serializer};

use rgpu_model::profile::Gap;
use rgpu_model::{Metric, Profile, SharedList, SharedText, Sidecars};

/// The replacement for removed text.
const REPLACEMENT: &str = "redacted";

/// Redaction failed, so nothing may be shown.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// A document does not survive the conversion to JSON and back.
    #[error("the document cannot be redacted")]
    Document(#[from] serde_json::Error),
    /// A search pattern cannot be compiled.
    #[error("a name cannot be searched for")]
    Pattern(#[from] regex::Error),
}

/// Removes everything that identifies the host, the user and the project of a profile.
///
/// # Errors
/// [`RedactError`]; the documents may then be partly redacted and must not be shown.
pub fn redact(profile: &mut Profile, sidecars: &mut Sidecars) -> Result<(), RedactError> {
    let texts = Texts::collect(profile)?;
    empty_fields(profile, sidecars);
    texts.profile(profile)?;
    if let Some(hotspots) = &mut sidecars.hotspots {
        *hotspots = texts.document(hotspots)?;
    }
    if let Some(trace) = &mut sidecars.trace {
        *trace = texts.document(trace)?;
    }
    sidecars.ranks = None;
    profile.gaps.push(Gap {
        code: "redacted".to_owned(),
        text: "host, user, paths, command lines, environment and source text are left out; the \
               tools' own reports hold all of them and cannot be rewritten: pass this document on, \
               not the reports"
            .to_owned(),
    });
    Ok(())
}

/// Empties the fields that are confidential as a whole.
fn empty_fields(profile: &mut Profile, sidecars: &mut Sidecars) {
    profile.run.command.clear();
    profile.run.labels.clear();
    if profile.run.remote != "local" {
        REPLACEMENT.clone_into(&mut profile.run.remote);
    }
    for rung in &mut profile.ladder {
        rung.argv.clear();
        rung.stdout_tail.clear();
    }
    if let Some(host) = &mut profile.host {
        if host.remote != "local" {
            REPLACEMENT.clone_into(&mut host.remote);
        }
        let agent = &mut host.agent;
        for text in [
            &mut agent.host_id,
            &mut agent.boot_id,
            &mut agent.hostname,
            &mut agent.user,
            &mut agent.folder,
        ] {
            REPLACEMENT.clone_into(text);
        }
        agent.answers.clear();
        host.tools.iter_mut().for_each(|tool| REPLACEMENT.clone_into(&mut tool.path));
    }
    let ranks = profile.ranks.iter_mut().flat_map(|ranks| &mut ranks.ranks);
    let locations = ranks.map(|rank| &mut rank.location);
    let listed = sidecars.trace.iter_mut().flat_map(|trace| &mut trace.ranks);
    let mut hosts: Vec<String> = Vec::new();
    for host in locations.chain(listed).filter_map(|location| location.host.as_mut()) {
        // Which ranks share a host stays visible.
        let known = hosts.iter().position(|known| known == host);
        let number = known.unwrap_or(hosts.len());
        if known.is_none() {
            hosts.push(host.clone());
        }
        *host = format!("host {number}");
    }
    let launches = sidecars.hotspots.iter_mut().flat_map(|hotspots| &mut hotspots.launches);
    launches.flat_map(|launch| &mut launch.lines).for_each(|line| line.text = None);
}

/// The patterns that are searched for in texts.
struct Texts {
    /// The names in the profile.
    names: Option<Regex>,
    remote: Regex,
    address: Regex,
    path: Regex,
    pair: Regex,
    uuid: Regex,
}

impl Texts {
    fn collect(profile: &Profile) -> Result<Texts, RedactError> {
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
        let ranks = profile.ranks.iter().flat_map(|ranks| &ranks.ranks);
        names.extend(ranks.filter_map(|rank| rank.location.host.as_deref()));
        // `root` and `local` identify nobody; a name of two letters occurs in too many words.
        names.retain(|name| name.len() > 2 && !matches!(*name, "root" | "local" | "localhost"));
        names.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
        let alternatives =
            names.iter().map(|name| regex::escape(name)).collect::<Vec<_>>().join("|");
        let with_boundaries = format!(r"(^|[^A-Za-z0-9])({alternatives})($|[^A-Za-z0-9])");
        let v4 = r"\b(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)\b";
        let v6 = r"\b(?:[0-9A-Fa-f]{1,4}:){3,7}:?[0-9A-Fa-f]{1,4}\b|\b(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})::[0-9A-Fa-f:]+";
        Ok(Texts {
            names: if names.is_empty() { None } else { Some(Regex::new(&with_boundaries)?) },
            remote: Regex::new(
                r"\b(?:ssh|https?|git)://[^\s/]*@[^\s`'\x22]*|\bssh://[^\s`'\x22]*",
            )?,
            address: Regex::new(&format!("{v4}|{v6}"))?,
            // A path of two or more parts; the last part stays.
            path: Regex::new(
                r#"(^|[\s"'`=(\[,:])(?:~|file://)?/(?:[^\s"'`,;:()\[\]/]+/)+([^\s"'`,;:()\[\]/]*)"#,
            )?,
            pair: Regex::new(r"\b([A-Z][A-Z0-9_]{2,})=\S+")?,
            uuid: Regex::new(r"\b(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")?,
        })
    }

    /// Searches all texts of a profile. Its launches and regions share paths and names, so these
    /// are searched once each, and stay shared.
    fn profile(&self, profile: &mut Profile) -> Result<(), RedactError> {
        let (mut launches, mut regions) =
            (mem::take(&mut profile.launches), mem::take(&mut profile.regions));
        *profile = self.document(profile)?;
        let mut shared = SharedTexts { texts: self, paths: HashMap::new(), words: HashMap::new() };
        for launch in &mut launches {
            let (region, metrics) = (mem::take(&mut launch.region), mem::take(&mut launch.metrics));
            *launch = self.document(launch)?;
            launch.region = shared.path(region);
            launch.metrics = shared.metrics(metrics);
        }
        for region in &mut regions {
            let metrics = mem::take(&mut region.metrics);
            *region = self.document(region)?;
            region.metrics = shared.metrics(metrics);
        }
        (profile.launches, profile.regions) = (launches, regions);
        Ok(())
    }

    /// Searches all texts of a document.
    fn document<T: Serialize + DeserializeOwned>(&self, document: &T) -> Result<T, RedactError> {
        let mut json = Vec::new();
        let formatter = RedactingFormatter { texts: self, is_key: false, text: String::new() };
        document.serialize(&mut Serializer::with_formatter(&mut json, formatter))?;
        Ok(serde_json::from_slice(&json)?)
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut redacted = Cow::Borrowed(text);
        let keep_last = |found: &Captures<'_>| format!("{}…/{}", &found[1], &found[2]);
        apply(&mut redacted, |text| self.remote.replace_all(text, REPLACEMENT));
        apply(&mut redacted, |text| self.path.replace_all(text, keep_last));
        apply(&mut redacted, |text| self.pair.replace_all(text, "$1=redacted"));
        apply(&mut redacted, |text| self.uuid.replace_all(text, "$1-redacted"));
        apply(&mut redacted, |text| self.address.replace_all(text, REPLACEMENT));
        if let Some(names) = &self.names {
            // The end of one match may be needed as the start of the next, so this is repeated.
            for _ in 0..4 {
                apply(&mut redacted, |text| names.replace_all(text, "${1}redacted${3}"));
            }
        }
        redacted
    }
}

/// Texts that many launches and regions share, as they were and as they become.
struct SharedTexts<'t> {
    texts: &'t Texts,
    paths: HashMap<SharedList<String>, SharedList<String>>,
    words: HashMap<SharedText, SharedText>,
}

impl SharedTexts<'_> {
    fn path(&mut self, path: SharedList<String>) -> SharedList<String> {
        let redact = |path: &SharedList<String>| {
            path.iter().map(|name| self.texts.text(name).into_owned()).collect()
        };
        self.paths.entry(path).or_insert_with_key(redact).clone()
    }

    fn word(&mut self, word: SharedText) -> SharedText {
        let redact = |word: &SharedText| self.texts.text(word).into_owned().into();
        self.words.entry(word).or_insert_with_key(redact).clone()
    }

    /// The metrics under the same names.
    fn metrics(
        &mut self,
        mut metrics: BTreeMap<SharedText, Metric>,
    ) -> BTreeMap<SharedText, Metric> {
        for metric in metrics.values_mut() {
            metric.unit = self.word(mem::take(&mut metric.unit));
            metric.from = self.word(mem::take(&mut metric.from));
            if let rgpu_model::Value::Text(text) = &mut metric.value {
                *text = self.texts.text(text).into_owned();
            }
        }
        metrics
    }
}

/// Writes JSON in which every text but the keys is redacted.
struct RedactingFormatter<'t> {
    texts: &'t Texts,
    /// Whether a key is being written.
    is_key: bool,
    /// The current text so far.
    text: String,
}

impl Formatter for RedactingFormatter<'_> {
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.is_key = true;
        if first { Ok(()) } else { out.write_all(b",") }
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_key = false;
        Ok(())
    }

    fn begin_string<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.clear();
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        _: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        self.text.push_str(fragment);
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        _: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        self.text.push(match escape {
            CharEscape::Quote => '"',
            CharEscape::ReverseSolidus => '\\',
            CharEscape::Solidus => '/',
            CharEscape::Backspace => '\u{8}',
            CharEscape::FormFeed => '\u{c}',
            CharEscape::LineFeed => '\n',
            CharEscape::CarriageReturn => '\r',
            CharEscape::Tab => '\t',
            CharEscape::AsciiControl(byte) => char::from(byte),
        });
        Ok(())
    }

    fn end_string<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        let text = if self.is_key { Cow::from(&self.text) } else { self.texts.text(&self.text) };
        Ok(serde_json::to_writer(out, &text)?)
    }
}

/// Replaces a text if `change` changes it.
fn apply(text: &mut Cow<'_, str>, change: impl FnOnce(&str) -> Cow<'_, str>) {
    if let Cow::Owned(changed) = change(text) {
        *text = Cow::Owned(changed);
    }
}

#[cfg(test)]
mod tests;
