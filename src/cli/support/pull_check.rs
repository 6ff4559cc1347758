//! Decides which pulled files are written to the user's folder. The others stay only in the run
//! folder: a file from a host is never written through a local link, and never replaces a file that
//! was written here while the program ran.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use rgpu_protocol::{Digest, Plan, glob};
use rustix::fs::{FileType, Stat};
use schemars::JsonSchema;
use serde::Serialize;

use rgpu_run::run::HostFile;
use rgpu_run::store::{Destination, RunFolder, RunRecord, digest_of};

/// A pulled file that was not written to the user's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(in crate::cli) struct SkippedFile {
    /// Its name, relative to the folder for pulled files.
    pub(super) name: String,
    /// Why it was not written there.
    #[serde(flatten)]
    pub(super) why: SkipReason,
    /// The copy of the file in the run folder.
    pub(super) file: PathBuf,
}

/// Why a pulled file was not written to the user's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "why", rename_all = "snake_case")]
pub(super) enum SkipReason {
    /// The file of that name was changed here after the run began, so it is kept.
    WrittenHere {},
    /// A folder above it is a symbolic link here, and nothing is written through links.
    BehindLink {
        /// The link, relative to the folder for pulled files.
        link: String,
    },
    /// It belongs to a git repository. git runs files there, so a host could install its own hooks.
    OfGit {
        /// The `.git`, relative to the folder for pulled files.
        git: String,
    },
    /// Programs read files of this name (dot files, `rgpu.toml`, `loop.toml` …), and no matching
    /// `--pull` pattern spells that part of it out.
    NeedsExplicitPattern {
        /// The name up to that part, relative to the folder for pulled files.
        part: String,
    },
}

/// Whether a pulled file may be written to its destination.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DestinationVerdict {
    /// It may be written: there is no file, or one that may be replaced.
    Allowed,
    /// The same file is there already.
    AlreadyPulled,
    /// It must not be written.
    Refused(SkipReason),
}

/// Checks the destinations of a run's pulled files.
pub(super) struct DestinationCheck<'a> {
    folder: &'a RunFolder,
    run_started: Timestamp,
    sent: OnceCell<BTreeMap<String, Digest>>,
}

impl<'a> DestinationCheck<'a> {
    /// For the files of this run.
    pub(super) fn new(folder: &'a RunFolder, record: &RunRecord) -> Self {
        // Without a start time every file counts as changed since, and is compared.
        let run_started = record.started.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        Self { folder, run_started, sent: OnceCell::new() }
    }

    /// Compares the file at the destination with the pulled one and with the one that was sent.
    pub(super) fn check(&self, destination: &Destination, file: &HostFile) -> DestinationVerdict {
        match destination.metadata() {
            Ok(Some(stat)) if !is_folder(&stat) && changed_since(&stat, self.run_started) => {}
            _ => return DestinationVerdict::Allowed,
        }
        match destination.read().and_then(digest_of) {
            Ok((_, digest)) if digest.as_str() == file.artifact.sha256 => {
                DestinationVerdict::AlreadyPulled
            }
            Ok((_, digest)) if self.sent().get(&file.host_path) == Some(&digest) => {
                DestinationVerdict::Allowed
            }
            _ => DestinationVerdict::Refused(SkipReason::WrittenHere {}),
        }
    }

    /// Digests of the files that were sent to the host, by their path there.
    fn sent(&self) -> &BTreeMap<String, Digest> {
        self.sent.get_or_init(|| {
            let text = self.folder.read("plan-1.json").unwrap_or_default();
            let plan = rgpu_run::saved_json::from_slice(&text);
            let files = plan.map_or_else(|_| vec![], |plan: Plan| plan.files);
            files.into_iter().map(|file| (file.path, file.digest)).collect()
        })
    }
}

/// Why a file of this name is never written to the user's folder. `None` if these `--pull` patterns
/// allow it.
pub(super) fn skip_reason_for_name(patterns: &[String], name: &str) -> Option<SkipReason> {
    let git = |part: &str| part.eq_ignore_ascii_case(".git");
    if let Some(git) = prefix_through_part(name, git) {
        return Some(SkipReason::OfGit { git });
    }
    let matching: Vec<&str> = patterns
        .iter()
        .map(|pattern| pattern.trim_start_matches("./"))
        .filter(|pattern| glob::matches(pattern, name))
        .collect();
    let is_named =
        |part: &str| matching.iter().any(|pattern| pattern.split('/').any(|p| p == part));
    let part = prefix_through_part(name, |part| is_read_by_programs(part) && !is_named(part));
    part.map(|part| SkipReason::NeedsExplicitPattern { part })
}

/// The prefix of `name` up to the first part that `predicate` accepts, that part included. Some
/// file systems treat `.GIT` as `.git`, and ignore invisible characters in names.
fn prefix_through_part(name: &str, predicate: impl Fn(&str) -> bool) -> Option<String> {
    let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
    let mut begin = 0;
    for end in ends {
        let part = &name[begin..end];
        if predicate(part) || predicate(&part.replace(is_invisible, "")) {
            return Some(name[..end].to_owned());
        }
        begin = end + 1;
    }
    None
}

/// The files of a project that say what rgpu runs, also on this machine.
const OWN_FILES: [&str; 4] = ["rgpu.toml", "kernel.toml", "bench.toml", "loop.toml"];

/// Whether programs read a file or folder of this name on their own.
fn is_read_by_programs(part: &str) -> bool {
    part.starts_with('.') || OWN_FILES.iter().any(|own| part.eq_ignore_ascii_case(own))
}

