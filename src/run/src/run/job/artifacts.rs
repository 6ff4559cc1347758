//! Fetches the files that a job announced into the run folder.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use super::{HostFile, JobResult, RunContext, cancelled};
use crate::run::event::RunEvent;
use crate::run::file_copies::FileCopies;
use crate::run::is_local;
use crate::store::{RunFolder, UnsyncedFile, digest_file};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::profile::Artifact;
use rgpu_remote::{HostLink, OnRemote, RemoteFile, TransferProgress};

/// A file that the host announced and that can be fetched.
pub(super) struct AnnouncedFile {
    pub(super) step: String,
    pub(super) rung: String,
    pub(super) remote_file: RemoteFile,
    pub(super) kind: String,
}

/// Keeps the last announcement of each path: a later rung may have rewritten the file.
pub(super) fn keep_latest(announced: &mut Vec<AnnouncedFile>) {
    let mut seen = BTreeSet::new();
    announced.reverse();
    announced.retain(|file| seen.insert(file.remote_file.path.clone()));
    announced.reverse();
}

/// Fetches the announced files into the run folder.
pub(super) async fn fetch(
    link: &mut HostLink,
    result: &mut JobResult,
    announced: Vec<AnnouncedFile>,
    context: &mut RunContext<'_>,
    copies: &mut FileCopies,
) -> Result<()> {
    let total: u64 = announced.iter().map(|a| a.remote_file.size).sum();
    let mut bytes_before = 0;
    let mut taken = BTreeSet::new();
    // The files of a cancelled job are fetched too, until the user asks again.
    let cancel_requests = context.cancel.handled_count();
    for AnnouncedFile { step, rung, remote_file, kind } in announced {
        let local_path =
            unique_path(context.folder.artifact_path(&kind, &remote_file.path)?, &mut taken);
        let dest = context.folder.path().join(&local_path);
        let inner = Path::new(&local_path).parent().unwrap_or(Path::new(""));
        context.folder.files().make_folder(inner).map_err(|e| {
            Failure::new(Exit::Disk, "disk", "cannot write the run folder")
                .file(dest.display())
                .cause(e)
        })?;
        if !is_already_fetched(context.folder, &local_path, &remote_file) {
            let reporter = Mutex::new(&mut *context.reporter);
            let progress = |t: TransferProgress| {
                if let Ok(mut reporter) = reporter.lock() {
                    reporter.report(&RunEvent::Fetching {
                        path: &remote_file.path,
                        got: bytes_before + t.done,
                        total,
                    });
                }
            };
            let mut cancel = context.cancel.clone();
            let dest_below = (context.folder.files(), Path::new(&local_path));
            let (file, copy) = copies.begin(&local_path, remote_file.size).unzip();
            let fetched = tokio::select! {
                fetched = link.fetch_into(&remote_file, dest_below, file, &progress) => {
                    fetched.on(link.remote())?
                }
                () = cancel.wait_for_more_than(cancel_requests) => return Err(cancelled().hint(format!(
                    "the job has ended; `rgpu runs attach {}` fetches the rest",
                    context.record.id
                ))),
            };
            if let Some(copy) = copy.filter(|_| fetched.copied) {
                copies.keep(&local_path, copy);
            }
            let record =
                context.record.jobs.iter_mut().find(|record| record.job == remote_file.job);
            if let Some(record) = record {
                record.unsynced.retain(|file| file.path != local_path);
                let unsynced = UnsyncedFile { path: local_path.clone(), size: remote_file.size };
                // On this machine, the host's copy lies on the same disk and is no safer.
                let lost = !fetched.synced && !is_local(link);
                record.unsynced.extend(lost.then_some(unsynced));
            }
        }
        bytes_before += remote_file.size;
        result.files.push(HostFile {
            host_path: remote_file.path.clone(),
            rung: rung.into(),
            artifact: Artifact {
                path: local_path,
                kind: kind.into(),
                step,
                size: remote_file.size,
                sha256: remote_file.digest.as_str().to_owned(),
            },
        });
    }
    Ok(())
}

/// A path that no other file of the job has. Paths that differ only by case count as equal, since
/// file systems of laptops may not distinguish them.
fn unique_path(path: String, taken: &mut BTreeSet<String>) -> String {
    if taken.insert(path.to_lowercase()) {
        return path;
    }
    let (folder, name) = path.rsplit_once('/').map_or(("", &*path), |(f, n)| (f, n));
    let (stem, suffix) = name.split_once('.').map_or((name, ""), |(s, _)| (s, &name[s.len()..]));
    let slash = if folder.is_empty() { "" } else { "/" };
    let mut free = (2..).map(|n| format!("{folder}{slash}{stem}~{n}{suffix}"));
    free.find(|path| taken.insert(path.to_lowercase())).unwrap_or(path)
}

/// Whether the file is here with this content: an earlier plan may have left another file of the
/// same size.
fn is_already_fetched(folder: &RunFolder, path: &str, remote_file: &RemoteFile) -> bool {
    let opened = folder.files().open_file(path).and_then(|file| file.metadata());
    opened.is_ok_and(|metadata| metadata.len() == remote_file.size)
        && digest_file(&folder.path().join(path))
            .is_ok_and(|here| here.sha256 == remote_file.digest)
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::Digest;

    use super::*;

    #[test]
    fn files_whose_names_differ_by_case_alone_get_places_apart() {
        let mut taken = BTreeSet::new();
        let names = ["raw/A.csv", "raw/a.csv", "raw/a~2.csv", "raw/a.CSV", "cubin/a.csv", "x", "X"];
        let places: Vec<String> =
            names.iter().map(|n| unique_path((*n).to_owned(), &mut taken)).collect();
        assert_eq!(
            places,
            ["raw/A.csv", "raw/a~2.csv", "raw/a~2~2.csv", "raw/a~3.CSV", "cubin/a.csv", "x", "X~2"]
        );
    }

    #[test]
    fn of_files_with_the_same_path_the_last_one_counts() {
        let announced = |path: &str, step: &str| {
            let digest = Digest::sha256(b"");
            let (job, path) = ("r.1".to_owned(), path.to_owned());
            let remote_file = RemoteFile { job, path, size: 0, digest, composite: None };
            let (step, rung, kind) = (step.to_owned(), String::new(), String::new());
            AnnouncedFile { step, rung, remote_file, kind }
        };
        let mut files = vec![announced("a", "1"), announced("b", "2"), announced("a", "3")];
        keep_latest(&mut files);
        let left: Vec<_> = files.iter().map(|f| (&*f.remote_file.path, &*f.step)).collect();
        assert_eq!(left, [("b", "2"), ("a", "3")]);
    }

    #[test]
    fn a_file_of_the_same_size_is_not_taken_for_the_one_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "r", None).unwrap();
        let digest = Digest::sha256(b"new");
        let remote_file = RemoteFile {
            job: "r.2".into(),
            path: "raw/report".into(),
            size: 3,
            digest,
            composite: None,
        };
        folder.write("raw/report", b"old").unwrap();
        assert!(!is_already_fetched(&folder, "raw/report", &remote_file));
        folder.write("raw/report", b"new").unwrap();
        assert!(is_already_fetched(&folder, "raw/report", &remote_file));
    }
}