/// Characters that HFS+ ignores when it compares names.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Whether a file may have been written since then. Uses ctime: mtime can be set freely and stays
/// when a file is moved.
fn changed_since(stat: &Stat, then: Timestamp) -> bool {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
        > (then.as_second(), i64::from(then.subsec_nanosecond()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use rgpu_protocol::plan::InputFile;

    use rgpu_model::profile::ArtifactKind;

    use rgpu_model::profile::Artifact;
    use rgpu_run::run::{ExecRequest, exec_draft};
    use rgpu_run::store::DestinationRoot;

    fn pulled(text: &str) -> HostFile {
        let digest = Digest::sha256(text.as_bytes());
        HostFile {
            host_path: "here/f".to_owned(),
            rung: "exec".into(),
            artifact: Artifact {
                path: "pulled/f".to_owned(),
                kind: ArtifactKind::Pulled,
                step: "exec".to_owned(),
                size: text.len() as u64,
                sha256: digest.as_str().to_owned(),
            },
        }
    }

    /// The verdict on the pulled text `host_text`, where `sent` was sent to the host and
    /// `local_text` was written here after the run had started at `run_started`.
    fn verdict(
        sent: Option<&str>,
        local_text: &str,
        host_text: &str,
        run_started: &str,
    ) -> DestinationVerdict {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "r", None).unwrap();
        let files = sent.map(|text| InputFile {
            path: "here/f".to_owned(),
            size: text.len() as u64,
            digest: Digest::sha256(text.as_bytes()),
            blobs: Vec::new(),
            piece_bytes: 0,
            executable: false,
        });
        let request = ExecRequest::default();
        let mut plan = exec_draft(&request, "r.1".to_owned()).plan;
        plan.files = files.into_iter().collect();
        folder.write_json("plan-1.json", &plan).unwrap();
        let mut record = RunRecord::new("r".into(), "exec", Timestamp::UNIX_EPOCH);
        record.started = run_started.to_owned();
        fs::write(dir.path().join("f"), local_text).unwrap();
        let destination = DestinationRoot::open(dir.path()).unwrap().destination("f").unwrap();
        DestinationCheck::new(&folder, &record).check(&destination, &pulled(host_text))
    }

    #[test]
    fn what_was_written_here_since_the_run_began_stays_unless_it_is_what_was_sent() {
        const LATER: &str = "2200-01-01T00:00:00Z";
        const BEFORE: &str = "2020-01-01T00:00:00Z";
        let written = DestinationVerdict::Refused(SkipReason::WrittenHere {});
        assert_eq!(verdict(None, "old", "new", LATER), DestinationVerdict::Allowed);
        assert_eq!(verdict(Some("sent"), "mine", "new", LATER), DestinationVerdict::Allowed);
        assert_eq!(verdict(None, "mine", "new", BEFORE), written);
        assert_eq!(verdict(Some("sent"), "mine", "new", BEFORE), written);
        assert_eq!(verdict(Some("sent"), "sent", "new", BEFORE), DestinationVerdict::Allowed);
        assert_eq!(verdict(None, "new", "new", BEFORE), DestinationVerdict::AlreadyPulled);
        assert_eq!(verdict(None, "mine", "new", "no time"), written);
    }

    fn why(pattern: &str, name: &str) -> Option<SkipReason> {
        skip_reason_for_name(&[pattern.to_owned()], name)
    }

    #[test]
    fn what_git_would_run_is_no_place_for_a_hosts_files() {
        for (name, git) in [
            (".git/hooks/pre-commit", ".git"),
            ("out/.git/config", "out/.git"),
            ("out/.GIT", "out/.GIT"),
            (".g\u{200c}it/config", ".g\u{200c}it"),
        ] {
            assert_eq!(why(name, name), Some(SkipReason::OfGit { git: git.to_owned() }), "{name}");
        }
        for allowed in ["a.git/x", "git/x", "x.git"] {
            assert_eq!(why("**", allowed), None, "{allowed}");
        }
    }

    #[test]
    fn a_file_that_programs_read_must_be_named_by_the_pattern() {
        for (pattern, name, part) in [
            ("**", ".bashrc", ".bashrc"),
            ("*", "rgpu.toml", "rgpu.toml"),
            ("*", "loop.toml", "loop.toml"),
            ("*.toml", "Bench.toml", "Bench.toml"),
            ("kernels/**", "kernels/k/kernel.toml", "kernels/k/kernel.toml"),
            ("**", "out/RGPU.toml", "out/RGPU.toml"),
            ("out/**", "out/.cargo/config.toml", "out/.cargo"),
            (".cache/**", ".cache/.envrc", ".cache/.envrc"),
            ("**", "\u{feff}rgpu.toml", "\u{feff}rgpu.toml"),
            (".env*", ".envrc", ".envrc"),
        ] {
            let part = part.to_owned();
            assert_eq!(
                why(pattern, name),
                Some(SkipReason::NeedsExplicitPattern { part }),
                "{pattern} {name}"
            );
        }
        for (pattern, name) in [
            ("./.bashrc", ".bashrc"),
            ("sub/rgpu.toml", "sub/rgpu.toml"),
            ("**/.cache/*", "a/.cache/x"),
            ("out/**", "out/a.b/c"),
        ] {
            assert_eq!(why(pattern, name), None, "{pattern} {name}");
        }
        // The pattern that names it does not match it.
        let patterns = ["**", "sub/.bashrc"].map(str::to_owned);
        assert!(skip_reason_for_name(&patterns, ".bashrc").is_some());
    }
}
